"""What work did a kernel or an op do: Tensor Cores, FLOPs, the shape of its matrix product? Data: kernels.yml, ops.yml.

tensor_cores(kernel_name)                        (answer, id of the rule that decided)
eligible(op_type, arguments, capability)         (could it use Tensor Cores, why)
flops(op_type, arguments)                        of one call, as torch's flop counter; None: the profile does not tell
shape(op_type, arguments)                        the product, convolution or attention; None where it is none
with_outputs(ops)                                arguments of a profile's ops, with what its backward ops tell of others
bottom(eligible, parent)                         of eligible ranges in one another the innermost
dtype, multiple, misaligned(op_type, arguments)  data type of the operands; elements of 16 bytes; sizes that do not fit
kernel_alignment(kernel_name)                    elements that the kernel loads at once, where its name tells
"""

from gpuprep.trace.work.flops import Work, dtype, flops, kernel_alignment, misaligned, multiple, shape, with_outputs
from gpuprep.trace.work.kernels import tensor_cores
from gpuprep.trace.work.optypes import NOT_NVIDIA, bottom, eligible

__all__ = [
    "NOT_NVIDIA",
    "Work",
    "bottom",
    "dtype",
    "eligible",
    "flops",
    "kernel_alignment",
    "misaligned",
    "multiple",
    "shape",
    "tensor_cores",
    "with_outputs",
]
