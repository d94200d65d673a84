"""Types of ops and data types (ops.yml), whether Tensor Cores take them, and what proves that they did."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuprep.catalogue import Board, datafile
from gpuprep.performance import roofline
from gpuprep.records import Missing
from gpuprep.trace.columns import Arguments, Ints


@dataclass(frozen=True)
class OpType:
    """`at` are positions of inputs by name, as in PyTorch's schema of the op. `kind` "": its FLOPs are not known."""

    kind: str
    at: dict[str, int]


@dataclass(frozen=True)
class DataType:
    short: str  # "fp16", as gpuprep's catalogue has it; "": none of its
    bytes: int  # of an element
    lowest: tuple[int, int]  # compute capability from which on Tensor Cores take it


def op_type(name: str) -> OpType | None:
    """None: the op is none of these."""
    return _types().get(name)


@cache
def _types() -> dict[str, OpType]:
    op_types = {}
    for name, entry in data()["ops"].items():
        positions = {key: value for key, value in entry.items() if key != "kind"}
        op_types[name] = OpType(entry.get("kind", ""), positions)
    return op_types


def is_backward(name: str) -> bool:
    """A node of autograd with the gradient of such an op: AddmmBackward0."""
    return _backward().match(name) is not None


@cache
def _backward() -> re.Pattern[str]:
    return re.compile(data()["backward"])


def data_type(name: str) -> DataType | None:
    """By the name in the profile: "c10::Half". None: no data type of a tensor that Tensor Cores take."""
    return _data_types().get(name)


@cache
def _data_types() -> dict[str, DataType]:
    return {
        name: DataType(entry["short"], entry["bytes"], capability(entry["from"]) or (99, 0))
        for name, entry in data()["types"].items()
    }


def operand_type(name: str, arguments: Arguments | None) -> str:
    """The data type of what is multiplied, as the profile names it; "" where it does not tell.

    Of operands with several types the one of the first that is a tensor's.
    """
    if arguments is None:
        return ""
    known = op_type(name)
    positions = [value for key, value in known.at.items() if key in OPERANDS] if known else []
    dtypes = arguments.dtypes
    asked = [dtypes[at] for at in sorted(positions) if at < len(dtypes)] or list(dtypes)
    return next(
        (dtype for dtype in asked if dtype in data()["types"]), next((dtype for dtype in asked if dtype in TENSORS), "")
    )


OPERANDS = ("a", "b", "input", "weight", "output", "q", "k", "v")
TENSORS = ("int", "long", "short", "bool", "unsigned char")  # tensors of types that no matrix product has


def capability(text: str) -> tuple[int, int] | None:
    """(8, 0) of "8.0"; None where it is not known."""
    match = re.fullmatch(r"(\d{1,3})\.(\d{1,2})", text)
    return (int(match[1]), int(match[2])) if match else None


@cache
def data() -> dict[str, Any]:
    return datafile.read(Path(__file__).parent / "ops.yml")


FIRST_CAPABILITY = (7, 0)  # compute capability of the first GPUs with Tensor Cores
NOT_NVIDIA = "not NVIDIA"  # in place of a compute capability: other vendors number theirs from 9.0 on, too


def eligible(op_type_name: str, arguments: Arguments | None, compute_capability: str) -> tuple[bool, str]:
    """(could use Tensor Cores, why). Whether it launched a kernel is for the caller to see.

    FP32 counts: from 8.0 on as TF32, before through automatic mixed precision. `arguments` None: not recorded.
    """
    if op_type(op_type_name) is None and not is_backward(op_type_name):
        return False, "no matrix product, convolution or attention"
    if compute_capability == NOT_NVIDIA:
        return False, "the GPU has no Tensor Cores: it is not of NVIDIA"
    has = capability(compute_capability)
    if has is not None and has < FIRST_CAPABILITY:
        return False, f"compute capability {compute_capability} has no Tensor Cores"
    if has is None:
        return True, "if the GPU has Tensor Cores: the profile does not tell its compute capability"
    name = operand_type(op_type_name, arguments)
    if not name:
        return True, "the profile does not tell the data type"
    known = data_type(name)
    if known is None:
        return False, f"Tensor Cores do not take {name}"
    if has < known.lowest:
        lowest = ".".join(map(str, known.lowest))
        return False, f"Tensor Cores take {known.short or name} from compute capability {lowest} on"
    if known.short == "fp32":
        return True, "fp32, as TF32" if has >= (8, 0) else "fp32, through automatic mixed precision (FP16)"
    return True, known.short or name


def bottom(is_eligible: NDArray[np.bool_], parent: Ints) -> NDArray[np.bool_]:
    """Of eligible ranges in one another the innermost: aten::linear calls aten::addmm, and the work is one.

    `parent` is the row of the range around each, -1 without; a parent is never its own descendant.
    """
    around = np.zeros(len(is_eligible), dtype=np.bool_)
    rows = np.unique(np.asarray(parent)[is_eligible])
    while (rows := rows[rows >= 0]).size:
        rows = rows[~around[rows]]  # the ranges around these are marked already
        around[rows] = True
        rows = np.unique(np.asarray(parent)[rows])
    result: NDArray[np.bool_] = is_eligible & ~around
    return result


SPEED = "speed"  # the rule that decided, beside those of kernels.yml
ABOVE = 1.03  # of the peak: clocks and times are not exact

# Rates of the catalogue for CUDA cores, and how many times FP32's they are at most where the catalogue has none: packed
# FP16 and BF16 four times (A100), dot products of four bytes four times. FP8 is converted before it is multiplied.
CUDA_CORES = {
    "fp64": ("fp64", 1),
    "fp32": ("fp32", 1),
    "fp16": ("fp16", 4),
    "bf16": ("fp16", 4),
    "int8": ("int8", 4),
    "fp8": ("fp16", 4),
}


def cuda_core_tflops(board: Board, dtype: str) -> float | None:
    """The most that CUDA cores calculate in a data type, at the boost clock; None where the catalogue does not tell."""
    rates = board.model.fma_per_clock_per_sm
    unit, times = CUDA_CORES.get(dtype, ("", 0))
    plain = rates.get("fp32")
    rate = rates.get(unit) or (plain * times if plain and times else None)
    if not rate or board.sms is None or board.boost_mhz is None:
        return None
    return board.sms * rate * 2 * board.boost_mhz / 1e6


def proves(board: Board, dtype: str, tflops: float) -> bool:
    """False if the speed is above the Tensor Cores' peak, too: then a figure is wrong and proves nothing."""
    most, roof = cuda_core_tflops(board, dtype), roofline.roof(board, "tf32" if dtype == "fp32" else dtype)
    if most is None or isinstance(roof, Missing) or not roof.unit.startswith("tensor_"):
        return False
    return ABOVE * most < tflops <= ABOVE * roof.tflops
