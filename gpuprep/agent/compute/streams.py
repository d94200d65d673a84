"""Bytes per second of one GPU's memory and of its link to the host.

Sizes are well past the L2 cache. A copy counts the bytes read and the bytes written, as STREAM and torch's users do;
a triad (a = b + s*c) counts all three arrays.
"""

from __future__ import annotations

import array
import ctypes
import operator
import time
from typing import Any, Callable, Dict, List, Sequence, Tuple, Union

from gpuprep.agent.compute import kernels
from gpuprep.agent.compute.cudacalls import Cuda, CudaFailed, Timer
from gpuprep.records import Missing

MIB = 2**20
LARGEST_MIB = 2048  # of one of the three buffers
PAST_L2 = 3
BLOCK = 256
BLOCKS_PER_SM = (8, 32, 128, 0)  # which is fastest differs between GPUs, so each is tried; 0: one step a thread
SCALE = 3.0
PERIOD = 4096  # elements after which `fill` begins anew

# In both kernels each thread has four reads of 16 bytes in flight. `fill` makes values whose triad is exact in FP32.
KERNELS = r"""
extern "C" __global__ void fill(float4* b, float4* c, unsigned long long count) {
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        float value = (float)(i % PERIOD);
        b[i] = make_float4(value, value + 1, value + 2, value + 3);
        c[i] = make_float4(1, 2, 3, 4);
    }
}
extern "C" __global__ void read_all(const float4* __restrict__ data, unsigned long long count, float* sink) {
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (; i + 3 * step < count; i += 4 * step) {
        float4 p = data[i], q = data[i + step], r = data[i + 2 * step], s = data[i + 3 * step];
        sum += p.x + p.y + p.z + p.w + q.x + q.y + q.z + q.w + r.x + r.y + r.z + r.w + s.x + s.y + s.z + s.w;
    }
    for (; i < count; i += step) sum += data[i].x + data[i].y + data[i].z + data[i].w;
    if (sum == -1) *sink = sum;  // the sum is never negative, which the compiler cannot know
}
extern "C" __global__ void triad(float4* __restrict__ a, const float4* __restrict__ b, const float4* __restrict__ c,
                                 float s, unsigned long long count) {
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        float4 p = b[i], q = c[i];
        a[i] = make_float4(p.x + s * q.x, p.y + s * q.y, p.z + s * q.z, p.w + s * q.w);
    }
}
""".replace("PERIOD", str(PERIOD))


def buffer_mib(free_mib: int, l2_mib: int) -> Union[int, Missing]:
    """MiB of each of three buffers that fill half of the free memory. Missing if that is hardly larger than L2."""
    size = min(LARGEST_MIB, free_mib // 6)
    if size < PAST_L2 * l2_mib or size < 1:
        need = 6 * PAST_L2 * max(l2_mib, 1)
        return Missing("command_failed", f"{free_mib} MiB of GPU memory are free, and {need} MiB are needed")
    return size


def gb_per_s(size: int, seconds: float) -> float:
    """10^9 bytes per second, with one decimal."""
    return round(size / seconds / 1e9, 1)


class DeviceMemory:
    """Three buffers of `mib` on one device; `with` frees them. Raises CudaFailed."""

    def __init__(self, cuda: Cuda, device: Any, timer: Timer, mib: int) -> None:
        self.cuda, self.device, self.timer = cuda, device, timer
        self.mib, self.size = mib, mib * MIB
        self.addresses: List[int] = []

    def __enter__(self) -> DeviceMemory:
        try:
            for _ in range(3):
                self.addresses.append(self.cuda.allocate(self.size))
        except CudaFailed:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        while self.addresses:
            self.cuda.free(self.addresses.pop())

    def copy(self, seconds: float) -> float:
        """GB/s of cuMemcpyDtoDAsync, bytes read and written."""
        pointer, stream = self.cuda.driver.CUdeviceptr, self.timer.stream.handle
        target, origin = pointer(self.addresses[0]), pointer(self.addresses[1])

        def work() -> None:
            self.cuda.call("cuMemcpyDtoDAsync", target, origin, self.size, stream)

        return gb_per_s(2 * self.size, self.timer.median(work, seconds=seconds))

    def read_and_triad(self, seconds: float) -> Tuple[float, float]:
        """GB/s of both kernels, compiled for this device. Raises CudaFailed, also if the triad's result is wrong."""
        module = kernels.compiled(self.cuda.core, KERNELS, self.device.arch)
        a, b, c = self.addresses
        count = self.size // 16
        self._launch(module.get_kernel("fill"), 8, b, c, count)()
        read = self._fastest(module.get_kernel("read_all"), b, count, a)
        triad = self._fastest(module.get_kernel("triad"), a, b, c, ctypes.c_float(SCALE), count)
        figures = (
            gb_per_s(self.size, self.timer.median(read, seconds=seconds)),
            gb_per_s(3 * self.size, self.timer.median(triad, seconds=seconds)),
        )
        self._check(count)
        return figures

    def _launch(self, kernel: Any, blocks_per_sm: int, *arguments: Any) -> Callable[[], None]:
        whole = -(-self.size // (16 * BLOCK))
        grid = blocks_per_sm * self.device.properties.multiprocessor_count or whole
        config = self.cuda.core.LaunchConfig(grid=grid, block=BLOCK)

        def work() -> None:
            self.cuda.core.launch(self.timer.stream, config, kernel, *arguments)

        return work

    def _fastest(self, kernel: Any, *arguments: Any) -> Callable[[], None]:
        tried = [self._launch(kernel, blocks, *arguments) for blocks in BLOCKS_PER_SM]
        return min(tried, key=lambda work: self.timer.median(work, seconds=0, least=3))

    def _check(self, count: int) -> None:
        """Raises CudaFailed unless the first and the last MiB of the triad are right, to the bit."""
        per_mib = MIB // 16
        for first in (0, count - per_mib):
            got = array.array("f", self.cuda.download(self.addresses[0] + first * 16, MIB))
            want = expected_triad(first, per_mib)
            if got != want:
                wrong = sum(map(operator.ne, got, want))
                raise CudaFailed(f"the triad's result is wrong in {wrong} of {len(want)} values")


def expected_triad(first: int, count: int) -> array.array[float]:
    """The right result of `triad` from element `first` on, four floats each, after `fill`."""
    period = array.array("f", [i + lane + SCALE * (lane + 1) for i in range(PERIOD) for lane in range(4)])
    begin = first % PERIOD
    return (period * (count // PERIOD + 2))[4 * begin : 4 * (begin + count)]


class HostMemory:
    """Pinned memory of the host and as much on the device; `with` frees both. Raises CudaFailed."""

    def __init__(self, cuda: Cuda, timer: Timer, mib: int) -> None:
        self.cuda, self.timer, self.size = cuda, timer, mib * MIB
        self._pinned: Any = None
        self._device = 0

    def __enter__(self) -> HostMemory:
        self._device = self.cuda.allocate(self.size)
        try:
            self._pinned = self.cuda.call("cuMemHostAlloc", self.size, 0)
        except CudaFailed:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        if self._pinned is not None:
            self.cuda.call("cuMemFreeHost", self._pinned)
        self.cuda.free(self._device)

    def work(self, direction: str) -> Callable[[], None]:
        """A function that puts one copy, "h2d" or "d2h", into the stream."""
        device, stream = self.cuda.driver.CUdeviceptr(self._device), self.timer.stream.handle
        if direction == "h2d":
            return lambda: self.cuda.call("cuMemcpyHtoDAsync", device, self._pinned, self.size, stream)
        return lambda: self.cuda.call("cuMemcpyDtoHAsync", self._pinned, device, self.size, stream)

    def measure(self, direction: str, seconds: float) -> float:
        """GB/s."""
        return gb_per_s(self.size, self.timer.median(self.work(direction), seconds=seconds))

    def link(self, read: Callable[[], Dict[str, Any]], seconds: float) -> Dict[str, Any]:
        """The last result of `read`, a reading of the link, while copies keep the link busy."""
        work = self.work("h2d")
        once = max(self.timer.once(work), 1e-6)
        for _ in range(max(4, int(seconds / once))):
            work()
        done = self.timer.stream.record()
        answer = read()
        until = time.monotonic() + 10 * seconds
        while not done.is_done and time.monotonic() < until:
            answer = read()
        done.sync()
        return answer


def peer_work(
    cuda: Cuda, stream: Any, addresses: Sequence[int], contexts: Sequence[Any], size: int
) -> Callable[[], None]:
    """A function that puts one copy from addresses[0] in contexts[0] to addresses[1] in contexts[1] into the stream."""
    pointer = cuda.driver.CUdeviceptr
    origin, target = pointer(addresses[0]), pointer(addresses[1])

    def work() -> None:
        cuda.call("cuMemcpyPeerAsync", target, contexts[1], origin, contexts[0], size, stream)

    return work
