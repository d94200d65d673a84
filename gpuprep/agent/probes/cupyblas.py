"""One matrix product through cublasGemmEx, called by CuPy: for CUDA 11, which nvmath-python no longer serves.

The same D = Aᵀ B, operands and interface as cublaslt.Product. cuBLAS chooses the algorithm and does not report it, so
tile and waves are missing. It has no FP8. Imported only inside a probe.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import cupy
from cupy_backends.cuda.libs import cublas

from gpuprep.agent.compute.libraries import cublas_version
from gpuprep.agent.probes.cudadevice import CudaDevice
from gpuprep.agent.probes.gemmoperands import OperandSets
from gpuprep.agent.probes.gemmtypes import R_8F_E4M3, DataType, Shape

TRANSPOSED, PLAIN = 1, 0  # cublasOperation_t
DEFAULT_ALGORITHM = 99  # CUBLAS_GEMM_DEFAULT_TENSOR_OP
SILENT = {"missing": "not_supported", "detail": "cublasGemmEx chooses the algorithm and does not tell which"}
Error = cublas.CUBLASError


def version() -> str:
    """cuBLAS's version. Loads the library, if it is not loaded yet. Needs a GPU."""
    handle = cublas.create()
    try:
        return cublas_version(cublas.getVersion(handle))
    finally:
        cublas.destroy(handle)


def load_kernels(device: CudaDevice, kinds: Sequence[DataType], shape: Shape) -> None:
    """Does nothing: cuBLAS loads the kernels of a type at its first product."""


class Candidate(NamedTuple):
    description: Dict[str, Any]


class Product(OperandSets):
    """Operands of one type and shape on one device. Errors: `Error` and CudaDevice's."""

    def __init__(self, device: CudaDevice, kind: DataType, shape: Shape, of: Optional[OperandSets] = None) -> None:
        super().__init__(device, kind, shape, of)
        self._handle: Optional[int] = cublas.create()
        # CuPy sets the handle's stream at every call, to the one that it takes for the current.
        self._stream = cupy.cuda.ExternalStream(int(device.stream.handle))

    def close(self) -> None:
        super().close()
        if self._handle is not None:
            cublas.destroy(self._handle)
            self._handle = None

    def candidates(self, most: int) -> List[Candidate]:  # noqa: ARG002  there is one: cuBLAS chooses
        return [] if self.kind.inputs == R_8F_E4M3 else [Candidate(SILENT)]

    def run(self, candidate: Candidate, turn: Optional[int] = None) -> None:  # noqa: ARG002
        """Put the product of the next set of operands, or of set `turn`, on the device's stream."""
        m, n, k = self.shape
        a, b, d = self._addresses(turn)
        alpha, beta = self._alpha.ctypes.data, self._beta.ctypes.data
        kind = self.kind
        with self._stream:
            cublas.gemmEx(self._handle, TRANSPOSED, PLAIN, m, n, k, alpha, a, kind.inputs, k, b, kind.inputs, k,
                          beta, d, kind.output, m, kind.compute, DEFAULT_ALGORITHM)  # fmt: skip
