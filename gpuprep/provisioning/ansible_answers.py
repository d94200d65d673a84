"""The result of an Ansible task as text to show. Pure.

A result comes from the machine: any key may hold anything, of any size. No function here raises because of that. Each
text is short, and its unsafe characters are escaped (plaintext).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuprep.untrusted.plaintext import one_line, visible

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
    shown = " ".join(map(_text, command[:100])) if isinstance(command, list) else _text(command)
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
        text += " … (too deep or too odd to show)"
    return text
