"""The lock of a host: who holds it is named, it outlives a reboot, and nothing outlives its holder."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sshserver import SSHD, Sshd
from waiting import until

from gpuprep import errors, remote
from gpuprep.remote import lock
from gpuprep.remote.lockprogram import RELEASED

ALICE = remote.LockOwner("alice", "laptop", "20250601-1a2b", "2025-06-01T12:00:00+00:00")
HERE = remote.Target("box", local=True)
BOB = remote.LockOwner("bob", "desk", "20250601-3c4d", "2025-06-01T12:05:00+00:00")

HOLDER = """
import signal, sys
from gpuprep.remote import Host, HostLock, LockOwner, Target
lock_file, port, user, key, known_hosts = sys.argv[1:]
here = Target("here", local=True)
host = Host(Target("box", "127.0.0.1", int(port), user, key, known_hosts) if port else here)
with HostLock("box", LockOwner("alice", "laptop", "r1", "noon"), host.start, lock_file=lock_file):
    print("held", flush=True)
    signal.pause()
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    if SSHD is None:
        pytest.skip("no sshd here (package openssh-server)")
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    folder = tmp_path / "sshd"
    folder.mkdir()
    made = Sshd(folder, home)
    made.trust()
    yield made
    made.stop()


Connect = Callable[[], remote.Host]


@pytest.fixture(params=["local", "ssh"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    made: list[remote.Host] = []

    def make() -> remote.Host:
        made.append(remote.Host(HERE if request.param == "local" else request.getfixturevalue("server").target()))
        return made[-1]

    yield make
    for host in made:
        host.close()


def lock_of(host: remote.Host, path: Path, owner: remote.LockOwner) -> remote.HostLock:
    return remote.HostLock("box", owner, host.start, lock_file=str(path))


def is_free(host: remote.Host, path: Path) -> bool:
    try:
        with lock_of(host, path, BOB):
            return True
    except errors.HostLocked:
        return False


def work_of(run: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "infinity"], env={"GPUPREP_RUN": run})


def test_the_second_is_told_who_is_first(connect: Connect, tmp_path: Path) -> None:
    path = tmp_path / "it's a lock"
    with lock_of(connect(), path, ALICE):
        with pytest.raises(errors.HostLocked) as caught, lock_of(connect(), path, BOB):
            pass
        for word in ("box", ALICE.user, ALICE.controller, ALICE.run_id, ALICE.since):
            assert word in caught.value.what
        assert caught.value.exit_code == 3
    with lock_of(connect(), path, BOB):
        assert '"user": "bob"' in path.read_text()
    assert path.read_text() == ""


def test_who_only_looks_takes_nothing_and_makes_nothing(connect: Connect, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    looking = remote.HostLock("box", None, connect().start, lock_file=str(path))
    looking.look()
    assert not path.exists()
    with lock_of(connect(), path, ALICE):
        with pytest.raises(errors.HostLocked, match=ALICE.run_id):
            looking.look()
        assert '"user": "alice"' in path.read_text()
    looking.look()
    with pytest.raises(errors.HostLocked, match=r"box was in use by another run until [0-9]+ s ago"):
        looking.look(since=86400.0)
    os.utime(path, (0, 0))
    looking.look(since=86400.0)


def test_a_file_without_a_holder_is_no_lock(connect: Connect, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text('{"user": "a long gone one", "controller": "x", "run_id": "y", "since": "z"}' * 3)
    with lock_of(connect(), path, ALICE):
        assert path.read_text().count("alice") == 1
        assert "long gone" not in path.read_text()


def test_a_place_that_cannot_be_locked(connect: Connect, tmp_path: Path) -> None:
    with (
        pytest.raises(errors.HostError, match=r"cannot lock box: .*(No such file|nonexistent)"),
        lock_of(connect(), tmp_path / "no" / "folder" / "lock", ALICE),
    ):
        pass


def test_a_python3_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "python3"
    broken.write_text("#!/bin/sh\necho 'Fatal Python error: no codec' >&2; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with (
        remote.Host(remote.Target("box", local=True)) as host,
        pytest.raises(errors.HostError, match="python3 there does not run our program: Fatal Python error") as caught,
        remote.HostLock("box", ALICE, host.start, lock_file=str(tmp_path / "lock")),
    ):
        pass
    assert "command -v python3" in caught.value.hint


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_no_lock_outlives_a_killed_controller(
    connect: Connect, tmp_path: Path, request: pytest.FixtureRequest, how: signal.Signals
) -> None:
    path = tmp_path / "lock"
    host = connect()
    left = work_of("r1")
    arguments = [str(path), "", "", "", ""]
    if not host.target.local:
        server: Sshd = request.getfixturevalue("server")
        arguments = [str(path), str(server.port), server.user, str(server.key), str(server.known_hosts)]
    with subprocess.Popen([sys.executable, "-c", HOLDER, *arguments], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert not is_free(host, path)
        os.kill(holder.pid, how)
        holder.wait()
    until(lambda: is_free(host, path), "the lock is free")
    assert left.wait() == -signal.SIGTERM


def test_the_next_owner_ends_only_what_a_run_left_that_did_not_release_the_lock(
    connect: Connect, tmp_path: Path
) -> None:
    path = tmp_path / "lock"
    work = work_of(ALICE.run_id)
    with lock_of(connect(), path, ALICE):
        words = path.read_text()
    with lock_of(connect(), path, BOB):
        assert work.poll() is None, "its owner had released the lock"
    path.write_text(words)
    with lock_of(connect(), path, ALICE):
        assert work.poll() is None, "the owner itself, which had lost its network"
    path.write_text(words)
    with lock_of(connect(), path, BOB):
        assert work.wait() == -signal.SIGTERM


def test_the_lock_is_taken_again_after_a_reboot(server: Sshd, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    other = remote.Host(HERE)
    with lock_of(remote.Host(server.target()), path, ALICE) as lock:
        server.stop()
        until(lambda: is_free(other, path), "a reboot drops the lock")
        path.write_text("")
        server.start()
        # Looking by locking would be a run that took it: the words in the file are looked at instead.
        until(lambda: "alice" in path.read_text(), "the lock is held again")
        assert lock.lost is None
        assert not is_free(other, path)
    until(lambda: is_free(other, path), "released at the end")


def test_a_lock_that_another_took_during_the_reboot_is_lost(server: Sshd, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with lock_of(remote.Host(server.target()), path, ALICE) as lock:
        server.stop()
        until(lambda: is_free(remote.Host(HERE), path), "a reboot drops the lock")
        with lock_of(remote.Host(HERE), path, BOB):
            server.start()
            until(lambda: lock.lost is not None, "the loss is noticed")
    assert isinstance(lock.lost, errors.GpuprepError)
    assert "bob" in lock.lost.what


class Overlaps:
    """A process whose input takes its time; it remembers whether it was closed meanwhile."""

    def __init__(self) -> None:
        self.sending, self.closed, self.over = threading.Event(), threading.Event(), threading.Event()
        self.overlapped = False

    def send(self, data: bytes) -> None:
        assert data in (b".", RELEASED)
        self.sending.set()
        self.overlapped |= self.closed.wait(0.3)
        if data == RELEASED:
            self.over.set()

    def read_line(self, timeout: float) -> bytes:
        assert timeout > 0
        return b"held"  # and "heard"

    def read_error(self) -> str:
        return ""

    def ended(self, timeout: float) -> bool:
        return self.over.wait(timeout)

    def close(self) -> None:
        self.closed.set()


def test_the_input_is_not_closed_while_a_heartbeat_is_written() -> None:
    process = Overlaps()
    with remote.HostLock("box", remote.LockOwner("alice", "laptop", "r1", "noon"), lambda _: process):
        assert process.sending.wait(300)
    assert process.closed.is_set()
    assert not process.overlapped


def test_a_host_that_gives_no_answer_is_told_of_and_when_it_answers_again(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "HEARTBEAT_SECONDS", 0.2)
    told: list[str] = []
    path = tmp_path / "lock"
    with remote.HostLock("box", ALICE, connect().start, lock_file=str(path), silent=told.append):
        program = ["pkill", "-f", f"python3 -I -S -c .*{path}", "--signal"]
        subprocess.run([*program, "STOP"], check=True)
        until(lambda: bool(told), "the silence is told")
        subprocess.run([*program, "CONT"], check=True)
        until(lambda: len(told) > 1, "the answer is told")
    assert (bool(re.fullmatch(r"\d\d:\d\d:\d\d", told[0])), told[1]) == (True, "")
    assert path.read_text() == ""
