"""Could an op use Tensor Cores: is its work on the list, and do they take its data type on this GPU? Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpuprep.trace.columns import Arguments, Ints
from gpuprep.trace.work.optypes import capability, data_type, is_backward, op_type, operand_type

FIRST = (7, 0)  # compute capability of the first GPUs with Tensor Cores
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
    if has is not None and has < FIRST:
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
        rows = rows[~around[rows]]  # what stands around these is marked already
        around[rows] = True
        rows = np.unique(np.asarray(parent)[rows])
    result: NDArray[np.bool_] = is_eligible & ~around
    return result
