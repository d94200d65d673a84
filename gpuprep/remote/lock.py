"""One run at a time on a host: flock(2) on a file there, held by a process that lives as long as this controller.

The kernel drops the lock when that process ends, and it ends when its input does: at release, when the controller is
killed in any way, or when the network is gone for HEARTBEAT_LIMIT seconds. So there is no stale lock to clear.
A reboot of the host drops it too; a thread takes it again when the host is back.
A run that did not release it may have left processes behind a connection whose end the host never hears of: the next
owner ends them first (lockprogram.py).

No other user of the host can hold it, replace it or prevent it, because only root may enter its folder
(lockprogram.py).
"""

from __future__ import annotations

import contextlib
import functools
import importlib.resources
import json
import re
import shlex
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import PurePosixPath
from types import TracebackType
from typing import Any

from gpuprep.agent.host_paths import LOCK
from gpuprep.errors import GpuprepError, HostError, HostLocked
from gpuprep.remote.connection import Process
from gpuprep.remote.limits import FAREWELL_SECONDS, NAME_LETTERS, TOLD_LETTERS
from gpuprep.remote.lockprogram import RELEASED
from gpuprep.remote.types import LockOwner
from gpuprep.untrusted.plaintext import one_line

HEARTBEAT_SECONDS = 15.0
HEARTBEAT_LIMIT = 90
ANSWER_TIMEOUT = 30.0
RETRY_SECONDS = 2.0
NO_PYTHON, OLD_PYTHON = "python", "old"
# What to do on a host without a python3 that Ansible runs with. Red Hat's 8 has 3.6 under that name, or none.
NEWER_PYTHON = (
    "on Red Hat's 8: `sudo dnf install python3.12`, then `sudo alternatives --set python3 /usr/bin/python3.12`"
)
INSTALL_PYTHON = f"install it there (`sudo apt-get install python3` or `sudo dnf install python3`; {NEWER_PYTHON})"


class HostLock:
    """Context manager. `lost` is set when another run took the lock while this host was rebooting.

    `silent` is told, in a thread, the time since which the host answers no heartbeat, and "" when it answers again.
    """

    def __init__(
        self,
        where: str,
        owner: LockOwner | None,
        start: Callable[[str], Process],
        *,
        lock_file: str = LOCK,
        silent: Callable[[str], None] | None = None,
    ) -> None:
        self.lost: HostLocked | None = None
        self._silent, self._heard, self._is_silent = silent, "", False
        self._where = where
        self._start = start
        self._file = lock_file
        self._command = command(owner, lock_file)
        self._stop = threading.Event()
        self._process: Process | None = None
        self._input = threading.Lock()  # not closed during a heartbeat: its number may be reused
        self._keeper = threading.Thread(target=self._keep, name=f"lock of {where}", daemon=True)

    def __enter__(self) -> HostLock:
        self._process = self._acquire()
        self._heard = time.strftime("%H:%M:%S")
        self._keeper.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        process = self._process
        if process is not None:
            with self._input, contextlib.suppress(HostError):
                process.send(RELEASED)
            self._keeper.join(timeout=FAREWELL_SECONDS)  # it reads, until that process ends
            with self._input:
                process.close()
        self._keeper.join(timeout=ANSWER_TIMEOUT)

    def _acquire(self) -> Process:
        return self._asked()[0]

    def _asked(self) -> tuple[Process, str]:
        """The process that holds the lock, or that only looked; and what it says beside its result."""
        process = self._start(self._command)
        try:
            word, _, rest = process.read_line(ANSWER_TIMEOUT).decode(errors="backslashreplace").partition(" ")
            if word in ("held", "free"):
                return process, rest
            raise self._held_by(rest) if word == "busy" else self._refused(word, rest, process)
        except BaseException:
            process.close()
            raise

    def look(self, since: float = 0.0) -> None:
        """Raises HostLocked if somebody has the lock, or had it less than `since` seconds ago.

        Made without an owner, it changes nothing.
        """
        process, rest = self._asked()
        process.close()
        if re.fullmatch(r"[0-9]{1,9}\.[0-9]{3}", rest.strip()) and float(rest) < since:
            raise HostLocked(
                f"{self._where} was in use by another run until {float(rest):.0f} s ago, while this one looked at it",
                "run the same command again",
                where=self._where,
            )

    def _refused(self, word: str, rest: str, process: Process) -> HostError:
        folder = PurePosixPath(self._file).parent
        if word == NO_PYTHON:
            return HostError(
                f"cannot lock {self._where}: there is no python3",
                f"{INSTALL_PYTHON}, then run again",
                where=self._where,
            )
        if word == OLD_PYTHON:
            return HostError(
                f"cannot lock {self._where}: python3 there is {one_line(rest, 20)}, and gpuprep needs 3.9 or newer",
                f"install a newer one ({NEWER_PYTHON}), then run again",
                where=self._where,
            )
        if word == "refused":
            return HostError(
                f"cannot lock {self._where}: {one_line(rest, TOLD_LETTERS)}",
                f"look at {folder} there; it and its file must be root's alone",
                where=self._where,
            )
        message = (process.read_error().strip().splitlines() or ["no message"])[-1]
        return HostError(
            f"cannot lock {self._where}: python3 there does not run our program: {one_line(message, TOLD_LETTERS)}",
            "`sudo sh -c 'command -v python3'` there names the python3 that comes first; remove it or repair it (the"
            " system's own is /usr/bin/python3), then run again",
            where=self._where,
        )

    def _held_by(self, content: str) -> HostLocked:
        return HostLocked(
            f"{self._where} is in use by {_who(content)}",
            "wait until that run has ended, then run again",
            where=self._where,
        )

    def _keep(self) -> None:
        """Send heartbeats while the lock is held; take a lost lock again. Ends at release or if another run has it."""
        while not self._stop.is_set():
            process = self._process
            if process is not None and not process.ended(0):
                self._beat(process)
                continue
            if process is not None:
                process.close()
                self._process = None
            # Also before the first try: a host whose lock always ends at once must not keep us busy.
            if self._stop.wait(RETRY_SECONDS):
                return
            try:
                self._process = self._acquire()
            except HostLocked as error:
                self.lost = error
                return
            except GpuprepError:  # not back yet
                continue
            self._listened(answered=True)
        if self._process is not None:
            self._process.close()

    def _beat(self, process: Process) -> None:
        with self._input:
            if self._stop.is_set():
                return
            try:
                process.send(b".")
            except HostError:
                return
        try:
            answered = bool(process.read_line(HEARTBEAT_SECONDS))
        except HostError:
            if not process.ended(0):  # one that ended is a host that restarts
                self._listened(answered=False)
            return
        if answered:
            self._listened(answered=True)
        process.ended(HEARTBEAT_SECONDS)

    def _listened(self, *, answered: bool) -> None:
        if self._silent is not None and self._is_silent == answered and not self._stop.is_set():
            self._silent("" if answered else self._heard)
        self._is_silent = not answered
        if answered:
            self._heard = time.strftime("%H:%M:%S")


def command(owner: LockOwner | None, lock_file: str = LOCK) -> str:
    """The command that holds the lock on the host, for a POSIX shell of root. It first prints its result.

    Without an owner it only looks who has the lock.
    """
    words = [lock_file, json.dumps(asdict(owner)) if owner else "", str(HEARTBEAT_LIMIT), program("leftovers")]
    # -I and -S: nothing of the folder it runs in, of the environment or of site packages.
    return (
        f"command -v python3 >/dev/null 2>&1 || {{ echo {NO_PYTHON}; exit 3; }}; "
        f"exec python3 -I -S -c {shlex.quote(program('lock'))} {' '.join(map(shlex.quote, words))}"
    )


@functools.cache
def program(name: str) -> str:
    """The text of a program of this package, which is sent to the host."""
    return (importlib.resources.files("gpuprep.remote") / f"{name}program.py").read_text(encoding="utf-8")


def _who(content: str) -> str:
    """The owner in a lock file, in words. The text comes from a host, so it may have any form and length."""
    try:
        fields: Any = json.loads(json.loads(content))
        owner = LockOwner(**{name: one_line(fields[name], NAME_LETTERS) for name in LockOwner.__dataclass_fields__})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "a run that does not say who it is"
    return f"{owner.user} from {owner.controller}, run {owner.run_id}, since {owner.since}"
