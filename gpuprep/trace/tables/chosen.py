"""The sums of a profile, of the chosen iterations alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gpuprep.errors import UsageError
from gpuprep.trace.columns import Ints
from gpuprep.trace.model.groups import total
from gpuprep.trace.profile import Cells, ModuleCells, OpCells, Profile, UsesTensorCores

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
