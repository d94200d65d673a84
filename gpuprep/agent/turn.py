"""Probes take turns on a host, so that no probe disturbs the measurement of another probe.

ALONE    nothing else of gpuprep measures meanwhile
SHARED   beside others that share, and beside none that is alone

flock(2) on a file: the kernel ends a turn with its process. A second controller's probes wait for theirs in the same
way. The file names the processes whose turn it was: one that has measured is on the GPU until it has ended. While it
waits, a probe may get ready: load libraries, compile, ask for versions.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import time
from pathlib import Path
from typing import Iterator, List

from gpuprep.agent import host_paths
from gpuprep.agent.programs import owncache

ALONE, SHARED = "alone", "shared"
# Told when a turn begins. Whoever hears it knows that the next probe may get ready. BESIDE: others that share begin at
# once, too; a machine without cores enough never says so.
BEGUN, BESIDE = "it is its turn", "it is its turn, beside others"
# Below this, getting ready beside a measurement would take the processor that starts the measurement's work.
LEAST_CORES = 4
FAREWELL_SECONDS = 5.0
LOOK_SECONDS = 0.05
MOST_BYTES = 4096


def has_room() -> bool:
    """Whether this machine has cores enough for work beside a measurement."""
    return (os.cpu_count() or 1) >= LEAST_CORES


@contextlib.contextmanager
def taken(kind: str) -> Iterator[bool]:
    """Waits for the turn, for as long as it takes: the caller has a time limit. Gives whether it is shared.

    Without cores enough nothing is shared. Raises OSError without a file.
    """
    place = _place()
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(
        str(place), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600
    )
    try:
        shared = kind == SHARED and has_room()
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        try:
            if not shared:
                _wait_until_gone(_noted(descriptor))
                os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()} {_began(str(os.getpid()))}\n".encode())
            yield shared
        finally:
            # A copy of this process (worker.py) that cannot be ended would otherwise keep the turn.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _noted(descriptor: int) -> List[int]:
    """The other processes of the file that still run, and none that has only got the number of one."""
    pids = []
    newest = max(0, os.fstat(descriptor).st_size - MOST_BYTES)
    for line in os.pread(descriptor, MOST_BYTES, newest).split(b"\n"):
        number, _, began = line.decode("ascii", errors="replace").partition(" ")
        if number.isdigit() and int(number) != os.getpid() and began and began == _began(number):
            pids.append(int(number))
    return pids


def _began(pid: str) -> str:
    """When a process began, in the kernel's ticks; "": there is none.

    By hand: an agent that is sent along has no psutil, and psutil's create_time() follows the computer's clock.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _wait_until_gone(pids: List[int]) -> None:
    """FAREWELL_SECONDS at most for all: the kernel may hold one for ever."""
    until = time.monotonic() + FAREWELL_SECONDS
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            try:
                handle = os.pidfd_open(pid)
            except OSError as error:
                if error.errno != errno.ENOSYS:
                    raise
                _look_until_gone(pid, until)
                continue
            try:
                select.select([handle], [], [], max(0.0, until - time.monotonic()))
            finally:
                os.close(handle)


def _look_until_gone(pid: int, until: float) -> None:
    """For a kernel before 5.3, where a process cannot be waited for. Raises ProcessLookupError when it is gone."""
    while time.monotonic() < until:
        os.kill(pid, 0)
        time.sleep(LOOK_SECONDS)


def _place() -> Path:
    return Path(host_paths.TURN) if os.geteuid() == 0 else owncache.folder() / "turn"
