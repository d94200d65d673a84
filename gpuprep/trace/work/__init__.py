"""What work did a kernel or an op do: Tensor Cores, FLOPs, the shape of its matrix product? Data: kernels.yml, ops.yml.

tensor_cores(kernel_name)                        (answer, id of the rule that told)
eligible(op_type, arguments, capability)         (could it use Tensor Cores, why)
flops(op_type, arguments)                        of one call, as torch's flop counter; None: the profile does not tell
shape(op_type, arguments)                        the product, convolution or attention; None where it is none
bottom(eligible, parent)                         of eligible ranges in one another the innermost
"""

from gpuprep.trace.work.eligible import bottom, eligible
from gpuprep.trace.work.flops import flops, shape
from gpuprep.trace.work.kernels import tensor_cores

__all__ = ["bottom", "eligible", "flops", "shape", "tensor_cores"]
