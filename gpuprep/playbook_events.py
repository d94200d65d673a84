"""The event stream of one Ansible run ─► progress lines, task results and, when a task failed, its own last words."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuprep.records import TaskResult

LAST_LINES = 20
ANSI_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
OUTCOMES = {
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_skipped": "skipped",
    "runner_on_unreachable": "unreachable",
}
# Where modules put what a failed program said.
STDERR_KEYS = ("stderr", "module_stderr")
STDOUT_KEYS = ("stdout", "module_stdout")
HINT = "What to do:"  # how our roles begin advice at the end of a message


@dataclass(frozen=True)
class Progress:
    """Something a watcher wants to know now.

    kind: "stage" (a stage of the workflow, in detail), "task_start", "task_end" (detail is the outcome),
    "waiting" (detail says for what), "diff" (detail is the text of a change), "note".
    """

    kind: str
    role: str
    task: str
    detail: str
    elapsed_seconds: float


@dataclass(frozen=True)
class TaskFailure:
    step: str
    message: str
    last_lines: tuple[str, ...]
    hint: str = ""


LENDS_TASKS = "gpu_preflight"


class Events:
    """Collects the events of one run on one host."""

    def __init__(self, on_event: Callable[[Progress], None], log: Path) -> None:
        self._on_event = on_event
        # Appended as it happens, so that the log of a run that was killed is there too.
        log.touch(mode=0o600)
        self._log = log.open("a", encoding="utf-8")
        self._began = time.monotonic()
        self._stats: Mapping[str, Any] = {}
        self.tasks: list[TaskResult] = []
        self.failure: TaskFailure | None = None
        self.unreachable = False
        self.unreachable_during = ""
        self.reached_host = False
        self.current = ""
        self._role = ""

    def stat(self, name: str) -> int:
        """A number of the run's own statistics; counted from the tasks where the run died before it could make them."""
        values = self._stats.get(name)
        if isinstance(values, dict):
            return sum(int(number) for number in values.values())
        outcome = {"failures": ("failed",), "ok": ("ok", "changed")}.get(name, (name,))
        return sum(task.outcome in outcome for task in self.tasks)

    def handle(self, event: dict[str, Any]) -> bool:
        """ansible-runner's event handler. False: the event is not written to disk, where it would outlive the run."""
        if text := ANSI_CODES.sub("", str(event.get("stdout") or "")).strip("\r\n"):
            self._log.write(text.replace("\r\n", "\n") + "\n")
            self._log.flush()
        kind = event.get("event", "")
        data = event.get("event_data") or {}
        role, task = _names(data)
        role = self._at_work_for(role)
        if kind == "playbook_on_task_start":
            self.current = f"{role}: {task}" if role else task
            self._tell("task_start", role, task, "")
        elif kind in ("runner_retry", "runner_on_async_poll"):
            self._tell("waiting", role, task, waiting_line(data.get("res") or {}))
        elif kind in ("runner_item_on_ok", "runner_item_on_failed"):
            self._diff(role, task, data.get("res") or {})
        elif kind in OUTCOMES:
            self._ended(kind, role, task, data)
        elif kind == "playbook_on_stats":
            self._stats = data
        return False

    def close(self) -> None:
        self._log.close()

    def _at_work_for(self, role: str) -> str:
        """The role a task is done for: gpu_preflight lends its tasks (install packages, release holds) to others."""
        if role == LENDS_TASKS and self._role:
            return self._role
        self._role = "" if role == LENDS_TASKS else role
        return role

    def _ended(self, kind: str, role: str, task: str, data: dict[str, Any]) -> None:
        result = data.get("res") or {}
        outcome = OUTCOMES[kind]
        if kind == "runner_on_ok" and result.get("changed"):
            outcome = "changed"
        self.reached_host = True
        ignored = kind == "runner_on_failed" and data.get("ignore_errors")
        if kind == "runner_on_failed" and not ignored:
            self._failed(role, task, result)
        if kind == "runner_on_unreachable":
            self.unreachable = True
            self.unreachable_during = f"{role}: {task}" if role else task
            self.failure = describe_failure(role, task, result)
        seconds = float(data.get("duration") or 0.0)
        self.tasks.append(TaskResult(role, task, "ok" if ignored else outcome, round(seconds, 2)))
        if not data.get("event_loop"):  # of a loop each item has shown its own
            self._diff(role, task, result)
        self._tell("task_end", role, task, outcome)

    def _failed(self, role: str, task: str, result: dict[str, Any]) -> None:
        """The last failure tells most: a rescue section fails again in plainer words. The output is the first one's."""
        before, self.failure = self.failure, describe_failure(role, task, result)
        if before is not None and not self.failure.last_lines and before.step.partition(":")[0] == role:
            self.failure = replace(self.failure, last_lines=before.last_lines)

    def _diff(self, role: str, task: str, result: dict[str, Any]) -> None:
        text = diff_text(result.get("diff"))
        if text and result.get("changed"):
            self._tell("diff", role, task, text)

    def _tell(self, kind: str, role: str, task: str, detail: str) -> None:
        self._on_event(Progress(kind, role, task, detail, time.monotonic() - self._began))


def describe_failure(role: str, task: str, result: Mapping[str, Any]) -> TaskFailure:
    """Message and last lines of a failed result; of a loop, those of the first item that failed."""
    items = result.get("results")
    if isinstance(items, list):
        failed = next((item for item in items if isinstance(item, dict) and item.get("failed")), None)
        if failed is not None:
            result = failed
    lines = _last_lines(result)
    message_lines = _message(result).strip().splitlines() or ["no message"]
    if not lines:
        lines = message_lines[1:][-LAST_LINES:]
    step = f"{role}: {task}" if role else task
    message, _, hint = message_lines[0].partition(HINT)
    return TaskFailure(step, message.rstrip(" -."), tuple(lines), hint.strip())


def _last_lines(result: Mapping[str, Any]) -> list[str]:
    """The end of what a failed program said; where stderr is short, the end of stdout before it."""
    said = {key: _text(result.get(key)).rstrip().splitlines() for key in (*STDERR_KEYS, *STDOUT_KEYS)}
    stderr = next((said[key] for key in STDERR_KEYS if said[key]), [])
    stdout = next((said[key] for key in STDOUT_KEYS if said[key]), [])
    room = LAST_LINES - len(stderr)
    return [*(stdout[-room:] if room > 0 else []), *stderr[-LAST_LINES:]]


def _message(result: Mapping[str, Any]) -> str:
    message = _text(result.get("msg") or result.get("censored"))
    if message != "non-zero return code":
        return message
    command = result.get("cmd")
    shown = " ".join(map(str, command)) if isinstance(command, list) else _text(command)
    first = (shown.strip().splitlines() or [""])[0]
    return f"exit code {result.get('rc')} of `{first[:100]}{'…' if len(first) > 100 else ''}`"


def waiting_line(result: Mapping[str, Any]) -> str:
    """What a task that is tried again is waiting for: the line it prints, or how often it was tried."""
    for key in ("stdout", "msg"):
        lines = [line for line in _text(result.get(key)).splitlines() if line.strip()]
        if lines:
            return lines[-1].strip()
    attempts, retries = result.get("attempts"), result.get("retries")
    return f"attempt {attempts} of {retries}" if attempts and retries else "trying again"


def diff_text(diff: Any) -> str:
    """Ansible's diff structure as unified text; "" where there is none or nothing differs."""
    from difflib import unified_diff

    parts = []
    for entry in diff if isinstance(diff, list) else [diff]:
        if not isinstance(entry, dict):
            continue
        if entry.get("prepared"):
            parts.append(str(entry["prepared"]).rstrip())
        elif "before" in entry or "after" in entry:
            before, after = _text(entry.get("before")), _text(entry.get("after"))
            lines = unified_diff(
                before.splitlines(),
                after.splitlines(),
                fromfile=str(entry.get("before_header") or "before"),
                tofile=str(entry.get("after_header") or "after"),
                lineterm="",
            )
            parts.append("\n".join(lines))
    return "\n".join(part for part in parts if part)


def _names(data: Mapping[str, Any]) -> tuple[str, str]:
    """Role and task; in a task's name Ansible puts the role first, as `role : task`."""
    role = str(data.get("role") or "")
    task = str(data.get("name") or data.get("task") or "")
    return role, task.removeprefix(f"{role} : ") if role else task


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (dict, list)):
        import json

        return json.dumps(value, indent=1, sort_keys=True)
    return str(value)
