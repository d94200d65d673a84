"""Readings while something is measured, of a GPU whose readings are given; and the NVML calls behind them."""

from __future__ import annotations

import threading
import types
from typing import Any

import pynvml
import pytest
from fakepynvml import gpu, install, refuse
from samplerows import COLUMNS, NOBODY, Scripted, loaded_answers, row

from gpuprep import records
from gpuprep.agent.compute.sampler import Sampler

HANGS = 300  # seconds; nothing here takes as long
LOST = records.Missing("gpu_is_lost", "GPU is lost")


def test_the_figures_are_those_of_the_readings() -> None:
    clocks = [row(graphics_clock_mhz=1980, event_reasons=0), row(graphics_clock_mhz=1500, event_reasons=4)]
    scripted = Scripted(1, [*clocks, row(graphics_clock_mhz=1500, event_reasons=0x20)], count=4)
    with Sampler([scripted], hz=200) as sampler:
        assert scripted.asked.wait(HANGS)
    telemetry = sampler.telemetry(1)
    lengths = {len(telemetry[name]) for name in ("seconds", *COLUMNS)}
    assert lengths == {next(scripted.taken)}
    assert telemetry["graphics_clock_mhz"][:4] == [1980, 1500, 1500, 1500]
    assert telemetry["seconds"] == sorted(telemetry["seconds"])
    assert 0 < telemetry["hz"] <= 400
    assert sampler.highest(1, "graphics_clock_mhz") == 1980
    assert sampler.mean(1, "graphics_clock_mhz") < 1900  # type: ignore[operator]
    assert sampler.event_reasons(1) == 0x24


def test_work_that_ends_at_once_has_two_readings_and_no_thread_stays() -> None:
    scripted = Scripted(0, [row(power_watts=70.0), row(power_watts=60.0)])
    with Sampler([scripted], hz=0.1) as sampler:  # however busy this computer is, no third one
        pass
    assert sampler.mean(0, "power_watts") == 65.0
    assert "sampler" not in [thread.name for thread in threading.enumerate()]


def test_a_gpu_lost_in_the_middle_leaves_nulls_and_the_readings_before() -> None:
    gone = dict.fromkeys(COLUMNS, LOST)
    scripted = Scripted(0, [row(temperature_c=50), row(temperature_c=52), gone])
    with Sampler([scripted], hz=200) as sampler:
        assert scripted.asked.wait(HANGS)
    assert sampler.telemetry(0)["temperature_c"][:3] == [50, 52, None]
    assert sampler.mean(0, "temperature_c") == 51


def test_where_every_reading_failed_the_reason_is_kept() -> None:
    scripted = Scripted(0, [row(event_reasons=LOST, power_watts=records.Missing("not_supported", "no"))])
    with Sampler([scripted], hz=0.1) as sampler:  # however busy this computer is, no third one
        pass
    assert sampler.event_reasons(0) == LOST
    assert sampler.mean(0, "power_watts") == records.Missing("not_supported", "no")
    assert sampler.telemetry(0)["power_watts"] == [None, None]


def test_waiting_for_readings() -> None:
    with Sampler([Scripted(0, [row()]), Scripted(1, [row()])], hz=100) as sampler:
        sampler.wait(5)
        assert len(sampler.telemetry(1)["seconds"]) >= 5


def test_an_error_in_the_work_ends_the_thread_too() -> None:
    with pytest.raises(ZeroDivisionError), Sampler([Scripted(0, [row()])]):
        1 / 0  # noqa: B018
    assert "sampler" not in [thread.name for thread in threading.enumerate()]


# ------------------------------------------------------------ the NVML calls


def use(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Any:
    install(monkeypatch, {**loaded_answers(), **changes})
    return gpu()


def test_load_has_every_column(monkeypatch: pytest.MonkeyPatch) -> None:
    load = use(monkeypatch).load()
    assert tuple(load) == COLUMNS
    assert load == {
        "graphics_clock_mhz": 930,
        "memory_clock_mhz": 5000,
        "video_clock_mhz": 1200,
        "power_watts": 69.5,
        "temperature_c": 31,
        "event_reasons": 1,
        "gpu_utilization_percent": 99,
        "encoder_utilization_percent": 41,
        "decoder_utilization_percent": 22,
    }


def test_one_refused_reading_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    load = use(monkeypatch, nvmlDeviceGetEncoderUtilization=refuse(3)).load()
    assert load["encoder_utilization_percent"].reason == "not_supported"
    assert load["decoder_utilization_percent"] == 22


def test_processes_of_both_kinds_by_pid(monkeypatch: pytest.MonkeyPatch) -> None:
    found = use(monkeypatch).processes()
    assert isinstance(found, list)
    assert [(process.pid, process.name) for process in found] == [(NOBODY + 4, "name4"), (NOBODY + 9, "name9")]
    assert found[1].memory_mib == 300
    assert isinstance(found[0].memory_mib, records.Missing)


def test_processes_unknown_is_not_none_there(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = use(monkeypatch, nvmlDeviceGetComputeRunningProcesses=refuse(15))
    assert lost.processes() == records.Missing(
        "gpu_is_lost", f"nvmlDeviceGetComputeRunningProcesses: {pynvml.NVMLError(15)}"
    )


def test_encoder_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert use(monkeypatch).encoder_sessions() == 3
    refused = use(monkeypatch, nvmlDeviceGetEncoderStats=refuse(3)).encoder_sessions()
    assert isinstance(refused, records.Missing)
    assert refused.reason == "not_supported"


def test_power_is_that_of_the_moment_where_the_driver_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual reading is a mean of a second: after a rest it says half of what is drawn."""
    asked: list[list[int]] = []

    def fields(_: object, numbers: list[int]) -> list[types.SimpleNamespace]:
        asked.append(numbers)
        return [types.SimpleNamespace(nvmlReturn=0, valueType=1, value=types.SimpleNamespace(uiVal=688_000))]

    assert use(monkeypatch, nvmlDeviceGetFieldValues=fields).load()["power_watts"] == 688.0
    assert asked == [[186]]  # NVML_FI_DEV_POWER_INSTANT


def test_power_of_an_older_driver_or_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = [types.SimpleNamespace(nvmlReturn=3, valueType=0, value=None)]
    assert use(monkeypatch, nvmlDeviceGetFieldValues=lambda *_: refused).load()["power_watts"] == 69.5
    gone = use(monkeypatch, nvmlDeviceGetFieldValues=refuse(15), nvmlDeviceGetPowerUsage=refuse(15))
    assert gone.load()["power_watts"].reason == "gpu_is_lost"
