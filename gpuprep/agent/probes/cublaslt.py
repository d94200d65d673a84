"""One matrix product through cuBLASLt: D = Aᵀ B with A and B K-major ("TN"), as INT8 and FP8 demand it.

A is k × m, B is k × n, D is m × n, each column-major. Imported only inside a probe.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import numpy as np
from cuda.core._utils.cuda_utils import CUDAError
from nvmath.bindings import cublasLt as lt

from gpuprep.agent.compute.libraries import cublas_version
from gpuprep.agent.probes.cudadevice import CudaDevice
from gpuprep.agent.probes.gemmalgorithm import described, mirrored
from gpuprep.agent.probes.gemmoperands import OperandSets
from gpuprep.agent.probes.gemmtypes import R_8F_E4M3, DataType, Shape

WORKSPACE_BYTES = 64 * 2**20
TRANSPOSED = 1  # CUBLAS_OP_T
Error = lt.cuBLASLtError


def version() -> str:
    """cuBLASLt's version. Loads the library, if it is not loaded yet."""
    return cublas_version(lt.get_version())


def load_kernels(device: CudaDevice, kinds: Sequence[DataType], shape: Shape) -> None:
    """Load the kernels of all types in parallel: one after the other took half a second longer on an H100."""

    def ask(kind: DataType) -> None:
        device.use()
        with contextlib.closing(Product(device, kind, shape)) as product:
            product.candidates(1)

    _handle(device)
    with ThreadPoolExecutor(len(kinds)) as pool:
        for asked in [pool.submit(ask, kind) for kind in kinds]:
            # Ignored: the product fails in the same way, and its row has the reason.
            with contextlib.suppress(Error, CUDAError, RuntimeError, MemoryError):
                asked.result()


def _handle(device: CudaDevice) -> int:
    handle: int = device.kept("cublasLt", lt.create)  # making it takes milliseconds
    return handle


class Candidate(NamedTuple):
    address: int  # of its cublasLtMatmulAlgo_t
    waves: float
    description: Dict[str, Any]


class Product(OperandSets):
    """Descriptors, operands and algorithms of one type and shape on one device. Errors: `Error` and CudaDevice's."""

    def __init__(self, device: CudaDevice, kind: DataType, shape: Shape, of: Optional[OperandSets] = None) -> None:
        super().__init__(device, kind, shape, of)
        m, n, k = shape
        self._undo: List[Any] = []
        self._handle = _handle(device)
        self._operation = self._kept(lt.matmul_desc_create(kind.compute, kind.scale), lt.matmul_desc_destroy)
        self._describe(lt.MatmulDescAttribute.TRANSA, TRANSPOSED)
        if kind.inputs == R_8F_E4M3:
            self._describe(lt.MatmulDescAttribute.FAST_ACCUM, 1)
        self._a = self._kept(lt.matrix_layout_create(kind.inputs, k, m, k), lt.matrix_layout_destroy)
        self._b = self._kept(lt.matrix_layout_create(kind.inputs, k, n, k), lt.matrix_layout_destroy)
        self._d = self._kept(lt.matrix_layout_create(kind.output, m, n, m), lt.matrix_layout_destroy)
        self._results: Any = None
        self._workspace: Any = None

    def _kept(self, what: int, undo: Any) -> int:
        self._undo.append((undo, what))
        return what

    def _describe(self, attribute: Any, value: int) -> None:
        holder = np.array([value], dtype=lt.get_matmul_desc_attribute_dtype(attribute))
        lt.matmul_desc_set_attribute(self._operation, attribute, holder.ctypes.data, holder.nbytes)

    def allocate(self, count: Optional[int] = None) -> None:
        """Allocate `count` sets of operands (see OperandSets) and the workspace."""
        self._workspace = self.device.allocate(WORKSPACE_BYTES)
        super().allocate(count)

    def turned(self) -> Product:
        """The transpose of the product (see OperandSets), for which cuBLASLt has other algorithms."""
        other = super().turned()
        other._workspace = self._workspace
        return other

    def close(self) -> None:
        super().close()
        if self._of is None and self._workspace is not None:
            self._workspace.close()
        self._workspace = None
        while self._undo:
            undo, what = self._undo.pop()
            undo(what)

    def candidates(self, most: int) -> List[Candidate]:
        """cuBLASLt's own proposals, best guess first; [] if it has none for this type on this GPU."""
        preference = lt.matmul_preference_create()
        try:
            limit = np.array([WORKSPACE_BYTES], dtype=np.uint64)
            attribute = lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES
            lt.matmul_preference_set_attribute(preference, attribute, limit.ctypes.data, limit.nbytes)
            self._results = lt.MatmulHeuristicResult(most)
            count = np.zeros(1, dtype=np.int32)
            arguments = (self._a, self._b, self._d, self._d, preference, most, self._results.ptr, count.ctypes.data)
            lt.matmul_algo_get_heuristic(self._handle, self._operation, *arguments)
        finally:
            lt.matmul_preference_destroy(preference)
        size = lt.matmul_heuristic_result_dtype.itemsize
        rows = [self._results.ptr + size * i for i in range(int(count[0]))]
        return [self._candidate(address, i) for i, address in enumerate(rows)]

    def _candidate(self, address: int, row: int) -> Candidate:
        waves = round(float(np.atleast_1d(self._results.waves_count)[row]), 3)
        names = lt.MatmulAlgoConfigAttribute
        tile = _name(lt.MatmulTile, _configured(address, names.TILE_ID))
        stages = _name(lt.MatmulStages, _configured(address, names.STAGES_ID))
        description = described(tile, stages, _configured(address, names.SPLITK_NUM), waves)
        return Candidate(address, waves, description if self._of is None else mirrored(description))

    def run(self, candidate: Candidate, turn: Optional[int] = None) -> None:
        """Put the product of the next set of operands, or of set `turn`, on the device's stream."""
        a, b, d = self._addresses(turn)
        alpha, beta = self._alpha.ctypes.data, self._beta.ctypes.data
        stream = int(self.device.stream.handle)
        lt.matmul(self._handle, self._operation, alpha, a, self._a, b, self._b, beta, d, self._d, d, self._d,
                  candidate.address, int(self._workspace.handle), WORKSPACE_BYTES, stream)  # fmt: skip


def _configured(address: int, attribute: Any) -> int:
    value = np.zeros(1, dtype=lt.get_matmul_algo_config_attribute_dtype(attribute))
    written = np.zeros(1, dtype=np.uint64)
    lt.matmul_algo_config_get_attribute(address, attribute, value.ctypes.data, value.nbytes, written.ctypes.data)
    return int(value[0])


def _name(kinds: Any, number: int) -> str:
    """The name of a number, or the number itself: a newer library may use numbers that the bindings do not name."""
    known = {kind.value: kind.name for kind in kinds}
    return str(known.get(number, number))
