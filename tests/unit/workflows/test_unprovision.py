"""The straight line of unprovision: facts, list, playbook, what is left; and drift afterwards. The host is scripted."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import bare_snapshot
from fakehost import Script, playbooks_of_the_test, store_of_the_test
from finishedt4 import FINISHED, HERE, T4

from gpuprep import records
from gpuprep.paths import state_dir
from gpuprep.records import FolderFacts
from gpuprep.remote import CommandResult
from gpuprep.store import Store
from gpuprep.workflows import drift, runs, unprovision

BOOK = """
- hosts: all
  gather_facts: false
  tasks:
    - name: Take back {{ gpu_preflight_undo | map(attribute='step') | join(', ') }}
      ansible.builtin.debug:
      changed_when: true
"""
REMOVE = unprovision.LAST
AGENT = "/usr/local/bin/gpuprep-agent"


def state(*paths: str, loaded: bool = False) -> dict[str, Any]:
    about = {"kind": "file", "text": "", "mode": 0o755, "uid": 0, "gid": 0}
    bare: dict[str, Any] = {
        "manager": "apt", "packages": {}, "residual": [], "auto": [], "holds": [], "keys": {}, "files": {}, "units": {},
        "folders": [], "accounts": {"users": [], "groups": []}, "gpus": {}, "kernel": "",
    }  # fmt: skip
    return {
        "before": bare, "broken_ledger": False, "now": {**bare, "files": dict.fromkeys(paths, about)}, "installed": {},
        "changed": {}, "since": "", "needs": {}, "steps": dict.fromkeys(paths, "driver"), "trees": {},
        "driver_loaded": loaded, "driver_on_disk": False, "unrecorded": [], "members": {},
    }  # fmt: skip


class Answers(dict[str, CommandResult]):
    """What the host says of its state, one after the other, and of everything else: it is done."""

    def __init__(self, *states: Any) -> None:
        self.states = [one if isinstance(one, str) else json.dumps(one) for one in states]

    def __contains__(self, command: object) -> bool:
        return " facts " not in str(command)

    def __getitem__(self, command: str) -> CommandResult:
        if not command.startswith("python3 "):
            return CommandResult(0, "", "")
        return CommandResult(0, self.states.pop(0) if len(self.states) > 1 else self.states[0], "no such thing")


class Stage:
    def __init__(self, store: Store, script: Script) -> None:
        self.store, self.script = store, script

    def line(self) -> runs.RunContext:
        return runs.RunContext(lambda *_: None, self.store, lambda: False)

    def look(self, *states: Any, **options: Any) -> records.RunRecord:
        self.script.commands = Answers(*states)
        return unprovision.look(HERE, runs.Options(**options), self.line())

    def __call__(self, *states: Any, shown: records.Plan | None = None, **options: Any) -> records.RunRecord:
        self.script.commands = Answers(*states)
        self.script.events.clear()
        return unprovision.unprovision(HERE, runs.Options(**options), self.line(), shown)

    @property
    def commands(self) -> list[str]:
        return [event for event in self.script.events if event.startswith(("rm ", "python3 "))]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    playbooks_of_the_test(tmp_path, monkeypatch, unprovision=BOOK)
    script = Script(snapshots=[bare_snapshot()])
    with store_of_the_test(tmp_path, monkeypatch, script.host()) as store:
        yield Stage(store, script)


def test_a_look_shows_the_list_and_changes_and_stores_nothing(stage: Stage) -> None:
    made = stage.look(state(AGENT))
    assert made.plan is not None
    assert [step.role for step in made.plan.steps] == ["gpu_driver"]
    assert stage.store.runs() == []


def test_it_plays_the_list_looks_again_and_takes_the_ledger_last(stage: Stage) -> None:
    made = stage(state(AGENT), state())
    assert made.verdict is not None, made.error
    assert (made.exit_code, made.verdict.status) == (0, records.Status.PASS)
    assert made.playbook is not None
    assert [task.task for task in made.playbook.tasks] == ["Take back driver"]
    assert [command.split()[0] for command in stage.commands] == ["python3", "python3", "rm"]
    assert stage.commands[-1] == REMOVE
    assert stage.store.get(made.run_id) == made


def test_what_is_left_is_a_failure_and_the_ledger_stays(stage: Stage) -> None:
    made = stage(state(AGENT), state(AGENT))
    assert made.exit_code == 1
    (left,) = made.findings
    assert (left.status, AGENT in left.actual) == (records.Status.FAIL, True)
    assert REMOVE not in stage.commands


def test_only_a_step_leaves_the_ledger(stage: Stage) -> None:
    made = stage(state(AGENT), state(), only=("driver",))
    assert made.exit_code == 0
    assert REMOVE not in stage.commands


def test_another_list_than_the_one_that_was_shown_is_refused(stage: Stage) -> None:
    shown = stage.look(state()).plan
    made = stage(state(AGENT), shown=shown)
    assert (made.exit_code, made.playbook) == (2, None)
    assert "the list is another" in str(made.error)


def with_driver() -> dict[str, Any]:
    """gpuprep installed the driver that is loaded."""
    made = state(loaded=True)
    made["now"]["packages"] = {"nvidia-driver": ["550"]}
    made["installed"] = {"nvidia-driver": {"ours": True, "step": "driver", "auto": False}}
    return made


def test_a_program_on_the_gpu_is_named_and_nothing_is_changed(stage: Stage) -> None:
    use = records.UseFacts(("train.py (process 4711, alice) on gpu 0",), (), (), {})
    stage.script.snapshots = [dataclasses.replace(FINISHED, use=use)]
    looked = stage.look(with_driver())
    assert looked.plan is not None
    assert "would change its GPUs; in use by train.py (process 4711, alice) on gpu 0" in looked.plan.notes[-1]
    made = stage(with_driver(), shown=looked.plan)
    assert (made.exit_code, made.playbook) == (2, None)
    assert "train.py (process 4711, alice) on gpu 0" in str(made.error)
    gone = stage(with_driver(), state(), shown=looked.plan, when_busy="go")
    assert gone.playbook is not None
    stage.script.snapshots = [FINISHED]
    free = stage(with_driver(), state(), shown=looked.plan)
    assert free.playbook is not None, "the line about those who use it came and went"


def test_a_disk_that_cannot_be_written_to_is_named_and_nothing_is_changed(stage: Stage) -> None:
    places = {"/": FolderFacts("/", False), "/etc": FolderFacts("/etc", True), "/srv": FolderFacts("/srv", True)}
    stage.script.snapshots = [dataclasses.replace(bare_snapshot(), folders=places)]
    for made in (stage.look(state(AGENT)), stage(state(AGENT))):
        assert made.exit_code == 2
        assert "/etc cannot be written to: mounted read-only" in str(made.error)
        assert made.playbook is None


def test_what_files_had_that_go_is_kept_with_the_run(stage: Stage) -> None:
    """Somebody may have edited one of gpuprep's own."""
    made = stage(state(AGENT), state())
    (kept,) = state_dir().glob(f"runs/{made.run_id}/taken-back.json")
    assert json.loads(kept.read_text()) == {AGENT: ""}
    assert kept.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("answer", ["", "no", "[]", "{}", "[" * 10_000, '{"now": 3, "before": null}'])
def test_an_answer_that_cannot_be_read_is_an_error_and_nothing_is_changed(stage: Stage, answer: str) -> None:
    made = stage(answer)
    assert made.error
    assert made.exit_code in (1, 2, 3, 4)
    assert made.playbook is None
    assert REMOVE not in stage.commands


def test_a_loaded_driver_waits_for_a_restart(stage: Stage) -> None:
    made = stage(with_driver(), state(loaded=True), reboot=False)
    assert made.reboot_needed
    assert made.verdict is not None, made.error
    assert made.verdict.status is records.Status.WARN
    assert made.exit_code == 0


def test_drift_says_that_the_host_was_unprovisioned(stage: Stage) -> None:
    gone = stage(state(AGENT), state())
    made = drift.check(HERE, T4, runs.Options(), stage.line())
    assert made.exit_code == 2
    assert made.error is not None
    assert f"run {gone.run_id} unprovisioned it" in made.error
    stage.script.snapshots = [FINISHED]  # somebody provisioned it from elsewhere
    assert drift.check(HERE, T4, runs.Options(), stage.line()).verdict is not None
