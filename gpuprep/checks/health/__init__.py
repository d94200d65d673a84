"""Is each GPU healthy? From the snapshot alone: memory, heat, the driver's own advice, Xids, MIG, links, programs.

An idle GPU cannot show everything: the bandwidth probe checks the PCIe generation (it drops on an idle link), the
matrix products check clocks and slowdowns under load. A reading that a GPU does not have makes no finding, or SKIP if
the board is known to lack it; a reading that failed or is impossible is UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuprep.catalogue import Board, board_of
from gpuprep.catalogue.health import limit
from gpuprep.catalogue.xids import RESET
from gpuprep.checks import conditions
from gpuprep.checks.common import NOT_TOLD, REMEDIES, RENTED, YOURS, unknown
from gpuprep.checks.floors import apart
from gpuprep.checks.health import memory, readings, temperature, xids
from gpuprep.checks.health.shared import (
    Earlier,
    Problem,
    checked_reading,
    counted,
    earlier,
    first_missing,
    grown,
    judged,
    refused,
    worst,
)
from gpuprep.checks.installed.toolkit import toolkit_libraries
from gpuprep.checks.links import nvlinks
from gpuprep.desired.host_rules import board_at
from gpuprep.desired.state import Wanted
from gpuprep.records import Finding, GpuFacts, Missing, PcieErrors, PcieLink, ProcessOnGpu, Snapshot, Status


def findings(
    wanted: Wanted | None, snapshot: Snapshot, *, before: Snapshot | None = None, rested: bool = True
) -> list[Finding]:
    """No findings if no driver is loaded: driver.* reports that. `wanted` is None where nothing is wished for.

    `before` is an earlier snapshot of the host: counters are then judged by their growth since. `rested`: no
    measurement ran just before, so an idle GPU should not be hot.
    """
    gpus = snapshot.gpus
    if isinstance(gpus, Missing):
        return []
    findings = [*_silent(gpus), *readings.of_host(snapshot)]
    for gpu in gpus:
        findings += _lost(gpu) or _gpu(wanted, snapshot, readings.complete(gpu), before, rested=rested, gpus=gpus)
    findings += xids.findings(snapshot, gpus)
    findings += nvlinks.ends(gpus)
    if wanted and wanted.cuda.version != "none":
        findings += toolkit_libraries(snapshot)
    return findings


def _silent(gpus: Sequence[GpuFacts]) -> list[Finding]:
    """One finding, instead of one per reading, for a record of an older gpuprep or of figures from elsewhere."""
    for gpu in gpus:
        for reading in (gpu.ecc_errors, gpu.retired_pages, gpu.remapped_rows, gpu.processes):
            if isinstance(reading, Missing) and reading.reason == "not_read":
                expected, what = "known", f"the health of gpu {gpu.index}"
                return [unknown("gpus", "health", reading, expected=expected, what=what, remedy="measure again")]
    return []


def _lost(gpu: GpuFacts) -> list[Finding]:
    read = (gpu.temperature_c, gpu.serial, gpu.event_reasons, gpu.memory_total_mib)
    loss = next((reading for reading in read if isinstance(reading, Missing) and reading.reason == "gpu_is_lost"), None)
    if loss is None:
        return []
    subject, remedy = f"gpu {gpu.index}", REMEDIES["gpu_is_lost"]
    why = f"the GPU has fallen off the bus, and its jobs have died ({loss.detail})"
    return [Finding(subject, "on_the_bus", Status.FAIL, "answers", "lost", why, remedy)]


def _gpu(
    wanted: Wanted | None,
    snapshot: Snapshot,
    gpu: GpuFacts,
    before: Snapshot | None,
    *,
    rested: bool,
    gpus: Sequence[GpuFacts],
) -> list[Finding]:
    subject, board = f"gpu {gpu.index}", _board(snapshot, gpu)
    then, uptime = earlier(gpu, snapshot, before), snapshot.kernel.uptime_seconds
    gpu_findings = [
        *temperature.findings(subject, gpu, board, rested=rested),
        *temperature.slowdowns(subject, gpu, uptime, then),
        *memory.findings(subject, gpu, board, wanted.tuning.ecc if wanted else "keep", uptime, then),
        *memory.memory_repairs(subject, gpu, board),
        xids.recovery(subject, gpu, snapshot.xids),
        _pcie_errors(subject, gpu, uptime, then),
        readings.finding(subject, gpu, board),
        None if wanted and wanted.tuning.mig != "keep" else _mig(subject, gpu),  # a wish: checks/installed/tuning.py
        _links(subject, gpu, gpus, snapshot.nvswitches),
        _processes(subject, gpu.processes),
    ]
    return [finding for finding in gpu_findings if finding is not None]


def _board(snapshot: Snapshot, gpu: GpuFacts) -> Board | None:
    device = next((pci_gpu for pci_gpu in snapshot.pci_gpus if pci_gpu.address == gpu.pci_address), None)
    return board_at(snapshot, device) if device else board_of(gpu)


def _mig(subject: str, gpu: GpuFacts) -> Finding | None:
    current, pending = gpu.mig_current, gpu.mig_pending
    for part in (current, pending):
        if isinstance(part, Missing):
            return refused(subject, "mig", part, "off")
    remedy = f"`sudo nvidia-smi -i INDEX -mig 0`, then {RESET}"
    problem = None
    if current:
        why = "the GPU is divided (MIG): programs see instances of it, and none has its whole speed"
        problem = (Status.FAIL, why, remedy)
    elif pending:
        problem = (Status.WARN, "the GPU will be divided (MIG) after its next reset", remedy)
    return judged(subject, "mig", problem, "off", "on" if current else "on after a reset" if pending else "off")


def _links(subject: str, gpu: GpuFacts, gpus: Sequence[GpuFacts], nvswitches: int) -> Finding | None:
    if isinstance(gpu.nvlinks, Missing):
        return refused(subject, nvlinks.PROP, gpu.nvlinks, nvlinks.EXPECTED)
    return nvlinks.of_gpu(gpu, gpus, nvswitches)


def _processes(subject: str, processes: Sequence[ProcessOnGpu] | Missing) -> Finding | None:
    """Lists processes on the GPU, which are no fault. During a measurement, that probe's check reports them."""
    if isinstance(processes, Missing):
        return refused(subject, "processes", processes, "known")
    shown = conditions.shown_processes(processes) or "none"
    note = "measurements share the GPU with these programs" if processes else ""
    return judged(subject, "processes", None, "known", shown, note)


# ---------------------------------------------------------------- errors of the PCIe link

PCIE_ERRORS = "the errors of the PCIe link"
RESEAT_LINK = f"{RENTED}; {YOURS}check slot, riser and cable (dmesg may say more: AER), then call the server's maker"


def _pcie_errors(subject: str, gpu: GpuFacts, uptime_seconds: float, earlier: Earlier | None) -> Finding | None:
    """gpu N.pcie_errors: the rate since the earlier reading, else since the machine's start.

    If the driver was loaded later than that, the true rate is higher, never lower.
    """
    most = limit("pcie_replays_per_minute")
    expected = f"at most {most:g} packets a minute sent again"
    errors = gpu.pcie_errors if isinstance(gpu.pcie_errors, PcieErrors) else None
    fatal = checked_reading(errors.fatal, "pcie_errors", "fatal errors of the link") if errors else 0
    broken = not isinstance(fatal, Missing) and fatal > 0
    if isinstance(gpu.pcie, Missing) and broken:
        return judged(subject, "pcie_errors", _fatal_pcie(fatal), expected, "packets sent again: not known")
    if isinstance(gpu.pcie, Missing):
        reading = first_missing(gpu.pcie, gpu.pcie_errors) or gpu.pcie
        return refused(subject, "pcie_errors", reading, expected, what=PCIE_ERRORS, absent=NOT_TOLD)
    count = checked_reading(gpu.pcie.replays, "replays", "packets sent again")
    failed = gpu.pcie_errors if isinstance(gpu.pcie_errors, Missing) else fatal
    wrong = first_missing(count, failed)
    if isinstance(count, Missing) or (wrong is not None and wrong.reason not in (*NOT_TOLD, "not_read")):
        assert wrong is not None
        return refused(subject, "pcie_errors", wrong, expected, what=PCIE_ERRORS)
    then = earlier.gpu.pcie if earlier and isinstance(earlier.gpu.pcie, PcieLink) else None
    more, seconds, since = count, uptime_seconds, "since the start"
    if earlier and then and (growth := grown(then.replays, count, earlier.same_boot)) is not None:
        more, seconds, since = growth, earlier.seconds, "since the previous reading"
    problems: list[Problem] = []
    rate = 60 * more / max(seconds, 60.0)
    if rate > most:
        a_minute = apart(rate, most, 0)[0]
        why = f"{counted(more, 'packet')} had to be sent again {since}, {a_minute} a minute: the link has errors"
        problems.append((Status.WARN, why, RESEAT_LINK))
    problems += [_fatal_pcie(fatal)] if broken else []
    shown = f"{more:.0f} sent again {since}" + (f", {apart(rate, most, 1)[0]} a minute" if more else "")
    return judged(subject, "pcie_errors", worst(problems), expected, shown)


def _fatal_pcie(count: float | Missing) -> Problem:
    assert not isinstance(count, Missing)
    return (Status.WARN, f"the link had {counted(count, 'fatal error')} since the driver was loaded", RESEAT_LINK)
