"""The memory of one matrix product: A, B and D in so many sets that a set has left the cache before it is used again.

Used for the products of both libraries. Imported only inside a probe.
"""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Tuple, TypeVar

import numpy as np

from gpuprep.agent.probes.cudadevice import CudaDevice
from gpuprep.agent.probes.gemmtypes import BYTES, R_16F, R_32I, R_64F, DataType, Shape, sets

SCALARS = {R_64F: np.float64, R_16F: np.float16, R_32I: np.int32}  # of alpha and beta; else float32
OfLibrary = TypeVar("OfLibrary", bound="OperandSets")


class Operands(NamedTuple):
    a: Any
    b: Any
    d: Any


class OperandSets:
    """Operands of one type and shape on one device, and alpha (1) and beta (0).

    `of`: this product calculates the transpose of that product, in the memory of that product.
    """

    def __init__(self, device: CudaDevice, kind: DataType, shape: Shape, of: Optional[OperandSets] = None) -> None:
        self.device, self.kind, self.shape, self._of = device, kind, shape, of
        scalar = SCALARS.get(kind.scale, np.float32)
        self._alpha, self._beta = np.ones(1, scalar), np.zeros(1, scalar)
        self.operands: List[Operands] = []
        self._turn = 0

    def allocate(self, count: Optional[int] = None) -> None:
        """Allocate `count` sets of operands; by default enough sets to exceed the cache."""
        m, n, k = self.shape
        each, out = BYTES[self.kind.inputs], BYTES[self.kind.output]
        sizes = (k * m * each, k * n * each, m * n * out)
        for _ in range(count or sets(sum(sizes), self.device.l2_bytes)):
            self.operands.append(Operands(*[self.device.allocate(size) for size in sizes]))

    def turned(self: OfLibrary) -> OfLibrary:
        """The same product as Dᵀ = Bᵀ A. Close it before this product."""
        m, n, k = self.shape
        other = type(self)(self.device, self.kind, Shape(n, m, k), of=self)
        other.operands = [Operands(a=pair.b, b=pair.a, d=pair.d) for pair in self.operands]
        return other

    def close(self) -> None:
        self.device.sync()
        for operands in self.operands if self._of is None else ():
            for buffer in operands:
                buffer.close()
        self.operands = []

    def _addresses(self, turn: Optional[int]) -> Tuple[int, int, int]:
        """Addresses of A, B and D of the next set of operands, or of set `turn`."""
        if turn is None:
            turn = self._turn = (self._turn + 1) % len(self.operands)
        a, b, d = (int(buffer.handle) for buffer in self.operands[turn])
        return a, b, d
