"""A CUDA driver with memory, in the place of NVIDIA's bindings, and the agent's work with it: copies, triads, links."""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuprep.agent.compute import cudacalls, libraries, streams
from gpuprep.agent.probes import bandwidth
from gpuprep.records import Missing

MIB = 2**20
CudaFailed = cudacalls.CudaFailed


class Status(int):
    @property
    def name(self) -> str:
        return {0: "CUDA_SUCCESS", 2: "CUDA_ERROR_OUT_OF_MEMORY", 704: "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"}[self]


class FakeDriver:
    """A driver with memory: every call is noted, allocations are counted, `refused` calls answer with their status."""

    CUdeviceptr = int

    def __init__(self, **refused: int) -> None:
        self.refused = refused
        self.calls: list[str] = []
        self.memory: dict[int, bytearray] = {}

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        def call(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append(name)
            if name in self.refused:
                return (Status(self.refused[name]), None)
            return (Status(0), *self._answer(name, arguments))

        return call

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        if name == "cuMemAlloc":
            address = 4096 + len(self.memory)
            self.memory[address] = bytearray(arguments[0])
            return (address,)
        if name == "cuMemFree":
            del self.memory[arguments[0]]
        if name == "cuMemcpyHtoD":
            self.memory[arguments[0]][: arguments[2]] = arguments[1]
        if name == "cuMemcpyDtoH":
            ctypes.memmove(arguments[0], bytes(self.memory[arguments[1]]), arguments[2])
        if name == "cuMemHostAlloc":
            return (1,)
        if name == "cuDeviceGetCount":
            return (1,)
        if name == "cuDeviceGetUuid":
            return (types.SimpleNamespace(bytes=bytes(range(16))),)
        return (0,)


class FakeStream:
    """Its work takes as long as the next of `seconds` says."""

    handle = 7

    def __init__(self, seconds: list[float]) -> None:
        self.seconds = seconds
        self.now = 0.0

    def record(self, options: object = None) -> Any:  # noqa: ARG002
        self.now += 1000 * (self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]) / 2
        return FakeEvent(self.now)


class FakeEvent:
    is_done = True

    def __init__(self, at: float) -> None:
        self.at = at

    def sync(self) -> None:
        pass

    def __sub__(self, other: FakeEvent) -> float:
        return 2 * (self.at - other.at)


def fake_cuda(driver: FakeDriver) -> cudacalls.Cuda:
    core = types.SimpleNamespace(EventOptions=lambda timing_enabled: timing_enabled)
    return cudacalls.Cuda(driver, core, RuntimeError)


def timer(cuda: cudacalls.Cuda, *seconds: float) -> cudacalls.Timer:
    stream = FakeStream(list(seconds))
    return cudacalls.Timer(cuda, types.SimpleNamespace(create_stream=lambda: stream))


def device_memory(cuda: cudacalls.Cuda, *seconds: float) -> streams.DeviceMemory:
    """Three buffers of 1 MiB of a GPU whose work takes `seconds`."""
    return streams.DeviceMemory(cuda, None, timer(cuda, *seconds), mib=1)


def host_memory(cuda: cudacalls.Cuda, *seconds: float) -> streams.HostMemory:
    return streams.HostMemory(cuda, timer(cuda, *seconds), mib=1)


def buffer_mib(free_mib: int, l2_mib: int) -> int | Missing:
    return streams.buffer_mib(free_mib, l2_mib)


def triad(first: int, count: int) -> Any:
    """The right values of `count` vectors of a triad."""
    return streams.expected_triad(first, count)


def check_triad(memory: streams.DeviceMemory, count: int) -> None:
    memory._check(count)


def reach_peer(driver: FakeDriver) -> None:
    """Let one GPU read another one's memory."""
    bandwidth._enable(fake_cuda(driver), 1)


def compiler(monkeypatch: pytest.MonkeyPatch, toolkit: dict[str, Any], bindings: str) -> dict[str, str] | Missing:
    """The libraries that compile kernels, with this toolkit and bindings of this version."""
    monkeypatch.setattr(libraries, "toolkit", lambda: toolkit)
    monkeypatch.setattr(cudacalls, "versions", lambda _: {"cuda-bindings": bindings})
    return cudacalls.load_nvrtc()


def lanes(address: str, devices: Path) -> int | Missing:
    """Lanes of a GPU itself, as the kernel shows them in `devices`."""
    return bandwidth.device_width(address, devices)


def slot(address: str, devices: Path) -> dict[str, int | Missing]:
    """Generation and lanes of the port above a GPU."""
    return bandwidth.slot(address, devices)
