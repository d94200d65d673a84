"""Rows that are alike in several columns, as one number each; and sums by such numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpuprep.trace.columns import Ints


class Groups:
    """Distinct rows of several columns, sorted by the first, then the second, …"""

    def __init__(self, *columns: Ints) -> None:
        of = np.zeros(len(columns[0]), np.int64)
        first = np.arange(min(1, len(of)))
        for column in columns:
            low = int(column.min()) if len(column) else 0
            width = int(column.max()) - low + 1 if len(column) else 1
            if width >= 2**31:  # groups × width must fit into 64 bits
                column, low = np.unique(column, return_inverse=True)[1], 0
                width = len(column)
            _, first, of = np.unique(of * width + (column - low), return_index=True, return_inverse=True)
        self.of: NDArray[np.int32] = of.astype(np.int32)  # of each row its group
        self.first = first  # of each group its first row
        self.count = len(first)

    def values(self, column: Ints) -> NDArray[np.int32]:
        """What the rows of each group have in a column that groups were made by."""
        return np.asarray(column[self.first], np.int32)

    def sum(self, values: Ints) -> NDArray[np.int64]:
        return total(self.of, values, self.count)

    def size(self) -> NDArray[np.int64]:
        return np.bincount(self.of, minlength=self.count).astype(np.int64)

    def least(self, values: Ints) -> NDArray[np.int64]:
        made = np.full(self.count, np.iinfo(np.int64).max)
        np.minimum.at(made, self.of, values)
        return made

    def most(self, values: Ints) -> NDArray[np.int64]:
        made = np.zeros(self.count, np.int64)
        np.maximum.at(made, self.of, values)
        return made


def total(group: Ints, values: Ints, groups: int) -> NDArray[np.int64]:
    """Sum of whole numbers by group; exact, where a sum of floats would be rounded."""
    made = np.zeros(groups, np.int64)
    np.add.at(made, group, np.asarray(values, np.int64))
    return made


def narrow(values: Ints) -> Ints:
    """The same in 32 bits where they fit: of millions of rows that is half of the memory."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    return values.astype(np.int32) if low >= -(2**31) and high < 2**31 else values
