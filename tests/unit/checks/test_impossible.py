"""Figures that can be no measurement, wherever in a record they stand."""

from __future__ import annotations

import math

import pytest
from judgedbandwidth import no_measurement

from gpuprep import records


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (math.nan, "NaN"),
        (math.inf, "infinity"),
        (-math.inf, "infinity"),
        (1e15, "10^15 or more"),
        (-(10**15), "10^15 or more"),
    ],
)
def test_a_figure_that_cannot_be_is_named_with_its_place(value: float, shown: str) -> None:
    (found,) = no_measurement({"gemm": {"gpus": [{"gemms": [{}, {"microseconds": value, "k": 8192}]}]}})
    assert (found.key, found.status) == ("gemm.figures", records.Status.UNKNOWN)
    assert found.reason == f"no measurement can give gpus[0].gemms[1].microseconds = {shown}"
    assert found.remedy


def test_many_are_counted_and_the_first_are_named() -> None:
    (found,) = no_measurement({"bandwidth": {"a": math.nan, "b": [math.nan, math.inf], "c": 1e30, "d": math.nan}})
    assert found.actual == "5 impossible"
    assert found.reason.endswith("a = NaN, b[0] = NaN, b[1] = infinity and 2 more")


def test_what_can_be_measured_and_what_gave_no_answer_are_none() -> None:
    healthy = {"tflops": 999.9e12, "exact": True, "name": "NaN", "error": None, "zero": 0, "small": 1e-300}
    negative = {"saved_seconds": -0.4, "exit_code": -11, "temperature_c": -3.0}  # one process may be the slower way
    assert (
        no_measurement({"gemm": healthy, "transcode": negative, "codec": records.Missing("command_failed", "")}) == []
    )


@pytest.mark.parametrize("value", [0, -1, -700.0])
def test_a_gpu_has_sms_and_watts(value: float) -> None:
    gpu = {"sms": value, "power_limit_watts": value, "index": 0}
    (found,) = no_measurement({"gemm": {"gpus": [gpu]}})
    assert found.reason == f"no measurement can give gpus[0].sms = {value:g}, gpus[0].power_limit_watts = {value:g}"


def test_a_figure_that_the_codec_found_to_be_no_number_is_none_either() -> None:
    """Also where no check reads it, as the width of a link that joins GPU and CPU chip to chip."""
    values = records.from_json_value(records.ProbeResult, {"probe": "bandwidth", "source": "measured", "seconds": 1.0,
                                           "values": {"gpus": [{"pcie": {"width": math.nan}}]}}).values  # fmt: skip
    (found,) = no_measurement({"bandwidth": values})
    assert found.reason == "no measurement can give gpus[0].pcie.width = NaN"


@pytest.mark.parametrize("key", ["iterations", "buffer_mib", "repeats", "sms"])
def test_something_that_was_measured_has_more_than_none_of_these(key: str) -> None:
    (found,) = no_measurement({"gemm": {"gpus": [{"gemms": [{key: 0}]}]}})
    assert found.reason.endswith(f"{key} = 0")


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ({"telemetry": {"graphics_clock_mhz": [1980, 99999]}}, "telemetry.graphics_clock_mhz[1] = 99999"),
        ({"telemetry": {"memory_clock_mhz": [10**6]}}, "telemetry.memory_clock_mhz[0] = 1e+06"),
        ({"telemetry": {"power_watts": [700.0, 7e6]}}, "telemetry.power_watts[1] = 7e+06"),
        ({"telemetry": {"temperature_c": [40, 3000]}}, "telemetry.temperature_c[1] = 3000"),
        ({"telemetry": {"gpu_utilization_percent": [101]}}, "telemetry.gpu_utilization_percent[0] = 101"),
        ({"telemetry": {"hz": 10**8, "seconds": [10**6]}}, "telemetry.hz = 1e+08, telemetry.seconds[0] = 1e+06"),
        ({"cpu_percent": 140.0}, "cpu_percent = 140"),
        ({"index": 10**6}, "index = 1e+06"),
        ({"engines": {"nvenc": 10**6}}, "engines.nvenc = 1e+06"),
        ({"chosen": {"channels": 10**6}}, "chosen.channels = 1e+06"),
        ({"exit_code": 4000}, "exit_code = 4000"),
    ],
)
def test_what_no_gpu_and_no_host_has_is_named_in_every_place(values: dict[str, object], shown: str) -> None:
    (found,) = no_measurement({"gemm": values})
    assert (found.status, found.reason) == (records.Status.UNKNOWN, f"no measurement can give {shown}")


def test_the_most_that_any_board_has_can_be() -> None:
    highest = {
        "graphics_clock_mhz": [3600], "memory_clock_mhz": 14001, "temperature_c": 126, "power_watts": [1900.0],
        "gpu_utilization_percent": [100.0], "cpu_percent": 100.0, "index": 15, "engines": {"nvenc": 4, "nvdec": 8},
        "exit_code": 255, "hz": 1000, "seconds": 3600.0, "l2_mib": 126,
    }  # fmt: skip
    assert no_measurement({"gemm": highest}) == []
