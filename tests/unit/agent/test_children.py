"""Nothing of an agent stays behind: real processes, killed in every way there is."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import sshserver
from places import ROOT
from waiting import alive, until

from gpuprep import errors, records
from gpuprep.agent.programs import children
from gpuprep.agent.programs.run import run
from gpuprep.remote import Host

HANGS = 300.0  # seconds; nothing here takes as long

# An agent that starts a program with a child of its own, one of which left its session, and then works on.
AGENT = """
import os, signal, sys, time
from gpuprep.agent.programs import children
children.watch()
{before}
with children.scratch("test") as folder:
    (folder / "big").write_text("x")
    process = children.start(["sh", "-c", "sleep 301 & setsid sleep 302 & : > pids; wait"], cwd={cwd!r})
    while not os.path.exists({cwd!r} + "/pids"):
        time.sleep(0.01)
    print(os.getpid(), folder, flush=True)
    {then}
"""


def sleepers(cwd: Path) -> list[int]:
    """Every process that works in the folder of this test: all that the agent started.

    A killed process gives back its memory first, with its environment, and its folder a moment later.
    """
    place = str(cwd.resolve())
    seen = psutil.process_iter(["cwd", "environ"])
    return [process.pid for process in seen if process.info["cwd"] == place and process.info["environ"]]


def program(cwd: Path, then: str, before: str = "") -> list[str]:
    return [sys.executable, "-c", AGENT.format(cwd=str(cwd), then=then, before=before)]


def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "tmp").mkdir(exist_ok=True)
    return {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "tmp")}


@pytest.fixture
def cwd(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "work"
    folder.mkdir()
    yield folder
    for pid in sleepers(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def nothing_stays(agent: int, tmp_path: Path, cwd: Path) -> None:
    until(lambda: not alive(agent), "the agent lives on", HANGS)
    until(lambda: not sleepers(cwd), "a child stays behind", HANGS)
    until(lambda: not list((tmp_path / "tmp").iterdir()), "a scratch folder stays behind", HANGS)


BLOCKED = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])"  # a call that never returns


@pytest.mark.parametrize(
    ("how", "before"),
    [
        *((how, "") for how in ("kill -9", "terminate", "interrupt", "hang up", "reader gone")),
        *((how, BLOCKED) for how in ("kill -9", "hang up", "reader gone")),
    ],
)
def test_nothing_outlives_the_agent(tmp_path: Path, cwd: Path, how: str, before: str) -> None:
    with subprocess.Popen(
        program(cwd, "time.sleep(300)", before), env=environment(tmp_path), stdout=subprocess.PIPE, text=True
    ) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline().split()[0] == str(agent.pid)
        until(lambda: len(sleepers(cwd)) == 3, "they did not start", HANGS)  # `setsid` becomes `sleep` late
        if how == "reader gone":
            agent.stdout.close()
        else:
            names = {"kill -9": "SIGKILL", "terminate": "SIGTERM", "interrupt": "SIGINT", "hang up": "SIGHUP"}
            agent.send_signal(getattr(signal, names[how]))
        code = agent.wait(HANGS)
    nothing_stays(agent.pid, tmp_path, cwd)
    if not before:
        expected = {"kill -9": -9, "terminate": 143, "interrupt": 130, "hang up": 129, "reader gone": 143}
        assert code == expected[how]


@pytest.mark.parametrize("then", ["pass", "raise ValueError('no')", "os._exit(3)"])
def test_an_agent_that_ends_by_itself_leaves_nothing_and_its_reader_waits_for_that(
    tmp_path: Path, cwd: Path, then: str
) -> None:
    done = subprocess.run(program(cwd, then), env=environment(tmp_path), capture_output=True, text=True, timeout=HANGS)
    assert not sleepers(cwd)
    assert not list((tmp_path / "tmp").iterdir())
    assert done.returncode == {"pass": 0, "os._exit(3)": 3}.get(then, 1)


@pytest.fixture
def sshd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sshserver.Sshd]:
    if sshserver.SSHD is None:
        pytest.skip("no sshd here")
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    server = sshserver.Sshd(tmp_path, home)
    server.trust()
    yield server
    server.stop()


def remote(tmp_path: Path, cwd: Path) -> str:
    """The agent as it is started over SSH, as an agent that does not notice TERM either."""
    words = " ".join(shlex.quote(word) for word in program(cwd, "time.sleep(300)", BLOCKED))
    return f"PYTHONPATH={ROOT} TMPDIR={tmp_path}/tmp {words}"


def test_a_channel_that_closes_ends_the_agent(tmp_path: Path, cwd: Path, sshd: sshserver.Sshd) -> None:
    environment(tmp_path)
    with Host(sshd.target()) as host:
        with pytest.raises(errors.GpuprepError, match="took longer"):
            host.run(remote(tmp_path, cwd), timeout=3)  # whether it has begun by then or not, nothing stays
        assert host.run("echo still connected").stdout == "still connected\n"
        nothing_stays(2**30, tmp_path, cwd)


CONTROLLER = """
import sys
sys.path.insert(0, {tests!r})
from gpuprep.remote import Host, Target
Host(Target(**{target!r})).run({command!r})
"""


@pytest.mark.parametrize("local", [False, True])
def test_a_controller_that_is_killed_ends_the_agent(
    tmp_path: Path, cwd: Path, sshd: sshserver.Sshd, local: bool
) -> None:
    target = {"name": "here", "local": True} if local else vars(sshd.target())
    code = CONTROLLER.format(tests=str(ROOT), target=target, command=remote(tmp_path, cwd))
    with subprocess.Popen([sys.executable, "-c", code], env=environment(tmp_path)) as controller:
        until(lambda: len(sleepers(cwd)) == 3, "the agent did not start", HANGS)
        controller.kill()
    nothing_stays(2**30, tmp_path, cwd)


def test_a_time_out_ends_grandchildren_and_does_not_wait_for_them(cwd: Path) -> None:
    said = run(["sh", "-c", "sleep 3600 & echo $$; wait"], timeout=0.5, cwd=str(cwd))
    assert said == records.Missing("command_failed", "sh took longer than 0.5 s")
    until(lambda: not sleepers(cwd), "a grandchild stays behind", HANGS)


def test_what_a_login_shell_starts_on_purpose_lives_on(tmp_path: Path, cwd: Path) -> None:
    shell = ["sh", "-c", "sleep 304 >/dev/null 2>&1 & touch started"]
    then = f"children.run({shell}, timeout=300, marked=False, cwd=%r)"
    done = subprocess.run(
        program(cwd, f"process.kill(); {then % str(cwd)}"),
        env=environment(tmp_path),
        capture_output=True,
        timeout=HANGS,
    )
    assert done.returncode == 0, done.stderr
    assert (cwd / "started").exists()
    assert [psutil.Process(pid).cmdline()[1] for pid in sleepers(cwd)] == ["304"]


def test_scratch_is_where_room_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with children.scratch("x") as folder:
        assert folder.parent == tmp_path
        assert folder.name.startswith("gpuprep-x-")
    assert not folder.exists()
    real = os.statvfs

    def full(place: str) -> object:
        fields = list(real(place))
        fields[4] = 0 if place == str(tmp_path) else fields[4]  # f_bavail
        return os.statvfs_result(fields)

    monkeypatch.setattr("os.statvfs", full)
    with children.scratch("x") as elsewhere:
        assert elsewhere.parent in (Path("/tmp"), Path("/var/tmp"))
    with pytest.raises(OSError, match=r"no room for 1073741824 MiB of temporary files: .* free some, or set TMPDIR"):
        children.scratch("x", 2**30).__enter__()


def test_a_number_that_is_free_again_is_not_killed(tmp_path: Path, cwd: Path) -> None:
    """The keeper forgets a program when it is reaped, by whichever call; what that left is known by its mark."""
    said: list[str] = []
    for reap in ("wait()", "communicate()", "poll() or process.wait()"):
        then = f"p = children.start(['true']); p.{reap.replace('process', 'p')}; print(p.reaped_noted, flush=True)"
        done = subprocess.run(
            program(cwd, then), env=environment(tmp_path), capture_output=True, text=True, timeout=HANGS
        )
        said.append(done.stdout.splitlines()[-1])
        (cwd / "pids").unlink()
    assert said == ["True"] * 3
    assert not sleepers(cwd)


def process(proc: Path, pid: int | str, started: int, *, environment: bytes = b"", program: bool = True) -> Path:
    """A process as /proc shows it."""
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "environ").write_bytes(environment)
    (folder / "stat").write_bytes(b"7 (a) b) S " + b"0 " * 18 + b"%d 0\n" % started)
    if program:
        (folder / "exe").symlink_to("/bin/sh")
    return folder


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(children, "PROC", tmp_path)
    process(tmp_path, "self", 1000)
    return tmp_path


def test_a_program_that_is_being_started_is_looked_at_again(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment is empty until it is: what an agent left so outlived it."""
    starting = process(proc, 7, 1001)
    monkeypatch.setattr(children, "STARTING_MS", 300_000)
    timer = threading.Timer(0.2, lambda: (starting / "environ").write_bytes(b"A=1\0MARK=me\0"))
    timer.start()
    try:
        assert children._marked(b"MARK=me") == [7]
    finally:
        timer.join()


def test_what_is_no_program_of_an_agent_is_not_waited_for(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process(proc, 1, 999)  # older
    process(proc, 2, 1001, program=False)  # the kernel's own, or dying
    process(proc, 3, 1001, environment=b"A=1\0")
    (proc / "4").mkdir()  # gone
    monkeypatch.setattr(children, "PAUSE_MS", 60_000)
    monkeypatch.setattr(children, "STARTING_MS", 60_000)
    began = time.monotonic()
    assert children._marked(b"MARK=me") == []
    assert time.monotonic() - began < 59  # no pause, which is a minute
