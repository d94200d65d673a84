"""How a GPU is, against a pynvml whose answers are given: counters, pages, rows, links, and each refusal's own kind."""

from __future__ import annotations

import types
from typing import Any

import pynvml
import pytest
from fakegpu import t4
from test_nvml import Answers, FakePynvml, refuse, t4_answers

from gpuprep.agent import nvml
from gpuprep.records import GpuFacts, Missing, from_json, to_json
from gpuprep.records.gpu import EccErrors, PcieLink, RemappedRows, RetiredPages, Throttled, Utilization

INVALID, UNSUPPORTED, LOST, NO_FUNCTION = 2, 3, 15, 13


def field(value: int = 0, *, refusal: int = 0, kind: int = 3) -> types.SimpleNamespace:
    member = {1: "uiVal", 3: "ullVal"}[kind]
    return types.SimpleNamespace(nvmlReturn=refusal, valueType=kind, value=types.SimpleNamespace(**{member: value}))


def links(count: int, down: tuple[int, ...] = ()) -> Any:
    def state(_: object, link: int) -> int:
        if link >= count:
            refuse(INVALID)()
        return int(link not in down)

    return state


def healthy() -> Answers:
    """A V100 in good health, with the answers that only a newer GPU has taken from an A100."""
    return {
        **t4_answers(),
        "nvmlDeviceGetPowerUsage": 27500,
        "nvmlDeviceGetPerformanceState": 8,
        "nvmlDeviceGetTemperatureThreshold": lambda _, kind: {1: 93}[kind],
        "nvmlDeviceGetCudaComputeCapability": [7, 5],
        "nvmlDeviceGetVbiosVersion": b"90.04.38.00.03",
        "nvmlDeviceGetUtilizationRates": types.SimpleNamespace(gpu=3, memory=1),
        "nvmlDeviceGetEncoderUtilization": [4, 1000],
        "nvmlDeviceGetDecoderUtilization": [5, 1000],
        "nvmlDeviceGetCurrPcieLinkGeneration": 1,
        "nvmlDeviceGetCurrPcieLinkWidth": 16,
        "nvmlDeviceGetMaxPcieLinkGeneration": 3,
        "nvmlDeviceGetMaxPcieLinkWidth": 16,
        "nvmlDeviceGetGpuMaxPcieLinkGeneration": 4,
        "nvmlDeviceGetPcieReplayCounter": 7,
        "nvmlDeviceGetTotalEccErrors": lambda _, kind, counter: {(0, 0): 11, (1, 0): 0, (0, 1): 21, (1, 1): 2}[
            kind, counter
        ],
        "nvmlDeviceGetRetiredPages": lambda _, cause: [[1, 2, 3], [4]][cause],
        "nvmlDeviceGetRetiredPagesPendingStatus": 0,
        "nvmlDeviceGetRemappedRows": (6, 1, 1, 0),
        "nvmlDeviceGetMigMode": [0, 1],
        "nvmlDeviceGetNvLinkState": links(6, down=(4,)),
        "nvmlDeviceGetFieldValues": lambda _, ids: [field(1_500_000_000 * (i + 1)) for i in range(len(ids))],
        "nvmlDeviceGetComputeRunningProcesses": [],
        "nvmlDeviceGetGraphicsRunningProcesses": [],
    }


def facts(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> GpuFacts:
    monkeypatch.setattr(nvml, "pynvml", FakePynvml({**healthy(), **changes}))
    return nvml.Gpu(0).facts()


def test_every_reading_of_a_healthy_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = facts(monkeypatch)
    assert (gpu.video_clock_mhz, gpu.max_memory_clock_mhz, gpu.power_watts, gpu.memory_used_mib) == (
        540,
        1590,
        27.5,
        451,
    )
    assert (gpu.performance_state, gpu.slowdown_temperature_c) == (8, 93)
    assert (gpu.compute_capability, gpu.vbios) == ("7.5", "90.04.38.00.03")
    assert gpu.utilization == Utilization(3, 1, 4, 5)
    assert gpu.pcie == PcieLink(1, 16, 3, 16, 4, 7)
    assert gpu.ecc_errors == EccErrors(11, 0, 21, 2)
    assert gpu.retired_pages == RetiredPages(3, 1, False)
    assert gpu.remapped_rows == RemappedRows(6, 1, True, False)
    assert (gpu.mig_current, gpu.mig_pending) == (False, True)
    assert gpu.nvlinks == (True, True, True, True, False, True)
    assert gpu.processes == ()
    assert gpu.throttled == Throttled(1.5, 3.0, 4.5, 6.0, 7.5)
    assert from_json(GpuFacts, to_json(gpu)) == gpu


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (3, "not_supported"),
        (4, "no_permission"),
        (13, "function_not_found"),
        (15, "gpu_is_lost"),
        (26, "deprecated"),
    ],
)
def test_the_refusals_stay_apart(monkeypatch: pytest.MonkeyPatch, code: int, reason: str) -> None:
    gpu = facts(
        monkeypatch,
        nvmlDeviceGetTotalEccErrors=refuse(code),
        nvmlDeviceGetRemappedRows=refuse(code),
        nvmlDeviceGetMigMode=refuse(code),
        nvmlDeviceGetNvLinkState=refuse(code),
    )
    readings = (gpu.ecc_errors, gpu.remapped_rows, gpu.mig_current, gpu.mig_pending, gpu.nvlinks)
    for reading in readings:
        assert isinstance(reading, Missing)
        assert reading.reason == reason
    assert gpu.pcie == PcieLink(1, 16, 3, 16, 4, 7)


def test_one_counter_that_is_refused_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def aggregate_only(_: object, kind: int, counter: int) -> int:
        return 5 + kind if counter == 1 else int(refuse(NO_FUNCTION)())

    errors = facts(monkeypatch, nvmlDeviceGetTotalEccErrors=aggregate_only).ecc_errors
    assert isinstance(errors, EccErrors)
    assert isinstance(errors.uncorrected_volatile, Missing)
    assert (errors.corrected_aggregate, errors.uncorrected_aggregate) == (5, 6)


def test_an_older_driver_counts_by_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    """R470 knows no fields 269 to 271, and gives the power cap's time as a violation."""
    gpu = facts(
        monkeypatch,
        nvmlDeviceGetFieldValues=lambda _, ids: [field(refusal=UNSUPPORTED) for _ in ids],
        nvmlDeviceGetViolationStatus=lambda _, policy: types.SimpleNamespace(violationTime={0: 2e9, 2: 0}[policy]),
    )
    assert isinstance(gpu.throttled, Throttled)
    assert (gpu.throttled.sw_power_cap, gpu.throttled.sync_boost) == (2.0, 0.0)
    refused = Missing("not_supported", f"nvmlDeviceGetFieldValues(270): {pynvml.NVMLError(UNSUPPORTED)}")
    assert gpu.throttled.hw_thermal == refused


def test_a_lost_gpu_has_no_readings_and_no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = facts(monkeypatch, nvmlDeviceGetHandleByIndex=refuse(LOST))
    for reading in (gpu.pcie, gpu.ecc_errors, gpu.nvlinks, gpu.throttled, gpu.processes, gpu.utilization, gpu.vbios):
        assert isinstance(reading, Missing)
        assert reading.reason == "gpu_is_lost"


def test_all_links_of_the_largest_boards(monkeypatch: pytest.MonkeyPatch) -> None:
    assert facts(monkeypatch, nvmlDeviceGetNvLinkState=links(36)).nvlinks == (True,) * 36


def test_an_old_record_has_no_health_and_says_so() -> None:
    document = to_json(t4())
    old = from_json(GpuFacts, "{" + document[1:].split(', "video_clock_mhz"')[0] + "}")
    assert old == t4()
    assert old.pcie == Missing("not_read", "this record was made by a gpuprep that did not read it yet")
