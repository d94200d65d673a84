"""Types of ops whose work is a matrix product, a convolution or an attention, and data types: ops.yml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import datafile
from gpuprep.trace.columns import Arguments


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
