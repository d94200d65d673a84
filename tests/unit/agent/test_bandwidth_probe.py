"""The bandwidth probe: sizes and arithmetic, CUDA's calls against a stand-in, NVLinks, and a simulated VM."""

from __future__ import annotations

import ctypes
import struct
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakepynvml import FakePynvml, refuse
from judgedbandwidth import judged
from probereportsfortests import plain
from samplerows import loaded_answers
from simulatedboot import Boot, booted

from gpuprep import records
from gpuprep.agent.compute import cudacalls, libraries, streams
from gpuprep.agent.gpu import nvml
from gpuprep.agent.probes import bandwidth
from gpuprep.sim import faults

__all__ = ["booted"]
MIB = 2**20


# ---------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    ("free", "l2", "size"),
    [(140000, 60, 2048), (15000, 4, 2048), (6000, 4, 1000), (1200, 60, 200), (1000, 60, None), (3, 0, None)],
)
def test_buffers_are_well_past_the_cache_or_not_there(free: int, l2: int, size: int | None) -> None:
    found = streams.buffer_mib(free, l2)
    if size is None:
        assert isinstance(found, records.Missing)
        assert f"{free} MiB of GPU memory are free" in found.detail
    else:
        assert found == size
        assert found >= 3 * l2


def test_the_triad_s_values() -> None:
    assert list(streams.expected_triad(0, 2)) == [3, 7, 11, 15, 4, 8, 12, 16]
    assert list(streams.expected_triad(4095, 2))[:5] == [4098, 4102, 4106, 4110, 3]


# ---------------------------------------------------------------- CUDA, a stand-in


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


def test_a_copy_counts_what_it_reads_and_writes() -> None:
    cuda = fake_cuda(driver := FakeDriver())
    with streams.DeviceMemory(cuda, None, timer(cuda, 0.001), mib=1) as memory:
        assert memory.copy(seconds=0) == round(2 * MIB / 0.001 / 1e9, 1)
        assert len(driver.memory) == 3
    assert driver.memory == {}
    assert driver.calls.count("cuMemcpyDtoDAsync") == 6  # one that does not count, five that do


def test_memory_that_ends_is_given_back() -> None:
    driver = FakeDriver()
    cuda = fake_cuda(driver)
    allocate, asked = cuda.allocate, []

    def twice(size: int) -> int:
        asked.append(size)
        if len(asked) == 3:
            raise cudacalls.CudaFailed("cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY")
        return allocate(size)

    cuda.allocate = twice  # type: ignore[method-assign]
    with (
        pytest.raises(cudacalls.CudaFailed, match="OUT_OF_MEMORY"),
        streams.DeviceMemory(cuda, None, timer(cuda, 0.1), mib=1),
    ):
        pass
    assert driver.memory == {}


def test_the_median_leaves_the_first_run_out() -> None:
    cuda = fake_cuda(FakeDriver())
    found = timer(cuda, 0, 9.0, 0, 0.1, 0, 0.1, 0, 0.2, 0, 0.3, 0, 5.0).median(lambda: None, seconds=0)
    assert found == pytest.approx(0.2)


def test_host_copies_and_the_link_under_load() -> None:
    driver = FakeDriver()
    cuda = fake_cuda(driver)
    readings = [{"width": 16}]
    with streams.HostMemory(cuda, timer(cuda, 0.001), mib=1) as host:
        assert host.measure("h2d", 0) == host.measure("d2h", 0) == round(MIB / 0.001 / 1e9, 1)
        driver.calls.clear()
        assert host.link(lambda: readings[-1], seconds=0.01) == {"width": 16}
        assert driver.calls.count("cuMemcpyHtoDAsync") >= 10  # enough to keep the link busy meanwhile
    assert driver.memory == {}
    assert driver.calls[-2:] == ["cuMemFreeHost", "cuMemFree"]


def test_pinned_memory_that_is_refused_leaves_nothing() -> None:
    driver = FakeDriver(cuMemHostAlloc=2)
    cuda = fake_cuda(driver)
    with pytest.raises(cudacalls.CudaFailed, match="cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY"):
        streams.HostMemory(cuda, timer(cuda, 0.1), mib=1).__enter__()
    assert driver.memory == {}


def test_a_wrong_triad_is_an_error() -> None:
    driver = FakeDriver()
    cuda = fake_cuda(driver)
    count = MIB // 16
    with streams.DeviceMemory(cuda, None, timer(cuda, 0.1), mib=1) as memory:
        right = streams.expected_triad(0, count).tobytes()
        cuda.upload(memory.addresses[0], right)
        memory._check(count)
        cuda.upload(memory.addresses[0], right[:-4] + struct.pack("f", 1.0))
        with pytest.raises(cudacalls.CudaFailed, match=f"wrong in 1 of {4 * count} values"):
            memory._check(count)


def test_a_gpu_is_found_by_its_uuid() -> None:
    class Device:
        def __init__(self, ordinal: int) -> None:
            self.ordinal = ordinal

        def set_current(self) -> None:
            self.current = True

    cuda = fake_cuda(FakeDriver())
    cuda.core.Device = Device
    found = cuda.device("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f")
    assert (found.ordinal, found.current) == (0, True)
    with pytest.raises(cudacalls.CudaFailed, match="no device GPU-ff"):
        cuda.device("GPU-ff")


def test_peer_access_may_be_there_already() -> None:
    bandwidth._enable(fake_cuda(FakeDriver(cuCtxEnablePeerAccess=704)), 1)
    with pytest.raises(cudacalls.CudaFailed, match="OUT_OF_MEMORY"):
        bandwidth._enable(fake_cuda(FakeDriver(cuCtxEnablePeerAccess=2)), 1)


# ---------------------------------------------------------------- what is not there


def test_without_bindings_the_answer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    monkeypatch.setattr(nvml, "pynvml", FakePynvml(loaded_answers()))
    values = bandwidth.measure({})
    assert isinstance(values, records.Missing)
    assert values.reason == "not_installed"
    assert "no cuda.bindings.driver: run the role gpu_agent again" in values.detail


@pytest.mark.parametrize(
    ("toolkit", "says"),
    [
        ({"version": {"missing": "not_installed", "detail": ""}, "library_dirs": []}, "no CUDA toolkit"),
        ({"version": "77.0", "library_dirs": []}, "libnvrtc.so.77"),
    ],
)
def test_without_the_toolkit_s_compiler(toolkit: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    major = "77" if toolkit["version"] == "77.0" else "12"
    monkeypatch.setattr(libraries, "toolkit", lambda: toolkit)
    monkeypatch.setattr(cudacalls, "versions", lambda _: {"cuda-bindings": f"{major}.9.1"})
    found = cudacalls.load_nvrtc()
    assert isinstance(found, records.Missing)
    assert found.reason == "not_installed"
    assert says in found.detail


def test_a_toolkit_of_another_cuda_compiles_with_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "toolkit", lambda: {"version": "11.8", "library_dirs": []})
    monkeypatch.setattr(cudacalls, "versions", lambda _: {"cuda-bindings": "12.9.1"})
    assert cudacalls.load_nvrtc() == {}


# ---------------------------------------------------------------- NVML


def test_lanes_of_the_device_itself(tmp_path: Path) -> None:
    (tmp_path / "0000:00:06.0").mkdir()
    (tmp_path / "0000:00:06.0" / "max_link_width").write_text("16\n")
    assert bandwidth.device_width("0000:00:06.0", tmp_path) == 16
    assert bandwidth.device_width("0000:00:07.0", tmp_path) == records.Missing(
        "not_supported", "the kernel shows no width"
    )


@pytest.mark.parametrize(
    ("speed", "width", "generation", "lanes"),
    [
        ("16.0 GT/s PCIe", "8", 4, 8), ("2.5 GT/s PCIe", "1", 1, 1), ("32.0 GT/s PCIe", "16", 5, 16),
        ("Unknown", "16", "unparsable", 16), ("16.0 GT/s PCIe", "255", 4, "unparsable"),
        ("16.0 GT/s PCIe", "many", 4, "unparsable"),
    ],
)  # fmt: skip
def test_what_the_port_above_the_device_can_do(
    speed: str, width: str, generation: object, lanes: object, tmp_path: Path
) -> None:
    port = tmp_path / "devices" / "0000:00:01.0"
    (port / "0000:01:00.0").mkdir(parents=True)
    (port / "max_link_speed").write_text(f"{speed}\n")
    (port / "max_link_width").write_text(f"{width}\n")
    (tmp_path / "0000:01:00.0").symlink_to(port / "0000:01:00.0")
    found = bandwidth.slot("0000:01:00.0", tmp_path)
    said = {key: one.reason if isinstance(one, records.Missing) else one for key, one in found.items()}
    assert said == {"slot_generation": generation, "slot_width": lanes}


def test_a_virtual_machine_shows_no_port(tmp_path: Path) -> None:
    (tmp_path / "0000:00:1e.0").mkdir()
    found = bandwidth.slot("0000:00:1e.0", tmp_path)
    assert {one.reason for one in found.values() if isinstance(one, records.Missing)} == {"not_supported"}
    assert len(found) == 2


@pytest.mark.parametrize(("level", "name"), [(10, "PIX"), (30, "PHB"), (50, "SYS"), (77, ""), (refuse(3), "")])
def test_the_way_between_two_gpus(level: object, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {**loaded_answers(), "nvmlDeviceGetTopologyCommonAncestor": level}
    monkeypatch.setattr(nvml, "pynvml", FakePynvml(answers))
    assert nvml.Gpu(0).path_to(nvml.Gpu(0)) == name


def nvlinks(
    monkeypatch: pytest.MonkeyPatch, links: list[tuple[int, int, str]], **answers: Any
) -> int | records.Missing:
    """`links`: (state, NVML's kind of what is at the other end, its address), in their order."""
    count = len(links)

    def link(part: int) -> Callable[[object, int], Any]:
        def answer(_: object, number: int) -> Any:
            if number >= count:
                return refuse(2)()  # NVML_ERROR_INVALID_ARGUMENT
            value = links[number][part]
            return types.SimpleNamespace(busId=value) if part == 2 else value

        return answer

    names = ("nvmlDeviceGetNvLinkState", "nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetNvLinkRemotePciInfo")
    told = {name: link(part) for part, name in enumerate(names)}
    monkeypatch.setattr(nvml, "pynvml", FakePynvml({**loaded_answers(), **told, **answers}))
    return nvml.Gpu(0).nvlinks("0000:0a:00.0")


def test_nvlinks_through_switches_and_between_two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    switch = (1, 2, "00000000:05:00.0")
    assert nvlinks(monkeypatch, [switch] * 17 + [(0, 2, "00000000:05:00.0")]) == 17
    other, third = (1, 0, "00000000:0A:00.0"), (1, 0, "00000000:0B:00.0")
    assert nvlinks(monkeypatch, [other, third, third, other]) == 2  # a V100's links lead to several GPUs
    assert nvlinks(monkeypatch, []) == records.Missing("command_failed", "nvmlDeviceGetNvLinkState: Invalid Argument")
    assert nvlinks(monkeypatch, [], nvmlDeviceGetNvLinkState=refuse(3)) == 0  # a GPU without NVLink


# ---------------------------------------------------------------- simulated


def measured(**arguments: Any) -> dict[str, Any]:
    return plain("bandwidth", bandwidth.measure(arguments))


def test_a_simulated_t4(simulated_vm: Boot) -> None:
    simulated_vm("t4")
    values = measured(quick=True)
    assert (values["quick"], values["peers"], values["libraries"]) == (True, [], [])
    (gpu,) = values["gpus"]
    assert (gpu["pci_device_id"], gpu["error"]) == ("1eb8", None)
    assert 230 < gpu["copy_gb_per_s"] < 250
    assert gpu["pcie"]["width"] == gpu["pcie"]["max_width"] == 16
    assert 10 < gpu["h2d_gb_per_s"] < 14
    assert len(gpu["telemetry"]["seconds"]) >= 2


def test_simulated_faults_show(simulated_vm: Boot) -> None:
    simulated_vm("t4", "t4", fault_memory_percent=50, pcie_width_now=4)
    values = measured()
    slow, good = values["gpus"]
    assert slow["triad_gb_per_s"] < 0.6 * good["triad_gb_per_s"]
    assert (slow["pcie"]["width"], slow["pcie"]["max_width"]) == (4, 16)
    assert slow["h2d_gb_per_s"] < 0.3 * good["h2d_gb_per_s"]
    assert {(pair["from"], pair["to"]) for pair in values["peers"]} == {(0, 1), (1, 0)}


def test_a_simulated_gpu_that_is_lost(simulated_vm: Boot) -> None:
    simulated_vm("a100", fault_gpu_lost=1)
    (gpu,) = measured()["gpus"]
    assert gpu["error"] == "the GPU is lost"
    assert "copy_gb_per_s" not in gpu


def test_without_a_driver_there_is_nothing_to_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {**loaded_answers(), "nvmlInit": refuse(9)}
    monkeypatch.setattr(nvml, "pynvml", FakePynvml(answers))
    values = bandwidth.measure({})
    assert isinstance(values, records.Missing)
    assert values.reason == "driver_not_loaded"


# ---------------------------------------------------------------- simulated faults, judged


@pytest.mark.parametrize("profile", ["t4", "v100", "a100", "h200"])
@pytest.mark.parametrize(
    ("fault", "failed", "says"),
    [
        (None, [], ""),
        ("slow_memory", ["memory_copy", "memory_read", "memory_triad"], "because the memory clock was"),
        ("memory_defect", ["memory_copy", "memory_read", "memory_triad"], "although the memory clock was full"),
        ("pcie_x4", ["pcie_link", "host_to_device", "device_to_host"], "x4"),
        ("pcie_gen1", ["pcie_link", "host_to_device", "device_to_host"], "generation 1"),
    ],
)
def test_a_simulated_fault_is_named(
    profile: str, fault: str | None, failed: list[str], says: str, simulated_vm: Boot
) -> None:
    simulated_vm(profile, **(faults.kinds()[fault]["gpu"] if fault else {}))
    found = {
        finding.key: finding for finding in judged(measured(), profile) if finding.status is not records.Status.PASS
    }
    low_clock = found.pop("gpu 0.memory_clock", None)
    assert (low_clock is not None) == (fault == "slow_memory")
    assert set(found) == {f"gpu 0.{prop}" for prop in failed}
    assert {finding.status for finding in found.values()} <= {records.Status.FAIL}
    assert all(says in finding.reason and finding.remedy for finding in found.values())
