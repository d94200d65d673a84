"""The memory of a model: a page, and the values of the JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from gpuprep.performance.answers import ModelAnswer
from gpuprep.performance.modelmemory import Fit, Memory
from gpuprep.records import Missing
from gpuprep.reports import paragraphs

GIB = 2**30
FEW = 5  # boards with a row each; more are told by whether the model fits, and the rest with -v
NAMED = 2  # of those that are told together
PARTS = ("weights", "gradients", "optimizer", "activations", "kv_cache")


def page(answer: ModelAnswer, width: int, *, whole: bool = False) -> list[str]:
    needs, work = answer.needs, answer.needs.workload
    doing = f"trained with {work.optimizer}" if work.optimizer else "used, not trained"
    rows = [(name.replace("_", " "), _part(needs, name)) for name in PARTS]
    rows.append(("together", f"{_gib(needs.known)}, and {_gib(needs.context)} for CUDA itself"))
    rows += [("note", note) for note in needs.notes]
    lines = [f"{work.parameters:g} parameters in {work.precision}, {doing}", *paragraphs.named(rows, width)]
    if len(answer.boards) > FEW and not whole:
        note = "`--gpu NAME` asks for one board, -v shows all"
        return [*lines, "", *paragraphs.named([*_together(answer.boards), ("more", note)], width)]
    lines += ["", f"  {'BOARD':<24} {'MEMORY':>10}  FITS"]
    return lines + [f"  {board.name:<24} {_size(board.memory_bytes):>10}  {_fits(board)}" for board in answer.boards]


def _together(boards: Sequence[Fit]) -> list[tuple[str, str]]:
    """A row for each kind of answer, with the boards nearest to the size that is needed."""
    by_answer = sorted(boards, key=lambda board: (_kind(board), abs(board.free_bytes or 0)))
    rows = []
    for (_, kind), listed in groupby(by_answer, key=_kind):
        every = list(listed)
        names = [f"{board.name}, {_size(board.memory_bytes)} ({_fits(board)})" for board in every[:NAMED]]
        if every[0].memory_bytes is None:
            names = [board.name for board in every[:NAMED]]
        more = [f"and {len(every) - NAMED} more"] if len(every) > NAMED else []
        rows.append((kind, "; ".join([*names, *more])))
    return rows


def _kind(board: Fit) -> tuple[int, str]:
    """Place and name of the row of a board."""
    if board.memory_bytes is None or board.free_bytes is None:
        return 4, "not known"
    if board.fits is False:
        return 3, "too small"
    if board.tight:
        return 2, "hardly"
    return (0, "fits") if board.fits else (1, "may fit")


def _part(needs: Memory, name: str) -> str:
    value = getattr(needs, name)
    if value is None or value == 0:
        return ""
    if isinstance(value, Missing):
        return f"not known: {value.detail}"
    return f"{_gib(value)} = {needs.formulas[name]}"


def _fits(fit: Fit) -> str:
    if fit.memory_bytes is None or fit.free_bytes is None:
        return "not known: the catalogue lacks its memory"
    share = f"; it fits if {fit.gpus_at_least} or more share it" if fit.gpus_at_least and fit.gpus_at_least > 1 else ""
    if fit.fits is False:
        return f"no, {_gib(-fit.free_bytes)} too much{share}"
    if fit.tight:
        return "hardly: the rest is less than CUDA itself needs"
    if fit.fits is None:
        return f"{_gib(fit.free_bytes)} are left for activations"
    return f"yes, {_gib(fit.free_bytes)} are left"


def _size(value: float | None) -> str:
    return "–" if value is None else _gib(value)


def _gib(value: float) -> str:
    return f"{value / GIB:.1f} GiB"


def values(answer: ModelAnswer) -> dict[str, Any]:
    needs, work = answer.needs, answer.needs.workload
    return {
        "parameters": work.parameters,
        "precision": work.precision,
        "optimizer": work.optimizer,
        "bytes": {name: _known(getattr(needs, name)) for name in PARTS},
        "together_bytes": needs.known,
        "context_bytes": needs.context,
        "formulas": needs.formulas,
        "notes": list(needs.notes),
        "boards": [
            {
                "board": board.board, "name": board.name, "memory_bytes": board.memory_bytes,
                "needed_bytes": board.needed_bytes, "free_bytes": board.free_bytes, "fits": board.fits,
                "tight": board.tight, "gpus_at_least": board.gpus_at_least,
            }
            for board in answer.boards
        ],
    }  # fmt: skip


def _known(value: float | Missing | None) -> float | None:
    return None if isinstance(value, Missing) else value
