"""What work was it: Tensor Cores by a kernel's name and speed, FLOPs and shapes of ops, what could use Tensor Cores.

Against torch's flop counter, a list of kernels that was labelled without the rules, products counted by hand, and
names and inputs that nobody would write.
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import amount
import numpy as np
import pytest
import tracesteps
from handmade import Op, launched, step, trace
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from gpuprep import catalogue
from gpuprep.catalogue import boards
from gpuprep.trace import columns, document, opening

HERE = Path(__file__).parent
TORCH = json.loads((HERE / "torch_flops.json").read_text(encoding="utf-8"))["ops"]
H100 = boards()["h100_sxm5_80"]
A100 = boards()["a100_sxm4_40"]
DEVICES = (columns.Device(0, "NVIDIA H100 80GB HBM3", "9.0", 132, 85_000_000_000),)
DEVICES_A100 = (columns.Device(0, "NVIDIA A100-SXM4-40GB", "8.0", 108, 42_000_000_000),)
NVJET = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT"


def product(name: str) -> columns.Arguments:
    return columns.Arguments(shapes=((8, 8), (8, 8)), dtypes=(name, name))


def eligible(op: str, given: columns.Arguments | None, capability: str) -> tuple[bool, str]:
    row = tracesteps.op_row(op, given, capability)
    return row.eligible, row.why


# ---------------------------------------------------------------- what could use Tensor Cores


@pytest.mark.parametrize(
    ("name", "lowest"),
    [
        ("c10::Half", "7.0"),
        ("signed char", "7.5"),
        ("c10::BFloat16", "8.0"),
        ("double", "8.0"),
        ("c10::complex<float>", "8.0"),
        ("c10::Float8_e4m3fn", "8.9"),
    ],
)
def test_data_types_by_compute_capability(name: str, lowest: str) -> None:
    every = ["7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"]
    found = [eligible("aten::mm", product(name), capability)[0] for capability in every]
    assert found == [at >= every.index(lowest) for at in range(len(every))]


def test_fp32() -> None:
    assert eligible("aten::mm", product("float"), "8.0") == (True, "fp32, as TF32")
    ok, why = eligible("aten::mm", product("float"), "7.0")
    assert ok
    assert "mixed precision" in why


@pytest.mark.parametrize("capability", ["3.7", "5.2", "6.0", "6.1"])
def test_gpus_without_tensor_cores(capability: str) -> None:
    assert eligible("aten::mm", product("c10::Half"), capability)[0] is False
    assert eligible("aten::mm", None, capability)[0] is False


@pytest.mark.parametrize("note", ["amd_gpu", "xpu", "other_accelerator", ""])
def test_gpus_of_other_vendors(note: str) -> None:
    row = tracesteps.op_row("aten::mm", product("c10::Half"), note=note)
    assert row.eligible == (not note)
    assert ("not of NVIDIA" in row.why) == bool(note)


def test_whole_numbers_are_not_eligible() -> None:
    assert eligible("aten::mm", product("long"), "9.0") == (False, "Tensor Cores do not take long")


def test_what_the_profile_does_not_tell_is_said() -> None:
    assert eligible("aten::mm", None, "8.0") == (True, "the profile does not tell the data type")
    assert eligible("aten::mm", columns.Arguments(dtypes=("", "Scalar")), "8.0")[0]
    ok, why = eligible("aten::mm", product("c10::Half"), "")
    assert ok
    assert "compute capability" in why
    assert eligible("aten::mm", product("c10::Half"), "nonsense") == (ok, why)


@pytest.mark.parametrize(
    "name",
    [
        "aten::mv", "aten::addmv", "aten::addr", "aten::prelu", "aten::add", "aten::softmax", "", "mm",
        # other nodes of autograd
        "AddBackward0", "MmBackward0x", "SummBackward0", "autograd::engine::x: MmBackward0",
    ],
)  # fmt: skip
def test_other_ops_are_not_eligible(name: str) -> None:
    assert eligible(name, product("c10::Half"), "8.0")[0] is False


ELIGIBLE = [
    "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::addbmm", "aten::matmul", "aten::linear",
    "aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::convolution", "aten::_convolution",
    "aten::conv_transpose1d", "aten::conv_transpose2d", "aten::conv_transpose3d", "aten::cudnn_convolution",
    "aten::cudnn_convolution_transpose", "aten::convolution_backward", "aten::lstm", "aten::gru", "aten::lstm_cell",
    "aten::gru_cell", "aten::rnn_tanh_cell", "aten::rnn_relu_cell", "aten::linalg_multi_dot",
    "aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_efficient_attention", "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_flash_attention_backward", "aten::_scaled_dot_product_efficient_attention_backward",
    "aten::_scaled_dot_product_cudnn_attention_backward", "aten::_scaled_mm", "aten::_grouped_mm",
    "MmBackward0", "AddmmBackward0", "AddmmBackward", "BmmBackward0", "ConvolutionBackward0",
    "CudnnConvolutionBackward", "ScaledDotProductFlashAttentionBackward0",
]  # fmt: skip


def test_the_list_of_eligible_ops() -> None:
    assert [name for name in ELIGIBLE if not eligible(name, product("c10::Half"), "8.0")[0]] == []


def shaped(number: int) -> columns.Arguments:
    """Each op with another shape, so that each is a row of its own."""
    return columns.Arguments(shapes=((8, 8), (8, 8 + number)), dtypes=("c10::Half", "c10::Half"))


def test_of_eligible_ops_in_one_another_the_innermost_counts() -> None:
    """An op that is not eligible may stand between."""
    # name, end: conv2d around convolution, around what is no product, around cudnn_convolution; beside them a matmul
    nested = [("aten::linear", 90), ("aten::addmm", 20), ("aten::conv2d", 80), ("aten::convolution", 70),
              ("aten::copy_", 60), ("aten::cudnn_convolution", 50)]  # fmt: skip
    starts = [0, 10, 30, 31, 32, 33]
    rows = [
        Op(name, start, end, arguments=shaped(place))
        for place, ((name, end), start) in enumerate(zip(nested, starts, strict=True))
    ]
    made = tracesteps.linked(
        trace(*rows, Op("aten::matmul", 82, 85, arguments=shaped(9)), *launched("k", 34, 99, 100, 1))
    )
    assert {row.type for row in made.ops if row.eligible} == {"aten::addmm", "aten::cudnn_convolution", "aten::matmul"}
    assert "an op inside of it does the work" in {row.why for row in made.ops}


def test_the_innermost_of_many_against_the_plain_definition() -> None:
    generator = np.random.default_rng(7)
    rows: list[Op] = []
    around: list[int] = []

    def add(start: int, end: int, parent: int) -> None:
        place = len(rows)
        name = "aten::mm" if generator.random() < 0.3 else "aten::add"
        rows.append(Op(name, start, end, arguments=shaped(place)))
        around.append(parent)
        while end - start > 4:
            middle = int(generator.integers(start + 3, end))
            add(start + 1, middle, place)
            start = middle

    add(0, 1000, -1)
    assert 100 < len(rows) < 1000
    wanted = {place for place, row in enumerate(rows) if row.name == "aten::mm"}
    for place in sorted(wanted):
        up = around[place]
        while up >= 0:
            wanted.discard(up)
            up = around[up]
    made = tracesteps.linked(trace(*rows, devices=DEVICES))
    found = {row.shapes for row in made.ops if row.eligible}
    assert found == {f"[[8,8], [8,{8 + place}]]" for place in wanted}


# ---------------------------------------------------------------- FLOPs


def flops(op: str, given: columns.Arguments | None) -> float | None:
    found = tracesteps.op_row(op, given).flops
    return None if math.isnan(found) else found


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


@pytest.mark.parametrize("op", sorted({entry["op"] for entry in TORCH}))
def test_as_torch_counts(op: str) -> None:
    for entry in TORCH:
        if entry["op"] != op:
            continue
        found, groups = flops(op, arguments(entry)), groups_of_weight_gradient(entry)
        assert found is not None, entry
        if groups == 1:
            assert found == entry["flops"], entry
            continue
        # torch multiplies the weight gradient by the groups: each filter sees the channels of its own group alone.
        convolutions = sum(json.loads(entry["concrete"][10].lower())[:2])
        one = found / convolutions
        assert entry["flops"] == one * (convolutions - 1 + groups), entry


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


# ---------------------------------------------------------------- shapes, data types and alignment, as roofs say them


def roof(
    op: str, given: columns.Arguments, kernel: str = NVJET, ns: int = 50_000_000_000, board: catalogue.Board = H100
) -> document.RoofLine | None:
    rows = [step(0, 0, ns + 100), Op(op, 1, 20, arguments=given), *launched(kernel, 2, 30, 30 + ns, 1)]
    lines = tracesteps.roofed(tracesteps.linked(trace(*rows, devices=DEVICES)), board).roofs
    return lines[0] if lines else None


def test_words_of_shapes() -> None:
    entry = next(one for one in TORCH if one["op"] == "aten::convolution" and one["dims"][1] == [32, 1, 3, 3])
    found = roof("aten::convolution", arguments(entry))
    assert found is not None
    assert found.shape == "batch=4 points=28x28 channels=32 to 32 filter=3x3 groups=32"
    found = roof("aten::mm", columns.Arguments(((4096, 4097), (4097, 512)), ("c10::Half",) * 2))
    assert found is not None
    assert found.shape == "m=4096 n=512 k=4097"


def mm(
    a: tuple[int, int], b: tuple[int, int], *, strides: tuple[Any, ...] = (), name: str = "c10::Half"
) -> columns.Arguments:
    """Two products in one call."""
    more = tuple((rows * columns_, *stride) for (rows, columns_), stride in zip((a, b), strides, strict=False))
    return columns.Arguments(shapes=((2, *a), (2, *b)), dtypes=(name, name), strides=more)


ALIGNMENT = [
    ("all multiples of 8", mm((64, 128), (128, 256)), ""),
    ("k", mm((64, 100), (100, 256)), "k 100 is no multiple"),
    ("n, as the rows of the result", mm((64, 128), (128, 250)), "n 250 is no multiple"),
    ("tokens may be any number", mm((77, 128), (128, 256), strides=((128, 1), (1, 128))), ""),
    # gradient of a weight: a is transposed, so its rows lie along m, and k, the tokens, may be any number
    ("m where a is transposed", mm((30, 77), (77, 64), strides=((1, 30), (64, 1))), "m 30 is no multiple"),
    ("bytes, not elements: 4 of FP32 are enough", mm((64, 100), (100, 252), name="float"), ""),
    ("FP32, too", mm((64, 102), (102, 252), name="float"), "k 102 is no multiple"),
    ("INT8 needs 16", mm((64, 24), (24, 32), name="signed char"), "k 24 is no multiple"),
]  # fmt: skip


@pytest.mark.parametrize(("_why", "given", "said"), ALIGNMENT)
def test_misaligned(_why: str, given: columns.Arguments, said: str) -> None:
    found = roof("aten::bmm", given)
    assert found is not None
    assert (said or "no multiple") in found.words if said else "no multiple" not in found.words, found.words


def test_alignment_of_convolutions() -> None:
    def said(channels: int, out: int) -> str:
        given = conv((8, channels, 32, 32), (out, channels, 3, 3), "[1, 1]", "[1, 1]", "[1, 1]", "1")
        found = roof(
            "aten::conv2d", columns.Arguments(given.shapes, ("c10::Half", "c10::Half", ""), (), given.concrete)
        )
        assert found is not None
        return found.words

    assert "no multiple" not in said(64, 64)
    assert "channels in 33 is no multiple of 16 bytes" in said(33, 64)
    assert "channels out 33 is no multiple of 16 bytes" in said(64, 33)
    assert "no multiple" not in said(3, 64)  # the first layer


def test_data_types() -> None:
    found = roof("aten::mm", columns.Arguments(((2, 3), (3, 4)), ("c10::BFloat16",) * 2))
    assert found is not None
    assert found.dtype == "bf16"
    # the bias of addmm does not decide
    mixed = columns.Arguments(((4,), (2, 3), (3, 4)), ("float", "c10::Half", "c10::Half", "Scalar", "Scalar"))
    found = roof("aten::addmm", mixed)
    assert found is not None
    assert found.dtype == "fp16"
    assert roof("aten::mm", columns.Arguments(((2, 3), (3, 4)))) is None


# ---------------------------------------------------------------- Tensor Cores by name


def labelled() -> list[tuple[str, str]]:
    lines = (HERE / "kernel_names.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return [(label, name) for label, _family, name in rows]


def test_no_error_on_the_labelled_list() -> None:
    names = labelled()
    assert len({name for _, name in names}) == len(names) >= 700
    told = tracesteps.kernel_lines([name for _, name in names])
    assert [(label, told[name]) for label, name in names if told[name].tensor_cores != label] == []
    assert [one for one in told.values() if bool(one.rule) == (one.tensor_cores == "unknown")] == []


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("triton_tem_fused_mm_1", "unknown"),
        ("", "unknown"),
        # Arguments say much that is not the kernel's own: gemv's have GEMM in their types.
        ("void at::native::f<cutlass_80_tensorop_s1688gemm>(int)", "no"),
        ("void at::native::copy(nvjet_hsh_1)", "no"),
        # cut off, mangled, or of nothing but signs
        ("void at::native::(anonymous namespace)::f<int, (g)0>(h<3>)", "no"),
        ("void at::native::<unnamed>::f<(int)128>(T3)", "no"),
        ("void f<a, b<c", "unknown"),
        ("_ZN7cutlass7Kernel2I47cutlass_80_tensorop_f16_s16816gemm_relu_f16_x_yEEvNT_6ParamsE", "yes"),
        ("<<<>>>", "unknown"),
        ("_Z", "unknown"),
    ],
)
def test_a_name(name: str, answer: str) -> None:
    assert tracesteps.kernel_lines([name])[name].tensor_cores == answer


@pytest.mark.parametrize(
    "name",
    [
        "<" * 300_000,
        "a::" * 100_000,
        "void cutlass::Kernel<" * 20_000,
        "_ZN" + "1a" * 50_000,
        "sm80_xmma" * 30_000,
        "flash_fmha" * 30_000,
        "fmha_cutlassf_f16_" * 15_000,
        "f<" + "mmavolta" * 30_000 + ">",
        "f<" + "attentionkernel<" * 20_000,
        "triton_" * 40_000,
    ],
    ids=lambda name: name[:12],
)
def test_hostile_names_take_no_time(name: str) -> None:
    started = time.process_time()
    tracesteps.kernel_lines([name])
    assert time.process_time() - started < 20  # of this process: a tenth of a second where nothing is quadratic


# ---------------------------------------------------------------- Tensor Cores by speed

BF16 = columns.Arguments(((4096, 4096), (4096, 4096)), ("c10::BFloat16",) * 2)


def kernels(
    given: columns.Arguments | None, *launches: tuple[str, int], devices: Any = DEVICES
) -> dict[str, tuple[str, str]]:
    """Of the kernels of one aten::mm by name: do they use Tensor Cores, and by which rule."""
    rows: list[Any] = [step(0, 0, 10_000_000_000), Op("aten::mm", 1, 50, arguments=given)]
    ready = 100
    for place, (name, ns) in enumerate(launches):
        rows += launched(name, 2 + place, ready, ready + ns, place + 1)
        ready += ns
    lines = tracesteps.summed(trace(*rows, devices=devices)).kernels
    return {line.name: (line.tensor_cores, line.rule) for line in lines}


def test_a_quick_kernel_is_proven() -> None:
    """137 GFLOP in 250 µs are 550 TFLOPS; CUDA cores of an H100 reach 134 in BF16."""
    assert kernels(BF16, ("triton_tem_fused_mm_0", 250_000)) == {"triton_tem_fused_mm_0": ("yes", "speed")}


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
    found = kernels(given, ("triton_tem_fused_mm_0", ns), devices=devices)
    assert found == {"triton_tem_fused_mm_0": ("unknown", "")}


def test_of_several_kernels_one_may_be_proven() -> None:
    """The longest of those that are unknown, and none beside one that is known to use Tensor Cores."""
    assert kernels(BF16, ("nvjet_hsh_1", 200_000), ("my_gemm", 50_000))["my_gemm"][0] == "unknown"
    found = kernels(BF16, ("my_gemm", 200_000), ("your_gemm", 50_000))
    assert (found["my_gemm"][0], found["your_gemm"][0]) == ("yes", "unknown")


def test_a_kernel_that_is_known_is_not_asked() -> None:
    name = "void at::native::f<int>(int)"
    assert kernels(BF16, (name, 250_000))[name] == ("no", "torch-native")


@pytest.mark.parametrize(
    ("devices", "dtype", "peak"),
    [
        # NVIDIA's datasheets, CUDA cores alone: A100 19.5 in FP32, 78 in FP16, 9.7 in FP64; H100 SXM 67, 134, 34.
        (DEVICES_A100, "float", 19.5), (DEVICES_A100, "c10::Half", 78.0), (DEVICES_A100, "double", 9.7),
        (DEVICES, "float", 67.0), (DEVICES, "c10::Half", 134.0), (DEVICES, "double", 34.0),
    ],
)  # fmt: skip
def test_what_cuda_cores_can_do_proves_nothing(devices: Any, dtype: str, peak: float) -> None:
    given = columns.Arguments(BF16.shapes, (dtype, dtype))
    told = [
        kernels(given, ("my_gemm", round(2 * 4096**3 / (share * peak) / 1e3)), devices=devices)["my_gemm"][0]
        for share in (0.5, 1.0, 1.07)
    ]
    assert told == ["unknown", "unknown", "yes"]


FAST = ("attention-", "gpt-bf16", "gpt-tf32", "shapes-")  # large products, which CUDA cores could not do so fast
H100_CUDA_CORES = {"bf16": 134, "fp16": 134, "tf32": 67, "fp32": 67}


@pytest.mark.parametrize(
    "path", amount.third(sorted((HERE / "recorded").glob("*.json.gz"))), ids=lambda path: path.name
)
def test_no_name_is_refuted_by_its_speed(path: Path) -> None:
    """Physics beside names, on a real GPU: what is faster than CUDA cores can be is no op whose kernels all say no."""
    found = opening.open_trace(path).document
    ops = {op.id: op for op in found.ops}
    # Winograd's algorithm calculates less than is counted: a convolution proves nothing.
    quick = [
        line for line in found.roofs if "filter=" not in line.shape and line.tflops > 1.03 * H100_CUDA_CORES[line.dtype]
    ]
    assert [line for line in quick if not ops[line.op].using_tensor_cores] == []
    assert quick or not path.name.startswith(FAST)


# ---------------------------------------------------------------- names and inputs that nobody would write

PIECES = [
    "void ", "cutlass::Kernel<", "cutlass::device_kernel<", "at::native::", "(anonymous namespace)", "<unnamed>", "<",
    ">", "(", ")", "{", "[", ",", " ", "_ZN", "17", "I", "E", "flash_fwd_kernel", "sgemm", "_tensorop_", "nvjet_", "\n",
    "\x00", "é",
]  # fmt: skip
NAMES = some.one_of(some.text(max_size=200), some.lists(some.sampled_from(PIECES), max_size=60).map("".join))
OPS = some.sampled_from([*ELIGIBLE, "aten::_flash_attention_forward", "aten::add", ""])
SIZES = some.one_of(some.integers(-2, 9), some.sampled_from([64, 4097, 2**31, 2**40, 2**62]))
TENSORS = some.lists(SIZES, max_size=6).map(tuple)
INPUTS = some.one_of(TENSORS, some.lists(TENSORS, max_size=3).map(tuple))
TYPES = some.sampled_from(
    ["float", "c10::Half", "c10::BFloat16", "double", "Scalar", "", "long", "c10::Float8_e4m3fn", "x"]
)
TEXTS = some.one_of(
    some.sampled_from(["", "[1, 1]", "[0, 0]", "True", "False", "[True, False, True]", "1"]), some.text(max_size=20)
)
ARGUMENTS = some.builds(
    columns.Arguments,
    some.lists(INPUTS, max_size=12).map(tuple),
    some.lists(TYPES, max_size=12).map(tuple),
    some.lists(INPUTS, max_size=12).map(tuple),
    some.lists(TEXTS, max_size=12).map(tuple),
)


@given(some.lists(NAMES, min_size=1, max_size=8))
@settings(max_examples=amount.examples(200), deadline=None)
def test_any_names(names: list[str]) -> None:
    for one in tracesteps.kernel_lines(names).values():
        assert one.tensor_cores in ("yes", "no", "unknown")
        assert bool(one.rule) == (one.tensor_cores != "unknown")


@given(OPS, ARGUMENTS, NAMES, some.integers(1, 10**9))
@settings(max_examples=amount.examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_inputs(op: str, given_: columns.Arguments, name: str, ns: int) -> None:
    rows = [step(0, 0, 2 * 10**9), Op(op, 1, 20, arguments=given_), *launched(name, 2, 30, 30 + ns, 1)]
    made = tracesteps.linked(trace(*rows, devices=DEVICES))
    assert all(math.isnan(row.flops) or (math.isfinite(row.flops) and row.flops >= 0) for row in made.ops)
    for found in tracesteps.roofed(made, H100).roofs:
        assert found.better_us is None or 0 < found.better_us < found.gpu_us
        above = found.words.startswith("not possible") or "Winograd or FFT" in found.words
        assert above if found.percent is None else 0 <= found.percent <= 103
