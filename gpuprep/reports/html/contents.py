"""What the page shows of a record, in the order of page.html."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from gpuprep.records import Finding, Missing, OptStr, RunRecord, Snapshot, Source, Status
from gpuprep.records.evidence.bandwidth import Bandwidth, Pcie
from gpuprep.records.evidence.shared import AnyProbe
from gpuprep.records.evidence.transcode import Transcode
from gpuprep.records.findings import PROBLEMS, findings_of, in_order
from gpuprep.records.moments import minute, seconds_between
from gpuprep.reports import causes, drifted, glance, measured
from gpuprep.reports.columns import LEGEND, LOWEST, Part, columns
from gpuprep.reports.html import drawings
from gpuprep.reports.readings import answer, entries, figure, known
from gpuprep.reports.rows import Series, share
from gpuprep.reports.text import SIMULATED, outcome, shown

Pairs = list[tuple[str, str]]

STAND_IN = "SIMULATED: no figure here is of a real GPU"


def contents(record: RunRecord) -> dict[str, Any]:
    """The variables of page.html."""
    word, line = outcome(record)
    findings = findings_of(record)
    simulated = measured.simulated(record)
    bad = in_order(findings, PROBLEMS)
    bandwidths = measured.bandwidths(record)
    series, left_out = _series(record)
    beside = columns(record)
    groups = [(group, drifted.since(group.first, record.started_at)) for group in causes.groups(bad, record.started_at)]
    return {
        "record": record,
        "word": word,
        "summary": line,
        "simulated": SIMULATED if simulated else "",
        "banner": STAND_IN if simulated else "",
        "watermark": simulated,
        "version": record.gpuprep_version,
        "source": (Source.SIMULATED if simulated else record.source).value,
        "about": _about(record),
        "tiles": _tiles(record, findings),
        "gravest": groups[:1],
        "bad": groups[1:],
        "skipped": causes.groups(one for one in findings if one.status is Status.SKIP),
        "glance": glance.lines(record) if not beside.labels else [],
        "beside": beside,
        "beside_parts": [Part("At a glance", beside.first), *beside.parts] if beside.labels else [],
        "legend": LEGEND,
        "lowest": LOWEST,
        "waived": [one for one in findings if one.status is Status.WAIVED],
        "since": {one.key: drifted.since(one, record.started_at) for one in findings},
        "compared": drifted.compared_with(record),
        "put_back": drifted.put_back(record),
        "speeds": drifted.speeds(record),
        "todo": _todo(bad),
        "gemms": measured.gemms(record),
        "rooflines": drawings.rooflines(record),
        "falls": drawings.falls(record),
        "timelines": drawings.timelines(record),
        "together": measured.together(record),
        "bandwidths": bandwidths,
        "several": len({row.gpu.index for row in bandwidths if row.crosses != "peer"}) > 1,
        "links": _links(record),
        "collectives": measured.collectives(record),
        "convolutions": measured.convolutions(record),
        "transcodes": drawings.transcodes(record),
        "chunks": _chunks(record),
        "why_refused": _refused(record),
        "series": series,
        "left_out": left_out,
        "several_series": measured.several_gpus(measured.throughputs(record)),
        "sessions": drawings.sessions(record),
        "unanswered": measured.unanswered(record),
        "checks": findings,
        "counted": ", ".join(f"{n} {status.value}" for status, n in _counts(findings).items() if n),
        "plan": record.plan if record.plan and not record.verdict else None,
        "steps": _steps(record),
        "system": _system(record.after or record.before),
        "libraries": _libraries(record),
        "packages": _packages(record.after or record.before),
    }


def _about(record: RunRecord) -> Pairs:
    lasted = seconds_between(record.started_at, record.ended_at)
    minutes, seconds = divmod(round(lasted or 0.0), 60)
    found = [
        ("host", record.host),
        ("profile", record.profile.name if record.profile else ""),
        ("when", minute(record.started_at)),
        ("took", "" if lasted is None else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"),
        ("run", record.run_id),
    ]
    return [(name, value) for name, value in found if value]


def _tiles(record: RunRecord, findings: Iterable[Finding]) -> list[dict[str, str]]:
    """The few figures that most people look for."""
    found = []
    gemms = [row for row in measured.gemms(record) if known(row.tflops) is not None]
    # The profile's main data type is the one with a long run; without one, the fastest.
    main = max(gemms, key=lambda row: (known(row.sustained_tflops) is not None, known(row.tflops) or 0), default=None)
    if main:
        share = "" if main.percent is None else f", {main.percent:.0f} % of peak"
        unit = "TOPS" if main.dtype == "int8" else "TFLOPS"
        found.append((figure(main.tflops), unit, f"{main.title} {main.shape}{share}"))
    copies = [row for row in measured.bandwidths(record) if row.what == "device copy" and known(row.gb_per_s)]
    if copies:
        share = "" if copies[0].percent is None else f", {copies[0].percent:.0f} % of peak"
        found.append((figure(copies[0].gb_per_s), "GB/s", f"device copy{share}"))
    cases = measured.transcodes(record)
    if cases:
        done = sum(case.outcome == "completed" for case in cases)
        skipped = sum(case.status is Status.SKIP for case in cases)
        more = f", {skipped} skipped" if skipped else ""
        found.append((f"{done}", f"of {len(cases) - skipped}", f"transcodes completed{more}"))
    series = max((one for one in measured.throughputs(record) if one.best), key=_fps, default=None)
    if series:
        found.append(
            (f"{_fps(series):.0f}", "fps", f"{series.name}, {series.best.sessions if series.best else 0} sessions")
        )
    counts = _counts(findings)
    judged = sum(counts.values()) - counts[Status.SKIP] - counts[Status.WAIVED]
    if judged:
        found.append((str(counts[Status.PASS]), f"of {judged}", "checks passed"))
    return [{"value": value, "unit": unit, "what": what} for value, unit, what in found]


def _series(record: RunRecord) -> tuple[list[Series], list[tuple[causes.Group, list[Series]]]]:
    """The series to show; and by cause those that were skipped."""
    every = measured.throughputs(record)
    several = measured.several_gpus(every)
    return causes.folded(every, lambda one: measured.series_subject(one, several=several), record)


def _refused(record: RunRecord) -> str:
    """Why transcodes were skipped: "18: this GPU has no NVENC; 1: FFmpeg was built without ..."."""
    of = causes.of_subjects(record)
    counted: Counter[str] = Counter()
    for case in measured.transcodes(record):
        if case.status is Status.SKIP and (group := of.get(measured.transcode_subject(case))):
            counted[group.cause] += 1
    return "; ".join(f"{number}: {cause}" for cause, number in counted.items())


def _fps(series: Series) -> float:
    return series.best.fps if series.best else 0.0


def _counts(findings: Iterable[Finding]) -> Counter[Status]:
    counts = Counter(dict.fromkeys(Status, 0))
    counts.update(one.status for one in findings)
    return counts


def _todo(bad: Iterable[Finding]) -> list[dict[str, Any]]:
    """Each remedy once, the most severe first, with all findings that it repairs."""
    found: dict[str, list[str]] = {}
    for one in bad:
        if one.remedy:
            found.setdefault(one.remedy, []).append(f"{one.subject} {one.property.replace('_', ' ')}")
    return [{"what": what, "subjects": subjects} for what, subjects in found.items()]


def _steps(record: RunRecord) -> list[dict[str, Any]]:
    """The roles that ran, in order: duration, share of the longest duration, number of changes."""
    found: dict[str, dict[str, Any]] = {}
    for task in record.playbook.tasks if record.playbook else ():
        name = task.role.removeprefix("gpu_") or "playbook"
        step = found.setdefault(name, {"name": name, "seconds": 0.0, "tasks": 0, "changed": 0})
        step["seconds"] += task.seconds
        step["tasks"] += 1
        step["changed"] += task.outcome == "changed"
    longest = max((step["seconds"] for step in found.values()), default=0.0)
    return [{**step, "percent": share(step["seconds"], longest)} for step in found.values()]


def _links(record: RunRecord) -> list[str]:
    found = []
    for gpu in entries(answer(record, Bandwidth, "bandwidth").gpus):
        if isinstance(pcie := gpu.pcie, Pcie):
            now = f"generation {figure(pcie.generation, 0)} ×{figure(pcie.width, 0)}"
            best = f"generation {figure(pcie.max_generation, 0)} ×{figure(pcie.max_width, 0)}"
            found.append(f"{measured.gpu_of(gpu).label}: PCIe {now} under load, at most {best}")
    return found


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
    found = [
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
        return [*found, ("GPUs", f"{len(snapshot.pci_gpus)} on the PCI bus; NVML {shown(snapshot.gpus)}")]
    for gpu in snapshot.gpus:
        persistence = {True: "persistence on", False: "persistence off"}.get(gpu.persistence_mode is True)
        ecc = {True: "ECC on", False: "ECC off"}[gpu.ecc_current] if isinstance(gpu.ecc_current, bool) else "ECC –"
        parts = (
            gpu.name, gpu.uuid, gpu.pci_address, f"{shown(gpu.memory_total_mib)} MiB",
            f"limit {shown(gpu.power.current_watts)} W", f"SM at most {shown(gpu.max_graphics_clock_mhz)} MHz",
            ecc, persistence or "",
        )  # fmt: skip
        found.append((f"GPU {gpu.index}", ", ".join(parts)))
    return found


def _joined(version: OptStr, *more: tuple[OptStr, str]) -> str:
    """A version, and what else was read of the same thing."""
    return ", ".join([shown(version), *(words.format(value) for value, words in more if isinstance(value, str))])


def _libraries(record: RunRecord) -> Pairs:
    """Each once, by the path that /proc/self/maps showed."""
    found: dict[str, str] = {}
    for probe in ("gemm", "bandwidth", "nccl", "cudnn"):
        for library in answer(record, AnyProbe, probe).libraries:
            found[library.path] = f"{library.name} {library.version or ''}".strip()
    return [(name or "library", path) for path, name in found.items()]


def _packages(snapshot: Snapshot | None) -> Pairs:
    packages = snapshot.packages if snapshot else {}
    return [(name, f"{one.version}{' (held)' if one.held else ''}") for name, one in sorted(packages.items())]
