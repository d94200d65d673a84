"""Could an op use Tensor Cores: by its type, its data type and the GPU; of ops in one another the innermost counts."""

from __future__ import annotations

import numpy as np
import pytest

from gpuprep.trace import columns, work
from gpuprep.trace.work import eligible, optypes


def product(name: str) -> columns.Arguments:
    return columns.Arguments(shapes=((8, 8), (8, 8)), dtypes=(name, name))


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


def test_gpus_of_other_vendors() -> None:
    ok, why = eligible("aten::mm", product("c10::Half"), work.NOT_NVIDIA)
    assert not ok
    assert "not of NVIDIA" in why


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
    "name", ["aten::mv", "aten::addmv", "aten::addr", "aten::prelu", "aten::add", "aten::softmax", "", "mm"]
)
def test_other_ops_are_not_eligible(name: str) -> None:
    assert eligible(name, product("c10::Half"), "8.0")[0] is False


@pytest.mark.parametrize(
    "name",
    [
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
    ],
)  # fmt: skip
def test_the_list(name: str) -> None:
    assert eligible(name, product("c10::Half"), "8.0")[0]


@pytest.mark.parametrize("name", ["AddBackward0", "MmBackward0x", "SummBackward0", "autograd::engine::x: MmBackward0"])
def test_other_nodes_of_autograd_are_not(name: str) -> None:
    assert not optypes.is_backward(name)


def test_every_op_of_the_data_is_read() -> None:
    for name, entry in optypes.data()["ops"].items():
        known = optypes.op_type(name)
        assert known is not None
        assert known.kind == entry.get("kind", "")
        assert all(isinstance(at, int) for at in known.at.values())


def test_the_innermost_counts() -> None:
    """linear ► addmm; conv2d ► convolution ► _convolution ► cudnn_convolution; a matmul beside them."""
    #                  0     1     2      3     4     5     6     7
    marks = np.array([True, True, False, True, True, True, True, True])
    parent = np.array([-1, 0, -1, 2, 3, 4, 5, 2])
    assert work.bottom(marks, parent).tolist() == [False, True, False, False, False, False, True, True]


def test_an_op_that_is_not_eligible_stands_between() -> None:
    assert work.bottom(np.array([True, False, True]), np.array([-1, 0, 1])).tolist() == [False, False, True]


def test_bottom_of_nothing() -> None:
    assert work.bottom(np.zeros(0, bool), np.zeros(0, np.int32)).tolist() == []
    assert work.bottom(np.array([False, False]), np.array([-1, 0])).tolist() == [False, False]


def test_bottom_of_many_is_quick_and_right() -> None:
    """Against the plain definition: no eligible range has this one around it."""
    generator = np.random.default_rng(7)
    count = 2000
    parent = np.array([-1] + [int(generator.integers(-1, at)) for at in range(1, count)])
    marks = generator.random(count) < 0.3
    wanted = marks.copy()
    for at in np.flatnonzero(marks):
        around = parent[at]
        while around >= 0:
            wanted[around] = False
            around = parent[around]
    assert (work.bottom(marks, parent) == wanted).all()


def test_a_circle_of_parents_ends() -> None:
    assert work.bottom(np.array([True, True]), np.array([1, 0])).tolist() == [False, False]
