"""A kernel whose name does not tell is proven by its speed; and no name of a real profile is refuted by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import amount
import pytest
from handmade import Op, launched, step, trace

from gpuprep.catalogue import boards
from gpuprep.trace import columns, model, opening, profile, work
from gpuprep.trace.roofs.kernels import kernels_of_ops
from gpuprep.trace.work import proof

RECORDED = Path(__file__).parent / "recorded"
H100 = boards()["h100_sxm5_80"]
A100 = boards()["a100_sxm4_40"]
DEVICES = (columns.Device(0, "NVIDIA H100 80GB HBM3", "9.0", 132, 85_000_000_000),)
BF16 = columns.Arguments(((4096, 4096), (4096, 4096)), ("c10::BFloat16",) * 2)


def kernels(
    given: columns.Arguments | None, *launches: tuple[str, int], devices: Any = DEVICES
) -> dict[str, profile.KernelRow]:
    """Kernels of one aten::mm, by name."""
    rows: list[Any] = [step(0, 0, 10_000_000), Op("aten::mm", 1, 50, arguments=given)]
    ready = 100
    for place, (name, ns) in enumerate(launches):
        rows += launched(name, 2 + place, ready, ready + ns, place + 1)
        ready += ns
    return {row.name: row for row in model.profile(trace(*rows, devices=devices)).kernels}


def test_a_quick_kernel_is_proven() -> None:
    """137 GFLOP in 250 µs are 550 TFLOPS; CUDA cores of an H100 reach 134 in BF16."""
    found = kernels(BF16, ("triton_tem_fused_mm_0", 250_000))["triton_tem_fused_mm_0"]
    assert (found.tensor_cores, found.rule) == (profile.UsesTensorCores.YES, "speed")


@pytest.mark.parametrize(
    ("given", "ns", "devices"),
    [
        (BF16, 3_000_000, DEVICES),  # 46 TFLOPS: CUDA cores could
        (BF16, 10_000, DEVICES),  # 13 744 TFLOPS: a figure is wrong
        (None, 250_000, DEVICES),
        (columns.Arguments(BF16.shapes), 250_000, DEVICES),
        (BF16, 250_000, (columns.Device(0, "a GPU of tomorrow", "13.0"),)),
        (BF16, 250_000, ()),
    ],
)
def test_what_is_not_proven_stays_unknown(given: columns.Arguments | None, ns: int, devices: Any) -> None:
    found = kernels(given, ("triton_tem_fused_mm_0", ns), devices=devices)["triton_tem_fused_mm_0"]
    assert (found.tensor_cores, found.rule) == (profile.UsesTensorCores.UNKNOWN, "")


def test_a_kernel_beside_one_that_does_is_not_proven() -> None:
    found = kernels(BF16, ("nvjet_hsh_1", 200_000), ("my_gemm", 50_000))
    assert found["my_gemm"].tensor_cores is profile.UsesTensorCores.UNKNOWN


def test_of_two_unknown_kernels_the_longer_one_is_proven() -> None:
    found = kernels(BF16, ("my_gemm", 200_000), ("your_gemm", 50_000))
    assert found["my_gemm"].tensor_cores is profile.UsesTensorCores.YES
    assert found["your_gemm"].tensor_cores is profile.UsesTensorCores.UNKNOWN


def test_a_kernel_that_is_known_is_not_asked() -> None:
    found = kernels(BF16, ("void at::native::f<int>(int)", 250_000))["void at::native::f<int>(int)"]
    assert (found.tensor_cores, found.rule) == (profile.UsesTensorCores.NO, "torch-native")


def test_peaks_of_cuda_cores() -> None:
    """NVIDIA's datasheets: A100 19.5 in FP32, 78 in FP16, 9.7 in FP64; H100 SXM 67, 134, 34."""
    for board, figures in (
        (A100, {"fp32": 19.5, "fp16": 78.0, "fp64": 9.7}),
        (H100, {"fp32": 67, "fp16": 134, "fp64": 34}),
    ):
        for dtype, wanted in figures.items():
            assert proof.cuda_core_tflops(board, dtype) == pytest.approx(wanted, rel=0.02)
    assert proof.cuda_core_tflops(A100, "?") is None
    assert proof.proves(A100, "fp32", 60.0)
    assert not proof.proves(A100, "fp32", 19.0)
    assert not proof.proves(A100, "fp32", 1000.0)


FAST = ("attention-", "gpt-bf16", "gpt-tf32", "shapes-")  # large products, which CUDA cores could not do so fast


@pytest.mark.parametrize("path", amount.third(sorted(RECORDED.glob("*.json.gz"))), ids=lambda path: path.name)
def test_no_name_is_refuted_by_its_speed(path: Path) -> None:
    """Physics beside names, on a real GPU: what is faster than CUDA cores can be is no op whose kernels all say no."""
    found = opening.open_trace(path)
    proven = 0
    by_op = kernels_of_ops(found.profile, 0, found.document.summary.total_iterations)
    for op in found.document.ops:
        at = found.profile.ops[op.id].arguments
        if op.tflops and at >= 0 and op.id in by_op and op.calls <= by_op[op.id].calls:
            given = found.profile.trace.arguments[at]
            shape = work.shape(op.type, given)
            assert shape is not None
            counted = op.tflops * shape.needed if shape.kind != "convolution" else 0.0
            if proof.proves(H100, work.dtype(op.type, given), counted):
                proven += 1
                assert by_op[op.id].uses_tensor_cores is profile.UsesTensorCores.YES, op
    assert proven or not path.name.startswith(FAST)
