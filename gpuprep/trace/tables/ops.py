"""The tables of ops, of types of ops and of modules."""

from __future__ import annotations

import re

import numpy as np

from gpuprep.trace.columns import Ints
from gpuprep.trace.document import ModuleLine, OpLine, OpTypeLine, Spread
from gpuprep.trace.model.groups import total
from gpuprep.trace.tables.chosen import Chosen, known, us

PIECES = re.compile(r"[0-9]+|[^0-9]+")  # of a name: numbers, and what is between them
MOST_DIGITS = 1 << 30  # so that names stand behind numbers


def lines(chosen: Chosen) -> tuple[OpLine, ...]:
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


def types(chosen: Chosen) -> tuple[OpTypeLine, ...]:
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


def modules(chosen: Chosen) -> tuple[ModuleLine, ...]:
    """A row for each module with all modules inside of it. A module stands above those inside of it, and
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
