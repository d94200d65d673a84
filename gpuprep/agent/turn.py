"""Probes take turns on a host, so that no probe disturbs the measurement of another probe.

ALONE    no other probe of gpuprep measures at the same time
SHARED   other SHARED probes may measure at the same time, but no ALONE probe

A turn is a flock(2) on a file, so the kernel ends it with its process. Probes of a second controller wait in the same
way. The file lists the processes that had a turn, because such a process stays on the GPU until it has ended. While a
probe waits, it may get ready: load libraries, compile, read versions.
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

from gpuprep.agent import host_paths, inuse
from gpuprep.agent.programs import owncache

ALONE, SHARED = "alone", "shared"
# Progress events when a turn starts: the next probe may get ready. In a shared turn other SHARED probes may start, too;
# a machine with fewer than LEAST_CORES never reports one.
TURN_STARTED, SHARED_TURN_STARTED = "turn-started", "shared-turn-started"
# With fewer cores, preparing the next probe would slow the running measurement.
LEAST_CORES = 4
FAREWELL_SECONDS = 5.0
LOOK_SECONDS = 0.05
MOST_BYTES = 4096


def has_room() -> bool:
    """Whether this machine has enough CPU cores for work beside a measurement."""
    return (os.cpu_count() or 1) >= LEAST_CORES


@contextlib.contextmanager
def taken(kind: str) -> Iterator[bool]:
    """Wait for the turn; the caller limits the time. Yields whether the turn is shared.

    Without enough cores no turn is shared. Raises OSError if the file cannot be used.
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
                _wait_until_gone(inuse.noted(_newest(descriptor)))
                os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()} {inuse.start(str(os.getpid()))}\n".encode())
            yield shared
        finally:
            # A copy of this process (worker.py) that cannot be ended would otherwise keep the turn.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def running() -> List[int]:
    """Ids of gpuprep's own programs that are on the GPU: those that have a turn, or had one and still run."""
    try:
        descriptor = os.open(str(_place()), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return []
    try:
        return inuse.noted(_newest(descriptor))
    finally:
        os.close(descriptor)


def _newest(descriptor: int) -> bytes:
    return os.pread(descriptor, MOST_BYTES, max(0, os.fstat(descriptor).st_size - MOST_BYTES))


def _wait_until_gone(pids: List[int]) -> None:
    """Wait until these processes have ended, at most FAREWELL_SECONDS for all: one may hang in the kernel."""
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
    """Poll a process, on a kernel before 5.3 without pidfd. Raises ProcessLookupError when it has ended."""
    while time.monotonic() < until:
        os.kill(pid, 0)
        time.sleep(LOOK_SECONDS)


def _place() -> Path:
    return Path(host_paths.TURN) if os.geteuid() == 0 else owncache.folder() / "turn"
