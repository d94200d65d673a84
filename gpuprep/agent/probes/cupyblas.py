"""One matrix product through cublasGemmEx, called by CuPy: for CUDA 11, which nvmath-python no longer serves.

The same D = Aᵀ B, operands and interface as cublaslt.Product. cuBLAS chooses the algorithm and does not tell which:
tile and waves are missing. FP8 it does not have. Imported only inside a probe.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import cupy
import numpy as np
from cupy_backends.cuda.libs import cublas

from gpuprep.agent.libraries import cublas_version
from gpuprep.agent.probes.cudadevice import CudaDevice
from gpuprep.agent.probes.gemmshapes import Shape, sets
from gpuprep.agent.probes.gemmtypes import BYTES, R_8F_E4M3, R_16F, R_32I, R_64F, DataType

TRANSPOSED, PLAIN = 1, 0  # cublasOperation_t
DEFAULT_ALGORITHM = 99  # CUBLAS_GEMM_DEFAULT_TENSOR_OP
SCALARS = {R_64F: np.float64, R_16F: np.float16, R_32I: np.int32}  # of alpha and beta; else float32
SILENT = {"missing": "not_supported", "detail": "cublasGemmEx chooses the algorithm and does not tell which"}
Error = cublas.CUBLASError


def version() -> str:
    """Loads the library, if it is not yet. Needs a GPU."""
    handle = cublas.create()
    try:
        return cublas_version(cublas.getVersion(handle))
    finally:
        cublas.destroy(handle)


def load_kernels(device: CudaDevice, kinds: Sequence[DataType], shape: Shape) -> None:
    """cuBLAS loads each type's at its first product."""


class Candidate(NamedTuple):
    description: Dict[str, Any]


class Operands(NamedTuple):
    a: Any
    b: Any
    d: Any


class Product:
    """Operands of one type and shape on one device. Errors: `Error` and CudaDevice's.

    `of`: the product whose transpose this one calculates, with the memory of that one.
    """

    def __init__(self, device: CudaDevice, kind: DataType, shape: Shape, of: Optional[Product] = None) -> None:
        self.device, self.kind, self.shape, self._of = device, kind, shape, of
        self._handle: Optional[int] = cublas.create()
        # CuPy sets the handle's stream at every call, to the one that it takes for the current.
        self._stream = cupy.cuda.ExternalStream(int(device.stream.handle))
        scalar = SCALARS.get(kind.scale, np.float32)
        self._alpha, self._beta = np.ones(1, scalar), np.zeros(1, scalar)
        self.operands: List[Operands] = []
        self._turn = 0

    def allocate(self, count: Optional[int] = None) -> None:
        """Memory for `count` sets of operands, by default as many as leave the cache."""
        m, n, k = self.shape
        each, out = BYTES[self.kind.inputs], BYTES[self.kind.output]
        sizes = (k * m * each, k * n * each, m * n * out)
        for _ in range(count or sets(sum(sizes), self.device.l2_bytes)):
            self.operands.append(Operands(*[self.device.allocate(size) for size in sizes]))

    def turned(self) -> Product:
        """The same product as Dᵀ = Bᵀ A. It is to be closed before this one."""
        m, n, k = self.shape
        other = Product(self.device, self.kind, Shape(n, m, k), of=self)
        other.operands = [Operands(a=pair.b, b=pair.a, d=pair.d) for pair in self.operands]
        return other

    def close(self) -> None:
        self.device.sync()
        for operands in self.operands if self._of is None else ():
            for buffer in operands:
                buffer.close()
        self.operands = []
        if self._handle is not None:
            cublas.destroy(self._handle)
            self._handle = None

    def candidates(self, most: int) -> List[Candidate]:  # noqa: ARG002  there is one: cuBLAS chooses
        return [] if self.kind.inputs == R_8F_E4M3 else [Candidate(SILENT)]

    def run(self, candidate: Candidate, turn: Optional[int] = None) -> None:  # noqa: ARG002
        """Puts the product of the next set of operands, or of set `turn`, on the device's stream."""
        if turn is None:
            turn = self._turn = (self._turn + 1) % len(self.operands)
        m, n, k = self.shape
        a, b, d = (int(buffer.handle) for buffer in self.operands[turn])
        alpha, beta = self._alpha.ctypes.data, self._beta.ctypes.data
        kind = self.kind
        with self._stream:
            cublas.gemmEx(self._handle, TRANSPOSED, PLAIN, m, n, k, alpha, a, kind.inputs, k, b, kind.inputs, k,
                          beta, d, kind.output, m, kind.compute, DEFAULT_ALGORITHM)  # fmt: skip
