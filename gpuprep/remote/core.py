"""One machine: run, put, get, become root, lock. Over SSH, or this machine itself."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from types import TracebackType

from gpuprep.errors import HostError
from gpuprep.remote.connection import Connection, Errors, Process, RawResult, all_of_it
from gpuprep.remote.limits import COMMAND_SECONDS, FILE_SECONDS, TOLD_LETTERS
from gpuprep.remote.local import LocalConnection
from gpuprep.remote.lock import HostLock
from gpuprep.remote.privilege import AT_ONCE, Privilege, learn_privilege
from gpuprep.remote.probereports import Doing, ProbeReports, SoFar
from gpuprep.remote.types import CommandResult, LockOwner, Target
from gpuprep.remote.watch import never
from gpuprep.untrusted.plaintext import one_line


class Host:
    """Connects at its first command and again after the connection was lost (a reboot), never in the middle of one.

    Raises HostUnreachable, HostKeyRefused, AuthenticationRefused, NoPrivilege; HostError for time-outs.
    """

    def __init__(
        self,
        target: Target,
        *,
        become_password: str | None = None,
        accept_new_host_key: bool = False,
        connect_timeout: float = 15,
        stopped: Callable[[], bool] = never,
    ) -> None:
        """`stopped` returns whether the user ended the run; a running command then has a few seconds left."""
        self.target = target
        self.name = target.name
        self._become_password = become_password
        self._privilege: Privilege | None = None
        self._connection: Connection
        if target.local:
            self._connection = LocalConnection(target.name, stopped)
        else:
            from gpuprep.remote.ssh import SshConnection  # paramiko costs 0.2 s: only who connects pays

            self._connection = SshConnection(target, accept_new_host_key, connect_timeout, stopped)

    def __enter__(self) -> Host:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def run(
        self, command: str, *, stdin: bytes = b"", become: bool = False, timeout: float = COMMAND_SECONDS
    ) -> CommandResult:
        """Run `command` by the host's shell and wait, at most `timeout` seconds. A non-zero exit is not an error.

        Raises HostError, also for more output than limits.OUTPUT_BYTES; Interrupted if the user ended the run.
        """
        return _decoded(self._execute(command, stdin, become, timeout))

    def listen(
        self,
        heard: Callable[[Doing], None],
        command: str,
        *,
        stdin: bytes = b"",
        become: bool = False,
        timeout: float = COMMAND_SECONDS,
        so_far: SoFar | None = None,
    ) -> CommandResult:
        """As run, for a probe: `heard` is called with its progress reports, `so_far` collects what it has measured.

        Both are used in any thread.
        """
        return _decoded(self._execute(command, stdin, become, timeout, ProbeReports(heard, so_far).take))

    def start(self, command: str, *, become: bool = False) -> Process:
        """Start a command whose input and output the caller uses while it runs. The caller closes it."""
        return self._start_as_root(command) if become else self._connection.start(command)

    def put(self, data: bytes, remote: str, *, become: bool = False) -> None:
        """Write `data` to the file `remote`, completely or not at all. Mode 0644."""
        path = shlex.quote(remote)
        raw = self._execute(
            f't=$(mktemp {path}.XXXXXX) && if cat >"$t" && chmod 0644 "$t" && mv -f "$t" {path};'
            ' then :; else rm -f "$t"; exit 1; fi',
            data,
            become,
            FILE_SECONDS,
        )
        self._expect_success(raw, f"cannot write {remote}")

    def get(self, remote: str, *, become: bool = False) -> bytes:
        """The content of the file `remote`."""
        raw = self._execute(f"cat -- {shlex.quote(remote)}", b"", become, FILE_SECONDS)
        self._expect_success(raw, f"cannot read {remote}")
        return raw.stdout

    def check_privilege(self) -> None:
        """Make sure that commands can run as root here. Raises NoPrivilege with the cause."""
        if self._privilege is None:
            self._privilege = learn_privilege(self._connection, self.name, self._become_password)

    def host_key(self) -> str:
        """Fingerprint of the host's SSH key, "SHA256:..."; "" before the first command and without SSH."""
        return self._connection.host_key()

    def lock(self, owner: LockOwner) -> HostLock:
        """The host's lock as a context manager. Raises HostLocked, naming who holds it."""
        return HostLock(self.name, owner, self._start_as_root)

    def check_free(self) -> None:
        """Raises HostLocked, naming who holds the host's lock. Takes nothing."""
        HostLock(self.name, None, self._start_as_root).look()

    def _execute(
        self, command: str, stdin: bytes, become: bool, timeout: float, errors: Errors = all_of_it
    ) -> RawResult:
        if become:
            if self._privilege is None and self._become_password is None:
                raw = self._connection.execute(AT_ONCE.wrap(command), stdin, timeout, errors=errors)
                if not AT_ONCE.refused(raw):
                    return raw
            privilege = self._need_privilege()
            command, stdin = privilege.wrap(command), privilege.stdin_prefix + stdin
        return self._connection.execute(command, stdin, timeout, errors=errors)

    def _start_as_root(self, command: str) -> Process:
        privilege = self._need_privilege()
        process = self._connection.start(privilege.wrap(command))
        if privilege.stdin_prefix:
            process.send(privilege.stdin_prefix)
        return process

    def _need_privilege(self) -> Privilege:
        self.check_privilege()
        assert self._privilege is not None
        return self._privilege

    def _expect_success(self, raw: RawResult, what: str) -> None:
        if raw.exit_code != 0:
            stderr = raw.stderr.decode(errors="backslashreplace").strip().splitlines()
            cause = one_line(stderr[-1], TOLD_LETTERS) if stderr else f"exit code {raw.exit_code}"
            raise HostError(f"{what}: {cause}", "check that the path exists and who may use it", where=self.name)


def _decoded(raw: RawResult) -> CommandResult:
    return CommandResult(
        raw.exit_code, raw.stdout.decode(errors="backslashreplace"), raw.stderr.decode(errors="backslashreplace")
    )
