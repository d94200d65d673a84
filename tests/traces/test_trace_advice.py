"""Every recommendation, with a program that it is about and one that it is not about."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tracesteps
from advicetraces import HALF, HTOD, LOADER, LOADER0, MM, NCCL, PINNED, allocating, copies, loading, product, said
from places import ROOT
from programs import ADD, PRODUCT_BF16, PRODUCT_FP32, PRODUCT_TF32, Kernel, Program
from records_for_tests import record
from synthetic import Kineto

from gpuprep import records
from gpuprep.trace import columns, document, opening
from gpuprep.trace.advice import rules

SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>"
TRANSPOSE = "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>"
CONV: dict[str, Any] = {
    "shapes": [[64, 64, 56, 56], [64, 64, 3, 3], [64], [], [], [], []],
    "dtypes": ["float", "float", "float", "ScalarList", "ScalarList", "ScalarList", "Scalar"],
    "args": {"Concrete Inputs": ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"]},
}
CONV_PLAIN = {**CONV, "shapes": [[64, 64, 56, 56], [64, 64, 3, 3], [], [], [], [], []]}
BIAS = "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<...> >"


def good() -> Program:
    """Nothing is wrong with it: products of 16 bits, the GPU is always busy, the CPU one step ahead."""
    p = Program()
    for _ in p.steps(4):
        product(p)
        p.now = max(p.now, max(p.free.values()) - 1_000_000)
        p.trace.memory(p.now, 1, 50_000_000_000, 60_000_000_000)
    p.trace.python("train.py(1): step", 1_000_000, 1_000)
    return p


def of_products(kernel: str, **more: Any) -> Callable[[], Program]:
    def made() -> Program:
        p = Program()
        for _ in p.steps(3):
            product(p, kernel, **more)
        return p

    return made


def waves(blocks: int) -> Callable[[], Program]:
    def made() -> Program:
        p = Program()
        for _ in p.steps(3):
            for _ in range(10):
                p.op("aten::mm", Kernel(PRODUCT_BF16, 200_000, grid=(blocks, 1, 1)), **HALF)
        return p

    return made


def slow_cpu(p: Program, many: int = 10, cpu: int = 500_000) -> None:
    for _ in range(many):
        p.op("aten::mm", Kernel(PRODUCT_BF16, 20_000), cpu=cpu, **HALF)


def low_util() -> Program:
    p = Program()
    for _ in p.steps(3):
        slow_cpu(p)
    return p


def small_kernels(count: int, ns: int, cpu: int = 0) -> Callable[[], Program]:
    def made() -> Program:
        p = Program()
        for _ in p.steps(3):
            for _ in range(count):
                p.op("aten::mm", Kernel(PRODUCT_BF16, ns), cpu=cpu, **HALF)
        return p

    return made


def reading_back(item: bool) -> Callable[[], Program]:
    def made() -> Program:
        p = Program()
        for _ in p.steps(3):
            for _ in range(5):
                product(p, many=2)
                if item:
                    with p.inside("aten::item"), p.inside("aten::_local_scalar_dense"):
                        p.op(
                            "aten::copy_", Kernel("Memcpy DtoH (Device -> Pageable)", 1_500, kind="gpu_memcpy", size=4)
                        )
                        p.wait()
                p.now += 100_000
        return p

    return made


def with_kernel(name: str, op: str, ns: int = 50_000) -> Callable[[], Program]:
    def made() -> Program:
        p = Program()
        for _ in p.steps(3):
            for _ in range(10):
                p.op(op, Kernel(name, ns), Kernel(PRODUCT_BF16, 200_000), **HALF)
        return p

    return made


DEPTHWISE = "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, c10::BFloat16, int>(...)"
VOLTA = "volta_fp16_s884cudnn_fp16_256x128_ldg8_relu_f2f_exp_small_nhwc2nchw_tn_v1"
IN_NHWC = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_kernel"


def convolved(
    kernel: str, ns: int = 400_000, last: bool = False, strides: bool = True, dtype: str = "c10::BFloat16",
    filter_size: tuple[int, ...] = (128, 1, 3, 3), beside: str = "",
) -> Callable[[], Program]:  # fmt: skip
    """One convolution beside 2 ms of products. `last`: its picture lies with the channels together."""
    image = (64, 128, 56, 56)
    laid = [[c * h * w, 1, w * c, c] if last else [c * h * w, h * w, w, 1] for _, c, h, w in (image, filter_size)]
    given: dict[str, Any] = {
        "shapes": [image, filter_size, [], [3, 3], [1, 1], [1, 1], [1, 1]], "dtypes": [dtype, dtype],
        "args": {
            "Concrete Inputs": ["", "", "", "[3, 3]", "[1, 1]", "[1, 1]", "[1, 1]"],
            **({"Input Strides": laid} if strides else {}),
        },
    }  # fmt: skip
    if filter_size[2] == 1:
        given["args"]["Concrete Inputs"] = ["", "", "[0, 0]", "[1, 1]", "[1, 1]"]
    op = "aten::_conv_depthwise2d" if filter_size[2] > 1 else "aten::cudnn_convolution"

    def work(p: Program, _: int) -> None:
        p.op(op, Kernel(kernel, ns), **given)
        if beside:
            p.op(beside, Kernel("RowwiseMomentsCUDAKernel", 9_000))

    return lambda: of(work)(0)


def convolutions(bias: bool, normed: bool = True, moving: bool = False) -> Callable[[], Program]:
    def made() -> Program:
        p = Program()
        for step in p.steps(3):
            for _ in range(4):
                given = CONV if bias else CONV_PLAIN
                if moving:
                    given = {**given, "shapes": [[64 + step, 64, 56, 56], *given["shapes"][1:]]}
                with p.inside("aten::conv2d", **given), p.inside("aten::_convolution", **given):
                    p.op("aten::cudnn_convolution", Kernel(PRODUCT_TF32, 300_000), **given)
                    if bias:
                        p.op("aten::add_", Kernel(BIAS, 40_000), shapes=[[64, 64, 56, 56]], dtypes=["float"])
                p.op("aten::add_", cpu=1_000, shapes=[[]], dtypes=["long int"])
                if normed:
                    p.op("aten::batch_norm", Kernel("bn_fw_tr_1C11_kernel_new", 100_000), shapes=[[64, 64, 56, 56]])
        return p

    return made


def optimizer(multi: bool) -> Callable[[], Program]:
    def made() -> Program:
        p = Program()
        for _ in p.steps(3):
            product(p)
            with p.range("Optimizer.step#Adam.step"):
                if multi:
                    for _ in range(8):
                        p.op("aten::_foreach_add_", Kernel("multi_tensor_apply_kernel<...>", 40_000))
                else:
                    for _ in range(150):
                        p.op("aten::mul_", Kernel(ADD, 3_000), shapes=[[256, 256], []], dtypes=["float", "Scalar"])
                        p.op("aten::addcdiv_", Kernel(ADD, 3_000), shapes=[[256, 256]] * 3, dtypes=["float"] * 3)
        return p

    return made


def zeroing(to_none: bool) -> Callable[[], Program]:
    def made() -> Program:
        p = Program()
        for _ in p.steps(3):
            with p.range("Optimizer.zero_grad#SGD.zero_grad"):
                for _ in range(0 if to_none else 50):
                    p.op("aten::zero_", Kernel("FillFunctor vectorized_elementwise_kernel", 10_000), shapes=[[2**20]])
            product(p)
        return p

    return made


def created(on_device: bool) -> Callable[[], Program]:
    def made() -> Program:
        p = Program()
        for _ in p.steps(3):
            fill = [Kernel("FillFunctor vectorized_elementwise_kernel", 4_000)] if on_device else []
            p.op("aten::zeros", *fill, cpu=10_000 if on_device else 500_000, shapes=[[]], dtypes=["ScalarList"])
            if not on_device:
                copy = Kernel(HTOD, 900_000, kind="gpu_memcpy", size=4 * 2**20, blocks=True)
                p.op("aten::to", copy, shapes=[[1024, 1024]], dtypes=["float"])
            product(p)
        return p

    return made


def elementwise(name: str, many: int, op: str = "aten::add", ns: int = 100_000) -> Callable[[], Program]:
    def made() -> Program:
        p = Program()
        for _ in p.steps(3):
            for _ in range(5):
                product(p, many=1)
                for _ in range(many):
                    p.op(op, Kernel(name, ns), shapes=[[2**24]], dtypes=["float"])
        return p

    return made


def attending(fused: bool) -> Callable[[], Program]:
    q, s = [64, 1024, 64], [64, 1024, 1024]

    def made() -> Program:
        p = Program()
        for _ in p.steps(3):
            for _ in range(4):
                kinds = ["c10::BFloat16", "c10::BFloat16"]
                if fused:
                    shape = [[4, 16, 1024, 64]] * 3
                    p.op("aten::scaled_dot_product_attention", Kernel("flash_fwd_kernel", 100_000), shapes=shape)
                    continue
                p.op("aten::bmm", Kernel(PRODUCT_BF16, 150_000), shapes=[q, [64, 64, 1024]], dtypes=kinds)
                p.op("aten::div", Kernel(ADD, 100_000), shapes=[s, []], dtypes=["c10::BFloat16", "Scalar"])
                with p.inside("aten::softmax", shapes=[s], dtypes=kinds[:1]):
                    p.op("aten::_softmax", Kernel(SOFTMAX, 200_000), shapes=[s], dtypes=kinds[:1])
                p.op("aten::bmm", Kernel(PRODUCT_BF16, 150_000), shapes=[s, q], dtypes=kinds)
        return p

    return made


def reducing(stream: int) -> Callable[[], Program]:
    """On the stream of the products nothing covers it; on its own the products do."""

    def made() -> Program:
        p = Program()
        for _ in p.steps(3):
            for _ in range(5):
                p.op("nccl:all_reduce", Kernel(NCCL, 300_000, stream=stream))
                product(p, many=2)
        return p

    return made


def parallel(ddp: bool) -> Callable[[], Program]:
    def made() -> Program:
        p = Program()
        for _ in p.steps(3):
            with p.range("DistributedDataParallel.forward" if ddp else "DataParallel.forward"):
                product(p)
                p.op("aten::mm", Kernel(PRODUCT_BF16, 200_000, device=1), **HALF)
        return p

    return made


def backend(name: str) -> Callable[[], Program]:
    def made() -> Program:
        p = Program(distributedInfo={"backend": name, "rank": 0, "world_size": 2})
        for _ in p.steps(3):
            product(p)
            with p.range(f"{name}:all_reduce"):
                pass
        return p

    return made


def growing(inside: bool) -> Program:
    """As allocating(), without the calls: an op takes longer, and reserved memory grows."""
    p = Program()
    gb = 1_000_000_000
    for step in p.steps(4):
        p.trace.memory(p.now, 1, gb, 2 * gb)
        for _ in range(2):
            slow = 300_000 if inside or not step else 0
            if slow:
                p.trace.memory(p.now + slow, 1, 2 * gb, 3 * gb)
                p.trace.memory(p.now + slow + 1_000, -1, gb, 2 * gb)
            p.op("aten::mm", Kernel(PRODUCT_BF16, 100_000), cpu=slow, **HALF)
    return p


def filled(share: float) -> Callable[[], Program]:
    def made() -> Program:
        p = Program()
        for _ in p.steps(3):
            product(p)
            p.trace.memory(p.now, 1, int(85e9 * share), int(85e9))
        return p

    return made


def lazy(inside: bool) -> Callable[[], Program]:
    def made() -> Program:
        p = Program()
        p.call("cuModuleLoadData", 100_000, 500_000)
        for _ in p.steps(3):
            product(p)
            if inside:
                p.call("cuLibraryLoadData", p.now, 500_000)
                p.now += 600_000
        return p

    return made


def uneven(spread: int) -> Callable[[], Program]:
    def made() -> Program:
        p = Program()
        for step in p.steps(6):
            product(p)
            p.now += 5_000_000 + (spread if step == 2 else 0)
        return p

    return made


def cpu_alone() -> Program:
    p = Program()
    for _ in p.steps(3):
        p.op("aten::mm", cpu=50_000, **HALF)
    return p


def without(*categories: str) -> Callable[[], Program]:
    def made() -> Program:
        p = low_util()
        p.trace.events[:] = [event for event in p.trace.events if event.get("cat") not in categories]
        return p

    return made


def dropped(every: int) -> Callable[[], Program]:
    """The records of some kernels are not there, their launches are."""

    def made() -> Program:
        p = good()
        kernels = [event for event in p.trace.events if event.get("cat") == "kernel"][::every]
        p.trace.events[:] = [event for event in p.trace.events if event not in kernels]
        return p

    return made


def no_steps() -> Program:
    p = Program()
    product(p)
    p.trace.op("aten::once", p.now, 1_000)
    return p


def no_shapes() -> Program:
    p = Program()
    for _ in p.steps(3):
        p.op("aten::mm", Kernel(PRODUCT_BF16, 200_000))
    return p


def cut(last: int) -> Callable[[], Program]:
    def made() -> Program:
        p = Program()
        for step in p.steps(4):
            product(p, many=last if step == 3 else 10)
        return p

    return made


Pair = tuple[Callable[[], Program], Callable[[], Program]]
ODD: dict[str, Any] = {"shapes": [[4096, 4097], [4097, 4096]], "dtypes": ["c10::BFloat16", "c10::BFloat16"]}
# Of each rule a program that it speaks of, and the nearest one that it does not.
CASES: dict[str, Pair] = {
    "amp": (of_products(PRODUCT_FP32, **MM), of_products(PRODUCT_BF16)),
    "tf32": (of_products(PRODUCT_FP32, **MM), of_products(PRODUCT_TF32, **MM)),
    "eligible-not-used": (of_products("cutlass_80_simt_sgemm_128x128", **HALF), of_products(PRODUCT_BF16)),
    "bad-shape": (of_products(PRODUCT_BF16, **ODD), of_products(PRODUCT_BF16)),
    "wave-tail": (waves(140), waves(132)),
    "low-util": (low_util, good),
    "dataloader": (loading(LOADER, 3_000_000), loading(LOADER, 20_000)),
    "workers0": (loading(LOADER0, 3_000_000), loading(LOADER, 3_000_000)),
    "launch-bound": (small_kernels(200, 3_000, 20_000), small_kernels(200, 100_000)),
    "gaps": (low_util, good),
    "sync": (reading_back(True), reading_back(False)),
    "pageable": (copies(HTOD, True), copies(PINNED, False)),
    "h2d-exposed": (copies(PINNED, False), good),
    "transposes": (with_kernel(TRANSPOSE, "aten::cudnn_convolution"), with_kernel(TRANSPOSE, "aten::mm", 1_000)),
    "cudnn-bench": (convolutions(False), convolutions(False, moving=True)),
    "conv-bias-bn": (convolutions(True), convolutions(False)),
    "opt-foreach": (optimizer(False), optimizer(True)),
    "zero-grad": (zeroing(False), zeroing(True)),
    "extra-copy": (created(False), created(True)),
    "elementwise": (elementwise(ADD, 6), elementwise(ADD, 1)),
    "compile": (elementwise(ADD, 3, ns=30_000), elementwise("triton_poi_add", 3, "triton_poi_add", 30_000)),
    "attention": (attending(False), attending(True)),
    "comm-exposed": (reducing(7), reducing(20)),
    "dp-not-ddp": (parallel(False), parallel(True)),
    "not-nccl": (backend("gloo"), backend("nccl")),
    "alloc": (allocating(True), allocating(False)),
    "mem-high": (filled(0.95), filled(0.5)),
    "mem-low": (filled(0.1), filled(0.5)),
    "lazy-load": (lazy(True), lazy(False)),
    "unstable": (uneven(9_000_000), uneven(10_000)),
    "no-gpu": (cpu_alone, good),
    "lost-kernels": (dropped(3), dropped(20)),
    "no-calls": (without("cuda_runtime"), low_util),
    "no-ops": (without("cpu_op", "user_annotation"), without("cpu_op")),
    "no-steps": (no_steps, good),
    "no-shapes": (no_shapes, good),
    "no-memory": (low_util, good),
    "no-stacks": (low_util, good),
    "truncated": (cut(3), cut(10)),
}  # fmt: skip


@pytest.mark.parametrize("rule", CASES)
def test_rule_speaks_of_its_program_and_of_no_other(rule: str, tmp_path: Path) -> None:
    about, not_about = CASES[rule]
    found = said(about(), tmp_path)
    assert rule in found, f"only {list(found)}"
    assert rule not in said(not_about(), tmp_path)
    one = found[rule]
    assert one.severity in ("problem", "hint", "missing")
    assert "{" not in one.problem + one.recommendation
    assert one.link.startswith("https://")
    if one.gain is not None:
        assert one.gain.us >= 0
        assert one.gain.how


def of(work: Callable[[Program, int], None]) -> Callable[[int], Program]:
    """Of a number: steps of 2 ms of products on the GPU, and some other work of that size in each."""

    def made(value: int) -> Program:
        p = Program()
        for _ in p.steps(3):
            product(p)
            work(p, value)
        return p

    return made


def paused(p: Program, ns: int) -> None:
    p.wait()
    p.now += ns


def loaded(name: str) -> Callable[[Program, int], None]:
    def work(p: Program, ns: int) -> None:
        p.wait()
        with p.range(name, before=ns):
            pass

    return work


def launching(op: str, kernel: str, kind: str = "kernel", **more: Any) -> Callable[[Program, int], None]:
    return lambda p, ns: p.op(op, Kernel(kernel, ns, kind=kind, size=4096), **more)


def read_back(p: Program, ns: int) -> None:
    product(p, many=40)
    with p.inside("aten::item"), p.inside("aten::_local_scalar_dense"):
        p.op("aten::copy_", Kernel("Memcpy DtoH (Device -> Pageable)", 1_500, kind="gpu_memcpy", size=4))
        p.wait()
    p.now += ns


OTHER: dict[str, Any] = {"shapes": [[4096, 4096], [4096, 8192]], "dtypes": ["c10::BFloat16", "c10::BFloat16"]}
# Of a rule a program of a number, and a number above and one below the limit that docs/traces.md names.
LIMITS: dict[str, tuple[Callable[[int], Program], int, int]] = {
    "low-util": (of(paused), 2_300_000, 1_800_000),
    "gaps": (of(paused), 260_000, 180_000),
    "dataloader": (of(loaded(LOADER)), 140_000, 90_000),
    "workers0": (of(loaded(LOADER0)), 30_000, 12_000),
    "sync": (of(read_back), 150_000, 50_000),
    "unstable": (lambda spread: uneven(spread)(), 2_500_000, 900_000),
    "mem-high": (lambda percent: filled(percent / 100)(), 92, 88),
    "mem-low": (lambda percent: filled(percent / 100)(), 23, 27),
    "amp": (of(launching("aten::mm", PRODUCT_FP32, **MM)), 125_000, 90_000),
    "tf32": (of(launching("aten::mm", PRODUCT_FP32, **MM)), 125_000, 90_000),
    "eligible-not-used": (of(launching("aten::mm", "cutlass_80_simt_sgemm_128x128", **OTHER)), 50_000, 35_000),
    "bad-shape": (of(launching("aten::mm", PRODUCT_BF16, **ODD)), 50_000, 35_000),
    "transposes": (of(launching("aten::cudnn_convolution", TRANSPOSE)), 50_000, 35_000),
    "h2d-exposed": (of(launching("aten::copy_", PINNED, "gpu_memcpy")), 60_000, 30_000),
    "pageable": (of(launching("aten::copy_", HTOD, "gpu_memcpy")), 30_000, 15_000),
    "comm-exposed": (of(launching("nccl:all_reduce", NCCL)), 270_000, 170_000),
    "elementwise": (of(launching("aten::add", ADD, shapes=[[2**24]], dtypes=["float"])), 1_500_000, 1_200_000),
    "launch-bound": (lambda count: small_kernels(count, 3_000, 20_000)(), 101, 98),
    "cudnn-bench": (of(launching("aten::cudnn_convolution", "implicit_sgemm", **CONV_PLAIN)), 300_000, 180_000),
}  # fmt: skip


@pytest.mark.parametrize("rule", LIMITS)
def test_a_rule_speaks_from_its_limit_on(rule: str, tmp_path: Path) -> None:
    made, above, below = LIMITS[rule]
    assert rule in said(made(above), tmp_path)
    assert rule not in said(made(below), tmp_path)


def hidden_load(p: Program, ns: int) -> None:
    """The GPU has work while the CPU waits for a batch."""
    product(p, many=ns // 100_000)
    with p.range(LOADER, before=ns):
        pass


# At the limit itself, and with one half of a condition: the rule, a program, and whether it speaks.
EDGES: tuple[tuple[str, Callable[[], Program], bool], ...] = (
    ("mem-high", filled(0.9), False),
    ("mem-low", filled(0.25), False),
    ("launch-bound", small_kernels(100, 3_000, 20_000), True),
    ("launch-bound", small_kernels(99, 3_000, 20_000), False),
    ("launch-bound", small_kernels(200, 9_999, 40_000), True),
    ("launch-bound", small_kernels(200, 10_000, 40_000), False),
    ("launch-bound", small_kernels(300, 9_900), False),  # short, and the GPU does not wait
    ("dataloader", lambda: of(hidden_load)(3_000_000), False),
    ("gaps", without("cuda_runtime"), False),
    ("transposes", convolved(DEPTHWISE), True),  # memory needs 65 µs for it
    ("transposes", convolved(DEPTHWISE, 70_000), False),
    ("transposes", convolved(DEPTHWISE, strides=False), True),  # PyTorch's own kernel knows NCHW alone
    ("transposes", convolved("dgrad2d_c1_k1_nhwc_kernel<__nv_bfloat16>", last=True), False),
    ("transposes", convolved("conv2d_c1_k1_kernel<__nv_bfloat16>", strides=False), False),  # nothing tells how it lies
    ("transposes", convolved(DEPTHWISE, dtype="float"), False),  # not sure to help
    ("transposes", convolved("cutlass_80_tensorop_bf16_s16816gemm_align2", filter_size=(256, 128, 1, 1)), True),
    ("transposes", convolved("cutlass_80_tensorop_bf16_s16816gemm", 60_000, filter_size=(256, 128, 1, 1)), False),
    ("transposes", convolved(IN_NHWC, filter_size=(256, 128, 1, 1)), False),  # it may be slow, but not for its layout
    ("transposes", convolved(VOLTA, filter_size=(256, 128, 1, 1)), False),
    ("bad-shape", convolved("cutlass_80_tensorop_bf16_s16816gemm_align2", filter_size=(256, 128, 1, 1)), False),
    ("eligible-not-used", convolved(DEPTHWISE), False),
)


@pytest.mark.parametrize(("rule", "made", "speaks"), EDGES)
def test_a_rule_at_its_edge(rule: str, made: Callable[[], Program], speaks: bool, tmp_path: Path) -> None:
    assert (rule in said(made(), tmp_path)) is speaks


def test_volumes_are_told_to_use_their_own_layout(tmp_path: Path) -> None:
    given: dict[str, Any] = {"shapes": [[8, 64, 32, 32, 32], [64, 64, 3, 3, 3]], "dtypes": ["float", "float"]}
    made = of(launching("aten::cudnn_convolution", TRANSPOSE, **given))(500_000)
    assert "torch.channels_last_3d" in said(made, tmp_path)["transposes"].recommendation


def test_a_depthwise_convolution_gains_what_it_takes_above_the_roof_of_its_bytes(tmp_path: Path) -> None:
    gain = said(convolved(DEPTHWISE)(), tmp_path)["transposes"].gain
    assert gain is not None
    assert gain.us == pytest.approx(400 - 2 * 64 * 128 * 56 * 56 * 2 / (3350e3 * 0.88 * 0.55), rel=0.05)


def test_a_pause_at_the_end_of_each_step_counts_in_the_last_step_too(tmp_path: Path) -> None:
    gain = said(of(paused)(5_000_000), tmp_path)["gaps"].gain
    assert gain is not None
    assert gain.us == pytest.approx(5_000, rel=0.02)


def test_beside_group_normalisation_channels_last_promises_nothing(tmp_path: Path) -> None:
    one = said(convolved(DEPTHWISE, beside="aten::native_group_norm")(), tmp_path)["transposes"]
    assert (one.severity, one.gain) == ("hint", None)
    assert "measure it" in one.recommendation


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("optimizer-single", "opt-foreach"),  # it launches most of the kernels
        ("sync-item", "sync"),  # a CUDA graph cannot contain it
        ("launch-eager", "launch-bound"),
    ],
)
def test_the_cause_comes_before_the_launches_that_it_explains(name: str, first: str) -> None:
    told = opening.open_trace(Path(__file__).parent / "recorded" / f"{name}.json.gz").document.advice
    assert [one.rule for one in told][: 1 + (first != "launch-bound")] == list(dict.fromkeys([first, "launch-bound"]))


NORM, SUMMED = "vectorized_layer_norm_kernel<float, float>", "reduce_kernel<512, 1, ReduceOp<float>>"
COPY, FILL = ("Memcpy DtoD (Device -> Device)", 200, 26, "gpu_memcpy"), ("Memset (Device)", 1, 0, "gpu_memset")
# A step's kernels between products (name, µs, elements as a power of 2), and µs that fusing them saves.
CHAINS: dict[str, tuple[list[tuple[Any, ...]], int]] = {
    "three of one size": ([(ADD, 200, 26)] * 3, 400),
    "begun and ended by a normalisation": ([(NORM, 190, 26), (ADD, 200, 26), (ADD, 200, 26), (NORM, 190, 26)], 580),
    "a sum inside: it is read once more": ([(ADD, 200, 26), (SUMMED, 80, 26), (ADD, 200, 26)], 200),
    "a sum at the end": ([(ADD, 200, 26), (ADD, 200, 26), (SUMMED, 80, 26)], 280),
    "a fill that a sum needs": ([(ADD, 200, 26), FILL, (ADD, 200, 26)], 200),
    "a copy on the GPU": ([(ADD, 200, 26), COPY, (ADD, 200, 26)], 400),
    "another size is another loop": ([(ADD, 200, 26), (ADD, 90, 25), (ADD, 200, 26), (ADD, 90, 25)], 290),
    "strided: slower than its bytes": ([(ADD, 600, 24)] * 2, 1_132),
}


@pytest.mark.parametrize("what", CHAINS)
def test_a_fused_chain_takes_as_long_as_its_longest_kernel_and_its_sums(what: str, tmp_path: Path) -> None:
    kernels, saved = CHAINS[what]

    def work(p: Program, _: int) -> None:
        for name, us, elements, *kind in kernels:
            kernel = Kernel(name, us * 1_000, kind=kind[0] if kind else "kernel")
            p.op("aten::add", kernel, shapes=[[2**elements]], dtypes=["float"])

    one = said(of(work)(0), tmp_path)
    gain = one.get("compile", one.get("elementwise"))
    assert gain is not None
    assert gain.gain is not None
    assert gain.gain.us == pytest.approx(saved, rel=0.05)


def test_every_rule_has_its_programs() -> None:
    assert set(CASES) | {"straggler", "machine"} == set(rules())


def test_nothing_is_said_of_a_good_program(tmp_path: Path) -> None:
    assert said(good(), tmp_path) == {}


def test_order_is_by_gain_then_by_severity(tmp_path: Path) -> None:
    found = low_util().opened(tmp_path).document.advice
    gains = [one.gain.us if one.gain else -1.0 for one in found]
    assert gains == sorted(gains, reverse=True)
    rest = [one.severity for one in found if one.gain is None]
    assert rest == sorted(rest, key=["problem", "hint", "missing"].index)


def test_rules_that_estimate_nothing_have_no_gain(tmp_path: Path) -> None:
    without = [rule for rule in CASES if not rules()[rule].estimate]
    assert without
    for rule in without:
        about, _ = CASES[rule]
        assert said(about(), tmp_path)[rule].gain is None, rule


# ---------------------------------------------------------------- gains of programs whose truth is known


@pytest.mark.parametrize(
    ("rule", "within"),
    [("sync", 0.1), ("h2d-exposed", 0.1), ("zero-grad", 0.1), ("dataloader", 0.1), ("workers0", 0.1), ("alloc", 0.1)],
)
def test_gain_is_what_the_change_gives(rule: str, within: float, tmp_path: Path) -> None:
    """The program with the fault less the same without: here every time is known, and the profiler costs nothing."""
    pairs = {
        "sync": (reading_back(True), reading_back(False)),
        "h2d-exposed": (copies(PINNED, False), copies(PINNED, False, stream=20)),
        "zero-grad": (zeroing(False), zeroing(True)),
        "dataloader": (loading(LOADER, 3_000_000), loading(LOADER, 200_000)),
        "workers0": (loading(LOADER0, 3_000_000), loading(LOADER, 200_000)),
        "alloc": (allocating(True), allocating(False)),
    }
    about, changed = (made() for made in pairs[rule])
    gain = next(one.gain for one in about.opened(tmp_path, timed=True).document.advice if one.rule == rule)
    assert gain is not None
    assert (gain.least_us, gain.most_us) == (None, None)
    assert gain.us == pytest.approx((about.step_ns - changed.step_ns) / 1e3, rel=within, abs=30)


def test_memory_that_grows_inside_a_step_tells_of_calls_that_are_not_written_down(tmp_path: Path) -> None:
    about, changed = growing(True), growing(False)
    found = next(one for one in about.opened(tmp_path, timed=True).document.advice if one.rule == "alloc")
    assert found.gain is not None
    assert found.figures["count"] == pytest.approx(2 * 3 / 4)  # of four steps the first may fill the cache
    assert "not in the profile" in found.problem
    assert found.gain.us == pytest.approx(2 * 300 * 3 / 4, rel=0.05)
    assert "alloc" not in said(changed, tmp_path)


def test_a_gpu_bound_step_gains_nothing_from_the_cpu(tmp_path: Path) -> None:
    """Fills that the GPU does not wait for: without them the CPU is done sooner, and the step takes as long."""
    p = Program()
    for _ in p.steps(4):
        product(p, ns=1_000_000)
        with p.range("Optimizer.zero_grad#SGD.zero_grad"):
            p.op("aten::zero_", Kernel("FillFunctor vectorized_elementwise_kernel", 2_000), cpu=1_000_000, shapes=[[8]])
    gain = said(p, tmp_path)["zero-grad"].gain
    assert gain is not None
    assert gain.us < 10


def test_a_host_bound_step_gains_nothing_from_faster_products(tmp_path: Path) -> None:
    p = Program()
    for _ in p.steps(4):
        for _ in range(10):
            p.op("aten::mm", Kernel(PRODUCT_FP32, 200_000), cpu=900_000, **MM)
    gain = said(p, tmp_path)["tf32"].gain
    assert gain is not None
    assert gain.us < 0.1 * 2_000


def test_a_cut_of_iterations_is_judged_alone(tmp_path: Path) -> None:
    """The fault is in the last two steps; of the first two nothing is said."""
    p = Program()
    for step in p.steps(4):
        product(p)
        if step >= 2:
            p.wait()
            p.now += 1_000_000
    first = {one.rule for one in p.opened(tmp_path, opening.Wish(start=0, stop=1)).document.advice}
    last = {one.rule for one in p.opened(tmp_path, opening.Wish(start=2, stop=3)).document.advice}
    assert "sync" not in first
    assert "sync" in last


def test_an_optimizer_that_ends_behind_its_step_counts_in_each_step(tmp_path: Path) -> None:
    """Recorders that end a step in a hook of the optimizer leave the end of its range to the next step."""
    p = Program()
    for _ in p.steps(5):
        product(p)
        begun = p.now
        for _ in range(150):
            p.op("aten::mul_", Kernel(ADD, 3_000), shapes=[[256, 256], []], dtypes=["float", "Scalar"])
            p.op("aten::addcdiv_", Kernel(ADD, 3_000), shapes=[[256, 256]] * 3, dtypes=["float"] * 3)
        p.trace.annotation("Optimizer.step#Adam.step", begun, p.now - begun + 2_500)
    assert "launches 300 kernels for 150 parameters" in said(p, tmp_path)["opt-foreach"].problem


@pytest.mark.parametrize("pause_ms", [3, 20, 400])
def test_one_pause_of_the_program_is_a_pause_and_not_many_launches(pause_ms: int, tmp_path: Path) -> None:
    p = Program()
    for _ in p.steps(6):
        for _ in range(150):
            p.op("aten::relu", Kernel(ADD, 9_000))
        p.now += pause_ms * 1_000_000
    found = said(p, tmp_path)
    assert next(iter(found)) == "gaps"
    assert f"pauses of up to {pause_ms}.0 ms without any op" in found["gaps"].recommendation
    assert found["gaps"].gain is not None
    assert found["gaps"].gain.us == pytest.approx(pause_ms * 1000 * 5 / 6, rel=0.3)  # behind the last no work is seen
    assert "launch-bound" not in found


def test_a_step_that_is_one_launch_of_a_graph_is_not_told_to_become_one(tmp_path: Path) -> None:
    p = Program()
    for _ in p.steps(4):
        one = p.trace.launch(p.now, ADD, p.now + 10_000, 2_000, call="cudaGraphLaunch")
        for node in range(1, 300):
            p.trace.launch(None, ADD, p.now + 10_000 + 3_000 * node, 2_000, correlation=one)
        p.now += 3_000_000
    found = said(p, tmp_path)
    assert "launch-bound" not in found
    assert "gaps" in found


def test_how_far_the_gpu_is_behind_is_no_part_of_a_step(tmp_path: Path) -> None:
    """Five steps of 10 ms of GPU work that the CPU has launched within 1 ms each."""
    p = Program()
    for _ in p.steps(5):
        for _ in range(10):
            p.op("aten::mm", Kernel(PRODUCT_BF16, 1_000_000), cpu=80_000, **HALF)
    step_us = p.opened(tmp_path).document.summary.average_iteration_us
    assert step_us == pytest.approx(10_000, rel=0.01)


def test_without_steps_a_gain_of_the_cpu_is_a_share(tmp_path: Path) -> None:
    """How much the profiler slowed the CPU is not known, so that milliseconds would be those of the profiler."""
    p = Program()
    for _ in range(600):
        p.op("aten::add_", Kernel(ADD, 2_000), cpu=30_000)
    gain = said(p, tmp_path)["launch-bound"].gain
    assert gain is not None
    assert re.fullmatch(r"[4-9]\d % of the time", gain.saves)
    assert "how much the profiler slowed the CPU is not known" in gain.how


# ---------------------------------------------------------------- what is not in the trace


def test_the_slow_rank_is_told_by_who_read_all(tmp_path: Path) -> None:
    opened = good().opened(tmp_path)

    def stragglers(last: tuple[int, float, float] | None) -> list[document.Advice]:
        found = tracesteps.advised(opened.profile, opened.document, last_rank=last)
        return [one for one in found if one.rule == "straggler"]

    (late,) = stragglers((3, 900_000.0, 0.9))
    assert late.problem.startswith("Rank 3 ")
    assert late.gain is not None
    assert late.gain.us == pytest.approx(900)
    for last in (None, (3, 900_000.0, 0.3), (3, 1_000.0, 0.9)):
        assert stragglers(last) == []


def test_findings_of_the_machine_join_in_with_their_own_words(tmp_path: Path) -> None:
    findings = (
        records.Finding(
            "gpu 0",
            "power_limit",
            records.Status.FAIL,
            "700",
            "400",
            "the board is held below its limit",
            "gpuprep tune HOST",
        ),
        records.Finding("gpu 0", "persistence_mode", records.Status.PASS, "on", "on"),
        records.Finding("packages", "power_tools", records.Status.FAIL, "a", "b"),
    )
    given = dataclasses.replace(
        record(), verdict=records.Verdict(records.Status.FAIL, "FAIL", findings), findings=findings
    )
    opened = good().opened(tmp_path)
    found = [one for one in tracesteps.advised(opened.profile, opened.document, record=given) if one.rule == "machine"]
    assert len(found) == 1
    assert "power_limit: expected 700, found 400 (the board is held below its limit)" in found[0].problem
    assert found[0].recommendation == "gpuprep tune HOST"
    assert not [one for one in tracesteps.advised(opened.profile, opened.document) if one.rule == "machine"]


@pytest.mark.parametrize(("flag", "words"), [("", "does not tell"), ("False", "was off"), ("True", None)])
def test_the_notes_beside_a_trace_tell_of_cudnns_benchmark(flag: str, words: str | None, tmp_path: Path) -> None:
    opened = convolutions(False)().opened(tmp_path)
    told = {"torch.backends.cudnn.benchmark": flag} if flag else {}
    noted = dataclasses.replace(opened.document, file=dataclasses.replace(opened.document.file, machine=told))
    found = {one.rule: one.problem for one in tracesteps.advised(opened.profile, noted)}
    assert ("cudnn-bench" in found) == (words is not None)
    assert words is None or words in found["cudnn-bench"]


def test_a_copy_that_waits_in_its_own_call_is_a_wait(tmp_path: Path) -> None:
    """As .item() of older versions: cudaMemcpyAsync waits, and cudaStreamSynchronize behind it returns at once."""
    p = Program()
    for _ in p.steps(3):
        product(p, many=2)
        with p.inside("aten::item"), p.inside("aten::_local_scalar_dense"):
            copy = Kernel("Memcpy DtoH (Device -> Pageable)", 1_500, kind="gpu_memcpy", size=4, blocks=True)
            p.op("aten::copy_", copy)
            p.call("cudaStreamSynchronize", p.now, 2_000)
            p.now += 2_000
        p.now += 300_000
    found = said(p, tmp_path)["sync"]
    assert found.gain is not None
    assert found.gain.us > 200


def test_what_is_missing_of_nsight_systems_is_recorded_otherwise(tmp_path: Path) -> None:
    opened = low_util().opened(tmp_path)
    opened.profile.trace.format = columns.Format.NSYS
    found = {one.rule: one.recommendation for one in tracesteps.advised(opened.profile, opened.document)}
    assert "Nsight Systems" in found["no-stacks"]
    opened = no_steps().opened(tmp_path)
    opened.profile.trace.format = columns.Format.NSYS
    found = {one.rule: one.recommendation for one in tracesteps.advised(opened.profile, opened.document)}
    assert 'range_push(f"iteration {step}")' in found["no-steps"]


def test_a_program_without_pytorch_gets_no_advice_for_pytorch(tmp_path: Path) -> None:
    p = Program()
    for _ in p.steps(4):
        for _ in range(150):
            p.op("solve", Kernel("void solve_kernel<float>(float*)", 2_000), Kernel("add_elementwise", 2_000))
            p.op("copy", Kernel("[CUDA memcpy HtoD (Pageable -> Device)]", 9_000, kind="gpu_memcpy", size=2**20))
            p.wait()
    opened = p.opened(tmp_path)
    opened.profile.trace.format = columns.Format.NSYS
    found = {one.rule: one.recommendation for one in tracesteps.advised(opened.profile, opened.document)}
    assert "cudaStreamBeginCapture" in found["launch-bound"]
    assert "cudaMemcpyAsync" in found["pageable"]
    assert not [text for text in found.values() if re.search(r"torch|\.item\(|num_workers|non_blocking", text)]


# ---------------------------------------------------------------- hostile texts


def test_names_of_the_trace_are_no_markup_and_no_template(tmp_path: Path) -> None:
    """A name with braces, control characters and markup stands in the sentence as text, on one line."""
    p = Program()
    for _ in p.steps(3):
        product(p, **{**ODD})
        with p.range("{0.__class__}\x1b[2J<script>alert(1)</script>" * 50):
            pass
        for _ in range(10):
            p.op("aten::mm", Kernel("nvjet_{figures}\x1b]0;\n<b>" + "x" * 5000, 200_000, grid=(140, 1, 1)), **HALF)
    advice = p.opened(tmp_path).document.advice
    assert "nvjet_{figures}" in " ".join(one.problem for one in advice)
    for one in advice:
        text = one.problem + one.recommendation
        assert len(text) < 3000
        assert "\x1b" not in text
        assert "\n" not in text


def test_figures_are_numbers(tmp_path: Path) -> None:
    for rule, (about, _) in CASES.items():
        advice = about().opened(tmp_path).document.advice
        assert rule in {one.rule for one in advice}
        for one in advice:
            assert all(isinstance(value, float) and value == value for value in one.figures.values()), one.rule


def test_docs_have_every_rule_as_it_is() -> None:
    text = (ROOT / "docs" / "traces.md").read_text(encoding="utf-8")
    for one in rules().values():
        line = f"| `{one.id}` | {one.severity} | {one.condition} | {one.estimate or '–'} |"
        assert line.replace("\n", " ") in text, line


def test_in_no_time_nothing_waits(tmp_path: Path) -> None:
    made = Kineto()
    made.launch(0, "kernel", 0, 0, call_dur=0)
    found = opening.open_trace(made.write(tmp_path / "t.json")).document
    assert found.summary.wall_us == 0
    assert not [one.rule for one in found.advice if one.severity != "missing"]


def test_recommendations_and_the_summary_mean_the_same_time(tmp_path: Path) -> None:
    """The wall clock begins with the first op, not with the step's annotation."""
    made = Kineto()
    made.annotation("ProfilerStep#0", 0, 1_000_000)
    made.op("aten::mm", 400_000, 100_000)
    made.launch(420_000, "kernel", 500_000, 100_000)
    made.op("aten::add", 900_000, 50_000)
    found = opening.open_trace(made.write(tmp_path / "t.json")).document
    advice = {one.rule: one.figures for one in found.advice}
    assert found.summary.wall_us == 550
    assert advice["low-util"]["busy"] == pytest.approx(found.summary.gpu_utilization_percent)
    assert advice["low-util"]["idle_ms"] == pytest.approx(0.45)


def test_without_calls_nothing_is_said_of_the_host(tmp_path: Path) -> None:
    found = said(without("cuda_runtime")(), tmp_path)
    assert found.keys() >= {"low-util", "no-calls"}
    assert not found.keys() & {"gaps", "sync", "launch-bound"}
    assert "so the reason is not known" in found["low-util"].problem
    assert {one.id for one in rules().values() if "no-calls" in one.needs} >= {"gaps", "sync", "launch-bound"}
