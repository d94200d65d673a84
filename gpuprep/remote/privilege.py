"""How to become root on a host: already root, sudo without a password, or sudo with one.

AT_ONCE            run a command as root by the first two ways, without a test before: one round trip
learn_privilege()  try all three; if none works, raise NoPrivilege with the reason
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

from gpuprep.errors import NoPrivilege
from gpuprep.remote.connection import Connection, RawResult
from gpuprep.untrusted.plaintext import one_line

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


# Ends with this, and says the word, before the command began: sudo would not have it, or took too long to say.
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
    if password is None or "password is required" not in stderr:
        raise _refusal(stderr, user, where)
    privilege = Privilege(WITH_PASSWORD, password.encode() + b"\n")
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
