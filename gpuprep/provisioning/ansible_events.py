"""The event stream of one Ansible run ─► progress lines, task results and, if a task failed, its last lines.

Events contain answers of the machine, which may be anything. No function here raises because of that, and everything
that is kept, shown and logged is limited.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional

from gpuprep.records import TaskResult
from gpuprep.untrusted.plaintext import one_line, visible

# ---------------------------------------------------------------- The result of an Ansible task as text to show.

# A result comes from the machine: any key may hold anything, of any size. No function here raises because of that.
# Each text is short, and its unsafe characters are escaped (plaintext).

LAST_LINES = 20
LINE_LETTERS = 500  # of a line of output
MESSAGE_LETTERS = 2000
DIFF_LINES = 1000  # of each side of a change
LOOKED_AT = 64 << 10  # letters at the end of an output, or at the beginning of a message
MOST_SECONDS = 1e7

# Where modules put the output of a failed program.
STDERR_KEYS = ("stderr", "module_stderr")
STDOUT_KEYS = ("stdout", "module_stdout")
HINT = "What to do:"  # how our roles begin advice at the end of a message


@dataclass(frozen=True)
class TaskFailure:
    step: str
    message: str
    last_lines: tuple[str, ...]
    hint: str = ""


def describe_failure(role: str, task: str, result: Mapping[str, Any], *, ours: bool = True) -> TaskFailure:
    """Message and last lines of a failed result; for a loop, those of the first item that failed.

    `ours`: the message comes from our own roles, and its advice becomes the hint. Advice in a machine's message stays
    in the message.
    """
    items = result.get("results")
    if isinstance(items, list):
        failed = next((item for item in items if isinstance(item, dict) and item.get("failed")), None)
        if failed is not None:
            result = failed
    lines = _last_lines(result)
    message_lines = _message(result).strip().splitlines() or ["no message"]
    if not lines:
        lines = [_line(line) for line in message_lines[1:][-LAST_LINES:]]
    message, hint = message_lines[0], ""
    if ours and HINT in message:  # the last one is ours: what a machine printed stands before it
        message, _, hint = message.rpartition(HINT)
    shown = one_line(message, MESSAGE_LETTERS).rstrip(" -.")
    return TaskFailure(step_name(role, task), shown, tuple(lines), one_line(hint, MESSAGE_LETTERS))


def step_name(role: str, task: str) -> str:
    return f"{role}: {task}" if role else task


def waiting_line(result: Mapping[str, Any]) -> str:
    """What a repeated task waits for: the line that it prints, or the number of tries."""
    for key in ("stdout", "msg"):
        lines = [line for line in _text(result.get(key))[-LOOKED_AT:].splitlines() if line.strip()]
        if lines:
            return one_line(lines[-1], LINE_LETTERS)
    attempts, retries = result.get("attempts"), result.get("retries")
    return one_line(f"attempt {attempts} of {retries}", LINE_LETTERS) if attempts and retries else "trying again"


def diff_text(diff: Any) -> str:
    """Ansible's diff structure as unified text; "" if there is none or nothing differs."""
    from difflib import unified_diff

    parts = []
    for entry in (diff if isinstance(diff, list) else [diff])[:DIFF_LINES]:
        if not isinstance(entry, dict):
            continue
        if entry.get("prepared"):
            parts.append("\n".join(_compared(entry["prepared"])).rstrip())
        elif "before" in entry or "after" in entry:
            lines = unified_diff(
                _compared(entry.get("before")),
                _compared(entry.get("after")),
                fromfile=one_line(_text(entry.get("before_header")) or "before"),
                tofile=one_line(_text(entry.get("after_header")) or "after"),
                lineterm="",
            )
            parts.append("\n".join(lines))
    return "\n".join([part for part in parts if part][:DIFF_LINES])


def seconds(duration: Any) -> float:
    """How long a task took; 0.0 if the value is no valid number."""
    if isinstance(duration, bool) or not isinstance(duration, (int, float)):
        return 0.0
    return round(float(duration), 2) if 0 <= duration < MOST_SECONDS else 0.0  # NaN is none either


def _last_lines(result: Mapping[str, Any]) -> list[str]:
    """The end of a failed program's stderr; if that is short, the end of stdout before it."""
    output = {
        key: [_line(line) for line in _text(result.get(key))[-LOOKED_AT:].rstrip().splitlines()[-LAST_LINES:]]
        for key in (*STDERR_KEYS, *STDOUT_KEYS)
    }
    stderr = next((output[key] for key in STDERR_KEYS if output[key]), [])
    stdout = next((output[key] for key in STDOUT_KEYS if output[key]), [])
    room = LAST_LINES - len(stderr)
    return [*(stdout[-room:] if room > 0 else []), *stderr]


def _message(result: Mapping[str, Any]) -> str:
    if (timed_out := result.get("timedout")) and isinstance(timed_out, dict):
        return f"the host did not end it within {timed_out.get('period')} seconds"
    message = _text(result.get("msg") or result.get("censored"))[:LOOKED_AT]
    if message != "non-zero return code":
        return message
    command = result.get("cmd")
    if isinstance(command, list):  # without programs, which are sent as one word of many lines
        command = " ".join(word for word in map(_text, command[:100]) if "\n" not in word)
    shown = _text(command)
    first = (shown[:LOOKED_AT].strip().splitlines() or [""])[0]
    return f"exit code {_text(result.get('rc'))} of `{first[:100]}{'…' if len(first) > 100 else ''}`"


def _compared(value: Any) -> list[str]:
    """One side of a change: its first lines, each of limited length."""
    lines = _text(value)[: DIFF_LINES * LINE_LETTERS].splitlines()
    more = [f"({len(lines) - DIFF_LINES} more lines)"] if len(lines) > DIFF_LINES else []
    return [*map(_line, lines[:DIFF_LINES]), *more]


def _line(text: str) -> str:
    cut = visible(text[:LINE_LETTERS])
    return cut if len(text) <= LINE_LETTERS else f"{cut}…"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (dict, list)):
        return _as_json(value)
    try:
        return str(value)
    except ValueError:  # Python writes no number of more than 4300 digits
        return "a number too long to show"


def _as_json(value: Any) -> str:
    """A structure as JSON, cut to the part that is used."""
    text = ""
    try:
        for piece in json.JSONEncoder(indent=1, sort_keys=True).iterencode(value):
            text += piece[:LOOKED_AT]
            if len(text) > LOOKED_AT:
                break
    except (RecursionError, TypeError, ValueError):
        text += " … (too deep or too complex to show)"
    return text


# ---------------------------------------------------------------- ansible events

ANSI_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
OUTCOMES = {
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_skipped": "skipped",
    "runner_on_unreachable": "unreachable",
}
# Modules that speak for our roles, not for the machine: they run on the controller.
OUR_WORDS = ("ansible.builtin.assert", "ansible.builtin.fail", "assert", "fail")
COLLECTION = "gpuprep.gpu."
LENDS_TASKS = "gpu_preflight"
# The task that fails where the machine must be restarted and may not (roles/gpu_driver/tasks/restart.yml).
RESTART = "Restart the machine, and wait for it to come back"
RESTART_CHECK = "Check that the machine may be restarted"

LOG_BYTES = 64 << 20
LOG_LINE_LETTERS = 10_000
NAME_LETTERS = 300
MOST_TASKS = 100_000

# A step and how many seconds it took in earlier runs; None where there was none.
ExpectedStep = tuple[str, Optional[float]]


@dataclass(frozen=True)
class Progress:
    """Something to show to the user now.

    kind: "stage" (a stage of the workflow, in detail; task is the probe that it runs, if any), "doing" (what that probe
    is doing, in detail; `done` of `of` pieces have ended, which are called `unit`), "task_start",
    "task_end" (detail is the outcome), "waiting" (detail says for what), "diff" (detail is the text of a change),
    "note", "steps" (all steps of the run in their order are known), "silent" (the host gives no answer since the
    time in detail; "": it answers again).
    """

    kind: str
    role: str
    task: str
    detail: str
    elapsed_seconds: float
    steps: tuple[ExpectedStep, ...] = ()
    done: int = 0
    of: int = 0
    unit: str = ""


class Log:
    """Ansible's output in a file, up to a limit. Written at once, so the output of a killed run is kept too."""

    def __init__(self, path: Path, limit: int = LOG_BYTES) -> None:
        path.touch(mode=0o600)
        self._file = path.open("ab")
        self._left = limit

    def write(self, text: str) -> None:
        """Write, until the limit or the first error: a full disk must not end the run."""
        if self._left <= 0:
            return
        lines = text[: self._left].replace("\r\n", "\n").split("\n")
        shown = [f"{line[:LOG_LINE_LETTERS]} …" if len(line) > LOG_LINE_LETTERS else line for line in lines]
        data = (visible("\n".join(shown)) + "\n").encode()
        if len(data) >= self._left or len(text) > self._left:
            data = data[: self._left] + b"\n(the log ends here: it has reached its limit)\n"
            self._left = 0
        self._left -= len(data)
        try:
            self._file.write(data)
            self._file.flush()
        except OSError:
            self._left = 0

    def close(self) -> None:
        try:
            self._file.close()
        except OSError:  # what was not written on a full disk is tried once more here
            self._left = 0


class Events:
    """Collects the events of one run on one host."""

    def __init__(self, on_event: Callable[[Progress], None], log: Path) -> None:
        self._on_event = on_event
        self._log = Log(log)
        self._began = time.monotonic()
        self._stats: Mapping[str, Any] = {}
        self.tasks: list[TaskResult] = []
        self.failure: TaskFailure | None = None
        self.unreachable = False
        self.unreachable_during = ""
        self.failed_before: TaskFailure | None = None  # the connection was lost while this was being put right
        self.reached_host = False
        self.reboot_needed = False
        self.current = ""
        self._role = ""

    def stat(self, name: str) -> int:
        """A number of Ansible's statistics; counted from the tasks if the run died before Ansible printed them."""
        values = self._stats.get(name)
        if isinstance(values, dict):
            return sum(number for number in values.values() if isinstance(number, int))
        outcome = {"failures": ("failed",), "ok": ("ok", "changed")}.get(name, (name,))
        return sum(task.outcome in outcome for task in self.tasks)

    def handle(self, event: dict[str, Any]) -> bool:
        """ansible-runner's event handler. False: the event is not written to disk, where it would outlive the run."""
        output = event.get("stdout")
        if isinstance(output, str) and (text := ANSI_CODES.sub("", output).strip("\r\n")):
            self._log.write(text)
        kind = str(event.get("event", ""))
        data = _mapping(event.get("event_data"))
        role, task = _names(data)
        role = self._at_work_for(role)
        if kind == "playbook_on_task_start":
            self.current = step_name(role, task)
            self._tell("task_start", role, task, "")
        elif kind in ("runner_retry", "runner_on_async_poll"):
            self._tell("waiting", role, task, waiting_line(_mapping(data.get("res"))))
        elif kind in ("runner_item_on_ok", "runner_item_on_failed"):
            self._diff(role, task, _mapping(data.get("res")))
        elif kind in OUTCOMES:
            self._ended(kind, role, task, data)
        elif kind == "playbook_on_stats":
            self._stats = data
        return False

    def broke(self, why: str) -> None:
        """The run ended because an event could not be read."""
        self.failure = TaskFailure(self.current or "reading what the host answered", why, ())

    def close(self) -> None:
        self._log.close()

    def _at_work_for(self, role: str) -> str:
        """The role that a task works for: other roles use tasks of gpu_preflight (install packages, release holds)."""
        if role == LENDS_TASKS and self._role:
            return self._role
        self._role = "" if role == LENDS_TASKS else role
        return role

    def _ended(self, kind: str, role: str, task: str, data: Mapping[str, Any]) -> None:
        result = _mapping(data.get("res"))
        outcome = OUTCOMES[kind]
        if kind == "runner_on_ok" and result.get("changed"):
            outcome = "changed"
        self.reached_host = True
        ignored = kind == "runner_on_failed" and data.get("ignore_errors")
        if kind == "runner_on_failed" and not ignored:
            ours = data.get("task_action") in OUR_WORDS
            self._failed(role, task, result, ours=ours)
            self.reboot_needed = ours and task == RESTART_CHECK
        if kind == "runner_on_unreachable":
            self.unreachable = True
            self.unreachable_during = step_name(role, task)
            self.failed_before = self.failure
            self.failure = describe_failure(role, task, result, ours=False)
        if len(self.tasks) < MOST_TASKS:
            self.tasks.append(TaskResult(role, task, "ok" if ignored else outcome, seconds(data.get("duration"))))
        if not data.get("event_loop"):  # of a loop each item has shown its own
            self._diff(role, task, result)
        self._tell("task_end", role, task, outcome)

    def _failed(self, role: str, task: str, result: Mapping[str, Any], *, ours: bool) -> None:
        """Message of the last failure (a rescue section fails in plainer words), output of the first failure."""
        before, self.failure = self.failure, describe_failure(role, task, result, ours=ours)
        if before is not None and not self.failure.last_lines and before.step.partition(":")[0] == role:
            self.failure = replace(self.failure, last_lines=before.last_lines)

    def _diff(self, role: str, task: str, result: Mapping[str, Any]) -> None:
        text = diff_text(result.get("diff"))
        if text and result.get("changed"):
            self._tell("diff", role, task, text)

    def _tell(self, kind: str, role: str, task: str, detail: str) -> None:
        self._on_event(Progress(kind, role, task, detail, time.monotonic() - self._began))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _names(data: Mapping[str, Any]) -> tuple[str, str]:
    """Role and task; in a task's name Ansible puts the role first, as `role : task`."""
    role = _name(data.get("role")).removeprefix(COLLECTION)
    task = _name(data.get("name") or data.get("task"))
    return role, task.removeprefix(COLLECTION).removeprefix(f"{role} : ") if role else task


def _name(value: Any) -> str:
    return one_line(value, NAME_LETTERS) if isinstance(value, str) else ""
