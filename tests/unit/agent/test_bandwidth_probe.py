"""The bandwidth probe: sizes and arithmetic, CUDA's calls against a stand-in, NVLinks, and a simulated VM."""

from __future__ import annotations

import struct
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakecuda
import pytest
from fakecuda import MIB, CudaFailed, FakeDriver, fake_cuda
from fakepynvml import gpu, install, refuse
from judgedbandwidth import judged
from probereportsfortests import measure, plain
from samplerows import loaded_answers
from simulatedboot import Boot, booted, simulated_vm

from gpuprep import records
from gpuprep.sim import faults

__all__ = ["booted", "simulated_vm"]


# ---------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    ("free", "l2", "size"),
    [(140000, 60, 2048), (15000, 4, 2048), (6000, 4, 1000), (1200, 60, 200), (1000, 60, None), (3, 0, None)],
)
def test_buffers_are_well_past_the_cache_or_not_there(free: int, l2: int, size: int | None) -> None:
    found = fakecuda.buffer_mib(free, l2)
    if size is None:
        assert isinstance(found, records.Missing)
        assert f"{free} MiB of GPU memory are free" in found.detail
    else:
        assert found == size
        assert found >= 3 * l2


def test_the_triad_s_values() -> None:
    assert list(fakecuda.triad(0, 2)) == [3, 7, 11, 15, 4, 8, 12, 16]
    assert list(fakecuda.triad(4095, 2))[:5] == [4098, 4102, 4106, 4110, 3]


# ---------------------------------------------------------------- CUDA, a stand-in


def test_a_copy_counts_what_it_reads_and_writes() -> None:
    cuda = fake_cuda(driver := FakeDriver())
    with fakecuda.device_memory(cuda, 0.001) as memory:
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
            raise CudaFailed("cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY")
        return allocate(size)

    cuda.allocate = twice  # type: ignore[method-assign]
    with (
        pytest.raises(CudaFailed, match="OUT_OF_MEMORY"),
        fakecuda.device_memory(cuda, 0.1),
    ):
        pass
    assert driver.memory == {}


def test_the_median_leaves_the_first_run_out() -> None:
    cuda = fake_cuda(FakeDriver())
    found = fakecuda.timer(cuda, 0, 9.0, 0, 0.1, 0, 0.1, 0, 0.2, 0, 0.3, 0, 5.0).median(lambda: None, seconds=0)
    assert found == pytest.approx(0.2)


def test_host_copies_and_the_link_under_load() -> None:
    driver = FakeDriver()
    cuda = fake_cuda(driver)
    readings = [{"width": 16}]
    with fakecuda.host_memory(cuda, 0.001) as host:
        assert host.measure("h2d", 0) == host.measure("d2h", 0) == round(MIB / 0.001 / 1e9, 1)
        driver.calls.clear()
        assert host.link(lambda: readings[-1], seconds=0.01) == {"width": 16}
        assert driver.calls.count("cuMemcpyHtoDAsync") >= 10  # enough to keep the link busy meanwhile
    assert driver.memory == {}
    assert driver.calls[-2:] == ["cuMemFreeHost", "cuMemFree"]


def test_pinned_memory_that_is_refused_leaves_nothing() -> None:
    driver = FakeDriver(cuMemHostAlloc=2)
    cuda = fake_cuda(driver)
    with pytest.raises(CudaFailed, match="cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY"):
        fakecuda.host_memory(cuda, 0.1).__enter__()
    assert driver.memory == {}


def test_a_wrong_triad_is_an_error() -> None:
    driver = FakeDriver()
    cuda = fake_cuda(driver)
    count = MIB // 16
    with fakecuda.device_memory(cuda, 0.1) as memory:
        right = fakecuda.triad(0, count).tobytes()
        cuda.upload(memory.addresses[0], right)
        fakecuda.check_triad(memory, count)
        cuda.upload(memory.addresses[0], right[:-4] + struct.pack("f", 1.0))
        with pytest.raises(CudaFailed, match=f"wrong in 1 of {4 * count} values"):
            fakecuda.check_triad(memory, count)


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
    with pytest.raises(CudaFailed, match="no device GPU-ff"):
        cuda.device("GPU-ff")


def test_peer_access_may_be_there_already() -> None:
    fakecuda.reach_peer(FakeDriver(cuCtxEnablePeerAccess=704))
    with pytest.raises(CudaFailed, match="OUT_OF_MEMORY"):
        fakecuda.reach_peer(FakeDriver(cuCtxEnablePeerAccess=2))


# ---------------------------------------------------------------- what is not there


def test_without_bindings_the_answer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    install(monkeypatch, loaded_answers())
    values = measure("bandwidth")
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
    found = fakecuda.compiler(monkeypatch, toolkit, f"{major}.9.1")
    assert isinstance(found, records.Missing)
    assert found.reason == "not_installed"
    assert says in found.detail


def test_a_toolkit_of_another_cuda_compiles_with_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fakecuda.compiler(monkeypatch, {"version": "11.8", "library_dirs": []}, "12.9.1") == {}


# ---------------------------------------------------------------- NVML


def test_lanes_of_the_device_itself(tmp_path: Path) -> None:
    (tmp_path / "0000:00:06.0").mkdir()
    (tmp_path / "0000:00:06.0" / "max_link_width").write_text("16\n")
    assert fakecuda.lanes("0000:00:06.0", tmp_path) == 16
    assert fakecuda.lanes("0000:00:07.0", tmp_path) == records.Missing("not_supported", "the kernel shows no width")


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
    found = fakecuda.slot("0000:01:00.0", tmp_path)
    said = {key: one.reason if isinstance(one, records.Missing) else one for key, one in found.items()}
    assert said == {"slot_generation": generation, "slot_width": lanes}


def test_a_virtual_machine_shows_no_port(tmp_path: Path) -> None:
    (tmp_path / "0000:00:1e.0").mkdir()
    found = fakecuda.slot("0000:00:1e.0", tmp_path)
    assert {one.reason for one in found.values() if isinstance(one, records.Missing)} == {"not_supported"}
    assert len(found) == 2


@pytest.mark.parametrize(("level", "name"), [(10, "PIX"), (30, "PHB"), (50, "SYS"), (77, ""), (refuse(3), "")])
def test_the_way_between_two_gpus(level: object, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {**loaded_answers(), "nvmlDeviceGetTopologyCommonAncestor": level}
    install(monkeypatch, answers)
    assert gpu().path_to(gpu()) == name


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
    install(monkeypatch, {**loaded_answers(), **told, **answers})
    return gpu().nvlinks("0000:0a:00.0")


def test_nvlinks_through_switches_and_between_two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    switch = (1, 2, "00000000:05:00.0")
    assert nvlinks(monkeypatch, [switch] * 17 + [(0, 2, "00000000:05:00.0")]) == 17
    other, third = (1, 0, "00000000:0A:00.0"), (1, 0, "00000000:0B:00.0")
    assert nvlinks(monkeypatch, [other, third, third, other]) == 2  # a V100's links lead to several GPUs
    assert nvlinks(monkeypatch, []) == records.Missing("command_failed", "nvmlDeviceGetNvLinkState: Invalid Argument")
    assert nvlinks(monkeypatch, [], nvmlDeviceGetNvLinkState=refuse(3)) == 0  # a GPU without NVLink


# ---------------------------------------------------------------- simulated


def measured(**arguments: Any) -> dict[str, Any]:
    return plain("bandwidth", measure("bandwidth", **arguments))


def test_a_simulated_t4(simulated_vm: Boot) -> None:
    simulated_vm("t4")
    values = measured(quick=True)
    assert (values["quick"], values["peers"], values["libraries"]) == (True, [], [])
    (one,) = values["gpus"]
    assert (one["pci_device_id"], one["error"]) == ("1eb8", None)
    assert 230 < one["copy_gb_per_s"] < 250
    assert one["pcie"]["width"] == one["pcie"]["max_width"] == 16
    assert 10 < one["h2d_gb_per_s"] < 14
    assert len(one["telemetry"]["seconds"]) >= 2


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
    (one,) = measured()["gpus"]
    assert one["error"] == "the GPU is lost"
    assert "copy_gb_per_s" not in one


def test_without_a_driver_there_is_nothing_to_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {**loaded_answers(), "nvmlInit": refuse(9)}
    install(monkeypatch, answers)
    values = measure("bandwidth")
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
