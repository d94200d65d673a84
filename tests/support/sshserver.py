"""A private sshd on 127.0.0.1 for one test: its own host key, configuration, port and authorized keys.

Also what gpuprep makes of a host's key and of a host that does not answer, where no connection is wanted.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import paramiko
import psutil
import pytest
from waiting import until

from gpuprep import errors
from gpuprep.remote import (
    LockOwner,
    Target,
    core,
    hostkeys,
    local,
    lock,
    ssh,
    sshchannel,
    sshconfig,
    watch,
)

ShownKey = hostkeys.ShownKey
SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
START_SECONDS = 300


def make_key(path: Path, passphrase: str = "") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(path)], check=True)
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Sshd:
    """Runs until stop(); `home` is the HOME of the client side, `key` a key that may log in."""

    def __init__(self, folder: Path, home: Path, *options: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.user = getpass.getuser()
        self.known_hosts = home / ".ssh" / "known_hosts"
        self.key = make_key(folder / "user_key")
        self.host_key = make_key(folder / "host_key")
        (folder / "authorized_keys").write_text(self.key.with_suffix(".pub").read_text())
        lines = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.host_key}",
            f"PidFile {folder}/pid",
            f"AuthorizedKeysFile {folder}/authorized_keys",
            "StrictModes no",
            "UsePAM no",
            "PermitRootLogin yes",
            "KbdInteractiveAuthentication no",
            "KexAlgorithms curve25519-sha256@libssh.org",  # paramiko's; the default one costs ssh a quarter of a second
            *options,
        ]
        if not any(option.startswith("SetEnv") for option in options):
            # Without the files of whoever runs the tests. Of two such lines sshd takes the first.
            lines.append(f"SetEnv HOME={folder}")
        if not any(option.startswith("PasswordAuthentication") for option in options):
            lines.append("PasswordAuthentication no")
        (folder / "sshd_config").write_text("\n".join(lines) + "\n")
        self._process: psutil.Popen | None = None
        self.start()

    def start(self) -> None:
        assert SSHD is not None
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd insists on it as root
        log = self.folder / "log"
        with log.open("ab") as file:
            before = file.tell()
            listener = psutil.Popen(
                [SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")], stdin=subprocess.DEVNULL, stderr=file
            )
        self._process = listener
        # A connection would tell less: a session of the sshd before may still have its port open.
        until(
            lambda: b"Server listening on" in log.read_bytes()[before:] or listener.poll() is not None,
            log.read_text,
            START_SECONDS,
        )
        assert listener.poll() is None, log.read_text()

    def stop(self) -> None:
        """The listener and every session of it, as a reboot would; its port is free then."""
        listener = self._process
        if listener is None:
            return
        still = (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
        with contextlib.suppress(psutil.NoSuchProcess):
            listener.suspend()  # so that it starts no other session
            until(lambda: listener.status() in still, "sshd does not stop")
        for process in (*self.sessions(), listener):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        listener.wait()
        self._process = None

    def sessions(self) -> list[psutil.Process]:
        """All that the listener started, and what runs in there."""
        assert self._process is not None
        try:
            sessions: list[psutil.Process] = self._process.children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return sessions

    def trust(self, *addresses: str) -> None:
        """Write the host key to the user's known_hosts, for 127.0.0.1 unless other addresses are named."""
        kind, key = self.host_key.with_suffix(".pub").read_text().split()[:2]
        self.known_hosts.parent.mkdir(exist_ok=True)
        with self.known_hosts.open("a") as file:
            for address in addresses or ("127.0.0.1",):
                file.write(f"[{address}]:{self.port} {kind} {key}\n")

    def target(self, **changes: object) -> Target:
        fields: dict[str, object] = {
            "name": "box",
            "address": "127.0.0.1",
            "port": self.port,
            "user": self.user,
            "identity_file": str(self.key),
        }
        return Target(**{**fields, **changes})  # type: ignore[arg-type]


Serve = Callable[..., Sshd]


@contextlib.contextmanager
def servers(folder: Path, home: Path) -> Iterator[Serve]:
    """Starts one after the other, each in a folder of its own, with the options it is given; stops all."""
    started: list[Sshd] = []

    def start(*options: str) -> Sshd:
        place = folder / f"sshd{len(started)}"
        place.mkdir()
        started.append(Sshd(place, home, *options))
        return started[-1]

    yield start
    for one in started:
        one.stop()


# ---------------------------------------------------------------- without a connection


def verdict(files: Path | list[Path], host: str, port: int, key: paramiko.PKey, *, accept_new: bool = False) -> str:
    """What gpuprep says of the key that `host` shows, by these known_hosts files; "" for a key that it accepts.

    Raises UsageError for a file that cannot be one.
    """
    known = hostkeys.load(hostkeys.Asked(host, port, (files,) if isinstance(files, Path) else tuple(files)))
    policy = hostkeys.KnownHostsPolicy("box", known, accept_new=accept_new)
    try:
        policy.missing_host_key(paramiko.SSHClient(), host, key)
    except errors.HostKeyRefused as refused:
        return refused.what
    return ""


def looked_up(settings: dict[str, str]) -> tuple[list[str], list[Path]]:
    """The algorithms of host keys, best first, and the known_hosts files, by `settings` of an ssh_config."""
    asked = hostkeys.asked("box", 22, settings, user="me", original="box", named=None)
    return list(asked.algorithms), list(asked.files)


def user_of(host: str) -> str:
    """Who logs in to `host`, by the user's ~/.ssh/config."""
    return str(sshconfig.read_ssh_config(host).base_ssh_config.lookup(host).get("user", ""))


def impatient(
    monkeypatch: pytest.MonkeyPatch, *, a_file: float = 300.0, a_lock: float = 300.0, stopping: float = 0.3
) -> None:
    """What a host never answers is given up in a second.

    `a_file`, `a_lock`, `stopping`: how long a file, a lock, and a command when the user stops the run may take.
    """
    monkeypatch.setattr(ssh, "GRACE_SECONDS", 0.3)
    monkeypatch.setattr(sshchannel, "GRACE_SECONDS", 0.3)
    monkeypatch.setattr(sshchannel, "CLOSE_SECONDS", 2.0)
    monkeypatch.setattr(sshchannel, "FAREWELL_SECONDS", 0.5)
    monkeypatch.setattr(sshchannel, "SEND_SECONDS", 2.0)
    monkeypatch.setattr(watch, "STOP_SECONDS", stopping)
    monkeypatch.setattr(local, "STOP_SECONDS", stopping)
    monkeypatch.setattr(local, "FAREWELL", 0.1)
    monkeypatch.setattr(core, "FILE_SECONDS", a_file)
    monkeypatch.setattr(lock, "ANSWER_TIMEOUT", a_lock)
    monkeypatch.setattr(lock, "RETRY_SECONDS", 0.4)


def give_up_after(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """A connection on whose other end sshd answers nothing."""
    monkeypatch.setattr(ssh, "KEEPALIVE_SECONDS", 0.05)
    monkeypatch.setattr(ssh, "SILENT_SECONDS", seconds)


def telling(cases: Iterable[str], *names: str) -> list[Any]:
    """Of a table these cases are for `make test`; `make test-machines` has all."""
    return [pytest.param(case, marks=() if case in names else pytest.mark.machines) for case in cases]


def lock_command(monkeypatch: pytest.MonkeyPatch, owner: LockOwner, file: Path, silence: int = 90) -> str:
    """What holds the lock of a host there, until its input ends or is silent for so many seconds."""
    monkeypatch.setattr(lock, "HEARTBEAT_LIMIT", silence)
    return lock.command(owner, str(file))
