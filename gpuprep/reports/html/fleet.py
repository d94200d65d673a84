"""What the page of a fleet shows, in the order of fleet.html: causes that hosts share, then hosts, the worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from gpuprep import __version__
from gpuprep.checks import commands
from gpuprep.records import RunRecord, Status
from gpuprep.records.evidence import NOT_RECORDED, Figure
from gpuprep.records.findings import PROBLEMS, findings_of, in_order
from gpuprep.records.moments import minute, moment
from gpuprep.reports import causes, drifted, fleet, glance
from gpuprep.reports.html.contents import HALVES, STAND_IN, WORK, Pairs, gpus_of
from gpuprep.reports.measured import simulated
from gpuprep.reports.readings import answer, figure, known
from gpuprep.reports.text import outcome

NOT_READ = "–"
HEIGHT = 1080  # of the pictures that streams are counted of
MOST_CAUSES = 8  # that are shown; the others are in a fold


@dataclass(frozen=True)
class Product:
    dtype: str = ""
    accumulate: str = ""
    tflops: Figure = NOT_RECORDED


@dataclass(frozen=True)
class Gpu:
    index: int = -1
    gemms: tuple[Product, ...] = ()
    copy_gb_per_s: Figure = NOT_RECORDED


@dataclass(frozen=True)
class Step:
    fps: Figure = NOT_RECORDED


@dataclass(frozen=True)
class Series:
    gpu: Optional[Gpu] = None  # the decoder of evidence knows no `Gpu | None`
    kind: str = ""
    height: int = 0
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Speeds:
    """Of records/evidence only what a row shows: to decode the telemetry of a thousand hosts takes minutes."""

    gpus: tuple[Gpu, ...] = ()
    series: tuple[Series, ...] = ()


@dataclass(frozen=True)
class Cause:
    """What did not pass for one reason on one host or several."""

    word: str
    title: str
    why: str
    remedy: str
    hosts: tuple[tuple[str, str], ...]  # the id of the host's row and its name


def contents(records: Sequence[RunRecord]) -> dict[str, Any]:
    """The variables of fleet.html. `records` has one at least."""
    ordered = fleet.order(records)
    hosts = [{**_host(record), "id": f"host-{place}"} for place, record in enumerate(ordered)]
    kinds = list(dict.fromkeys(record.command for record in ordered))
    stand_ins = sum(host["simulated"] for host in hosts)
    banner = f"SIMULATED: the GPUs of {stand_ins} of these hosts are stand-ins; their rows say so"
    rest = sum(host["word"] != Status.PASS.value for host in hosts)
    return {
        "banner": "" if not stand_ins else STAND_IN if stand_ins == len(hosts) else banner,
        "watermark": stand_ins == len(hosts),
        "version": __version__,
        # Red if anything failed, even if the worst host was not reached.
        "word": next((host["word"] for host in hosts if host["word"] == Status.FAIL.value), hosts[0]["word"]),
        "headline": f"{rest} of {len(hosts)} did not pass" if rest else f"{len(hosts)} of {len(hosts)} passed",
        "command": kinds[0] if len(kinds) == 1 else "runs",
        "what": f"{kinds[0] if len(kinds) == 1 else 'runs'} of {len(hosts)} {_noun(len(hosts), 'host')}",
        "counts": fleet.counts(records),
        "about": _about(records),
        "tiles": _tiles(ordered),
        "causes": _causes(ordered),
        "most_causes": MOST_CAUSES,
        "hosts": hosts,
        "measured": any(host["memory"] != NOT_READ or host["streams"] != NOT_READ for host in hosts),
        "verdicts": list(dict.fromkeys(host["word"] for host in hosts)),
    }


def _causes(ordered: Sequence[RunRecord]) -> list[Cause]:
    """Each once with all its hosts: the worst first, of these what most hosts have."""
    of: dict[int, list[int]] = {}  # indices of the hosts with this cause; records may share a finding
    for place, record in enumerate(ordered):
        for finding in findings_of(record):
            of.setdefault(id(finding), []).append(place)
    every = [finding for record in ordered if not record.error for finding in findings_of(record)]
    all_causes = []
    for group in causes.groups(in_order(every, PROBLEMS)):
        places = dict.fromkeys(place for finding in group.findings for place in of[id(finding)])
        all_causes.append(_cause(group, [(f"host-{place}", ordered[place].host) for place in places]))
    lost: dict[str, list[tuple[str, str]]] = {}
    for place, record in enumerate(ordered):
        if record.error:
            # Without the host's name, so that hosts with the same error share one cause.
            lost.setdefault((record.error.replace(record.host, "the host") if record.error else ""), []).append(
                (f"host-{place}", record.host)
            )
    all_causes += [_lost(error, hosts) for error, hosts in lost.items()]
    worst = [status.value for status in PROBLEMS]
    return sorted(all_causes, key=lambda cause: (worst.index(cause.word), -len(cause.hosts)))


def _cause(group: causes.Group, hosts: list[tuple[str, str]]) -> Cause:
    first = group.first
    parts = [
        f"found {first.actual}, expected {first.expected}" if group.same_values and first.expected else "",
        "" if group.cause == first.actual else group.cause,
    ]
    return Cause(first.status.value, group.checks, ": ".join(filter(None, parts)), first.remedy, tuple(hosts))


def _lost(error: str, hosts: list[tuple[str, str]]) -> Cause:
    lines = error.splitlines()
    remedy = next((line.partition("what to do: ")[2] for line in lines if line.startswith("what to do: ")), "")
    return Cause(Status.UNKNOWN.value, lines[0].removeprefix("the host: "), "", remedy, tuple(hosts))


def _host(record: RunRecord) -> dict[str, Any]:
    findings = findings_of(record)
    bad = in_order(findings, PROBLEMS)
    waived = [finding for finding in findings if finding.status is Status.WAIVED]
    put_back = drifted.put_back(record)
    return {
        "name": record.host,
        "word": outcome(record)[0],
        "simulated": simulated(record),
        "since": fleet.since(record),
        **_machine(record),
        "what": fleet.what(record),
        "error": record.error or "",
        "bad": [
            (
                group,
                drifted.since(group.first, record.started_at),
                commands.expanded(group.first.remedy, record, group.subject),
            )
            for group in causes.groups(bad, record.started_at)
        ],
        "waived": waived,
        "dates": {finding.key: drifted.since(finding, record.started_at) for finding in waived},
        "put_back": put_back,
        "silent": not (record.error or bad or waived or put_back),
        "facts": _facts(record),
    }


def _machine(record: RunRecord) -> dict[str, str]:
    """GPU, driver, kernel, and figures of the slowest GPU; "–" where it was not read."""
    snapshot = record.after or record.before
    driver = snapshot.driver.loaded_version if snapshot else None
    return {
        "gpu": gpus_of(record) or NOT_READ,
        "driver": driver if isinstance(driver, str) and driver else NOT_READ,
        "kernel": (snapshot.kernel.running if snapshot else "") or NOT_READ,
        "tflops": _speed(record),
        "memory": _memory(record),
        "streams": _streams(record),
    }


def _speed(record: RunRecord) -> str:
    """ "763 BF16": the best product of the slowest GPU."""
    of: dict[str, dict[int, float]] = {}
    for gpu in answer(record, Speeds, "gemm", whole=True).gpus:
        for product in gpu.gemms:
            name, speed = product.dtype.upper(), known(product.tflops)
            if name in HALVES and product.accumulate in ("", "fp32") and speed is not None:
                best = of.setdefault(name, {})
                best[gpu.index] = max(best.get(gpu.index, 0.0), speed)
    speeds = {name: min(best.values()) for name, best in of.items()}
    fastest = max(speeds, key=lambda name: speeds[name], default="")
    return f"{figure(speeds[fastest])} {fastest}" if fastest else NOT_READ


def _memory(record: RunRecord) -> str:
    """ "2890": GB/s of copies within the GPU's memory."""
    read = [known(gpu.copy_gb_per_s) for gpu in answer(record, Speeds, "bandwidth", whole=True).gpus]
    speeds = [speed for speed in read if speed is not None]
    return figure(min(speeds)) if speeds else NOT_READ


def _streams(record: RunRecord) -> str:
    """ "166 transcode": streams of 1080p at 30 fps of the best series; of a GPU that cannot transcode what it can."""
    of: dict[str, dict[int, float]] = {}
    for series in answer(record, Speeds, "throughput", whole=True).series:
        fps = [speed for step in series.steps if (speed := known(step.fps))]
        if fps and series.height == HEIGHT:
            best = of.setdefault(series.kind, {})
            index = series.gpu.index if series.gpu else 0
            best[index] = max(best.get(index, 0.0), *fps)
    kind = next((kind for kind in WORK if kind in of), "")
    return f"{glance.streams(min(of[kind].values()))} {kind}" if kind else NOT_READ


def _facts(record: RunRecord) -> Pairs:
    checked = minute(record.started_at) if _was_checked(record) else NOT_READ
    facts = [("run", record.run_id), ("checked", checked), ("profile", fleet.profile_of(record))]
    if record.verdict:
        facts.append(("verdict", record.verdict.summary))
    facts += drifted.compared_with(record)
    if record.command != "last":  # such a run is not stored: the host was not reached, or had no result
        facts.append(("whole page", commands.report_file(record, "html")))
    return facts


def _was_checked(record: RunRecord) -> bool:
    """Whether the host was checked. False if only the attempt failed; a result that is too old counts as a check."""
    return not record.error or record.verdict is not None or bool(record.findings)


def _about(records: Sequence[RunRecord]) -> Pairs:
    read = (moment(record.started_at) for record in records if _was_checked(record))
    moments = sorted(start for start in read if start is not None)
    pairs = []
    if moments:
        first, last = (minute(start.isoformat()) for start in (moments[0], moments[-1]))
        pairs.append(("checked", first if first == last else f"{first} to {last}"))
    profiles = sorted({record.profile.name for record in records if record.profile})
    if profiles:
        pairs.append(("profile" if len(profiles) == 1 else "profiles", ", ".join(profiles)))
    return pairs


def _tiles(records: Sequence[RunRecord]) -> list[dict[str, str]]:
    """Number of hosts per verdict; waived findings are counted separately, because WAIVED is no verdict."""
    words = Counter(outcome(record)[0] for record in records)
    shown = [*fleet.COUNTED, *sorted(words.keys() - set(fleet.COUNTED))]
    tiles = [
        {"word": word, "value": str(words[word]), "unit": _noun(words[word], "host"), "what": ""} for word in shown
    ]
    waived = [sum(finding.status is Status.WAIVED for finding in findings_of(record)) for record in records]
    if total := sum(waived):
        on = sum(map(bool, waived))
        what = f"on {on} {_noun(on, 'host')}"
        tile = {"word": Status.WAIVED.value, "value": str(total), "unit": _noun(total, "finding"), "what": what}
        tiles.insert(shown.index(Status.WARN.value) + 1, tile)
    return tiles


def _noun(number: int, noun: str) -> str:
    return noun if number == 1 else f"{noun}s"
