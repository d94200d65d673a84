"""Rules about copies between host and GPU."""

from __future__ import annotations

import re

import numpy as np

from gpuprep.trace.advice import intervals, kinds, physics
from gpuprep.trace.advice.evidence import Evidence, Mask
from gpuprep.trace.advice.gains import all_gpu, calls_between, calls_of, durations, gain, gpu_of_calls, has_call
from gpuprep.trace.advice.replay import Change
from gpuprep.trace.advice.rulebook import Found
from gpuprep.trace.columns import Ints

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
    # With pageable memory none can be hidden: `pageable` says so first.
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
