"""drift schedule, unschedule and last, against a host whose files and systemd are played at the Host."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import certifiedhosts
import pytest
from fakehost import store_of_the_test
from nightlymachine import FINISHED, T4, UNITS, Machine
from records_for_tests import PASSED, SNAPSHOT, record

from gpuprep import errors, records, remote
from gpuprep.agent import host_paths
from gpuprep.checks import commands
from gpuprep.desired import profile, state
from gpuprep.nightly import nightlyplan, units
from gpuprep.provisioning import ansible_environment
from gpuprep.records import baseline
from gpuprep.store import Store
from gpuprep.workflows import runs, schedule, schedule_state

HOST = remote.Target("sim:t4", simulated=True)
HERE = remote.Target("here", local=True)


class Stage:
    def __init__(self, store: Store, machine: Machine) -> None:
        self.store, self.machine = store, machine
        self.told: list[str] = []

    def line(self) -> runs.RunContext:
        return runs.RunContext(lambda _, event: self.told.append(event.detail), self.store, threading.Event().is_set)

    def schedule(
        self,
        wish: profile.Profile = T4,
        target: remote.Target = HOST,
        *,
        chosen: dict[str, Any] | None = None,
        asked: dict[str, str] | None = None,
        **drift: Any,
    ) -> records.RunRecord:
        """`drift` is what the profile wants, `chosen` what an option says."""
        wish = dataclasses.replace(wish, drift=dataclasses.replace(wish.drift, **drift))
        self.machine.done.clear()
        return schedule.schedule(target, wish, runs.Options(asked=asked or {}), self.line(), chosen or {})

    def unschedule(self) -> records.RunRecord:
        self.machine.done.clear()
        return schedule.unschedule(HOST, runs.Options(), self.line())

    def last(self, target: remote.Target = HOST, **options: Any) -> records.RunRecord:
        return schedule.last(target, runs.Options(**options), self.line())

    @property
    def plan(self) -> nightlyplan.NightlyPlan:
        return nightlyplan.from_text(self.machine.files[host_paths.DRIFT_PLAN])


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    machine = Machine()
    with store_of_the_test(tmp_path, monkeypatch, machine.host()) as store:
        yield Stage(store, machine)


def facts(made: records.RunRecord) -> Any:
    assert made.error is None, made.error
    assert made.nightly is not None
    return made.nightly


def failing() -> records.Snapshot:
    gpus = FINISHED.gpus
    assert isinstance(gpus, tuple)
    return dataclasses.replace(FINISHED, gpus=(dataclasses.replace(gpus[0], persistence_mode=False), *gpus[1:]))


# ---------------------------------------------------------------- schedule


def test_a_schedule_is_a_plan_two_units_and_a_timer_that_runs(stage: Stage) -> None:
    made = stage.schedule()
    left = facts(made)
    assert (made.command, made.exit_code) == ("schedule", 0)
    assert left.changed == (host_paths.DRIFT_PLAN, *UNITS)
    assert (left.at, left.random_delay_minutes, left.next_at) == ("02:30", 30, "2026-11-22T02:41:07+00:00")
    assert "OnCalendar=*-*-* 02:30:00\nRandomizedDelaySec=30m\n" in stage.machine.files[host_paths.DRIFT_TIMER_FILE]
    assert (stage.plan.host, stage.plan.profile.sha256, stage.plan.made_by) == ("sim:t4", T4.sha256, "0.1.0")
    assert stage.plan.wanted == state.resolve(T4, FINISHED, judging=True)
    assert stage.plan.probe_arguments["quick"] is True
    assert stage.store.get(made.run_id).nightly == left


def test_systemd_leaves_out_the_night_in_which_summer_time_begins_and_the_timer_does_not(stage: Stage) -> None:
    """02:30 of 2026-03-29 does not exist in Berlin. 25 hours after the check of the 28th are the 29th."""
    stage.schedule()
    timer = stage.machine.files[host_paths.DRIFT_TIMER_FILE]
    assert "\nOnUnitInactiveSec=25h\n" in timer
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd here that could be asked")
    (at,) = re.findall(r"OnCalendar=(.*)", timer)
    words = ["systemd-analyze", "calendar", at, "--base-time=2026-03-28 12:00"]
    environment = {**os.environ, "TZ": "Europe/Berlin", "LC_ALL": "C"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert "Next elapse: Mon 2026-03-30 02:30:00 CEST" in done.stdout


def test_a_second_time_nothing_is_changed(stage: Stage) -> None:
    stage.schedule()
    before = dict(stage.machine.files)
    left = facts(stage.schedule())
    assert left.changed == ()
    assert stage.machine.done == []
    assert stage.machine.files == before


def test_another_hour_changes_plan_and_timer_and_makes_no_missed_night(stage: Stage) -> None:
    stage.schedule()
    left = facts(stage.schedule(at="05:15", random_delay_minutes=0))
    assert left.changed == (host_paths.DRIFT_PLAN, host_paths.DRIFT_TIMER_FILE)
    assert "OnCalendar=*-*-* 05:15:00\nRandomizedDelaySec=0m\n" in stage.machine.files[host_paths.DRIFT_TIMER_FILE]
    (restart,) = [command for command in stage.machine.done if "enable" in command]
    assert restart.startswith(f"systemctl stop {units.TIMER} && systemctl clean --what=state {units.TIMER} && ")
    assert (stage.plan.drift.at, stage.plan.drift.random_delay_minutes) == ("05:15", 0)


def test_what_an_option_chose_stays_until_it_is_chosen_again(stage: Stage) -> None:
    stage.schedule(chosen={"at": "05:15"})
    left = facts(stage.schedule())
    assert (left.at, left.changed) == ("05:15", ())
    left = facts(stage.schedule(at="03:00", random_delay_minutes=7))  # the profile has others now
    assert (left.at, left.random_delay_minutes) == ("05:15", 7)
    assert facts(stage.schedule(chosen={"at": "04:00", "probe": "quick"})).at == "04:00"
    left = facts(stage.schedule())
    assert (left.at, left.probe) == ("04:00", "quick")
    stage.unschedule()
    assert facts(stage.schedule()).at == "02:30"


def test_the_host_knows_inventory_and_profile_as_they_are_typed_in_any_folder(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("fleet.yml", "site.yml", "t4"):
        (tmp_path / name).write_text("")
    stage.schedule(asked={"inventory": "fleet.yml", "profile": "site.yml", "store": "postgresql://you@host/x"})
    assert stage.plan.asked == {"inventory": f"{tmp_path}/fleet.yml", "profile": f"{tmp_path}/site.yml"}
    stage.schedule(asked={"inventory": "gone.yml", "profile": "t4"})
    assert stage.plan.asked == {"inventory": "gone.yml", "profile": "t4"}


def test_a_timer_that_somebody_stopped_is_started_again(stage: Stage) -> None:
    stage.schedule()
    stage.machine.active = False
    assert facts(stage.schedule()).changed == (f"{units.TIMER} (enabled and started)",)
    assert stage.machine.active


def test_a_unit_that_somebody_changed_is_put_back(stage: Stage) -> None:
    stage.schedule()
    stage.machine.files[host_paths.DRIFT_SERVICE_FILE] += "Nice=-19\n"
    assert facts(stage.schedule()).changed == (host_paths.DRIFT_SERVICE_FILE,)
    assert stage.machine.done == [host_paths.DRIFT_SERVICE_FILE, "systemctl daemon-reload"]
    assert "Nice=-19" not in stage.machine.files[host_paths.DRIFT_SERVICE_FILE]


def test_a_plan_that_cannot_be_read_is_written_anew(stage: Stage) -> None:
    stage.schedule()
    stage.machine.files[host_paths.DRIFT_PLAN] = stage.machine.files[host_paths.DRIFT_PLAN][:100]
    assert facts(stage.schedule()).changed == (host_paths.DRIFT_PLAN,)
    assert stage.plan.host == "sim:t4"


# ---------------------------------------------------------------- what was certified


def test_the_certified_run_of_the_store_goes_along_and_a_newer_one_replaces_it(stage: Stage) -> None:
    passed = records.Verdict(records.Status.PASS, "PASS", ())
    for number in (1, 2):
        run = record(f"20261120-10000{number}-abc12", command="provision", after=FINISHED, verdict=passed, exit_code=0)
        stage.store.append(dataclasses.replace(run, started_at=f"2026-11-20T10:00:0{number}+00:00"))
        left = facts(stage.schedule())
        assert left.changed[:1] == (host_paths.DRIFT_PLAN,)
        assert left.notes == ()
        assert stage.plan.certified is not None
        assert stage.plan.certified.run_id == run.run_id


def test_a_host_that_nobody_certified_and_passes_is_compared_with_what_it_is_now(stage: Stage) -> None:
    made = stage.schedule()
    (note,) = facts(made).notes
    assert "it passes now" in note
    assert stage.plan.certified is not None
    assert stage.plan.certified.run_id == made.run_id
    again = facts(stage.schedule())
    assert "as before" in again.notes[0]
    assert again.changed == ()


def test_a_host_made_from_the_image_of_another_is_not_compared_with_that_one(stage: Stage) -> None:
    """Its plan came along with the image: the GPUs in it are another machine's."""
    first = stage.schedule()
    assert first.after is not None
    kernel = dataclasses.replace(first.after.kernel, boot_id="another boot")
    stage.machine.script.snapshots = [dataclasses.replace(first.after, hostname="another", kernel=kernel)]
    made = stage.schedule()
    assert "it passes now" in facts(made).notes[0]
    assert stage.plan.certified is not None
    assert stage.plan.certified.run_id == made.run_id


def test_a_host_that_nobody_certified_and_does_not_pass_has_no_certified_run(stage: Stage) -> None:
    stage.machine.script.snapshots = [failing()]
    left = facts(stage.schedule())
    assert stage.plan.certified is None
    assert "does not pass now (FAIL: " in left.notes[0]
    assert "gpu 0.persistence_mode" in left.notes[0]
    stage.machine.script.snapshots = [FINISHED]
    facts(stage.schedule())
    assert stage.plan.certified is not None


def test_a_host_that_nobody_certified_and_failed_a_check_does_not_certify_itself(stage: Stage) -> None:
    """Its facts pass, and what failed is its speed, which a schedule does not measure."""
    at = "2026-11-20T02:30:00+00:00"
    slow = records.Finding("gpu 0", "gemm_history", records.Status.FAIL, "as in its baseline", "-20 %", since=at)
    failed = records.Verdict(records.Status.FAIL, "FAIL", (slow,))
    stage.store.append(record("20261120-023000-00aa0", command="drift", after=FINISHED, verdict=failed, started_at=at))
    left = facts(stage.schedule())
    assert stage.plan.certified is None
    assert "drift check 20261120-023000-00aa0 failed (gpu 0.gemm_history)" in left.notes[0]


def test_nights_that_will_measure_without_a_baseline_are_told_beforehand(stage: Stage) -> None:
    real = dataclasses.replace(FINISHED, source=records.Source.MEASURED)

    def told(found: records.Snapshot, probe: str) -> list[str]:
        stage.machine.script.snapshots = [found]
        return [note for note in facts(stage.schedule(probe=probe)).notes if "baseline" in note]

    (note,) = told(real, "quick")
    assert "of gpu 0: each night will WARN" in note
    assert "`gpuprep validate sim:t4 --profile t4 --quick`" in note
    assert told(real, "none") == told(FINISHED, "quick") == []
    assert isinstance(real.gpus, tuple)
    for probe, left in (("gemm", 1), ("bandwidth", 0)):
        key = baseline.BaselineKey(real.gpus[0].uuid, probe, f"gpuprep {real.agent_version}, cublasLt 12.4.5, quick")
        stage.store.append(record(probe, host="sim:t4"), {key: {"fp16": 30.0}})
        assert len(told(real, "quick")) == left


# ---------------------------------------------------------------- refusals and what breaks off


@pytest.mark.parametrize(
    ("played", "said"),
    [
        ({"python": "3.9.2"}, "sim:t4: python3 there is 3.9.2, and the host's own check needs 3.10 or newer"),
        ({"python": ""}, "sim:t4: there is no python3"),
        ({"systemd": False}, "sim:t4: there is no systemd, and the nightly check needs its timers"),
    ],
)
def test_a_host_that_cannot_check_itself_is_refused_in_one_line(stage: Stage, played: Any, said: str) -> None:
    vars(stage.machine).update(played)
    made = stage.schedule()
    assert made.exit_code == 2
    assert made.error is not None
    assert made.error.splitlines()[0] == said
    assert "what to do: " in made.error
    assert stage.machine.files == {}
    assert stage.machine.script.events == ["closed"], "nothing was locked, nothing read"


BOOK = """
- hosts: all
  gather_facts: false
  tasks:
    - name: Install
      ansible.builtin.command: touch {installed}
      tags: [agent]
    - name: More than was asked for
      ansible.builtin.command: "false"
      tags: [driver]
"""


@pytest.fixture
def book(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Played by Ansible on this computer; what the host says of itself comes from the machine that is played."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder, stage.machine.installed = tmp_path / "playbooks", tmp_path / "installed"
    folder.mkdir()
    (folder / "ansible.cfg").write_text("[defaults]\n")
    (folder / "provision.yml").write_text(BOOK.format(installed=stage.machine.installed))
    monkeypatch.setattr(ansible_environment, "COLLECTION", tmp_path)
    return folder / "provision.yml"


@pytest.mark.usefixtures("book")
def test_an_agent_that_is_not_ours_is_installed_by_its_role(stage: Stage) -> None:
    stage.machine.agent = ""
    made = stage.schedule(target=HERE)
    assert facts(made).changed == (host_paths.DRIFT_PLAN, *UNITS)
    assert made.playbook is not None
    assert [task.task for task in made.playbook.tasks] == ["Install"]
    assert [event for event in stage.machine.script.events if "facts" in event] == ["facts as root"] * 2


@pytest.mark.machines
def test_an_agent_that_stays_another_one_ends_the_schedule(stage: Stage, book: Path) -> None:
    book.write_text(BOOK.format(installed="/dev/null"))
    stage.machine.agent = "0.0.9+0123456789abcdef"
    made = stage.schedule(target=HERE)
    assert (made.exit_code, stage.machine.files) == (3, {})
    assert made.error is not None
    assert Machine().agent in made.error


@pytest.mark.parametrize(
    "refuses",
    [host_paths.DRIFT_PLAN, host_paths.DRIFT_SERVICE_FILE, host_paths.DRIFT_TIMER_FILE, "daemon-reload", "enable"],
)
def test_what_breaks_off_leaves_the_old_timer_and_goes_on_when_run_again(stage: Stage, refuses: str) -> None:
    stage.schedule()
    stage.machine.files[host_paths.DRIFT_SERVICE_FILE] += "# old\n"
    stage.machine.refuses = refuses
    made = stage.schedule(at="06:00")
    assert made.exit_code == 3
    assert made.error is not None
    assert stage.machine.active
    stage.machine.refuses = ""
    facts(stage.schedule(at="06:00"))
    assert stage.machine.active
    assert stage.machine.loaded == stage.machine.units() == units.files(stage.plan.drift)


def test_a_timer_that_does_not_run_is_no_schedule(stage: Stage) -> None:
    stage.machine.obeys = False
    made = stage.schedule()
    assert made.exit_code == 3
    assert made.error is not None
    assert "the timer was installed, but it does not run" in made.error


def test_a_host_in_use_keeps_its_schedule(stage: Stage) -> None:
    stage.schedule()
    before = dict(stage.machine.files)
    stage.machine.script.locking = errors.HostError("in use by somebody")
    for made in (stage.schedule(at="06:00"), stage.unschedule()):
        assert made.exit_code == 3
    assert stage.machine.files == before


def test_another_run_that_took_the_lock_meanwhile_is_told(stage: Stage) -> None:
    stage.machine.script.lost = errors.HostError("taken by another run")
    made = stage.schedule()
    assert made.exit_code == 3
    assert made.error is not None
    assert made.error.startswith("taken by another run")


# ---------------------------------------------------------------- unschedule


def test_unschedule_takes_all_away_but_the_results(stage: Stage) -> None:
    stage.schedule()
    metrics = f"{T4.drift.textfile_directory}/gpuprep.prom"
    stage.machine.files |= {host_paths.DRIFT_LAST: "kept", metrics: "gpuprep_drift 1\n"}
    left = facts(stage.unschedule())
    assert set(left.changed) == {host_paths.DRIFT_PLAN, *UNITS}
    assert any("/var/lib/gpuprep/drift" in note for note in left.notes)
    assert any(metrics in note for note in left.notes)
    assert stage.machine.files == {host_paths.DRIFT_LAST: "kept"}
    assert not stage.machine.active
    again = facts(stage.unschedule())
    assert (again.changed, again.notes) == ((), ("there was no schedule",))
    assert stage.machine.done == []


def test_what_breaks_off_before_the_plan_is_gone_still_knows_the_metrics(stage: Stage) -> None:
    """Without a plan nobody would ever take them away, and they would be an alarm for ever."""
    metrics = "/srv/metrics/gpuprep.prom"
    stage.schedule(textfile_directory="/srv/metrics")
    stage.machine.files[metrics] = "gpuprep_drift 1\n"
    stage.unschedule()
    (removal,) = [command for command in stage.machine.done if "rm -f" in command]
    stop, first, second = (removal.index(word) for word in ("systemctl stop", metrics, host_paths.DRIFT_PLAN))
    assert stop < first < second
    assert f"rm -f -- {metrics} && rm -f -- " in removal, "where they cannot be removed, the plan stays"
    assert metrics not in stage.machine.files


def test_a_plan_that_cannot_be_read_leaves_no_metrics_in_the_usual_folder(stage: Stage) -> None:
    assert T4.drift.textfile_directory == units.METRICS_FOLDER
    stage.schedule()
    metrics = f"{units.METRICS_FOLDER}/gpuprep.prom"
    stage.machine.files |= {host_paths.DRIFT_PLAN: "{", metrics: "gpuprep_drift 1\n"}
    facts(stage.unschedule())
    assert stage.machine.files == {}
    stage.machine.files[metrics] = "of a whole fleet, by `drift --last --output`"
    facts(stage.unschedule())
    assert metrics in stage.machine.files, "where nothing was scheduled nothing is ours"


def test_another_folder_for_metrics_leaves_none_in_the_old_one(stage: Stage) -> None:
    stage.schedule()
    metrics = f"{T4.drift.textfile_directory}/gpuprep.prom"
    stage.machine.files[metrics] = "gpuprep_drift 1\n"
    assert facts(stage.schedule()).changed == ()
    assert metrics in stage.machine.files
    assert facts(stage.schedule(textfile_directory="/srv/metrics")).changed == (
        host_paths.DRIFT_PLAN,
        f"{metrics} (removed)",
    )
    assert metrics not in stage.machine.files
    assert stage.machine.done.index(f"rm -f -- {metrics}") < stage.machine.done.index(host_paths.DRIFT_PLAN)
    stage.machine.files["/srv/metrics/gpuprep.prom"] = "gpuprep_drift 1\n"
    facts(stage.schedule(textfile_directory=""))
    assert "/srv/metrics/gpuprep.prom" not in stage.machine.files


def test_a_timer_that_cannot_be_removed_is_an_error(stage: Stage) -> None:
    stage.schedule()
    stage.machine.refuses = "rm -f"
    made = stage.unschedule()
    assert made.exit_code == 3
    assert made.error is not None
    assert made.error.startswith("the schedule cannot be removed: Failed: rm -f")


# ---------------------------------------------------------------- last


def found_last_night(**changed: Any) -> records.RunRecord:
    made = record("20261121-023107-0a1b2", command="drift", host="sim:t4", exit_code=1)
    return dataclasses.replace(made, **{"ended_at": "2026-11-21T02:31:08+00:00", **changed})


def passed_last_night() -> records.RunRecord:
    return found_last_night(exit_code=0, verdict=PASSED, findings=PASSED.findings)


def test_last_shows_the_hosts_own_record_and_stores_it_once(stage: Stage) -> None:
    found = found_last_night()
    stage.machine.files[host_paths.DRIFT_LAST] = records.to_json(found) + "\n"
    for _ in range(2):
        assert stage.last() == found
    assert [run.run_id for run in stage.store.runs()] == [found.run_id]
    assert stage.store.get(found.run_id) == found
    assert stage.machine.script.events == ["closed", "closed"], "no facts, no lock"


def test_the_nights_since_it_was_asked_last_are_stored_too(stage: Stage) -> None:
    def night(day: int) -> records.RunRecord:
        ended = f"2026-11-{day}T02:31:08+00:00"
        return found_last_night(run_id=f"202611{day}-023107-0a1b2", started_at=ended, ended_at=ended)

    def keep(day: int) -> None:
        kept = records.to_json(night(day))
        stage.machine.files |= {
            host_paths.DRIFT_LAST: kept,
            f"{host_paths.DRIFT_RESULTS}/results/{night(day).run_id}.json": kept,
        }

    keep(19)
    stage.last()
    keep(20)
    keep(21)
    stage.machine.files[f"{host_paths.DRIFT_RESULTS}/results/20261118-023107-0a1b2.json"] = "{"
    assert stage.last() == night(21)
    assert [run.run_id for run in stage.store.runs()] == [night(day).run_id for day in (21, 20, 19)]
    assert any("20261118-023107-0a1b2.json there is no result" in told for told in stage.told)
    stage.last()
    assert stage.machine.known == [night(day).run_id for day in (21, 20, 19)], "what is here does not travel again"


def test_two_names_of_a_machine_are_one_host_whichever_command_meets_them(stage: Stage) -> None:
    """As `drift` joins them, and in any order: the night is stored once."""
    found = found_last_night(after=certifiedhosts.machine(SNAPSHOT, gpu="GPU-a"))
    path = f"{host_paths.DRIFT_RESULTS}/results/{found.run_id}.json"
    stage.machine.files |= {host_paths.DRIFT_LAST: records.to_json(found), path: records.to_json(found)}
    stage.machine.script.keys |= dict.fromkeys(("gpu-7", "10.0.0.7"), certifiedhosts.KEYS["a"])
    stage.machine.script.keys["of-an-image"] = certifiedhosts.KEYS["b"]
    for name in ("gpu-7", "of-an-image", "10.0.0.7", "gpu-7"):
        stage.last(remote.Target(name))
    assert sorted(stage.store.names_of("gpu-7")) == ["10.0.0.7", "gpu-7"]
    assert stage.store.names_of("of-an-image") == ["of-an-image"], "its result is of before its key"
    assert sorted(run.host for run in stage.store.runs()) == ["gpu-7", "of-an-image"]
    assert any("10.0.0.7 is the host that is also called gpu-7" in told for told in stage.told)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"run_id": "x; reboot"}, "RunRecord.run_id: want the id of a run, got 'x; reboot'"),
        ({"started_at": "yesterday"}, "got 'yesterday'"),
        ({"drift": records.DriftFacts(certified_run="r", certified_at="once")}, "got 'once'"),
        ({"findings": (records.Finding("driver", "held", records.Status.FAIL, "", "", since="2026"),)}, "got '2026'"),
    ],
)
def test_what_no_page_could_show_is_no_result(stage: Stage, changed: dict[str, Any], said: str) -> None:
    """One host that writes nonsense must not keep a fleet from its page."""
    stage.machine.files[host_paths.DRIFT_LAST] = records.to_json(found_last_night(**changed))
    found = stage.last()
    assert found.exit_code == 3
    assert found.error is not None
    assert said in found.error
    assert stage.store.runs() == []


def test_last_is_told_by_the_name_that_this_controller_gives_the_host(stage: Stage) -> None:
    stage.machine.files[host_paths.DRIFT_LAST] = records.to_json(found_last_night(host="elsewhere"))
    assert stage.last().host == "sim:t4"
    assert stage.store.runs()[0].host == "sim:t4"


def test_now_has_the_host_check_itself_and_shows_that_result(stage: Stage) -> None:
    stage.schedule()
    stage.machine.files[host_paths.DRIFT_LAST] = records.to_json(found_last_night())
    renewed = found_last_night(run_id="20261121-105900-0a1b2")
    stage.machine.result = records.to_json(renewed)
    assert stage.last(now=True) == renewed
    assert stage.machine.done[-1] == "own check"
    stage.machine.result = ""
    made = stage.last(now=True)
    assert made.exit_code == 3
    assert str(made.error).startswith("sim:t4: its own check left no result: Job for gpuprep-drift.service failed")


def test_now_is_refused_where_no_check_is_scheduled(stage: Stage) -> None:
    made = stage.last(now=True)
    assert made.exit_code == 2
    assert str(made.error).startswith("sim:t4: no night check is scheduled there")
    assert "gpuprep drift schedule" in str(made.error)


@pytest.mark.parametrize(
    ("active", "leaves", "code", "starts"),
    [("inactive", True, 0, 1), ("activating", True, 0, 2), ("failed", False, 97, 1)],
)
def test_a_check_that_runs_already_is_waited_for_and_an_old_result_is_none(
    tmp_path: Path, active: str, leaves: bool, code: int, starts: int
) -> None:
    for name in ("last", "plan", "service"):
        (tmp_path / name).write_text("before")
    paths = {host_paths.DRIFT_LAST: "last", host_paths.DRIFT_PLAN: "plan", host_paths.DRIFT_SERVICE_FILE: "service"}
    script = schedule_state.CHECK_NOW
    for path, name in paths.items():
        script = script.replace(path, str(tmp_path / name))
    systemctl = tmp_path / "systemctl"
    left = f"echo after >{tmp_path}/last" if leaves else "echo broken >&2; exit 1"
    systemctl.write_text(
        f'#!/bin/sh\nif [ "$1" = is-active ]; then echo {active}; exit; fi\necho "$@" >>{tmp_path}/log\n{left}\n'
    )
    systemctl.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, "after\n" if leaves else "")
    assert (tmp_path / "log").read_text() == "start gpuprep-drift.service\n" * starts
    (tmp_path / "plan").unlink()
    assert subprocess.run(["sh", "-c", script], env=environment, check=False).returncode == schedule_state.NOT_SCHEDULED


def test_last_says_which_profile_the_host_compares_with(stage: Stage) -> None:
    stage.schedule()
    stage.machine.files[host_paths.DRIFT_LAST] = records.to_json(found_last_night())
    stage.last()
    assert any(T4.sha256[:12] in told for told in stage.told)
    assert "next check at 2026-11-22T02:41:07+00:00" in stage.told


def test_the_commands_of_a_night_name_the_profile_as_it_is_typed_here(stage: Stage, tmp_path: Path) -> None:
    """A profile of the user's own is a file: its name alone is no --profile. The host's word for the file is none."""
    path = str(tmp_path / "my-t4.yml")
    mine = dataclasses.replace(T4, name="my-t4", path=path, sha256="1" * 64)
    held = records.Finding("driver", "held", records.Status.FAIL, "all held", "none", role="gpu_driver")
    night = found_last_night(findings=(held,))
    for ref, typed in (
        (records.ProfileRef("t4", "/host/says/t4.yml", "2" * 64), "t4"),
        (records.ProfileRef("my-t4", "/host/says/my-t4.yml", mine.sha256), path),
        (records.ProfileRef("my-t4", "/host/says/my-t4.yml", "3" * 64), "PROFILE"),
    ):
        stage.schedule(mine)
        stage.machine.files[host_paths.DRIFT_LAST] = records.to_json(dataclasses.replace(night, profile=ref))
        assert f" --profile {typed}" in commands.repair([stage.last()], [held])


@pytest.mark.parametrize(
    ("scheduled", "hint"),
    [
        (True, f"make one now there: sudo systemctl start {units.SERVICE}"),
        (False, "run `gpuprep drift schedule sim:t4 "),
    ],
)
def test_no_result_is_not_a_good_one(stage: Stage, scheduled: bool, hint: str) -> None:
    if scheduled:
        stage.schedule()
    found = stage.last()
    assert found.exit_code == 3
    assert found.error is not None
    assert "it has not checked itself yet" in found.error
    assert hint in found.error
    assert ("2026-11-22T02:41:07" in found.error) == scheduled
    assert "drift" not in [run.command for run in stage.store.runs()]


@pytest.mark.parametrize("scheduled", [True, False])
def test_an_old_result_says_nothing_of_now(stage: Stage, scheduled: bool) -> None:
    if scheduled:
        stage.schedule()
    stage.machine.files[host_paths.DRIFT_LAST] = records.to_json(passed_last_night())
    delay = timedelta(minutes=T4.drift.random_delay_minutes if scheduled else 0)
    oldest = datetime.fromisoformat("2026-11-23T03:31:08+00:00") + delay
    stage.machine.now = oldest.isoformat()
    assert stage.last().exit_code == 0
    stage.machine.now = (oldest + timedelta(seconds=1)).isoformat()
    found = stage.last()
    assert found.exit_code == 3
    assert found.error is not None
    assert "last check 2026-11-21 02:31 UTC is over 49 h old (PASS: " in found.error
    assert ("journalctl -u gpuprep-drift" in found.error) == scheduled
    assert stage.store.get(found.run_id).exit_code == 0, "the store has what the host said"


def test_a_result_from_later_than_now_is_shown_and_not_believed(stage: Stage) -> None:
    """The clock was wrong in the night and is right again: such a result would never be old."""
    stage.machine.files[host_paths.DRIFT_LAST] = records.to_json(passed_last_night())
    stage.machine.now = "2026-11-21T02:25:00+00:00"
    found = stage.last()
    assert (found.exit_code, found.run_id) == (3, found_last_night().run_id)
    assert found.error is not None
    assert "last check 2026-11-21 02:31 UTC is later than now: is the clock right?" in found.error
    assert stage.store.runs() == []
    stage.machine.now = "2026-11-21T02:27:00+00:00"
    assert stage.last().exit_code == 0
    assert len(stage.store.runs()) == 1


@pytest.mark.parametrize("moment", ["started_at", "ended_at"])
def test_a_kept_night_of_the_future_is_not_stored(moment: str, stage: Stage) -> None:
    night = found_last_night(run_id="20271121-023107-0a1b2", **{moment: "2027-11-21T02:31:08+00:00"})
    path = f"{host_paths.DRIFT_RESULTS}/results/{night.run_id}.json"
    stage.machine.files |= {host_paths.DRIFT_LAST: records.to_json(found_last_night()), path: records.to_json(night)}
    stage.last()
    assert [run.run_id for run in stage.store.runs()] == [found_last_night().run_id]
    assert any(told.startswith(f"{path} is not stored: it is of ") for told in stage.told)


def test_what_is_no_check_of_a_host_is_none_of_its_results(stage: Stage) -> None:
    """Else a host's word would be what this controller certified."""
    path = f"{host_paths.DRIFT_RESULTS}/results/20261120-023107-0a1b2.json"
    passed = records.Verdict(records.Status.PASS, "PASS", ())
    forged = found_last_night(command="validate", exit_code=0, verdict=passed, after=FINISHED)
    stage.machine.hostname = FINISHED.hostname
    stage.machine.files |= {
        host_paths.DRIFT_LAST: records.to_json(forged),
        path: records.to_json(dataclasses.replace(forged, run_id="20261120-023107-0a1b2")),
    }
    found = stage.last()
    assert found.exit_code == 3
    assert found.error is not None
    assert f"{host_paths.DRIFT_LAST} there is no result: it is of command 'validate', not of drift" in found.error
    assert stage.store.runs() == []
    assert stage.store.certified("sim:t4") is None


def test_a_result_of_the_machine_that_this_one_was_copied_from(stage: Stage) -> None:
    stage.schedule()
    stored = len(stage.store.runs())
    kept = found_last_night(run_id="20261120-023107-0a1b2")
    stage.machine.files |= {
        host_paths.DRIFT_LAST: records.to_json(passed_last_night()),
        f"{host_paths.DRIFT_RESULTS}/results/{kept.run_id}.json": records.to_json(kept),
    }
    stage.machine.hostname = "t4-copy"
    found = stage.last()
    assert (found.exit_code, found.verdict) == (3, None)
    assert found.error is not None
    assert "sim:t4: the last result is of another machine, t4 (" in found.error
    assert f"make its own now there: sudo systemctl start {units.SERVICE}" in found.error
    assert len(stage.store.runs()) == stored
    stage.machine.hostname = "t4-copy\nt4"  # in a pod: its own name, and that of the machine's file
    assert stage.last().exit_code == 0


@pytest.mark.parametrize("text", ["{", "{}", "[]", "cat: permission denied\n"])
def test_a_damaged_result_is_none(stage: Stage, text: str) -> None:
    stage.machine.files[host_paths.DRIFT_LAST] = text
    found = stage.last()
    assert found.exit_code == 3
    assert found.error is not None
    assert f"{host_paths.DRIFT_LAST} there is no result" in found.error
    assert stage.store.runs() == []


def test_a_host_that_is_gone(stage: Stage) -> None:
    stage.machine.script.connecting["sim:t4"] = errors.HostUnreachable("sim:t4: no route")
    for made in (stage.schedule(), stage.unschedule(), stage.last()):
        assert made.exit_code == 3
        assert made.error is not None
        assert made.error.startswith("sim:t4: no route")


# ---------------------------------------------------------------- the commands on a real shell


@pytest.mark.parametrize("ask", [schedule_state.look, schedule_state.read])
def test_a_real_machine_without_a_schedule_answers(ask: Callable[[remote.Host], schedule_state.Found]) -> None:
    with remote.Host(remote.Target("here", local=True)) as host:
        found = ask(host)
    assert found.now.tzinfo is not None
    assert not found.timer.runs
    assert (found.timer.next_at, found.text(host_paths.DRIFT_PLAN)) == ("", "")
    if ask is schedule_state.read:
        assert os.uname().nodename in found.machine.names
        assert found.machine.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    if ask is schedule_state.look:
        assert re.fullmatch(r"3\.[0-9]+\.[0-9]+", found.word("python"))


def test_a_file_comes_back_to_the_last_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"one": "a\n\nb\n", "two": "no newline", "empty": "", "newline": "\n"}.items():
        path = tmp_path / name
        path.write_text(text)
        monkeypatch.setattr(schedule_state, "READ", schedule_state.READ.replace(host_paths.DRIFT_LAST, str(path)))
        with remote.Host(remote.Target("here", local=True)) as host:
            assert schedule_state.read(host).text(str(path)) == text
        monkeypatch.undo()


def test_results_that_are_known_do_not_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "results").mkdir()
    for name in ("one", "two", "three"):
        (tmp_path / f"results/{name}.json").write_text(f"{name}\n")
    monkeypatch.setattr(schedule_state, "DRIFT_RESULTS", str(tmp_path))
    monkeypatch.setattr(
        schedule_state, "READ", schedule_state.READ.replace("/var/lib/gpuprep/drift/results", f"{tmp_path}/results")
    )
    with remote.Host(remote.Target("here", local=True)) as host:
        assert [Path(path).stem for path in schedule_state.read(host, ["two", "on"]).kept] == ["one", "three"]
        assert schedule_state.read(host, ["one", "two", "three"]).kept == {}
        assert schedule_state.read(host).kept[f"{tmp_path}/results/one.json"] == "one\n"


def test_a_shell_that_answers_nothing_is_an_error(stage: Stage) -> None:
    stage.machine.says = "This account is not available.\n"
    found = stage.last()
    assert found.exit_code == 3
    assert found.error is not None
    assert "This account is not available." in found.error
