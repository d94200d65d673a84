"""How slow can the matrix products of each board be before PASS ends? Rows for docs/verdicts.md.

A healthy record of each board is made: large products at the boost clock, as fast as healthy boards are
(catalogue/capabilities.yml). Then all of them, or one data type, are made slower.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import gemmrecords
from builders import shipped
from verdictrows import Row, end_of_pass

from gpuprep import catalogue, checks
from gpuprep.agent.probes.gemmtypes import TYPES
from gpuprep.catalogue import Board, parse
from gpuprep.catalogue.capabilities import kernel
from gpuprep.desired.state import Wanted, resolve
from gpuprep.performance import roofline
from gpuprep.performance.roofline import Roof
from gpuprep.records import Finding, ProbeResult, Snapshot, Source, Status
from gpuprep.workflows.record_file import from_figures
from gpuprep.workflows.rejudge import judge

SIZE = 8192
EVERYTHING = "all products together"
GRAVEST = (Status.FAIL, Status.WARN, Status.UNKNOWN)
NO_TILES = {"missing": "not_recorded"}


def sound_tflops(board: Board, dtype: str, accumulate: str) -> float | None:
    """None where nothing is known of healthy boards, at a clock or published."""
    above = roofline.roof(board, dtype, accumulate)
    if not isinstance(above, Roof):
        return None
    known = kernel(board.model.compute_capability, above.unit)
    if known is None:
        return None
    ideal = 2e-12 * SIZE**3 / (above.tflops * known.sound)
    return above.tflops * known.expected(ideal)


def kinds(board: Board) -> Iterator[tuple[str, str, float]]:
    capability = parse(board.model.compute_capability)
    for kind in TYPES:
        tflops = sound_tflops(board, kind.dtype, kind.accumulate) if capability >= kind.since else None
        if tflops is not None:
            yield kind.dtype, kind.accumulate, tflops


def record(board: Board, speeds: Mapping[tuple[str, str], float]) -> dict[str, Any]:
    """The gemm probe's answer: one large product of each data type, at the boost clock."""
    gemms = [
        gemmrecords.gemm(dtype, tflops, accumulate=accumulate, m=SIZE, n=SIZE, k=SIZE,
                         microseconds=2e-6 * SIZE**3 / tflops, graphics_clock_mhz=board.boost_mhz,
                         memory_clock_mhz=board.memory_mhz or 1000, power_watts=board.power_watts or 100.0,
                         error_tolerance=0.0001, max_relative_error=0.0, algorithm=NO_TILES)
        for (dtype, accumulate), tflops in speeds.items()
    ]  # fmt: skip
    gpu = gemmrecords.gpu(
        board.pci_device_ids[0], gemms, sms=board.sms, max_graphics_clock_mhz=board.boost_mhz,
        pci_subsystem_id=(*board.subsystem_ids, "")[0], power_limit_watts=board.power_watts or 100.0,
    )  # fmt: skip
    return {"measurements": [{"probe": "gemm", "source": "measured", "values": gemmrecords.values(gpu)}]}


@cache
def host(key: str) -> tuple[Wanted, Snapshot]:
    """What is wanted of an unknown host with this board, as `gpuprep judge` resolves it."""
    board = catalogue.boards()[key]
    recorded = from_figures(record(board, {kind[:2]: kind[2] for kind in kinds(board)}))
    return resolve(shipped(board.model.profile), recorded.snapshot, judging=True), recorded.snapshot


def judged(board: Board, speeds: Mapping[tuple[str, str], float]) -> tuple[Status, str]:
    """(the worst status among what was measured, and what ended PASS)."""
    wanted, snapshot = host(board.key)
    result = ProbeResult("gemm", Source.MEASURED, record(board, speeds)["measurements"][0]["values"], 10.0)
    thresholds = shipped(board.model.profile).thresholds
    found = checks.compare_figures(wanted, snapshot, (result,), asked=["gemm"], thresholds=thresholds)
    bad = [f for f in found if f.status not in (Status.PASS, Status.SKIP)]
    worst = next(
        (s for s in (Status.FAIL, Status.WARN, Status.UNKNOWN) if any(f.status is s for f in bad)), Status.PASS
    )
    return worst, next((f.property for f in bad if f.status is worst), "")


def rows() -> list[Row]:
    found = []
    for key, board in catalogue.boards().items():
        sound = {(dtype, accumulate): tflops for dtype, accumulate, tflops in kinds(board)}
        if not sound:
            continue
        if len(sound) > 1:
            found.append(_row(key, EVERYTHING, board, sound, set(sound)))
        for kind in sound:
            name = f"{kind[0]} added in fp16" if kind == ("fp16", "fp16") else kind[0]
            found.append(_row(key, name, board, sound, {kind}))
    return found


def unclocked() -> list[Row]:
    """The same of published figures without a clock: healthy is what boards of this kind usually reach."""
    found = []
    for board in catalogue.boards().values():
        usual, ends = {}, {}
        for dtype in dict.fromkeys(kind.dtype for kind in TYPES):
            above = roofline.roof(board, dtype)
            if not isinstance(above, Roof):
                continue
            own = board.floors.get("fp64_tensor" if above.unit == "tensor_fp64" else dtype)
            if own and own.usual:
                usual[dtype] = own.usual / 100 * above.tflops
                ends[dtype] = int(100 * own.percent / own.usual)
        if len(usual) > 1:
            found.append(_published(board, EVERYTHING, usual, set(usual), max(84, *ends.values())))
        found += [_published(board, dtype, usual, {dtype}, ends[dtype]) for dtype in usual]
    return found


def _published(board: Board, what: str, usual: Mapping[str, float], slow: set[str], guess: int) -> Row:
    def told(percent: int) -> list[Finding]:
        gemms = [
            {"dtype": dtype, "tflops": tflops * (percent / 100 if dtype in slow else 1), **dict.fromkeys("mnk", SIZE)}
            for dtype, tflops in usual.items()
        ]
        ids = {"pci_device_id": board.pci_device_ids[0], "pci_subsystem_id": (*board.subsystem_ids, "")[0]}
        values = {"published": "a page", "gpus": [{"index": 0, **ids, "gemms": gemms}]}
        figures = from_figures({"measurements": [{"probe": "gemm", "source": "measured", "values": values}]})
        return [one for one in judge(figures, shipped(board.model.profile)).findings if one.status in GRAVEST]

    low, found = end_of_pass(told, lambda told: not told, guess)
    worst = min(found, key=lambda one: GRAVEST.index(one.status))
    return Row(board.key, what, low, worst.status.value, worst.property)


def _row(key: str, what: str, board: Board, sound: Mapping[tuple[str, str], float], slow: set[tuple[str, str]]) -> Row:
    low, (status, reason) = end_of_pass(
        lambda percent: judged(board, slowed(sound, slow, percent)), lambda found: found[0] is Status.PASS
    )
    return Row(key, what, low, status.value, reason)


def slowed(
    sound: Mapping[tuple[str, str], float], slow: set[tuple[str, str]], percent: int
) -> dict[tuple[str, str], float]:
    return {kind: tflops * percent / 100 if kind in slow else tflops for kind, tflops in sound.items()}
