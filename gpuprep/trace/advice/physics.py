"""How long a product, a copy or a fill takes on a board, and how long it would take otherwise.

Products are predicted by gpuprep's own model (performance/predict.py). What is used: ratios of two predictions, because
both have the same error of the model; a prediction times what similar products of the same profile took
longer than predicted; or a prediction that is not slower than what was recorded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gpuprep.catalogue import Board, board, board_like, productmodel
from gpuprep.performance import roofline
from gpuprep.performance.boardsheet import pcie_gb_per_s
from gpuprep.performance.operations import Operation
from gpuprep.performance.predict import Prediction, predict
from gpuprep.records import Missing
from gpuprep.trace.columns import Arguments, Device
from gpuprep.trace.work.flops import Work, shape
from gpuprep.trace.work.optypes import data_type, operand_type

SUSTAINED = 0.88  # of the memory's bandwidth: what a triad reaches on healthy boards (catalogue/bandwidths.yml)
# Of what SUSTAINED leaves: kernels in NHWC that sum over rows, and do not multiply matrices (tests/traces/recorded:
# batch normalisation in a ResNet-50).
SUMMING = 0.55
PINNED = 0.85  # of the PCIe link: what copies from pinned memory reach (checks/judges/bandwidth)
BYTES = {
    "float": 4, "c10::Half": 2, "c10::BFloat16": 2, "double": 8, "int": 4, "long int": 8, "bool": 1, "long": 8,
    "c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1, "unsigned char": 1, "signed char": 1, "short": 2,
}  # fmt: skip
ROW_BYTES = 16


def board_of(device: Device) -> Board | None:
    """The board of a GPU by what the profile says of it; of a name that the catalogue lacks what boards like it share.
    None where there are none."""
    memory = device.memory_bytes / 2**20 if device.memory_bytes > 0 else None
    sms = device.sms if device.sms > 0 else None
    named = board("", name=device.name, memory_mib=memory, sms=sms)
    return named or board_like(device.name, device.compute_capability, memory, sms)


# ---------------------------------------------------------------- products


def dtype_of(op_type: str, arguments: Arguments) -> str:
    """ "fp32", "bf16"; "" if it is not in the profile."""
    known = data_type(operand_type(op_type, arguments))
    return known.short if known else ""


def operation(op_type: str, arguments: Arguments) -> tuple[Operation, float] | None:
    """The product, and how often it is calculated in a call (a convolution's backward: twice)."""
    work = shape(op_type, arguments)
    if work is None or work.kind == "attention" or min(work.m, work.n, work.k, work.batch) < 1:
        return None
    once = 2.0 * work.m * work.n * work.k * work.batch
    times = work.flops / once if once else 1.0
    if work.kind == "convolution":
        return _convolved(work, arguments, "backward" in op_type), times
    aligned = leading(op_type, arguments, work)
    if max(work.m, work.n, work.k) > 2**31 - 1:
        return None
    return Operation("product", work.words, work.m, work.n, work.k, work.batch, aligned=aligned), times


def leading(op_type: str, arguments: Arguments, work: Work) -> tuple[int, ...]:
    """Lengths of the rows of both operands and of the result, in elements, as they lie in memory.

    Without strides every matrix counts as row by row: (m, k), (k, n), and (n, k) of a linear layer's weight.
    """
    lengths = [work.n]
    sizes, strides = arguments.shapes, arguments.strides
    matrices = [place for place, dims in enumerate(sizes) if _is_matrix(dims)]
    for place in matrices[-2:] if op_type != "aten::linear" else matrices[:2]:
        shape = sizes[place]
        step = strides[place] if place < len(strides) and _is_matrix(strides[place]) else None
        if step is not None and len(step) == len(shape) and step[-1] != 1 and step[-2] == 1:
            lengths.append(max(int(step[-1]), 1))
        elif step is not None and len(step) == len(shape) and step[-1] == 1:
            lengths.append(max(int(step[-2]), 1))
        else:
            lengths.append(int(shape[-1]))
    return tuple(lengths)


def channels_last(arguments: Arguments) -> bool | None:
    """Whether a picture, or a filter, lies in memory with its channels together. None: there are no strides.

    A convolution of both layouts is calculated so.
    """
    pairs = [
        (size, step)
        for size, step in zip(arguments.shapes, arguments.strides, strict=False)
        if _is_matrix(size) and len(size) >= 4 and _is_matrix(step) and len(step) == len(size)
    ]
    return any(step[1] == 1 and step[-1] >= size[1] > 1 for size, step in pairs) if pairs else None


def _is_matrix(shape: object) -> bool:
    return isinstance(shape, tuple) and len(shape) >= 2 and all(isinstance(size, int) for size in shape)


def _convolved(work: Work, arguments: Arguments, backward: bool) -> Operation:
    images = [shape for shape in arguments.shapes if _is_matrix(shape) and len(shape) >= 3]
    read, written = sum(map(math.prod, images[:2])) if len(images) >= 2 else None, work.m * work.n
    if backward and len(images) > 2:  # of a gradient, a picture and a filter two are read, and the third is written
        read, written = 2 * sum(map(math.prod, images)) // 3, sum(map(math.prod, images)) // 3
    channels = next((image[1] for image in images if len(image) >= 3), work.n)
    return Operation(
        "convolution", work.words, work.m, work.n, work.k, read=read, written=written, aligned=(int(channels), work.n)
    )


def predicted(board: Board, operation: Operation, dtype: str) -> Prediction | None:
    prediction = predict(board, operation, dtype)
    return None if isinstance(prediction, Missing) else prediction


def ratio(board: Board, operation: Operation, now: str, then: str) -> float | None:
    """Predicted time in data type `then` / that in `now`."""
    before, after = predicted(board, operation, now), predicted(board, operation, then)
    return None if before is None or after is None else after.seconds / before.seconds


def padded(operation: Operation, dtype: str) -> Operation:
    """The product with every size that runs along rows up to the next multiple of 16 bytes."""
    multiple = max(1, ROW_BYTES // roofline.INPUT_BYTES[dtype])
    up = {size: math.ceil(size / multiple) * multiple for size in (operation.m, operation.n, operation.k)}
    crooked = set(operation.aligned or ())
    sizes = [up[size] if size in crooked else size for size in (operation.m, operation.n, operation.k)]
    aligned = tuple(math.ceil(size / multiple) * multiple for size in operation.aligned or ())
    return replace(operation, m=sizes[0], n=sizes[1], k=sizes[2], aligned=aligned)


# Of the roof. PyTorch's scaled_dot_product_attention is FlashAttention-2: 335 of 989 TFLOPS on an H100 SXM (its paper,
# arXiv 2307.08691, section 4.2). On other GPUs it is what the catalogue has.
FLASH2_SHARE = {"hopper": 0.34}


def attention_ns(board: Board, flops: float, dtype: str, moved: float) -> float | None:
    """A fused attention kernel: its operations at the share of the roof that such kernels reach, not below memory."""
    known = productmodel.attention_share(board.model.architecture)
    share = FLASH2_SHARE.get(board.model.architecture, known[0] if known else None)
    top = roofline.roof(board, dtype)
    if share is None or isinstance(top, Missing):
        return None
    memory = memory_ns(board, moved)
    return max(flops / (share * top.tflops * 1e12) * 1e9, memory or 0.0)


def nhwc_ns(board: Board, op_type: str, arguments: Arguments, dtype: str) -> float | None:
    """One call of a convolution whose pictures lie in NHWC. Where each channel has its own filter there is nothing for
    Tensor Cores: memory decides, or CUDA cores do, which multiply 16 bits as FP32."""
    known, work = operation(op_type, arguments), shape(op_type, arguments)
    if known is None or work is None or work.kind != "convolution":
        return None
    if work.filter[1] == 1 < work.image[1]:
        once, cores = memory_ns(board, known[0].bytes_moved(dtype)), roofline.roof(board, "fp32")
        if once is None or isinstance(cores, Missing):
            return None
        return max(once * known[1] / SUMMING, work.flops / cores.tflops / 1e3)
    prediction = predicted(board, known[0], dtype)
    return None if prediction is None else prediction.seconds * 1e9 * known[1]


# ---------------------------------------------------------------- memory


def memory_ns(board: Board, moved: float) -> float | None:
    """A kernel that reads and writes so many bytes of the GPU's memory."""
    gb_per_s = roofline.bandwidth(board)
    return None if isinstance(gb_per_s, Missing) else moved / (gb_per_s * SUSTAINED)


def link_ns(board: Board, moved: float) -> float | None:
    """A copy between pinned memory of the host and the GPU."""
    gb_per_s = pcie_gb_per_s(board)
    return None if gb_per_s is None else moved / (gb_per_s * PINNED)


def numel(sizes: object) -> int:
    if not isinstance(sizes, tuple) or not all(isinstance(size, int) for size in sizes):
        return 0
    return math.prod(sizes)


def input_elements(arguments: Arguments, least_dims: int = 1) -> int:
    return sum(numel(shape) for shape in arguments.shapes if isinstance(shape, tuple) and len(shape) >= least_dims)


def largest(arguments: Arguments) -> int:
    return max((numel(shape) for shape in arguments.shapes), default=0)


def bytes_of(dtypes: Sequence[str], place: int) -> int:
    return BYTES.get(dtypes[place], 4) if place < len(dtypes) else 4
