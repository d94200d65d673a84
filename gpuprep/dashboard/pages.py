"""What each page shows. Reads the board and the store, judges nothing. A page is a template, its variables, and the
same as a JSON document.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from typing import Any
from urllib.parse import quote, urlencode

from gpuprep.dashboard import charts
from gpuprep.dashboard.board import JUDGING, Board
from gpuprep.dashboard.digest import Host
from gpuprep.dashboard.speeds import NIGHTS, Falling, Headline, Speeds
from gpuprep.errors import UsageError
from gpuprep.performance import trend
from gpuprep.performance.trend import FEWEST_NIGHTS, Direction
from gpuprep.records import Finding
from gpuprep.records.findings import PROBLEMS
from gpuprep.records.moments import minute, moment
from gpuprep.reports import drifted
from gpuprep.reports.fleet import COUNTED
from gpuprep.reports.readings import figure
from gpuprep.store.overview import Run
from gpuprep.untrusted.plaintext import one_line

A_PAGE = 50  # rows
MOST_PAGES = 100_000
MOST_LETTERS = 255  # of a word that is asked for
STRIP = 60  # runs of a host's strip
OVER_TIME = 30  # checks in a row of findings over time
NAMED = 5  # hosts that a finding names
FOUND = 20  # of each kind, by a search
FEWEST_LETTERS = 2  # of a search
WITHOUT_VERDICT = {0: "DONE", 2: "REFUSED", 4: "FAILED", 130: "STOPPED"}  # by exit code, as in reports
SORTS = ("worst", "name", "checked", "speed")
WORD_ORDER = {word: place for place, word in enumerate(("FAIL", "UNKNOWN", "WARN", "PASS", "SKIP"))}


class NotFound(UsageError):
    """There is no such thing in the store."""


@dataclass(frozen=True)
class Page:
    template: str
    variables: dict[str, Any]
    document: dict[str, Any]  # without its schema version
    status: int = 200


@dataclass(frozen=True)
class Query:
    """What stands behind the ? of an address. Each word is bounded; one that is not known is not looked at."""

    words: Mapping[str, str]

    def text(self, name: str) -> str:
        """Raises UsageError."""
        found = self.words.get(name, "").strip()
        if len(found) > MOST_LETTERS:
            raise UsageError(f"?{name}= has {len(found)} characters", f"at most {MOST_LETTERS} are taken")
        return found

    def choice(self, name: str, allowed: Sequence[str]) -> str:
        """The first of `allowed` where none is given. Raises UsageError."""
        found = self.text(name)
        if found and found not in allowed:
            raise UsageError(f"?{name}={one_line(found, 40)}: there is no such", f"there are {', '.join(allowed)}")
        return found or allowed[0]

    @property
    def page(self) -> int:
        """From 1 on. Raises UsageError."""
        found = self.text("page") or "1"
        if not (found.isascii() and found.isdigit() and len(found) <= 6 and 1 <= int(found) <= MOST_PAGES):
            raise UsageError(f"?page={one_line(found, 40)}: this is no page", f"want a number from 1 to {MOST_PAGES}")
        return int(found)

    def link(self, **changes: object) -> str:
        """The same question with changes; "" takes a word away."""
        made = {**{name: value for name, value in self.words.items() if name != "format"}, **changes}
        return "?" + urlencode({name: value for name, value in made.items() if value not in ("", None)})


@dataclass(frozen=True)
class Cut:
    """One page of rows."""

    rows: Sequence[Any]
    number: int
    pages: int
    total: int
    before: str  # addresses; "" where there is none
    after: str


def cut(rows: Sequence[Any], query: Query) -> Cut:
    pages = max(1, -(-len(rows) // A_PAGE))
    number = min(query.page, pages)
    return Cut(
        rows[(number - 1) * A_PAGE : number * A_PAGE],
        number,
        pages,
        len(rows),
        query.link(page=number - 1) if number > 1 else "",
        query.link(page=number + 1) if number < pages else "",
    )


def host_path(name: str) -> str:
    return f"/host/{quote(name, safe='')}"


def run_path(run_id: str) -> str:
    return f"/run/{quote(run_id, safe='')}"


def word_of(run: Run) -> str:
    return run.verdict.value if run.verdict else WITHOUT_VERDICT.get(run.exit_code, "UNKNOWN")


# ---------------------------------------------------------------- /fleet


def fleet(board: Board, query: Query) -> Page:
    now = board.fleet()
    chosen, finding = query.text("name").casefold(), query.text("finding")
    wanted = {name: query.text(name) for name in ("verdict", "gpu", "driver")}
    found = [
        host
        for host in now.hosts
        if (not wanted["verdict"] or host.word == wanted["verdict"])
        and (not wanted["gpu"] or host.gpu == wanted["gpu"])
        and (not wanted["driver"] or host.driver == wanted["driver"])
        and (not chosen or any(chosen in name.casefold() for name in (host.name, *host.others)))
        and (not finding or any(one.key == finding for one in host.problems))
    ]
    sort = query.choice("sort", SORTS)
    speeds = {host.name: board.speeds(host) for host in found}
    if sort == "name":
        found.sort(key=lambda host: host.name)
    elif sort == "checked":
        found.sort(key=lambda host: host.record.started_at)
    elif sort == "speed":
        found.sort(key=lambda host: _headline_value(speeds[host.name]))
    rows = cut(found, query)
    words = Counter(host.word for host in now.hosts)
    shown = [*COUNTED, *sorted(words.keys() - set(COUNTED))]
    stand_ins = sum(host.simulated for host in now.hosts)
    variables = {
        "cut": rows,
        "rows": [_fleet_row(host, speeds[host.name]) for host in rows.rows],
        "tiles": [{"word": word, "count": words[word], "link": query.link(verdict=word, page="")} for word in shown],
        "wanted": {**wanted, "name": query.text("name"), "finding": finding, "sort": sort},
        "verdicts": shown,
        "gpus": sorted({host.gpu for host in now.hosts if host.gpu}),
        "drivers": sorted({host.driver for host in now.hosts if host.driver}),
        "sorts": {name: query.link(sort=name, page="") for name in SORTS},
        "every": len(now.hosts),
        "filtered": any(wanted.values()) or bool(chosen or finding),
        "to_read": board.to_read,
        "read_at": now.read_at,
        "stand_ins": stand_ins,
        "banner": _banner(stand_ins, len(now.hosts)),
    }
    document = {
        "hosts": [_host_document(host, speeds[host.name]) for host in rows.rows],
        "page": rows.number,
        "pages": rows.pages,
        "total": rows.total,
        "counts": dict(words),
        "read_at": now.read_at,
    }
    return Page("fleet.html", variables, document)


def _banner(stand_ins: int, every: int) -> str:
    if not stand_ins:
        return ""
    some = f"SIMULATED: the GPUs of {stand_ins} of these hosts are stand-ins; their rows say so"
    return "SIMULATED: no figure here is of a real GPU" if stand_ins == every else some


def _headline_value(found: Speeds | None) -> float:
    return found.headlines[0].newest if found and found.headlines else float("inf")


def _fleet_row(host: Host, found: Speeds | None) -> dict[str, Any]:
    headline = found.headlines[0] if found and found.headlines else None
    return {
        "host": host,
        "path": host_path(host.name),
        "run": run_path(host.record.run_id),
        "checked": minute(host.record.started_at).removesuffix(" UTC"),
        "headline": headline,
        "speed": f"{figure(headline.newest)} {headline.unit}" if headline else "",
        "spark": _spark(headline) if headline and len(headline.nights) > 1 else "",
        "falls": found is not None and found.direction is Direction.DOWN,
    }


def _spark(headline: Headline) -> Any:
    first, last = headline.nights[0], headline.nights[-1]
    return charts.spark(
        headline.nights, f"{headline.label}: {figure(first[1])} on {first[0]}, {figure(last[1])} on {last[0]}"
    )


def _host_document(host: Host, found: Speeds | None) -> dict[str, Any]:
    return {
        "host": host.name,
        "also_called": host.others,
        "run_id": host.record.run_id,
        "command": host.record.command,
        "started_at": host.record.started_at,
        "verdict": host.word,
        "summary": host.record.verdict.summary if host.record.verdict else "",
        "since": host.since,
        "gpu": host.gpu,
        "driver": host.driver,
        "kernel": host.kernel,
        "simulated": host.simulated,
        "findings": host.problems,
        "trend": found.direction if found else None,
        "figures": _figures_document(found),
    }


def _figures_document(found: Speeds | None) -> list[dict[str, Any]]:
    return [
        {"name": one.label, "figure": one.figure, "value": one.newest, "unit": one.unit, "gpu_uuid": one.gpu_uuid}
        for one in (found.headlines if found else ())
    ]


# ---------------------------------------------------------------- /host/NAME


def host(board: Board, name: str, query: Query) -> Page:
    store = board.store
    before = query.text("before")
    names = store.names_of(name)
    runs = store.of_names(names, before, STRIP)
    if not runs and not before:
        raise NotFound(f"no runs of {one_line(name, MOST_LETTERS)} are recorded", "/search looks for names")
    latest = board.fleet().named(name)
    certified = store.host_baseline(name)
    speeds = board.speeds_now(name if latest is None else latest.name)
    figures = {(key.gpu_uuid, of): one.value for key, named in certified.figures.items() for of, one in named.items()}
    checks = [run for run in runs if run.command in JUDGING and run.verdict][:OVER_TIME]
    shown = cut(runs, query)
    variables = {
        "name": name,
        "others": names[1:],
        "host": latest,
        "word": latest.word if latest else "",
        "problems": [(one, drifted.since(one, latest.record.started_at)) for one in latest.problems] if latest else [],
        "last": _run_row_of(latest) if latest else None,
        "certified": certified,
        "certified_path": run_path(certified.run_id) if certified.run_id else "",
        "strip": [_cell(run) for run in reversed(runs) if run.command in JUDGING],
        "speeds": speeds,
        "fewest": FEWEST_NIGHTS,
        "headlines": [_over_time(one, figures.get((one.gpu_uuid, one.figure))) for one in speeds.headlines],
        "falling": [_falling(one) for one in speeds.falling],
        "over_time": _findings_over_time(board, checks),
        "checks": len(checks),
        "cut": shown,
        "rows": [_run_row(run) for run in shown.rows],
        "older": query.link(before=runs[-1].started_at, page="") if len(runs) == STRIP else "",
        "before": before,
        "banner": "SIMULATED: no figure here is of a real GPU" if latest and latest.simulated else "",
    }
    document = {
        "host": name,
        "also_called": names[1:],
        "newest": _host_document(latest, speeds) if latest else None,
        "certified": {"run_id": certified.run_id, "started_at": certified.run_at, "reason": certified.reason},
        "trend": speeds.direction,
        "nights": speeds.nights,
        "falling": [one.trend for one in speeds.falling],
        "runs": [_run_document(run) for run in runs],
    }
    return Page("host.html", variables, document)


def _cell(run: Run) -> dict[str, str]:
    word = word_of(run)
    return {"word": word, "path": run_path(run.run_id), "told": f"{run.started_at[:10]} {run.command}: {word}"}


def _over_time(one: Headline, certified: float | None) -> dict[str, Any]:
    told = f"{one.label} of {one.nights[0][0]} to {one.nights[-1][0]}, newest {figure(one.newest)} {one.unit}"
    more = f", certified with {figure(certified)}" if certified else ""
    drawn = charts.both(charts.over_time, one.nights, one.unit, certified, told + more)
    return {**drawn, "one": one, "value": figure(one.newest), "certified": figure(certified) if certified else ""}


def _falling(one: Falling) -> dict[str, Any]:
    told = one.trend
    return {
        "one": told,
        "gpu": told.gpu_uuid[:12],
        "newest": figure(told.newest),
        "loss": f"{told.loss_percent:.1f} %" if told.loss_percent is not None else "–",
        "weekly": f"{told.percent_per_week:+.2f} %" if told.percent_per_week is not None else "–",
        "p": f"{told.p:.2g}" if told.p is not None else "–",
        "spark": charts.spark(one.nights, f"{told.figure}: from {figure(one.nights[0][1])} to {figure(told.newest)}"),
    }


def _findings_over_time(board: Board, checks: Sequence[Run]) -> list[dict[str, Any]]:
    """A row a check that did not pass in one of these runs: those that still do not pass first, then the newest."""
    runs = list(reversed(checks))
    place = {run.run_id: number for number, run in enumerate(runs)}
    found: dict[str, list[str]] = defaultdict(lambda: [""] * len(runs))
    actual: dict[str, tuple[int, str]] = {}
    for one in board.store.problems(list(place)):
        key = f"{one.subject}.{one.property}"
        found[key][place[one.run_id]] = one.status.value
        actual[key] = max(actual.get(key, (-1, "")), (place[one.run_id], one.actual))
    rows = []
    for key, words in found.items():
        last = max(number for number, word in enumerate(words) if word)
        first = next(number for number in range(last, -1, -1) if not number or not words[number - 1])
        still = last == len(runs) - 1
        told = sum(map(bool, words))
        rows.append(
            {
                "name": drifted.words(key),
                "word": words[last],
                "still": still,
                "told": f"{told} of {len(runs)}",
                "actual": actual[key][1],
                "since": runs[first].started_at[:10] if first else f"{runs[0].started_at[:10]} or earlier",
                "until": "" if still else runs[last].started_at[:10],
                "drawn": charts.checks(words, f"{drifted.words(key)}: did not pass in {told} of {len(runs)} checks"),
                "order": (not still, WORD_ORDER.get(words[last], 9), -last, key),
            }
        )
    return sorted(rows, key=lambda row: row["order"])


def _run_row(run: Run) -> dict[str, Any]:
    return {
        "run": run,
        "word": word_of(run),
        "path": run_path(run.run_id),
        "host": host_path(run.host),
        "when": minute(run.started_at).removesuffix(" UTC"),
        "simulated": run.source is not None and run.source.value == "simulated",
    }


def _run_row_of(latest: Host) -> dict[str, Any]:
    record = latest.record
    summary = record.verdict.summary if record.verdict else (record.error or "").partition("\n")[0]
    return {"path": run_path(record.run_id), "when": minute(record.started_at), "summary": summary, "record": record}


def _run_document(run: Run) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "command": run.command,
        "host": run.host,
        "profile": run.profile,
        "started_at": run.started_at,
        "source": run.source,
        "verdict": word_of(run),
        "exit_code": run.exit_code,
        "summary": run.summary,
    }


# ---------------------------------------------------------------- /nights


def nights(board: Board) -> Page:
    first = trend.night(datetime.now(timezone.utc).isoformat()) or date.today()
    by_night = _by_night(board, first - timedelta(days=NIGHTS - 1))
    days = [first - timedelta(days=back) for back in range(NIGHTS - 1, -1, -1)]
    counted = [(str(day), _counted(by_night.get(day, {}))) for day in days]
    told = f"How the hosts of each of the last {NIGHTS} nights ended"
    variables = {
        "chart": charts.both(charts.stacked, counted, told),
        "any": any(sum(counts.values()) for _, counts in counted),
        "rows": [
            {"day": day, "counts": counts, "total": sum(counts.values()), "path": f"/nights/{day}"}
            for day, counts in reversed(counted)
        ],
        "words": ("FAIL", "UNKNOWN", "WARN", "PASS"),
        "legend": charts.STACK,
        "banner": "",
    }
    document = {"nights": [{"night": day, "counts": counts} for day, counts in counted]}
    return Page("nights.html", variables, document)


def _by_night(board: Board, first: date) -> dict[date, dict[str, Run]]:
    """Of each night the last run of each name."""
    found: dict[date, dict[str, Run]] = defaultdict(dict)
    for run in board.since(f"{first}T12:00:00+00:00"):
        day = trend.night(run.started_at)
        if day is not None and run.command in JUDGING:
            found[day][run.host] = run
    return found


def _counted(of: Mapping[str, Run]) -> dict[str, int]:
    counts = Counter(run.verdict.value if run.verdict else "UNKNOWN" for run in of.values())
    return {word: counts[word] for word in charts.STACK if counts[word]}


def night(board: Board, day: str, query: Query) -> Page:
    try:
        wanted = date.fromisoformat(day)
        after = wanted + timedelta(days=1)
    except (ValueError, OverflowError) as error:
        raise NotFound(f"{one_line(day, 40)} is no day", "write it as 2026-11-22") from error
    runs = board.store.between(f"{wanted}T12:00:00+00:00", f"{after}T12:00:00+00:00")
    judged = [run for run in runs if run.command in JUDGING]
    word = query.text("verdict")
    words = Counter(map(word_of, judged))
    chosen = [run for run in judged if not word or word_of(run) == word]
    chosen.sort(key=lambda run: (WORD_ORDER.get(word_of(run), -1), run.host, run.started_at))
    rows = cut(chosen, query)
    listed = [_run_row(run) for run in board.store.whole([run.run_id for run in rows.rows])]
    variables = {
        "day": str(wanted),
        "after": str(after),
        "before_path": f"/nights/{wanted - timedelta(days=1)}" if wanted > date(1, 1, 2) else "",
        "after_path": f"/nights/{after}",
        "words": sorted(words.items(), key=lambda one: WORD_ORDER.get(one[0], -1)),
        "links": {each: query.link(verdict=each, page="") for each in words},
        "wanted": word,
        "cut": rows,
        "rows": listed,
        "total": len(judged),
        "banner": "",
    }
    document = {"night": str(wanted), "runs": [_run_document(row["run"]) for row in listed],
                "page": rows.number, "pages": rows.pages, "total": rows.total, "counts": dict(words)}  # fmt: skip
    return Page("night.html", variables, document)


# ---------------------------------------------------------------- /trends


def trends(board: Board, query: Query) -> Page:
    now = board.fleet()
    read = [(host, found) for host in now.hosts if (found := board.speeds(host)) is not None]
    counts = Counter(found.direction.value for _, found in read)
    falling = [(host, one) for host, found in read for one in found.falling]
    falling.sort(key=lambda each: -(each[1].trend.loss_percent or 0.0))
    rows = cut(falling, query)
    few = sorted((found.nights, host.name) for host, found in read if found.direction is Direction.UNKNOWN)
    variables = {
        "cut": rows,
        "rows": [{**_falling(one), "host": host, "path": host_path(host.name)} for host, one in rows.rows],
        "counts": [(word.value, counts[word.value]) for word in (Direction.DOWN, Direction.STEADY, Direction.UNKNOWN)],
        "read": len(read),
        "every": len(now.hosts),
        "to_read": board.to_read,
        "few": [{"name": name, "nights": count, "path": host_path(name)} for count, name in reversed(few)][:A_PAGE],
        "few_count": len(few),
        "fewest": FEWEST_NIGHTS,
        "nights": NIGHTS,
        "banner": _banner(sum(found.simulated for _, found in read), len(read)) if read else "",
    }
    document = {
        "counts": dict(counts),
        "read": len(read),
        "hosts": len(now.hosts),
        "trends": [{"host": host.name, **vars(one.trend)} for host, one in rows.rows],
        "page": rows.number,
        "pages": rows.pages,
    }
    return Page("trends.html", variables, document)


# ---------------------------------------------------------------- /findings


def findings(board: Board, query: Query) -> Page:
    now = board.fleet()
    found: dict[tuple[str, str], list[tuple[Host, Finding]]] = defaultdict(list)
    for host in now.hosts:
        for one in host.problems:
            found[one.status.value, one.key].append((host, one))
    order = {status.value: place for place, status in enumerate(PROBLEMS)}
    groups = sorted(found.items(), key=lambda each: (order[each[0][0]], -len(each[1]), each[0][1]))
    rows = cut(groups, query)
    variables = {
        "cut": rows,
        "rows": [_finding_row(word, key, listed) for (word, key), listed in rows.rows],
        "hosts": sum(bool(host.problems) for host in now.hosts),
        "every": len(now.hosts),
        "banner": _banner(sum(host.simulated for host in now.hosts), len(now.hosts)),
    }
    document = {
        "findings": [
            {"status": word, "key": key, "hosts": [host.name for host, _ in listed], "actual": listed[0][1].actual}
            for (word, key), listed in rows.rows
        ],
        "page": rows.number,
        "pages": rows.pages,
    }
    return Page("findings.html", variables, document)


def _finding_row(word: str, key: str, listed: Sequence[tuple[Host, Finding]]) -> dict[str, Any]:
    said = Counter(one.actual for _, one in listed)
    moments = [read for _, one in listed if (read := moment(one.since)) is not None]
    first = listed[0][1]
    return {
        "word": word,
        "name": drifted.words(key),
        "count": len(listed),
        "said": said.most_common(3),
        "kinds": len(said),
        "expected": first.expected,
        "reason": first.reason,
        "remedy": first.remedy,
        "since": f"{min(moments):%Y-%m-%d}" if moments else "–",
        "hosts": [{"name": host.name, "path": host_path(host.name)} for host, _ in listed[:NAMED]],
        "more": len(listed) - NAMED,
        "all": f"/fleet?{urlencode({'finding': key})}",
        "path": f"/findings/{quote(key, safe='')}",
    }


def finding(board: Board, key: str, query: Query) -> Page:
    """One check over the last nights, on all hosts."""
    subject, _, name = key.partition(".")
    first = trend.night(datetime.now(timezone.utc).isoformat()) or date.today()
    begin = first - timedelta(days=NIGHTS - 1)
    by_night: dict[date, dict[str, str]] = defaultdict(dict)
    runs = board.store.with_problem(subject, name, f"{begin}T12:00:00+00:00")
    for host, started_at, status in sorted(runs, key=lambda run: run[1]):
        day = trend.night(started_at)
        if day is not None:
            by_night[day][host] = status
    days = [first - timedelta(days=back) for back in range(NIGHTS - 1, -1, -1)]
    counted = [(str(day), dict(Counter(by_night[day].values()))) for day in days]
    now = [host for host in board.fleet().hosts if any(one.key == key for one in host.problems)]
    if not now and not runs:
        raise NotFound(
            f"no check {one_line(key, MOST_LETTERS)} failed in the last {NIGHTS} nights", "/findings has all"
        )
    example = next((one for host in now for one in host.problems if one.key == key), None)
    told = f"On how many hosts {drifted.words(key)} did not pass, by night"
    rows = cut(now, query)
    variables = {
        "name": drifted.words(key),
        "chart": charts.both(charts.stacked, counted, told),
        "any": bool(runs),
        "legend": [word for word in charts.STACK if word != "PASS"],
        "example": example,
        "cut": rows,
        "rows": [
            {
                "host": host,
                "path": host_path(host.name),
                "run": run_path(host.record.run_id),
                "since": drifted.since(one, host.record.started_at),
                "one": one,
            }
            for host in rows.rows
            for one in host.problems
            if one.key == key
        ],
        "nights": NIGHTS,
        "banner": _banner(sum(host.simulated for host in now), len(now)) if now else "",
    }
    document = {
        "key": key,
        "nights": [{"night": day, "counts": counts} for day, counts in counted],
        "hosts": [host.name for host in now],
    }
    return Page("finding.html", variables, document)


# ---------------------------------------------------------------- /search


def search(board: Board, query: Query) -> Page:
    asked = query.text("q")
    found: dict[str, Any] = {"hosts": [], "runs": [], "findings": []}
    if len(asked) >= FEWEST_LETTERS:
        word = asked.casefold()
        hosts = board.fleet().hosts
        found["hosts"] = [host for host in hosts if any(word in text.casefold() for text in _texts(host))]
        found["runs"] = board.store.beginning_with(asked, FOUND)
        keys: dict[str, int] = Counter(
            one.key
            for host in hosts
            for one in host.problems
            if word in drifted.words(one.key).casefold() or word in one.key.casefold() or word in one.actual.casefold()
        )
        found["findings"] = sorted(keys.items(), key=lambda one: (-one[1], one[0]))
    variables = {
        "asked": asked,
        "few": bool(asked) and len(asked) < FEWEST_LETTERS,
        "hosts": [{"host": host, "path": host_path(host.name)} for host in found["hosts"][:FOUND]],
        "more_hosts": len(found["hosts"]) - FOUND,
        "all_hosts": f"/fleet?{urlencode({'name': asked})}",
        "runs": [_run_row(run) for run in found["runs"]],
        "findings": [
            {"name": drifted.words(key), "count": count, "path": f"/findings/{quote(key, safe='')}"}
            for key, count in found["findings"][:FOUND]
        ],
        "nothing": bool(asked) and not any(found.values()),
        "banner": "",
    }
    document = {
        "q": asked,
        "hosts": [host.name for host in found["hosts"][:FOUND]],
        "runs": [_run_document(run) for run in found["runs"]],
        "findings": [key for key, _ in found["findings"][:FOUND]],
    }
    return Page("search.html", variables, document)


def _texts(host: Host) -> tuple[str, ...]:
    return (host.name, *host.others, host.gpu, host.driver, host.kernel, host.system, host.record.run_id)
