"""One machine: run, put, get, become root, lock. Over SSH, or this machine itself."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from gpuprep.errors import HostError, NoPrivilege
from gpuprep.remote.connection import Connection, Errors, Process, RawResult, all_of_it
from gpuprep.remote.limits import COMMAND_SECONDS, FILE_SECONDS, TOLD_LETTERS
from gpuprep.remote.local import LocalConnection
from gpuprep.remote.lock import HostLock
from gpuprep.remote.probereports import Doing, ProbeReports, SoFar
from gpuprep.remote.types import CommandResult, LockOwner, Target
from gpuprep.remote.watch import never
from gpuprep.untrusted.plaintext import one_line

# ---------------------------------------------------------------- privilege

# How to become root on a host: already root, sudo without a password, or sudo with one. AT_ONCE            run a
# command as root by the first two ways, without a test before: one round trip learn_privilege()  try all three; if
# none works, raise NoPrivilege with the reason

PROBE_TIMEOUT = 30.0  # sudo can hang on a directory service that does not answer

ASK = "run again with --ask-become-pass; without a password it needs a rule of sudo (docs/security.md)"
# What sudo says in the C locale ► (what it means, what to do). The first that fits counts.
CAUSES = (
    ("not in the sudoers file", "{user} may not use sudo here", "add {user} to the group sudo (wheel on RHEL)"),
    ("may not run sudo", "{user} may not use sudo here", "add {user} to the group sudo (wheel on RHEL)"),
    ("is not allowed to", "sudo does not allow {user} to run every command", "give {user} a sudoers rule for ALL"),
    ("must have a tty", "sudo insists on a terminal", "remove `Defaults requiretty` from /etc/sudoers"),
    ("a password is required", "sudo wants a password for {user}", ASK),
    ("a terminal is required", "sudo wants a password for {user}", ASK),
    ("interactive authentication is required", "sudo wants a password for {user}", ASK),
    ("not found", "{user} is not root and sudo is not installed", "log in as root, or install sudo"),
)
WHO = "gpuprep-user="  # before the answer to who we are there
WRONG_PASSWORD = ("incorrect password", "try again", "no password was provided", "authentication failure")


@dataclass(frozen=True)
class Privilege:
    """`prefix` goes before the command, `stdin_prefix` (a password, so never shown) before its input."""

    prefix: str
    stdin_prefix: bytes = field(default=b"", repr=False)

    def wrap(self, command: str) -> str:
        return f"{self.prefix} /bin/sh -c {shlex.quote(command)}" if self.prefix else command


# -k ignores cached credentials: without it sudo -S might not read the password, and the command would get it
# as the first line of its input.
WITHOUT_PASSWORD = Privilege("sudo -n --")
# What is asked of sudo before a command: the shell that the command itself needs, so that no other rule is wanted.
TRIAL = "/bin/sh -c :"
WITH_PASSWORD = "sudo -k -S -p '' --"
WANTED = ("password is required", "interactive authentication is required")  # by sudo; by sudo-rs (Ubuntu 26.04)
CLASSIC = "sudo.ws"  # beside sudo-rs. Ansible waits in vain for the question of sudo-rs (ansible#85837, #87423)
NO_CLASSIC = "`sudo apt-get install sudo` on the host brings sudo.ws; or write a rule without a password (NOPASSWD)"


# Exit code and message if sudo refused the command, or did not answer in time: the command did not begin.
NOT_BEGUN, WORD = 96, b"gpuprep: not begun\n"


class _AtOnce:
    """A Privilege for a user who was not tested yet. sudo is tried without the command's input."""

    stdin_prefix = b""

    @staticmethod
    def wrap(command: str) -> str:
        return (
            f's=; test "$(id -u)" -eq 0 || {{ s="{WITHOUT_PASSWORD.prefix}"; '
            f"timeout {PROBE_TIMEOUT:g} sudo -k -n -- {TRIAL} </dev/null >/dev/null 2>&1 || "
            f"{{ echo '{WORD.decode().strip()}' >&2; exit {NOT_BEGUN}; }}; }}; "
            f"exec $s /bin/sh -c {shlex.quote(command)}"
        )

    @staticmethod
    def refused(raw: RawResult) -> bool:
        return raw.exit_code == NOT_BEGUN and raw.stderr.endswith(WORD)


AT_ONCE = _AtOnce()


def learn_privilege(connection: Connection, where: str, password: str | None) -> Privilege:
    """Try, in this order: root already, sudo without a password, sudo with `password`. Raises NoPrivilege."""
    raw = connection.execute(
        f'echo "{WHO}$(id -u) $(id -un)"; test "$(id -u)" -eq 0 || LC_ALL=C sudo -k -n -- {TRIAL}', b"", PROBE_TIMEOUT
    )
    uid, user = _who(raw.stdout, where)
    if uid == "0":
        return Privilege("")
    if raw.exit_code == 0:
        return WITHOUT_PASSWORD
    stderr = raw.stderr.decode(errors="backslashreplace")
    if password is None or not any(words in stderr for words in WANTED):
        raise _refusal(stderr, user, where)
    with_password = WITH_PASSWORD.replace("sudo", CLASSIC, 1) if WANTED[1] in stderr else WITH_PASSWORD
    privilege = Privilege(with_password, password.encode() + b"\n")
    raw = connection.execute(f"LC_ALL=C {privilege.wrap(':')}", privilege.stdin_prefix, PROBE_TIMEOUT)
    if raw.exit_code == 0:
        return privilege
    stderr = raw.stderr.decode(errors="backslashreplace")
    if any(words in stderr.lower() for words in WRONG_PASSWORD):
        raise NoPrivilege(
            f"{where}: sudo does not accept this password for {user}",
            "run again with --ask-become-pass and type the sudo password of that user",
            where=where,
        )
    if "not found" in stderr and with_password != WITH_PASSWORD:
        why = f"{where}: sudo is sudo-rs there, to which Ansible can give no password, and there is no {CLASSIC}"
        raise NoPrivilege(why, NO_CLASSIC, where=where)
    raise _refusal(stderr, user, where)


def _who(output: bytes, where: str) -> tuple[str, str]:
    """(uid, name) from the line that our command printed: a login script may have printed text before it."""
    for line in reversed(output.decode(errors="backslashreplace").splitlines()):
        _, mark, words = line.rpartition(WHO)
        uid, _, user = words.partition(" ")
        if mark and uid.isdigit() and user:
            return uid, user
    raise NoPrivilege(
        f"{where}: does not say which user logs in there: "
        f"{one_line(output.decode(errors='replace'), 200) or 'nothing'}",
        "see that a plain command works there, e.g. `ssh HOST id`: a login script may end before it",
        where=where,
    )


def _refusal(stderr: str, user: str, where: str) -> NoPrivilege:
    for words, what, hint in CAUSES:
        if words in stderr:
            return NoPrivilege(f"{where}: {what.format(user=user)}", hint.format(user=user), where=where)
    last = (stderr.strip().splitlines() or ["no message"])[-1]
    return NoPrivilege(f"{where}: sudo refuses {user}: {last}", f"check `sudo -l -U {user}` on the host", where=where)


# ---------------------------------------------------------------- core


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

    @property
    def sudo(self) -> str:
        """The program by which Ansible becomes root here, where it is not `sudo`; "" otherwise."""
        return CLASSIC if self._privilege is not None and self._privilege.prefix.startswith(CLASSIC) else ""

    def host_key(self) -> str:
        """Fingerprint of the host's SSH key, "SHA256:..."; "" before the first command and without SSH."""
        return self._connection.host_key()

    def lock(self, owner: LockOwner, silent: Callable[[str], None] | None = None) -> HostLock:
        """The host's lock as a context manager. Raises HostLocked, naming who holds it. `silent`: see HostLock."""
        return HostLock(self.name, owner, self._start_as_root, silent=silent)

    def check_free(self, since: float = 0.0) -> None:
        """Raises HostLocked, naming who holds the host's lock, or if somebody held it in the last `since` seconds.

        Takes nothing.
        """
        HostLock(self.name, None, self._start_as_root).look(since)

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
