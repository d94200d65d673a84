"""How a GPU is, against a pynvml whose answers are given: counters, pages, rows, links, and each refusal's own kind."""

from __future__ import annotations

import types
from typing import Any

import pynvml
import pytest
from fakegpu import t4
from fakepynvml import Answers, gpu, install, refuse, t4_answers

from gpuprep import records

INVALID, UNSUPPORTED, LOST, NO_FUNCTION = 2, 3, 15, 13


# Number of a field ─► value, its nvmlValueType_t
FIELDS = {
    74: (1_500_000_000, 3), 76: (3_000_000_000, 3), 269: (4_500_000_000, 3), 270: (6_000_000_000, 3),
    271: (7_500_000_000, 3), 82: (61, 1), 193: (-8, 5), 194: (-2, 5), 173: (12, 1), 179: (3, 1), 180: (0, 1),
    230: (4, 1),
}  # fmt: skip


def field(value: int = 0, kind: int = 3, *, refusal: int = 0) -> types.SimpleNamespace:
    member = {1: "uiVal", 3: "ullVal", 5: "siVal"}[kind]
    return types.SimpleNamespace(nvmlReturn=refusal, valueType=kind, value=types.SimpleNamespace(**{member: value}))


def sram(_: object, status: Any) -> None:
    """Fills in nvmlEccSramErrorStatus_v1_t, which the caller gives by reference."""
    into = status._obj
    assert into.version == 0x1000068  # nvml.h: size and version of the structure
    into.volatile_corrected, into.volatile_parity, into.volatile_secded = 1, 2, 3
    into.aggregate_corrected, into.aggregate_parity, into.aggregate_secded = 4, 5, 6
    into.threshold_exceeded = 1


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
        "nvmlDeviceGetTemperatureThreshold": lambda _, kind: {0: 96, 1: 93, 2: 95, 3: 85}[kind],
        "nvmlDeviceGetMarginTemperature": 52,
        "nvmlDeviceGetNumGpuCores": 2560,
        "nvmlDeviceGetDefaultEccMode": 1,
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
        "nvmlDeviceGetMemoryErrorCounter": lambda _, kind, counter, location: 100 * location + 10 * counter + kind,
        "nvmlDeviceGetSramEccErrorStatus": sram,
        "nvmlDeviceGetRowRemapperHistogram": types.SimpleNamespace(max=638, high=1, partial=0, low=0, none=1),
        "nvmlDeviceGetRetiredPages": lambda _, cause: [[1, 2, 3], [4]][cause],
        "nvmlDeviceGetRetiredPagesPendingStatus": 0,
        "nvmlDeviceGetRemappedRows": (6, 1, 1, 0),
        "nvmlDeviceGetMigMode": [0, 1],
        "nvmlDeviceGetNvLinkState": links(6, down=(4,)),
        "nvmlDeviceGetFieldValues": lambda _, ids: [field(*FIELDS[number]) for number in ids],
        "nvmlDeviceGetComputeRunningProcesses": [],
        "nvmlDeviceGetGraphicsRunningProcesses": [],
    }


def facts(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> records.GpuFacts:
    install(monkeypatch, {**healthy(), **changes})
    return gpu().facts()


def test_every_reading_of_a_healthy_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    found = facts(monkeypatch)
    assert (found.video_clock_mhz, found.max_memory_clock_mhz, found.power_watts, found.memory_used_mib) == (
        540,
        1590,
        27.5,
        451,
    )
    assert (found.performance_state, found.slowdown_temperature_c) == (8, 93)
    assert (found.compute_capability, found.vbios) == ("7.5", "90.04.38.00.03")
    assert found.utilization == records.Utilization(3, 1, 4, 5)
    assert found.pcie == records.PcieLink(1, 16, 3, 16, 4, 7)
    assert found.ecc_errors == records.EccErrors(11, 0, 21, 2)
    assert found.retired_pages == records.RetiredPages(3, 1, False)
    assert found.remapped_rows == records.RemappedRows(6, 1, True, False)
    assert (found.mig_current, found.mig_pending) == (False, True)
    assert found.nvlinks == (True, True, True, True, False, True)
    assert found.processes == ()
    assert found.throttled == records.Throttled(1.5, 3.0, 4.5, 6.0, 7.5)
    assert found.temperatures == records.Temperatures(61, 85, 96, 95, 52, -2, -8)
    assert found.dram_errors == records.EccErrors(200, 201, 210, 211)
    assert (found.sram_errors, found.sram_threshold_exceeded) == (records.EccErrors(1, 5, 4, 11), True)
    assert found.spare_rows == records.SpareRows(638, 1, 0, 0, 1)
    assert (found.ecc_default, found.recovery_action, found.cores) == (True, "drain_and_reset", 2560)
    assert found.pcie_errors == records.PcieErrors(12, 3, 0)
    assert records.from_json(records.GpuFacts, records.to_json(found)) == found


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
    found = facts(
        monkeypatch,
        nvmlDeviceGetTotalEccErrors=refuse(code),
        nvmlDeviceGetRemappedRows=refuse(code),
        nvmlDeviceGetMigMode=refuse(code),
        nvmlDeviceGetNvLinkState=refuse(code),
    )
    readings = (found.ecc_errors, found.remapped_rows, found.mig_current, found.mig_pending, found.nvlinks)
    for reading in readings:
        assert isinstance(reading, records.Missing)
        assert reading.reason == reason
    assert found.pcie == records.PcieLink(1, 16, 3, 16, 4, 7)


def test_one_counter_that_is_refused_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def aggregate_only(_: object, kind: int, counter: int) -> int:
        return 5 + kind if counter == 1 else int(refuse(NO_FUNCTION)())

    errors = facts(monkeypatch, nvmlDeviceGetTotalEccErrors=aggregate_only).ecc_errors
    assert isinstance(errors, records.EccErrors)
    assert isinstance(errors.uncorrected_volatile, records.Missing)
    assert (errors.corrected_aggregate, errors.uncorrected_aggregate) == (5, 6)


def test_an_older_driver_counts_by_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    """R470 knows no fields 269 to 271, and gives the power cap's time as a violation."""
    found = facts(
        monkeypatch,
        nvmlDeviceGetFieldValues=lambda _, ids: [field(refusal=UNSUPPORTED) for _ in ids],
        nvmlDeviceGetViolationStatus=lambda _, policy: types.SimpleNamespace(violationTime={0: 2e9, 2: 0}[policy]),
    )
    assert isinstance(found.throttled, records.Throttled)
    assert (found.throttled.sw_power_cap, found.throttled.sync_boost) == (2.0, 0.0)
    refused = records.Missing("not_supported", f"nvmlDeviceGetFieldValues(270): {pynvml.NVMLError(UNSUPPORTED)}")
    assert found.throttled.hw_thermal == refused


def test_a_driver_that_does_not_know_the_new_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    """R470: fields that it does not know are invalid arguments, and SRAM has counters without the flag."""
    found = facts(
        monkeypatch,
        nvmlDeviceGetFieldValues=lambda _, ids: [field(refusal=INVALID) for _ in ids],
        nvmlDeviceGetViolationStatus=refuse(UNSUPPORTED),
        nvmlDeviceGetSramEccErrorStatus=refuse(NO_FUNCTION),
        nvmlDeviceGetMarginTemperature=refuse(NO_FUNCTION),
        nvmlDeviceGetRowRemapperHistogram=refuse(UNSUPPORTED),
    )
    for reading in (found.recovery_action, found.pcie_errors, found.throttled, found.sram_threshold_exceeded):
        assert isinstance(reading, records.Missing)
        assert reading.reason == "function_not_found"
    assert found.sram_errors == records.EccErrors(700, 701, 710, 711)
    assert isinstance(found.spare_rows, records.Missing)
    assert isinstance(found.temperatures, records.Temperatures)
    assert (found.temperatures.max_operating, found.temperatures.shutdown) == (85, 96)
    assert isinstance(found.temperatures.margin, records.Missing)


def test_memory_without_a_sensor_is_not_at_zero_degrees(monkeypatch: pytest.MonkeyPatch) -> None:
    cold = {**FIELDS, 82: (0, 1)}
    found = facts(monkeypatch, nvmlDeviceGetFieldValues=lambda _, ids: [field(*cold[number]) for number in ids])
    assert isinstance(found.temperatures, records.Temperatures)
    assert isinstance(found.temperatures.memory, records.Missing)
    assert found.temperatures.memory.reason == "not_supported"


@pytest.mark.parametrize(
    ("number", "action"), [(0, "none"), (1, "reset"), (2, "reboot"), (7, "reboot"), (99, "unknown 99")]
)
def test_each_recovery_action_has_a_word(monkeypatch: pytest.MonkeyPatch, number: int, action: str) -> None:
    told = {**FIELDS, 230: (number, 1)}
    found = facts(monkeypatch, nvmlDeviceGetFieldValues=lambda _, ids: [field(*told[one]) for one in ids])
    assert found.recovery_action == action


def test_a_lost_gpu_has_no_readings_and_no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    found = facts(monkeypatch, nvmlDeviceGetHandleByIndex=refuse(LOST))
    for reading in (
        found.pcie,
        found.ecc_errors,
        found.nvlinks,
        found.throttled,
        found.processes,
        found.utilization,
        found.vbios,
    ):
        assert isinstance(reading, records.Missing)
        assert reading.reason == "gpu_is_lost"


def test_all_links_of_the_largest_boards(monkeypatch: pytest.MonkeyPatch) -> None:
    assert facts(monkeypatch, nvmlDeviceGetNvLinkState=links(36)).nvlinks == (True,) * 36


def test_an_old_record_has_no_health_and_says_so() -> None:
    document = records.to_json(t4())
    old = records.from_json(records.GpuFacts, "{" + document[1:].split(', "video_clock_mhz"')[0] + "}")
    assert old == t4()
    assert old.pcie == records.Missing("not_read", "this record was made by a gpuprep that did not read it yet")
