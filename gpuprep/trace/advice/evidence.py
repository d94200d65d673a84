"""What the rules look at: the chosen iterations of a profile, when their GPUs work, and what the CPU does meanwhile.

Each part is made when the first rule asks for it. Times are ns of Trace.zero_ns; `a_step` turns sums into ms a step.
"""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gpuprep.catalogue import Board
from gpuprep.records import RunRecord
from gpuprep.trace.advice import intervals, kinds, physics
from gpuprep.trace.advice.intervals import Intervals
from gpuprep.trace.columns import Arguments, GpuKind, Ints, OpKind
from gpuprep.trace.document import Gain, TraceDocument
from gpuprep.trace.profile import OUTSIDE, Profile, UsesTensorCores
from gpuprep.trace.work.optypes import FIRST_CAPABILITY

Mask = NDArray[np.bool_]
NO_ARGUMENTS = Arguments()
PAUSE_NS = 1_000_000  # without any op: the CPU does not launch (sleep, I/O, Python of the program)
LETTERS = 1000  # of a name, that are compared with patterns


class Evidence:
    def __init__(
        self, profile: Profile, document: TraceDocument, board: Board | None = None, record: RunRecord | None = None
    ) -> None:
        self.profile, self.trace, self.document, self.board, self.record = (
            profile, profile.trace, document, board, record,
        )  # fmt: skip
        self.last_rank: tuple[int, float, float] | None = None  # of several ranks (several.py)
        self.timed_step_ns: float | None = None  # a step without the profiler, where somebody has timed it
        # What several rules need, made by the first: the step taken apart (gains.py), products, chains of kernels.
        self.replayed: object = None
        self._kernel_rows: dict[re.Pattern[str], Mask] = {}
        self._name_ids: dict[re.Pattern[str], Mask] = {}
        self.products: object = None
        self.chains: tuple[tuple[Ints, Ints], Gain | None] | None = None
        summary = document.summary
        self.first, self.last = summary.start_iteration, summary.stop_iteration
        self.steps = max(1, summary.iterations)

    # ------------------------------------------------------------------ time

    def a_step(self, ns: float) -> float:
        """ms a step of a sum over the chosen iterations."""
        return float(ns) / self.steps / 1e6

    @cached_property
    def window(self) -> tuple[int, int]:
        """From the first op of the first chosen iteration to the last end of the last one: the summary's wall clock.

        A last iteration that marks its own end may do something else behind its last op, as the others may: all of it
        counts, as far as it is not longer than they are.
        """
        iterations = self.profile.iterations
        if not len(iterations.start):
            return 0, 0
        chosen = slice(self.first, self.last + 1)
        begin, until = int(iterations.first[self.first]), int(iterations.until[chosen].max())
        if self.last > self.first and not iterations.how.startswith("key op"):
            usual = int(np.median(np.diff(iterations.start[chosen])))
            until = max(until, min(int(iterations.end[self.last]), int(iterations.start[self.last]) + usual))
        return begin, max(begin, until)

    @property
    def wall(self) -> int:
        return max(1, self.window[1] - self.window[0])

    # ------------------------------------------------------------------ GPU

    @cached_property
    def gpu(self) -> Ints:
        """Rows of Trace.gpu in the chosen iterations."""
        of = self.profile.gpu.iteration
        if self.profile.iterations.how == "one":
            return np.arange(len(of))
        return np.flatnonzero((of >= self.first) & (of <= self.last) & (of != OUTSIDE))

    @cached_property
    def gpu_dur(self) -> Ints:
        return (self.trace.gpu.end - self.trace.gpu.start)[self.gpu]

    @cached_property
    def gpu_total(self) -> int:
        """Sum of all kernels and memory operations, at least 1."""
        return max(1, int(self.gpu_dur.sum()))

    @cached_property
    def kernels(self) -> Mask:
        """Mask of `gpu`: kernels."""
        return np.asarray(self.trace.gpu.kind[self.gpu] == GpuKind.KERNEL)

    @cached_property
    def devices(self) -> list[int]:
        return sorted({int(device) for device in np.unique(self.trace.gpu.device[self.gpu])})

    def kernel_rows(self, pattern: re.Pattern[str]) -> Mask:
        """Mask of Profile.kernels: rows whose name matches."""
        if pattern not in self._kernel_rows:
            fits = [bool(pattern.search(row.name[:LETTERS])) for row in self.profile.kernels]
            self._kernel_rows[pattern] = np.array(fits, bool)
        return self._kernel_rows[pattern]

    def of_kernels(self, rows: Mask) -> Mask:
        """Mask of `gpu`: launches of these rows of Profile.kernels."""
        return rows[self.profile.gpu.kernel[self.gpu]] if len(rows) else np.zeros(len(self.gpu), bool)

    def of_ops(self, rows: Mask) -> Mask:
        """Mask of `gpu`: events of these rows of Profile.ops."""
        return rows[self.profile.gpu.op[self.gpu]] if len(rows) else np.zeros(len(self.gpu), bool)

    def busy(self, mask: Mask | None = None, device: int | None = None) -> Intervals:
        """The union of GPU events of the whole file inside the window; of `mask` of `gpu` alone."""
        if mask is None:
            rows: Ints = np.arange(len(self.trace.gpu.start))
        else:
            rows = self.gpu[mask]
        if device is not None:
            rows = rows[self.trace.gpu.device[rows] == device]
        spans = intervals.union(self.trace.gpu.start[rows], self.trace.gpu.end[rows])
        return intervals.clipped(spans, *self.window)

    @cached_property
    def busy_share(self) -> float:
        """Mean over the devices that work; 0 to 1."""
        shares = [intervals.length(self.busy(device=device)) / self.wall for device in self.devices]
        return float(np.mean(shares)) if shares else 0.0

    @cached_property
    def main_device(self) -> int:
        """The device with the most GPU time."""
        sums = {device: int(self.gpu_dur[self.trace.gpu.device[self.gpu] == device].sum()) for device in self.devices}
        return max(sums, key=lambda one: sums[one]) if sums else 0

    @cached_property
    def idle(self) -> Intervals:
        """When the main device does nothing."""
        return intervals.gaps(self.busy(device=self.main_device), *self.window)

    @cached_property
    def launches_known(self) -> bool:
        """Whether any call that launched work of the main device is known: if not, it is unknown what the device waits
        for.
        """
        gpu = self.trace.gpu
        return bool(((gpu.device == self.main_device) & (self.profile.gpu.call >= 0)).any())

    @cached_property
    def idle_of_host(self) -> Intervals:
        """The part of `idle` before the next work was launched: from the start of the idle time to that launch."""
        gpu, calls = self.trace.gpu, self.trace.calls
        rows = np.flatnonzero((gpu.device == self.main_device) & (self.profile.gpu.call >= 0))
        if not len(rows) or not len(self.idle):
            return self.idle if not len(rows) else intervals.EMPTY
        rows = rows[np.argsort(gpu.start[rows], kind="stable")]
        place = np.searchsorted(gpu.start[rows], self.idle[:, 1] - 1)
        launched = np.append(calls.start[self.profile.gpu.call[rows]], self.window[1])[place]
        end = np.clip(launched, self.idle[:, 0], self.idle[:, 1])
        spans = np.column_stack((self.idle[:, 0], end))
        return spans[spans[:, 1] > spans[:, 0]]

    # ------------------------------------------------------------------ CPU

    @cached_property
    def names(self) -> list[str]:
        return self.trace.names

    @cached_property
    def _searched_names(self) -> Ints:
        """Of Trace.names: those of operators, annotations and calls. Python functions have by far the most names."""
        ops = self.trace.ops
        plain = (ops.kind == OpKind.OP) | (ops.kind == OpKind.ANNOTATION)
        return np.unique(np.concatenate((ops.name[plain], self.trace.calls.name)))

    def name_ids(self, pattern: re.Pattern[str]) -> Mask:
        """Ids of Trace.names that match, among names of operators, annotations and calls."""
        mask = self._name_ids.get(pattern)
        if mask is None:
            mask = self._name_ids[pattern] = np.zeros(len(self.names), bool)
            mask[self._searched_names] = [
                bool(pattern.search(self.names[name_id][:LETTERS])) for name_id in self._searched_names.tolist()
            ]
        return mask

    def ranges(self, pattern: re.Pattern[str], *, ops_alone: bool = False) -> Ints:
        """Rows of Trace.ops of the chosen iterations, or begun between them, whose name fits; no Python functions."""
        ops = self.trace.ops
        if not len(ops.start) or not self.names:
            return np.empty(0, np.int64)
        fits = self.name_ids(pattern)[ops.name]
        fits &= ops.kind == OpKind.OP if ops_alone else (ops.kind == OpKind.OP) | (ops.kind == OpKind.ANNOTATION)
        of = self.profile.ranges.iteration
        between = (of == OUTSIDE) & (ops.start >= self.window[0]) & (ops.start < self.window[1])
        return np.flatnonzero(fits & (between | ((of >= self.first) & (of <= self.last))))

    def outermost(self, rows: Ints) -> Ints:
        """The ranges that are not inside another one of them on the same thread."""
        if not len(rows):
            return rows
        inside, parent = np.zeros(len(self.trace.ops.start), bool), self.profile.ranges.parent
        inside[rows] = True
        kept = np.ones(len(rows), bool)
        above = parent[rows]
        for _ in range(64):  # the deepest nesting that is searched
            live = above >= 0
            if not live.any():
                break
            kept &= ~(live & inside[np.where(live, above, 0)])
            above = np.where(live, parent[np.where(live, above, 0)], -1)
        return rows[kept]

    def range_set(self, rows: Ints) -> Intervals:
        ops = self.trace.ops
        return intervals.clipped(intervals.union(ops.start[rows], ops.end[rows]), *self.window)

    def calls(self, pattern: re.Pattern[str]) -> Ints:
        """Rows of Trace.calls that begin inside the window and whose name fits."""
        calls = self.trace.calls
        if not len(calls.start) or not self.names:
            return np.empty(0, np.int64)
        fits = self.name_ids(pattern)[calls.name]
        fits &= (calls.start >= self.window[0]) & (calls.start < self.window[1])
        return np.flatnonzero(fits)

    def call_set(self, rows: Ints) -> Intervals:
        calls = self.trace.calls
        return intervals.clipped(intervals.union(calls.start[rows], calls.end[rows]), *self.window)

    def inside_ranges(self, rows: Ints, start: Ints) -> Mask:
        """Mask of the moments that lie inside one of these ranges, on any thread."""
        covered = intervals.Covered(self.range_set(rows))
        return np.asarray(covered.between(start, start + 1) > 0)

    @cached_property
    def all_ops(self) -> Ints:
        """Rows of Trace.ops: the operators."""
        return np.flatnonzero(self.trace.ops.kind == OpKind.OP)

    @cached_property
    def data_waits(self) -> Ints:
        return self.outermost(self.ranges(kinds.DATA_LOADER))

    @cached_property
    def pauses(self) -> Intervals:
        """The long parts of the GPU's idle time in which the CPU runs no op and no call: the program works or waits.

        What the optimizer does in Python and what a DataLoader takes is known by its name, and is not in it.
        """
        named = map(self.ranges, (kinds.OPTIMIZER, kinds.ZERO_GRAD))
        known = self.range_set(np.concatenate((self.all_ops, *named, self.data_waits)))
        calls = self.trace.calls
        spans = intervals.without(self.idle_of_host, known)
        spans = intervals.without(spans, intervals.clipped(intervals.union(calls.start, calls.end), *self.window))
        return spans[spans[:, 1] - spans[:, 0] >= PAUSE_NS]

    @cached_property
    def sync_calls(self) -> Ints:
        return self.calls(kinds.WAITING_CALL)

    @cached_property
    def optimizer_gpu(self) -> Mask:
        """Mask of all GPU events: launched inside the optimizer's step, on any thread."""
        call = self.profile.gpu.call
        mask = np.zeros(len(call), bool)
        rows = self.ranges(kinds.OPTIMIZER)
        if len(rows) and len(self.trace.calls.start):
            known = np.flatnonzero(call >= 0)
            mask[known] = self.inside_ranges(rows, self.trace.calls.start[call[known]])
        return mask

    # ------------------------------------------------------------------ ops

    @cached_property
    def in_order(self) -> dict[int, Ints]:
        """Thread ► the rows of its operators, sorted by start."""
        ops = self.trace.ops
        rows = self.all_ops
        rows = rows[np.lexsort((-ops.end[rows], ops.start[rows], ops.thread[rows]))].astype(np.int32)
        edges = np.flatnonzero(np.diff(ops.thread[rows])) + 1
        return {int(ops.thread[part[0]]): part for part in np.split(rows, edges) if len(part)}

    def next_op(self, row: int) -> int:
        """The operator that begins next on the thread after this range has ended; -1: none."""
        mine = self.in_order.get(int(self.trace.ops.thread[row]))
        if mine is None:
            return -1
        place = int(np.searchsorted(self.trace.ops.start[mine], self.trace.ops.end[row]))
        return int(mine[place]) if place < len(mine) else -1

    def name_of(self, row: int) -> str:
        """Of a range."""
        return self.names[self.trace.ops.name[row]] if row >= 0 else ""

    @cached_property
    def child_of(self) -> Ints:
        """For each GPU event, the range around the op that launched it; -1 without one."""
        instance = self.profile.gpu.instance
        return np.asarray(np.where(instance >= 0, self.profile.ranges.parent[np.where(instance >= 0, instance, 0)], -1))

    def arguments(self, op: int) -> Arguments:
        index = self.profile.ops[op].arguments
        return self.trace.arguments[index] if 0 <= index < len(self.trace.arguments) else NO_ARGUMENTS

    @cached_property
    def op_time(self) -> NDArray[np.int64]:
        """GPU time of each row of Profile.ops in the chosen iterations, ns: of its own kernels."""
        times = np.zeros(len(self.profile.ops), np.int64)
        np.add.at(times, self.profile.gpu.op[self.gpu], self.gpu_dur)
        return times

    @cached_property
    def op_calls(self) -> NDArray[np.int64]:
        """Calls of each row of Profile.ops in the chosen iterations."""
        cells, counts = self.profile.op_cells, np.zeros(len(self.profile.ops), np.int64)
        chosen = (cells.iteration >= self.first) & (cells.iteration <= self.last)
        np.add.at(counts, cells.op[chosen], cells.calls[chosen])
        return counts

    @cached_property
    def op_kernel_uses(self) -> dict[int, set[UsesTensorCores]]:
        """Of each op with kernels: what its kernels use."""
        rows = self.gpu[self.kernels]
        pairs = np.unique(np.column_stack((self.profile.gpu.op[rows], self.profile.gpu.kernel[rows])), axis=0)
        uses_by_op: dict[int, set[UsesTensorCores]] = {}
        for op, kernel in pairs.tolist():
            uses_by_op.setdefault(op, set()).add(self.profile.kernels[kernel].tensor_cores)
        return uses_by_op

    @cached_property
    def in_nchw(self) -> Mask:
        """Of each row of Profile.ops: a convolution of 16 bits whose pictures do not lie with their channels together.

        As the strides say; where there are none, as the names of its kernels do. None on a GPU without Tensor Cores.
        """
        if self.capability is not None and self.capability < FIRST_CAPABILITY:
            return np.zeros(len(self.profile.ops), bool)
        named = np.zeros(len(self.profile.ops), bool)
        named[self.profile.gpu.op[self.gpu[self.of_kernels(self.kernel_rows(kinds.NCHW))]]] = True
        mask = np.zeros(len(named), bool)
        for op in np.flatnonzero(self.op_time > 0).tolist():
            kind, arguments = self.profile.ops[op].type, self.arguments(op)
            if "conv" in kind and physics.dtype_of(kind, arguments) in ("fp16", "bf16"):
                together = physics.channels_last(arguments)
                mask[op] = named[op] if together is None else not together
        return mask

    @cached_property
    def has_shapes(self) -> bool:
        return any(argument.shapes for argument in self.trace.arguments)

    @cached_property
    def capability(self) -> tuple[int, int] | None:
        for device in self.trace.devices:
            if device.index == self.main_device:
                major, _, minor = device.compute_capability.partition(".")
                if major.isdigit():
                    return int(major), int(minor) if minor.isdigit() else 0
        return None
