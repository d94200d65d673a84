"""Rules about matrix products and convolutions: their data type, their sizes, and whether they use Tensor Cores."""

from __future__ import annotations

import math
import re
import statistics
from dataclasses import dataclass

import numpy as np

from gpuprep.performance.operations import Operation
from gpuprep.performance.roofline import INPUT_BYTES
from gpuprep.trace.advice import kinds, physics
from gpuprep.trace.advice.evidence import Evidence
from gpuprep.trace.advice.gains import durations, gain, replay
from gpuprep.trace.advice.replay import Change, Times
from gpuprep.trace.advice.rulebook import Found, quoted
from gpuprep.trace.columns import Arguments
from gpuprep.trace.document import Gain
from gpuprep.trace.profile import Direction, UsesTensorCores
from gpuprep.trace.work.flops import shape

LEAST_SHARE = 0.05  # of the GPU time
KNOWN = 0.5  # share of a rule's time that must have known shapes for an estimate
HALF_TYPES = {"fp16", "bf16", "fp8", "int8"}
# Under autocast these run in FP32 (PyTorch's documentation of torch.amp, "CUDA Ops that can autocast to float32").
STAYS_FP32 = re.compile(
    r"layer_norm|group_norm|softmax|nll_loss|cross_entropy|mse_loss|_norm$|::(exp|log|pow|sum|cumsum|prod)$"
)
CASTS_AROUND = re.compile(r"^aten::(native_layer_norm|native_group_norm|_log_softmax|_softmax)(_backward(_data)?)?$")
CONVOLVES = re.compile(r"conv")
# In 16 bits and NCHW PyTorch takes its own kernel in place of cuDNN's, and that was slower than cuDNN's is in FP32:
# 15.2 ms a step instead of 12.1 (ResNet-50 on an H100, tests/traces/recorded).
CUDNN_BATCH_NORM, BATCH_NORM_IN_16_BITS = re.compile(r"cudnn_batch_norm"), 1.25
FLOOR_NS = 2_000.0  # no kernel is shorter
CAST_BYTES = 6  # an element is read in FP32 and written in 16 bits, or the other way


@dataclass(frozen=True)
class Product:
    """A row of Profile.ops that multiplies, and what it took in the chosen iterations."""

    op: int
    type: str
    arguments: Arguments
    dtype: str  # "fp32": of its inputs
    ns: int
    uses: frozenset[UsesTensorCores]
    operation: Operation | None  # None: an attention, or its shape is not known


def products(e: Evidence) -> list[Product]:
    """With GPU time, the longest first."""
    eligible = []
    for op in np.flatnonzero(e.op_time > 0).tolist():
        row = e.profile.ops[op]
        arguments = e.arguments(op)
        dtype = physics.dtype_of(row.type, arguments)
        if not row.eligible or not dtype:
            continue
        known = physics.operation(row.type, arguments)
        uses = frozenset(e.op_kernel_uses.get(op, ()))
        ns = int(e.op_time[op])
        eligible.append(Product(op, row.type, arguments, dtype, ns, uses, known[0] if known else None))
    return sorted(eligible, key=lambda product: -product.ns)


def _products(e: Evidence) -> list[Product]:
    if e.products is None:
        e.products = products(e)
    return e.products  # type: ignore[return-value]


def _scaled(e: Evidence, ratios: dict[int, float]) -> Times:
    """New durations of all GPU events: those of these ops' products take so much of their time."""
    new = durations(e)
    factor = np.ones(len(e.profile.ops))
    for op, ratio in ratios.items():
        factor[op] = ratio
    rows = e.kernel_rows(kinds.PRODUCT) | e.kernel_rows(kinds.SPLIT)
    # Where cuDNN convolves through Fourier's or Winograd's transform, its other kernels are part of the product, too.
    others = ~e.kernel_rows(kinds.TRANSPOSE) & ~e.kernel_rows(kinds.MEMORY_LIMITED)
    convolves = np.array([CONVOLVES.search(row.type) is not None for row in e.profile.ops], bool)
    is_product = np.zeros(len(new), bool)
    if len(rows):
        kernel = e.profile.gpu.kernel
        is_product = rows[kernel] | (others[kernel] & convolves[e.profile.gpu.op])
    scaled = np.maximum(new * factor[e.profile.gpu.op], np.minimum(new, FLOOR_NS))
    return np.where(is_product, scaled, new)


def _mostly_known(rows: list[Product], ratios: dict[int, float]) -> bool:
    """Whether the shapes of most of this work are known: the oldest traces do not have those of convolutions."""
    return sum(row.ns for row in rows if row.op in ratios) > KNOWN * sum(row.ns for row in rows)


def _now(product: Product) -> str:
    """The type that it calculates in today: FP32 inputs on Tensor Cores are TF32."""
    return "tf32" if product.dtype == "fp32" and UsesTensorCores.YES in product.uses else product.dtype


def tf32(e: Evidence) -> Found | None:
    if e.capability is None or e.capability < (8, 0):
        return None
    rows = [
        product
        for product in _products(e)
        if product.dtype == "fp32" and UsesTensorCores.YES not in product.uses and product.operation
    ]
    ns = sum(row.ns for row in rows)
    if ns < LEAST_SHARE * e.gpu_total:
        return None
    figures = {"ops": len(rows), "ms": e.a_step(ns), "percent": 100 * ns / e.gpu_total}
    made = None
    if e.board is not None:
        ratios = {}
        for row in rows:
            assert row.operation is not None
            ratio = physics.ratio(e.board, row.operation, "fp32", "tf32")
            if ratio is not None:
                ratios[row.op] = min(1.0, ratio)
        how = "each product takes its time × predicted TF32 / predicted FP32 of its shape, limited by memory"
        made = gain(e, Change(gpu_ns=_scaled(e, ratios)), how) if ratios else None
    return Found(figures, ops=[row.op for row in rows], gain=made)


def amp(e: Evidence) -> Found | None:
    if e.capability is None or e.capability < (7, 0):
        return None
    rows = [product for product in _products(e) if product.dtype == "fp32"]
    ns = sum(row.ns for row in rows)
    if ns < LEAST_SHARE * e.gpu_total:
        return None
    target = "bf16" if e.capability >= (8, 0) else "fp16"
    figures = {"ops": len(rows), "ms": e.a_step(ns), "percent": 100 * ns / e.gpu_total}
    texts = {
        "dtype": "torch.bfloat16" if target == "bf16" else "torch.float16 and torch.amp.GradScaler",
    }
    # On Tensor Cores already: what is left is half the bytes and twice the rate.
    severity = "problem" if any(UsesTensorCores.YES not in row.uses for row in rows) else "hint"
    made = _amp_gain(e, rows, target) if e.board is not None else None
    return Found(figures, texts, ops=[row.op for row in rows], gain=made, severity=severity)


def _amp_gain(e: Evidence, rows: list[Product], target: str) -> Gain | None:
    assert e.board is not None
    ratios, new_casts, cast_bytes = {}, 0, 0.0
    calls = e.op_calls
    for product in rows:
        row = e.profile.ops[product.op]
        many = max(1, int(calls[product.op]))
        if product.operation is not None:
            ratio = physics.ratio(e.board, product.operation, _now(product), target)
            if ratio is not None:
                ratios[product.op] = min(1.0, ratio)
        else:
            ratio = _attention_ratio(e, product, target, many)
            if ratio is not None:
                ratios[product.op] = ratio
        if row.direction != Direction.BACKWARD and product.operation is not None:
            # The weight is the smaller matrix; its gradient is cast back.
            sizes = [
                physics.numel(size) for size in product.arguments.shapes if isinstance(size, tuple) and len(size) >= 2
            ]
            if sizes:
                cast_bytes += 2 * CAST_BYTES * min(sizes) * many
                new_casts += 2 * many
    if not _mostly_known(rows, ratios):
        return None
    for op in np.flatnonzero(e.op_time > 0).tolist():
        if CASTS_AROUND.match(e.profile.ops[op].type):
            many = max(1, int(calls[op]))
            cast_bytes += CAST_BYTES * physics.largest(e.arguments(op)) * many
            new_casts += many
    new = _halved(e, _scaled(e, ratios))
    cast_ns = physics.memory_ns(e.board, cast_bytes) or 0.0
    # The casts run before the products: their time is spread over these.
    mask = np.isin(e.profile.gpu.op, list(ratios))
    total = new[e.gpu[mask[e.gpu]]].sum()
    if total > 0:
        new = np.where(mask, new * (1 + cast_ns / total), new)
    added = new_casts / e.steps * replay(e).usual_op_ns
    how = (
        f"each product takes its time × predicted {target.upper()} / predicted present type of its shape; elementwise "
        f"work in 16 bits takes half; {new_casts / e.steps:.0f} casts a step are added"
    )
    return gain(e, Change(gpu_ns=new, added_ns=added), how)


def _attention_ratio(e: Evidence, product: Product, target: str, calls: int) -> float | None:
    work = shape(product.type, product.arguments)
    if work is None or work.kind != "attention" or e.board is None:
        return None
    moved = 2.0 * physics.input_elements(product.arguments, 3)
    then = physics.attention_ns(e.board, work.flops, target, moved)
    return None if then is None else min(1.0, then * calls / max(1, product.ns))


def _halved(e: Evidence, new: Times) -> Times:
    """Kernels that memory limits move half the bytes, where autocast leaves them in 16 bits."""
    limited = e.kernel_rows(kinds.MEMORY_LIMITED) & ~e.kernel_rows(kinds.PRODUCT) & ~e.kernel_rows(kinds.MULTI_TENSOR)
    normed = any("layer_norm" in row.type or "embedding" in row.type for row in e.profile.ops)
    factor = np.ones(len(e.profile.ops))
    for index, row in enumerate(e.profile.ops):
        dtypes = e.arguments(index).dtypes
        if "float" not in dtypes or STAYS_FP32.search(row.type) or not row.type.startswith("aten::"):
            continue
        if CUDNN_BATCH_NORM.search(row.type) and not physics.channels_last(e.arguments(index)):
            factor[index] = BATCH_NORM_IN_16_BITS
            continue
        # Beside FP32 layers the sums stay in FP32: 4 + 2 bytes are read and 4 written, of 12.
        factor[index] = 10 / 12 if normed and re.match(r"aten::add_?$", row.type) else 0.5
    optimizer = e.optimizer_gpu
    applies = limited[e.profile.gpu.kernel] & ~optimizer if len(limited) else np.zeros(len(new), bool)
    halved = np.maximum(new * factor[e.profile.gpu.op], np.minimum(new, FLOOR_NS))
    return np.where(applies, halved, new)


def eligible_not_used(e: Evidence) -> Found | None:
    rows = [
        product
        for product in _products(e)
        if product.dtype in HALF_TYPES and product.uses == {UsesTensorCores.NO} and not e.in_nchw[product.op]
    ]  # the rule transposes reports convolutions in NCHW
    ns = sum(row.ns for row in rows)
    if not rows or ns < 0.02 * e.gpu_total:
        return None
    ratios = {}
    for row in rows:
        then = _predicted_ns(e, row, row.operation, row.dtype) if row.operation is not None else None
        if then is not None:
            ratios[row.op] = min(1.0, then / max(1, row.ns))
    how = "each product takes the predicted time of its shape on Tensor Cores"
    made = gain(e, Change(gpu_ns=_scaled(e, ratios)), how) if _mostly_known(rows, ratios) else None
    return Found({"ops": len(rows), "ms": e.a_step(ns)}, ops=[row.op for row in rows], gain=made)


def bad_shape(e: Evidence) -> Found | None:
    named = e.kernel_rows(kinds.SMALL_ALIGN)
    crooked_ops = set(np.unique(e.profile.gpu.op[e.gpu[e.of_kernels(named)]]).tolist()) if named.any() else set()
    rows, fitting = [], []
    for product in _products(e):
        if product.operation is None:
            continue
        dtype = _now(product)
        if dtype not in HALF_TYPES | {"tf32"}:
            continue
        multiple = max(1, 16 // INPUT_BYTES[dtype])
        sizes = [size for size in product.operation.aligned or () if size > 1 and size % multiple]
        # there a row has the length of a picture
        if sizes or (product.op in crooked_ops and not e.in_nchw[product.op]):
            rows.append((product, dtype, multiple, sizes))
        elif predicted := _predicted_ns(e, product, product.operation, dtype):
            fitting.append(product.ns / predicted)
    ns = sum(crooked_product.ns for crooked_product, *_ in rows)
    if not rows or ns < 0.02 * e.gpu_total:
        return None
    pads: dict[int, int] = {}  # of the longest product first
    for _, _, multiple, sizes in rows:
        pads.update({size: math.ceil(size / multiple) * multiple for size in sizes if size not in pads})
    usual = statistics.median(fitting) if fitting else None
    ratios = {}
    for product, dtype, _, _ in rows:
        assert product.operation is not None
        then = _predicted_ns(e, product, physics.padded(product.operation, dtype), dtype)
        # The prediction for the misaligned shape itself is not used if other products can be compared: the model
        # assumes rows of length k. PyTorch's rows may be as long as the misaligned size, and then only slow kernels
        # fit.
        now = product.ns / usual if usual else _predicted_ns(e, product, product.operation, dtype)
        if now and then is not None:
            ratios[product.op] = min(1.0, then / now)
    worst = rows[0][0]
    texts = {
        "worst": quoted(f"{worst.type} {worst.operation.words if worst.operation else ''}"),
        "pad": ", ".join(f"{size} to {up}" for size, up in list(pads.items())[:4]) or "see the rows",
    }
    figures = {"ops": len(rows), "ms": e.a_step(ns), "multiple": rows[0][2]}
    how = (
        f"each product takes the predicted time of the padded shape × {usual:.2f}, as others do"
        if usual
        else "each product takes its time × predicted time of the padded shape / predicted time of the present one"
    )
    made = gain(e, Change(gpu_ns=_scaled(e, ratios)), how) if ratios else None
    return Found(figures, texts, ops=[crooked_product.op for crooked_product, *_ in rows], gain=made)


def _predicted_ns(e: Evidence, product: Product, operation: Operation, dtype: str) -> float | None:
    """What all calls of a product would take with `operation` in its place; None without a board or a prediction."""
    known = physics.operation(product.type, product.arguments)
    prediction = physics.predicted(e.board, operation, dtype) if e.board is not None else None
    if known is None or prediction is None:
        return None
    return prediction.seconds * 1e9 * known[1] * max(1, int(e.op_calls[product.op]))


def wave_tail(e: Evidence) -> Found | None:
    sms = next((device.sms for device in e.trace.devices if device.index == e.main_device), -1)
    if sms <= 0 or not len(e.gpu):
        return None
    product = e.of_kernels(e.kernel_rows(kinds.PRODUCT)) & e.kernels
    rows = e.gpu[product]
    grid = e.trace.gpu.grid[rows].astype(np.int64)
    blocks = np.prod(np.maximum(grid, 0), axis=1)
    ns = (e.trace.gpu.end - e.trace.gpu.start)[rows]
    waves = blocks / sms
    empty = 1 - waves / np.maximum(1, np.ceil(waves))
    wanting = (blocks > 0) & (waves <= 4) & (empty > 0.25) & (ns > FLOOR_NS * 2)
    if not wanting.any() or ns[wanting].sum() < LEAST_SHARE * e.gpu_total:
        return None
    lost = empty[wanting] * ns[wanting]
    worst = rows[wanting][int(np.argmax(lost))]
    kernels = np.unique(e.profile.gpu.kernel[rows[wanting]])
    new = durations(e)
    new[rows[wanting]] -= lost
    made = gain(e, Change(gpu_ns=new), "each of these kernels takes its time × the share of its waves that is full")
    figures = {
        "kernels": len(kernels), "ms": e.a_step(int(ns[wanting].sum())), "sms": sms,
        "blocks": int(blocks[wanting][int(np.argmax(lost))]),
    }  # fmt: skip
    texts = {"worst": quoted(e.names[e.trace.gpu.name[worst]])}
    return Found(figures, texts, kernels=kernels.tolist(), gain=made)
