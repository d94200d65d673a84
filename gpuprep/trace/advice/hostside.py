"""Rules about a GPU that waits: for data, for launches, for a CPU that waits itself."""

from __future__ import annotations

import math
import re

import numpy as np

from gpuprep.trace.advice import intervals, kinds, physics
from gpuprep.trace.advice.evidence import Evidence, Mask
from gpuprep.trace.advice.gains import (
    all_gpu,
    calls_between,
    calls_of,
    durations,
    gain,
    gpu_of_calls,
    has_call,
    of_steps,
    replay,
)
from gpuprep.trace.advice.intervals import Intervals
from gpuprep.trace.advice.replay import Change
from gpuprep.trace.advice.rulebook import Found
from gpuprep.trace.columns import Ints, OpKind

READY_BATCH_NS = 200_000  # to take a ready batch from a worker: its tensors are mapped, not copied
WORKERS = 4  # that are proposed at most, as a profile does not tell how many cores there are
GRAPH_NODE_GAP_NS = 1_000.0  # between nodes of a CUDA graph on a stream
GRAPH_LAUNCH_NS = 15_000.0
ASKING_NS = 20_000  # torch.cuda.synchronize() takes longer than its call


def _shares(e: Evidence) -> dict[str, Intervals]:
    """What the CPU did while the main device was idle. Each part of the idle time is in exactly one group."""
    left = e.idle_of_host
    shares = {}
    for name, cover in (
        ("data loading", e.range_set(e.data_waits)),
        ("allocation", e.call_set(e.calls(kinds.ALLOCATION))),
        ("waiting for the GPU", e.call_set(e.sync_calls)),
    ):
        shares[name] = intervals.both(left, cover)
        left = intervals.without(left, cover)
    launches = e.call_set(e.calls(kinds.LAUNCH))
    shares["launching"] = intervals.both(left, launches)
    shares["other work of the CPU"] = intervals.without(left, launches)
    shares["after the launch"] = intervals.without(e.idle, e.idle_of_host)
    return shares


def low_util(e: Evidence) -> Found | None:
    if not len(e.gpu) or e.window[0] == e.window[1] or e.busy_share >= 0.5:
        return None  # without idle time, nothing waits
    idle = intervals.length(e.idle)
    sums = sorted(((intervals.length(of), name) for name, of in _shares(e).items()), reverse=True)
    words = ", ".join(f"{100 * ns / max(1, idle):.0f} % {name}" for ns, name in sums if ns > 0.01 * idle)
    if not e.launches_known:
        words = "the profile has no CUDA calls, so the reason is not known"
    figures = {"busy": 100 * e.busy_share, "idle_ms": e.a_step(idle)}
    return Found(figures, {"shares": words})


def gaps(e: Evidence) -> Found | None:
    idle = intervals.length(e.idle)
    if not len(e.gpu) or not e.launches_known or idle <= 0.1 * e.wall:
        return None
    host = intervals.length(e.idle_of_host)
    rest = intervals.without(e.idle, e.idle_of_host)
    short = rest[(rest[:, 1] - rest[:, 0]) < 5_000]  # as long as it takes from one kernel to the next
    kernel = intervals.length(short)
    other = idle - host - kernel
    pauses = e.pauses
    made = None
    if 2 * intervals.length(pauses) > idle:
        longest = (pauses[:, 1] - pauses[:, 0]).max() / 1e6
        todo = (
            f"Most of it is pauses of up to {longest:.1f} ms without any op: the program sleeps, reads or writes, "
            "or works on the CPU. Do that in another thread or process, or seldom. --stacks records where it is."
        )
        made = gain(e, Change(cut=pauses), "without these pauses")
    elif host >= max(kernel, other):
        todo = "The host is the limit: see what it does in the timeline, launch earlier, launch less."
    elif kernel >= other:
        todo = "Many short kernels: fuse them, or record them as a CUDA graph."
    else:
        todo = "Look for events and streams that wait for each other (cudaStreamWaitEvent), and for copies."
    figures = {
        "idle_ms": e.a_step(idle),
        "host_ms": e.a_step(host),
        "kernel_ms": e.a_step(kernel),
        "other_ms": e.a_step(other),
    }
    return Found(figures, {"todo": todo}, gain=made)


# ---------------------------------------------------------------- data


def dataloader(e: Evidence) -> Found | None:
    rows = e.data_waits
    waits = e.range_set(rows)
    total = intervals.length(waits)
    idle = intervals.length(intervals.both(e.idle, waits))
    if not len(e.gpu) or total <= 0.05 * e.wall or idle < 0.2 * total or len(e.ranges(kinds.NO_WORKERS)):
        return None  # without workers it is `workers0` that says so
    made = gain(e, _ready(e, rows, total), "the wait for a batch is as long as taking a ready one")
    figures = {"ms": e.a_step(total), "percent": 100 * total / e.wall, "idle_ms": e.a_step(idle)}
    return Found(figures, gain=made)


def workers0(e: Evidence) -> Found | None:
    rows = e.outermost(e.ranges(kinds.NO_WORKERS))
    total = intervals.length(e.range_set(rows))
    if not len(rows) or total <= 0.01 * e.wall:
        return None
    change, replayed = _ready(e, rows, total), replay(e)
    rest = replayed.step(change) if replayed.ok else (e.wall - total) / e.steps
    loading = total / e.steps
    used = min(WORKERS, max(1, math.ceil(loading / max(1.0, rest))))
    of = "1 worker" if used == 1 else f"{used} workers"
    how = f"batches come from {of}; a step takes at least {loading / used / 1e6:.2f} ms, the time of loading one"
    made = gain(e, change, how, least_cpu_ns=loading / used)
    return Found({"ms": e.a_step(total), "needed": used}, gain=made)


def _ready(e: Evidence, rows: Ints, total: int) -> Change:
    """Each of these waits for a batch is as long as taking a ready one."""
    return Change(cut=e.range_set(rows), kept=min(1.0, READY_BATCH_NS * len(rows) / max(1, total)))


# ---------------------------------------------------------------- launches


def launch_bound(e: Evidence) -> Found | None:
    rows = e.gpu[e.kernels]
    ns = (e.trace.gpu.end - e.trace.gpu.start)[rows]
    call = np.unique(e.profile.gpu.call[rows])  # a CUDA graph of many kernels is one launch
    call = call[call >= 0]
    if len(call) / e.steps < 100:
        return None
    own = e.trace.calls.end[call] - e.trace.calls.start[call]
    median = float(np.median(ns))
    short = median < 10_000 or (len(own) > 0 and median < float(np.median(own)))
    waits = e.idle_of_host
    for cover in (e.range_set(e.data_waits), e.call_set(e.sync_calls), e.pauses):
        waits = intervals.without(waits, cover)
    idle = intervals.length(waits)
    if not short or idle <= 0.2 * e.wall:
        return None
    back = int(e.of_kernels(e.kernel_rows(kinds.DTOH)).sum())
    asked = _of_program(e, e.calls(kinds.DEVICE_WAIT))
    reads = (max(back, len(e.outermost(e.ranges(kinds.READING_BACK)))) + len(asked)) / e.steps
    figures = {"kernels": len(rows) / e.steps, "median": median / 1e3, "idle_ms": e.a_step(idle), "reads": reads}
    replayed = replay(e)
    main = e.trace.gpu.device[e.gpu] == e.main_device
    busy = float(e.gpu_dur[main].sum()) / e.steps
    remains = (intervals.length(e.range_set(e.data_waits)) + intervals.length(e.pauses)) / e.steps
    graph = busy + main.sum() / e.steps * GRAPH_NODE_GAP_NS + GRAPH_LAUNCH_NS
    how = (
        f"as a CUDA graph a step takes the kernels' {busy / 1e6:.2f} ms, {GRAPH_NODE_GAP_NS / 1e3:.0f} µs after "
        "each, one launch, and the waits for data and for the rest of the program, which remain"
    )
    most_ns = intervals.length(e.idle) / e.steps
    inside = (
        "A graph cannot contain the waits for the GPU of this step (.item(), .cpu(), synchronize()): remove them first."
    )
    first = inside if reads else ""
    return Found(
        figures, {"first": first}, gain=of_steps(replayed, lambda cpu: graph + remains * cpu, how, most_ns=most_ns)
    )


# ---------------------------------------------------------------- waits


def sync(e: Evidence) -> Found | None:
    """Waits after which the GPU has no work left: a wait for work of the previous step costs nothing."""
    calls = e.trace.calls
    # A copy to pageable memory waits inside its own call, and the call behind it has nothing left to wait for.
    pageable = pageable_copies(e)
    back = e.profile.gpu.call[e.gpu[e.of_kernels(e.kernel_rows(kinds.DTOH)) & ~pageable]]
    rows = np.union1d(e.sync_calls, back[back >= 0])
    rows = _of_program(e, rows)
    # Those of a DataLoader, of gloo, and behind a copy of pageable memory: other rules say what to do about them.
    for others in (e.data_waits, e.ranges(kinds.GLOO)):
        rows = rows[~e.inside_ranges(others, calls.start[rows])]
    copying = e.profile.gpu.call[e.gpu[pageable]]
    rows = np.setdiff1d(rows, waits_behind(e, np.unique(copying[copying >= 0])))
    idle = e.idle_of_host
    if not len(rows) or not len(idle):
        return None
    # The idle time that begins while such a call waits, or just behind it, until new work was launched.
    order = rows[np.argsort(calls.start[rows], kind="stable")]
    place = np.searchsorted(calls.start[order], idle[:, 0], side="right") - 1
    behind = (place >= 0) & (idle[:, 0] <= calls.end[order[np.maximum(place, 0)]] + 5_000)
    lost = int((idle[behind, 1] - idle[behind, 0]).sum())
    guilty = np.unique(order[place[behind]])
    # The GPU had no work before: such a wait costs only the CPU's own time.
    asked = np.intersect1d(rows, e.calls(kinds.DEVICE_WAIT))
    asking = intervals.union(calls.start[asked] - ASKING_NS, calls.end[asked])
    dry = np.setdiff1d(asked[intervals.Covered(idle).between(calls.start[asked], calls.end[asked]) > 0], guilty)
    lost += intervals.length(intervals.both(intervals.union(calls.start[dry] - ASKING_NS, calls.end[dry]), idle))
    guilty = np.union1d(guilty, dry)
    if lost <= 0.01 * e.wall:
        return None
    reads = e.outermost(e.ranges(kinds.READING_BACK))
    no_waits = np.zeros(len(calls.start), bool)
    no_waits[guilty] = True
    copies = _copies_back(e, reads)
    change = Change(
        no_waits=no_waits,
        without_gpu=copies,
        without_calls=calls_of(e, copies),
        cut=intervals.union(*np.concatenate((e.range_set(reads), asking)).T),
    )
    names = sorted({e.names[calls.name[row]] for row in guilty.tolist()})
    ops = sorted({e.name_of(row) for row in reads.tolist()})
    what = ", ".join([*ops, *names][:5])
    # Without the waits, only the GPU's idle time and these copies are saved. Not only the idle time right after a wait:
    # without the wait the CPU stays ahead later, too.
    most_ns = (intervals.length(e.idle) + float(durations(e)[copies].sum())) / e.steps
    made = gain(e, change, "without these waits and the copies that they wait for", most_ns=most_ns)
    return Found({"count": len(guilty) / e.steps, "idle_ms": e.a_step(lost)}, {"what": what}, gain=made)


def _of_program(e: Evidence, rows: Ints) -> Ints:
    """The calls before the last launch: later calls are the profiler's own, at its end."""
    launches = e.profile.gpu.call[e.profile.gpu.call >= 0]
    starts = e.trace.calls.start
    return rows[starts[rows] < starts[launches].max()] if len(launches) else rows


def _copies_back(e: Evidence, reads: Ints) -> Mask:
    """Of all GPU events: copies to the host that were launched inside these ranges."""
    no_copies = np.zeros(len(e.trace.gpu.start), bool)
    call = e.profile.gpu.call[e.gpu]
    if not len(reads) or not len(call):
        return no_copies
    back = e.of_kernels(e.kernel_rows(kinds.DTOH)) & (call >= 0)
    inside = e.inside_ranges(reads, e.trace.calls.start[np.where(call >= 0, call, 0)])
    return all_gpu(e, back & inside)


def alloc(e: Evidence) -> Found | None:
    """Found by its calls; if PyTorch's profiler did not record them, by growth of the reserved memory."""
    if e.profile.iterations.how == "one":
        return None  # it may be the start of the program, which must allocate memory
    starts = e.profile.iterations.start
    # The first step of a profile may still fill the cache.
    begin = int(starts[1]) if len(starts) > 1 and e.first == 0 else e.window[0]
    calls = e.calls(kinds.ALLOCATION)
    rows = calls[e.trace.calls.start[calls] >= begin]
    if len(rows):
        count, spent, cut = len(rows), e.call_set(rows), e.call_set(calls)
        what, how = "cudaMalloc, cudaFree and their like", "without these calls"
    else:
        cut = _asked_for(e, begin)
        count, spent = len(cut), intervals.union(cut[:, 0], cut[:, 1])
        what = "reserved memory grows; the calls are not in the profile"
        how = (
            "without the time from an op's begin to the moment when it has got new memory; how long giving memory back "
            "takes is not in the profile"
        )
    ns = intervals.length(spent)
    if count < e.steps or ns <= 0.002 * e.wall:
        return None
    made = gain(e, Change(cut=intervals.union(cut[:, 0], cut[:, 1])), how)
    return Found({"count": count / e.steps, "ms": e.a_step(ns)}, {"what": what}, gain=made)


def _asked_for(e: Evidence, begin: int) -> Intervals:
    """Of each moment from `begin` at which a GPU's reserved memory grew: from the begin of the op around it."""
    memory, ops = e.trace.memory, e.trace.ops
    spans = []
    for device in e.devices:
        mine = np.flatnonzero(memory.device == device)
        mine = mine[np.argsort(memory.time[mine], kind="stable")]
        grown = mine[1:][(np.diff(memory.reserved[mine]) > 0) & (memory.reserved[mine][:-1] > 0)]
        for moment in memory.time[grown][(memory.time[grown] >= begin) & (memory.time[grown] < e.window[1])].tolist():
            around = [row for row in (_op_at(e, rows, moment) for rows in e.in_order.values()) if row >= 0]
            if around:
                spans.append((max(int(ops.start[row]) for row in around), moment))
    return np.array(spans, np.int64).reshape(-1, 2)


def _op_at(e: Evidence, rows: Ints, moment: int) -> int:
    """The innermost of a thread's operators at this moment; -1: none."""
    ops, parent = e.trace.ops, e.profile.ranges.parent
    place = int(np.searchsorted(ops.start[rows], moment, side="right")) - 1
    row = int(rows[place]) if place >= 0 else -1
    while row >= 0 and ops.end[row] < moment:
        row = int(parent[row])
    return row if row >= 0 and ops.kind[row] == OpKind.OP else -1


# ---------------------------------------------------------------- transfers

# Rules about copies between host and GPU.


CREATED = re.compile(
    r"^aten::(zeros|ones|full|rand|randn|randint|arange|eye|zeros_like|ones_like|full_like|fill_|zero_)$"
)
COPIED = re.compile(r"^aten::(to|_to_copy|copy_|cuda)$")
BEHIND_NS = 30_000  # a wait that begins so soon behind a copy waits for it
SHORTEST_COPY_NS = 2_000
LEAST_BACK_BYTES = 1_000_000  # of a copy to the host: below it is a result that is read, and the wait is what costs
SHORTEST_FILL_NS = 2_000
ON_DEVICE_NS = 10_000  # of the CPU: an op that launches one kernel
TO_GPU = "Use pin_memory=True in the DataLoader (or tensor.pin_memory()) and .to(device, non_blocking=True)."
FROM_GPU = (
    "Copy results into memory that is pinned once, kept = torch.empty(..., pin_memory=True), with "
    "kept.copy_(result, non_blocking=True), and wait for an event where they are used."
)


def pageable_copies(e: Evidence) -> Mask:
    """Of `gpu`: copies from pageable memory, and large ones to it."""
    small = e.of_kernels(e.kernel_rows(kinds.DTOH)) & (e.trace.gpu.bytes[e.gpu] < LEAST_BACK_BYTES)
    return e.of_kernels(e.kernel_rows(kinds.PAGEABLE)) & ~small


def pageable(e: Evidence) -> Found | None:
    mask = pageable_copies(e)
    rows = e.gpu[mask]
    if not len(rows):
        return None
    ns = int(e.gpu_dur[mask].sum())
    call = e.profile.gpu.call[rows]
    own = np.unique(call[call >= 0])
    calls = e.trace.calls
    cpu = int((calls.end - calls.start)[own].sum())
    moved = float(np.clip(e.trace.gpu.bytes[rows], 0, None).sum())
    if max(ns, cpu) <= 0.01 * e.wall or moved <= 0:
        return None
    new = durations(e)
    how = "each copy takes as long as now"
    if e.board is not None and (least := physics.link_ns(e.board, 1.0)) is not None:
        new[rows] = np.minimum(new[rows], e.trace.gpu.bytes[rows] * least + SHORTEST_COPY_NS)
        how = f"each copy takes its bytes / {1 / least:.0f} GB/s"
    no_waits = np.zeros(len(calls.start), bool)
    no_waits[own] = True
    no_waits[waits_behind(e, own)] = True
    made = gain(e, Change(gpu_ns=new, no_waits=no_waits), f"{how}, and no call waits for it")
    figures = {
        "count": len(rows) / e.steps,
        "mb": moved / e.steps / 1e6,
        "ms": e.a_step(ns),
        "rate": moved / max(1, ns),
    }
    back = int((mask & e.of_kernels(e.kernel_rows(kinds.DTOH))).sum())
    todo = [TO_GPU] if back < len(rows) else []
    todo += [FROM_GPU] if back else []
    return Found(figures, {"todo": " ".join(todo)}, kernels=np.unique(e.profile.gpu.kernel[rows]).tolist(), gain=made)


def waits_behind(e: Evidence, own: Ints) -> Ints:
    """Calls that wait for the GPU directly behind one of these, on its thread."""
    calls, waits = e.trace.calls, e.sync_calls
    if not len(waits):
        return waits
    order = waits[np.argsort(calls.start[waits], kind="stable")]
    place = np.minimum(np.searchsorted(calls.start[order], calls.end[own]), len(order) - 1)
    near = calls.start[order[place]] - calls.end[own]
    behind: Ints = order[place[(near >= 0) & (near < BEHIND_NS) & (calls.thread[order[place]] == calls.thread[own])]]
    return behind


def h2d_exposed(e: Evidence) -> Found | None:
    # With pageable memory no copy can be hidden: the rule pageable reports that first.
    mask = e.of_kernels(e.kernel_rows(kinds.HOST_COPY)) & ~pageable_copies(e)
    if not mask.any():
        return None
    device = e.trace.gpu.device[e.gpu] == e.main_device
    alone = intervals.without(e.busy(mask & device), e.busy(e.kernels & device))
    ns = intervals.length(alone)
    if ns <= 0.02 * e.wall:
        return None
    copies = float(e.gpu_dur[mask & device].sum()) / e.steps
    rows = e.gpu[mask]
    how = "the copies run on a stream of their own; a step takes at least as long as they do"
    made = gain(e, Change(aside=all_gpu(e, mask)), how, least_ns=copies)
    figures = {"ms": e.a_step(ns), "percent": 100 * ns / e.wall}
    todo = (
        "Fetch the next batch on a second stream while this step calculates, from pinned memory with non_blocking=True."
    )
    if ns > intervals.length(e.busy(e.kernels & device)):
        todo += " But they take longer than all kernels: copy less, or keep on the GPU what is used again."
    return Found(figures, {"todo": todo}, kernels=np.unique(e.profile.gpu.kernel[rows]).tolist(), gain=made)


def extra_copy(e: Evidence) -> Found | None:
    """A range that makes a tensor and launches nothing, and behind it one that copies to the GPU."""
    made_rows = e.outermost(e.ranges(CREATED, ops_alone=True))
    if not len(made_rows) or not len(e.gpu):
        return None
    to_gpu = all_gpu(e, e.of_kernels(e.kernel_rows(kinds.HTOD)))
    launching = calls_of(e, np.ones(len(to_gpu), bool))
    copying = calls_of(e, to_gpu)
    ops = e.trace.ops
    filling = made_rows[ops.end[made_rows] - ops.start[made_rows] >= SHORTEST_FILL_NS]
    filling = filling[~has_call(e, filling, launching)]
    behind = [(row, e.next_op(row)) for row in filling.tolist()]
    pairs = [(row, op) for row, op in behind if op >= 0 and COPIED.match(e.name_of(op))]
    if not pairs:
        return None
    first, second = np.array([op for op, _ in pairs]), np.array([op for _, op in pairs])
    kept = has_call(e, second, copying)
    first, second = first[kept], second[kept]
    if not len(first):
        return None
    copies = to_gpu & gpu_of_calls(e, calls_between(e, second))
    rows = np.flatnonzero(copies)
    moved = float(np.clip(e.trace.gpu.bytes[rows], 0, None).sum())
    spans = e.range_set(np.concatenate((first, second)))
    cpu = intervals.length(spans)
    if cpu + int((e.trace.gpu.end - e.trace.gpu.start)[rows].sum()) <= 0.002 * e.wall:
        return None
    gain_made = None
    if e.board is not None:
        new = durations(e)
        new[rows] = [max(2_000.0, physics.memory_ns(e.board, float(size)) or 0.0) for size in e.trace.gpu.bytes[rows]]
        inside = calls_between(e, second)
        change = Change(gpu_ns=new, no_waits=inside, cut=spans, kept=min(1.0, ON_DEVICE_NS * len(first) / max(1, cpu)))
        gain_made = gain(e, change, "a kernel fills it on the GPU; the fill on the CPU and the copy are gone")
    figures = {"count": len(first) / e.steps, "mb": moved / e.steps / 1e6, "cpu_ms": e.a_step(cpu)}
    op_rows = e.profile.ranges.op[second]
    return Found(figures, ops=np.unique(op_rows[op_rows >= 0]).tolist(), gain=gain_made)
