"""What the agent reads from NVML, against given answers: each refusal keeps its kind, new calls come first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml
import pytest
from fakepynvml import Answers, FakePynvml, gpu, install, read_gpus, refuse, t4_answers

from gpuprep import records

ERRORS = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not_supported",
    pynvml.NVML_ERROR_NO_PERMISSION: "no_permission",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "driver_not_loaded",
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "library_not_found",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "function_not_found",
    pynvml.NVML_ERROR_GPU_IS_LOST: "gpu_is_lost",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "version_mismatch",
    pynvml.NVML_ERROR_DEPRECATED: "deprecated",
    pynvml.NVML_ERROR_UNKNOWN: "command_failed",
}


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answers], FakePynvml]:
    def use(answers: Answers) -> FakePynvml:
        return install(monkeypatch, answers)

    return use


Use = Callable[[Answers], FakePynvml]


def test_every_fact_of_a_gpu(library: Use) -> None:
    library(t4_answers())
    gpus, version = read_gpus()
    assert version == "550.163.01"
    assert isinstance(gpus, tuple)
    (facts,) = gpus
    assert (facts.uuid, facts.name, facts.pci_address, facts.pci_device_id) == (
        "GPU-1",
        "Tesla T4",
        "0000:00:1e.0",
        "1eb8",
    )
    assert facts.memory_total_mib == 15360
    assert facts.persistence_mode is True
    assert facts.application_clocks == facts.default_application_clocks == records.ClockPair(5001, 585)
    assert facts.supported_clocks == (
        records.ClockPair(5001, 1590),
        records.ClockPair(5001, 585),
        records.ClockPair(405, 300),
    )
    assert facts.power == records.PowerLimits(70.0, 70.0, 60.0, 70.0)
    assert (facts.ecc_current, facts.ecc_pending) == (True, False)
    assert facts.compute_mode == "exclusive_process"
    assert (facts.graphics_clock_mhz, facts.memory_clock_mhz, facts.max_graphics_clock_mhz) == (300, 405, 1590)
    assert (facts.temperature_c, facts.event_reasons) == (31, 1)


@pytest.mark.parametrize(("code", "reason"), ERRORS.items())
def test_each_refusal_keeps_its_kind(library: Use, code: int, reason: str) -> None:
    library({**t4_answers(), "nvmlDeviceGetPersistenceMode": refuse(code)})
    reading = gpu().facts().persistence_mode
    assert isinstance(reading, records.Missing)
    assert reading.reason == reason
    assert "nvmlDeviceGetPersistenceMode" in reading.detail


@pytest.mark.parametrize(("code", "reason"), ERRORS.items())
def test_why_nvml_does_not_open(library: Use, code: int, reason: str) -> None:
    fake = library({**t4_answers(), "nvmlInit": refuse(code)})
    gpus, version = read_gpus()
    assert isinstance(gpus, records.Missing)
    assert gpus.reason == reason
    # Without NVML's library there is no version; otherwise there is one, and it could not be read.
    assert version is None if reason == "library_not_found" else isinstance(version, records.Missing)
    assert fake.asked == ["nvmlInit"]


PREDECESSORS = {
    "nvmlDeviceGetTemperatureV": ("nvmlDeviceGetTemperature", "temperature_c"),
    "nvmlDeviceGetCurrentClocksEventReasons": ("nvmlDeviceGetCurrentClocksThrottleReasons", "event_reasons"),
}


@pytest.mark.parametrize("new", PREDECESSORS)
def test_the_old_call_is_asked_only_where_the_new_one_is_not_there(library: Use, new: str) -> None:
    old, field = PREDECESSORS[new]
    fake = library({**t4_answers(), old: 77})
    gpu().facts()
    assert old not in fake.asked
    for code in (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_DEPRECATED):
        library({**t4_answers(), new: refuse(code), old: 77})
        assert getattr(gpu().facts(), field) == 77
    answers = {**t4_answers(), old: 77}
    del answers[new]  # an nvidia-ml-py from before the new call
    library(answers)
    assert getattr(gpu().facts(), field) == 77


@pytest.mark.parametrize("new", PREDECESSORS)
def test_a_lost_gpu_is_lost_and_not_asked_the_old_way(library: Use, new: str) -> None:
    old, field = PREDECESSORS[new]
    library({**t4_answers(), new: refuse(pynvml.NVML_ERROR_GPU_IS_LOST), old: 77})
    reading = getattr(gpu().facts(), field)
    assert isinstance(reading, records.Missing)
    assert reading.reason == "gpu_is_lost"


def test_a_gpu_that_gives_no_handle(library: Use) -> None:
    library({**t4_answers(), "nvmlDeviceGetHandleByIndex": refuse(pynvml.NVML_ERROR_GPU_IS_LOST)})
    lost = gpu()
    facts = lost.facts()
    assert (facts.uuid, facts.name, facts.pci_address) == ("", "", "")
    for reading in (facts.persistence_mode, facts.supported_clocks, facts.power.max_watts, facts.ecc_pending):
        assert isinstance(reading, records.Missing)
        assert reading.reason == "gpu_is_lost"
    refused = lost.set_persistence(True)
    assert refused is not None
    assert refused.reason == "gpu_is_lost"


def test_setters_hand_over_nvmls_units(library: Use) -> None:
    given: list[tuple[Any, ...]] = []
    names = (
        "nvmlDeviceSetPersistenceMode", "nvmlDeviceSetApplicationsClocks", "nvmlDeviceSetGpuLockedClocks",
        "nvmlDeviceSetPowerManagementLimit", "nvmlDeviceSetEccMode", "nvmlDeviceSetComputeMode",
    )  # fmt: skip
    library({**t4_answers(), **{name: lambda *values: given.append(values[1:]) for name in names}})
    t4 = gpu()
    assert t4.set_persistence(True) is None
    assert t4.set_application_clocks(records.ClockPair(5001, 1590)) is None
    assert t4.lock_graphics_clock(1590) is None
    assert t4.set_power_limit(62.5) is None
    assert t4.set_ecc(False) is None
    assert t4.set_compute_mode("exclusive_process") is None
    assert given == [(1,), (5001, 1590), (1590, 1590), (62500,), (0,), (3,)]
