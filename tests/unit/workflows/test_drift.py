"""The straight line of drift: what it compares with, measures, runs and puts back, with facts from a scripted Host."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import OS, bare_snapshot
from fakehost import Script, playbooks_of_the_test, store_of_the_test
from finishedt4 import ANSWERS, FINISHED, HERE, T4, WANTED, real
from records_for_tests import PASSED, record
from sshserver import SSHD, Sshd
from waiting import until

from gpuprep import errors, records, remote
from gpuprep.desired import loading, profile
from gpuprep.provisioning import ansible_run
from gpuprep.records import ids
from gpuprep.remote import agent_client
from gpuprep.store import Store
from gpuprep.workflows import drift, provision, runs, schedule_state

TUNE = "systemctl restart gpuprep-tune.service"

ROLE = """
- name: Write a file
  ansible.builtin.copy: {content: wanted, dest: "FILE"}
"""
BOOK = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.import_role: {name: gpu_tuning}
      tags: [tuning]
    - name: Say what needs no change
      ansible.builtin.command: "true"
      changed_when: false
      check_mode: false
      tags: [driver]
"""
BROKEN = (
    BOOK
    + """
    - name: Break
      ansible.builtin.command: sh -c 'echo no compiler >&2; exit 9'
      check_mode: false
      tags: [codec]
"""
)


class Stage:
    """Drift with everything around it. `play` writes the playbook that --deep runs."""

    def __init__(self, store: Store, script: Script, books: Path) -> None:
        self.store, self.script, self.books = store, script, books
        self.progress: list[ansible_run.Progress] = []
        self.cancel = threading.Event()
        self.file = books / "written"

    def line(self) -> runs.RunContext:
        return runs.RunContext(lambda _, event: self.progress.append(event), self.store, self.cancel.is_set)

    def __call__(self, *snapshots: records.Snapshot, of: profile.Profile = T4, **options: Any) -> records.RunRecord:
        self.script.snapshots = list(snapshots) or [FINISHED]
        self.script.events.clear()
        return drift.check(HERE, of, runs.Options(**options), self.line())

    def certify(self) -> records.RunRecord:
        self.script.snapshots = [FINISHED]
        made = provision.validate(HERE, T4, runs.Options(), self.line())
        assert made.exit_code == 0, made.verdict
        return made

    def play(self, book: str) -> None:
        (self.books / "provision.yml").write_text(book)
        tasks = self.books / "roles/gpu_tuning/tasks"
        tasks.mkdir(parents=True, exist_ok=True)
        (tasks / "main.yml").write_text(ROLE.replace("FILE", str(self.file)))

    @property
    def stages(self) -> list[str]:
        return [event.detail for event in self.progress if event.kind == "stage"]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    books = playbooks_of_the_test(tmp_path, monkeypatch)
    script = Script(probes=ANSWERS)
    with store_of_the_test(tmp_path, monkeypatch, script.host()) as store:
        yield Stage(store, script, books)


def gpu_with(**changes: Any) -> records.Snapshot:
    """The finished host with something else on its GPU."""
    assert isinstance(FINISHED.gpus, tuple)
    return dataclasses.replace(FINISHED, gpus=(dataclasses.replace(FINISHED.gpus[0], **changes),))


def status_of(made: records.RunRecord, key: str) -> records.Status | None:
    return next((one.status for one in made.findings if one.key == key), None)


SLOW = records.ClockPair(5001, 585)
UNTUNED = gpu_with(application_clocks=SLOW)


# ---------------------------------------------------------------- what it is compared with


def test_an_undisturbed_host_is_silent_and_names_what_it_was_compared_with(stage: Stage) -> None:
    certified = stage.certify()
    first = stage()
    assert first.drift is not None
    assert (first.exit_code, first.drift.certified_run, first.drift.previous_run) == (0, certified.run_id, "")
    assert {one.status for one in first.findings} <= {records.Status.PASS, records.Status.SKIP}
    second = stage()
    assert second.drift is not None
    assert (second.drift.previous_run, second.drift.previous_at) == (first.run_id, first.started_at)
    assert stage.script.events == ["facts as root", "closed"]
    assert stage.store.get(second.run_id) == second


def test_a_difference_keeps_the_moment_when_it_was_first_seen(stage: Stage) -> None:
    stage.certify()
    first, second = stage(UNTUNED), stage(UNTUNED)
    (seen,) = [one for one in second.findings if one.status is records.Status.FAIL]
    assert (seen.key, seen.since, second.exit_code) == ("gpu 0.clocks", first.started_at, 1)
    assert not any(one.since for one in stage().findings)


def test_another_status_is_so_since_it_was_found_so(stage: Stage) -> None:
    """A waiver is the user's word on what was found, and no other finding."""
    unread = gpu_with(application_clocks=records.Missing("no_permission"))
    waiver = profile.Waiver("gpu 0.clocks", "here", "a known one", "2099-12-31")
    waived = dataclasses.replace(T4, waivers=(waiver,))

    def look(snapshot: records.Snapshot, of: profile.Profile = T4) -> tuple[records.Status, str, str]:
        made = stage(snapshot, of=of)
        (found,) = [one for one in made.findings if one.key == "gpu 0.clocks"]
        return found.status, found.since, made.started_at

    status, since, began = look(unread)
    assert (status, since) == (records.Status.UNKNOWN, began)
    until(lambda: ids.now() != began, "moments are whole seconds", 600)
    status, since, failed = look(UNTUNED)
    assert (status, since) == (records.Status.FAIL, failed)
    assert failed != began
    assert look(UNTUNED, waived)[:2] == (records.Status.WAIVED, failed)
    assert look(UNTUNED)[:2] == (records.Status.FAIL, failed)


def test_waivers_count_in_drift(stage: Stage) -> None:
    stage.certify()
    given = dataclasses.replace(T4, waivers=(profile.Waiver("gpu 0.clocks", "here", "a known one", "2099-12-31"),))
    made = stage(UNTUNED, of=given)
    assert (made.exit_code, status_of(made, "gpu 0.clocks")) == (0, records.Status.WAIVED)
    spent = dataclasses.replace(T4, waivers=(profile.Waiver("gpu 0.clocks", "here", "a known one", "2026-01-01"),))
    assert stage(UNTUNED, of=spent).exit_code == 1
    assert status_of(stage(of=spent), "waiver.gpu 0.clocks") is records.Status.WARN


GONE = {
    "the GPU is no longer on the bus": dataclasses.replace(
        FINISHED, pci_gpus=(), gpus=records.Missing("driver_not_loaded", "NVML: Driver Not Loaded")
    ),
    "the driver shows no GPU either": dataclasses.replace(FINISHED, pci_gpus=(), gpus=()),
    "everything of it was purged": bare_snapshot(),
    "ffmpeg is gone": dataclasses.replace(FINISHED, codec=records.CodecFacts(None, None, None, None, None, None)),
    "another system": dataclasses.replace(FINISHED, os=OS["debian12"]),
    "a system without packages": dataclasses.replace(FINISHED, os=OS["fedora42"]),
    "another model": dataclasses.replace(
        gpu_with(uuid="GPU-other", name="Tesla V100", pci_device_id="1db1"),
        pci_gpus=bare_snapshot(gpus=("v100",)).pci_gpus,
    ),
}


@pytest.mark.parametrize("what", GONE)
def test_what_is_gone_is_a_difference_and_no_wrong_usage(stage: Stage, what: str) -> None:
    stage.certify()
    made = stage(GONE[what])
    assert made.error is None
    assert made.exit_code == 1, what
    assert all(one.remedy for one in made.findings if one.status is records.Status.FAIL)


def test_a_machine_without_a_gpu_that_was_never_certified_is_a_wrong_wish(stage: Stage) -> None:
    made = stage(GONE["the GPU is no longer on the bus"])
    assert made.exit_code == 2
    assert made.error is not None
    assert "no NVIDIA GPU on the PCI bus" in made.error


def test_a_profile_for_another_machine_is_refused_though_one_was_certified(stage: Stage) -> None:
    stage.certify()
    made = stage(of=loading.load("a100"))
    assert made.exit_code == 2
    assert made.error is not None
    assert "the host's GPU is T4" in made.error


# ---------------------------------------------------------------- one round trip


@pytest.mark.skipif(SSHD is None, reason="no sshd here (package openssh-server)")
def test_a_check_is_one_round_trip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real sshd counts the commands; the agent is a stand-in that answers with prepared facts."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / "facts.json").write_text(records.to_json(FINISHED))
    agent = tmp_path / "gpuprep-agent"
    agent.write_text(f"#!/bin/sh\ncat >/dev/null\ncat {tmp_path}/facts.json\n")
    agent.chmod(0o755)
    monkeypatch.setattr(agent_client, "AGENT_PROGRAM", str(agent))
    folder = tmp_path / "sshd"
    folder.mkdir()
    server = Sshd(folder, home, "LogLevel VERBOSE")
    store = Store.open(None)
    try:
        server.trust()
        line = runs.RunContext(lambda *_: None, store, threading.Event().is_set)
        made = drift.check(server.target(), T4, runs.Options(), line)
        log = (folder / "log").read_text()
    finally:
        store.close()
        server.stop()
    assert (made.exit_code, made.error) == (0, None)
    assert log.count("Starting session: ") == 1, log
    assert log.count("Accepted publickey") == 1


# ---------------------------------------------------------------- --probe quick


def test_the_quick_probe_measures_two_things_and_looks_again_after_the_load(stage: Stage) -> None:
    stage.certify()
    made = stage(probe="quick")
    assert made.exit_code == 0, made.verdict
    looks = ["facts as root", "probe gemm", "facts as root", "probe bandwidth", "facts as root"]
    assert stage.script.events == [*looks, "closed"]
    assert [one.probe for one in made.measurements] == ["gemm", "bandwidth"]
    assert made.drift is not None
    assert (made.drift.probe, made.drift.probe_skipped) == ("quick", "")
    assert status_of(made, "speed.quick_probe") is None


def test_a_speed_that_has_no_baseline_is_no_silent_pass(stage: Stage) -> None:
    """Certified by an ordinary validate, whose figures are not those of a quick measurement; then 4 % slower."""
    seen = dataclasses.replace(FINISHED, source=records.Source.MEASURED)
    both = ["gpu 0.bandwidth_history", "gpu 0.gemm_history"]

    def validated(**options: Any) -> records.RunRecord:
        stage.script.snapshots = [seen]
        return provision.validate(HERE, T4, runs.Options(**options), stage.line())

    def told(made: records.RunRecord) -> dict[str, records.Status]:
        return {one.key: one.status for one in made.findings if one.property.endswith("_history")}

    stage.script.probes = real(quick=False)
    certified = validated()
    assert (certified.exit_code, told(certified)) == (0, {})
    stage.script.probes = real(0.96, quick=True)
    made = stage(seen, probe="quick")
    assert made.verdict is not None
    assert (made.exit_code, made.verdict.status) == (0, records.Status.WARN)
    assert told(made) == dict.fromkeys(both, records.Status.WARN)
    warned = [one for one in made.findings if one.key in both]
    assert all("gpuprep validate HOST --profile t4 --quick" in one.remedy and one.since for one in warned)
    assert told(validated(quick=True, probes=("gemm", "bandwidth"))) == {}
    assert told(stage(seen, probe="quick")) == dict.fromkeys(both, records.Status.PASS)
    stage.script.probes = real(0.9 * 0.96, quick=True)
    assert records.Status.FAIL in told(stage(seen, probe="quick")).values()


def test_a_simulated_speed_has_no_baseline_and_says_so_once(stage: Stage) -> None:
    stage.certify()
    made = stage(probe="quick")
    assert made.verdict is not None
    assert (made.verdict.status, status_of(made, "speed.history")) == (records.Status.PASS, records.Status.SKIP)
    assert status_of(stage(), "speed.history") is None


def test_errors_that_the_load_brings_about_are_seen(stage: Stage) -> None:
    stage.certify()
    assert stage(FINISHED, UNTUNED, probe="quick").exit_code == 1


def test_a_program_that_begins_between_two_probes_ends_the_measuring(stage: Stage) -> None:
    stage.certify()
    made = stage(FINISHED, gpu_with(processes=WORKING), probe="quick")
    assert stage.script.events == ["facts as root", "probe gemm", "facts as root", "closed"]
    assert [one.probe for one in made.measurements] == ["gemm"]
    assert (made.exit_code, status_of(made, "speed.quick_probe")) == (3, records.Status.UNKNOWN)


WORKING = (records.ProcessOnGpu(4711, "python3", 900),)


@pytest.mark.parametrize(
    ("snapshot", "why"),
    [
        (gpu_with(processes=WORKING), "in use by python3 (pid 4711) on gpu 0"),
        (gpu_with(processes=(records.ProcessOnGpu(9, "", 1),)), "in use by a program (pid 9) on gpu 0"),
        (gpu_with(processes=records.Missing("no_permission")), "whether a program uses gpu 0 could not be read"),
        (dataclasses.replace(FINISHED, gpus=records.Missing("driver_not_loaded")), "the GPUs could not be read"),
        (dataclasses.replace(FINISHED, gpus=()), "the driver shows no GPU"),
    ],
)
def test_nothing_is_measured_beside_the_work_of_others(stage: Stage, snapshot: records.Snapshot, why: str) -> None:
    stage.certify()
    made = stage(snapshot, probe="quick")
    assert stage.script.events == ["facts as root", "closed"]
    assert (status_of(made, "speed.quick_probe"), made.measurements) == (records.Status.UNKNOWN, ())
    assert made.drift is not None
    assert made.drift.probe_skipped.startswith(why)
    assert status_of(made, "driver.version") is records.Status.PASS
    speed = next(one for one in made.findings if one.subject == "speed")
    assert why in speed.reason
    assert "idle" in speed.remedy


def test_a_gpu_at_work_makes_the_speed_unknown_and_nothing_else(stage: Stage) -> None:
    stage.certify()
    made = stage(gpu_with(processes=WORKING), probe="quick")
    assert made.exit_code == 3
    assert [one.key for one in made.findings if one.status not in (records.Status.PASS, records.Status.SKIP)] == [
        "speed.quick_probe"
    ]


def test_without_cuda_there_is_no_speed_to_tell(stage: Stage) -> None:
    without = dataclasses.replace(
        T4, cuda=dataclasses.replace(T4.cuda, version="none"), cudnn=dataclasses.replace(T4.cudnn, version="none")
    )
    made = stage(of=without, probe="quick")
    assert status_of(made, "speed.quick_probe") is records.Status.SKIP
    assert stage.script.events == ["facts as root", "closed"]


# ---------------------------------------------------------------- --deep


def test_deep_names_each_task_that_would_change_something(stage: Stage) -> None:
    stage.certify()
    stage.play(BOOK)
    made = stage(deep=True)
    found = [one for one in made.findings if one.status is records.Status.FAIL]
    assert [(one.key, one.role) for one in found] == [("gpu_tuning.Write a file", "gpu_tuning")]
    assert found[0].remedy == "`gpuprep tune HOST --profile PROFILE`"
    assert (made.exit_code, stage.file.exists()) == (1, False)
    assert any("Write a file" in event.task for event in stage.progress)
    stage.file.write_text("wanted")
    silent = stage(deep=True)
    assert silent.exit_code == 0
    assert status_of(silent, "playbook.check_mode") is records.Status.PASS


@pytest.mark.machines
def test_a_check_mode_that_fails_could_not_tell(stage: Stage) -> None:
    stage.certify()
    stage.play(BROKEN)
    stage.file.write_text("wanted")
    made = stage(deep=True)
    assert (made.exit_code, made.error) == (3, None)
    (told,) = [one for one in made.findings if one.status is records.Status.UNKNOWN]
    assert told.key == "playbook.check_mode"
    assert "ansible.log" in told.remedy
    assert made.playbook is not None
    assert made.playbook.status == "failed"


def test_deep_has_nothing_to_compare_where_gpuprep_has_no_packages(stage: Stage) -> None:
    foreign = dataclasses.replace(FINISHED, os=OS["fedora42"])
    assert status_of(stage(foreign, deep=True), "playbook.check_mode") is records.Status.SKIP


# ---------------------------------------------------------------- --fix


def test_fix_puts_back_and_shows_before_and_after(stage: Stage) -> None:
    stage.certify()
    stage.script.commands = {TUNE: remote.CommandResult(0, "", "")}
    made = stage(UNTUNED, FINISHED, fix=True)
    assert made.exit_code == 0, made.verdict
    assert stage.script.events == [
        "facts as root",
        f"locked for {made.run_id}",
        TUNE,
        "unlocked",
        "facts as root",
        "closed",
    ]
    assert made.drift is not None
    (fix,) = made.drift.fixes
    assert (fix.finding, fix.command, fix.exit_code) == ("gpu 0.clocks", TUNE, 0)
    assert (fix.before, fix.after) == ("application 5001,585 MHz", "application 5001,1590 MHz")
    assert (made.before, made.after) == (UNTUNED, FINISHED)
    assert stage.store.get(made.run_id) == made


def own(made: records.RunRecord) -> remote.CommandResult:
    return remote.CommandResult(0, records.to_json(made), "")


def notes(made: records.RunRecord) -> str:
    return "; ".join(made.history.notes) if made.history else ""


def test_after_a_fix_the_host_checks_itself_so_that_its_scheduler_does_not_go_by_what_was(stage: Stage) -> None:
    stage.certify()
    stage.script.commands = {TUNE: remote.CommandResult(0, "", "")}
    stage.script.own_check = own(record(command="drift", verdict=PASSED))
    made = stage(UNTUNED, FINISHED, fix=True)
    assert stage.script.events[-4:] == ["unlocked", "facts as root", "own check", "closed"]
    assert (made.exit_code, "own check" in notes(made)) == (0, False)
    assert f"the host's own check: {PASSED.summary}" in stage.stages
    stage.script.events.clear()
    assert stage(FINISHED, fix=True).exit_code == 0
    assert "own check" not in stage.script.events, "nothing was repaired"


def test_a_note_says_that_the_hosts_own_check_ended_otherwise(stage: Stage) -> None:
    stage.certify()
    stage.script.commands = {TUNE: remote.CommandResult(0, "", "")}
    failed = records.Verdict(records.Status.FAIL, "FAIL: 1 of 9 checks", ())
    stage.script.own_check = own(record(command="drift", verdict=failed, exit_code=1))
    made = stage(UNTUNED, FINISHED, fix=True)
    assert made.exit_code == 0
    assert "the host's own check ended otherwise: FAIL: 1 of 9 checks; it compares with the profile" in notes(made)
    for answer, said in (
        (remote.CommandResult(schedule_state.NO_RESULT, "", "Job failed\x1b[2J\n"), "left no result: Job failed"),
        (remote.CommandResult(0, "{", ""), "could not be renewed"),
    ):
        stage.script.own_check = answer
        made = stage(UNTUNED, FINISHED, fix=True)
        assert made.exit_code == 0
        assert said in notes(made)
        assert "\x1b" not in notes(made)


def test_a_fix_that_fails_stops_no_other_and_the_verdict_decides(stage: Stage) -> None:
    stage.certify()
    assert isinstance(FINISHED.gpus, tuple)
    name = WANTED.driver.packages[0]
    unheld = {**FINISHED.packages, name: dataclasses.replace(FINISHED.packages[name], held=False)}
    both = dataclasses.replace(UNTUNED, packages=unheld)
    stage.script.commands = {
        f"apt-mark hold {name}": remote.CommandResult(100, "", "E: Could not get lock\n"),
        TUNE: remote.CommandResult(0, "", ""),
    }
    made = stage(both, dataclasses.replace(FINISHED, packages=unheld), fix=True)
    assert made.exit_code == 1
    assert made.drift is not None
    assert [(fix.finding, fix.exit_code, fix.said) for fix in made.drift.fixes] == [
        ("driver.held", 100, "E: Could not get lock"),
        ("gpu 0.clocks", 0, ""),
    ]


def test_fix_leaves_what_it_could_put_back_only_together_with_what_is_waived(stage: Stage) -> None:
    stage.certify()
    assert isinstance(UNTUNED.gpus, tuple)
    gpu = UNTUNED.gpus[0]
    limited = dataclasses.replace(gpu, power=dataclasses.replace(gpu.power, current_watts=55.0))
    waiver = profile.Waiver("gpu *.power_limit", "*", "ticket 4711", "2999-12-31")
    given = dataclasses.replace(T4, waivers=(waiver,))
    made = stage(dataclasses.replace(UNTUNED, gpus=(limited,)), of=given, fix=True)
    assert stage.script.events == ["facts as root", "closed"]
    assert status_of(made, "gpu 0.power_limit") is records.Status.WAIVED
    (clocks,) = [one for one in made.findings if one.key == "gpu 0.clocks"]
    assert clocks.status is records.Status.FAIL
    assert (
        "--fix` does not repair it, because its command would also change gpu 0.power_limit, which is WAIVED"
        in clocks.remedy
    )
    assert made.drift is not None
    assert (made.exit_code, made.drift.fixes) == (1, ())


def test_with_nothing_to_put_back_nothing_is_locked_and_it_says_so(stage: Stage) -> None:
    stage.certify()
    made = stage(fix=True)
    assert stage.script.events == ["facts as root", "closed"]
    assert "nothing that --fix can put back" in stage.stages
    assert made.drift is not None
    assert (made.exit_code, made.drift.fixes) == (0, ())


def test_what_cannot_be_put_back_keeps_its_command(stage: Stage) -> None:
    stage.certify()
    made = stage(GONE["ffmpeg is gone"], fix=False)
    left = [one for one in made.findings if one.status is records.Status.FAIL]
    assert left
    assert all("gpuprep provision" in one.remedy for one in left)


@pytest.mark.parametrize("fix", [False, True])
def test_what_is_found_while_another_run_changes_the_host_is_no_fault(stage: Stage, fix: bool) -> None:
    stage.certify()
    stage.script.locking = errors.HostLocked("here is in use by me", "wait")
    made = stage(UNTUNED, fix=fix)
    assert (made.exit_code, made.verdict, made.findings) == (3, None, ())
    assert "in use by me" in str(made.error)
    assert stage.script.events == ["facts as root", "closed"], "nothing was put back"
    assert stage().exit_code == 0, "as it should be already"


def test_who_else_works_there_may_be_unreadable(stage: Stage) -> None:
    stage.certify()
    stage.script.looking = errors.HostError("cannot lock here: /run/gpuprep belongs not only to root")
    made = stage(UNTUNED)
    assert (made.exit_code, status_of(made, "gpu 0.clocks")) == (1, records.Status.FAIL)


def test_what_is_waived_is_not_put_back(stage: Stage) -> None:
    stage.certify()
    given = dataclasses.replace(T4, waivers=(profile.Waiver("gpu 0.clocks", "*", "quiet hours", "2099-12-31"),))
    made = stage(UNTUNED, of=given, fix=True)
    assert stage.script.events == ["facts as root", "closed"]
    assert made.exit_code == 0
