"""Runs one program and ends all its processes, however it or its caller ends. Started as a script; stdlib only.

    python -I provisioning/keeper.py CALLER PIDFILE MEMORY PROGRAM [ARGUMENT...]

CALLER is the process id of the caller, PIDFILE the file for the keeper's own, MEMORY a limit in bytes for the data of
each process, which also limits the files it writes (0: no limit of either). It ends with PROGRAM's exit code. When
PROGRAM has ended, on SIGTERM, SIGHUP or SIGINT, and when CALLER is gone, every process that PROGRAM started is ended:
SIGTERM first, SIGKILL after 1.2 s. If CALLER is gone, its private folder (gpuprep-..., with PIDFILE in it) is removed.

Ansible's workers start new sessions, and the masters of ssh's shared connections are daemons, so no process group
contains them all. On Linux the keeper adopts every descendant that loses its parent, so all stay in its tree.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

PROC = Path("/proc")
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
POLITE_SECONDS = 1.2
LAST_SECONDS = 0.8  # after SIGKILL, for one in the middle of a write to be gone
MOST_FILE_BYTES = 1 << 30  # of a file written here: what Ansible fetches from a host is as large as the host likes
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Ended(Exception):
    """A signal told the keeper to end."""


def main(arguments: list[str]) -> int:
    for number in SIGNALS:
        signal.signal(number, _end)
    try:
        try:
            code = _run(arguments)
        finally:
            _ignore()
    except Ended:
        code = 128 + signal.SIGTERM
    end_descendants()
    if os.getppid() != int(arguments[0]):
        _remove(Path(arguments[1]).parent)
    return code


def _remove(private: Path) -> None:
    """What a killed caller cannot remove: inventory, variables and the answers of a host."""
    if private.name.startswith("gpuprep-"):
        import shutil  # here: it takes longer to load than all the rest

        shutil.rmtree(private, ignore_errors=True)


def _run(arguments: list[str]) -> int:
    caller, pid_file, memory, *program = arguments
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
        libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
    Path(pid_file).write_text(str(os.getpid()), encoding="ascii")
    if os.getppid() != int(caller):  # it was gone before its end could be reported
        raise Ended
    if int(memory):
        _limit(resource.RLIMIT_DATA, int(memory))
        _limit(resource.RLIMIT_FSIZE, MOST_FILE_BYTES)
    code = subprocess.Popen(program).wait()
    return code if code >= 0 else 128 - code


def _limit(what: int, wanted: int) -> None:
    _, most = resource.getrlimit(what)
    limit = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(what, (limit, limit))


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    _ignore()  # a second signal must not interrupt the cleanup
    raise Ended


def _ignore() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def end_descendants() -> None:
    """End all descendants, except those that may not be ended: another user's, after `become` on this machine."""
    began = time.monotonic()
    while left := _descendants():
        waited = time.monotonic() - began
        if waited > POLITE_SECONDS + LAST_SECONDS:
            return
        for pid in left:
            _send(pid, signal.SIGTERM if waited < POLITE_SECONDS else signal.SIGKILL)
        _reap(0.1)


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _reap(seconds: float) -> None:
    """Take the exit codes of children that have ended, and wait a little for those that have not."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            time.sleep(0.02)  # waitpid(2) waits without a limit of time, or not at all


def _descendants() -> list[int]:
    """Children of this process, theirs and so on, without zombies."""
    children: dict[int, list[int]] = {}
    for pid, parent, state in _processes():
        if not state.startswith("Z"):
            children.setdefault(parent, []).append(pid)
    pids: list[int] = []
    todo = [os.getpid()]
    while todo:
        mine = children.get(todo.pop(), [])
        todo += mine
        pids += mine
    return pids


def _processes() -> Iterator[tuple[int, int, str]]:
    """(id, parent's id, state) of every process.

    By hand, each in one reading: psutil's children() comes back to each process, and loses the children of one that has
    ended meanwhile.
    """
    if (PROC / "self/stat").exists():
        for folder in PROC.iterdir():
            if folder.name.isdigit():
                try:
                    # The name, in brackets, may hold blanks and brackets of its own.
                    state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
                except (OSError, ValueError):  # gone meanwhile
                    continue
                yield int(folder.name), int(parent), state
        return
    asked = subprocess.Popen(["ps", "-A", "-o", "pid=,ppid=,stat="], stdout=subprocess.PIPE, text=True)
    output, _ = asked.communicate()
    for line in output.splitlines():
        pid, parent, state = line.split()[:3]
        if int(pid) != asked.pid:
            yield int(pid), int(parent), state


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
