"""Profiles of any content: advice with finite figures, or none; never an error."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
from synthetic import Kineto

from gpuprep.trace import opening

OPS = (
    "aten::mm", "aten::conv2d", "aten::convolution_backward", "aten::_softmax", "aten::bmm", "aten::add_",
    "aten::zeros", "aten::to", "aten::item", "aten::addcdiv_", "aten::batch_norm", "Optimizer.step#SGD.step",
    "Optimizer.zero_grad#a", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "DataParallel.forward",
    "{0}\x1b[2J<b>",
)  # fmt: skip
KERNELS = (
    "nvjet_x", "ampere_sgemm_x", "Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pageable)",
    "vectorized_elementwise_kernel<4>", "reduce_kernel", "ncclDevKernel_AllReduce", "nchwToNhwcKernel",
    "batch_norm_backward_kernel", "softmax_warp_forward", "cutlass_80_tensorop_align1", "{figures}\n<script>",
)  # fmt: skip
CALLS = ("cudaStreamSynchronize", "cudaMalloc", "cudaFree", "cuLibraryLoadData")
SHAPES: tuple[Any, ...] = (
    [], [0], [3, 0], [4096, 4097], [2, 64, 7], [64, 64, 3, 3], [-1, 5], [2**62, 9], [[1, 2], [3]], "x",
)  # fmt: skip
DTYPES = ("float", "c10::Half", "c10::BFloat16", "", "Scalar", "zz")
LONGEST = 5_000_000


def anything(seed: int) -> Kineto:
    chance = random.Random(seed)
    trace = Kineto("G4")
    if chance.random() < 0.5:
        trace.top["deviceProperties"] = [
            {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": chance.choice([0, 85_000_000_000]),
             "computeMajor": 9, "computeMinor": 0, "numSms": chance.choice([132, 0, -5])}
        ]  # fmt: skip

    def some(choices: tuple[Any, ...], most: int = 4) -> list[Any]:
        return [chance.choice(choices) for _ in range(chance.randint(0, most))]

    for step in range(chance.randint(0, 5)):
        trace.annotation(f"ProfilerStep#{step}", step * 1_000_000, chance.randint(0, 1_200_000))
    for _ in range(chance.randint(0, 60)):
        concrete = some(("", "[1, 1]", "[True, False]", "9" * 400), 8)
        trace.op(
            chance.choice(OPS), chance.randint(0, LONGEST), chance.randint(0, 400_000), tid=chance.choice([1, 2]),
            shapes=some(SHAPES), dtypes=some(DTYPES), args={"Concrete Inputs": concrete, "Input Strides": some(SHAPES)},
        )  # fmt: skip
    for _ in range(chance.randint(0, 80)):
        name, at = chance.choice(KERNELS), chance.randint(0, LONGEST)
        copy = name.startswith("Memcpy")
        grid = chance.choice([[1, 1, 1], [2**31 - 1] * 3, [0, 0, 0]])
        trace.launch(
            chance.choice([None, at]), name, at + chance.randint(-5000, 400_000), chance.randint(0, 300_000),
            tid=chance.choice([1, 2]), stream=chance.choice([7, 20]), device=chance.choice([0, 0, 1]),
            kind="gpu_memcpy" if copy else "kernel", call_dur=chance.choice([3000, 0, 500_000]),
            args={"bytes": chance.choice([0, -5, 2**62, 100])} if copy else {"grid": grid},
        )  # fmt: skip
    for _ in range(chance.randint(0, 20)):
        ids = {"correlation": chance.randint(1, 500)}
        trace.event(
            "cuda_runtime", chance.choice(CALLS), chance.randint(0, LONGEST), chance.randint(0, 500_000), args=ids
        )
    if chance.random() < 0.3:
        trace.memory(5, 1, chance.choice([-1, 2**62, 10]), 5)
    return trace


@pytest.mark.parametrize("tens", range(12))
def test_advice_of_anything_is_finite(tens: int, tmp_path: Path) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        document = opening.open_trace(anything(seed).write(tmp_path / "any.json")).document
        for one in document.advice:
            assert all(map(math.isfinite, one.figures.values())), (seed, one)
            assert one.gain is None or 0 <= one.gain.us < 1e9, (seed, one)
            assert "\x1b" not in one.problem + one.recommendation, seed
            assert "\n" not in one.problem + one.recommendation, seed
