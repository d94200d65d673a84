"""Which kernels an op launched in the chosen iterations, and how long they took."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from gpuprep.trace.profile import KernelRow, Profile, UsesTensorCores


@dataclass(frozen=True)
class OpKernels:
    """Kernels by GPU time, the longest first, with nanoseconds. Memory operations are not among them."""

    rows: tuple[tuple[KernelRow, int], ...] = ()
    calls: int = 0

    @property
    def main(self) -> KernelRow | None:
        return self.rows[0][0] if self.rows else None

    @property
    def uses_tensor_cores(self) -> UsesTensorCores:
        """Yes where a kernel does, unknown where one might; no where none does, or there is none."""
        answers = {row.tensor_cores for row, _ in self.rows}
        for answer in (UsesTensorCores.YES, UsesTensorCores.UNKNOWN):
            if answer in answers:
                return answer
        return UsesTensorCores.NO

    @property
    def calculates_less(self) -> bool:
        """Winograd's algorithm and FFT multiply less often than a convolution is counted."""
        return any(FEWER.search(row.name) for row, _ in self.rows)

    @property
    def beside(self) -> tuple[float, str]:
        """(share of the time, name) of kernels that only prepare or end the work."""
        if len(self.rows) < 2:
            return 0.0, ""
        whole = sum(ns for _, ns in self.rows)
        rest = [(ns, row.name) for row, ns in self.rows if _helps(row)]
        return (sum(ns for ns, _ in rest) / whole, max(rest)[1]) if rest and whole else (0.0, "")


FEWER = re.compile(r"winograd|fft", re.IGNORECASE)
HELPERS = ("helper-of-gemm", "layout", "flash-helper")  # rules of work/kernels.yml
COPIES = ("torch-native", "elementwise_kernel")  # PyTorch's copies, conversions and additions; a rule, and in the name


def _helps(row: KernelRow) -> bool:
    return row.rule in HELPERS or (row.rule == COPIES[0] and COPIES[1] in row.name)


def kernels_of_ops(profile: Profile, start: int, stop: int) -> dict[int, OpKernels]:
    """By op, of iterations `start` to `stop`, both included."""
    cells = profile.cells
    memory = np.array([row.memory for row in profile.kernels], bool)
    inside = (cells.iteration >= start) & (cells.iteration <= stop)
    if len(memory):
        inside &= ~memory[cells.kernel]
    op, kernel = cells.op[inside].astype(np.int64), cells.kernel[inside].astype(np.int64)
    pairs, of = np.unique(op * max(1, len(memory)) + kernel, return_inverse=True)
    total = np.bincount(of, weights=cells.total[inside], minlength=len(pairs))
    calls = np.bincount(of, weights=cells.calls[inside], minlength=len(pairs))
    rows_by_op: dict[int, list[tuple[KernelRow, int]]] = {}
    counts: dict[int, int] = {}
    for pair, ns, count in zip(pairs.tolist(), total.tolist(), calls.tolist(), strict=True):
        own, which = divmod(pair, len(memory))
        rows_by_op.setdefault(own, []).append((profile.kernels[which], int(ns)))
        counts[own] = counts.get(own, 0) + int(count)
    return {
        own: OpKernels(tuple(sorted(rows, key=lambda row: -row[1])), counts[own]) for own, rows in rows_by_op.items()
    }
