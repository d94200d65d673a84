"""How much faster an op would be with larger sizes, by gpuprep's model of products (performance/predict.py).

Both the recorded and the larger shape are predicted, and the recorded time is multiplied by the ratio: both have the
same error of the model. The result is never quicker than the quick end of the prediction for the larger
shape, and an op that is already as fast as that prediction gets no advice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpuprep.catalogue import Board
from gpuprep.performance import bettershape, gemm_shapes
from gpuprep.performance.operations import LARGEST, Operation
from gpuprep.performance.predict import Prediction, predict
from gpuprep.records import Missing
from gpuprep.trace.work.flops import FIRST_LAYER, Work

WORTH = bettershape.WORTH
LEAST_SAVED = 1e-6  # seconds of a call


@dataclass(frozen=True)
class Faster:
    words: str  # "3.1 times faster with K padded from 4097 to 4104"
    saved_us: float  # of one call


def operation(work: Work) -> Operation | None:
    """As performance/ has it; None for an attention, a convolution in groups, and what is too large for cuBLAS."""
    if max(work.m, work.n, work.k) > LARGEST or min(work.m, work.n, work.k, work.batch) < 1:
        return None
    if work.kind == "product":
        along = "".join(name for name, _ in work.rows)
        return Operation("product", work.words, work.m, work.n, work.k, work.batch, rows=along)
    if work.kind != "convolution" or not work.rows:
        return None
    return _convolution(work, dict(work.rows)["channels in"], dict(work.rows)["channels out"])


def _convolution(work: Work, channels: int, out: int) -> Operation:
    """The implicit product; with these channels in place of those of the op."""
    taps = math.prod(work.filter[2:])
    read = work.image[0] * math.prod(work.image[2:]) * channels + taps * channels * out
    return Operation(
        "convolution",
        work.words,
        work.m,
        out,
        channels * taps,
        read=read,
        written=work.m * out,
        aligned=(channels, out),
    )


class Model:
    """Predictions of one board; each shape is looked for once."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._known: dict[tuple[Operation, str], tuple[Prediction, Prediction, str] | None] = {}

    def padded(self, work: Work, dtype: str, call_us: float) -> Faster | None:
        """`call_us`: GPU time of one call."""
        wanted = operation(work)
        if wanted is None:
            return None
        key = (wanted, dtype)
        if key not in self._known:
            self._known[key] = _larger(self.board, work, wanted, dtype)
        larger = self._known[key]
        return _gain(*larger, work, call_us) if larger else None


def _gain(asked: Prediction, there: Prediction, changed: str, work: Work, call_us: float) -> Faster | None:
    now = call_us * 1e-6 / max(1.0, work.times)
    quickest = there.operation.operations / (min(there.high_tflops, there.peak.tflops) * 1e12)
    then = max(now * there.seconds / asked.seconds, quickest)
    if now < max(there.seconds, then) * WORTH or (now - then) * work.times < LEAST_SAVED:
        return None
    gain = now / then
    words = f"{gain:.2f}" if gain < 1.1 else f"{gain:.1f}"
    return Faster(f"{words} times faster with {changed}", (now - then) * 1e6 * max(1.0, work.times))


def _larger(board: Board, work: Work, wanted: Operation, dtype: str) -> tuple[Prediction, Prediction, str] | None:
    """(as it is, with larger sizes, which those are); None where the model knows nothing better."""
    asked = predict(board, wanted, dtype)
    if isinstance(asked, Missing):
        return None
    if work.kind == "convolution":
        return _channels(work, asked)
    larger = next((neighbour for neighbour in bettershape.near(asked) if neighbour.direction == "larger"), None)
    if larger is None:
        return None
    before = (asked.operation.m, asked.operation.n, asked.operation.k)
    return asked, larger.prediction, _changes(tuple(zip("MNK", before, larger.shape, strict=True)))


def _channels(work: Work, asked: Prediction) -> tuple[Prediction, Prediction, str] | None:
    """The fastest of channels padded to multiples of 16 bytes and of 128 bytes."""
    channels, out = (size for _, size in work.rows)
    needed, best = gemm_shapes.alignment(asked.dtype, asked.board.model.compute_capability)
    inputs = {channels} if channels <= FIRST_LAYER else {channels, *(_up(channels, each) for each in (needed, best))}
    outputs = {out, *(_up(out, each) for each in (needed, best))}
    tried = []
    for wider in inputs:
        for more in outputs:
            there = predict(asked.board, _convolution(work, wider, more), asked.dtype)
            if (wider, more) != (channels, out) and not isinstance(there, Missing):
                tried.append((there.seconds, wider, more, there))
    if not tried:
        return None
    _, wider, more, there = min(tried, key=lambda one: one[:3])
    return asked, there, _changes((("channels in", channels, wider), ("channels out", out, more)))


def _changes(sizes: tuple[tuple[str, int, int], ...]) -> str:
    return " and ".join(f"{name} padded from {before} to {after}" for name, before, after in sizes if before != after)


def _up(size: int, multiple: int) -> int:
    return math.ceil(size / multiple) * multiple
