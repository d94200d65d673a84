"""How is a profile of a program recorded?

record(("python", "train.py"), Wish(folder=...))     under PyTorch's profiler, by inside/sitecustomize.py
record_with_nsys(...)                                 under `nsys profile`

The program is not changed, and its output, signals and exit code are its own. Its environment is never written down.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuprep.errors import UsageError
from gpuprep.records import RunRecord, to_json_value
from gpuprep.untrusted.limits import file_text, json_document
from gpuprep.untrusted.plaintext import one_line

# Signals that are passed on. A terminal sends Ctrl-C to the program itself, too: it is not sent twice.
PASSED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
FROM_KERNEL = 0x80  # si_code SI_KERNEL: a terminal sent it to all of its foreground processes


def run_program(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """The program's exit code; 128 and the signal's number where a signal ended it. Raises UsageError."""
    waited = {*PASSED, signal.SIGCHLD}
    # Signals are waited for, not handled: a signal before the program's start is not lost.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    try:
        try:
            child = subprocess.Popen(
                list(words),
                env=dict(environment),
                preexec_fn=lambda: _as_a_shell_would(before),
            )
        except OSError as error:
            raise UsageError(
                f"{words[0]} cannot be started: {error.strerror}", "give a program as in a shell"
            ) from error
        while child.poll() is None:
            _wait(child, waited)
    finally:
        _forget(waited)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _as_a_shell_would(mask: set[int]) -> None:
    """In the child, before the program: no signal is blocked or handled as in gpuprep."""
    for number in PASSED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _wait(child: subprocess.Popen[bytes], waited: set[signal.Signals]) -> None:
    received = signal.sigtimedwait(waited, 1.0)
    if received is None or received.si_signo == signal.SIGCHLD:
        return
    if received.si_code == FROM_KERNEL and _in_our_group(child):
        return
    child.send_signal(received.si_signo)


def _in_our_group(child: subprocess.Popen[bytes]) -> bool:
    try:
        return os.getpgid(child.pid) == os.getpgrp()
    except ProcessLookupError:
        return False


def _forget(waited: set[signal.Signals]) -> None:
    """Signals that came while the program ended were for it."""
    while signal.sigpending() & waited and signal.sigtimedwait(waited, 0) is not None:
        pass


INSIDE = Path(__file__).parent / "inside"
SETTING = "GPUPREP_TRACE_RECORD"
SIDECAR = ".gpuprep.json"  # opening/machine.py reads it
MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Wish:
    folder: Path  # where traces go
    wait: int = 3  # steps that are left alone, after the first
    warmup: int = 2  # steps with the profiler on, whose events are thrown away
    active: int = 5  # steps that are recorded
    steps_from: str = "optimizer"  # "forward", "none", "module:function"
    shapes: bool = True
    stacks: bool = False
    memory: bool = False

    @property
    def steps(self) -> int:
        """The number of steps that the program must run, including the first one, before the profiler starts."""
        return 1 + self.wait + self.warmup + self.active


@dataclass(frozen=True)
class Recorded:
    exit_code: int  # of the program
    traces: tuple[Path, ...]
    why_none: str = ""


def record(words: Sequence[str], wish: Wish) -> Recorded:
    """Run the program to its end. Raises UsageError where it cannot be started."""
    with tempfile.TemporaryDirectory(prefix="gpuprep-trace-") as folder:
        environment = dict(os.environ)
        folders = [str(INSIDE), *filter(None, [environment.get("PYTHONPATH", "")])]
        environment["PYTHONPATH"] = os.pathsep.join(folders)
        environment[SETTING] = json.dumps(_setting(words, wish, folder))
        code = run_program(words, environment)
        notes = list(map(_notes, sorted(Path(folder).glob("*.json"))))
    traces = tuple(Path(path) for note in notes for path in note.get("traces", ()))
    return Recorded(code, traces, "" if traces else _why(notes, wish))


def put_record(trace: Path, record: RunRecord) -> None:
    """Put the record of the machine beside a trace, to what was noted there while it was recorded."""
    beside = trace.with_name(f"{trace.name}{SIDECAR}")
    noted = _notes(beside) if beside.exists() else {"schema_version": 1, "machine": {}}
    private = json.dumps({**noted, "record": to_json_value(record)}, allow_nan=False)
    beside.write_text(private, encoding="utf-8")


def _setting(words: Sequence[str], wish: Wish, folder: str) -> dict[str, Any]:
    return {
        "folder": str(wish.folder.resolve()),
        "told": folder,
        "name": name_of(words),
        "wait": wish.wait,
        "warmup": wish.warmup,
        "active": wish.active,
        "steps_from": wish.steps_from,
        "shapes": wish.shapes,
        "stacks": wish.stacks,
        "memory": wish.memory,
    }


def name_of(words: Sequence[str]) -> str:
    """Of the program: "train" of `python train.py`."""
    scripts = [Path(word).stem for word in words if word.endswith(".py")]
    name = scripts[0] if scripts else Path(words[0]).stem
    return "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name)[:60] or "program"


def _notes(path: Path) -> dict[str, Any]:
    try:
        notes = json_document(file_text(path, MOST_BYTES))
    except (OSError, ValueError):
        return {}
    return notes if isinstance(notes, dict) else {}


def _why(notes: Sequence[dict[str, Any]], wish: Wish) -> str:
    """Why there is no trace, in one sentence."""
    errors = [str(note["error"]) for note in notes if note.get("error")]
    if errors:
        return f"PyTorch's profiler failed: {one_line(errors[0], 300)}"
    with_torch = [note for note in notes if note.get("torch")]
    if not with_torch:
        return "no Python of the program imported torch (or it ran with -I, -E or -S, which hides gpuprep from it)"
    steps = max((int(note.get("steps") or 0) for note in with_torch), default=0)
    if not steps:
        return "no step ended: nothing called an optimizer's step (--steps-from says what else is a step)"
    return f"it ended after {steps} steps, before the recording began (--wait, --warmup; now {wish.steps} are needed)"


EXPORT_SECONDS = 3600


def record_with_nsys(words: Sequence[str], wish: Wish) -> Recorded:
    """Run the program to its end, then export the report. Raises UsageError where nsys is not installed."""
    nsys = shutil.which("nsys")
    if nsys is None:
        raise UsageError("nsys is not installed", "install Nsight Systems, or leave --with nsys out")
    name = name_of(words)
    report, export = wish.folder / f"{name}.nsys-rep", wish.folder / f"{name}.nsys.sqlite"
    code = run_program(
        [nsys, "profile", "--trace=cuda,nvtx", "--cuda-graph-trace=node", "--pytorch=autograd-shapes-nvtx",
         "--force-overwrite=true", f"--output={report}", "--", *words],
        os.environ,
    )  # fmt: skip
    if not report.is_file():
        return Recorded(code, (), "nsys wrote no report: see its messages above")
    made = subprocess.run(
        [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={export}", str(report)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=EXPORT_SECONDS, check=False,
    )  # fmt: skip
    if made.returncode or not export.is_file():
        message = one_line((made.stderr or made.stdout).strip(), 300)
        return Recorded(code, (), f"nsys export failed: {message}")
    without_environment(export)
    report.unlink()  # it contains the environment, which cannot be removed
    return Recorded(code, (export,))


def without_environment(export: Path) -> None:
    """nsys writes the whole environment into its report. Raises UsageError where it cannot be taken out."""
    connection = sqlite3.connect(export, isolation_level=None)
    try:
        columns = {row[1] for row in connection.execute("PRAGMA table_info(TARGET_INFO_SYSTEM_ENV)")}
        named = [
            f"{column} LIKE '%Environment%'" for column in ("name", "nameEnum", "devStateName") if column in columns
        ]
        if named:
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute(f"DELETE FROM TARGET_INFO_SYSTEM_ENV WHERE {' OR '.join(named)}")
            connection.execute("VACUUM")
    except sqlite3.Error as error:
        export.unlink(missing_ok=True)
        raise UsageError(f"{export.name}: the recorded environment cannot be taken out: {error}") from error
    finally:
        connection.close()
