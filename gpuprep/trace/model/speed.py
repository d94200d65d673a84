"""Kernels whose names do not tell, and which were faster than CUDA cores can be: they used Tensor Cores."""

from __future__ import annotations

import dataclasses

import numpy as np

from gpuprep.catalogue import Board, board
from gpuprep.trace import work
from gpuprep.trace.columns import Trace
from gpuprep.trace.profile import Cells, KernelRow, OpCells, OpRow, UsesTensorCores
from gpuprep.trace.work.proof import SPEED, proves

MIB = 1 << 20


def proven(
    trace: Trace, ops: list[OpRow], kernels: list[KernelRow], cells: Cells, op_cells: OpCells
) -> list[KernelRow]:
    """The kernels, with yes for those that are proven: of an op its longest unknown one, if no other is a yes."""
    unknown = {at for at, row in enumerate(kernels) if row.tensor_cores is UsesTensorCores.UNKNOWN}
    gpu_board = _board(trace) if unknown else None
    if gpu_board is None:
        return kernels
    memory = np.array([row.memory for row in kernels], bool)
    sure: set[int] = set()
    for op in np.unique(cells.op[np.isin(cells.kernel, list(unknown))]).tolist():
        mine = (cells.op == op) & ~memory[cells.kernel]
        launched = int(cells.calls[mine].sum())
        calls = min(int(op_cells.calls[op_cells.op == op].sum()), launched)
        kernel, total = cells.kernel[mine], cells.total[mine]
        yes = any(kernels[each].tensor_cores is UsesTensorCores.YES for each in set(kernel.tolist()))
        if not yes and _proves(trace, ops[op], gpu_board, calls, int(total.sum())):
            times = np.bincount(kernel, weights=total, minlength=len(kernels))
            sure.add(max(unknown & set(kernel.tolist()), key=lambda each: float(times[each])))
    proven_use = UsesTensorCores.YES
    return [
        dataclasses.replace(row, tensor_cores=proven_use, rule=SPEED) if at in sure else row
        for at, row in enumerate(kernels)
    ]


def _proves(trace: Trace, op: OpRow, device: Board, calls: int, ns: int) -> bool:
    if op.arguments < 0 or not ns:
        return False
    given = trace.arguments[op.arguments]
    shape = work.shape(op.type, given)
    if shape is None or shape.kind == "convolution":  # Winograd and FFT calculate less than is counted
        return False
    return proves(device, work.dtype(op.type, given), shape.flops * shape.needed * calls / ns / 1000)


def _board(trace: Trace) -> Board | None:
    """Of the GPUs that worked, if they are of one kind."""
    used = [device for device in trace.devices if device.index in set(np.unique(trace.gpu.device).tolist())]
    every = {
        device.name: board(
            "",
            name=device.name,
            memory_mib=device.memory_bytes / MIB if device.memory_bytes > 0 else None,
            sms=device.sms if device.sms > 0 else None,
        )
        for device in used
    }
    return next(iter(every.values())) if len(every) == 1 else None
