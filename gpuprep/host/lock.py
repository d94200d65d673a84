"""One run at a time on a host: flock(2) on a file there, held by a process that lives as long as this controller.

The kernel drops the lock when that process ends, and it ends when its input does: at release, when the controller is
killed in any way, or when the network is gone for HEARTBEAT_LIMIT seconds. So there is no stale lock to clear.
A reboot of the host drops it too; a thread takes it again when the host is back.
"""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Callable
from dataclasses import asdict
from types import TracebackType

from gpuprep.errors import GpuprepError, HostError, HostLocked
from gpuprep.host.connection import Process
from gpuprep.host.types import LockOwner

LOCK_FILE = "/run/lock/gpuprep.lock"
HEARTBEAT_SECONDS = 15.0
HEARTBEAT_LIMIT = 90
ANSWER_TIMEOUT = 30.0
RETRY_SECONDS = 2.0

# `<>` opens without truncating, so that who comes second can read who came first. Closing 9 in the reader keeps the
# lock from outliving the shell. The file's content is only words for people: the flock alone decides.
SCRIPT = """
umask 022
exec 9<>{file} || exit 3
flock -n 9 || {{ echo busy; cat {file}; echo; exit 0; }}
printf '%s' {owner} >{file}
echo held
while [ -n "$(exec 9>&-; exec timeout {limit} head -c1)" ]; do :; done
: >{file}
"""


class HostLock:
    """Context manager. `lost` is set when another run took the lock while this host was rebooting."""

    def __init__(
        self, where: str, owner: LockOwner, start: Callable[[str], Process], *, lock_file: str = LOCK_FILE
    ) -> None:
        self.lost: HostLocked | None = None
        self._where = where
        self._start = start
        self._command = SCRIPT.format(
            file=shlex.quote(lock_file), owner=shlex.quote(json.dumps(asdict(owner))), limit=HEARTBEAT_LIMIT
        )
        self._stop = threading.Event()
        self._process: Process | None = None
        self._keeper = threading.Thread(target=self._keep, name=f"lock of {where}", daemon=True)

    def __enter__(self) -> HostLock:
        self._process = self._acquire()
        self._keeper.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        process = self._process
        if process is not None:
            process.close()
        self._keeper.join(timeout=ANSWER_TIMEOUT)

    def _acquire(self) -> Process:
        process = self._start(self._command)
        try:
            answer = process.read_line(ANSWER_TIMEOUT)
            if answer == b"held":
                return process
            if answer == b"busy":
                raise self._held_by(process.read_line(ANSWER_TIMEOUT))
            said = (process.read_error().strip().splitlines() or ["no message"])[-1]
            raise HostError(f"cannot lock {self._where}: {said}", f"look at {LOCK_FILE} there", where=self._where)
        except BaseException:
            process.close()
            raise

    def _held_by(self, content: bytes) -> HostLocked:
        try:
            owner = LockOwner(**json.loads(content))
            who = f"{owner.user} from {owner.controller}, run {owner.run_id}, since {owner.since}"
        except (ValueError, TypeError):
            who = "a run that does not say who it is"
        return HostLocked(
            f"{self._where} is in use by {who}", "wait until that run has ended, then run again", where=self._where
        )

    def _keep(self) -> None:
        """Beat while the lock is held; take it again when it dropped. Ends at release or when another run has it."""
        while not self._stop.is_set():
            process = self._process
            if process is not None and not process.ended(0):
                self._beat(process)
                continue
            try:
                self._process = self._acquire()
            except HostLocked as error:
                self.lost = error
                return
            except GpuprepError:  # not back yet
                self._process = None
                self._stop.wait(RETRY_SECONDS)
        if self._process is not None:
            self._process.close()

    def _beat(self, process: Process) -> None:
        try:
            process.send(b".")
        except HostError:
            return
        process.ended(HEARTBEAT_SECONDS)
