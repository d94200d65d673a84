"""The nccl probe's worker: makes communicators over all GPUs, then checks and times each collective in each size.

Every message goes to the probe at once, so that measurements are kept if a later call never returns:
{"doing": words}, {"loaded": {...}}, {"most_bytes": n}, {"point": POINT of docs/records.md}, {"error": words}.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import struct
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Sequence, Tuple

from gpuprep.agent.compute import cudacalls, kernels, libraries, ncclplan
from gpuprep.agent.compute.cudacalls import Cuda
from gpuprep.agent.compute.ncclplan import ELEMENT
from gpuprep.agent.programs.worker import Tell
from gpuprep.records import Missing, to_json_value

# ---------------------------------------------------------------- nccllibrary

# NVIDIA's NCCL by its C interface (nccl.h 2.x), for one process with all GPUs.

SONAME = "libnccl.so.2"
FLOAT32, SUM = 7, 0  # ncclDataType_t, ncclRedOp_t
_ADDRESS, _COUNT, _NUMBER = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
ARGUMENTS = {
    "ncclGetVersion": [_ADDRESS],
    "ncclCommInitAll": [_ADDRESS, _NUMBER, _ADDRESS],
    "ncclCommDestroy": [_ADDRESS],
    "ncclGroupStart": [],
    "ncclGroupEnd": [],
    # sent, received, count, type, (operation,) communicator, stream
    "ncclAllReduce": [_ADDRESS, _ADDRESS, _COUNT, _NUMBER, _NUMBER, _ADDRESS, _ADDRESS],
    "ncclAllGather": [_ADDRESS, _ADDRESS, _COUNT, _NUMBER, _ADDRESS, _ADDRESS],
    "ncclReduceScatter": [_ADDRESS, _ADDRESS, _COUNT, _NUMBER, _NUMBER, _ADDRESS, _ADDRESS],
}


class NcclFailed(RuntimeError):
    """A call that NCCL refused: "ncclCommInitAll: unhandled system error (...)"."""


class Nccl:
    """The library that a program on this machine gets for NCCL's soname. Raises OSError without one."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(SONAME)
        for name, kinds in ARGUMENTS.items():
            function = getattr(self._library, name)
            function.argtypes, function.restype = kinds, _NUMBER
        self._library.ncclGetErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: Any) -> None:
        """Call an NCCL function. Raises NcclFailed for an error."""
        status = getattr(self._library, name)(*arguments)
        if status:
            raise NcclFailed(f"{name}: {self._words(status)}")

    def version(self) -> str:
        number = ctypes.c_int()
        self.call("ncclGetVersion", ctypes.byref(number))
        return version_words(number.value)

    def communicators(self, devices: Sequence[int]) -> List[int]:
        """One communicator per CUDA device ordinal in `devices`; its rank is its position in the list."""
        made = (ctypes.c_void_p * len(devices))()
        self.call("ncclCommInitAll", made, len(devices), (ctypes.c_int * len(devices))(*devices))
        return [int(handle or 0) for handle in made]

    def _words(self, status: int) -> str:
        message = (self._library.ncclGetErrorString(status) or b"").decode(errors="replace")
        last = getattr(self._library, "ncclGetLastError", None)  # from NCCL 2.13 on
        if last is None:
            return message
        last.argtypes, last.restype = [_ADDRESS], ctypes.c_char_p
        more = (last(None) or b"").decode(errors="replace").strip()
        return f"{message} ({more})" if more else message


def version_words(number: int) -> str:
    """ncclGetVersion's number: 22703 is 2.27.3; before 2.9 it was 2708 for 2.7.8."""
    thousands = 10000 if number >= 10000 else 1000
    return f"{number // thousands}.{number % thousands // 100}.{number % 100}"


# ---------------------------------------------------------------- ncclrun

# Seconds of one batch; a point is the median of BATCHES. After TIME_LEFT seconds no further size is begun.
FULL_SECONDS, QUICK_SECONDS = 0.05, 0.03
BATCHES = 3
MOST_REPEATS = 100
SLOW_SECONDS = 1.0  # a collective that takes longer is timed once
TIME_LEFT, QUICK_TIME_LEFT = 150.0, 30.0
BLOCK, BLOCKS_PER_SM = 256, 8
# Whole numbers, so that sums are exact; they depend on place and rank, so that a share in the wrong place is seen.
KERNELS = r"""
typedef unsigned long long u64;
__device__ float value(u64 place, u64 rank) { return (float)((place * 31 + (place >> 12) * 7 + rank * 17) % 1021); }
__device__ u64 first() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ u64 step() { return (u64)gridDim.x * blockDim.x; }
extern "C" __global__ void fill(float* data, u64 from, u64 count, u64 rank) {
    for (u64 i = from + first(); i < from + count; i += step()) data[i] = value(i, rank);
}
extern "C" __global__ void summed(const float* data, u64 from, u64 count, u64 ranks, u64* wrong) {
    for (u64 i = from + first(); i < from + count; i += step()) {
        float sum = 0;
        for (u64 rank = 0; rank < ranks; rank++) sum += value(i, rank);
        if (!(data[i] == sum)) atomicAdd(wrong, 1ULL);
    }
}
extern "C" __global__ void gathered(const float* data, u64 share, u64 count, u64* wrong) {
    for (u64 i = first(); i < count; i += step())
        if (!(data[i] == value(i, i / share))) atomicAdd(wrong, 1ULL);
}
"""


@dataclass
class Rank:
    """One GPU: its stream, its buffer (all collectives work in place) and its counter of wrong elements."""

    number: int
    device: Any
    stream: Any
    code: Any
    communicator: int = 0
    buffer: int = 0
    counter: int = 0


def work(tell: Tell, uuids: Sequence[str], quick: bool, log: str) -> None:
    """Measure all collectives. `uuids`: GPUs in NVML's order. `log`: the file for NCCL's own log."""
    tell({"doing": "loading CUDA and NCCL"})
    os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT", NCCL_DEBUG_FILE=log)
    cuda = cudacalls.open_cuda()
    compiler = cudacalls.load_nvrtc() if isinstance(cuda, Cuda) else cuda
    if isinstance(cuda, Missing) or isinstance(compiler, Missing):
        tell({"missing": to_json_value(compiler)})
        return
    try:
        nccl = Nccl()
        version = nccl.version()
    except (OSError, AttributeError) as error:
        tell({"missing": to_json_value(Missing("not_installed", f"the loader finds no NCCL: {error}"))})
        return
    loaded = libraries.loaded({"nccl": version, **compiler}, names=("nccl", "cuda", "nvrtc"))
    bindings = cudacalls.versions((*cudacalls.BINDINGS, "numpy"))
    tell({"loaded": {"version": version, "libraries": to_json_value(loaded), "bindings": bindings}})
    try:
        _Collectives(cuda, nccl, tell).run(uuids, quick)
    except cuda.errors as error:  # NcclFailed is a RuntimeError, which they are, too
        tell({"error": str(error)})


class _Collectives:
    def __init__(self, cuda: Cuda, nccl: Nccl, tell: Tell) -> None:
        self.cuda, self.nccl, self.tell = cuda, nccl, tell
        self.ranks: List[Rank] = []

    def run(self, uuids: Sequence[str], quick: bool) -> None:
        for number, uuid in enumerate(uuids):
            device = self.cuda.device(uuid)
            code = kernels.compiled(self.cuda.core, KERNELS, device.arch)
            self.ranks.append(Rank(number, device, device.create_stream(), code))
        self.tell({"doing": "making the communicators (ncclCommInitAll)"})
        made = self.nccl.communicators([rank.device.device_id for rank in self.ranks])
        most = min(self._free(rank) for rank in self.ranks)
        self.tell({"most_bytes": most})
        for rank, communicator in zip(self.ranks, made):  # noqa: B905
            rank.device.set_current()
            rank.communicator = communicator
            rank.buffer, rank.counter = self.cuda.allocate(most), self.cuda.allocate(8)
        until = time.monotonic() + (QUICK_TIME_LEFT if quick else TIME_LEFT)
        for operation in ncclplan.OPERATIONS:
            for size in ncclplan.sizes(quick, most):
                if time.monotonic() > until:
                    return
                fitted = ncclplan.fitted(operation, size, len(self.ranks))
                self.tell({"doing": f"{operation} of {ncclplan.words(fitted)}"})
                self.tell({"point": self._point(operation, fitted, QUICK_SECONDS if quick else FULL_SECONDS)})

    def _free(self, rank: Rank) -> int:
        rank.device.set_current()
        return ncclplan.most_bytes(int(self.cuda.call("cuMemGetInfo")[0]))

    def _point(self, operation: str, size: int, seconds: float) -> Dict[str, Any]:
        launch = self._launch(operation, size)
        wrong = self._check(operation, size, launch)
        once = self._timed(launch, 1)
        if once > SLOW_SECONDS:
            repeats, taken = 1, [once]
        else:
            repeats = max(2, min(MOST_REPEATS, int(seconds / once)))
            taken = [self._timed(launch, repeats) for _ in range(BATCHES)]
        measured = ncclplan.point(operation, size, len(self.ranks), statistics.median(taken), wrong)
        return {**measured, "repeats": repeats}

    # ------------------------------------------------------------ the collectives

    def _launch(self, operation: str, size: int) -> Callable[[], None]:
        """A function that starts one collective on every GPU's stream, in place: shares are parts of the buffer."""
        share = size // len(self.ranks)
        function = ""
        calls: List[Tuple[int, ...]] = []
        for rank in self.ranks:
            own, whole = rank.buffer + rank.number * share, rank.buffer
            end = (rank.communicator, int(rank.stream.handle))
            call: Tuple[int, ...]
            if operation == "all_reduce":
                function, call = "ncclAllReduce", (whole, whole, size // ELEMENT, FLOAT32, SUM, *end)
            elif operation == "all_gather":
                function, call = "ncclAllGather", (own, whole, share // ELEMENT, FLOAT32, *end)
            else:
                function, call = "ncclReduceScatter", (whole, own, share // ELEMENT, FLOAT32, SUM, *end)
            calls.append(call)

        def launch() -> None:
            self.nccl.call("ncclGroupStart")
            for call in calls:
                self.nccl.call(function, *call)
            self.nccl.call("ncclGroupEnd")

        return launch

    def _timed(self, launch: Callable[[], None], repeats: int) -> float:
        """Seconds per launch: measured from the first launch until every GPU has ended the last."""
        started = time.perf_counter()
        for _ in range(repeats):
            launch()
        self._wait()
        return (time.perf_counter() - started) / repeats

    def _wait(self) -> None:
        for rank in self.ranks:
            rank.stream.sync()

    # ------------------------------------------------------------ are the results right?

    def _check(self, operation: str, size: int, launch: Callable[[], None]) -> int:
        """The number of wrong result elements on all GPUs together."""
        count, n = size // ELEMENT, len(self.ranks)
        share = count // n
        for rank in self.ranks:
            rank.device.set_current()
            self.cuda.call("cuMemsetD8", self._pointer(rank.buffer), 0xFF, size)  # not-a-numbers
            self.cuda.call("cuMemsetD8", self._pointer(rank.counter), 0, 8)
            first, length = (rank.number * share, share) if operation == "all_gather" else (0, count)
            self.cuda.call("cuCtxSynchronize")  # the sets are on another stream
            self._kernel(rank, "fill", rank.buffer, first, length, rank.number)
        self._wait()
        launch()
        self._wait()
        for rank in self.ranks:
            rank.device.set_current()
            if operation == "all_gather":
                self._kernel(rank, "gathered", rank.buffer, share, count, rank.counter)
            else:
                first, length = (rank.number * share, share) if operation == "reduce_scatter" else (0, count)
                self._kernel(rank, "summed", rank.buffer, first, length, n, rank.counter)
        self._wait()
        return sum(self._counted(rank) for rank in self.ranks)

    def _kernel(self, rank: Rank, name: str, *arguments: int) -> None:
        config = self.cuda.core.LaunchConfig(
            grid=BLOCKS_PER_SM * rank.device.properties.multiprocessor_count, block=BLOCK
        )
        self.cuda.core.launch(rank.stream, config, rank.code.get_kernel(name), *arguments)

    def _counted(self, rank: Rank) -> int:
        rank.device.set_current()
        number: int = struct.unpack("<Q", self.cuda.download(rank.counter, ctypes.sizeof(ctypes.c_uint64)))[0]
        return number

    def _pointer(self, address: int) -> Any:
        return self.cuda.driver.CUdeviceptr(address)
