"""No fault certifies itself: which run that passed takes the place of the certified run, and what the user is told."""

from __future__ import annotations

import copy
import dataclasses
import html
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ncclrecords
import pytest
from certifiedhosts import FOUR, LAME, WHOLE, Life, history, host, living, statuses
from finishedt4 import ANSWERS, T4, real

from gpuprep import errors, records, reports
from gpuprep.checks.drift import coverage
from gpuprep.desired import profile
from gpuprep.workflows import provision, runs


@pytest.fixture
def life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Life]:
    with living(tmp_path, monkeypatch) as made:
        yield made


# ---------------------------------------------------------------- the story


def test_a_link_that_lost_lanes_does_not_certify_itself(life: Life) -> None:
    certified = life.validate()
    assert history(certified).certifies is True
    assert statuses(life.drift()) == {}

    fault = life.drift(LAME)
    assert statuses(fault) == {"gpu 0.pcie": records.Status.FAIL}
    for options in ({"probes": ("facts",)}, {"quick": True}, {"probes": ("gemm",)}, {}):
        passed = life.validate(LAME, **options)
        assert history(passed).certifies is False
        assert (history(passed).held_to, life.held_to()) == (certified.run_id, certified.run_id)
        (note,) = history(passed).notes
        assert f"here is still compared with run {certified.run_id}" in note
        assert f"type: gpuprep baseline set here {passed.run_id} --reason 'WHY'" in note
        assert note not in life.told, "the page has it: once is enough"
    again = life.drift(LAME)
    (found,) = [one for one in again.findings if one.status is records.Status.FAIL]
    assert (found.key, found.actual, found.since) == ("gpu 0.pcie", "lanes: was 16, is 4", fault.started_at)

    assert statuses(life.drift()) == {}
    repaired = life.validate()
    assert (history(repaired).certifies, history(repaired).notes) == (True, ())
    assert life.held_to() == repaired.run_id


def test_a_provision_that_had_nothing_to_do_measures_nothing_and_certifies_nothing(life: Life) -> None:
    certified = life.validate()
    life.look_at(WHOLE)
    made = provision.provision(life.target("here"), T4, runs.Options(quick=True), life.line())
    assert (made.exit_code, history(made).certifies, life.held_to()) == (0, False, certified.run_id)
    assert history(made).doubts == ("did not measure cudnn, gemm, bandwidth, nccl, transcode, throughput",)
    assert history(made).notes == (), "there is nothing to do about it"


def test_a_part_of_the_machine_can_never_be_what_it_is_held_to(life: Life) -> None:
    life.look_at(WHOLE)
    made = provision.provision(life.target("here"), T4, runs.Options(quick=True, skip=("codec",)), life.line())
    (note,) = history(made).notes
    assert note == "here is not certified by this run: this run left a part of the machine out (--only, --skip)"
    assert (made.exit_code, life.held_to()) == (0, "")
    with pytest.raises(errors.UsageError, match="left a part of the machine out"):
        life.choose(made.run_id, reason="all the same")


def test_a_machine_that_is_worse_certifies_nothing_though_no_check_of_drift_came_before(life: Life) -> None:
    certified = life.validate()
    passed = life.validate(LAME)
    assert history(passed).certifies is False
    assert "found gpu 0 worse than certified (lanes: was 16, is 4)" in history(passed).notes[0]
    assert life.held_to() == certified.run_id


WORSE: dict[str, records.Snapshot] = {
    "half the lanes": host(pcie=records.PcieLink(1, 8, 3, 16, 3, 0)),
    "fewer lanes in the slot": host(pcie=records.PcieLink(1, 16, 3, 8, 3, 0)),
    "a slower slot": host(pcie=records.PcieLink(1, 16, 2, 16, 3, 0)),
    "an NVLink down": host(nvlinks=(True, False)),
    "a quarter of the memory gone": host(memory_total_mib=12288),
    "a page retired": host(retired_pages=records.RetiredPages(1, 0, False)),
    "a row remapped": host(remapped_rows=records.RemappedRows(1, 0, False, False)),
}


@pytest.mark.parametrize("what", WORSE)
def test_what_is_worse_fails_and_what_is_better_does_not(what: str, life: Life) -> None:
    from gpuprep.checks import drift

    def compared(was: records.Snapshot, now: records.Snapshot) -> dict[str, records.Status]:
        certified = dataclasses.replace(life.validate(WHOLE), after=was)
        found = drift.compared_with_past(drift.resolve(T4, now, drift.Past(None, None)), now, certified, None)
        return {one.key: one.status for one in found if one.status not in (records.Status.PASS, records.Status.SKIP)}

    worse, whole = WORSE[what], host(nvlinks=(True, True)) if "NVLink" in what else WHOLE
    (status,) = compared(whole, worse).values()
    assert status is records.Status.FAIL
    assert records.Status.FAIL not in compared(worse, whole).values()


def test_a_better_machine_warns_until_it_is_certified(life: Life) -> None:
    life.validate(LAME)
    better = life.drift()
    assert statuses(better) == {"gpu 0.pcie": records.Status.WARN}
    (found,) = [one for one in better.findings if one.key == "gpu 0.pcie"]
    assert (better.exit_code, found.actual) == (0, "lanes: was 4, is 16")
    assert "better than certified" in found.reason
    assert "gpuprep validate" in found.remedy
    assert history(life.validate()).certifies is True
    assert statuses(life.drift()) == {}
    assert statuses(life.drift(LAME)) == {"gpu 0.pcie": records.Status.FAIL}


def test_worse_and_better_at_once_is_worse(life: Life) -> None:
    life.validate(host(pcie=records.PcieLink(1, 16, 2, 16, 3, 0)))
    (found,) = [one for one in life.drift(LAME).findings if one.status is records.Status.FAIL]
    assert found.actual == "lanes: was 16, is 4"
    assert "better than certified: generation at most: was 2, is 3" in found.reason


# ---------------------------------------------------------------- what was measured


def less(**probes: Any) -> dict[str, records.ProbeResult]:
    return {
        name: dataclasses.replace(one, values=probes[name](one.values)) if name in probes else one
        for name, one in ANSWERS.items()
    }


def without_one(list_of: str) -> Callable[[Any], Any]:
    def change(values: Any) -> Any:
        changed = copy.deepcopy(values)
        del changed[list_of][0]
        return changed

    return change


def without_a_type(values: Any) -> Any:
    changed = copy.deepcopy(values)
    gpu = changed["gpus"][0]
    gone = gpu["gemms"][0]["dtype"]
    gpu["gemms"] = [one for one in gpu["gemms"] if one["dtype"] != gone]
    return changed


def briefly(values: Any) -> Any:
    return {**copy.deepcopy(values), "quick": True}


def no_depth(values: Any) -> Any:
    changed = copy.deepcopy(values)
    del changed["quick"]
    return changed


def no_copy(values: Any) -> Any:
    changed = copy.deepcopy(values)
    changed["gpus"][0]["h2d_gb_per_s"] = {"missing": "command_failed", "detail": "no"}
    return changed


def without_a_preset(values: Any) -> Any:
    """The other presets of this codec were measured."""
    changed = copy.deepcopy(values)
    one = next(series for series in changed["series"] if series["preset"] and series["outcome"] == "completed")
    one.update(outcome="no_time", steps=[])
    return changed


LESS: dict[str, tuple[dict[str, records.ProbeResult], str]] = {
    "a data type": (less(gemm=without_a_type), "did not measure "),
    "briefly": (less(gemm=briefly), "measured gemm only briefly (--quick)"),
    "nobody knows how long": (less(bandwidth=no_depth), "measured bandwidth only briefly (--quick)"),
    "a copy": (less(bandwidth=no_copy), "did not measure host to device (bandwidth)"),
    "a transcode": (less(transcode=without_one("cases")), "(transcode)"),
    "a GPU": (less(gemm=without_one("gpus")), "(gemm)"),
    "a preset": (less(throughput=without_a_preset), "(throughput)"),
    "a series": (less(throughput=without_one("series")), "(throughput)"),
    "no answer": (
        {**ANSWERS, "cudnn": dataclasses.replace(ANSWERS["cudnn"], values=records.Missing("command_failed", "no"))},
        "did not measure cudnn",
    ),
    "a probe": ({name: one for name, one in ANSWERS.items() if name != "toolkit"}, "did not measure toolkit"),
}


@pytest.mark.parametrize("what", LESS)
def test_who_measured_less_is_told_what_was_not_measured(what: str) -> None:
    now, said = LESS[what]
    found = coverage.lacking(list(ANSWERS.values()), list(now.values()), (WHOLE, WHOLE))
    assert len(found) == 1
    assert said in found[0]
    assert coverage.lacking(list(now.values()), list(ANSWERS.values()), (WHOLE, WHOLE)) == []
    assert coverage.lacking(list(ANSWERS.values()), list(ANSWERS.values()), (WHOLE, WHOLE)) == []


NCCL = ncclrecords.machine(gpus=4)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda v: {**v, "points": [one for one in v["points"] if one["operation"] != "all_reduce"]}, "all_reduce of "),
        (lambda v: {**v, "points": v["points"][:-1]}, "did not measure "),
        (lambda v: {**v, "points": [{**v["points"][0], "busbw_gb_per_s": None}, *v["points"][1:]]}, "did not measure "),
        (lambda v: {**v, "gpus": v["gpus"][:2]}, " on 2 of 4 GPUs"),
        (lambda v: {**v, "points": []}, "did not measure "),
        (lambda v: {**v, "quick": True}, "measured nccl only briefly (--quick)"),
    ],
)
def test_collectives_that_were_lost_are_less(change: Callable[[Any], Any], said: str) -> None:
    def result(values: Any) -> list[records.ProbeResult]:
        return [records.ProbeResult("nccl", records.Source.MEASURED, values, 9.0)]

    (found,) = coverage.lacking(result(NCCL), result(change(copy.deepcopy(NCCL))), (WHOLE, WHOLE))
    assert said in found
    assert coverage.lacking(result(change(copy.deepcopy(NCCL))), result(NCCL), (WHOLE, WHOLE)) == []
    assert coverage.lacking(result(NCCL), result(NCCL), (WHOLE, WHOLE)) == []


def test_fewer_gpus_are_less() -> None:
    assert isinstance(WHOLE.gpus, tuple)
    two = dataclasses.replace(WHOLE, gpus=(*WHOLE.gpus, dataclasses.replace(WHOLE.gpus[0], index=1, uuid="GPU-1")))
    assert coverage.lacking((), (), (two, WHOLE)) == ["saw 1 of 2 GPUs"]
    assert coverage.lacking((), (), (WHOLE, two)) == []


def test_a_quick_run_certifies_where_nothing_was_and_a_full_one_replaces_it(life: Life) -> None:
    life.probes = less(gemm=briefly, bandwidth=briefly, transcode=briefly, throughput=briefly)
    quick = life.validate(quick=True)
    assert (history(quick).certifies, life.held_to()) == (True, quick.run_id)
    life.probes = dict(ANSWERS)
    full = life.validate()
    assert life.held_to() == full.run_id
    life.probes = less(gemm=briefly, bandwidth=briefly, transcode=briefly, throughput=briefly)
    for options in ({"quick": True}, {"probes": ("facts",)}):
        asked_for_less = history(life.validate(**options))
        assert "only briefly" in asked_for_less.doubts[0] or "did not measure" in asked_for_less.doubts[0]
        assert asked_for_less.notes == ()
    assert life.held_to() == full.run_id


def test_many_runs_of_a_part_hide_no_certified_run(life: Life) -> None:
    certified = life.validate()
    for _ in range(22):  # more than the store reads at a time
        life.validate(probes=("facts",))
    assert life.held_to() == certified.run_id


def test_what_cannot_be_read_any_more_is_less(life: Life) -> None:
    certified = life.validate(host(vbios="90.04"))
    passed = life.validate(host(vbios=records.Missing("command_failed", "no")))
    assert "could not read gpu 0.vbios" in history(passed).notes[0]
    assert life.held_to() == certified.run_id


# ---------------------------------------------------------------- an open FAIL


def test_what_a_check_found_and_the_run_shows_to_be_gone_is_no_open_failure(life: Life) -> None:
    life.validate()
    untuned = host(application_clocks=records.ClockPair(5001, 585))
    assert statuses(life.drift(untuned)) == {"gpu 0.clocks": records.Status.FAIL}
    assert history(life.validate()).certifies is True


PATCHED = dataclasses.replace(WHOLE, packages={**WHOLE.packages, "libcuda1": records.Package("550.163.01-9", True)})


def test_a_difference_that_drift_found_is_accepted_by_the_user_alone(life: Life) -> None:
    certified = life.validate()
    failed = life.drift(PATCHED)
    assert statuses(failed) == {"driver.package_versions": records.Status.FAIL}
    passed = life.validate(PATCHED)
    said = f"follows drift check {failed.run_id}, whose FAIL is still open: driver.package_versions"
    assert said in history(passed).notes[0]
    assert life.held_to() == certified.run_id
    with pytest.raises(errors.UsageError, match="did not become the certified run by itself") as refused:
        life.choose(passed.run_id)
    assert f"gpuprep baseline set here {passed.run_id} --reason 'WHY'" in refused.value.hint
    assert life.choose(None).run_id == certified.run_id  # without a name: the newest that nothing spoke against
    assert life.choose("last", reason="a patch of Debian").run_id == passed.run_id
    assert statuses(life.drift(PATCHED)) == {}
    found = life.store.host_baseline("here")
    assert (found.run_id, found.reason) == (passed.run_id, "a patch of Debian")


def test_without_a_failed_check_in_between_an_update_certifies_itself(life: Life) -> None:
    life.validate()
    updated = life.validate(PATCHED)
    assert life.held_to() == updated.run_id


def test_what_no_run_without_a_measurement_can_show_stays_open(life: Life) -> None:
    """Slower than its quick baseline: a run of the facts says nothing of that."""
    seen = dataclasses.replace(WHOLE, source=records.Source.MEASURED)
    life.probes = real(quick=True)
    certified = life.validate(seen, quick=True)
    life.probes = real(0.86, quick=True)
    slow = life.drift(seen, probe="quick")
    failed = {key for key, status in statuses(slow).items() if status is records.Status.FAIL}
    assert failed
    assert statuses(life.drift(seen)) == {}
    passed = life.validate(seen, probes=("facts",))
    assert f"{sorted(failed)[0].partition('.')[0]}" in history(passed).notes[0]
    assert "still open" in history(passed).notes[0]
    assert life.held_to() == certified.run_id
    life.probes = real(quick=True)
    assert not [one for one in statuses(life.drift(seen, probe="quick")).values() if one is records.Status.FAIL]
    assert history(life.validate(seen, quick=True)).certifies is True


def test_a_waived_failure_is_the_users_word(life: Life) -> None:
    life.validate()
    assert life.drift(PATCHED).exit_code == 1
    waived = dataclasses.replace(
        T4, waivers=(profile.Waiver("driver.package_versions", "here", "a patch", "2099-12-31"),)
    )
    assert history(life.validate(PATCHED, of=waived)).certifies is True


def test_a_host_that_was_never_certified_is_not_by_a_run_after_a_failure(life: Life) -> None:
    life.drift(host(nvlinks=(True, False)))
    slow = life.drift(host(application_clocks=records.ClockPair(5001, 585)))
    assert "gpu 0.clocks" in statuses(slow)
    assert history(life.validate()).certifies is True  # it shows that the clocks are right again


def test_figures_of_a_run_with_a_fault_are_no_baseline(life: Life) -> None:
    seen = dataclasses.replace(WHOLE, source=records.Source.MEASURED)
    lame = dataclasses.replace(LAME, source=records.Source.MEASURED)
    life.probes = real(quick=False)
    life.validate(seen)
    before = life.store.baseline_of("here")
    assert before
    life.probes = real(0.97, quick=True)
    life.validate(lame, quick=True)
    assert life.store.baseline_of("here") == before, "with four lanes"
    made = life.validate(seen, quick=True)
    assert history(made).certifies is False
    assert set(life.store.baseline_of("here")) > set(before), "the run measured less, and nothing is wrong"


def test_a_record_that_was_judged_again_says_nothing_of_what_the_host_is_held_to(life: Life) -> None:
    """`judge --keep` of a real machine's record that names this host: no real GPU was seen here."""
    certified = life.validate(WHOLE)
    judged = dataclasses.replace(
        certified,
        run_id="20261130-000000-abc123",
        command="judge",
        after=LAME,
        source=records.Source.MEASURED,
        history=None,
    )
    life.store.append(judged)
    assert life.held_to() == certified.run_id
    assert records.Status.FAIL in statuses(life.drift(LAME)).values()


def test_a_run_that_the_user_chose_stays(life: Life) -> None:
    first = life.validate()
    life.choose(first.run_id)
    second = life.validate()
    assert (history(second).notes, history(second).held_to) == ((), first.run_id)
    assert f"certified by     run {first.run_id} (chosen by `gpuprep baseline set`)" in reports.render(second, "text")
    assert (history(second).certifies, life.held_to()) == (True, first.run_id)
    life.store.clear_baseline("here")
    assert life.held_to() == second.run_id


def test_a_fault_that_the_user_accepted_is_what_the_host_is_held_to(life: Life) -> None:
    life.validate()
    life.drift(LAME)
    accepted = life.validate(LAME)
    life.choose(accepted.run_id, reason="the riser has four lanes")
    assert statuses(life.drift(LAME)) == {}
    assert statuses(life.drift(host(pcie=dataclasses.replace(FOUR, width=2)))) == {"gpu 0.pcie": records.Status.FAIL}


@pytest.mark.parametrize("style", ["text", "markdown", "html"])
def test_every_page_says_what_the_host_stays_held_to(style: str, life: Life) -> None:
    certified = life.validate()

    def page(record: Any) -> str:
        return " ".join(html.unescape(reports.render(record, style)).replace("<!-- -->", "").split()).replace("\\", "")

    asked_for_less = life.validate(probes=("facts",))
    assert f"run {certified.run_id} (this one did not measure toolkit, cudnn, codec" in bare(page(asked_for_less))
    assert "baseline set" not in page(asked_for_less)
    worse = life.validate(LAME)
    assert "note: here is still compared with run" in page(worse).lower()
    assert f"baseline set here {worse.run_id}" in page(worse)


def bare(page: str) -> str:
    return re.sub("<[^>]*>", " ", page).replace("  ", " ")
