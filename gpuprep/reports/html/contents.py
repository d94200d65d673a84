"""What the page shows of a record, in the order of page.html."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuprep.checks import commands
from gpuprep.records import Finding, Missing, OptStr, RunRecord, Snapshot, Source, Status
from gpuprep.records.evidence.bandwidth import Bandwidth, Pcie
from gpuprep.records.evidence.shared import AnyProbe
from gpuprep.records.evidence.transcode import Transcode
from gpuprep.records.findings import PROBLEMS, findings_of, in_order
from gpuprep.records.moments import minute, seconds_between
from gpuprep.records.showable import SIMULATED
from gpuprep.reports import capacity, causes, drifted, figures, measured
from gpuprep.reports.columns import LEGEND, LOWEST, Part, columns
from gpuprep.reports.html import bars, charts
from gpuprep.reports.html.bars import Bar
from gpuprep.reports.measured import Series
from gpuprep.reports.readings import answer, entries, figure, held_to, known, probe, unfinished
from gpuprep.reports.text import outcome, shown

# ---------------------------------------------------------------- tiles of the first screen


UNKNOWN = Status.UNKNOWN.value
HALVES = ("BF16", "FP16")  # data types of training and inference, with sums in FP32
COPY = "device copy"
# The most frequent use of hosts with video engines comes first.
WORK = ("transcode", "encode", "decode")
JUDGED = ("provision", "validate", "judge")  # commands whose page misses a figure that was not measured


@dataclass(frozen=True)
class Tile:
    name: str
    value: str
    unit: str = ""
    what: tuple[str, ...] = ()
    word: str = ""  # a status: the value is that word
    bar: Bar | None = field(default=None)


def tiles(record: RunRecord) -> list[Tile]:
    """Of a run that judged nothing and measured nothing there are none; a check of drift has those that it measured."""
    if not (record.verdict or record.measurements):
        return []
    figure_tiles = [_halves(record), _memory(record), _streams(record)]
    if record.command not in JUDGED:
        figure_tiles = [tile for tile in figure_tiles if tile.word != UNKNOWN]
    return [*figure_tiles, *_checks(findings_of(record))]


def _halves(record: RunRecord) -> Tile:
    rows = [row for row in bars.products(record).rows if row.name in HALVES]
    name = "half precision"
    if not rows:
        return Tile(name, UNKNOWN, "", (_why(record, "gemm", "no product in FP16 or BF16 was measured"),), UNKNOWN)
    best = max(rows, key=lambda row: float(row.value))
    others = [f"{row.name} {row.value}" for row in rows if row is not best]
    what = (best.comparison, ", ".join(others), best.detail)
    return Tile(f"{best.name}, best product", best.value, best.unit, what, bar=best)


def _memory(record: RunRecord) -> Tile:
    rows = list(bars.memory(record).rows)
    best = next((row for row in rows if row.name == COPY), rows[0] if rows else None)
    if best is None:
        return Tile("memory", UNKNOWN, "", (_why(record, "bandwidth", "no bandwidth was measured"),), UNKNOWN)
    others = [f"{row.name} {row.value}" for row in rows if row is not best and " to " in row.name]
    return Tile(
        f"memory, {best.name}", best.value, best.unit, (best.comparison, ", ".join(others), best.detail), bar=best
    )


def _streams(record: RunRecord) -> Tile:
    every = measured.throughputs(record)
    charts = bars.streams(record)
    if not charts:
        return _no_streams(record, every)
    chart = charts[0]
    best = min(chart.rows, key=_rank)
    others = [f"{row.name} {row.value}" for row in chart.rows if row is not best and row.name.split()[0] in WORK]
    name = f"{best.name}: {chart.title.removeprefix('Video: ')}"
    lacks = _lacks(record, every)
    shown = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
    return Tile(name, best.value, "", (best.comparison, shown, lacks, best.detail), bar=best)


def _rank(row: Bar) -> tuple[int, int]:
    kind = row.name.partition(" ")[0]
    return WORK.index(kind) if kind in WORK else len(WORK), -int(row.value)


def _no_streams(record: RunRecord, every: Sequence[Series]) -> Tile:
    """None if the GPU has no engine for any series; else UNKNOWN."""
    if every and all(series.status is Status.SKIP for series in every):
        return Tile("video streams", "none", "", (_lacks(record, every) or "every series was skipped",), "SKIP")
    return Tile("video streams", UNKNOWN, "", (no_series(record),), UNKNOWN)


def _lacks(record: RunRecord, every: Sequence[Series]) -> str:
    """Why the most series were skipped: "encode: this GPU has no NVENC"."""
    of = causes.of_subjects(record)
    reasons: Counter[tuple[str, str]] = Counter()
    for series in every:
        group = of.get(series.subject)
        if group and series.status is Status.SKIP:
            reasons[series.kind, group.cause] += 1
    (most,) = reasons.most_common(1) or [(("", ""), 0)]
    return f"{most[0][0]}: {most[0][1]}" if most[1] else ""


def no_series(record: RunRecord) -> str:
    """Why there is no figure of the video engines."""
    return _why(record, "throughput", "no series gave a figure")


def _why(record: RunRecord, name: str, otherwise: str) -> str:
    """Why there is no figure of this probe."""
    missing = dict(measured.unanswered(record)).get(name)
    if missing:
        return f"{name}: {missing.reason.replace('_', ' ')}" + (f", {missing.detail}" if missing.detail else "")
    return otherwise if probe(record, name) else f"the probe {name} did not run"


def _checks(findings: Iterable[Finding]) -> list[Tile]:
    counts = Counter(finding.status for finding in findings)
    judged = sum(counts.values()) - counts[Status.SKIP] - counts[Status.WAIVED]
    if not judged:
        return []
    rest = [f"{counts[status]} {status.value}" for status in Status if status is not Status.PASS and counts[status]]
    passed = counts[Status.PASS]
    bar = Bar("checks", "", str(passed), "", 100.0 * passed / judged)
    return [Tile("checks passed", str(passed), f"of {judged}", (", ".join(rest),), bar=bar)]


Pairs = list[tuple[str, str]]


# ---------------------------------------------------------------- the page


STAND_IN = "SIMULATED: no figure here is of a real GPU"


# Parts of the page in its order. Those with a line below are folds; the other ones are always open.
TITLES = {
    "error": "What went wrong",
    "bad": "What did not pass",
    "figures": "Figures",
    "best": "Best figures",
    "rest": "What else did not pass",
    "fixed": "Put back",
    "against": "Compared with",
    "plan": "Plan",
    "silent": "Probes that gave no answer",
    "beside": "GPU beside GPU",
    "commands": "Commands",
    "waived": "Waived",
    "skipped": "Skipped",
    "compute": "Matrix products",
    "falls": "Where the speed went",
    "time": "Under load",
    "together": "All GPUs at once",
    "moved": "Memory and links",
    "nccl": "Collectives (NCCL)",
    "conv": "Convolutions",
    "transcode": "Transcodes",
    "throughput": "Throughput of the video engines",
    "steps": "Steps",
    "checks": "All checks",
    "system": "System",
    "words": "Words",
}


def contents(record: RunRecord) -> dict[str, Any]:
    """The variables of page.html."""
    word, line = outcome(record)
    findings = findings_of(record)
    simulated = measured.simulated(record)
    bad = in_order(findings, PROBLEMS)
    beside = columns(record)
    groups = [
        (
            group,
            drifted.since(group.first, record.started_at),
            commands.expanded(group.first.remedy, record, group.subject),
        )
        for group in causes.groups(bad, record.started_at)
    ]
    halves = [[bars.products(record)], [bars.memory(record), *bars.streams(record)]]
    variables = {
        "record": record,
        "word": word,
        "summary": line,
        "simulated": SIMULATED if simulated else "",
        "banner": STAND_IN if simulated else "",
        "watermark": simulated,
        "version": record.gpuprep_version,
        "source": (Source.SIMULATED if simulated else record.source).value,
        "about": _about(record),
        "tiles": tiles(record),
        # Two columns: products; memory and video.
        "charts": [half for each in halves if (half := [chart for chart in each if chart.rows])],
        "worst": groups[:1],
        "bad": groups[1:],
        "skipped": causes.groups(finding for finding in findings if finding.status is Status.SKIP),
        "beside": beside,
        "beside_parts": [Part("At a glance", beside.first), *beside.parts] if beside.labels else [],
        "legend": LEGEND,
        "lowest": LOWEST,
        "waived": [finding for finding in findings if finding.status is Status.WAIVED],
        "since": {finding.key: drifted.since(finding, record.started_at) for finding in findings},
        "compared": drifted.compared_with(record),
        "put_back": drifted.put_back(record),
        "speeds": drifted.speeds(record),
        "commands": commands.suggested(record),
        "unanswered": measured.unanswered(record),
        "unfinished": unfinished(record),
        "checks": findings,
        "statuses": [status.value for status, number in _counts(findings).items() if number],
        "plan": record.plan if record.plan and not record.verdict else None,
        "steps": measured.roles(record),
        "system": _system(record.after or record.before),
        "libraries": _libraries(record),
        "packages": _packages(record.after or record.before),
        **_measured(record),
    }
    summaries = _summaries(variables, findings)
    shown = [name for name in TITLES if _is_shown(name, variables)]
    titles = {**TITLES, "bad": "The most severe finding"} if groups[1:] else TITLES
    return {
        **variables,
        "titles": titles,
        "said": summaries,
        "open": _opened(variables),
        "toc": [(name, TITLES[name]) for name in shown],
    }


def _measured(record: RunRecord) -> dict[str, Any]:
    """What the probes measured, for the folds."""
    gemms = measured.gemms(record)
    series, left_out = causes.folded(measured.throughputs(record), record)
    falls = charts.falls(record)
    return {
        "gemms": gemms,
        "tables": figures,
        "lasting": any(known(row.sustained_tflops) is not None for row in gemms),
        "rooflines": charts.rooflines(record),
        "falls": falls,
        "several_falls": len(falls) > 1,
        "timelines": charts.timelines(record),
        "together": measured.together(record),
        "bandwidths": measured.bandwidths(record),
        "links": _links(record),
        "collectives": measured.collectives(record),
        "convolutions": measured.convolutions(record),
        "transcodes": charts.transcodes(record),
        "chunks": _chunks(record),
        "why_refused": _refused(record),
        "series": series,
        "left_out": left_out,
        "capacity": capacity.tables(record).items(),
        "capacity_heads": capacity.HEADS,
        "capacity_notes": capacity.notes(record),
        "no_streams": no_series(record),
    }


def _is_shown(name: str, values: dict[str, Any]) -> bool:
    """Whether the page has this part; page.html asks the same."""
    keys = {
        "error": values["record"].error,
        "bad": values["worst"],
        "figures": values["tiles"],
        "best": values["charts"],
        "beside": values["beside_parts"],
        "rest": values["bad"],
        "fixed": values["put_back"],
        "against": values["compared"],
        "silent": values["unanswered"],
        "compute": values["rooflines"] or values["gemms"],
        "time": values["timelines"],
        "moved": values["bandwidths"],
        "nccl": values["collectives"],
        "conv": values["convolutions"],
        "transcode": values["transcodes"],
        "words": True,
        "throughput": True,
    }
    return bool(keys[name] if name in keys else values[name])


def _summaries(values: dict[str, Any], findings: Sequence[Finding]) -> dict[str, str]:
    """A line beside the title of each fold: what is in it."""
    ran = [transcode for transcode in values["transcodes"] if not transcode["skipped"]]
    done = sum(transcode["case"].outcome == "completed" for transcode in ran)
    refused = len(values["transcodes"]) - len(ran)
    collectives = values["collectives"]
    labels = values["beside"].labels
    return {
        "beside": f"{len(labels)} GPUs, all figures; {LOWEST} marks the lowest" if labels else "",
        "commands": _several(len(values["commands"]), "command") + " to paste",
        "waived": f"{len(values['waived'])} accepted for a while",
        "skipped": "; ".join(f"{group.count}: {group.cause}" for group in values["skipped"][:1])
        + (f"; {_several(len(values['skipped']) - 1, 'other cause')}" if len(values["skipped"]) > 1 else ""),
        "compute": f"roofline, {_several(len(values['gemms']), 'product')}",
        "falls": "what each product lost by clock, memory, tiles and kernel",
        "time": "clock, power and temperature, and why the clock was lowered",
        "together": _several(len({row.label for row in values["together"]}), "GPU"),
        "moved": _several(len(values["bandwidths"]), "path"),
        "nccl": f"{collectives[0].gpus} GPUs, {len(collectives)} sizes" if collectives else "",
        "conv": _several(len(values["convolutions"]), "convolution"),
        "transcode": f"{done} of {len(ran)} completed" + (f", {refused} skipped" if refused else ""),
        "throughput": _several(len(values["series"]), "series", "series")
        if values["series"] or values["left_out"]
        else f"UNKNOWN: {values['no_streams']}",
        "steps": _several(len(values["steps"]), "step"),
        "checks": f"{len(findings)}: "
        + ", ".join(f"{n} {status.value}" for status, n in _counts(findings).items() if n),
        "system": ", ".join(value for name, value in values["system"] if name in ("system", "kernel", "driver")),
        "words": "what peak, floor, long run and other words mean",
    }


def _opened(values: dict[str, Any]) -> set[str]:
    """The folds that are open at first: what needs attention, or the main content of a page without a verdict."""
    opened = set()
    if values["worst"]:
        opened.add("commands")
    if any(transcode["case"].status in PROBLEMS for transcode in values["transcodes"]):
        opened.add("transcode")
    if any(series.status in PROBLEMS for series in values["series"]):
        opened.add("throughput")
    if any(any(row.low) for row in values["beside"].first):
        opened.add("beside")
    if values["waived"]:
        opened.add("waived")
    if values["record"].command == "capacity":
        opened.add("throughput")
    if not values["record"].verdict:
        opened.add("steps")
    return opened


def _several(number: int, noun: str, nouns: str = "") -> str:
    return f"{number} {noun if number == 1 else nouns or f'{noun}s'}"


def _about(record: RunRecord) -> Pairs:
    lasted = seconds_between(record.started_at, record.ended_at)
    minutes, seconds = divmod(round(lasted or 0.0), 60)
    pairs = [
        ("host", record.host),
        ("GPU", gpus_of(record)),
        ("profile", record.profile.name if record.profile else ""),
        ("when", minute(record.started_at)),
        ("took", "" if lasted is None else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"),
        ("run", record.run_id),
        ("certified by", held_to(record)),
    ]
    return [(name, value) for name, value in pairs if value]


def gpus_of(record: RunRecord) -> str:
    """ "2 × NVIDIA H200", by the facts; without facts those that were measured."""
    snapshot = record.after or record.before
    if snapshot and isinstance(snapshot.gpus, tuple):
        names = Counter(shown(gpu.name) for gpu in snapshot.gpus)
    else:
        listed = (gpu for name in ("gemm", "bandwidth", "throughput") for gpu in answer(record, AnyProbe, name).gpus)
        names = Counter(name for _, name in {(gpu.index, gpu.name) for gpu in listed} if name)
    return ", ".join(name if number == 1 else f"{number} × {name}" for name, number in names.items())


def _refused(record: RunRecord) -> str:
    """Why transcodes were skipped: "18: this GPU has no NVENC; 1: FFmpeg was built without ..."."""
    of = causes.of_subjects(record)
    counted: Counter[str] = Counter()
    for case in measured.transcodes(record):
        if case.status is Status.SKIP and (group := of.get(case.subject)):
            counted[group.cause] += 1
    return "; ".join(f"{number}: {cause}" for cause, number in counted.items())


def _counts(findings: Iterable[Finding]) -> Counter[Status]:
    counts = Counter(dict.fromkeys(Status, 0))
    counts.update(finding.status for finding in findings)
    return counts


def _links(record: RunRecord) -> list[str]:
    links = []
    for gpu in entries(answer(record, Bandwidth, "bandwidth").gpus):
        if isinstance(pcie := gpu.pcie, Pcie):
            now = f"generation {figure(pcie.generation, 0)} ×{figure(pcie.width, 0)}"
            best = f"generation {figure(pcie.max_generation, 0)} ×{figure(pcie.max_width, 0)}"
            links.append(f"{measured.gpu_of(gpu).label}: PCIe {now} under load, at most {best}")
    return links


def _chunks(record: RunRecord) -> str:
    chunks = answer(record, Transcode, "transcode").chunks
    if isinstance(chunks, Missing) or known(chunks.saved_seconds) is None:
        return ""
    return (
        f"{figure(chunks.files, 0)} files into {figure(chunks.renditions, 0)} renditions each: "
        f"{figure(chunks.one_process_seconds)} s in one process for all, "
        f"{figure(chunks.many_processes_seconds)} s in a process a rendition; {figure(chunks.saved_seconds)} s saved."
    )


def _system(snapshot: Snapshot | None) -> Pairs:
    if snapshot is None:
        return [("facts", "none were recorded")]
    driver, cuda, codec = snapshot.driver, snapshot.cuda, snapshot.codec
    facts = [
        ("host", snapshot.hostname),
        ("system", f"{snapshot.os.pretty_name}, {snapshot.os.architecture}, {snapshot.virtualization}"),
        ("kernel", snapshot.kernel.running),
        ("driver", _joined(driver.loaded_version, (driver.loaded_flavour, "{} modules"))),
        ("CUDA", _joined(cuda.nvcc_version, (cuda.nvcc_path, "nvcc {}"))),
        ("cuDNN", _joined(snapshot.cudnn.version, (snapshot.cudnn.library_path, "{}"))),
        ("FFmpeg", _joined(codec.ffmpeg_version, (codec.ffmpeg_path, "{}"), (codec.build_key, "build {}"))),
        ("NVENC headers", shown(codec.headers_version)),
    ]
    if not isinstance(snapshot.gpus, tuple):
        return [*facts, ("GPUs", f"{len(snapshot.pci_gpus)} on the PCI bus; NVML {shown(snapshot.gpus)}")]
    for gpu in snapshot.gpus:
        persistence = {True: "persistence on", False: "persistence off"}.get(gpu.persistence_mode is True)
        ecc = {True: "ECC on", False: "ECC off"}[gpu.ecc_current] if isinstance(gpu.ecc_current, bool) else "ECC –"
        parts = (
            gpu.name, gpu.uuid, gpu.pci_address, f"{shown(gpu.memory_total_mib)} MiB",
            f"limit {shown(gpu.power.current_watts)} W", f"SM at most {shown(gpu.max_graphics_clock_mhz)} MHz",
            ecc, persistence or "",
        )  # fmt: skip
        facts.append((f"GPU {gpu.index}", ", ".join(parts)))
    return facts


def _joined(version: OptStr, *more: tuple[OptStr, str]) -> str:
    """A version, and what else was read of the same thing."""
    return ", ".join([shown(version), *(words.format(value) for value, words in more if isinstance(value, str))])


def _libraries(record: RunRecord) -> Pairs:
    """Each once, by the path that /proc/self/maps showed."""
    by_path: dict[str, str] = {}
    for name in ("gemm", "bandwidth", "nccl", "cudnn"):
        for library in answer(record, AnyProbe, name).libraries:
            by_path[library.path] = f"{library.name} {library.version or ''}".strip()
    return [(name or "library", path) for path, name in by_path.items()]


def _packages(snapshot: Snapshot | None) -> Pairs:
    packages = snapshot.packages if snapshot else {}
    return [(name, f"{now.version}{' (held)' if now.held else ''}") for name, now in sorted(packages.items())]
