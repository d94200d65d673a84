"""How slow memory, links to the host and copies between GPUs of each board may be before PASS ends, as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

from bandwidths_for_tests import bad, judged, machine, profile_of
from verdictrows import Row, end_of_pass

from gpuprep import catalogue
from gpuprep.catalogue import topologies
from gpuprep.catalogue.boards import Board
from gpuprep.records import Finding, Status

MEMORY = ("copy_gb_per_s", "read_gb_per_s", "triad_gb_per_s")
HOST = ("h2d_gb_per_s", "d2h_gb_per_s")
GRAVEST = (Status.FAIL, Status.UNKNOWN, Status.WARN)


@cache
def rows() -> tuple[Row, ...]:
    return tuple(row for board in catalogue.boards().values() for row in _of(board))


def _of(board: Board) -> Iterator[Row]:
    sound = topologies.healthy_memory_percents(board)
    if board.memory_gb_per_s:
        known = sound is not None
        yield _row(board, "memory", partial(_slower, board, MEMORY), known=known)
        for name in MEMORY:
            kind = name.removesuffix("_gb_per_s")
            if sound is not None and kind in sound.percent:
                yield _row(board, f"memory {kind}", partial(_slower, board, (name,)), known=True)
        yield _row(board, "host link", partial(_slower, board, HOST), known=True)
    family = topologies.family(board)
    if family and family.links and family.machines:
        known = family.healthy is not None
        yield _row(board, "peers", partial(_slower_peers, board), known=known)


def _slower(board: Board, names: tuple[str, ...], share: float) -> dict[str, Finding]:
    values = machine(board.key)
    for name in names:
        values["gpus"][0][name] *= share
    return judged(values, profile_of(board))


def _slower_peers(board: Board, share: float) -> dict[str, Finding]:
    """Two GPUs, or as many as the smallest machine of this board has."""
    family = topologies.family(board)
    assert family is not None
    wired = family.machines[0]
    count = 2 if len(wired.row) == 1 else wired.gpus
    values: dict[str, Any] = machine(board.key, count, wired.row[0])
    for pair in values["peers"]:
        pair["gb_per_s"] *= share
    found = judged(values, profile_of(board))
    return {key: one for key, one in found.items() if " to " in key}


def _row(board: Board, what: str, found: Callable[[float], dict[str, Finding]], *, known: bool) -> Row:
    assert bad(found(1.0)) == {}, f"{board.key} {what}: a healthy one must pass: {bad(found(1.0))}"

    def problems(percent: int) -> list[Finding]:
        return [one for one in found(percent / 100).values() if one.status in GRAVEST]

    percent, told = end_of_pass(problems, lambda told: not told)
    worst = min(told, key=lambda one: GRAVEST.index(one.status))
    return Row(board.key, what, percent, worst.status.value, worst.reason, known)
