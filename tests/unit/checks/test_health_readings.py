"""Readings of a GPU's health that are gone from a record, or that no GPU can give."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from builders import finished_snapshot, resolved

from gpuprep import checks, records

WANTED = resolved("a100")
FINISHED = finished_snapshot(WANTED)
NONE = records.Missing("not_supported", "")
ERRORS = records.EccErrors(0, 0, 0, 0)
NEWER: dict[str, Any] = {
    "temperatures": records.Temperatures(60, 85, 92, 95, NONE, NONE, NONE),
    "spare_rows": records.SpareRows(640, 0, 0, 0, 0),
    "dram_errors": ERRORS, "sram_errors": ERRORS, "sram_threshold_exceeded": False, "ecc_default": True,
    "recovery_action": "none", "pcie_errors": records.PcieErrors(0, 0, 0), "cores": 6912, "slowdown_temperature_c": 92,
    "pcie": records.PcieLink(4, 16, 4, 16, 4, 0), "throttled": records.Throttled(0.0, 0.0, 0.0, 0.0, 0.0),
}  # fmt: skip


def snapshot(**values: Any) -> records.Snapshot:
    assert not isinstance(FINISHED.gpus, records.Missing)
    return dataclasses.replace(FINISHED, gpus=(dataclasses.replace(FINISHED.gpus[0], **values),))


def bad(snapshot: records.Snapshot) -> dict[str, records.Finding]:
    return {
        one.key: one
        for one in checks.compare(WANTED, snapshot)
        if one.status not in (records.Status.PASS, records.Status.SKIP)
    }


def test_all_readings_and_none_of_the_newer_ones_are_well() -> None:
    assert bad(snapshot()) == {}
    assert bad(snapshot(**NEWER)) == {}


@pytest.mark.parametrize("name", [*NEWER, "nvlinks", "mig_current"])
def test_one_of_the_newer_readings_that_vanished_is_unknown(name: str) -> None:
    if name in ("cores", "ecc_default", "slowdown_temperature_c"):
        return  # the catalogue knows them
    found = bad(snapshot(**{**NEWER, name: records.NOT_READ}))
    assert {one.status for one in found.values()} == {records.Status.UNKNOWN}, name


@pytest.mark.parametrize(
    ("group", "member"),
    [
        ("remapped_rows", "failure"), ("remapped_rows", "pending"), ("retired_pages", "pending"),
        ("retired_pages", "double_bit"), ("ecc_errors", "uncorrected_volatile"),
    ],
)  # fmt: skip
def test_half_of_a_group_is_no_older_record(group: str, member: str) -> None:
    gpu = FINISHED.gpus[0] if not isinstance(FINISHED.gpus, records.Missing) else None
    part = dataclasses.replace(getattr(gpu, group), **{member: records.NOT_READ})
    assert bad(snapshot(**{group: part}))[f"gpu 0.{group}"].status is records.Status.UNKNOWN


@pytest.mark.parametrize("name", ["temperature_c", "event_reasons"])
def test_what_every_gpuprep_read_cannot_be_absent(name: str) -> None:
    assert {one.status for one in bad(snapshot(**{name: records.NOT_READ})).values()} == {records.Status.UNKNOWN}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"graphics_clock_mhz": -1}, "graphics_clock_mhz = -1"),
        ({"graphics_clock_mhz": 9999}, "graphics_clock_mhz = 9999, above the highest, 1410"),
        ({"memory_used_mib": -5}, "memory_used_mib = -5"),
        ({"memory_used_mib": 10**6}, "memory_used_mib = 1000000 of 40960"),
        ({"performance_state": 99}, "performance_state = 99"),
        ({"video_clock_mhz": records.Missing("unparsable", "NaN")}, "video_clock_mhz = NaN"),
        ({"index": -3}, "index = -3"),
        ({"power_watts": 1e15}, "power_watts = 10^15 or more"),
        ({"pcie": records.PcieLink(7, 16, 7, 16, 7, 0)}, "a PCIe link of generation 7"),
        ({"pcie": records.PcieLink(4, 16, 4, 8, 4, 0)}, "a PCIe link with 16 lanes now and 8 at most"),
        ({"pcie": records.PcieLink(4, 13, 4, 16, 4, 0)}, "a PCIe link with 13 lanes"),
        ({"pcie": records.PcieLink(5, 16, 5, 16, 5, 0)}, "a PCIe link of generation 5, and the device has 4"),
        ({"pcie": records.PcieLink(4, 16, 4, 16, 3, 0)}, "a PCIe link of generation 4 now and 3 at most"),
        (
            {"power": records.PowerLimits(2000.0, 400.0, 100.0, 400.0)},
            "power.current_watts = 2000, above the highest, 400",
        ),
        (
            {"power": records.PowerLimits(2000.0, 2000.0, 100.0, 2000.0)},
            "power.current_watts = 2000, and the board has at",
        ),
        (
            {"power": records.PowerLimits(400.0, 400.0, 100.0, 4e8)},
            "power.max_watts = 4e+08, and the board has at most 440",
        ),
        ({"throttled": records.Throttled(-5.0, 0.0, 0.0, 0.0, 0.0)}, "throttled.sw_power_cap = -5"),
        ({"throttled": records.Throttled(0.0, -5.0, 0.0, 0.0, 0.0)}, "throttled.sync_boost = -5"),
        ({"pcie_errors": records.PcieErrors(-5, 0, 0)}, "pcie_errors.correctable = -5"),
        ({"pcie_errors": records.PcieErrors(0, -5, 0)}, "pcie_errors.non_fatal = -5"),
        (
            {"temperatures": records.Temperatures(60, 10**6, 92, 95, NONE, NONE, NONE)},
            "temperatures.max_operating = 1e+06",
        ),
        ({"temperatures": records.Temperatures(60, 85, 10**6, 95, NONE, NONE, NONE)}, "temperatures.shutdown = 1e+06"),
        (
            {"temperatures": records.Temperatures(60, 85, 92, 95, NONE, NONE, -900)},
            "temperatures.shutdown_margin = -900",
        ),
        ({"processes": (records.ProcessOnGpu(10**7, "python3", 100),)}, "a program with the number 10000000"),
        (
            {"power": records.PowerLimits(400.0, 400.0, 500.0, 400.0)},
            "power.min_watts = 500, above power.max_watts, 400",
        ),
        (
            {"power": records.PowerLimits(400.0, 400.0, 450.0, 500.0)},
            "power.current_watts = 400, below the lowest, 450",
        ),
        ({"power": records.PowerLimits(0.0, 0.0, NONE, NONE)}, "power.current_watts = 0"),
        ({"power_watts": 700.0}, "power_watts = 700, far above the limit, 400"),
        ({"video_clock_mhz": 9000}, "video_clock_mhz = 9000, above the highest, 1290"),
        ({"memory_clock_mhz": 9000, "max_memory_clock_mhz": 1215}, "memory_clock_mhz = 9000, above the highest, 1215"),
        ({"max_memory_clock_mhz": 9000}, "max_memory_clock_mhz = 9000, above the highest, 1215"),
        ({"default_application_clocks": records.ClockPair(9999, 1095)}, "default_application_clocks.memory_mhz = 9999"),
        (
            {"default_application_clocks": records.ClockPair(1215, 9999)},
            "default_application_clocks.graphics_mhz = 9999",
        ),
        ({"processes": (records.ProcessOnGpu(7, "python3", 10**6),)}, "a program with 1e+06 MiB of 40960"),
        ({"processes": (records.ProcessOnGpu(-7, "python3", 100),)}, "processes[0].pid = -7"),
        ({"utilization": records.Utilization(150, 0, 0, 0)}, "utilization.gpu = 150 %"),
    ],
)
def test_a_reading_that_no_gpu_gives_is_named(values: dict[str, Any], words: str) -> None:
    (found,) = [one for key, one in bad(snapshot(**values)).items() if key.endswith(".figures")]
    assert found.status is records.Status.UNKNOWN
    assert words in found.reason


@pytest.mark.parametrize("seconds", [-1.0, 1e15])
def test_a_time_that_no_machine_can_be_up_is_unknown(seconds: float) -> None:
    host = dataclasses.replace(FINISHED, kernel=dataclasses.replace(FINISHED.kernel, uptime_seconds=seconds))
    assert bad(host)["host.uptime"].status is records.Status.UNKNOWN


def test_an_error_of_the_memory_counts_although_the_sum_does_not_have_it() -> None:
    found = bad(snapshot(dram_errors=records.EccErrors(0, 1, 0, 1)))["gpu 0.ecc_errors"]
    assert found.status is records.Status.FAIL
    assert "1 error of the memory could not be corrected" in found.reason


def test_errors_that_a_reset_took_from_the_short_counter_count_by_the_long_one() -> None:
    """Between the facts before the measurements and those after them."""
    for name in ("ecc_errors", "dram_errors", "sram_errors"):
        before = snapshot(**NEWER, ecc_errors=ERRORS)
        after = dataclasses.replace(
            snapshot(**{**NEWER, "ecc_errors": ERRORS, name: records.EccErrors(0, 0, 0, 3)}),
            taken_at="2026-11-24T12:05:00+00:00",
        )
        found = {one.key: one for one in checks.compare(WANTED, after, before=dataclasses.replace(
            before, taken_at="2026-11-24T12:00:00+00:00"))}  # fmt: skip
        assert found["gpu 0.ecc_errors"].status is records.Status.FAIL, name
        assert "3 errors of the" in found["gpu 0.ecc_errors"].reason


@pytest.mark.parametrize(
    "values",
    [
        {"temperature_c": 99},
        {"slowdown_temperature_c": 125, "temperatures": records.Temperatures(97, 85, 120, 95, NONE, NONE, NONE)},
    ],
)
def test_readings_above_the_shutdown_are_unknown(values: dict[str, Any]) -> None:
    assert bad(snapshot(**{**NEWER, **values}))["gpu 0.temperature"].status is records.Status.UNKNOWN


def test_a_fatal_error_of_the_link_counts_without_its_packets() -> None:
    found = bad(snapshot(pcie_errors=records.PcieErrors(0, 0, 2)))["gpu 0.pcie_errors"]
    assert found.status is records.Status.WARN
    assert "2 fatal errors" in found.reason


@pytest.mark.parametrize(
    "values",
    [
        {"power_watts": 1.5 * 400.0},  # for milliseconds, H100 and H200 draw 1.3 of their limit
        {"power": records.PowerLimits(400.0, 400.0, NONE, NONE)},  # an older driver names no bounds
        {"power": records.PowerLimits(403.0, 400.0, 100.0, 400.0)},
        {"video_clock_mhz": 1305, "memory_clock_mhz": 1215, "max_memory_clock_mhz": 1215},
        {"nvlinks": (True,) * 12},
        {"temperatures": records.Temperatures(60, 0, 0, 0, 40, -2, -5)},  # 0: the board has no such limit
        {"pcie_errors": records.PcieErrors(2**32 - 1, 2**32 - 1, 0)},  # a virtual machine hides them
        {"processes": (records.ProcessOnGpu(7, "python3", 40960),)},
    ],
)
def test_what_a_healthy_board_reads_is_no_figure_that_cannot_be(values: dict[str, Any]) -> None:
    assert not {key for key, one in bad(snapshot(**values)).items() if one.status is records.Status.UNKNOWN}


@pytest.mark.parametrize("up", [True, False])
def test_more_nvlinks_than_the_chip_has_are_unknown(up: bool) -> None:
    found = bad(snapshot(nvlinks=(up,) * 13))["gpu 0.nvlinks"]
    assert (found.status, "13 NVLinks are recorded, and the board has 12" in found.reason) == (
        records.Status.UNKNOWN,
        True,
    )


def test_a_board_may_list_links_of_its_chip_that_lead_nowhere() -> None:
    """An A800 has the chip of an A100 and eight of its twelve NVLinks."""
    wanted = resolved("base", gpus=("a800",))
    host = finished_snapshot(wanted)
    assert not isinstance(host.gpus, records.Missing)

    def found(links: tuple[bool, ...]) -> records.Status | None:
        gpu = dataclasses.replace(host.gpus[0], nvlinks=links)  # type: ignore[index]
        judged = checks.compare(wanted, dataclasses.replace(host, gpus=(gpu,)))
        return next((one.status for one in judged if one.key == "gpu 0.nvlinks"), None)

    assert found((True,) * 8) is records.Status.PASS
    assert found((True,) * 8 + (False,) * 4) is not records.Status.UNKNOWN
    assert found((True,) * 9 + (False,) * 3) is records.Status.UNKNOWN


@pytest.mark.parametrize("switches", [-1, 10**6])
def test_nvswitches_that_no_machine_has_are_unknown(switches: int) -> None:
    found = bad(dataclasses.replace(FINISHED, nvswitches=switches))
    assert found["host.nvswitches"].status is records.Status.UNKNOWN


@pytest.mark.parametrize("name", ["index", "uuid", "pci_address"])
def test_one_gpu_that_stands_twice_is_unknown(name: str) -> None:
    wanted = resolved("a100", "debian13", ("a100", "a100"))
    host = finished_snapshot(wanted)
    assert not isinstance(host.gpus, records.Missing)
    first, second = host.gpus
    again = dataclasses.replace(second, **{name: getattr(first, name)})
    found = {one.key: one for one in checks.compare(wanted, dataclasses.replace(host, gpus=(first, again)))}
    assert (found["gpus.entries"].status, bool(found["gpus.entries"].remedy)) == (records.Status.UNKNOWN, True)
    assert "gpus.entries" not in {one.key for one in checks.compare(wanted, host)}
