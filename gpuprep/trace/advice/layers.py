"""Rules about how layers are built: layouts, biases, attention, chains of small kernels."""

from __future__ import annotations

import re

import numpy as np

from gpuprep.trace.advice import kinds, physics
from gpuprep.trace.advice.evidence import Evidence, Mask
from gpuprep.trace.advice.gains import all_gpu, calls_in, calls_of, durations, gain, gpu_of_calls
from gpuprep.trace.advice.replay import Change, Times
from gpuprep.trace.advice.rulebook import Found
from gpuprep.trace.columns import GpuKind, Ints
from gpuprep.trace.document import Gain
from gpuprep.trace.profile import Direction
from gpuprep.trace.work.flops import shape
from gpuprep.trace.work.optypes import data_type

CONVOLUTION = re.compile(r"^aten::(conv[123]d|convolution)$")
CONVOLUTION_WORK = re.compile(r"conv")
BATCH_NORM = re.compile(r"^aten::(batch_norm|native_batch_norm|cudnn_batch_norm|_batch_norm_impl_index)$")
COUNTER = re.compile(r"^aten::add_$")
FORWARD_PARENT = re.compile(r"^aten::(_?convolution|conv[123]d)$")
BACKWARD_PARENT = re.compile(r"^(aten::convolution_backward|ConvolutionBackward\d*)$")
SOFTMAX = re.compile(r"^aten::(softmax|_softmax)$")
SOFTMAX_BACKWARD = re.compile(r"^aten::_softmax_backward_data$")
BATCHED_PRODUCT = re.compile(r"^aten::(bmm|baddbmm)$")
SDPA = re.compile(r"scaled_dot_product|flash_attention|efficient_attention")
# These have no kernel for channels_last: they copy to NCHW, and later layers get NCHW, or both layouts. A U-Net with
# them on an H200 took 16.0 ms a step in channels_last, and 12.3 without.
NCHW_ALONE = re.compile(r"(group|instance)_norm")
LAST = "Use {last}: model.to(memory_format=torch.{last}), and the same for the input."
PERHAPS = "Group and instance normalisation work in NCHW alone, so that it may take longer: measure it."
BACKWARD_FLOPS = 2.5  # of the forward pass: the scores again, and four gradients
MUCH = 0.4  # of the kernels' time
LITTLE = 0.02  # of the step
SURE = 0.8  # of a time
# Kernels of torch.compile are launched from Python: one takes 19 to 35 µs of the CPU (launch-compiled and
# elementwise-compiled in tests/traces/recorded), where an elementwise op of PyTorch takes 13 to 15.
FUSED_CALL_NS = 10_000
TRITON = (7, 0)  # compute capability from which on torch.compile makes kernels
NEAR_OPS = 12  # between a softmax and its products stand scaling, masking, dropout and views


def transposes(e: Evidence) -> Found | None:
    """Convolutions in NCHW: what changes the layout around them, and what takes longer without that."""
    rows = e.kernel_rows(kinds.TRANSPOSE)
    mask = e.of_kernels(rows)
    ns = int(e.gpu_dur[mask].sum())
    new, slow, slow_ns, saved_ns = _in_nhwc(e)
    if ns + saved_ns <= 0.02 * e.gpu_total:
        return None
    without = all_gpu(e, mask)
    norms_ns = 0
    if e.board is not None:
        new, norms_ns = _normalised(e, new)
    change = Change(gpu_ns=new, without_gpu=without, without_calls=calls_of(e, without))
    count, percent = int(mask.sum()) / e.steps, 100 * ns / e.gpu_total
    what, how = [], []
    if count:
        share = f"{e.a_step(ns):.2f} ms ({percent:.1f} % of the GPU time)"
        what.append(f"{count:.0f} kernels a step change the layout between NCHW and NHWC: {share}.")
        how.append("without these kernels")
    if slow:
        what.append(f"{len(slow)} convolutions of 16 bits are calculated in NCHW: {e.a_step(slow_ns):.2f} ms a step.")
        how.append(f"{e.a_step(saved_ns):.2f} ms less for convolutions, at the roof of their shape in NHWC")
    if norms_ns:
        less = f"{e.a_step(norms_ns):.2f} ms less for batch normalisation"
        how.append(f"{less}, which then reads channels side by side")
    figures = {"count": count, "ms": e.a_step(ns), "percent": percent, "slow_ms": e.a_step(slow_ns)}
    ops = np.union1d(e.profile.gpu.op[e.gpu[mask]], np.array(slow, np.int32)).tolist()
    volumes = any(isinstance(size, tuple) and len(size) == 5 for op in ops for size in e.arguments(op).shapes)
    todo, kernels = LAST.format(last="channels_last_3d" if volumes else "channels_last"), np.flatnonzero(rows).tolist()
    if any(NCHW_ALONE.search(row.type) and ns > 0 for row, ns in zip(e.profile.ops, e.op_time, strict=True)):
        texts = {"what": " ".join(what), "todo": f"{PERHAPS} {todo}"}
        return Found(figures, texts, ops=ops, kernels=kernels, severity="hint")
    made = gain(e, change, ", and ".join(how))
    return Found(figures, {"what": " ".join(what), "todo": todo}, ops=ops, kernels=kernels, gain=made)


def _in_nhwc(e: Evidence) -> tuple[Times, list[int], int, int]:
    """Convolutions that are calculated in NCHW: (new durations, rows of Profile.ops, ns of their kernels, ns that are
    saved). A convolution that already runs in NHWC between two layout changes takes as long as now."""
    new, slow, slow_ns, saved = durations(e), [], 0.0, 0.0
    of_op, many = e.profile.gpu.op, len(e.profile.ops)

    def time(rows: Mask) -> Times:
        return np.asarray(np.bincount(of_op[e.gpu[rows]], e.gpu_dur[rows], many), float)

    changing, fitting = e.of_kernels(e.kernel_rows(kinds.TRANSPOSE)), e.of_kernels(e.kernel_rows(kinds.NHWC))
    others = e.kernels & ~changing & ~fitting
    changes, stays, now = time(changing), time(fitting & ~changing), time(others)
    factor = np.ones(many)
    for op in np.flatnonzero(e.in_nchw & (now > 0) & ~((changes > 0) & (stays == 0))).tolist():
        kind, arguments = e.profile.ops[op].type, e.arguments(op)
        dtype = physics.dtype_of(kind, arguments)
        once = physics.nhwc_ns(e.board, kind, arguments, dtype) if e.board is not None else None
        if once is None:
            continue
        whole = once * max(1, int(e.op_calls[op]))
        then = max(whole - stays[op], whole / 2) if stays[op] else whole  # backward one of two is calculated in NHWC
        if then < SURE * now[op]:
            slow.append(op)
            slow_ns, saved, factor[op] = slow_ns + now[op], saved + now[op] - then, then / now[op]
    new[e.gpu[others]] *= factor[of_op[e.gpu[others]]]
    return new, slow, int(slow_ns), int(saved)


def _normalised(e: Evidence, new: Times) -> tuple[Times, int]:
    """Batch normalisation in NHWC: (new durations, ns that are saved in the chosen iterations). It reads the input
    twice and writes once, backward it reads twice two tensors and writes one."""
    assert e.board is not None
    saved = 0.0
    rows = e.kernels & e.of_kernels(e.kernel_rows(kinds.NCHW_NORM))
    ops = np.unique(e.profile.gpu.op[e.gpu[rows]])
    calls = e.op_calls
    for op in ops.tolist():
        arguments, row = e.arguments(op), e.profile.ops[op]
        passes = 5 if "backward" in row.type else 3
        size = max((physics.bytes_of(arguments.dtypes, place) for place in range(2)), default=4)
        once = physics.memory_ns(e.board, passes * size * physics.largest(arguments))
        mine = e.gpu[rows & (e.profile.gpu.op[e.gpu] == op)]
        now = float(new[mine].sum())
        if once is None or not now or not physics.largest(arguments):
            continue
        share = min(1.0, once / physics.SUMMING * max(1, int(calls[op])) / now)
        saved += now * (1 - share)
        new[mine] *= share
    return new, int(saved)


def cudnn_bench(e: Evidence) -> Found | None:
    ops = [op for op in np.flatnonzero(e.op_time > 0).tolist() if CONVOLUTION_WORK.search(e.profile.ops[op].type)]
    ns = int(e.op_time[ops].sum())
    if not ops or ns <= 0.1 * e.gpu_total or not e.has_shapes or e.profile.iterations.how == "one":
        return None
    cells = e.profile.op_cells
    chosen = (cells.iteration >= e.first) & (cells.iteration <= e.last) & np.isin(cells.op, ops)
    steps_of = np.bincount(cells.op[chosen], minlength=len(e.profile.ops))[ops]
    if (steps_of < e.steps).any():  # some shapes do not occur in every step
        return None
    flag = e.document.file.machine.get("torch.backends.cudnn.benchmark", "")  # in the notes beside the trace
    if flag == "True":
        return None
    known = "It was off when this was recorded." if flag == "False" else "The profile does not tell whether it was on."
    return Found({"ops": len(ops), "ms": e.a_step(ns)}, {"flag": known}, ops=ops)


def conv_bias_bn(e: Evidence) -> Found | None:
    convolutions = []
    for row in e.outermost(e.ranges(CONVOLUTION, ops_alone=True)).tolist():
        arguments = e.trace.arguments[e.trace.ops.arguments[row]] if e.trace.ops.arguments[row] >= 0 else None
        if arguments is None or len(arguments.shapes) < 3 or not arguments.shapes[2]:
            continue
        behind = e.next_op(row)
        if COUNTER.match(e.name_of(behind)):  # BatchNorm2d's counter of batches
            behind = e.next_op(behind)
        if BATCH_NORM.match(e.name_of(behind)):
            convolutions.append(row)
    if not convolutions:
        return None
    rows = np.array(convolutions)
    without = _bias_work(e)
    change = Change(without_gpu=without, without_calls=calls_of(e, without))
    made = gain(e, change, "without the kernels that add the biases and those that sum their gradients")
    ops = e.profile.ranges.op[rows]
    return Found({"ops": len(np.unique(ops))}, ops=np.unique(ops[ops >= 0]).tolist(), gain=made)


def _bias_work(e: Evidence) -> Mask:
    """Of all GPU events: additions directly under a convolution, and sums directly under its backward pass."""
    ops = e.trace.ops

    def named(rows: Ints, pattern: str | re.Pattern[str]) -> Mask:
        fits = np.append(e.name_ids(re.compile(pattern)), False)
        return np.asarray(fits[np.where(rows >= 0, ops.name[np.where(rows >= 0, rows, 0)], -1)])

    if not len(ops.start):
        return np.zeros(len(e.trace.gpu.start), bool)
    own, above = e.profile.gpu.instance, e.child_of
    forward = named(own, "^aten::add_$") & named(above, FORWARD_PARENT)
    backward = named(own, "^aten::sum$") & named(above, BACKWARD_PARENT)
    return np.asarray(forward | backward)


# ---------------------------------------------------------------- attention


def attention(e: Evidence) -> Found | None:
    if any(SDPA.search(row.type) for row in e.profile.ops):
        return None
    spans = _around(e, e.ranges(SOFTMAX, ops_alone=True), BATCHED_PRODUCT)
    if not spans:
        return None
    ops = e.trace.ops
    back = _around(e, e.ranges(SOFTMAX_BACKWARD, ops_alone=True), BATCHED_PRODUCT, both_sides=2)
    forward_calls, backward_calls = _calls_in(e, spans), _calls_in(e, back)
    forward, backward = gpu_of_calls(e, forward_calls), gpu_of_calls(e, backward_calls)
    lengths = e.trace.gpu.end - e.trace.gpu.start
    ns = int(lengths[forward | backward].sum())
    if ns <= 0.02 * e.gpu_total:
        return None
    flops = moved = 0.0
    dtype = ""
    for first, _ in spans:
        index = ops.arguments[first]
        arguments = e.trace.arguments[index] if index >= 0 else None
        work = shape("aten::bmm", arguments) if arguments else None
        if work is None or arguments is None:
            continue
        flops += 2 * work.flops
        known = data_type(next((dtype for dtype in arguments.dtypes if dtype), ""))
        dtype = known.short if known else dtype
        size = 4 if dtype == "fp32" else 2
        moved += size * work.batch * (2 * work.m * work.k + 2 * work.n * work.k)
    made = None
    if flops and dtype in ("fp16", "bf16") and e.board is not None:
        fused = physics.attention_ns(e.board, flops, dtype, moved)
        if fused is not None:
            new = durations(e)
            for part, factor in ((forward, 1.0), (backward, BACKWARD_FLOPS)):
                whole = new[part].sum()
                if whole > 0:
                    new[part] *= min(1.0, fused * factor / whole)
            how = "one kernel forward and one backward take the operations / what such kernels reach of the roof"
            made = gain(e, Change(gpu_ns=new, without_calls=None), how)
    rows = e.profile.ranges.op[np.array([product for product, _ in spans])]
    return Found(
        {"count": len(spans) / e.steps, "ms": e.a_step(ns)}, ops=np.unique(rows[rows >= 0]).tolist(), gain=made
    )


def _around(e: Evidence, rows: Ints, wanted: re.Pattern[str], both_sides: int = 1) -> list[tuple[int, int]]:
    """(row of the product before, row of the product behind) of each of these ranges, on its thread; of a backward
    pass two products stand on each side."""
    pairs = []
    for thread, mine in e.in_order.items():
        here = rows[e.trace.ops.thread[rows] == thread]
        if not len(here):
            continue
        products = mine[e.name_ids(wanted)[e.trace.ops.name[mine]]]
        starts = e.trace.ops.start[products]
        for row in e.outermost(here).tolist():
            place = int(np.searchsorted(starts, e.trace.ops.start[row]))
            if place < both_sides or place + both_sides > len(products):
                continue
            first, last = int(products[place - both_sides]), int(products[place + both_sides - 1])
            between = np.searchsorted(e.trace.ops.start[mine], [e.trace.ops.end[first], e.trace.ops.start[last]])
            if between[1] - between[0] <= 8 * NEAR_OPS * both_sides:
                pairs.append((first, last))
    return pairs


def _calls_in(e: Evidence, spans: list[tuple[int, int]]) -> Mask:
    """Mask of all calls: calls that start between the start of the first range and the end of the last, on their
    thread.
    """
    ops = e.trace.ops
    first, last = (np.array([span[side] for span in spans], np.int64) for side in (0, 1))
    return calls_in(e, ops.thread[first], ops.start[first], ops.end[last])


# ---------------------------------------------------------------- chains of small kernels


def elementwise(e: Evidence) -> Found | None:
    share = _limited_share(e)
    rows = _limited(e)
    ns = int(e.gpu_dur[e.of_kernels(rows) & e.kernels].sum())
    if share <= MUCH or ns <= LITTLE * e.wall:
        return None
    kernels = np.flatnonzero(rows & (np.bincount(e.profile.gpu.kernel[e.gpu], minlength=len(rows)) > 0))
    return Found(
        {"percent": 100 * share, "ms": e.a_step(ns)}, {"todo": _fusing(e)}, kernels=kernels.tolist(), gain=_fused(e)[1]
    )


def _limited(e: Evidence) -> Mask:
    return e.kernel_rows(kinds.MEMORY_LIMITED) & ~e.kernel_rows(kinds.PRODUCT)


def _limited_share(e: Evidence) -> float:
    whole = int(e.gpu_dur[e.kernels].sum())
    return int(e.gpu_dur[e.of_kernels(_limited(e)) & e.kernels].sum()) / whole if whole else 0.0


def compiled(e: Evidence) -> Found | None:
    if _limited_share(e) > MUCH:
        return None  # the rule elementwise reports it
    graphs = bool((e.trace.gpu.graph_node[e.gpu] > 0).any()) or len(e.calls(kinds.GRAPH_LAUNCH)) > 0
    if graphs or e.kernel_rows(kinds.TRITON).any() or not len(e.gpu):
        return None
    (inside, chain), made = _fused(e)
    ns = int((e.trace.gpu.end - e.trace.gpu.start)[inside].sum())
    if ns <= 0.1 * e.gpu_total or ns <= LITTLE * e.wall:
        return None
    figures = {"chains": len(np.unique(chain)) / e.steps, "kernels": len(inside) / e.steps, "ms": e.a_step(ns)}
    return Found(figures, {"todo": _fusing(e)}, kernels=np.unique(e.profile.gpu.kernel[inside]).tolist(), gain=made)


def _fusing(e: Evidence) -> str:
    if e.capability is not None and e.capability < TRITON:
        return "Use fused layers and optimizers, or a kernel of your own: torch.compile needs compute capability 7.0."
    return "Fuse them: torch.compile(model) makes one kernel of a chain."


def _fused(e: Evidence) -> tuple[tuple[Ints, Ints], Gain | None]:
    """Chains of at least two elementwise kernels on a stream, with the sums and normalisations between them, and the
    gain if each were one kernel. Once for both rules."""
    if e.chains is None:
        inside, chain = _chains(e)
        made = None
        if len(inside):
            new, op = durations(e), e.profile.gpu.op[inside]
            # Kernels of another size are another loop: the cast of a weight is not fused with activations.
            size = np.array([float(physics.largest(e.arguments(row))) for row in range(len(e.profile.ops))])[op]
            loop = np.unique(np.column_stack((chain, size)), axis=0, return_inverse=True)[1].reshape(-1)
            # After a sum the fused kernel reads its input once more.
            again = e.kernel_rows(kinds.SUM)[e.profile.gpu.kernel[inside]] & np.append(np.diff(chain) == 0, False)
            order = np.lexsort((np.where(again, -1.0, new[inside]), loop))
            longest = np.append(np.diff(loop[order]) > 0, True)  # the last of each loop
            without = np.zeros(len(new), bool)
            without[inside[order[~longest & ~again[order]]]] = True
            new[inside] = np.where(again, new[inside], np.minimum(new[inside], _streamed(e)[op]))
            instance = e.profile.gpu.instance[without]
            change = Change(
                gpu_ns=new, without_gpu=without, without_calls=calls_of(e, without),
                cut=e.range_set(instance[instance >= 0]), added_ns=FUSED_CALL_NS * len(np.unique(chain)) / e.steps,
            )  # fmt: skip
            how = "each chain of elementwise kernels becomes one that takes as long as its longest and its sums"
            made = gain(e, change, f"{how}, and {FUSED_CALL_NS / 1e3:.0f} µs more of the CPU to launch it")
        e.chains = ((inside, chain), made)
    return e.chains


def _streamed(e: Evidence) -> Times:
    """Of each row of Profile.ops the time to read two tensors of its size and to write one: what a fused kernel of the
    forward pass takes at most. Strided kernels of PyTorch take two or three times as long. Backward more is read."""
    times, board = np.full(len(e.profile.ops), np.inf), e.board
    for op, row in enumerate(e.profile.ops if board is not None else ()):
        given = e.arguments(op)
        size = max((physics.bytes_of(given.dtypes, place) for place in range(len(given.dtypes))), default=4)
        if board is not None and row.direction != Direction.BACKWARD and (elements := physics.largest(given)):
            times[op] = physics.memory_ns(board, 3 * size * elements) or np.inf
    return times


def _chains(e: Evidence) -> tuple[Ints, Ints]:
    """(GPU events in chains, number of the chain of each), in the order of their streams. A fill, as sums need it, is
    no end of a chain."""
    gpu = e.trace.gpu
    rows = e.kernel_rows(kinds.POINTWISE) & ~e.kernel_rows(kinds.TRITON) & ~e.kernel_rows(kinds.MULTI_TENSOR)
    rows |= e.kernel_rows(kinds.DTOD)
    order = np.lexsort((gpu.start[e.gpu], gpu.stream[e.gpu], gpu.device[e.gpu]))
    order = order[gpu.kind[e.gpu[order]] != GpuKind.MEMSET]
    usable = ~e.optimizer_gpu[e.gpu[order]]
    simple = e.of_kernels(rows)[order] & usable
    member = simple | (e.of_kernels(e.kernel_rows(kinds.REDUCTION))[order] & usable)
    events = e.gpu[order]
    follows = np.zeros(len(order), bool)  # another one before it on the same stream
    follows[1:] = member[:-1] & (np.diff(gpu.stream[events]) == 0) & (np.diff(gpu.device[events]) == 0)
    number: Ints = np.cumsum(member & ~follows)
    count = int(number[-1]) + 1 if len(number) else 1
    some, many = np.bincount(number[simple], minlength=count), np.bincount(number[member], minlength=count)
    member &= (many[number] >= 2) & (some[number] >= 1)
    return events[member], number[member]
