"""Do the rows of an op's matrices begin at multiples of 16 bytes, and what does a kernel's name say of it? Pure.

Since cuBLAS 11 and cuDNN 7.6.3 Tensor Cores are used with any size, and are fastest with rows of 16 bytes (NVIDIA's
"Matrix Multiplication Background User's Guide"); so misaligned does not mean that Tensor Cores are not used.
"""

from __future__ import annotations

import re

from gpuprep.trace.columns import Arguments
from gpuprep.trace.work.flops import shape
from gpuprep.trace.work.optypes import data_type, operand_type

ROW = 16  # bytes
FIRST_LAYER = 4  # channels: cuDNN has kernels of its own for images


def dtype(op_type: str, arguments: Arguments | None) -> str:
    """Of what is multiplied, as gpuprep's catalogue names it: "fp16"; "" where the profile does not tell."""
    known = data_type(operand_type(op_type, arguments))
    return known.short if known else ""


def multiple(op_type: str, arguments: Arguments | None) -> int | None:
    """Elements of 16 bytes: 8 of FP16 and BF16, 4 of FP32 as TF32, 16 of INT8 and FP8. None: the type is not known."""
    known = data_type(operand_type(op_type, arguments))
    return max(1, ROW // known.bytes) if known else None


def misaligned(op_type: str, arguments: Arguments | None) -> tuple[tuple[str, int], ...]:
    """Sizes of rows that are no multiple of 16 bytes: (("k", 4097),). () where all are, or the profile does not tell.

    Only sizes along which elements lie side by side count. Where the profile has no strides, those of a forward pass.
    """
    work, needed = shape(op_type, arguments), multiple(op_type, arguments)
    if work is None or needed is None:
        return ()
    first = work.kind == "convolution" and work.filter[1] <= FIRST_LAYER
    rows = dict.fromkeys(work.rows)  # operands of a product may share theirs
    return tuple((name, size) for name, size in rows if size % needed and not (first and name == "channels in"))


def kernel_alignment(kernel_name: str) -> int | None:
    """Elements that a CUTLASS kernel loads at once, of `_align8` in its name; the least of several. None: none."""
    alignments = re.findall(r"_align[abc]?(\d{1,3})(?!\d)", kernel_name[:2000])
    return min(map(int, alignments)) if alignments else None
