"""Addresses, questions and rows that several pages share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from gpuprep.checks import commands
from gpuprep.dashboard import charts
from gpuprep.dashboard.board import Board, Host
from gpuprep.dashboard.speeds import Falling, Speeds
from gpuprep.errors import UsageError
from gpuprep.records import Finding, RunRecord, ended
from gpuprep.records.moments import minute, moment
from gpuprep.reports import drifted
from gpuprep.reports.causes import Group
from gpuprep.reports.readings import figure
from gpuprep.store.overview import Run
from gpuprep.untrusted.plaintext import one_line

A_PAGE = 50  # rows
NAMED = 5  # hosts that a cause names
MOST_CAUSES = 8  # that are read at once; the others are in a fold
MOST_PAGES = 100_000
MOST_LETTERS = 255  # of a word that is asked for


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
    """The query of an address. Each value has a limit; unknown names are ignored."""

    words: Mapping[str, str]

    def text(self, name: str) -> str:
        """Raises UsageError."""
        argument = self.words.get(name, "").strip()
        if len(argument) > MOST_LETTERS:
            raise UsageError(f"?{name}= has {len(argument)} characters", f"at most {MOST_LETTERS} are taken")
        return argument

    def choice(self, name: str, allowed: Sequence[str]) -> str:
        """The first of `allowed` where none is given. Raises UsageError."""
        chosen = self.text(name)
        if chosen and chosen not in allowed:
            raise UsageError(f"?{name}={one_line(chosen, 40)}: not known", f"there are {', '.join(allowed)}")
        return chosen or allowed[0]

    @property
    def page(self) -> int:
        """From 1 on. Raises UsageError."""
        number = self.text("page") or "1"
        if not (number.isascii() and number.isdigit() and len(number) <= 6 and 1 <= int(number) <= MOST_PAGES):
            raise UsageError(f"?page={one_line(number, 40)}: this is no page", f"want a number from 1 to {MOST_PAGES}")
        return int(number)

    def link(self, **changes: object) -> str:
        """The same query with changes; "" removes a value."""
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


def finding_path(key: str) -> str:
    """ "" for a name that cannot be in an address."""
    return f"/findings/{quote(key, safe='')}" if key.strip(".") else ""


def _began(finding: Finding) -> float:
    read = moment(finding.since)
    return read.timestamp() if read else 0.0


def _since(finding: Finding, now: str) -> str:
    return drifted.since(finding, now).removeprefix("since ") if now else finding.since[:10]


def cause_row(
    group: Group, hosts: Sequence[Host] = (), record: RunRecord | None = None, now: str = ""
) -> dict[str, Any]:
    """What did not pass for one reason, with the hosts that have it. `record`: of one host, its remedy has commands to
    paste. `now`: when that host was checked."""
    first, values = group.first, Counter(finding.actual for finding in group.findings)
    keys = list(dict.fromkeys(finding.key for finding in group.findings))
    oldest = min((finding for finding in group.findings if moment(finding.since)), key=_began, default=None)
    alike = len({finding.reason for finding in group.findings}) == 1
    named = list(dict.fromkeys(host.name for host in hosts))
    return {
        "word": first.status.value,
        "keys": keys,
        "name": drifted.words(keys[0]).strip() or "a check without a name" if len(keys) == 1 else group.checks,
        "path": finding_path(keys[0]) if len(keys) == 1 else "",
        "checks": [
            {"name": drifted.words(key).strip() or "a check without a name", "path": finding_path(key)} for key in keys
        ],
        "said": values.most_common(3),
        "kinds": len(values),
        "expected": first.expected if len({finding.expected for finding in group.findings}) == 1 else "",
        "reason": f"{'' if alike else 'for example: '}{first.reason}" if first.reason else "",
        "remedy": commands.expanded(first.remedy, record, group.subject) if record else first.remedy,
        "since": _since(oldest, now) if oldest else "",
        "hosts": [{"name": name, "path": host_path(name)} for name in named[:NAMED]],
        "count": len(named),
        "all": f"/fleet?{urlencode({'finding': keys[0]})}" if len(keys) == 1 else "",
    }


def word_of(run: Run) -> str:
    return ended.word(run.verdict, run.exit_code)


def banner(stand_ins: int, every: int) -> str:
    if not stand_ins:
        return ""
    some = f"SIMULATED: the GPUs of {stand_ins} of these hosts are stand-ins; their rows say so"
    return "SIMULATED: no figure here is of a real GPU" if stand_ins == every else some


def host_document(host: Host, speeds: Speeds | None) -> dict[str, Any]:
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
        "trend": speeds.direction if speeds else None,
        "figures": _figures_document(speeds),
    }


def _figures_document(speeds: Speeds | None) -> list[dict[str, Any]]:
    return [
        {
            "name": headline.label,
            "figure": headline.figure,
            "value": headline.newest,
            "unit": headline.unit,
            "gpu_uuid": headline.gpu_uuid,
        }
        for headline in (speeds.headlines if speeds else ())
    ]


def falling_row(falling: Falling) -> dict[str, Any]:
    trend = falling.trend
    return {
        "one": trend,
        "gpu": trend.gpu_uuid[:12],
        "newest": figure(trend.newest),
        "loss": f"{trend.loss_percent:.1f} %" if trend.loss_percent is not None else "–",
        "weekly": f"{trend.percent_per_week:+.2f} %" if trend.percent_per_week is not None else "–",
        "p": f"{trend.p:.2g}" if trend.p is not None else "–",
        "spark": charts.spark(
            falling.nights, f"{trend.figure}: from {figure(falling.nights[0][1])} to {figure(trend.newest)}"
        ),
    }


def run_row(run: Run) -> dict[str, Any]:
    return {
        "run": run,
        "word": word_of(run),
        "path": run_path(run.run_id),
        "host": host_path(run.host),
        "when": minute(run.started_at).removesuffix(" UTC"),
        "simulated": run.source is not None and run.source.value == "simulated",
    }


def run_document(run: Run) -> dict[str, Any]:
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


def fleet_banner(board: Board) -> str:
    hosts = board.fleet().hosts
    return banner(sum(host.simulated for host in hosts), len(hosts))
