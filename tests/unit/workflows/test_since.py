"""Since when is it so? What was gone in between is new; what nobody looked at in between is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
from certifiedhosts import LAME, check_of, host, still_open
from finishedt4 import WANTED, real

from gpuprep import checks, records
from gpuprep.checks import drift
from gpuprep.records import baseline

DAYS = [f"2026-11-{day:02d}T02:30:00+00:00" for day in range(1, 9)]
COOL = records.Throttled(0.0, 0.0, 0.0, 0.0, 0.0)
CALM = host(throttled=COOL)
CERTIFIED = records.RunRecord(
    "c", "validate", "here", DAYS[0], DAYS[0], records.Source.SIMULATED, 0, "0.1.0", after=CALM
)
TASK = records.Finding("gpu_driver", "Install packages", records.Status.FAIL, "nothing to change", "would change")


def check(
    day: int,
    snapshot: records.Snapshot,
    previous: records.RunRecord | None,
    results: Sequence[records.ProbeResult] = (),
    past: baseline.Baseline | None = None,
    *,
    deep: Sequence[records.Finding] | None = None,
    certified: records.Snapshot = CALM,
) -> records.RunRecord:
    return check_of(DAYS[day], snapshot, previous, results, past, deep=deep, certified=certified)


def since(made: records.RunRecord) -> dict[str, str]:
    return {
        one.key: one.since[:10] for one in made.findings if one.status in (records.Status.FAIL, records.Status.WARN)
    }


FAULTS: dict[str, tuple[records.Snapshot, str]] = {
    "fewer lanes": (LAME, "gpu 0.pcie"),
    "another VBIOS": (host(vbios="2"), "gpu 0.vbios"),
    "clocks": (host(application_clocks=records.ClockPair(5001, 585)), "gpu 0.clocks"),
    "an Xid": (
        dataclasses.replace(
            CALM, xids=(records.Xid(48, CALM.pci_gpus[0].address, "DBE", "2026-11-01T00:00:00+00:00"),)
        ),
        "gpu 0.xids",
    ),
    "a division": (host(mig_current=True, mig_pending=True), "gpu 0.mig"),
    "memory": (host(memory_total_mib=8192), "gpu 0.memory_certified"),
    "another system": (
        dataclasses.replace(CALM, os=dataclasses.replace(CALM.os, version_id="14")), "host.system",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", FAULTS)
def test_a_finding_that_was_gone_in_between_is_new(what: str) -> None:
    fault, key = FAULTS[what]
    sound = host(vbios="1", throttled=COOL)
    first = check(1, fault, None, certified=sound)
    assert since(first)[key] == "2026-11-02"
    second = check(2, fault, first, certified=sound)
    assert since(second)[key] == "2026-11-02"
    third = check(3, sound, second, certified=sound)
    assert third.drift is not None
    assert (key in since(third), [one.key for one in third.drift.unseen]) == (False, [])
    assert since(check(5, fault, third, certified=sound))[key] == "2026-11-06"


def test_checks_that_could_not_read_the_gpus_do_not_end_the_row() -> None:
    first = check(1, LAME, None)
    blind = dataclasses.replace(CALM, gpus=records.Missing("driver_not_loaded", "no"))
    second = check(2, blind, first)
    third = check(3, dataclasses.replace(CALM, gpus=()), second)
    assert since(check(4, LAME, third))["gpu 0.pcie"] == "2026-11-02"
    seen = check(4, CALM, third)
    assert since(check(5, LAME, seen))["gpu 0.pcie"] == "2026-11-06"


def test_what_was_counted_once_is_gone_at_the_next_check() -> None:
    sound = check(1, CALM, None)
    hot = host(throttled=dataclasses.replace(COOL, hw_thermal=90.0), ecc_errors=records.EccErrors(0, 1, 0, 1))
    second = check(2, hot, sound)
    assert {"gpu 0.throttled"} <= set(since(second))
    third = check(3, hot, second)
    assert "gpu 0.throttled" not in since(third)
    hotter = host(throttled=dataclasses.replace(COOL, hw_thermal=180.0), ecc_errors=records.EccErrors(0, 1, 0, 1))
    assert since(check(4, hotter, third))["gpu 0.throttled"] == "2026-11-05"


def quick(slower: float) -> list[records.ProbeResult]:
    return [one for name, one in real(slower, quick=True).items() if name in ("gemm", "bandwidth")]


REAL = dataclasses.replace(CALM, source=records.Source.MEASURED)


def test_a_check_that_did_not_measure_keeps_the_date_and_a_measurement_ends_it() -> None:
    past = {
        key: {name: baseline.BaselineFigure(value, "c", DAYS[0]) for name, value in figures.items()}
        for key, figures in checks.comparable(REAL, quick(1.0)).items()
    }
    first = check(1, REAL, None, quick(0.8), past)
    slow = {key for key, day in since(first).items() if day == "2026-11-02"}
    assert "gpu 0.gemm_history" in slow
    facts = check(3, REAL, check(2, REAL, first))
    assert since(facts) == {}
    assert {key: since(check(4, REAL, facts, quick(0.8), past))[key] for key in slow} == dict.fromkeys(
        slow, "2026-11-02"
    )
    sound = check(4, REAL, facts, quick(1.0), past)
    assert sound.drift is not None
    assert sound.drift.unseen == ()
    assert since(check(5, REAL, sound, quick(0.8), past))["gpu 0.gemm_history"] == "2026-11-06"


def test_a_probe_that_broke_off_did_not_look() -> None:
    first = check(1, REAL, None, quick(0.5))
    slow = set(since(first))
    assert slow
    broken = [dataclasses.replace(one, values=records.Missing("command_failed", "no")) for one in quick(1.0)]
    second = check(2, REAL, first, broken)
    again = since(check(3, REAL, second, quick(0.5)))
    assert {again[key] for key in slow if not key.endswith("_history")} == {"2026-11-02"}


@pytest.mark.parametrize("what", FAULTS)
def test_what_facts_show_is_gone_without_a_measurement(what: str) -> None:
    """The check that found it measured, too."""
    fault, key = FAULTS[what]
    sound = host(vbios="1", throttled=COOL)
    first = check(1, fault, None, quick(1.0), certified=sound)
    assert key in since(first)
    second = check(2, sound, first, certified=sound)
    assert second.drift is not None
    assert key not in {one.key for one in second.drift.unseen}


WAIVER = records.Finding("waiver", "gpu 0.ecc", records.Status.WARN, "in force", "expired")
FORMER = records.Finding("driver", "of_an_older_gpuprep", records.Status.FAIL, "a", "b")


@pytest.mark.parametrize(
    ("finding", "results", "kept"),
    [
        (WAIVER, quick(1.0), False),
        (FORMER, [], False),  # nothing was measured, so the facts showed it
        (FORMER, quick(1.0), True),
    ],
)
def test_what_no_facts_show_is_kept_until_a_measurement_if_one_may_have_found_it(
    finding: records.Finding, results: list[records.ProbeResult], kept: bool
) -> None:
    first = check(1, REAL, None, results, deep=[finding])
    second = check(2, REAL, first)
    assert second.drift is not None
    assert (finding.key in {one.key for one in second.drift.unseen}) is kept
    without = check(2, REAL, dataclasses.replace(first, after=None))
    assert without.drift is not None
    assert finding.key in {one.key for one in without.drift.unseen}, "it is not known what that check looked at"


@pytest.mark.parametrize(("clock", "kept"), [(records.NOT_READ, True), (0, False)])
def test_a_clock_is_right_again_only_where_a_controller_compared_it(clock: records.Int, kept: bool) -> None:
    first = check(1, dataclasses.replace(CALM, clock_ahead_seconds=-86400), None)
    assert since(first)["host.clock"] == "2026-11-02"
    second = check(2, dataclasses.replace(CALM, clock_ahead_seconds=clock), first)
    assert second.drift is not None
    assert ("host.clock" in {one.key for one in second.drift.unseen}) is kept


def test_what_check_mode_found_is_looked_at_by_check_mode_alone() -> None:
    first = check(1, CALM, None, deep=[TASK])
    second = check(2, CALM, first)
    assert since(check(3, CALM, second, deep=[TASK])) == {TASK.key: "2026-11-02"}
    sound = check(3, CALM, second, deep=[])
    assert since(check(4, CALM, sound, deep=[TASK])) == {TASK.key: "2026-11-05"}


def test_an_older_record_keeps_the_dates_that_it_has() -> None:
    """It did not note what a check must do to see its findings."""
    unseen = tuple(records.Unseen(key, "FAIL", DAYS[0]) for key in ("gpu 0.gemm", "gpu 0.pcie"))
    old = records.RunRecord(
        "old", "drift", "here", DAYS[1], DAYS[1], records.Source.SIMULATED, 1, "0.1.0",
        after=CALM, drift=records.DriftFacts(unseen=unseen),
    )  # fmt: skip
    second = check(2, CALM, old)
    assert second.drift is not None
    assert [one.key for one in second.drift.unseen] == ["gpu 0.gemm"], "the link was looked at"


def test_all_that_is_always_compared_is_known_as_such() -> None:
    found = drift.compared_with_past(WANTED, CALM, CERTIFIED, None)
    keys = {one.key for one in found} - {"host.since_last_check", "gpu 0.as_certified"}
    assert keys <= drift.ALWAYS_COMPARED, "else a finding that is gone keeps its date"
    assert drift.ALWAYS_COMPARED - keys <= {"apt.pins_certified", "host.identity"}  # of what this host has not read


# ---------------------------------------------------------------- is a failure still open?


@pytest.mark.parametrize(
    ("status", "is_open"),
    [
        (records.Status.PASS, False), (records.Status.WAIVED, False), (records.Status.SKIP, True),
        (records.Status.UNKNOWN, True), (records.Status.WARN, True), (records.Status.FAIL, True),
    ],
)  # fmt: skip
def test_a_failure_is_open_until_it_passes_or_is_waived(status: records.Status, is_open: bool) -> None:
    failed = check(1, LAME, None)
    now = records.Finding("gpu 0", "pcie", status, "16", "?")
    assert ("gpu 0.pcie" in still_open(failed, now)) is is_open
    assert still_open(check(2, CALM, failed), now) == [], "the check before saw it gone"


def test_a_warning_of_the_check_before_is_no_open_failure() -> None:
    warned = check(1, CALM, None, deep=[dataclasses.replace(TASK, status=records.Status.WARN)])
    assert still_open(warned) == []


def test_a_role_that_ran_since_then_closes_its_own_tasks_alone() -> None:
    failed = check(1, CALM, None, deep=[TASK])
    assert still_open(failed) == [TASK.key]
    assert still_open(failed, played=["gpu_tuning"]) == [TASK.key]
    assert still_open(failed, played=["gpu_driver"]) == []
    lame = check(1, LAME, None)
    blind = dataclasses.replace(CALM, gpus=records.Missing("driver_not_loaded", "no"))
    assert "gpu 0.pcie" in still_open(lame, snapshot=blind, played=["gpu", "gpu 0"])
