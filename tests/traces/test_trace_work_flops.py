"""FLOPs and shapes of ops: against torch's flop counter, against products counted by hand, of damaged inputs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from gpuprep.trace import columns
from gpuprep.trace.work import dtype, flops, kernel_alignment, misaligned, multiple, shape

TORCH = json.loads((Path(__file__).parent / "torch_flops.json").read_text(encoding="utf-8"))["ops"]


def arguments(entry: dict[str, Any]) -> columns.Arguments:
    return columns.Arguments(
        shapes=tuple(map(tuple, entry["dims"])),
        dtypes=tuple(entry["types"]),
        strides=tuple(map(tuple, entry["strides"])),
        concrete=tuple(entry["concrete"]),
    )


def groups_of_weight_gradient(entry: dict[str, Any]) -> int:
    """Groups of a convolution_backward whose weight gradient is asked for, else 1."""
    if entry["op"] != "aten::convolution_backward" or not json.loads(entry["concrete"][10].lower())[1]:
        return 1
    return int(entry["concrete"][9])


@pytest.mark.parametrize("entry", TORCH, ids=lambda one: f"{one['op']}-{one['dims'][:3]}")
def test_as_torch_counts(entry: dict[str, Any]) -> None:
    found, groups = flops(entry["op"], arguments(entry)), groups_of_weight_gradient(entry)
    assert found is not None
    if groups == 1:
        assert found == entry["flops"]
        return
    # torch multiplies the weight gradient by the groups: each filter sees the channels of its own group alone.
    convolutions = sum(json.loads(entry["concrete"][10].lower())[:2])
    one = found / convolutions
    assert entry["flops"] == one * (convolutions - 1 + groups)


def test_torch_was_asked_of_every_kind() -> None:
    ops = [entry["op"] for entry in TORCH]
    assert {op for op in ops if ops.count(op) >= 3} >= {
        "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution", "aten::convolution_backward",
        "aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_flash_attention_backward",
        "aten::_scaled_dot_product_efficient_attention",
    }  # fmt: skip
    assert {"aten::_scaled_mm", "aten::cudnn_convolution"} <= set(ops)
    assert any(groups_of_weight_gradient(entry) > 1 for entry in TORCH)


def conv(image: tuple[int, ...], weight: tuple[int, ...], *concrete: str) -> columns.Arguments:
    return columns.Arguments(
        shapes=(image, weight, ()), dtypes=("float", "float", ""), concrete=("", "", "", *concrete)
    )


BY_HAND = [
    # op, arguments, FLOPs as a sum that can be counted on paper
    ("aten::mm", columns.Arguments(shapes=((2, 3), (3, 4))), 2 * 2 * 3 * 4),
    ("aten::addmm", columns.Arguments(shapes=((4,), (2, 3), (3, 4), (), ())), 2 * 2 * 3 * 4),
    ("aten::bmm", columns.Arguments(shapes=((5, 2, 3), (5, 3, 4))), 5 * 2 * 2 * 3 * 4),
    ("aten::baddbmm", columns.Arguments(shapes=((5, 2, 4), (5, 2, 3), (5, 3, 4))), 5 * 2 * 2 * 3 * 4),
    ("aten::matmul", columns.Arguments(shapes=((7, 1, 2, 3), (5, 3, 4))), 7 * 5 * 2 * 2 * 3 * 4),
    ("aten::matmul", columns.Arguments(shapes=((3,), (3,))), 2 * 3),
    ("aten::linear", columns.Arguments(shapes=((7, 11, 3), (4, 3), (4,))), 2 * 77 * 3 * 4),
    ("aten::_grouped_mm", columns.Arguments(shapes=((10, 3), (5, 3, 4), (5,))), 2 * 10 * 3 * 4),
    ("aten::_grouped_mm", columns.Arguments(shapes=((5, 2, 3), (5, 3, 4))), 5 * 2 * 2 * 3 * 4),
    ("aten::_grouped_mm", columns.Arguments(shapes=((2, 30), (30, 4), (5,))), 2 * 2 * 30 * 4),
    # 8x8 image, 3x3 filter, no padding: 6x6 points
    ("aten::conv2d", conv((1, 2, 8, 8), (5, 2, 3, 3), "[1, 1]", "[0, 0]", "[1, 1]", "1"), 2 * 36 * 5 * 2 * 9),
    # without a batch, stride 2, padding 1: (8 + 2 - 3) // 2 + 1 = 4
    ("aten::conv2d", conv((2, 8, 8), (5, 2, 3, 3), "[2, 2]", "[1, 1]", "[1, 1]", "1"), 2 * 16 * 5 * 2 * 9),
    # dilation 2: the filter reaches over 5 points; 8 - 5 + 1 = 4
    ("aten::conv2d", conv((1, 2, 8, 8), (5, 2, 3, 3), "[1, 1]", "[0, 0]", "[2, 2]", "1"), 2 * 16 * 5 * 2 * 9),
    ("aten::conv1d", conv((3, 4, 10), (6, 2, 3), "[1]", "[0]", "[1]", "2"), 2 * 3 * 8 * 6 * 2 * 3),
    # one number stands for both dimensions
    ("aten::conv2d", conv((1, 2, 8, 8), (5, 2, 3, 3), "1", "0", "1", "1"), 2 * 36 * 5 * 2 * 9),
    ("aten::conv_transpose2d", conv((1, 2, 4, 4), (2, 5, 3, 3)), 2 * 16 * 2 * 5 * 9),
    ("aten::_flash_attention_forward", columns.Arguments(shapes=((2, 7, 3, 16), (2, 9, 3, 16), (2, 9, 3, 16), (), ())),
     4 * 2 * 3 * 7 * 9 * 16),
    ("aten::scaled_dot_product_attention", columns.Arguments(shapes=((2, 3, 7, 16), (2, 3, 9, 16), (2, 3, 9, 8))),
     2 * 2 * 3 * 7 * 9 * (16 + 8)),
    ("aten::_flash_attention_backward", columns.Arguments(shapes=((2, 7, 3, 16),) * 4), 2.5 * 4 * 2 * 3 * 7 * 7 * 16),
]  # fmt: skip


@pytest.mark.parametrize(("op", "given", "wanted"), BY_HAND)
def test_by_hand(op: str, given: columns.Arguments, wanted: float) -> None:
    assert flops(op, given) == wanted


NOT_TOLD = [
    ("aten::add", columns.Arguments(shapes=((2, 3), (2, 3)))),
    ("aten::mm", None),
    ("aten::mm", columns.Arguments()),
    ("aten::mm", columns.Arguments(shapes=((2, 3), (4, 5)))),
    ("aten::mm", columns.Arguments(shapes=((2, -3), (-3, 5)))),
    ("aten::mm", columns.Arguments(shapes=((2, 2**62), (2**62, 5)))),
    ("aten::mm", columns.Arguments(shapes=((True, True), (True, True)))),
    ("aten::mm", columns.Arguments(shapes=(((2, 3), (3, 4)), ()))),
    ("aten::mm", columns.Arguments(shapes=("23", "34"))),
    ("aten::mm", columns.Arguments(shapes=((1,) * 1000, (1,) * 1000))),
    # oldest traces have no stride and padding
    ("aten::conv2d", columns.Arguments(shapes=((32, 1024, 14, 14), (2048, 1024, 1, 1), (), (), (), ()))),
    ("aten::conv2d", conv((1, 2, 8, 8), (5, 2, 3, 3), "[1, 1]", "", "[1, 1]", "1")),  # padding="same": said by a child
    ("aten::conv2d", conv((1, 2, 8, 8), (5, 2, 3, 3), "[0, 0]", "[0, 0]", "[1, 1]", "1")),
    ("aten::conv2d", conv((1, 2, 2, 2), (5, 2, 3, 3), "[1, 1]", "[0, 0]", "[1, 1]", "1")),
    ("aten::convolution_backward", columns.Arguments(shapes=((1, 2, 8, 8),) * 3)),
    ("aten::lstm", columns.Arguments(shapes=((1, 2, 8),) * 3)),
    ("aten::_flash_attention_forward", columns.Arguments(shapes=((70, 3, 16),) * 3 + ((5,), (5,)))),
    ("aten::_efficient_attention_forward", columns.Arguments(shapes=((1, 70, 3, 16),) * 3 + ((), (5,), (5,)))),
    ("aten::scaled_dot_product_attention", columns.Arguments(shapes=((2, 3, 7, 16), (2, 0, 9, 16), (2, 0, 9, 16)))),
]  # fmt: skip


@pytest.mark.parametrize(("op", "given"), NOT_TOLD)
def test_what_the_inputs_do_not_tell_is_none(op: str, given: columns.Arguments | None) -> None:
    assert flops(op, given) is None


def test_shapes_that_are_lists_work_as_well() -> None:
    assert flops("aten::mm", columns.Arguments(shapes=([2, 3], [3, 4]))) == 48.0


def test_words_of_shapes() -> None:
    entry = next(one for one in TORCH if one["op"] == "aten::convolution" and one["dims"][1] == [32, 1, 3, 3])
    work = shape("aten::convolution", arguments(entry))
    assert work is not None
    assert work.words == "batch=4 points=28x28 channels=32 to 32 filter=3x3 groups=32"
    assert (work.m, work.n, work.k) == (4 * 28 * 28, 32, 9)
    product = shape("aten::mm", columns.Arguments(shapes=((4096, 4097), (4097, 512))))
    assert product is not None
    assert product.words == "m=4096 n=512 k=4097"


def test_m_n_k_and_batch_make_the_flops() -> None:
    for entry in TORCH:
        work = shape(entry["op"], arguments(entry))
        assert work is not None
        counted = 2.0 * work.m * work.n * work.k * work.batch * work.times
        assert math.isclose(counted, work.flops, rel_tol=1e-12), entry


def mm(
    a: tuple[int, int], b: tuple[int, int], *, strides: tuple[Any, ...] = (), name: str = "c10::Half"
) -> columns.Arguments:
    return columns.Arguments(shapes=(a, b), dtypes=(name, name), strides=strides)


ALIGNMENT = [
    ("all multiples of 8", mm((64, 128), (128, 256)), ()),
    ("k", mm((64, 100), (100, 256)), (("k", 100),)),
    ("n, as the rows of the result", mm((64, 128), (128, 250)), (("n", 250),)),
    ("tokens may be any number", mm((77, 128), (128, 256), strides=((128, 1), (1, 128))), ()),
    # gradient of a weight: a is transposed, so its rows lie along m, and k, the tokens, may be any number
    ("m where a is transposed", mm((30, 77), (77, 64), strides=((1, 30), (64, 1))), (("m", 30),)),
    ("bytes, not elements: 4 of FP32 are enough", mm((64, 100), (100, 252), name="float"), ()),
    ("FP32, too", mm((64, 102), (102, 252), name="float"), (("k", 102),)),
    ("INT8 needs 16", mm((64, 24), (24, 32), name="signed char"), (("k", 24),)),
    ("no data type", columns.Arguments(shapes=((64, 100), (100, 256))), ()),
]  # fmt: skip


@pytest.mark.parametrize(("_why", "given", "wanted"), ALIGNMENT)
def test_misaligned(_why: str, given: columns.Arguments, wanted: tuple[tuple[str, int], ...]) -> None:
    assert misaligned("aten::mm", given) == wanted


def test_alignment_of_convolutions() -> None:
    def given(channels: int, out: int) -> columns.Arguments:
        found = conv((8, channels, 32, 32), (out, channels, 3, 3), "[1, 1]", "[1, 1]", "[1, 1]", "1")
        return columns.Arguments(found.shapes, ("c10::Half", "c10::Half", ""), (), found.concrete)

    assert misaligned("aten::conv2d", given(64, 64)) == ()
    assert misaligned("aten::conv2d", given(33, 64)) == (("channels in", 33),)
    assert misaligned("aten::conv2d", given(64, 33)) == (("channels out", 33),)
    assert misaligned("aten::conv2d", given(3, 64)) == ()  # the first layer


def test_data_types() -> None:
    given = mm((2, 3), (3, 4), name="c10::BFloat16")
    assert dtype("aten::mm", given) == "bf16"
    assert multiple("aten::mm", given) == 8
    # the bias of addmm does not decide
    mixed = columns.Arguments(
        shapes=((4,), (2, 3), (3, 4)), dtypes=("float", "c10::Half", "c10::Half", "Scalar", "Scalar")
    )
    assert dtype("aten::addmm", mixed) == "fp16"
    assert dtype("aten::mm", columns.Arguments()) == ""
    assert multiple("aten::mm", None) is None


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(P)", 1),
        ("cutlass_80_tensorop_f16_s16816gemm_relu_f16_64x64_64x6_tn_align8", 8),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_ffma_aligna4_alignc4_execute_kernel__5x_cublas", 4),
        ("cutlass3x_sm90_tensorop_x_align16_warpspecialized", 16),
        ("volta_sgemm_128x64_nn", None),
        ("notaligned_64", None),
    ],
)
def test_alignment_in_names(name: str, wanted: int | None) -> None:
    assert kernel_alignment(name) == wanted
