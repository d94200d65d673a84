"""One CUDA device through cuda.core: memory, timing events, our own kernels. Imported only inside a probe.

Needs the driver's libcuda and the installed toolkit's compiler (kernels.py).
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import cuda.core
import numpy as np
from cuda.bindings import driver

from gpuprep.agent.compute import kernels
from gpuprep.agent.gpu.nvml import normal_address
from gpuprep.agent.probes.gemmkernels import MOST_SMS


class CudaDevice:
    """The device at a PCI address ("0000:1e:00.0"). Methods raise cuda.core's CUDAError and RuntimeError.

    Raises LookupError if CUDA does not list the device (lost, or hidden by CUDA_VISIBLE_DEVICES).
    """

    def __init__(self, pci_address: str) -> None:
        devices = [
            device for device in cuda.core.Device.get_all_devices() if normal_address(device.pci_bus_id) == pci_address
        ]
        if not devices:
            raise LookupError(f"CUDA does not see the GPU at {pci_address}, NVML does")
        self.device = devices[0]
        self.use()
        self.stream = self.device.create_stream()
        self.sms: int = self.device.properties.multiprocessor_count
        self.l2_bytes: int = self.device.properties.l2_cache_size
        self.capability: Tuple[int, int] = tuple(self.device.compute_capability)
        self._kernels: Dict[str, Any] = {}
        self._events: List[Any] = []
        self._ticks: Any = None
        self._kept: Dict[str, Any] = {}

    def use(self) -> None:
        """Make it the calling thread's device."""
        self.device.set_current()

    def sync(self) -> None:
        self.stream.sync()

    def allocate(self, size: int) -> Any:
        """Allocate `size` bytes of device memory; free them with close()."""
        return self.device.allocate(size, stream=self.stream)

    def upload(self, values: Any) -> Any:
        """Copy a numpy array to a new device buffer."""
        buffer = self.allocate(values.nbytes)
        source = values.ctypes.data
        _check(driver.cuMemcpyHtoDAsync(int(buffer.handle), source, values.nbytes, self.stream.handle))
        self.sync()
        return buffer

    def download(self, address: int, count: int, kind: str) -> Any:
        """Copy `count` numbers of numpy's type `kind` from a device address, after all earlier work."""
        values = np.empty(count, dtype=kind)
        _check(driver.cuMemcpyDtoHAsync(values.ctypes.data, address, values.nbytes, self.stream.handle))
        self.sync()
        return values

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        """The object `name`, made once by `make` for this device and kept as long as the process lives."""
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def compile(self, source: str, names: Tuple[str, ...]) -> None:
        code = kernels.compiled(cuda.core, source, self.device.arch)
        self._kernels.update({name: code.get_kernel(name) for name in names})

    def launch(self, name: str, grid: int, block: int, *arguments: Any) -> None:
        """Start the kernel `name`. Integer arguments are passed as 64 bit, floats as double."""
        config = cuda.core.LaunchConfig(grid=grid, block=block)
        cuda.core.launch(self.stream, config, self._kernels[name], *arguments)

    def milliseconds(self, works: List[Any]) -> List[float]:
        """Run `works` (functions that put work on our stream); returns the device time of each."""
        pairs = self._pairs(len(works))
        for work, (start, end) in zip(works, pairs):  # noqa: B905
            self.stream.record(start)
            work()
            self.stream.record(end)
        self.sync()
        return [end - start for start, end in pairs]

    def elapsed_milliseconds(self, works: List[Any]) -> float:
        """As `milliseconds`, but the device time of all works together."""
        start, end = self._pairs(1)[0]
        self.stream.record(start)
        for work in works:
            work()
        self.stream.record(end)
        self.sync()
        return float(end - start)

    def ticks(self) -> Any:
        """(cycles, nanoseconds) of every SM now, by the kernel `ticks` of gemmkernels; zeros for unused SM numbers."""
        if self._ticks is None:
            self._ticks = self.upload(np.zeros(2 * MOST_SMS, dtype="<u8"))
        self.launch("ticks", 4 * self.sms, 512, self._ticks)
        return self.download(int(self._ticks.handle), 2 * MOST_SMS, "<u8").reshape(MOST_SMS, 2)

    def _pairs(self, count: int) -> List[Tuple[Any, Any]]:
        options = cuda.core.EventOptions(timing_enabled=True)
        while len(self._events) < 2 * count:
            self._events.append(self.device.create_event(options))
        return [(self._events[2 * i], self._events[2 * i + 1]) for i in range(count)]


def clock_mhz(before: Any, after: Any) -> float:
    """The SMs' mean clock between two `ticks`: the median over the SMs."""
    both = (before[:, 1] > 0) & (after[:, 1] > before[:, 1])
    passed = (after[both] - before[both]).astype(np.float64)
    return round(float(np.median(passed[:, 0] / passed[:, 1])) * 1000, 1)


def _check(result: Tuple[Any, ...]) -> None:
    if result[0] != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{driver.CUresult(result[0]).name}")
