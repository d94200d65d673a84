"""A GPU's health against published limits: each rule at its limit and one beyond, and readings that is impossible."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import finished_snapshot, load, resolved

from gpuprep import catalogue, checks, records
from gpuprep.desired import state

PASS, WARN, FAIL, UNKNOWN, SKIP = (
    records.Status.PASS,
    records.Status.WARN,
    records.Status.FAIL,
    records.Status.UNKNOWN,
    records.Status.SKIP,
)
NOT_SUPPORTED = records.Missing("not_supported", "Not Supported")
NO_FUNCTION = records.Missing("function_not_found", "an older driver")
BROKEN = records.Missing("command_failed", "Unknown Error")
T4, A100, L40S = resolved("t4"), resolved("a100"), resolved("base", gpus=("l40s",))
SOUND = {id(wanted): finished_snapshot(wanted) for wanted in (T4, A100, L40S)}


def snapshot(wanted: state.Wanted, **values: Any) -> records.Snapshot:
    finished = SOUND[id(wanted)]
    assert not isinstance(finished.gpus, records.Missing)
    return dataclasses.replace(finished, gpus=(dataclasses.replace(finished.gpus[0], **values),))


def judged(wanted: state.Wanted, **values: Any) -> dict[str, records.Finding]:
    found = checks.compare(wanted, snapshot(wanted, **values))
    assert len({one.key for one in found}) == len(found), "two findings have one key"
    return {one.property: one for one in found if one.subject == "gpu 0"}


def status(wanted: state.Wanted, prop: str, **values: Any) -> records.Status | None:
    """Its own status; every finding that did not pass says why and what to do."""
    found = judged(wanted, **values)
    for one in found.values():
        assert one.status in (PASS, SKIP) or (one.reason and one.remedy), one
        assert one.status is not SKIP or one.reason
    return found[prop].status if prop in found else None


def temperatures(**values: Any) -> records.Temperatures:
    fields = {field.name: NOT_SUPPORTED for field in dataclasses.fields(records.Temperatures)}
    return records.Temperatures(**{**fields, **values})


# ---------------------------------------------------------------- memory that repairs itself


@pytest.mark.parametrize(
    ("wanted", "rows", "expected"),
    [
        (A100, records.RemappedRows(0, 0, False, False), PASS),
        (A100, records.RemappedRows(200, 300, False, False), PASS),  # counts are history
        (A100, records.RemappedRows(0, 512, False, False), PASS),
        (A100, records.RemappedRows(0, 513, False, False), FAIL),
        (A100, records.RemappedRows(1, 0, True, False), WARN),  # contained: nothing uses the row
        (L40S, records.RemappedRows(1, 0, True, False), FAIL),  # not contained: it is still in use
        (A100, records.RemappedRows(0, 1, False, True), FAIL),
        (A100, records.RemappedRows(0, 1, True, True), FAIL),
        (A100, records.RemappedRows(-1, 0, False, False), UNKNOWN),
        (A100, records.RemappedRows(0, 2**32 - 1, False, False), UNKNOWN),
        (A100, records.RemappedRows(0, BROKEN, False, False), UNKNOWN),
        (A100, records.RemappedRows(0, BROKEN, False, True), FAIL),  # the flag says enough
        (A100, records.RemappedRows(0, 0, BROKEN, False), UNKNOWN),
        (A100, NOT_SUPPORTED, UNKNOWN),  # the board has a remapper
        (A100, NO_FUNCTION, UNKNOWN),
        (T4, NOT_SUPPORTED, SKIP),  # it retires pages
    ],
)
def test_remapped_rows(
    wanted: state.Wanted, rows: records.RemappedRows | records.Missing, expected: records.Status
) -> None:
    assert status(wanted, "remapped_rows", remapped_rows=rows) is expected


def test_a_failed_remap_says_whom_to_call_and_what_confirms_it() -> None:
    finding = judged(A100, remapped_rows=records.RemappedRows(0, 9, True, True))["remapped_rows"]
    assert "field diagnostic" in finding.reason
    assert "until then nothing uses it" in finding.reason, "what is also so is said, too"
    for words in ("show the provider this report", "the server's maker", "field diagnostic", "reset"):
        assert words in finding.remedy
    assert finding.actual == "0 after correctable and 9 after uncorrectable errors, one failed, one pending"


@pytest.mark.parametrize(
    ("banks", "expected", "words"),
    [
        (records.SpareRows(640, 0, 0, 0, 0), PASS, ""),
        (records.SpareRows(639, 1, 0, 0, 0), PASS, ""),
        (records.SpareRows(638, 0, 0, 2, 0), PASS, "2 banks with few spare rows"),
        (records.SpareRows(639, 0, 0, 0, 1), WARN, "1 bank of the memory without a spare row"),
        (records.SpareRows(-1, 641, 0, 0, 0), UNKNOWN, "is impossible"),
        (records.SpareRows(0, 0, 0, 0, 0), UNKNOWN, "no banks at all"),
        (records.SpareRows(640, 0, 0, 0, BROKEN), UNKNOWN, "Unknown Error"),
        (BROKEN, UNKNOWN, "Unknown Error"),
    ],
)
def test_spare_rows(banks: records.SpareRows | records.Missing, expected: records.Status, words: str) -> None:
    finding = judged(A100, spare_rows=banks)["spare_rows"]
    assert finding.status is expected
    assert words in finding.reason


@pytest.mark.parametrize("reading", [NOT_SUPPORTED, NO_FUNCTION])
def test_a_driver_that_tells_no_spare_rows_is_no_fault(reading: records.Missing) -> None:
    assert "spare_rows" not in judged(A100, spare_rows=reading)


@pytest.mark.parametrize(
    ("pages", "expected"),
    [
        (records.RetiredPages(0, 0, False), PASS),
        (records.RetiredPages(50, 12, False), PASS),
        (records.RetiredPages(50, 13, False), FAIL),
        (records.RetiredPages(0, 64, False), FAIL),
        (records.RetiredPages(1, 0, True), FAIL),
        (records.RetiredPages(-2, 0, False), UNKNOWN),
        (records.RetiredPages(0, 10**6, False), UNKNOWN),
        (records.RetiredPages(0, 0, BROKEN), UNKNOWN),
        (NOT_SUPPORTED, UNKNOWN),  # a T4 with ECC on counts them
        (BROKEN, UNKNOWN),
    ],
)
def test_retired_pages(pages: records.RetiredPages | records.Missing, expected: records.Status) -> None:
    assert status(T4, "retired_pages", retired_pages=pages) is expected


def test_without_ecc_nobody_counts_and_that_is_no_fault_of_the_memory() -> None:
    off = {"ecc_current": False, "ecc_pending": False, "retired_pages": NOT_SUPPORTED, "ecc_errors": NOT_SUPPORTED}
    found = judged(T4, **off)
    assert {found[prop].status for prop in ("retired_pages", "ecc_errors", "remapped_rows")} <= {SKIP, PASS}
    assert found["memory_protection"].status is WARN
    assert "nvidia-smi -i 0 -e 1" in found["memory_protection"].remedy


def test_a_divided_gpu_does_not_tell_rows() -> None:
    found = judged(A100, mig_current=True, mig_pending=True, remapped_rows=NOT_SUPPORTED, ecc_errors=NOT_SUPPORTED)
    assert found["remapped_rows"].status is SKIP
    assert found["mig"].status is FAIL


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"ecc_errors": records.EccErrors(0, 0, 10**9, 7)}, PASS),  # a life's sums are history
        ({"ecc_errors": records.EccErrors(3, 0, 3, 0)}, PASS),
        ({"ecc_errors": records.EccErrors(11, 0, 11, 0)}, WARN),  # within five minutes
        ({"ecc_errors": records.EccErrors(0, 1, 0, 1)}, FAIL),
        ({"ecc_errors": records.EccErrors(0, -1, 0, 0)}, UNKNOWN),
        ({"ecc_errors": records.EccErrors(-3, 0, 0, 0)}, UNKNOWN),
        ({"ecc_errors": records.EccErrors(0, 0, -1, 0)}, UNKNOWN),
        ({"ecc_errors": records.EccErrors(0, 2**64 - 1, 0, 0)}, UNKNOWN),
        ({"ecc_errors": records.EccErrors(NO_FUNCTION, 0, 0, 0)}, PASS),
        ({"ecc_errors": records.EccErrors(0, NOT_SUPPORTED, 0, 0)}, UNKNOWN),
        ({"ecc_errors": NOT_SUPPORTED}, UNKNOWN),  # ECC is on
        ({"sram_errors": records.EccErrors(10_000, 0, 0, 0)}, PASS),
        ({"sram_errors": records.EccErrors(10_001, 0, 0, 0)}, FAIL),
        ({"sram_errors": records.EccErrors(0, 0, 10_001, 0)}, WARN),
        ({"sram_errors": records.EccErrors(0, 1, 0, 1)}, FAIL),
        ({"sram_errors": records.EccErrors(0, 0, 0, 5)}, PASS),  # NVIDIA's flag decides about these
        ({"sram_errors": records.EccErrors(0, -7, 0, 0)}, UNKNOWN),
        ({"dram_errors": records.EccErrors(20_000_000, 0, 0, 0)}, PASS),
        ({"dram_errors": records.EccErrors(20_000_001, 0, 0, 0)}, FAIL),
        ({"dram_errors": records.EccErrors(0, 0, 20_000_001, 0)}, WARN),
        ({"ecc_errors": records.EccErrors(11, 0, -1, 0)}, UNKNOWN),  # worse than the warning of the eleven
        ({"ecc_current": False, "ecc_errors": records.EccErrors(0, 2, 0, 2)}, FAIL),  # counted all the same
        ({"ecc_current": False, "ecc_errors": records.EccErrors(0, 0, 0, 0)}, SKIP),
        ({"sram_threshold_exceeded": True}, FAIL),
        ({"sram_threshold_exceeded": NO_FUNCTION}, PASS),
    ],
)
def test_errors(values: dict[str, Any], expected: records.Status) -> None:
    assert status(A100, "ecc_errors", **values) is expected


def test_an_exceeded_threshold_is_ground_for_another_board() -> None:
    finding = judged(A100, sram_threshold_exceeded=True)["ecc_errors"]
    assert "SRAM threshold exceeded" in finding.reason
    assert "field diagnostic" in finding.remedy


def test_what_an_error_ends_depends_on_the_board() -> None:
    for wanted, words in ((A100, "ends only the programs that met it"), (L40S, "ends every program")):
        assert words in judged(wanted)["memory_protection"].reason


@pytest.mark.parametrize(
    ("current", "ships", "expected"),
    [
        (True, True, PASS),
        (False, True, WARN),
        (False, False, PASS),  # RTX A6000: ships with ECC off
        (True, False, PASS),
        (False, NO_FUNCTION, WARN),  # the catalogue knows that a T4 ships with it on
        (BROKEN, True, UNKNOWN),
        (NOT_SUPPORTED, NOT_SUPPORTED, UNKNOWN),  # by the catalogue a T4 has ECC
    ],
)
def test_ecc_as_the_board_ships(
    current: bool | records.Missing, ships: bool | records.Missing, expected: records.Status
) -> None:
    values = {"ecc_current": current, "ecc_pending": current, "ecc_default": ships}
    assert status(T4, "memory_protection", **values) is expected


@pytest.mark.parametrize(
    ("wanted", "ends", "met"),
    [
        (A100, "an uncorrectable error ends only the programs that met it", "ends only the programs that met it"),
        (T4, "an uncorrectable error ends every program on the GPU", "results since then may be wrong"),
    ],
)
def test_what_an_error_ends_is_said_as_the_board_has_it(wanted: state.Wanted, ends: str, met: str) -> None:
    sound = judged(wanted, ecc_current=True, ecc_pending=True, ecc_default=True)["memory_protection"]
    assert (sound.status, sound.reason) == (PASS, ends)
    off = judged(wanted, ecc_current=False, ecc_pending=False, ecc_default=True)["memory_protection"]
    assert ends not in off.reason
    failed = judged(wanted, ecc_errors=records.EccErrors(0, 1, 0, 1))["ecc_errors"]
    assert (failed.status, met in failed.reason) == (FAIL, True)


def test_who_wants_ecc_off_gets_no_warning() -> None:
    profile = load("t4")
    wanted = dataclasses.replace(T4, tuning=dataclasses.replace(profile.tuning, ecc="disabled"))
    found = checks.compare(wanted, snapshot(T4, ecc_current=False, ecc_pending=False, ecc_default=True))
    (finding,) = [one for one in found if one.key == "gpu 0.memory_protection"]
    assert (finding.status, "the profile wants it so" in finding.reason) == (PASS, True)


def test_a_geforce_without_ecc_is_not_asked_for_it() -> None:
    wanted = resolved("base", "debian13", ("rtx_3090",))
    finished = finished_snapshot(wanted)
    assert not isinstance(finished.gpus, records.Missing)
    parts = ("ecc_current", "ecc_pending", "ecc_default", "ecc_errors", "retired_pages", "remapped_rows", "spare_rows")
    changes: dict[str, Any] = dict.fromkeys(parts, NOT_SUPPORTED)
    without = dataclasses.replace(finished.gpus[0], **changes)
    found = checks.compare(wanted, dataclasses.replace(finished, gpus=(without,)))
    asked = {one.property: one.status for one in found if one.subject == "gpu 0"}
    assert {asked[prop] for prop in ("ecc_errors", "retired_pages", "remapped_rows", "memory_protection")} == {SKIP}


# ---------------------------------------------------------------- heat


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [(40, PASS), (89, PASS), (90, WARN), (92, WARN), (93, FAIL), (99, FAIL), (0, UNKNOWN), (-5, UNKNOWN),
     (255, UNKNOWN), (BROKEN, UNKNOWN), (NOT_SUPPORTED, UNKNOWN)],
)  # fmt: skip
def test_near_the_slowdown_that_nvml_tells(degrees: int | records.Missing, expected: records.Status) -> None:
    assert status(T4, "temperature", temperature_c=degrees, slowdown_temperature_c=93) is expected


@pytest.mark.parametrize("told", [NOT_SUPPORTED, NO_FUNCTION, 0])
def test_without_a_limit_of_the_driver_the_catalogues_counts(told: int | records.Missing) -> None:
    assert status(T4, "temperature", temperature_c=91, slowdown_temperature_c=told) is WARN


@pytest.mark.parametrize(
    ("degrees", "margin", "expected"),
    [
        (50, 35, PASS),
        (83, 3, PASS),  # five degrees left: the hardware acts at -2
        (85, 1, WARN),
        (88, -2, FAIL),
        (72, -2, FAIL),  # 15 degrees and none: they may count to other limits
        (71, -2, UNKNOWN),
        (45, 1, UNKNOWN),
        (45, 0, UNKNOWN),  # gpud's false alarms: a cool GPU and no margin
        (45, -5, UNKNOWN),
        (90, 60, UNKNOWN),
        (45, -100, UNKNOWN),
        (45, 300, UNKNOWN),
        (45, NO_FUNCTION, PASS),
    ],
)
def test_margins(degrees: int, margin: int | records.Missing, expected: records.Status) -> None:
    told = temperatures(margin=margin, slowdown_margin=-2)
    values = {"temperature_c": degrees, "slowdown_temperature_c": 87, "temperatures": told}
    assert status(A100, "temperature", **values) is expected


def test_a_margin_alone_is_enough_and_nothing_at_all_is_unknown() -> None:
    wanted = resolved("base", "debian13", ("h20",))  # the catalogue has no limits of it
    SOUND[id(wanted)] = finished_snapshot(wanted)
    values = {"temperature_c": 60, "slowdown_temperature_c": NOT_SUPPORTED}
    assert status(wanted, "temperature", temperatures=temperatures(margin=20), **values) is PASS
    assert status(wanted, "temperature", temperatures=temperatures(margin=-1), **values) is FAIL
    assert status(wanted, "temperature", temperatures=temperatures(), **values) is UNKNOWN
    assert status(wanted, "temperature", temperature_c=60) is None, "an older record did not read it"


@pytest.mark.parametrize(("degrees", "expected"), [(93, SKIP), (90, SKIP), (89, PASS)])
def test_heat_that_slows_the_clocks_is_said_once(degrees: int, expected: records.Status) -> None:
    found = judged(T4, temperature_c=degrees, slowdown_temperature_c=93, event_reasons=0x48)
    assert (found["temperature"].status, found["slowdown_now"].status) == (expected, FAIL)


def test_an_idle_gpu_has_no_reason_to_be_hot() -> None:
    idle = {"event_reasons": 1, "utilization": records.Utilization(0, 0, 0, 0), "processes": ()}
    assert status(T4, "temperature", temperature_c=69, **idle) is PASS
    assert status(T4, "temperature", temperature_c=70, **idle) is WARN
    busy = {**idle, "utilization": records.Utilization(80, 20, 0, 0)}
    assert status(T4, "temperature", temperature_c=80, **busy) is PASS
    for other in ({"event_reasons": 0}, {"utilization": NOT_SUPPORTED}):
        assert status(T4, "temperature", temperature_c=80, **{**idle, **other}) is PASS
    after_load = checks.compare(T4, snapshot(T4, temperature_c=80, **idle), asked=["gemm"])
    (finding,) = [one for one in after_load if one.key == "gpu 0.temperature"]
    assert finding.status is PASS, "it was measured a moment ago"


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [
        (60, PASS),
        (94, PASS),
        (95, WARN),
        (96, FAIL),
        (0, None),
        (-1, UNKNOWN),
        (NOT_SUPPORTED, None),
        (BROKEN, UNKNOWN),
    ],
)
def test_the_memorys_temperature(degrees: int | records.Missing, expected: records.Status | None) -> None:
    told = temperatures(memory=degrees, memory_max_operating=NOT_SUPPORTED)
    assert status(A100, "memory_temperature", temperatures=told) is expected


# ---------------------------------------------------------------- links, clocks, the driver's own advice

HOUR = 3600.0


def hours(base: records.Snapshot, taken_at: str, up: float) -> records.Snapshot:
    return dataclasses.replace(base, taken_at=taken_at, kernel=dataclasses.replace(base.kernel, uptime_seconds=up))


def with_before(now: dict[str, Any], was: dict[str, Any], *, minutes: int = 10) -> dict[str, records.Finding]:
    before = hours(snapshot(A100, **was), "2026-11-20T10:00:00+00:00", 10 * HOUR)
    after = hours(snapshot(A100, **now), f"2026-11-20T10:{minutes:02}:00+00:00", 10 * HOUR + 60 * minutes)
    return {one.property: one for one in checks.compare(A100, after, before=before) if one.subject == "gpu 0"}


def link(replays: int | records.Missing) -> records.PcieLink:
    return records.PcieLink(4, 16, 4, 16, 4, replays)


@pytest.mark.parametrize(
    ("replays", "hours_up", "expected"),
    [(0, 1, PASS), (480, 1, PASS), (481, 1, WARN), (481, 24, PASS), (10_000, 24, PASS), (12_000, 24, WARN),
     (-1, 1, UNKNOWN), (2**32 - 1, 1, UNKNOWN), (BROKEN, 1, UNKNOWN), (NOT_SUPPORTED, 1, None)],
)  # fmt: skip
def test_replays_are_a_rate(replays: int | records.Missing, hours_up: int, expected: records.Status | None) -> None:
    now = hours(snapshot(A100, pcie=link(replays)), "2026-11-20T10:00:00+00:00", hours_up * HOUR)
    found = {one.property: one.status for one in checks.compare(A100, now) if one.subject == "gpu 0"}
    assert found.get("pcie_errors") is expected


def test_between_two_readings_only_what_is_new_counts() -> None:
    old = {"pcie": link(10**6), "ecc_errors": records.EccErrors(10**6, 0, 10**6, 0)}
    assert with_before(old, old)["pcie_errors"].status is PASS
    assert with_before(old, old)["ecc_errors"].status is PASS
    more = {"pcie": link(10**6 + 100), "ecc_errors": records.EccErrors(10**6 + 11, 0, 10**6 + 11, 0)}
    found = with_before(more, old)
    assert (found["pcie_errors"].status, found["ecc_errors"].status) == (WARN, WARN)
    assert "100 packets had to be sent again since the previous reading, 10 a minute" in found["pcie_errors"].reason
    assert "11 memory errors had to be corrected since the previous reading" in found["ecc_errors"].reason


def test_a_counter_that_began_again_is_all_new() -> None:
    found = with_before({"pcie": link(90)}, {"pcie": link(10**6)})
    assert found["pcie_errors"].status is WARN


def test_a_clock_that_was_set_back_gives_no_rate() -> None:
    """The reading before is of a later time: the counters are judged as a share of the time since the start."""
    was = hours(snapshot(A100, pcie=link(0)), "2026-11-20T11:00:00+00:00", HOUR)
    now = hours(snapshot(A100, pcie=link(400)), "2026-11-20T10:00:00+00:00", HOUR)
    found = {one.property: one.status for one in checks.compare(A100, now, before=was) if one.subject == "gpu 0"}
    assert found["pcie_errors"] is PASS  # within the minute that is the least it would be a fault


def test_fatal_errors_of_the_link() -> None:
    assert status(A100, "pcie_errors", pcie=link(0), pcie_errors=records.PcieErrors(9, 9, 1)) is WARN
    assert status(A100, "pcie_errors", pcie=link(0), pcie_errors=records.PcieErrors(9, 9, 0)) is PASS
    assert status(A100, "pcie_errors", pcie=link(0), pcie_errors=records.PcieErrors(0, 0, -1)) is UNKNOWN


def throttled(**seconds: Any) -> records.Throttled:
    return records.Throttled(
        **{**dict.fromkeys((field.name for field in dataclasses.fields(records.Throttled)), 0.0), **seconds}
    )


@pytest.mark.parametrize("name", ["hw_thermal", "power_brake", "sw_thermal"])
def test_held_down_as_a_share_of_the_time(name: str) -> None:
    def found(seconds: Any) -> records.Status:
        now = hours(snapshot(A100, throttled=throttled(**{name: seconds})), "2026-11-20T10:00:00+00:00", 100 * HOUR)
        return next(one.status for one in checks.compare(A100, now) if one.key == "gpu 0.held_down")

    assert found(3599.0) is PASS
    assert found(3600.0) is WARN
    assert found(-1.0) is UNKNOWN
    assert found(float("nan")) is UNKNOWN
    assert found(BROKEN) is UNKNOWN
    worst = WARN if name == "sw_thermal" else FAIL
    assert (
        with_before({"throttled": throttled(**{name: 5006.0})}, {"throttled": throttled(**{name: 5000.0})})[
            "held_down"
        ].status
        is worst
    )
    assert (
        with_before({"throttled": throttled(**{name: 5000.0})}, {"throttled": throttled(**{name: 5000.0})})[
            "held_down"
        ].status
        is PASS
    )


@pytest.mark.parametrize(
    ("held", "since_start", "expected", "shown"),
    [
        (0.0, HOUR, PASS, "not at all"),
        (0.9, HOUR, PASS, "not at all"),
        (1.0, HOUR, PASS, " 1 s"),
        (599.0, HOUR, PASS, " 599 s"),  # more than a per cent, and not for long
        (600.0, HOUR, WARN, " 600 s"),
        (600.0, 0, PASS, "not at all"),  # of no time there is no share
    ],
)
def test_held_down_since_the_start(held: float, since_start: int, expected: records.Status, shown: str) -> None:
    now = hours(snapshot(A100, throttled=throttled(hw_thermal=held)), "2026-11-20T10:00:00+00:00", since_start)
    (found,) = [one for one in checks.compare(A100, now) if one.key == "gpu 0.held_down"]
    assert (found.status, shown in found.actual) == (expected, True), found.actual


def test_a_counter_that_the_driver_lacks_hides_no_other() -> None:
    """Drivers before R535 know some of the reasons' times."""
    found = with_before(
        {"throttled": throttled(hw_thermal=30.0, power_brake=NO_FUNCTION)},
        {"throttled": throttled(hw_thermal=0.0, power_brake=NO_FUNCTION)},
    )
    assert found["held_down"].status is FAIL


def test_a_counter_that_broke_hides_no_fault_of_another() -> None:
    was = {"throttled": throttled(hw_thermal=0.0, power_brake=BROKEN)}
    for seconds, expected in ((30.0, FAIL), (0.0, UNKNOWN)):
        now = {"throttled": throttled(hw_thermal=seconds, power_brake=BROKEN)}
        assert with_before(now, was)["held_down"].status is expected


def test_the_power_cap_is_normal_life() -> None:
    assert status(A100, "held_down", throttled=throttled(sw_power_cap=1e6, sync_boost=1e6)) is PASS


@pytest.mark.parametrize(
    ("action", "expected", "words"),
    [
        ("none", PASS, ""),
        ("reset", FAIL, "reset it"),
        ("reboot", FAIL, "reboot the machine"),
        ("drain_p2p", WARN, "NCCL"),
        ("drain_and_reset", WARN, "let those that run end"),
        ("bus_reset", FAIL, "stop the machine"),
        ("unknown 99", UNKNOWN, "nvidia-smi -q"),
        (BROKEN, UNKNOWN, "measure again"),
        (NOT_SUPPORTED, None, ""),
        (NO_FUNCTION, None, ""),
    ],
)
def test_the_drivers_own_advice(action: str | records.Missing, expected: records.Status | None, words: str) -> None:
    assert status(A100, "recovery_action", recovery_action=action) is expected
    if expected is not None:
        assert words in judged(A100, recovery_action=action)["recovery_action"].remedy


@pytest.mark.parametrize("mask", [-1, 2**40])
def test_reasons_that_cannot_be_are_unknown(mask: int) -> None:
    assert status(A100, "slowdown_now", event_reasons=mask) is UNKNOWN


# ---------------------------------------------------------------- the limits themselves


def test_every_limit_has_a_source_and_every_architecture_is_known() -> None:
    data = yaml.safe_load((Path(catalogue.__file__).parent / "health.yml").read_text(encoding="utf-8"))
    assert {entry["source"] for entry in data["limits"].values()} <= data["sources"].keys()
    assert {model.ecc for model in catalogue.models().values()} == {"enabled", "disabled", "none", ""}
    assert {model.architecture for model in catalogue.models().values()} == set(
        itertools.chain(*data["repairs"].values())
    )
    for bounds in data["plausible"].values():
        assert bounds["least"] < bounds["most"]


def test_no_reading_of_health_passes_when_it_is_negative() -> None:
    """Every count of every group, one at a time."""
    sound: dict[str, Any] = {
        **dict.fromkeys(("ecc_errors", "sram_errors", "dram_errors"), records.EccErrors(0, 0, 0, 0)),
        "remapped_rows": records.RemappedRows(0, 0, False, False), "retired_pages": records.RetiredPages(0, 0, False),
        "spare_rows": records.SpareRows(640, 0, 0, 0, 0), "throttled": throttled(),
    }  # fmt: skip
    tried = 0
    for name, group in sound.items():
        for field in dataclasses.fields(group):
            if isinstance(getattr(group, field.name), bool) or field.name in ("sw_power_cap", "sync_boost"):
                continue
            values = {**sound, name: dataclasses.replace(group, **{field.name: -1})}
            found = judged(A100, **values)
            assert UNKNOWN in {one.status for one in found.values()}, (name, field.name)
            tried += 1
    assert tried >= 24
    assert {one.status for one in judged(A100, **sound).values()} == {PASS}


def test_an_h100_whose_ecc_cannot_be_read_is_unknown_and_not_without_ecc() -> None:
    """Seen with a row that waited for a reset: ECC mode Unknown Error, every counter N/A."""
    wanted = resolved("h100")
    SOUND[id(wanted)] = finished_snapshot(wanted)
    gone = {
        "ecc_current": BROKEN, "ecc_pending": BROKEN, "ecc_errors": NOT_SUPPORTED,
        "remapped_rows": records.RemappedRows(0, 1, True, False), "spare_rows": records.SpareRows(2559, 1, 0, 0, 0),
    }  # fmt: skip
    found = judged(wanted, **gone)
    assert (found["ecc_errors"].status, found["remapped_rows"].status) == (UNKNOWN, WARN)


def test_an_older_record_has_none_of_it_and_is_judged_by_the_rest() -> None:
    found = judged(T4)
    assert not {"spare_rows", "recovery_action", "memory_temperature", "held_down"} & found.keys()
    assert {one.status for one in found.values()} == {PASS}
