"""Has a GPU's memory had errors, and is it protected against them (ECC)?"""

from __future__ import annotations

from gpuprep.catalogue import Board
from gpuprep.catalogue.health import limit
from gpuprep.catalogue.xids import RESET
from gpuprep.checks.common import NOT_TOLD, skip
from gpuprep.checks.earlier import Earlier, grown
from gpuprep.checks.health.healthwords import (
    CALL,
    NOT_THERE,
    RMA,
    Problem,
    checked_reading,
    counted,
    first_missing,
    judged,
    refused,
    worst,
)
from gpuprep.records import EccErrors, Finding, GpuFacts, Missing, Status

EXPECTED = "no uncorrected errors since the driver was loaded"
CONTAINED = "an uncorrectable error ends only the programs that met it"
NOT_CONTAINED = "an uncorrectable error ends every program on the GPU"
AGAIN = f"{RESET}; if they come again: {CALL}"
WORN = f"keep no important work on the GPU; {CALL}"


def findings(
    subject: str, gpu: GpuFacts, board: Board | None, wish: str, uptime_seconds: float, earlier: Earlier | None
) -> list[Finding | None]:
    """gpu N.ecc_errors and gpu N.memory_protection. `wish`: what the profile wants ECC to be."""
    return [errors(subject, gpu, board, uptime_seconds, earlier), protection(subject, gpu, board, wish)]


def protection(subject: str, gpu: GpuFacts, board: Board | None, wish: str) -> Finding | None:
    """WARN if ECC is off on a board that ships with ECC on; None if neither NVML nor the catalogue has the default."""
    current, ships = gpu.ecc_current, gpu.ecc_default
    model = board.model if board else None
    if isinstance(ships, Missing):
        ships = {"enabled": True, "disabled": False}.get(model.ecc if model else "", ships)
    if isinstance(current, Missing) and current.reason == "not_supported" and not_protected(gpu, board):
        reason = f"{gpu.name} has no ECC: errors of its memory are neither noticed nor corrected"
        return skip(subject, "memory_protection", expected="as the board ships", actual="none", reason=reason)
    expected = {True: "ECC on, as the board ships", False: "as wanted; the board ships with ECC off"}.get(
        ships is True, "as the board ships"
    )
    if isinstance(current, Missing):
        return refused(subject, "memory_protection", current, expected, what="whether ECC is on", absent=())
    if isinstance(ships, Missing) and not current:
        return None
    note = (CONTAINED if model and model.contains_errors else NOT_CONTAINED) if current and model else ""
    if current or not ships:
        return judged(subject, "memory_protection", None, expected, "ECC on" if current else "ECC off", note)
    why = "ECC is off, and the board ships with it on: errors of the memory are neither noticed nor corrected"
    if wish == "disabled":
        return judged(subject, "memory_protection", None, expected, "ECC off", f"{why}; the profile wants it so")
    remedy = f"`sudo nvidia-smi -i {gpu.index} -e 1`, then reboot; or tuning.ecc: disabled in the profile"
    return judged(subject, "memory_protection", (Status.WARN, why, remedy), expected, "ECC off")


def not_protected(gpu: GpuFacts, board: Board | None) -> bool:
    """Whether this GPU has no ECC, as far as is known."""
    if isinstance(gpu.ecc_default, bool) or gpu.ecc_current is True:
        return False
    return (board.model.ecc if board else "") in ("none", "disabled", "")


def errors(
    subject: str, gpu: GpuFacts, board: Board | None, uptime_seconds: float, earlier: Earlier | None
) -> Finding | None:
    total = gpu.ecc_errors
    if gpu.ecc_current is False and not _any(gpu):
        reason = "ECC is off: memory errors are not counted"
        return skip(subject, "ecc_errors", expected=EXPECTED, actual="not counted", reason=reason)
    if isinstance(total, Missing) and total.reason == "not_supported" and gpu.ecc_current is not True:
        return _absent(subject, gpu, total, board)
    if isinstance(total, Missing):
        return refused(subject, "ecc_errors", total, EXPECTED, absent=NOT_THERE if gpu.mig_current is True else ())
    corrected = checked_reading(total.corrected_volatile, "ecc_errors", "corrected errors")
    uncorrected = checked_reading(total.uncorrected_volatile, "ecc_errors", "uncorrected errors")
    counts = [checked_reading(count, "ecc_errors", f"{kind} errors of {where}") for where, kind, count in _counts(gpu)]
    rest = [
        reading
        for reading in (*counts, gpu.dram_errors, gpu.sram_errors, gpu.sram_threshold_exceeded)
        if _failed(reading)
    ]
    problems: list[Problem] = []
    if not isinstance(uncorrected, Missing) and uncorrected > 0:
        met = CONTAINED if board and board.model.contains_errors else "results since then may be wrong"
        why = f"{counted(uncorrected, 'memory error')} could not be corrected: {met}"
        problems.append((Status.FAIL, why, AGAIN))
    problems += _beyond_limits(gpu)
    problems += _since(gpu, earlier)
    if not isinstance(corrected, Missing):
        problems += _rate(corrected, uptime_seconds, earlier)
    unread = first_missing(uncorrected, corrected if _failed(corrected) else 0, *rest)
    unknown = None if unread is None else refused(subject, "ecc_errors", unread, EXPECTED, absent=())
    if unknown is not None and not any(status is Status.FAIL for status, _, _ in problems):
        return unknown
    return judged(subject, "ecc_errors", worst(problems), EXPECTED, _shown(total))


def _any(gpu: GpuFacts) -> bool:
    """Whether any counter is not 0: with ECC off, all of them must be 0."""
    return any(count != 0 for _, _, count in _counts(gpu) if not isinstance(count, Missing))


def _absent(subject: str, gpu: GpuFacts, reading: Missing, board: Board | None) -> Finding | None:
    if not_protected(gpu, board) or gpu.mig_current is True:
        reason = f"{gpu.name} does not count errors of its memory"
        return skip(subject, "ecc_errors", expected=EXPECTED, actual="not counted", reason=reason)
    return refused(subject, "ecc_errors", reading, EXPECTED, absent=())


def _failed(reading: object) -> bool:
    """Whether the reading failed: not if this GPU, driver or older record does not have it."""
    return isinstance(reading, Missing) and reading.reason not in (*NOT_TOLD, "not_read")


def _counts(gpu: GpuFacts) -> list[tuple[str, str, int | Missing]]:
    """(where, kind, count) of all counters, also of those that errors() does not judge one by one."""
    counts: list[tuple[str, str, int | Missing]] = []
    for where, part in (("the memory", gpu.dram_errors), ("the caches", gpu.sram_errors), ("the life", gpu.ecc_errors)):
        if isinstance(part, EccErrors):
            counts += [
                (where, "corrected", part.corrected_volatile),
                (where, "uncorrected", part.uncorrected_volatile),
                (where, "corrected", part.corrected_aggregate),
                (where, "uncorrected", part.uncorrected_aggregate),
            ]
    return counts


def _beyond_limits(gpu: GpuFacts) -> list[Problem]:
    """Problems by NVIDIA's flag for caches and registers, and by Azure's limits for taking a machine out of service."""
    problems: list[Problem] = []
    if gpu.sram_threshold_exceeded is True:
        why = (
            "the caches have had more uncorrectable errors than NVIDIA allows (SRAM threshold exceeded): NVIDIA"
            " replaces the board when its field diagnostic confirms it"
        )
        problems.append((Status.FAIL, why, RMA))
    for name, part, where in (
        ("sram_corrected", gpu.sram_errors, "caches"),
        ("dram_corrected", gpu.dram_errors, "memory"),
    ):
        most = limit(name)
        if not isinstance(part, EccErrors):
            continue
        for count, status, since in (
            (part.corrected_volatile, Status.FAIL, "since the driver was loaded"),
            (part.corrected_aggregate, Status.WARN, "in its life"),
        ):
            read = checked_reading(count, "ecc_errors", "corrected errors")
            if not isinstance(read, Missing) and read > most:
                why = (
                    f"the {where} had {read:,.0f} corrected errors {since}; Azure takes a GPU out of use at {most:,.0f}"
                )
                problems.append((status, why, WORN))
                break
    for part, where in ((gpu.sram_errors, "caches"), (gpu.dram_errors, "memory")):
        uncorrected = part.uncorrected_volatile if isinstance(part, EccErrors) else 0
        there = checked_reading(uncorrected, "ecc_errors", f"uncorrected errors of the {where}")
        if not isinstance(there, Missing) and there > 0:
            why = f"{counted(there, 'error')} of the {where} could not be corrected since the driver was loaded"
            problems.append((Status.FAIL, why, AGAIN))
    return problems


def _since(gpu: GpuFacts, earlier: Earlier | None) -> list[Problem]:
    """New errors between two readings, by the aggregate counters: a reset clears only the volatile ones."""
    if earlier is None:
        return []
    problems: list[Problem] = []
    for where, now, then in (
        ("the memory or the caches", gpu.ecc_errors, earlier.gpu.ecc_errors),
        ("the memory", gpu.dram_errors, earlier.gpu.dram_errors),
        ("the caches", gpu.sram_errors, earlier.gpu.sram_errors),
    ):
        if not isinstance(now, EccErrors) or not isinstance(then, EccErrors):
            continue
        more = [
            checked_reading(count, "ecc_errors", "uncorrected errors")
            for count in (now.uncorrected_aggregate, then.uncorrected_aggregate)
        ]
        if not isinstance(more[0], Missing) and not isinstance(more[1], Missing) and more[0] > more[1]:
            why = f"{counted(more[0] - more[1], 'error')} of {where} could not be corrected since the previous reading"
            problems.append((Status.FAIL, why, AGAIN))
    return problems


def _rate(corrected: float, uptime_seconds: float, earlier: Earlier | None) -> list[Problem]:
    """Problem of many corrected errors in a short time: they do no harm, but uncorrectable errors may follow."""
    more, seconds, since = corrected, uptime_seconds, "since the start"
    if earlier and isinstance(earlier.gpu.ecc_errors, EccErrors):
        growth = grown(earlier.gpu.ecc_errors.corrected_volatile, corrected, earlier.same_boot)
        if growth is not None:
            more, seconds, since = growth, earlier.seconds, "since the previous reading"
    hourly = 3600 * more / max(seconds, 3600.0)  # a few in a short time are no rate yet
    if hourly <= limit("corrected_per_hour"):
        return []
    why = f"{counted(more, 'memory error')} had to be corrected {since}, {hourly:,.0f} an hour: nothing was lost yet"
    return [(Status.WARN, why, f"watch it; if it goes on: {CALL}")]


def _shown(errors: EccErrors) -> str:
    corrected = "" if isinstance(errors.corrected_volatile, Missing) else f", {errors.corrected_volatile} corrected"
    uncorrected = "?" if isinstance(errors.uncorrected_volatile, Missing) else str(errors.uncorrected_volatile)
    return f"{uncorrected} uncorrected{corrected}"
