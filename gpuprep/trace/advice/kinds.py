"""What names of kernels, calls and ranges mean to the rules."""

from __future__ import annotations

import re

_I = re.IGNORECASE

# ---------------------------------------------------------------- kernels
NCCL = re.compile(r"^nccl|ncclKernel|ncclDevKernel", _I)
TRANSPOSE = re.compile(r"nchwToNhwc|nhwcToNchw", _I)  # ..._nhwc2nchw_tn_v1 is a convolution of Volta
NHWC = re.compile(r"nhwc|cutlass__5x_cudnn", _I)  # also of kernels that change the layout
NCHW = re.compile(r"nchw|conv_depthwise", _I)  # PyTorch's own depthwise kernels know NCHW alone
PRODUCT = re.compile(
    r"gemm|gemv|cutlass|nvjet|xmma|scudnn|cudnn.*conv|conv2d|convolve|winograd|wgrad|dgrad|fprop|splitK|_mma|flash_|fmha"
    r"|implicit_con|triton_tem|triton_mm",
    _I,
)
TRITON = re.compile(r"^triton_")
# Kernels that memory limits: pointwise, reductions, normalisation, softmax, copies on the GPU.
POINTWISE = re.compile(
    r"elementwise|vectorized_|unrolled_|multi_tensor_apply|CatArray|triton_(poi|red|per)|fused_dropout|FillFunctor|copy_kernel"
    r"|index_(elementwise|put|select)|where_kernel|masked_",
    _I,
)
MEMORY_LIMITED = re.compile(
    POINTWISE.pattern
    + r"|reduce_kernel|softmax|layer_?norm|GammaBeta|rms_?norm|batch_?norm|bn_(fw|bw)|bnorm|group_?norm|RowwiseMoments"
    + r"|pooling|max_pool|avg_pool|nll_loss|embedding|indexSelect|dropout",
    _I,
)
SPLIT = re.compile(r"splitKreduce|reduceSplit|split_k", _I)
SUM = re.compile(r"reduce_kernel|GammaBeta", _I)  # these sum alone; the others write what they normalise, too
REDUCTION = re.compile(SUM.pattern + r"|softmax|layer_?norm|rms_?norm", _I)
MULTI_TENSOR = re.compile(r"multi_tensor_apply|FusedAdam|FusedSgd|fused_adam|fused_sgd", _I)
SMALL_ALIGN = re.compile(r"_align[12](?![0-9])", _I)
NCHW_NORM = re.compile(
    r"batch_norm_(collect_statistics|transform_input|backward|backward_reduce|backward_elemt)_kernel"
    r"|bn_(fw|bw)_(tr_)?1C11",
    _I,
)
PAGEABLE = re.compile(r"HtoD \(Pageable|DtoH \(Device -> Pageable", _I)
HOST_COPY = re.compile(r"HtoD|DtoH", _I)
HTOD, DTOH, DTOD = re.compile(r"HtoD", _I), re.compile(r"DtoH", _I), re.compile(r"Memcpy DtoD", _I)

# ---------------------------------------------------------------- calls of the CUDA API
LAUNCH = re.compile(r"LaunchKernel|LaunchCooperativeKernel|GraphLaunch")
GRAPH_LAUNCH = re.compile(r"GraphLaunch")
WAITING_CALL = re.compile(
    r"^(cuda(Stream|Device|Event)Synchronize|cudaMemcpy|cu(Stream|Ctx|Event)Synchronize"
    r"|hip(Stream|Device|Event)Synchronize|hipMemcpyWithStream)$"
)
DEVICE_WAIT = re.compile(r"^(cudaDevice|cuCtx|hipDevice)Synchronize$")  # PyTorch itself calls none inside a step
ALLOCATION = re.compile(
    r"^(cudaMalloc|cudaFree|cuMem(Create|Map|Unmap|Release|SetAccess|Alloc|Free).*|hipMalloc|hipFree)$"
)
LOADING_CALL = re.compile(r"^cu(ModuleLoad|LibraryLoad)")

# ---------------------------------------------------------------- ranges of the CPU
DATA_LOADER = re.compile(r"enumerate\(DataLoader\)#.*__next__")
NO_WORKERS = re.compile(r"enumerate\(DataLoader\)#_SingleProcessDataLoaderIter")
OPTIMIZER = re.compile(r"^Optimizer\.step#|^Optimizer\.step$")
ZERO_GRAD = re.compile(r"^Optimizer\.zero_grad")
DATA_PARALLEL = re.compile(r"DataParallel\.forward")
GLOO = re.compile(r"^gloo:")
LAZY = re.compile(r"Lazy Function Loading|module loading|Lazy Loading", _I)
READING_BACK = re.compile(r"^aten::(item|_local_scalar_dense|is_nonzero|nonzero)$")
