"""CUDA through cuda-bindings and cuda-core, which use the driver's and the toolkit's own libraries.

Nothing is imported before `open_cuda`: the bindings may be missing, and then a probe reports that.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import os
import statistics
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Tuple, Type, Union

from gpuprep.agent.compute import libraries
from gpuprep.records import Missing

BINDINGS = ("cuda-bindings", "cuda-core")


class CudaFailed(Exception):
    """A call that CUDA refused: "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"."""


def versions(names: Sequence[str]) -> Dict[str, str]:
    """Name ► version of Python packages installed beside this agent."""
    by_name = {}
    for name in names:
        try:
            by_name[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return by_name


class Cuda:
    """The modules `cuda.bindings.driver` and `cuda.core`, and the exceptions of cuda.core."""

    def __init__(self, driver: Any, core: Any, core_error: Type[Exception]) -> None:
        self.driver = driver
        self.core = core
        self.errors: Tuple[Type[Exception], ...] = (CudaFailed, core_error, RuntimeError, OSError)

    def call(self, name: str, *arguments: Any) -> Any:
        """A driver function's result without its status. Raises CudaFailed."""
        status, *values = getattr(self.driver, name)(*arguments)
        if int(status) != 0:
            raise CudaFailed(f"{name}: {status.name}")
        return values[0] if len(values) == 1 else tuple(values)

    def device(self, uuid: str) -> Any:
        """cuda.core's Device of the GPU that NVML calls `uuid`, made current. Raises CudaFailed."""
        wanted = uuid.lower().replace("gpu-", "").replace("-", "")
        for ordinal in range(self.call("cuDeviceGetCount")):
            if bytes(self.call("cuDeviceGetUuid", self.call("cuDeviceGet", ordinal)).bytes).hex() == wanted:
                device = self.core.Device(ordinal)
                device.set_current()
                return device
        raise CudaFailed(f"CUDA shows no device {uuid}, which NVML shows")

    def allocate(self, size: int) -> int:
        """Allocate `size` bytes on the current device; returns their address. Raises CudaFailed."""
        return int(self.call("cuMemAlloc", size))

    def free(self, address: int) -> None:
        self.call("cuMemFree", self.driver.CUdeviceptr(address))

    def upload(self, address: int, data: Any) -> None:
        """Copy `data` (bytes or another buffer) to the device."""
        view = memoryview(data).cast("B")
        self.call("cuMemcpyHtoD", self.driver.CUdeviceptr(address), bytes(view), len(view))

    def download(self, address: int, size: int) -> bytes:
        data = bytearray(size)
        here = (ctypes.c_char * size).from_buffer(data)
        self.call("cuMemcpyDtoH", ctypes.addressof(here), self.driver.CUdeviceptr(address), size)
        return bytes(data)


def open_cuda() -> Union[Cuda, Missing]:
    """CUDA, initialised; Missing that names what is not installed."""
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    try:
        driver, core = importlib.import_module("cuda.bindings.driver"), importlib.import_module("cuda.core")
        failed = importlib.import_module("cuda.core._utils.cuda_utils").CUDAError
    except ModuleNotFoundError as error:
        return Missing(
            "not_installed",
            f"the agent's environment has no {error.name}: run the role gpu_agent again with its wheels",
        )
    except (ImportError, OSError, RuntimeError) as error:
        return Missing("command_failed", f"cuda-bindings: {error}")
    cuda = Cuda(driver, core, failed)
    try:
        cuda.call("cuInit", 0)
    except CudaFailed as error:
        return Missing("cuda_not_started", str(error))
    except RuntimeError as error:  # the bindings look for libcuda.so.1 at their first call
        return Missing("driver_not_loaded", f"cuda-bindings: {error}")
    return cuda


def load_nvrtc() -> Union[Dict[str, str], Missing]:
    """Load the installed toolkit's compiler, before the bindings look for one: {"nvrtc": its version}.

    {} if toolkit and bindings are of different CUDA versions: then nvcc compiles (kernels.py).
    """
    major = versions(["cuda-bindings"]).get("cuda-bindings", "0").split(".")[0]
    toolkit = libraries.toolkit()
    version, folders = toolkit["version"], toolkit["library_dirs"]
    if not isinstance(version, str) or not isinstance(folders, list):
        return Missing("not_installed", "no CUDA toolkit (no nvcc), whose compiler (NVRTC) makes the kernels")
    if version.split(".")[0] != major:
        return {}
    soname = f"libnvrtc.so.{major}"
    places = [str(Path(folder) / soname) for folder in folders if (Path(folder) / soname).exists()]
    try:
        library = ctypes.CDLL(places[0] if places else soname, mode=ctypes.RTLD_GLOBAL)
        numbers = (ctypes.c_int(), ctypes.c_int())
        library.nvrtcVersion(ctypes.byref(numbers[0]), ctypes.byref(numbers[1]))
    except (OSError, AttributeError) as error:
        return Missing("not_installed", str(error))
    return {"nvrtc": f"{numbers[0].value}.{numbers[1].value}"}


class Timer:
    """Time on the GPU, by events of one stream of the current device."""

    def __init__(self, cuda: Cuda, device: Any) -> None:
        self._options = cuda.core.EventOptions(timing_enabled=True)
        self.stream = device.create_stream()

    def once(self, work: Callable[[], None]) -> float:
        """Seconds that `work` took on the stream."""
        before = self.stream.record(options=self._options)
        work()
        after = self.stream.record(options=self._options)
        after.sync()
        return float(after - before) / 1000

    def median(self, work: Callable[[], None], *, seconds: float, least: int = 5) -> float:
        """Median seconds of the runs that fit into `seconds`, at least `least` runs; the first run does not count."""
        self.once(work)
        taken: List[float] = []
        until = time.monotonic() + seconds
        while len(taken) < least or time.monotonic() < until:
            taken.append(self.once(work))
        return statistics.median(taken)
