"""What do the tables of a profile say? Profile ► TraceDocument, of the chosen iterations, without roofs and advice."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gpuprep.catalogue import datafile
from gpuprep.errors import UsageError
from gpuprep.trace.columns import NONE, Device, GpuKind, Ints
from gpuprep.trace.document import (
    SCHEMA_VERSION,
    DeviceTotals,
    File,
    Iteration,
    KernelLine,
    ModuleLine,
    Note,
    OpLine,
    OpTypeLine,
    Spread,
    Summary,
    TraceDocument,
)
from gpuprep.trace.model.groups import total
from gpuprep.trace.model.intervals import Union, union
from gpuprep.trace.profile import NO_OP, OUTSIDE, Cells, ModuleCells, OpCells, Profile, UsesTensorCores


def sentence(key: str, count: int) -> str:
    """ "12 events with corrupt times or durations left out". KeyError for a key without a sentence."""
    words = _sentences()[key]
    if "text" in words:
        return words["text"]
    return words["one"] if count == 1 else words["many"].format(count=count)


def note_keys() -> frozenset[str]:
    return frozenset(_sentences())


@cache
def _sentences() -> dict[str, dict[str, str]]:
    return datafile.read(Path(__file__).with_name("notes.yml"))


AnyCells = TypeVar("AnyCells", Cells, OpCells, ModuleCells)


def us(ns: float) -> float:
    return float(ns) / 1000.0


def percent(part: float, whole: float) -> float | None:
    """None is n/a: 0 of 0."""
    return 100.0 * part / whole if whole > 0 else None


@dataclass
class Chosen:
    """Iterations start to stop, both of them included."""

    profile: Profile
    start: int
    stop: int

    @cached_property
    def cells(self) -> Cells:
        return _inside(self, self.profile.cells)

    @cached_property
    def op_cells(self) -> OpCells:
        return _inside(self, self.profile.op_cells)

    @cached_property
    def module_cells(self) -> ModuleCells:
        return _inside(self, self.profile.module_cells)

    @cached_property
    def window(self) -> tuple[int, int]:
        """The wall clock: from the first op of the first iteration to the last end on CPU or GPU."""
        iterations, some = self.profile.iterations, slice(self.start, self.stop + 1)
        if not len(iterations.first[some]):
            return 0, 0
        return int(iterations.first[self.start]), int(iterations.until[some].max())

    @property
    def wall(self) -> int:
        return self.window[1] - self.window[0]

    @property
    def step(self) -> float:
        """ns of an iteration, the mean: from begin to end on the CPU; from end to end where the GPU is behind it.

        How far the GPU is behind, which the wall clock has at its end, is no part of a step.
        """
        iterations, some, count = self.profile.iterations, slice(self.start, self.stop + 1), self.stop - self.start + 1
        if count < 2:
            return float(self.wall)
        ends = iterations.until[some]
        behind = min(self.wall / count, int(ends.max() - ends[0]) / (count - 1))
        return max(behind, int(iterations.end[self.stop] - iterations.start[self.start]) / count)

    @cached_property
    def memory(self) -> NDArray[np.bool_]:
        """Of each cell: a copy or a fill."""
        return np.array([row.memory for row in self.profile.kernels], bool)[self.cells.kernel]

    @cached_property
    def tensor_cores(self) -> NDArray[np.bool_]:
        """Of each cell."""
        return self._using(UsesTensorCores.YES)

    @cached_property
    def unknown(self) -> NDArray[np.bool_]:
        """Of each cell: the kernel's name does not tell whether it uses Tensor Cores."""
        return self._using(UsesTensorCores.UNKNOWN)

    def _using(self, answer: UsesTensorCores) -> NDArray[np.bool_]:
        return np.array([row.tensor_cores is answer for row in self.profile.kernels], bool)[self.cells.kernel]

    def by_op(self, values: Ints, which: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """Sums of values of the cells, by op."""
        if which is None:
            return total(self.cells.op, values, len(self.profile.ops))
        return total(self.cells.op[which], values[which], len(self.profile.ops))


def _inside(chosen: Chosen, cells: AnyCells) -> AnyCells:
    # Cells are sorted by iteration.
    low, high = np.searchsorted(cells.iteration, [chosen.start, chosen.stop + 1])
    return type(cells)(**{key: values[low:high] for key, values in vars(cells).items()})


def choose(profile: Profile, start: int | None, stop: int | None) -> Chosen:
    """UsageError: no such iterations. None: from the first, to the last."""
    count = len(profile.iterations.start)
    last = max(count - 1, 0)
    start, stop = 0 if start is None else start, last if stop is None else stop
    if not 0 <= start <= stop <= last:
        of = "one iteration, 0" if count < 2 else f"{count} iterations, 0 to {last}"
        raise UsageError(f"there are no iterations {start} to {stop}: the profile has {of}")
    return Chosen(profile, start, stop)


def known(value: float) -> float | None:
    return None if math.isnan(value) else value


def summary(chosen: Chosen, busy: list[int]) -> Summary:
    """`busy`: union of the GPU events of each device inside the window, ns."""
    profile, cells = chosen.profile, chosen.cells
    memory, tensor = chosen.memory, chosen.tensor_cores
    mean_busy = sum(busy) / len(busy) if busy else 0.0
    count = chosen.stop - chosen.start + 1

    gpu = chosen.by_op(cells.total)
    tensor_time = chosen.by_op(cells.total, tensor)
    tensor_calls = chosen.by_op(cells.calls, tensor)
    calls = chosen.by_op(cells.calls)
    eligible = np.array([row.eligible for row in profile.ops], bool)
    using = tensor_calls > 0
    not_using = eligible & ~using & (calls > 0)
    called = np.zeros(len(profile.ops), bool)
    called[chosen.op_cells.op] = True
    other = ~using & ~not_using & (called | (calls > 0))
    return Summary(
        start_iteration=chosen.start,
        stop_iteration=chosen.stop,
        iterations=count,
        total_iterations=len(profile.iterations.start),
        split_by=profile.iterations.how,
        wall_us=us(chosen.wall),
        gpu_busy_us=us(mean_busy),
        gpu_utilization_percent=percent(mean_busy, chosen.wall) if busy else None,
        average_iteration_us=us(chosen.step),
        kernels=int(cells.calls[~memory].sum()),
        kernel_time_us=us(cells.total[~memory].sum()),
        memory_operations=int(cells.calls[memory].sum()),
        memory_time_us=us(cells.total[memory].sum()),
        tensor_core_kernels=int(cells.calls[tensor].sum()),
        tensor_core_kernel_time_us=us(cells.total[tensor].sum()),
        unknown_kernel_time_us=us(cells.total[chosen.unknown].sum()),
        eligible_op_time_us=us(gpu[eligible].sum()),
        tensor_core_efficiency_percent=percent(float(tensor_time[eligible].sum()), float(gpu[eligible].sum())),
        tensor_core_time_elsewhere_us=us(tensor_time[~eligible].sum()),
        ops_using_tensor_cores=int(using.sum()),
        ops_using_tensor_cores_time_us=us(gpu[using].sum()),
        ops_eligible_not_using=int(not_using.sum()),
        ops_eligible_not_using_time_us=us(gpu[not_using].sum()),
        other_ops=int(other.sum()),
        other_ops_time_us=us(gpu[other].sum()),
    )


def unions(profile: Profile) -> dict[int, Union]:
    """Of each device that did something, the union of all its GPU events."""
    gpu = profile.trace.gpu
    made = {}
    for device in profile.device_order:
        mine = gpu.device == device
        made[device] = union(gpu.start[mine], gpu.end[mine])
    return made


def busy_inside(every: dict[int, Union], window: tuple[int, int]) -> list[int]:
    start, end = np.array([window[0]]), np.array([window[1]])
    return [int(each.inside(start, end)[0]) for each in every.values()]


def devices(chosen: Chosen, every: dict[int, Union], busy: list[int]) -> tuple[DeviceTotals, ...]:
    """GPUs that did something. `busy`: inside the window of the chosen iterations, ns."""
    gpu = chosen.profile.trace.gpu
    known = {device.index: device for device in chosen.profile.trace.devices}
    length, kernel = gpu.end - gpu.start, gpu.kind == GpuKind.KERNEL
    made = []
    for (device, merged), inside in zip(every.items(), busy, strict=True):
        mine = gpu.device == device
        described = known.get(device, Device(device))
        made.append(
            DeviceTotals(
                device=device,
                name=described.name,
                compute_capability=described.compute_capability,
                sms=_told(described.sms),
                memory_bytes=_told(described.memory_bytes),
                kernels=int((mine & kernel).sum()),
                kernel_time_us=us(length[mine & kernel].sum()),
                memory_operations=int((mine & ~kernel).sum()),
                memory_time_us=us(length[mine & ~kernel].sum()),
                busy_us=us(merged.length),
                span_us=us(merged.ends[-1] - merged.starts[0]),
                utilization_percent=percent(inside, chosen.wall),
            )
        )
    return tuple(made)


def file(profile: Profile, totals: tuple[DeviceTotals, ...]) -> File:
    trace = profile.trace
    return File(
        name=trace.file,
        profile_name=profile.name,
        format=trace.format.value,
        generation=trace.generation,
        bytes=trace.size,
        rank=_told(trace.rank),
        world_size=_told(trace.world_size),
        devices=totals,
        machine=dict(trace.machine),
        machine_source="the trace",
        switches=dict(trace.switches),
        notes=notes(profile),
    )


def notes(profile: Profile) -> tuple[Note, ...]:
    """What reading and linking left out, mended or could not tell."""
    gpu, links = profile.gpu, profile.links
    counts = {
        **profile.trace.notes,
        "outside_ops": int(((gpu.call >= 0) & (gpu.op == NO_OP)).sum()),
        "outside_iterations": int((gpu.iteration == OUTSIDE).sum()),
        "external_differs": links.checked - links.agree,
    }
    return tuple(Note(key, count, sentence(key, count)) for key, count in counts.items() if count)


def _told(value: int) -> int | None:
    return None if value == NONE else int(value)


def kernel_lines(chosen: Chosen) -> tuple[KernelLine, ...]:
    """A row for each kernel of the range, the longest time first."""
    profile, cells = chosen.profile, chosen.cells
    count = len(profile.kernels)
    sums, calls = (total(cells.kernel, each, count) for each in (cells.total, cells.calls))
    low, high = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(low, cells.kernel, cells.shortest)
    np.maximum.at(high, cells.kernel, cells.longest)
    made = []
    for kernel in np.argsort(-sums, kind="stable").tolist():
        row, times = profile.kernels[kernel], int(calls[kernel])
        if times:
            whole, least, most = us(sums[kernel]), us(low[kernel]), us(high[kernel])
            answer = row.tensor_cores.value
            made.append(
                KernelLine(kernel, row.name, row.memory, answer, row.rule, times, whole, whole / times, least, most)
            )
    return tuple(made)


def iteration_lines(chosen: Chosen) -> tuple[Iteration, ...]:
    """All of the profile, with those that are not chosen."""
    profile = chosen.profile
    every = choose(profile, None, None)
    cells, count = every.cells, len(profile.iterations.start)
    gpus = max(len(profile.device_order), 1)
    memory, tensor = every.memory, every.tensor_cores
    kernel = ~memory

    def sums(values: Ints, which: NDArray[np.bool_]) -> Ints:
        return total(cells.iteration[which], values[which], count)

    kernels, tensor_kernels = sums(cells.calls, kernel), sums(cells.calls, tensor)
    tensor_time, memory_time = sums(cells.total, tensor), sums(cells.total, memory)
    other_time = sums(cells.total, kernel & ~tensor)
    busy = profile.busy.sum(axis=1) / gpus
    first, until = profile.iterations.first, profile.iterations.until
    return tuple(
        Iteration(
            index=at,
            name=profile.iterations.names[at],
            start_us=us(first[at]),
            wall_us=us(until[at] - first[at]),
            profiled=chosen.start <= at <= chosen.stop,
            kernels=int(kernels[at]),
            tensor_core_kernels=int(tensor_kernels[at]),
            gpu_time_us=us(tensor_time[at] + memory_time[at] + other_time[at]) / gpus,
            tensor_core_time_us=us(tensor_time[at]) / gpus,
            other_kernel_time_us=us(other_time[at]) / gpus,
            memory_time_us=us(memory_time[at]) / gpus,
            busy_us=us(busy[at]),
        )
        for at in range(count)
    )


PIECES = re.compile(r"[0-9]+|[^0-9]+")  # of a name: numbers, and what is between them
MOST_DIGITS = 1 << 30  # so that names stand behind numbers


def op_lines(chosen: Chosen) -> tuple[OpLine, ...]:
    """A row for each op of the range, the longest GPU time first; row 0, work without an op, where it did something."""
    profile, cells, own = chosen.profile, chosen.cells, chosen.op_cells
    count = len(profile.ops)
    gpu, kernel_calls = chosen.by_op(cells.total), chosen.by_op(cells.calls, ~chosen.memory)
    tensor = chosen.by_op(cells.calls, chosen.tensor_cores)
    work = chosen.by_op(cells.calls)
    # Kernels of the ops inside alone: the op's own ones are counted where they were launched, in the cells.
    children = own.gpu_with_children.astype(np.int64) - own.gpu
    calls, inner, cpu, overhead, idle = (
        total(own.op, each, count) for each in (own.calls, children, own.cpu, own.overhead, own.gpu_idle)
    )
    made = []
    for op in np.lexsort((np.arange(count), -cpu, -gpu)).tolist():
        if not calls[op] and not work[op]:
            continue
        row = profile.ops[op]
        flops = known(row.flops)
        made.append(
            OpLine(
                id=op,
                name=row.name,
                type=row.type,
                direction=row.direction.value,
                module=row.module,
                dtypes=row.dtypes,
                shapes=row.shapes,
                stack=row.stack,
                calls=int(calls[op]),
                kernel_calls=int(kernel_calls[op]),
                eligible=row.eligible,
                using_tensor_cores=bool(tensor[op]),
                gpu_us=us(gpu[op]),
                gpu_with_children_us=us(gpu[op] + inner[op]),
                cpu_us=us(cpu[op]),
                cpu_overhead_us=us(overhead[op]),
                gpu_idle_us=us(idle[op]),
                flops=flops,
                tflops=flops * int(calls[op]) / float(gpu[op]) / 1000 if flops and gpu[op] else None,
            )
        )
    return tuple(made)


def op_type_lines(chosen: Chosen) -> tuple[OpTypeLine, ...]:
    """A row for each type, the longest GPU time first. Shortest and longest are of single calls."""
    profile, own = chosen.profile, chosen.op_cells
    names: dict[str, int] = {}
    type_of = np.array([names.setdefault(row.type, len(names)) for row in profile.ops], np.int64)
    of, count = type_of[own.op], len(names)
    gpu = total(type_of[chosen.cells.op], chosen.cells.total, count)
    calls = total(of, own.calls, count)
    ops = np.bincount(type_of[np.union1d(own.op, chosen.cells.op)], minlength=count)
    # GPU work that no call of an op launched: the spread is that of its kernels.
    cells, alone = chosen.cells, calls == 0
    without = np.flatnonzero(alone[type_of[cells.op]])  # cells of work that no call of an op launched
    of_cells = type_of[cells.op][without]
    launches = np.where(alone, total(type_of[cells.op], cells.calls, count), calls)
    sums = {
        "cpu_us": _spreads(total(of, own.cpu, count), calls, (of, own.cpu_shortest, own.cpu_longest)),
        "gpu_us": _spreads(
            gpu,
            launches,
            (of, own.gpu_shortest, own.gpu_longest),
            (of_cells, cells.shortest[without], cells.longest[without]),
            of_calls=np.where(alone, gpu, total(of, own.gpu, count)),
        ),
        "cpu_overhead_us": _spreads(
            total(of, own.overhead, count), calls, (of, own.overhead_shortest, own.overhead_longest)
        ),
        "gpu_idle_us": _spreads(
            total(of, own.gpu_idle, count), calls, (of, own.gpu_idle_shortest, own.gpu_idle_longest)
        ),
    }
    order = np.argsort(-gpu, kind="stable").tolist()
    texts = list(names)
    return tuple(
        OpTypeLine(texts[at], int(ops[at]), int(calls[at]), **{key: spread[at] for key, spread in sums.items()})
        for at in order
        if ops[at]
    )


def _spreads(sums: Ints, calls: Ints, *parts: tuple[Ints, Ints, Ints], of_calls: Ints | None = None) -> list[Spread]:
    """`parts`: (type, shortest, longest) of cells. `of_calls`: sum of the single calls, where that is another one."""
    low, high = np.full(len(sums), np.iinfo(np.int64).max), np.zeros(len(sums), np.int64)
    for of, shortest, longest in parts:
        np.minimum.at(low, of, shortest)
        np.maximum.at(high, of, longest)
    low[calls == 0] = 0
    average = (sums if of_calls is None else of_calls) / np.maximum(calls, 1)
    columns = (each.tolist() for each in (sums, average, low, high))
    return [Spread(*map(us, row)) for row in zip(*columns, strict=True)]


def module_lines(chosen: Chosen) -> tuple[ModuleLine, ...]:
    """A row for each module with all module_lines inside of it. A module stands above those inside of it, and
    layer 2 above layer 10."""
    profile, cells, own = chosen.profile, chosen.cells, chosen.module_cells
    gpu, tensor = chosen.by_op(cells.total), chosen.by_op(cells.total, chosen.tensor_cores)
    sums: dict[str, list[float]] = {}
    for op, row in enumerate(profile.ops):
        if row.module and (gpu[op] or row.module in sums):
            for path in _with_outer(row.module):
                line = sums.setdefault(path, [0, 0, 0, 0])
                line[1] += int(gpu[op])
                line[2] += int(tensor[op])
    calls, cpu = (total(own.module, each, len(profile.modules)) for each in (own.calls, own.cpu))
    for module, path in enumerate(profile.modules):
        if calls[module]:
            line = sums.setdefault(path, [0, 0, 0, 0])
            line[0] += int(calls[module])
            line[3] += int(cpu[module])
    rows = sorted(sums.items(), key=lambda each: _place(each[0]))
    return tuple(ModuleLine(path, int(n), us(g), us(t), us(c)) for path, (n, g, t, c) in rows)


def _place(path: str) -> tuple[list[list[tuple[int, str]]], str]:
    """Sorts paths as a tree, and numbers in names by their value; a name may have more digits than int() takes."""
    names = [[_piece(piece) for piece in PIECES.findall(name)] for name in path.split("/")]
    return names, path


def _piece(piece: str) -> tuple[int, str]:
    if not "0" <= piece[0] <= "9":
        return MOST_DIGITS, piece
    digits = piece.lstrip("0")
    return len(digits), digits


def _with_outer(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[: number + 1]) for number in range(len(parts))]


def document(profile: Profile, start: int | None = None, stop: int | None = None) -> TraceDocument:
    """Of iterations `start` to `stop`, counted from 0, both included; without roofs and advice.

    UsageError: there are no such iterations.
    """
    chosen = choose(profile, start, stop)
    busy_times = unions(profile)
    busy = busy_inside(busy_times, chosen.window)
    return TraceDocument(
        schema_version=SCHEMA_VERSION,
        file=file(profile, devices(chosen, busy_times, busy)),
        summary=summary(chosen, busy),
        iterations=iteration_lines(chosen),
        op_types=op_type_lines(chosen),
        ops=op_lines(chosen),
        kernels=kernel_lines(chosen),
        modules=module_lines(chosen),
        advice=(),
        roofs=(),
    )
