"""Groups rows with equal values in several columns under one number, and sums by these numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpuprep.trace.columns import Ints
from gpuprep.trace.model.intervals import CHUNK

FEW = 4  # possible groups a row


class Groups:
    """Distinct rows of several columns, sorted by the first, then the second, …"""

    def __init__(self, *columns: Ints) -> None:
        of: Ints = np.zeros(len(columns[0]), np.int32)
        count = min(1, len(of))
        for column in columns:
            low = int(column.min()) if len(column) else 0
            width = int(column.max()) - low + 1 if len(column) else 1
            if width >= 2**31:  # groups × width must fit into 64 bits
                column, low = np.unique(column, return_inverse=True)[1], 0
                width = len(column)
            key = of.astype(np.int32 if count * width < 2**31 else np.int64)
            key *= width
            key += (column - low).astype(key.dtype)
            of, count = _numbered(key, count * width)
        self.of = np.asarray(of, np.int32)  # of each row its group
        self.count = count
        self.first = np.empty(count, np.int64)  # of each group its first row
        self.first[of[::-1]] = np.arange(len(of) - 1, -1, -1, dtype=np.int32)

    def values(self, column: Ints) -> NDArray[np.int32]:
        """What the rows of each group have in a column that groups were made by."""
        return np.asarray(column[self.first], np.int32)

    def sum(self, values: Ints) -> NDArray[np.int64]:
        return total(self.of, values, self.count)

    def size(self) -> NDArray[np.int64]:
        made = np.zeros(self.count, np.int64)
        for part in parts(len(self.of)):
            made += np.bincount(self.of[part], minlength=self.count)
        return made

    def least(self, values: Ints) -> NDArray[np.int64]:
        made = np.full(self.count, np.iinfo(np.int64).max)
        for part in parts(len(self.of)):
            np.minimum.at(made, self.of[part], values[part])
        return made

    def most(self, values: Ints) -> NDArray[np.int64]:
        made = np.zeros(self.count, np.int64)
        for part in parts(len(self.of)):
            np.maximum.at(made, self.of[part], values[part])
        return made


def _numbered(key: Ints, width: int) -> tuple[NDArray[np.int32], int]:
    """Keys 0 … width − 1 as numbers without gaps, in the same order."""
    if width <= FEW * len(key):  # without a sort, and with less memory
        present = np.zeros(width, bool)
        present[key] = True
        number = np.cumsum(present, dtype=np.int32)
        number -= 1
        return number[key], int(number[-1]) + 1 if width else 0
    distinct, of = np.unique(key, return_inverse=True)
    return of.astype(np.int32), len(distinct)


def total(group: Ints, values: Ints, groups: int) -> NDArray[np.int64]:
    """Sum of whole numbers by group; exact, where a sum of floats would be rounded."""
    made = np.zeros(groups, np.int64)
    for part in parts(len(group)):
        np.add.at(made, group[part], np.asarray(values[part], np.int64))
    return made


def parts(rows: int) -> list[slice]:
    """Of a million rows each: of tens of millions each step in 64 bits would need hundreds of MB."""
    return [slice(begin, begin + CHUNK) for begin in range(0, rows, CHUNK)]


def joined(made: list[Ints]) -> Ints:
    """Parts, each of narrow(): in 32 bits where all are."""
    return np.concatenate(made) if made else np.zeros(0, np.int32)


def narrow(values: Ints) -> Ints:
    """The same in 32 bits where they fit: of millions of rows that is half of the memory."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    return values.astype(np.int32) if low >= -(2**31) and high < 2**31 else values
