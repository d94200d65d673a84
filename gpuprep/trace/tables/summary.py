"""The figures of the dashboard."""

from __future__ import annotations

import numpy as np

from gpuprep.trace.document import Summary
from gpuprep.trace.tables.chosen import Chosen, percent, us


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
