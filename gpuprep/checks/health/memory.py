"""Has a GPU's memory had errors, is it protected against them (ECC), and can it still repair itself?"""

from __future__ import annotations

from gpuprep.catalogue import Board
from gpuprep.catalogue.health import limit, repairs
from gpuprep.catalogue.xids import RESET
from gpuprep.checks.common import NOT_TOLD, known, skip
from gpuprep.checks.health.shared import (
    CALL,
    NOT_THERE,
    RMA,
    Earlier,
    Problem,
    checked_reading,
    counted,
    first_missing,
    grown,
    judged,
    refused,
    worst,
)
from gpuprep.records import EccErrors, Finding, GpuFacts, Missing, SpareRows, Status

EXPECTED = "no uncorrected errors since the driver was loaded"
CONTAINED = "an uncorrectable error ends only the programs that met it"
NOT_CONTAINED = "an uncorrectable error ends every program on the GPU"
AGAIN = f"{RESET}; if they come again: {CALL}"
WORN = f"run no important work on the GPU; {CALL}"


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
    """Whether this GPU has no ECC, as far as known."""
    if isinstance(gpu.ecc_default, bool) or gpu.ecc_current is True:
        return False
    return (board.model.ecc if board else "") in ("none", "disabled", "")


def errors(
    subject: str, gpu: GpuFacts, board: Board | None, uptime_seconds: float, earlier: Earlier | None
) -> Finding | None:
    total = gpu.ecc_errors
    if gpu.ecc_current is False and not any(known(count) for _, _, count in _counts(gpu)):
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


# ---------------------------------------------------------------- repair of memory

STILL_USED = "is still in use until the next reset of the GPU: results may be wrong"


def memory_repairs(subject: str, gpu: GpuFacts, board: Board | None) -> list[Finding | None]:
    """gpu N.retired_pages, gpu N.remapped_rows, gpu N.spare_rows."""
    return [pages(subject, gpu, board), rows(subject, gpu, board), spares(subject, gpu)]


def pages(subject: str, gpu: GpuFacts, board: Board | None) -> Finding | None:
    expected, read = "none pending", gpu.retired_pages
    if isinstance(read, Missing):
        return _no_such_repair(subject, "retired_pages", read, expected, gpu, board, "pages")
    single, double = (checked_reading(count, "pages", "retired pages") for count in (read.single_bit, read.double_bit))
    unread = first_missing(read.pending, single, double)
    if isinstance(single, Missing) or isinstance(double, Missing) or isinstance(read.pending, Missing):
        assert unread is not None
        return _no_such_repair(subject, "retired_pages", unread, expected, gpu, board, "pages")
    total, most = single + double, limit("retired_pages")
    problems: list[Problem] = []
    if total > most:
        why = f"{counted(total, 'page')} of the memory are retired: 64 can be, and DCGM fails at {most + 1:g}"
        problems.append((Status.FAIL, why, RMA))
    if read.pending:
        problems.append((Status.FAIL, f"a defective page of the memory {STILL_USED}", f"{RESET}; it is retired then"))
    shown = f"{total:g} retired{', one pending' if read.pending else ''}"
    return judged(subject, "retired_pages", worst(problems), expected, shown)


def rows(subject: str, gpu: GpuFacts, board: Board | None) -> Finding | None:
    expected, read = "none pending, none failed", gpu.remapped_rows
    if isinstance(read, Missing):
        return _no_such_repair(subject, "remapped_rows", read, expected, gpu, board, "rows")
    correctable, uncorrectable = (
        checked_reading(count, "rows", "remapped rows") for count in (read.correctable, read.uncorrectable)
    )
    problems: list[Problem] = []
    most = limit("uncorrectable_remaps")
    if read.failure is True:
        why = (
            "a defective row of the memory could not be replaced (row-remapping failure): NVIDIA replaces the board"
            " when its field diagnostic confirms it"
        )
        problems.append((Status.FAIL, why, RMA))
    elif not isinstance(uncorrectable, Missing) and uncorrectable > most:
        why = f"{counted(uncorrectable, 'row')} had uncorrectable errors: more than the {most:g} that can be replaced"
        problems.append((Status.FAIL, why, RMA))
    if read.pending is True:
        problems.append(_pending(board))
    unread = first_missing(read.failure, read.pending, correctable, uncorrectable)
    if unread is not None and not any(status is Status.FAIL for status, _, _ in problems):
        return refused(subject, "remapped_rows", unread, expected, absent=())
    counts = (_number(read.correctable), _number(read.uncorrectable))
    shown = ", ".join(
        [
            f"{counts[0]} after correctable and {counts[1]} after uncorrectable errors",
            *(["one failed"] if read.failure is True else []),
            *(["one pending"] if read.pending is True else []),
        ]
    )
    return judged(subject, "remapped_rows", worst(problems), expected, shown)


def _number(count: int | Missing) -> str:
    return "?" if isinstance(count, Missing) else str(count)


def _pending(board: Board | None) -> Problem:
    """The problem of a pending row. NVML's documentation: "error-containment and dynamic page blacklisting will take
    care of that"; but GA10x and Ada have neither.
    """
    remedy = f"{RESET}; the row is replaced then; if rows come again and again: {CALL}"
    if board is not None and board.model.contains_errors:
        why = "a defective row of the memory is replaced at the next reset of the GPU; until then nothing uses it"
        return (Status.WARN, why, remedy)
    return (Status.FAIL, f"a defective row of the memory {STILL_USED}", remedy)


def spares(subject: str, gpu: GpuFacts) -> Finding | None:
    """A finding on the spare rows that the memory banks have left; None if the driver does not report them."""
    expected, read = "each bank has spare rows", gpu.spare_rows
    if isinstance(read, Missing):
        return refused(subject, "spare_rows", read, expected, absent=NOT_TOLD)
    every = [
        checked_reading(count, "banks", "banks of the memory")
        for count in (read.full, read.high, read.partial, read.low, read.none)
    ]
    counts = [count for count in every if not isinstance(count, Missing)]
    if gpu.ecc_current is False and not any(counts):
        return None
    unread = first_missing(*every)
    if unread is None and not any(counts):
        unread = Missing("impossible", "the driver counts no banks at all")
    if unread is not None:
        return refused(subject, "spare_rows", unread, expected, absent=())
    problem, note = None, ""
    if read.none:
        why = (
            f"{counted(counts[4], 'bank')} of the memory without a spare row: the next defect there cannot be repaired"
        )
        problem = (Status.WARN, why, f"run no important work on the GPU, and plan its exchange; {CALL}")
    elif read.low:
        note = f"{counted(counts[3], 'bank')} with few spare rows left"
    return judged(subject, "spare_rows", problem, expected, _banks(read, sum(counts)), note)


def _banks(read: SpareRows, total: float) -> str:
    named = ((read.high, "with many"), (read.partial, "with some"), (read.low, "with few"), (read.none, "with none"))
    parts = [f"{count} {words} left" for count, words in named if count]
    return f"{read.full} of {total:g} banks with all" + (f", {', '.join(parts)}" if parts else "")


def _no_such_repair(
    subject: str, prop: str, reading: Missing, expected: str, gpu: GpuFacts, board: Board | None, how: str
) -> Finding | None:
    """SKIP if the board does not have the reading, or has ECC off; else UNKNOWN."""
    if reading.reason != "not_supported":
        return refused(subject, prop, reading, expected, absent=())
    model = board.model if board else None
    why = ""
    if gpu.mig_current is True:
        why = "a GPU that is divided (MIG) does not report it"
    elif gpu.ecc_current is False or not_protected(gpu, board):
        why = f"{gpu.name} has no ECC, or it is off: memory defects are not detected"
    elif repairs(model) == "":
        why = f"neither the driver nor the catalogue says whether {gpu.name} has them"
    elif repairs(model) != how:
        why = f"{gpu.name} replaces {'rows' if how == 'pages' else 'pages'} of its memory instead"
    if why:
        return skip(subject, prop, expected=expected, actual="none", reason=why)
    return refused(subject, prop, reading, expected, absent=())
