"""What a user sees: progress on stderr, results on stdout or in a file."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from gpuprep.cli.edge import drop_stdout
from gpuprep.errors import UsageError
from gpuprep.untrusted.plaintext import one_line, visible

if TYPE_CHECKING:
    from gpuprep.provisioning.ansible_events import Progress

# A task that changes nothing is worth a line only when it took this long.
SLOW_SECONDS = 2.0
# How often a log shows that a long task is still at work.
STILL_SECONDS = 60.0
# And how often what a task waits for (compiled 412 of 980 files).
WAITING_SECONDS = 15.0
NEVER = float("-inf")
OUR_COLORS = re.compile(r"(\x1b\[(?:0|1|3[0-7])m)")  # of reports/text.py and click.style
COLORS = {"changed": "yellow", "failed": "red", "unreachable": "red", "ok": "green"}


@dataclass
class _Host:
    """What is going on at one host."""

    role: str = ""
    heading: str = ""  # the role of the last line: a role that says nothing needs no heading
    task: str = ""
    task_began: float = 0.0
    waiting: str = ""
    announced: float = NEVER  # when the running task had its last line


class Console:
    """Progress of one or several hosts, one whole line at a time. On a terminal the last line shows what runs now."""

    def __init__(
        self, *, verbose: int, quiet: bool, no_color: bool, several: bool, stream: TextIO | None = None
    ) -> None:
        self._stream = stream or sys.stderr
        self._verbose, self._quiet, self._several = verbose, quiet, several
        self._live = self._stream.isatty() and os.environ.get("TERM") != "dumb" and not quiet
        self._color = want_color(self._stream, no_color)
        self._hosts: dict[str, _Host] = {}
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True, name="progress")
        self._broken = False

    def __enter__(self) -> Console:
        if not self._quiet:
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._ticker.is_alive():
            self._ticker.join()
        with self._lock:
            self._clear()

    def progress(self, host: str, event: Progress) -> None:
        """Show one event of one host. Called from the thread that works on that host."""
        if self._quiet and event.kind != "diff":
            return
        host, event = one_line(host), _plain(event)
        with self._lock:
            state = self._hosts.setdefault(host, _Host())
            if event.kind in ("stage", "note"):
                self._line(host, event.detail)
            elif event.kind == "task_start":
                state.role, state.task, state.task_began = event.role, event.task, time.monotonic()
                state.waiting, state.announced = "", NEVER
            elif event.kind == "waiting":
                self._waiting(host, state, event.detail)
            elif event.kind == "diff":
                self._clear()
                # Of several hosts each line says whose it is: none of them can be of another.
                mark = f"{host} | " if self._several else ""
                self._write("".join(f"{mark}{line}\n" for line in event.detail.split("\n")))
            elif event.kind == "task_end":
                self._task_end(host, state, event)

    def say(self, text: str) -> None:
        """A line that is no progress of a host; shown with --quiet too."""
        with self._lock:
            self._clear()
            self._write(f"{visible(text)}\n")

    def _task_line(self, host: str, state: _Host, text: str) -> None:
        """A line of a task, under the heading of its role."""
        if state.role and state.role != state.heading:
            state.heading = state.role
            name = state.role.removeprefix("gpu_")
            self._line(host, click.style(name, bold=True) if self._color else name)
        self._line(host, f"  {text}")

    def _waiting(self, host: str, state: _Host, detail: str) -> None:
        if detail == state.waiting:
            return
        first, state.waiting = not state.waiting, detail
        now = time.monotonic()
        if not self._live and (first or now - state.announced >= WAITING_SECONDS):
            self._task_line(host, state, f"{state.task}: {detail}")
            state.announced = now

    def _task_end(self, host: str, state: _Host, event: Progress) -> None:
        took = time.monotonic() - state.task_began if state.task else 0.0
        notable = event.detail in ("changed", "failed", "unreachable") or took >= SLOW_SECONDS
        if (notable and event.detail != "skipped") or self._verbose:
            word = event.detail
            if self._color and word in COLORS:
                word = click.style(word, fg=COLORS[word])
            lasted = f" ({_clock(took)})" if took >= SLOW_SECONDS else ""
            self._task_line(host, state, f"{event.task}: {word}{lasted}")
        state.task = ""

    def _tick(self) -> None:
        while not self._done.wait(1.0):
            with self._lock:
                if self._live:
                    self._redraw()
                else:
                    self._announce()

    def _announce(self) -> None:
        """Without a terminal to redraw: a task that takes its time gets a line once it does, and one a minute."""
        now = time.monotonic()
        for host, state in self._hosts.items():
            took = now - state.task_began
            if not state.task or took < SLOW_SECONDS or now - state.announced < STILL_SECONDS:
                continue
            self._task_line(
                host, state, f"{state.task} ..." + (f" ({_clock(took)})" if state.announced > NEVER else "")
            )
            state.announced = now

    def _redraw(self) -> None:
        running = [(host, state) for host, state in self._hosts.items() if state.task]
        if not running:
            return
        parts = []
        for host, state in running:
            what = f"{state.task} {_clock(time.monotonic() - state.task_began)}"
            what += f": {state.waiting}" if state.waiting else ""
            parts.append(f"{host}: {what}" if self._several else what)
        text = f"{_clock(time.monotonic() - self._began)} > " + " | ".join(parts)
        self._write("\r\x1b[K" + text[: shutil.get_terminal_size().columns - 1])

    def _line(self, host: str, text: str) -> None:
        self._clear()
        prefix = f"{host} | " if self._several else ""
        self._write(f"{_clock(time.monotonic() - self._began):>6} {prefix}{text}\n")

    def _clear(self) -> None:
        if self._live:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        """A reader of stderr that went away (`2>&1 | head`) must not stop the work on the hosts."""
        if self._broken:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (BrokenPipeError, ValueError):
            self._broken = True


def want_color(stream: TextIO, no_color: bool) -> bool:
    """https://no-color.org: any non-empty NO_COLOR turns colour off."""
    return stream.isatty() and not no_color and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def page_width() -> int:
    """Columns for a report: those of the terminal, at most 100; 80 where there is none."""
    return min(shutil.get_terminal_size((80, 24)).columns, 100) if sys.stdout.isatty() else 80


def check_output(path: Path | None) -> None:
    """Find out that --output cannot be written before hours of work, not after. Raises UsageError."""
    if path is None:
        return
    if not path.parent.is_dir():
        raise UsageError(f"--output {path}: there is no folder {path.parent}", "make it, or name another file")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"--output {path}: may not be written", "name another file")


def emit(text: str, output: Path | None, *, markup: bool = False) -> None:
    """The result, to the file of --output or to stdout. Raises UsageError where the file cannot be written.

    Nothing that moves a cursor or turns a line goes out, whoever wrote it; our own colours do. `markup`: a page of
    HTML, whose own escapes do the same and whose own characters may be invisible.
    """
    text = text if text.endswith("\n") else text + "\n"
    text = text if markup else for_terminal(text)
    if output is None:
        try:
            click.echo(text, nl=False)
        except BrokenPipeError:  # `| head`: the exit code is still the run's
            drop_stdout()
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output {output}: cannot be written: {error}", "name another file") from error


def for_terminal(text: str) -> str:
    """`text` with all unsafe characters as escapes but the colours that our own pages use."""
    parts = OUR_COLORS.split(text)  # text, colour, text, colour, ..., text
    return "".join(part if place % 2 else visible(part) for place, part in enumerate(parts))


def _plain(event: Progress) -> Progress:
    """What hosts and their modules said, safe to show: on one line, but for a diff."""
    detail = visible(event.detail.replace("\r\n", "\n")) if event.kind == "diff" else one_line(event.detail)
    return dataclasses.replace(event, role=one_line(event.role), task=one_line(event.task), detail=detail)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"
