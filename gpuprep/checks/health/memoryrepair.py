"""Defects of a GPU's memory and their repair: retired pages (Pascal to Turing), remapped rows (Ampere and later).

NVIDIA's rules: GPU Memory Error Management, "RMA Policy" (rows); DCGM's limits (pages); catalogue/health.yml has them.
Counts alone are history. A board is replaced only if a flag is set and NVIDIA's field diagnostic confirms a defect.
"""

from __future__ import annotations

from gpuprep.catalogue import Board
from gpuprep.catalogue.health import limit, repairs
from gpuprep.catalogue.xids import RESET
from gpuprep.checks.common import NOT_TOLD, skip
from gpuprep.checks.health.eccerrors import not_protected
from gpuprep.checks.health.healthwords import (
    CALL,
    RMA,
    Problem,
    checked_reading,
    counted,
    first_missing,
    judged,
    refused,
    worst,
)
from gpuprep.records import Finding, GpuFacts, Missing, SpareRows, Status

STILL_USED = "is still in use until the next reset of the GPU: results may be wrong"


def findings(subject: str, gpu: GpuFacts, board: Board | None) -> list[Finding | None]:
    """gpu N.retired_pages, gpu N.remapped_rows, gpu N.spare_rows."""
    return [pages(subject, gpu, board), rows(subject, gpu, board), spares(subject, gpu)]


def pages(subject: str, gpu: GpuFacts, board: Board | None) -> Finding | None:
    expected, read = "none pending", gpu.retired_pages
    if isinstance(read, Missing):
        return _absent(subject, "retired_pages", read, expected, gpu, board, "pages")
    single, double = (checked_reading(count, "pages", "retired pages") for count in (read.single_bit, read.double_bit))
    unread = first_missing(read.pending, single, double)
    if isinstance(single, Missing) or isinstance(double, Missing) or isinstance(read.pending, Missing):
        assert unread is not None
        return _absent(subject, "retired_pages", unread, expected, gpu, board, "pages")
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
        return _absent(subject, "remapped_rows", read, expected, gpu, board, "rows")
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
        problem = (Status.WARN, why, f"keep no important work on the GPU, and plan its exchange; {CALL}")
    elif read.low:
        note = f"{counted(counts[3], 'bank')} with few spare rows left"
    return judged(subject, "spare_rows", problem, expected, _banks(read, sum(counts)), note)


def _banks(read: SpareRows, total: float) -> str:
    named = ((read.high, "with many"), (read.partial, "with some"), (read.low, "with few"), (read.none, "with none"))
    parts = [f"{count} {words} left" for count, words in named if count]
    return f"{read.full} of {total:g} banks with all" + (f", {', '.join(parts)}" if parts else "")


def _absent(
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
