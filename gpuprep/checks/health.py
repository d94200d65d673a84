"""Is each GPU healthy? From the snapshot alone: memory errors, Xids, slowdowns, MIG, links, other processes.

An idle GPU cannot show everything: the bandwidth probe checks the PCIe generation (it drops on an idle link), the
matrix products check clocks and slowdowns under load. A reading that a GPU does not have (not_supported) makes no
finding; a reading that failed is UNKNOWN.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gpuprep.catalogue.xids import XidMeaning, xid
from gpuprep.checks import gpuprocesses, nvlinks
from gpuprep.checks.common import REMEDIES, unknown
from gpuprep.checks.toolkitlibraries import toolkit_libraries
from gpuprep.desired.state import Wanted
from gpuprep.performance.clock_events import HW_SLOWDOWN, HW_THERMAL, POWER_BRAKE, SW_THERMAL, named
from gpuprep.records import (
    EccErrors,
    Finding,
    GpuFacts,
    Missing,
    ProcessOnGpu,
    RemappedRows,
    RetiredPages,
    Snapshot,
    Status,
    Xid,
)

# NVIDIA replaces a board of Volta's or Turing's time with this many retired pages.
MOST_RETIRED_PAGES = 60
RESET = "end all programs on the GPU and reset it (nvidia-smi --gpu-reset), or reboot"
REPLACE = "ask the provider for another GPU"
GRAVE = (Status.FAIL, Status.WARN)


def findings(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """No findings if no driver is loaded: driver.* reports that."""
    gpus = snapshot.gpus
    if isinstance(gpus, Missing):
        return []
    found = _silent(gpus)
    for gpu in gpus:
        found += _lost(gpu) or _gpu(gpu, gpus, snapshot.nvswitches)
    found += nvlinks.ends(gpus)
    found += _xids(snapshot, gpus)
    if wanted.cuda.version != "none":
        found += toolkit_libraries(snapshot)
    return found


def _silent(gpus: Sequence[GpuFacts]) -> list[Finding]:
    """A record of an older gpuprep, or of figures from elsewhere: one line and not one for each reading."""
    for gpu in gpus:
        for reading in (gpu.ecc_errors, gpu.retired_pages, gpu.remapped_rows, gpu.processes):
            if isinstance(reading, Missing) and reading.reason == "not_read":
                expected, what = "known", f"the health of gpu {gpu.index}"
                return [unknown("gpus", "health", reading, expected=expected, what=what, remedy="measure again")]
    return []


def _lost(gpu: GpuFacts) -> list[Finding]:
    readings = (gpu.temperature_c, gpu.serial, gpu.event_reasons, gpu.memory_total_mib)
    gone = next((one for one in readings if isinstance(one, Missing) and one.reason == "gpu_is_lost"), None)
    if gone is None:
        return []
    subject, remedy = f"gpu {gpu.index}", REMEDIES["gpu_is_lost"]
    why = f"the GPU has fallen off the bus ({gone.detail})"
    return [Finding(subject, "on_the_bus", Status.FAIL, "answers", "lost", why, remedy)]


def _gpu(gpu: GpuFacts, gpus: Sequence[GpuFacts], nvswitches: int) -> list[Finding]:
    subject = f"gpu {gpu.index}"
    found = [
        _slowdowns(subject, gpu),
        _ecc(subject, gpu.ecc_errors),
        _pages(subject, gpu.retired_pages),
        _rows(subject, gpu.remapped_rows),
        _mig(subject, gpu),
        _links(subject, gpu, gpus, nvswitches),
        _processes(subject, gpu.processes),
    ]
    return [finding for finding in found if finding is not None]


def _judged(
    subject: str, prop: str, problem: tuple[Status, str, str] | None, expected: str, shown: str, note: str = ""
) -> Finding:
    """`problem`: severity, reason, remedy."""
    if problem is None:
        return Finding(subject, prop, Status.PASS, expected, shown, note)
    return Finding(subject, prop, problem[0], expected, shown, problem[1], problem[2])


def _refused(subject: str, prop: str, reading: Missing, expected: str) -> Finding | None:
    """None where the GPU does not have what was asked for, or the record is silent (_silent says that once)."""
    if reading.reason in ("not_supported", "not_read"):
        return None
    return unknown(subject, prop, reading, expected=expected)


def _slowdowns(subject: str, gpu: GpuFacts) -> Finding | None:
    """Of an idle GPU, too: hardware that holds it back does so at rest. The power cap is normal life."""
    mask, expected = gpu.event_reasons, "none by heat or hardware"
    if isinstance(mask, Missing):
        return _refused(subject, "slowdown_now", mask, expected)
    grave, light = HW_THERMAL | POWER_BRAKE | HW_SLOWDOWN, SW_THERMAL
    shown = ", ".join(reason.name for reason in named(mask & (grave | light))) or "none"
    degrees = "" if isinstance(gpu.temperature_c, Missing) else f" at {gpu.temperature_c} °C"
    remedy = "check the machine's cooling and power supply; of a cloud machine, ask the provider for another one"
    problem = None
    if mask & (grave | light):
        cause = named(mask & (grave | light))[0].cause
        problem = (
            Status.FAIL if mask & grave else Status.WARN,
            f"the clocks are held down by {cause}{degrees}",
            remedy,
        )
    return _judged(subject, "slowdown_now", problem, expected, shown)


def _ecc(subject: str, errors: EccErrors | Missing) -> Finding | None:
    expected = "no uncorrected errors since the driver was loaded"
    if isinstance(errors, Missing):
        return _refused(subject, "ecc_errors", errors, expected)
    now = errors.uncorrected_volatile
    if isinstance(now, Missing):
        return _refused(subject, "ecc_errors", now, expected)
    corrected = "" if isinstance(errors.corrected_volatile, Missing) else f", {errors.corrected_volatile} corrected"
    why = f"{now} memory errors could not be corrected: results since then may be wrong"
    problem = (Status.FAIL, why, f"{RESET}; if they come again, {REPLACE}") if now else None
    return _judged(subject, "ecc_errors", problem, expected, f"{now} uncorrected{corrected}")


def _pages(subject: str, pages: RetiredPages | Missing) -> Finding | None:
    expected = "none pending"
    if isinstance(pages, Missing):
        return _refused(subject, "retired_pages", pages, expected)
    for part in (pages.pending, pages.single_bit, pages.double_bit):
        if isinstance(part, Missing):
            return _refused(subject, "retired_pages", part, expected)
    assert isinstance(pages.single_bit, int)
    assert isinstance(pages.double_bit, int)
    total = pages.single_bit + pages.double_bit
    shown = f"{total} retired{', one pending' if pages.pending else ''}"
    problem = None
    if total >= MOST_RETIRED_PAGES:
        why = f"{total} pages of the memory are retired; NVIDIA replaces boards with {MOST_RETIRED_PAGES} or more"
        problem = (Status.FAIL, why, REPLACE)
    elif pages.pending:
        why = "a defective page of the memory is still in use: it is retired at the next reset of the GPU"
        problem = (Status.FAIL, why, RESET)
    return _judged(subject, "retired_pages", problem, expected, shown)


def _rows(subject: str, rows: RemappedRows | Missing) -> Finding | None:
    expected = "none pending, none failed"
    if isinstance(rows, Missing):
        return _refused(subject, "remapped_rows", rows, expected)
    for part in (rows.failure, rows.pending, rows.correctable, rows.uncorrectable):
        if isinstance(part, Missing):
            return _refused(subject, "remapped_rows", part, expected)
    shown = f"{rows.correctable} after correctable and {rows.uncorrectable} after uncorrectable errors"
    problem = None
    if rows.failure:
        shown += ", one failed"
        problem = (Status.FAIL, "a defective row of the memory has no spare row left to replace it", REPLACE)
    elif rows.pending:
        shown += ", one pending"
        why = "a defective row of the memory is still in use: it is replaced at the next reset of the GPU"
        problem = (Status.FAIL, why, RESET)
    return _judged(subject, "remapped_rows", problem, expected, shown)


def _mig(subject: str, gpu: GpuFacts) -> Finding | None:
    current, pending = gpu.mig_current, gpu.mig_pending
    for part in (current, pending):
        if isinstance(part, Missing):
            return _refused(subject, "mig", part, "off")
    remedy = f"nvidia-smi -i {gpu.index} -mig 0, then {RESET}"
    problem = None
    if current:
        why = "the GPU is divided (MIG): programs see instances of it, and none has its whole speed"
        problem = (Status.FAIL, why, remedy)
    elif pending:
        problem = (Status.WARN, "the GPU will be divided (MIG) after its next reset", remedy)
    return _judged(subject, "mig", problem, "off", "on" if current else "on after a reset" if pending else "off")


def _links(subject: str, gpu: GpuFacts, gpus: Sequence[GpuFacts], nvswitches: int) -> Finding | None:
    if isinstance(gpu.nvlinks, Missing):
        return _refused(subject, nvlinks.PROP, gpu.nvlinks, nvlinks.EXPECTED)
    return nvlinks.of_gpu(gpu, gpus, nvswitches)


def _processes(subject: str, processes: Sequence[ProcessOnGpu] | Missing) -> Finding | None:
    """Other processes are no fault. If one runs during a measurement, the check of that probe rejects the figure."""
    if isinstance(processes, Missing):
        return _refused(subject, "processes", processes, "known")
    shown = gpuprocesses.listed(processes) or "none"
    note = "what is measured meanwhile is measured beside these programs" if processes else ""
    return _judged(subject, "processes", None, "known", shown, note)


def _xids(snapshot: Snapshot, gpus: Sequence[GpuFacts]) -> list[Finding]:
    """One finding for each GPU that has any, and for addresses of none; a single one where there is nothing to tell."""
    seen, expected = snapshot.xids, "none that is grave"
    if isinstance(seen, Missing):
        return [unknown("driver", "xids", seen, expected=expected, what="the kernel log")]
    if not seen:
        return [Finding("driver", "xids", Status.PASS, expected, "none since boot")]
    subjects = {gpu.pci_address: f"gpu {gpu.index}" for gpu in gpus if gpu.pci_address}
    addresses = list(dict.fromkeys(one.pci_address for one in seen))
    return [
        _xids_of(subjects.get(address, f"gpu {address}"), [one for one in seen if one.pci_address == address])
        for address in addresses
    ]


def _xids_of(subject: str, seen: Sequence[Xid]) -> Finding:
    counts = Counter(one.code for one in seen)
    meanings = sorted((xid(code) for code in counts), key=lambda one: ("fail", "warn", "note").index(one.gravity))
    gravest = meanings[0]
    status = {"fail": Status.FAIL, "warn": Status.WARN, "note": Status.PASS}[gravest.gravity]
    shown = ", ".join(f"Xid {one.code}{f' ×{counts[one.code]}' if counts[one.code] > 1 else ''}" for one in meanings)
    last = [one for one in seen if one.code == gravest.code][-1]
    when = "" if isinstance(last.time, Missing) else f" at {last.time}"
    why = f"Xid {gravest.code}{when}: {_said(gravest, last)}"
    return Finding(subject, "xids", status, "none that is grave", shown, why, gravest.remedy if status in GRAVE else "")


def _said(meaning: XidMeaning, line: Xid) -> str:
    return f"{meaning.what} ({line.message:.160})" if line.message else meaning.what
