"""A host that stalls, drips, floods, lies and shouts over SSH: an error of that host, soon, in bounded memory."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import paramiko
import pytest
import sshserver
from hostilesshd import HostileSshd, Session
from hostiletexts import is_calm
from paramiko.common import MSG_KEXINIT
from waiting import until

from gpuprep import errors, remote

Serve = Callable[..., HostileSshd]
OWNER = remote.LockOwner("alice", "laptop", "r1", "noon")
ESCAPES = b"\x1b[2J\x1b]0;owned\x07\x9b31m\xe2\x80\xae gnp"
VERSION = b"SSH-2.0-OpenSSH_9.2\r\n"


PATIENT = 300.0  # seconds in which a host answers, however slow this computer is


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    sshserver.impatient(monkeypatch)


def refusal(server: HostileSshd, kind: type[errors.GpuprepError], words: str) -> str:
    """The error of one command, which says `words`, is short and moves no cursor. What never comes is given up soon."""
    connect, timeout = (1 if words.startswith(NONE) else PATIENT), (0.7 if words == LATE else PATIENT)
    with pytest.raises(kind, match=words) as caught, remote.Host(server.target, connect_timeout=connect) as host:
        host.run("true", timeout=timeout)
    assert caught.value.hint
    is_calm(caught.value.explain())
    return caught.value.what


# ---------------------------------------------------------------- before there is a command


def say_and_wait(*said: bytes) -> Callable[[socket.socket, HostileSshd], None]:
    def act(connected: socket.socket, server: HostileSshd) -> None:
        for data in said:
            connected.sendall(data)
        server.over.wait()

    return act


def drip(data: bytes, first: bytes = b"") -> Callable[[socket.socket, HostileSshd], None]:
    def act(connected: socket.socket, server: HostileSshd) -> None:
        connected.sendall(first)
        while not server.over.wait(0.02):
            connected.sendall(data)

    return act


def flood(data: bytes, first: bytes = b"") -> Callable[[socket.socket, HostileSshd], None]:
    def act(connected: socket.socket, server: HostileSshd) -> None:
        connected.sendall(first)
        while not server.over.is_set():
            connected.sendall(data)

    return act


def close(connected: socket.socket, _server: HostileSshd) -> None:
    connected.close()


def reset(connected: socket.socket, _server: HostileSshd) -> None:
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connected.close()


def packet(payload: bytes) -> bytes:
    padding = 8 - (len(payload) + 5) % 8 + 8
    return struct.pack(">IB", len(payload) + padding + 1, padding) + payload + bytes(padding)


LATE = "took longer than 0.7 s: true"
NO_SSH = "answers, but not as an SSH server should"
NONE = "no answer from 127.0.0.1"
BEFORE = {
    "silence": (say_and_wait(), NONE),
    "banner-drip": (drip(b"x"), NONE),
    "banner-lines-drip": (drip(b"x\r\n"), NONE),
    "banner-never-ends": (flood(b"x" * 4096), NO_SSH),
    "banner-endless-lines": (flood(b"welcome\r\n" * 400), NO_SSH),
    "banner-escapes": (say_and_wait(b"SSH-" + ESCAPES + b"\r\n"), NO_SSH),
    "banner-lone-surrogate": (say_and_wait(b"SSH-\xed\xa0\x80\r\n"), NO_SSH),
    "banner-nul": (say_and_wait(b"SSH-2.0\0-x\r\n"), NO_SSH),
    "banner-old-version": (say_and_wait(b"SSH-1.5-" + b"y" * 3000 + b"\r\n"), NO_SSH),
    "keys-silence": (say_and_wait(VERSION), NONE),
    "keys-drip": (drip(b"\0", VERSION + struct.pack(">IB", 35_004, 4)), NONE),
    "keys-garbage": (say_and_wait(VERSION, os.urandom(4096)), NO_SSH),
    "keys-packet-of-4-gigabytes": (flood(bytes(65536), VERSION + b"\xff\xff\xff\xfc\4\x14"), NO_SSH),
    "keys-packet-of-nothing": (say_and_wait(VERSION, bytes(4096)), NO_SSH),
    "keys-torn": (say_and_wait(VERSION, packet(b"\x14" + bytes(20))), NO_SSH),
    "keys-not-utf8": (say_and_wait(VERSION, packet(b"\x14" + bytes(16) + b"\0\0\0\2\xff\xfe" * 10)), NO_SSH),
    "keys-unknown-message": (say_and_wait(VERSION, packet(b"\xfa" + bytes(20))), NO_SSH),
    "keys-disconnect-with-escapes": (
        say_and_wait(VERSION, packet(b"\1\0\0\0\2\0\0\0\x20" + ESCAPES.ljust(32) + bytes(4))),
        NO_SSH,
    ),
    "closes-at-once": (close, NO_SSH),
    "resets-at-once": (reset, f"{NO_SSH}|closed the connection at once"),
}


@pytest.mark.parametrize(
    "case",
    sshserver.telling(
        BEFORE, "silence", "banner-never-ends", "banner-escapes", "keys-drip", "keys-packet-of-4-gigabytes",
        "keys-torn", "resets-at-once",
    ),
)  # fmt: skip
def test_a_host_that_never_becomes_an_ssh_server(hostile: Serve, case: str) -> None:
    raw, words = BEFORE[case]
    refusal(hostile(raw=raw), errors.HostUnreachable, words)


def test_an_endless_motd_is_not_kept_and_not_shown(hostile: Serve, capfd: pytest.CaptureFixture[str]) -> None:
    server = hostile(motd=(ESCAPES.decode("latin-1") * 6000))
    with remote.Host(server.target, connect_timeout=PATIENT) as host:
        assert host.run("true").stdout == ""
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("stage", ["auth", "open", "exec"])
def test_a_host_that_stalls_at_a_stage(hostile: Serve, stage: str) -> None:
    given_up = f"{NONE}|Timeout opening channel"  # by gpuprep or, a moment earlier, by paramiko
    refusal(hostile(stall=stage), errors.HostUnreachable, given_up)


def test_a_host_that_asks_questions_gets_no_answer(hostile: Serve, capfd: pytest.CaptureFixture[str]) -> None:
    """As a second factor would: a title, a prompt for a password; the terminal shows neither."""
    server = hostile(auth=paramiko.AUTH_PARTIALLY_SUCCESSFUL)
    refusal(server, errors.AuthenticationRefused, "asks me questions after the key")
    assert server.heard == []
    assert capfd.readouterr() == ("", "")


def test_a_host_with_another_key_learns_nothing(hostile: Serve) -> None:
    server = hostile(trusted=False)
    refusal(server, errors.HostKeyRefused, "not known")
    assert server.commands == []


# ---------------------------------------------------------------- while a command runs


def hang(session: Session) -> None:
    session.say(b"")
    session.hang()


def lose(session: Session) -> None:
    session.say(b"some")
    session.transport.close()


def no_status(session: Session) -> None:
    session.say(b"some")
    session.channel.shutdown_write()
    session.hang()


def close_all_but_status(session: Session) -> None:
    session.say(b"some")
    session.transport.sock.shutdown(socket.SHUT_RDWR)


def status_alone(session: Session) -> None:
    session.channel.send_exit_status(0)
    session.hang()


def new_keys_never(session: Session, begun: Callable[[], None] = lambda: None) -> None:
    """Begins a key exchange and leaves it there: the client may send nothing from then on."""

    def negotiate(_message: paramiko.Message) -> None:
        begun()
        session.hang()

    session.say(b"x" * 1000)
    session.transport._handler_table[MSG_KEXINIT] = negotiate
    session.transport._send_kex_init()
    session.hang()


LOST = "connection was lost while a command ran"
RUNNING = {
    "says-nothing": (Session.hang, errors.TookTooLong, LATE),
    "marks-and-says-nothing": (hang, errors.TookTooLong, LATE),
    "one-byte-at-a-time": (lambda s: (s.say(b""), s.drip(b"x", 0.05)), errors.TookTooLong, LATE),
    "one-byte-more-whenever-asked": (lambda s: (s.say(b""), s.drip(b"x", 0.0001)), errors.TookTooLong, LATE),
    "errors-for-ever": (lambda s: (s.say(b""), s.flood(4000, stderr=True)), errors.TookTooLong, LATE),
    "output-ends-the-command-does-not": (no_status, errors.TookTooLong, LATE),
    "exit-status-and-no-end": (status_alone, errors.TookTooLong, LATE),
    "new-keys-never": (new_keys_never, errors.TookTooLong, LATE),
    # A flood ends, a little above what is allowed: where it is let through, the test fails and does not hang.
    "floods-before-the-mark": (lambda s: (s.flood(1), s.end()), errors.HostError, "prints more than 64 KiB at login"),
    "escapes-before-the-mark": (
        lambda s: (s.say(ESCAPES * 9000, marked=False), s.end()),
        errors.HostError,
        "prints more than 64 KiB at login",
    ),
    "leaves-in-the-middle": (lose, errors.HostUnreachable, LOST),
    "hangs-up-in-the-middle": (close_all_but_status, errors.HostUnreachable, LOST),
    "closes-without-a-status": (
        lambda s: s.channel.close(),
        errors.HostError,
        "did not run our command and printed nothing",
    ),
    "ends-well-without-the-command": (
        lambda s: s.end(0),
        errors.HostError,
        "did not run our command and printed nothing",
    ),
    "claims-the-mark-of-another-run": (
        lambda s: (s.say(b"gpuprep " + b"0" * 32 + b"\n{}", marked=False), s.end(0)),
        errors.HostError,
        "did not run our command; its output: gpuprep 0000",
    ),
    "account-closed": (
        lambda s: (s.say(b"This account is currently not available.\n" + ESCAPES, marked=False), s.end(1)),
        errors.HostError,
        "login shell of me did not run our command; its output: This account is currently not available",
    ),
}


@pytest.mark.parametrize(
    "case",
    sshserver.telling(
        RUNNING, "says-nothing", "one-byte-at-a-time", "errors-for-ever", "output-ends-the-command-does-not",
        "new-keys-never", "floods-before-the-mark", "leaves-in-the-middle", "closes-without-a-status",
        "ends-well-without-the-command",
        "claims-the-mark-of-another-run", "account-closed",
    ),
)  # fmt: skip
def test_a_host_that_does_not_answer_as_asked(hostile: Serve, case: str) -> None:
    script, kind, words = RUNNING[case]
    refusal(hostile(script=script), kind, words)


@pytest.mark.parametrize("code", [0, 1, 255, 256, 65536, 4294967295])
def test_an_exit_code_that_no_process_has_is_only_a_number(hostile: Serve, code: int) -> None:
    server = hostile(script=lambda s: (s.say(b"said"), s.end(code)))
    with remote.Host(server.target, connect_timeout=PATIENT) as host:
        result = host.run("true")
    assert (result.exit_code, result.stdout) == (code, "said")


@pytest.mark.parametrize("length", [1, 100, 64_000])
def test_what_a_login_shell_prints_is_not_the_answer(hostile: Serve, length: int) -> None:
    noise = (b"Welcome!\n" + ESCAPES) * (length // 20 + 1)
    server = hostile(script=lambda s: (s.say(noise[:length], marked=False), s.say(b"{}"), s.end()))
    with remote.Host(server.target, connect_timeout=PATIENT) as host:
        assert host.run("true").stdout == "{}"


def test_a_mark_that_comes_in_pieces(hostile: Serve) -> None:
    def script(session: Session) -> None:
        for byte in b"hello " + session.mark + b"own":
            session.say(bytes([byte]), marked=False)
            time.sleep(0.002)
        session.end(4)

    with remote.Host(hostile(script=script).target, connect_timeout=PATIENT) as host:
        result = host.run("true")
    assert (result.exit_code, result.stdout) == (4, "own")


def test_of_endless_errors_the_end_stays_with_a_note(hostile: Serve) -> None:
    def script(session: Session) -> None:
        session.say(b"out")
        session.flood(5, stderr=True)
        session.channel.sendall_stderr(b"\nthe cause")
        session.end(1)

    with remote.Host(hostile(script=script).target, connect_timeout=PATIENT) as host:
        result = host.run("true")
    assert result.stderr.startswith("[gpuprep: ")
    assert result.stderr.endswith("\nthe cause")
    assert len(result.stderr) < 1.1 * (1 << 20)


def test_input_that_is_never_taken(hostile: Serve) -> None:
    """The window stays shut: nothing of the rest of our input can be sent."""
    server = hostile(script=hang, window=1000)
    with (
        pytest.raises(errors.TookTooLong, match="took longer"),
        remote.Host(server.target, connect_timeout=PATIENT) as host,
    ):
        host.run("cat", stdin=b"x" * 1_000_000, timeout=0.7)


def test_a_socket_that_is_never_read(hostile: Serve) -> None:
    """Not even that the channel is to be closed can be said: the connection is cut."""

    def script(session: Session) -> None:
        session.transport.packetizer.read_message = lambda: session.hang()  # after the message that it waits for now
        session.hang()

    server = hostile(script=script, window=1 << 30)
    with (
        pytest.raises(errors.TookTooLong, match="took longer"),
        remote.Host(server.target, connect_timeout=PATIENT) as host,
    ):
        host.run("cat", stdin=b"x" * 30_000_000, timeout=1.0)


@pytest.mark.parametrize("act", ["put", "get"])
def test_a_file_has_its_time_too(hostile: Serve, monkeypatch: pytest.MonkeyPatch, act: str) -> None:
    sshserver.impatient(monkeypatch, a_file=0.7)
    server = hostile(script=hang)
    with (
        pytest.raises(errors.TookTooLong, match="took longer"),
        remote.Host(server.target, connect_timeout=PATIENT) as host,
    ):
        host.put(b"x", "/x") if act == "put" else host.get("/x")


@pytest.mark.parametrize("act", ["put", "get"])
def test_the_words_of_a_failure_are_short_and_calm(hostile: Serve, act: str) -> None:
    def script(session: Session) -> None:
        session.say(b"")
        session.channel.sendall_stderr(ESCAPES + b"y" * 50_000)
        session.end(1)

    with (
        pytest.raises(errors.HostError) as caught,
        remote.Host(hostile(script=script).target, connect_timeout=PATIENT) as host,
    ):
        host.put(b"x", "/x") if act == "put" else host.get("/x")
    is_calm(caught.value.explain())


# ---------------------------------------------------------------- memory

CLIENT = """
import resource, sys
from gpuprep.errors import HostError
from gpuprep.remote import Host, LockOwner, Target
name, port, user, key, known_hosts, what = sys.argv[1:]
host = Host(Target(name, "127.0.0.1", int(port), user, key, known_hosts), connect_timeout=300)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    if what == "run":
        host.run("true")
    else:
        process = host.start("true")
        print(process.read_line(300).decode())
        process.ended(600)
        process.close()
except HostError as error:
    print(error.what)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize(
    ("script", "what", "words"),
    [
        pytest.param(lambda s: (s.say(b""), s.flood(40), s.end()), "run", "printed more than 32 MiB", id="output"),
        pytest.param(
            lambda s: (s.say(b""), s.flood(150, rules=False), s.end()), "run", "printed more than", id="no-window"
        ),
        pytest.param(
            lambda s: (s.say(b""), s.flood(100, stderr=True, rules=False), s.end()), "run", ".?", id="errors-no-window",
            marks=pytest.mark.machines,
        ),
        pytest.param(
            lambda s: (s.say(b"held\n"), s.flood(150, rules=False)), "start", "^held", id="while-the-lock-is-held",
            marks=pytest.mark.machines,
        ),
    ],
)  # fmt: skip
def test_a_flood_does_not_fill_the_controllers_memory(
    hostile: Serve, script: Callable[[Session], None], what: str, words: str
) -> None:
    target = hostile(script=script).target
    arguments = [target.name, target.port, target.user, target.identity_file, target.known_hosts, what]
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, *map(str, arguments)], capture_output=True, text=True, check=True
    )
    *said, grown = done.stdout.splitlines()
    assert re.search(words, "\n".join(said))
    assert int(grown) < 110_000, "kilobytes"  # 32 MiB of output, twice while it is copied, and a window


# ---------------------------------------------------------------- a command that goes on: the lock's


NO_LOCK = {
    "says-nothing": (Session.hang, "did not answer within"),
    "drips-a-line": (lambda s: (s.say(b""), s.drip(b"x", 0.005)), "did not answer within"),
    "endless-line": (lambda s: (s.say(b""), s.flood(1), s.end()), "a line of more than 64 KiB"),
    "drips-noise": (lambda s: s.drip(b"x\n", 0.005), "did not answer within"),
    "endless-noise": (lambda s: (s.flood(1), s.end()), "prints more than 64 KiB at login"),
    "escapes": (lambda s: (s.say(b"refused " + ESCAPES * 900 + b"\n"), s.end()), "cannot lock box"),
    "garbage": (lambda s: (s.say(b"\xff\xfe\n"), s.end(3)), "python3 there does not run our program: no message"),
    "errors": (lambda s: (s.say(b""), s.channel.sendall_stderr(b"e" * 90_000 + ESCAPES), s.end()), "cannot lock"),
    "no-python": (lambda s: (s.say(b"python\n"), s.end(3)), "there is no python3"),
    "hangs-up": (lambda s: s.transport.close(), "box: "),
}


@pytest.mark.parametrize(
    "case", sshserver.telling(NO_LOCK, "drips-a-line", "endless-line", "escapes", "errors", "no-python", "hangs-up")
)
def test_a_lock_that_is_answered_by_nonsense(hostile: Serve, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    script, words = NO_LOCK[case]
    sshserver.impatient(monkeypatch, a_lock=0.7 if "within" in words else PATIENT)
    host = remote.Host(hostile(script=script).target, connect_timeout=PATIENT)
    with pytest.raises(errors.HostError, match=words) as caught, remote.HostLock("box", OWNER, host.start):
        pass
    is_calm(caught.value.explain())
    host.close()


def test_a_lock_that_always_ends_at_once_keeps_nobody_busy(hostile: Serve) -> None:
    def script(session: Session) -> None:
        session.say(b"held\n")
        session.end(0)

    server = hostile(script=script)
    host = remote.Host(server.target, connect_timeout=PATIENT)
    began = time.monotonic()
    with remote.HostLock("box", OWNER, host.start):
        until(lambda: len(server.commands) >= 4, "it is not taken again")
        assert time.monotonic() - began >= 3 * 0.4  # its pause
    host.close()


def test_a_lock_is_released_although_the_host_takes_nothing(hostile: Serve) -> None:
    began: list[bool] = []

    def held_and_no_more(session: Session) -> None:
        session.say(b"held\n")
        new_keys_never(session, lambda: began.append(True))

    server = hostile(script=held_and_no_more)
    host = remote.Host(server.target, connect_timeout=PATIENT)
    with remote.HostLock("box", OWNER, host.start):
        until(lambda: bool(began), "no key exchange began")
    host.close()


# ---------------------------------------------------------------- the user stops the run


@pytest.mark.parametrize(
    "script", [pytest.param(hang, id="says-nothing"), pytest.param(lambda s: s.drip(b"x", 0.01), id="drips")]
)
def test_ctrl_c_ends_what_a_host_would_not(hostile: Serve, script: Callable[[Session], None]) -> None:
    server = hostile(script=script)
    stopped = lambda: bool(server.commands)  # noqa: E731
    with (
        pytest.raises(errors.Interrupted),
        remote.Host(server.target, connect_timeout=PATIENT, stopped=stopped) as host,
    ):
        host.run("true")


@pytest.mark.parametrize("stage", ["auth", "exec"])
def test_ctrl_c_ends_a_connecting_that_never_ends(hostile: Serve, stage: str) -> None:
    server = hostile(stall=stage)
    stopped = server.stalled.is_set
    with (
        pytest.raises(errors.Interrupted),
        remote.Host(server.target, connect_timeout=PATIENT, stopped=stopped) as host,
    ):
        host.run("true")


def test_sigterm_ends_the_program_although_the_host_does_not_let_go(hostile: Serve, home: Path, tmp_path: Path) -> None:
    server = hostile(script=hang)
    (home / ".ssh" / "known_hosts").write_text(server.known_hosts.read_text())
    argv = ["-c", "from gpuprep.cli import main; main()", "drift", f"me@127.0.0.1:{server.port}", "--profile", "t4"]
    argv += ["--ssh-key", str(server.target.identity_file)]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    with subprocess.Popen(
        [sys.executable, *argv], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as program:
        until(lambda: bool(server.commands) or program.poll() is not None, "no command came")
        assert program.poll() is None, program.stdout and program.stdout.read()
        program.send_signal(signal.SIGTERM)
        out, _ = program.communicate()
    assert program.returncode == 130, out
    assert "nterrupted" in out
