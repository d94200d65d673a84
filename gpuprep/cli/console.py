"""What a user sees: progress on stderr, results on stdout or in a file."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, TextIO, cast

import click

from gpuprep.cli.run_command import STOPPING, drop_stdout
from gpuprep.cli.running import clock, no_answer
from gpuprep.errors import UsageError
from gpuprep.reports.failures import Failed, RepeatedErrors
from gpuprep.untrusted.databasefile import is_database
from gpuprep.untrusted.owners import link_of_others
from gpuprep.untrusted.plaintext import one_line, visible

if TYPE_CHECKING:
    from gpuprep.cli.drawing import Display
    from gpuprep.cli.running import Running
    from gpuprep.provisioning.ansible_events import Progress

    Part = tuple[str, str]  # text and how rich shows it on a terminal: "bold", "red"

# A task that changed nothing gets a line only if it took this long.
SLOW_SECONDS = 2.0
# After this time without a line, a log gets one that says what runs: it is never silent for more than 15 s.
SILENT_SECONDS = 12.0
# How often a log shows what a task waits for (compiled 412 of 980 files).
WAITING_SECONDS = 15.0
# How long hosts with the same error are collected before one line names them.
ALIKE_SECONDS = 5.0
MOST_AT_WORK = 3  # hosts in that line
# How often the live display is drawn.
DRAWN_SECONDS = 0.5
NEVER = float("-inf")
OUR_COLORS = re.compile(r"(\x1b\[(?:0|1|3[0-7])m)")  # of reports/terminal.py and click.style
COLORS = {"changed": "yellow", "failed": "red", "unreachable": "red", "ok": "green"}


@dataclass
class _Host:
    """Progress of one host: the task that runs, and what was printed about it."""

    role: str = ""
    heading: str = ""  # the role of the last line: a role that says nothing needs no heading
    task: str = ""
    task_began: float = 0.0
    waiting: str = ""
    announced: float = NEVER  # when the running task had its last line


class Console:
    """Progress of one or several hosts, one whole line at a time. On a terminal a live display below shows what runs
    now (cli/drawing.py).
    """

    def __init__(
        self,
        hosts: Sequence[str],
        *,
        verbose: int,
        quiet: bool,
        no_color: bool,
        stream: TextIO | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream, self._now = stream or sys.stderr, now
        self._verbose, self._quiet, self._several = verbose, quiet, len(hosts) > 1
        self.live = self._stream.isatty() and os.environ.get("TERM") != "dumb" and not quiet
        self.shows_time_left = not quiet  # also the time left of a run
        self._hosts: dict[str, _Host] = {}
        self._began = self._last_output = now()
        self._repeated = RepeatedErrors()
        self._leaving = contextlib.ExitStack()
        self._lock = threading.RLock()
        self._done = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True, name="progress")
        self._broken = False
        self._display: Display | None = None
        self._running: dict[str, Running] = {}
        if self.shows_time_left:
            from gpuprep.cli.running import Running

            self._running = {one_line(host): Running(one_line(host)) for host in hosts}
        if self.live:
            from gpuprep.cli.drawing import Display

            color = want_color(self._stream, no_color)
            self._display = Display(
                cast("IO[str]", _Patient(self._stream, self._write)), color, lambda: [*self._running.values()]
            )

    def __enter__(self) -> Console:
        if self._display:
            self._display.start()
        if not self._quiet:
            self._ticker.start()
        self._leaving.enter_context(STOPPING.tidying(self._take_away))
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        try:
            if self._ticker.is_alive():
                self._ticker.join()
        finally:
            with self._lock:
                self._show_repeated()
            self._take_away()
            self._leaving.close()

    def _take_away(self) -> None:
        """Remove the live display, even if a second Ctrl-C ends the program at once."""
        if self._lock.acquire(timeout=1.0):
            try:
                if self._display:
                    self._display.stop()
            finally:
                self._lock.release()

    def progress(self, host: str, event: Progress) -> None:
        """Show one event of one host. Called from the thread that works on that host."""
        if self._quiet and event.kind != "diff":
            return
        host, event = one_line(host), _plain(event)
        with self._lock:
            if host in self._running:
                self._running[host].take(event, self._now())
            state = self._hosts.setdefault(host, _Host())
            if event.kind in ("stage", "note"):
                self._line(host, (event.detail, ""))
            elif event.kind == "silent":
                self._line(host, (no_answer(event.detail) if event.detail else "it answers again", ""))
            elif event.kind == "task_start":
                state.role, state.task, state.task_began = event.role, event.task, self._now()
                state.waiting, state.announced = "", NEVER
            elif event.kind == "waiting":
                self._waiting(host, state, event.detail)
            elif event.kind == "diff":
                # With several hosts each line begins with its host, so that no host's text can pass for another's.
                mark = f"{host} | " if self._several else ""
                self._show(("\n".join(f"{mark}{line}" for line in event.detail.split("\n")), ""))
            elif event.kind == "task_end":
                self._task_end(host, state, event)

    def ended(self, host: str, exit_code: int, error: str | None = None, run_id: str = "") -> None:
        """Note that the run on one host has ended. With several hosts, print its `error`; equal errors together."""
        with self._lock:
            if one_line(host) in self._running:
                self._running[one_line(host)].end(exit_code, self._now())
            if not error or self._quiet or not self._several:
                return
            words = self._repeated.first(Failed(one_line(host), error, run_id), self._now())
            if words:
                self._line(one_line(host), (words, COLORS["failed"]))

    def say(self, text: str) -> None:
        """Print a line that is not the progress of a host; also with --quiet."""
        with self._lock:
            self._show((visible(text), ""))

    def _task_line(self, host: str, state: _Host, *parts: Part) -> None:
        """Print a line about a task, under the heading of its role."""
        if state.role and state.role != state.heading:
            state.heading = state.role
            self._line(host, (state.role.removeprefix("gpu_"), "bold"))
        self._line(host, ("  ", ""), *parts)

    def _waiting(self, host: str, state: _Host, detail: str) -> None:
        if detail == state.waiting:
            return
        first, state.waiting = not state.waiting, detail
        now = self._now()
        if not self.live and (first or now - state.announced >= WAITING_SECONDS):
            self._task_line(host, state, (f"{state.task}: {detail}", ""))
            state.announced = now

    def _task_end(self, host: str, state: _Host, event: Progress) -> None:
        took = self._now() - state.task_began if state.task else 0.0
        notable = event.detail in ("changed", "failed", "unreachable") or took >= SLOW_SECONDS
        if (notable and event.detail != "skipped") or self._verbose:
            lasted = f" ({clock(took)})" if took >= SLOW_SECONDS else ""
            word = (event.detail, COLORS.get(event.detail, ""))
            self._task_line(host, state, (f"{event.task}: ", ""), word, (lasted, ""))
        state.task = ""

    def _tick(self) -> None:
        while not self._done.wait(DRAWN_SECONDS):
            self.tick()

    def tick(self) -> None:
        """Print what is due at this moment, even if no event came from the hosts. Called every DRAWN_SECONDS."""
        with self._lock:
            if self._now() - self._repeated.since >= ALIKE_SECONDS:
                self._show_repeated()
            if self._display:
                self._display.refresh()
                return
            self._announce()
            if self._now() - self._last_output >= SILENT_SECONDS:
                self._still()

    def _announce(self) -> None:
        """Without a live display: print one line for each task that has run for SLOW_SECONDS."""
        now = self._now()
        for host, state in self._hosts.items():
            if state.task and now - state.task_began >= SLOW_SECONDS and state.announced == NEVER:
                self._task_line(host, state, (f"{state.task} ...", ""))
                state.announced = now

    def _still(self) -> None:
        """Print what runs, since when, and the estimated time left; several hosts share one line."""
        from gpuprep.cli.running import counted

        now = self._now()
        hosts = [*self._running.values()]
        at_work = [host for host in hosts if host.at_work]
        if not self._several:
            words = "; ".join(host.line(now) for host in at_work) or "writing down what was found"
            self._stamped("  ", words)
            return
        shown = [f"{host.host}: {host.line(now)}" for host in at_work[:MOST_AT_WORK]]
        more = [f"and {len(at_work) - len(shown)} more at work"] if len(at_work) > len(shown) else []
        self._stamped("; ".join([counted(hosts), *shown, *more]))

    def _show_repeated(self) -> None:
        for words in self._repeated.others():
            self._show((self._stamp(), ""), (words, COLORS["failed"]))

    def _line(self, host: str, *parts: Part) -> None:
        prefix = f"{host} | " if self._several else ""
        self._show((f"{self._stamp()}{prefix}", ""), *parts)

    def _stamped(self, *words: str) -> None:
        self._show((self._stamp(), ""), ("".join(words), ""))

    def _stamp(self) -> str:
        return f"{clock(self._now() - self._began):>6} "

    def _show(self, *parts: Part) -> None:
        self._last_output = self._now()
        if self._display:
            self._display.line(parts)
        else:
            self._write("".join(text for text, _ in parts) + "\n")

    def _write(self, text: str) -> None:
        """Write to stderr. If its reader has gone (`2>&1 | head`), the work on the hosts goes on without output."""
        if self._broken:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._broken = True


class _Patient:
    """A stream for rich that never fails: rich itself would end the program if the reader of stderr has gone."""

    def __init__(self, stream: TextIO, write: Callable[[str], None]) -> None:
        self.encoding, self.write = stream.encoding, write

    def flush(self) -> None:
        """Each write is flushed."""


def want_color(stream: TextIO, no_color: bool) -> bool:
    """https://no-color.org: any non-empty NO_COLOR turns colour off."""
    return stream.isatty() and not no_color and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def page_width() -> int:
    """Columns for a report: those of the terminal, at most 120; 80 without a terminal."""
    return min(shutil.get_terminal_size((80, 24)).columns, 120) if sys.stdout.isatty() else 80


def table_columns(output: Path | None) -> int | None:
    """Columns of the terminal for a list; None if the list goes to a file, a pipe or a dumb terminal."""
    if output is not None or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return None
    return max(40, shutil.get_terminal_size().columns)


def check_output(path: Path | None) -> None:
    """Raise UsageError if --output cannot be written: before hours of work, not after."""
    if path is None:
        return
    refuse_link(path)
    if path.is_file():
        _refuse_others(path, path.stat(), path.resolve().parent)
    if path.is_dir():
        raise UsageError(f"--output {path}: this is a folder", "name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"--output {path}: there is no folder {path.parent}", "make it, or name another file")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"--output {path}: you may not write there", "name another file")
    if path.is_file() and (what := _needed(path)):
        raise UsageError(f"--output {path}: {what}, and the result would replace it", "name another file")


def refuse_link(path: Path) -> None:
    """Raises UsageError where another user's link leads --output to a file or folder that he chose."""
    if weak := link_of_others(path):
        raise UsageError(f"--output {path}: {weak.why}, and may lead anywhere", "name another file")


def open_output(path: Path) -> IO[bytes]:
    """Open the file of --output, empty. Raises OSError, and UsageError where another user could have put it there.

    As Linux does in folders like /tmp with fs.protected_symlinks, protected_regular and protected_hardlinks, which
    containers and some systems have off.
    """
    refuse_link(path)
    if path.exists() and not path.is_file():  # a pipe, a terminal
        return path.open("wb")
    real = path.resolve()  # one's own links
    descriptor = os.open(real, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        _refuse_others(path, os.fstat(descriptor), real.parent)
    except UsageError:
        os.close(descriptor)
        raise
    os.ftruncate(descriptor, 0)
    return open(descriptor, "wb")


def _refuse_others(path: Path, made: os.stat_result, folder: Path) -> None:
    """Raises UsageError for a file that another user may have put into a folder where others write."""
    ours, around = (0, os.geteuid()), folder.stat()
    if (around.st_mode & stat.S_IWOTH or around.st_uid not in ours) and (made.st_uid not in ours or made.st_nlink > 1):
        what = "another user may have made this file, in a folder where others write"
        raise UsageError(f"--output {path}: {what}", "name another file")


def _needed(path: Path) -> str:
    """Why a result must not replace an existing file ("this is a database"); "" if it may."""
    with contextlib.suppress(OSError):  # the file may be writable but not readable
        if is_database(path):
            return "this is a database"
    typed = click.get_current_context(silent=True)
    given = [value for name, value in (typed.params if typed else {}).items() if name != "output"]
    for value in (
        part for argument in given for part in (argument if isinstance(argument, (tuple, list)) else [argument])
    ):
        with contextlib.suppress(OSError, ValueError):  # most words are no files
            if isinstance(value, (str, Path)) and path.samefile(value):
                return "this is a file that the command reads"
    return ""


def emit(text: str, output: Path | None, *, markup: bool = False) -> None:
    """Write the result to the file of --output or to stdout. Raises UsageError if the file cannot be written.

    Characters that move the cursor or change the writing direction are escaped; our own colours stay. `markup`: `text`
    is an HTML page, which has its own escapes and may contain invisible characters.
    """
    text = text if text.endswith("\n") else text + "\n"
    emit_as_it_is(text if markup else for_terminal(text), output)


def emit_as_it_is(made: str | bytes, output: Path | None) -> None:
    """To the file of --output or to stdout. Raises UsageError where the file cannot be written."""
    if output is None:
        try:
            click.echo(made, nl=False)
        except BrokenPipeError:  # `| head`: the exit code is still the run's
            drop_stdout()
        return
    try:
        with open_output(output) as file:
            file.write(made.encode() if isinstance(made, str) else made)
    except OSError as error:
        raise unwritable(output, error) from error


def unwritable(output: Path, error: OSError) -> UsageError:
    """The error to raise where the file of --output cannot be written."""
    why = error.strerror or error
    return UsageError(f"--output {output}: cannot be written: {why}", "name another file")


def for_terminal(text: str) -> str:
    """`text` with all unsafe characters escaped, except the colours of our own pages."""
    parts = OUR_COLORS.split(text)  # text, colour, text, colour, ..., text
    return "".join(part if place % 2 else visible(part) for place, part in enumerate(parts))


def _plain(event: Progress) -> Progress:
    """The event with its texts safe to show: each on one line, except a diff."""
    detail = visible(event.detail.replace("\r\n", "\n")) if event.kind == "diff" else one_line(event.detail)
    return dataclasses.replace(event, role=one_line(event.role), task=one_line(event.task), detail=detail)


# ---------------------------------------------------------------- a command that works on this computer


class Steps:
    """Call it at each step. `count` reports progress within a step: 412 of 980 "files compiled"."""

    def __init__(self, what: str, console: Console) -> None:
        self._what, self._console = what, console

    def __call__(self, step: str) -> None:
        self._tell("stage", step)

    def count(self, unit: str, done: int, of: int) -> None:
        self._tell("doing", "", unit, done, of)

    def _tell(self, kind: str, detail: str, unit: str = "", done: int = 0, of: int = 0) -> None:
        from gpuprep.provisioning.ansible_events import Progress

        self._console.progress(self._what, Progress(kind, "", kind, detail, 0.0, unit=unit, done=done, of=of))


@contextlib.contextmanager
def steps(what: str, *, quiet: bool) -> Iterator[Steps]:
    """`what` is the command: "sim up t4"."""
    with Console([what], verbose=0, quiet=quiet, no_color=False) as console:
        yield Steps(what, console)
