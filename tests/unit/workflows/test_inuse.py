"""Which command does what to a host that somebody uses, by --when-busy. The host is scripted, Ansible is real."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from finishedt4 import FINISHED
from workflowstage import Stage, stage

from gpuprep import records, remote
from gpuprep.agent.facts import managed
from gpuprep.records import Missing, UseFacts
from gpuprep.workflows import drift, fixes, inuse, provision, rollback, runs

__all__ = ["stage"]  # a fixture

PROGRAM, JOB = "python3 (process 812, alice) on gpu 0", "Slurm's job 71 of alice"
BOB = "bob on pts/3 since Sun 2026-11-29 10:12:01 UTC"
FREE = UseFacts((), (), (), {})
USES: dict[str, UseFacts | Missing] = {
    "nobody": FREE,
    "a program": dataclasses.replace(FREE, programs=(PROGRAM,)),
    "a job": dataclasses.replace(FREE, jobs=(JOB,)),
    "a user": dataclasses.replace(FREE, users=(BOB,)),
    "programs unknown": dataclasses.replace(FREE, unknown={"programs": "NVML\x1b[2J says nothing"}),
    "users unknown": dataclasses.replace(FREE, unknown={"users": "neither loginctl nor who answers"}),
    "not read": Missing("not_read"),
}
HINDERS_GPUS = ("a program", "a job", "programs unknown", "not read")
TUNE = "systemctl restart gpuprep-tune.service"
THERE = remote.Target("there", "127.0.0.1", 22)  # only a host that is not this one is restarted


def host(use: Any, **changes: Any) -> records.Snapshot:
    """The finished host with something else on its GPU, in use by somebody."""
    assert isinstance(FINISHED.gpus, tuple)
    gpu = dataclasses.replace(FINISHED.gpus[0], **changes)
    return dataclasses.replace(FINISHED, gpus=(gpu,), use=use)


def slow(use: Any) -> records.Snapshot:
    return host(use, application_clocks=records.ClockPair(5001, 585))


def notes(made: records.RunRecord) -> str:
    return "; ".join(made.history.notes) if made.history else ""


# ---------------------------------------------------------------- what a plan does to those who use the host


@pytest.mark.parametrize(
    ("steps", "options", "target", "does"),
    [
        ([("gpu_driver", True)], {}, THERE, (True, True)),
        ([("gpu_driver", True)], {"reboot": False}, THERE, (False, True)),
        ([("gpu_driver", True)], {}, dataclasses.replace(THERE, local=True), (False, True)),
        ([("gpu_driver", False)], {}, THERE, (False, False)),
        ([("gpu_preflight", True)], {}, THERE, (True, False)),
        ([("gpu_tuning", False)], {}, THERE, (False, True)),
        ([("gpu_tuning", True)], {}, THERE, (True, True)),
        ([("gpu_cuda", False), ("gpu_codec", False), ("gpu_agent", False)], {}, THERE, (False, False)),
        ([], {}, THERE, (False, False)),
    ],
)
def test_what_a_plan_does(steps: Any, options: Any, target: remote.Target, does: tuple[bool, bool]) -> None:
    made = [records.Step(role, role, (), may_reboot=may) for role, may in steps]
    assert inuse.Does.of(made, runs.Options(**options), target) == inuse.Does(*does)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(("restart", "gpus"), [(True, False), (False, True), (False, False)])
def test_who_hinders_what(use: str, restart: bool, gpus: bool) -> None:
    told = inuse.told(host(USES[use]), inuse.Does(restart, gpus))
    assert bool(told) == ((restart and use != "nobody") or (gpus and use in HINDERS_GPUS)), told
    assert "\x1b" not in told


# ---------------------------------------------------------------- the commands


@pytest.mark.parametrize("command", [provision.provision, provision.tune])
@pytest.mark.parametrize("use", ["a program", "a job"])
def test_a_change_of_clocks_under_a_job_is_refused_before_anything_changes(
    stage: Stage, command: Callable[..., Any], use: str
) -> None:
    stage.script.snapshots = [slow(USES[use])]
    made = stage(command)
    who = (PROGRAM, JOB)[use == "a job"]
    assert (made.exit_code, made.playbook, made.verdict) == (2, None, None)
    assert str(made.error).startswith(f"here: refused, because it would change its GPUs: in use by {who}\n")
    for words in ("--when-busy wait", "--when-busy go", "nothing was changed"):
        assert words in str(made.error)
    assert made.plan is not None
    assert made.plan.steps
    assert made.before is not None
    assert made.before.use == USES[use], "JSON has it, too"


@pytest.mark.parametrize("use", ["nobody", "a user", "users unknown"])
def test_a_user_alone_does_not_hinder_a_change_of_clocks(stage: Stage, use: str) -> None:
    stage.script.snapshots = [slow(USES[use]), FINISHED]
    made = stage(provision.tune)
    assert made.error is None, made.error
    assert made.playbook is not None
    assert (made.exit_code, made.playbook.status) == (0, "successful")
    assert notes(made) == ""


def test_go_says_over_whom_it_went(stage: Stage) -> None:
    stage.script.snapshots = [slow(USES["a program"]), FINISHED]
    made = stage(provision.tune, when_busy="go")
    assert made.exit_code == 0
    assert notes(made) == f"--when-busy go: does not wait (in use by {PROGRAM})"
    assert made.options["when_busy"] == "go"


def test_wait_waits_without_the_lock_and_plans_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    monkeypatch.setattr(inuse, "LOOK_SECONDS", 0.0)
    busy = slow(USES["a job"])
    stage.script.snapshots = [busy, busy, slow(FREE), slow(FREE), FINISHED]
    made = stage(provision.tune, when_busy="wait")
    assert made.exit_code == 0, made.error
    assert f"waits at most 60 minutes to change its GPUs: in use by {JOB}" in stage.stages
    first, *rest = [event for event in stage.script.events if event.startswith(("locked", "unlocked", "facts"))]
    assert first == f"locked for {made.run_id}"
    facts = "facts as root"
    assert rest == [facts, "unlocked", facts, facts, first, facts, "unlocked", facts]


def test_wait_has_a_bound(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inuse, "LOOK_SECONDS", 0.0)
    stage.script.snapshots = [slow(USES["a job"])]
    made = stage(provision.tune, when_busy="wait", wait_minutes=0)
    assert (made.exit_code, made.playbook) == (2, None)
    assert str(made.error).startswith("here: refused after 0 minutes, because it would change its GPUs: in use by")


def test_a_wait_ends_when_the_user_stops_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: stage.cancel.set())
    stage.script.snapshots = [slow(USES["a job"])]
    assert stage(provision.tune, when_busy="wait").exit_code == 130


@pytest.mark.parametrize("use", USES)
def test_a_plan_says_who_would_be_disturbed(stage: Stage, use: str) -> None:
    stage.script.snapshots = [slow(USES[use])]
    said = [stage(provision.plan), stage(provision.tune, check=True)]
    for made in said:
        assert made.exit_code == 0
        assert made.plan is not None
        lines = [line for line in made.plan.notes if "--when-busy" in line]
        assert len(lines) == (use in HINDERS_GPUS)
        assert all(line.startswith("would change its GPUs; ") for line in lines)


def test_a_finished_host_is_never_in_the_way(stage: Stage) -> None:
    stage.script.snapshots = [dataclasses.replace(FINISHED, use=USES["a program"])]
    assert stage(provision.provision).exit_code == 0


# ---------------------------------------------------------------- drift --fix


def drifted(stage: Stage, *snapshots: records.Snapshot, **options: Any) -> records.RunRecord:
    stage.script.snapshots = list(snapshots)
    stage.script.events.clear()
    stage.script.commands = {TUNE: remote.CommandResult(0, "", "")}
    return stage(drift.check, fix=True, **options)


def test_fix_changes_no_clocks_under_a_job_and_keeps_its_verdict(stage: Stage) -> None:
    made = drifted(stage, slow(USES["a program"]))
    assert (made.exit_code, TUNE in stage.script.events) == (2, False)
    assert made.verdict is not None
    assert made.verdict.status is records.Status.FAIL
    assert f"here: refused, because it would change its GPUs: in use by {PROGRAM}" in str(made.error)
    made = drifted(stage, slow(USES["a program"]), FINISHED, when_busy="go")
    assert (made.exit_code, TUNE in stage.script.events) == (0, True)


def test_which_fixes_disturb_programs_on_a_gpu() -> None:
    disturbing = {row.findings[0] for row in fixes.TABLE if row.disturbs}
    assert disturbing == {
        "driver.files",
        f"{managed.PERSISTENCED.removesuffix('.service')}.enabled",
        "gpuprep-tune.active",
    }


# ---------------------------------------------------------------- rollback


@pytest.mark.parametrize(
    ("way", "does"),
    [
        ({"restart": True, "install": {"a": "1"}}, (True, True)),
        ({"restart": False, "remove": ("a",)}, (False, True)),
        ({}, (False, False)),
    ],
)
def test_what_a_way_back_does(way: Any, does: tuple[bool, bool]) -> None:
    assert rollback.Way(None, **way).does(runs.Options(), THERE) == inuse.Does(*does)
