"""The tables of kernels and of iterations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpuprep.trace.columns import Ints
from gpuprep.trace.document import Iteration, KernelLine
from gpuprep.trace.model.groups import total
from gpuprep.trace.tables.chosen import Chosen, choose, us


def lines(chosen: Chosen) -> tuple[KernelLine, ...]:
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


def iterations(chosen: Chosen) -> tuple[Iteration, ...]:
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
