"""Who uses a machine: programs on its GPUs, jobs of Slurm, users who are logged in; and what could not be read."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path, PosixPath
from typing import Any

import pytest
from places import COLLECTION, ROOT

from gpuprep.agent import inuse, turn

ME = pwd.getpwuid(os.getuid()).pw_name
SESSIONS = """\
Id=12
Name=bob
TTY=pts/3
Timestamp=Sun 2026-11-29 10:12:01 UTC
Remote=yes
RemoteHost=10.0.0.7
Class=user
State=active

Name=root
TTY=
Timestamp=Sun 2026-11-29 10:13:01 UTC
Remote=yes
RemoteHost=10.0.0.8
Class=user

Name=root
TTY=ttyS0
Timestamp=Sun 2026-11-29 10:14:01 UTC
Remote=no
RemoteHost=
Class=user-early

Name=gdm
TTY=tty1
Timestamp=Sun 2026-11-29 09:00:01 UTC
Remote=no
Class=greeter
"""
BOB = "bob on pts/3 since Sun 2026-11-29 10:12:01 UTC from 10.0.0.7"
NOBODY = {"loginctl list-sessions": ""}


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of /proc."""
    folder = tmp_path / "proc"
    (folder / "self").mkdir(parents=True)
    (folder / "self/cgroup").write_text("0::/user.slice/user-0.slice/session-c7.scope\n")
    monkeypatch.setattr(inuse, "PROC", folder)
    devices = tuple(str(tmp_path / Path(device).name) for device in inuse.DEVICES)
    monkeypatch.setattr(inuse, "DEVICES", devices)
    return folder


class Closed(PosixPath):
    """A /proc whose processes do not show their open files."""

    def iterdir(self) -> Generator[Closed, None, None]:
        if self.name == "fd":
            raise PermissionError
        yield from super().iterdir()


def driver_loaded() -> tuple[str, str]:
    """The device files that the driver makes, of CUDA and of graphics."""
    for device in inuse.DEVICES:
        Path(device).touch()
    compute, graphics = inuse.DEVICES
    return compute, graphics


def begin(proc: Path, pid: int, name: str, *opened: str) -> None:
    (proc / str(pid) / "fd").mkdir(parents=True)
    (proc / str(pid) / "comm").write_text(f"{name}\n")
    for number, path in enumerate(opened):
        (proc / str(pid) / "fd" / str(number)).symlink_to(path)


def answers(said: Mapping[str, str | None], asked: list[str] | None = None) -> inuse.Run:
    """By the beginning of the command; any other one fails."""

    def run(*command: str) -> str | None:
        words = " ".join(command)
        if asked is not None:
            asked.append(words)
        return next((text for begins, text in said.items() if words.startswith(begins)), None)

    return run


def look(said: Mapping[str, str | None] = NOBODY, **options: Any) -> dict[str, Any]:
    return inuse.state(answers(said), **options)


# ---------------------------------------------------------------- programs


def test_programs_on_gpus_are_named_less_those_that_watch_and_our_own(proc: Path) -> None:
    begin(proc, 812, "python3")
    begin(proc, 813, "nv-hostengine")
    begin(proc, 814, "python3")
    on: dict[int, tuple[str, Sequence[int]]] = {
        813: ("nv-hostengine", [0]), 812: ("", [0, 1]), 814: ("", [0]), 99: ("train\x1b[2J{{ x }}", [1]),
        77: ("nvidia-persistenced", [0]),
    }  # fmt: skip
    found = look(on_gpus=on, own=[814])
    assert found["programs"] == ["train?2J? x ? (process 99) on gpu 1", f"python3 (process 812, {ME}) on gpu 0, 1"]
    assert found["unknown"] == {}


def test_where_nvml_does_not_answer_open_devices_tell_who_is_at_work(proc: Path) -> None:
    compute, graphics = driver_loaded()
    begin(proc, 10, "bash", "/dev/null")
    begin(proc, 11, "nvidia-smi", "/dev/nvidiactl", "/dev/nvidia0")
    begin(proc, 12, "python3", "/dev/nvidia0", compute)
    begin(proc, 13, "Xorg", graphics)
    begin(proc, 14, "nvidia-persiste", graphics)
    (proc / "15").mkdir()  # it has just ended
    assert look()["programs"] == [f"python3 (process 12, {ME})", f"Xorg (process 13, {ME})"]


def test_who_may_not_see_open_files_does_not_know_unless_there_is_no_driver(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(proc, 10, "bash")
    monkeypatch.setattr(inuse, "PROC", Closed(proc))
    assert look() == {"programs": [], "jobs": [], "users": [], "unknown": {}}
    driver_loaded()
    assert look()["unknown"] == {"programs": "the open files of process 10 may not be read"}


def test_no_more_are_named_than_a_reader_can_use(proc: Path) -> None:
    assert proc.is_dir()
    found = look(on_gpus={pid: ("a", [0]) for pid in range(5000, 5100)})
    assert (len(found["programs"]), found["programs"][-1]) == (inuse.MOST + 1, "80 more")


# ---------------------------------------------------------------- Slurm


def test_without_slurmd_nobody_is_asked_for_jobs(proc: Path) -> None:
    begin(proc, 10, "bash")
    asked: list[str] = []
    found = inuse.state(answers(NOBODY, asked))
    assert (found["jobs"], [words for words in asked if "squeue" in words]) == ([], [])


def test_jobs_on_this_node_are_named_by_number_and_user(
    proc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(proc, 10, "slurmd")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(inuse, "SLURM_FOLDERS", ())
    monkeypatch.setenv("SLURMD_NODENAME", "gpu-7")
    assert look()["unknown"] == {"jobs": "slurmd runs, and squeue is not found"}
    squeue = tmp_path / "squeue"
    squeue.touch(0o755)
    assert look()["unknown"] == {"jobs": "squeue gives no answer about node gpu-7"}
    asked: list[str] = []
    told = answers({**NOBODY, str(squeue): "71 alice\n72 m{{ x }}\n\n"}, asked)
    assert inuse.state(told)["jobs"] == ["Slurm's job 71 of alice", "Slurm's job 72 of m? x ?"]
    assert f"{squeue} --noheader --nodelist=gpu-7 --states={inuse.JOB_STATES} --format=%A %u" in asked


# ---------------------------------------------------------------- users


def test_users_with_a_terminal_are_named_and_the_own_session_is_not(proc: Path) -> None:
    assert proc.is_dir()
    asked: list[str] = []
    said = {"loginctl list-sessions": "c7 0 root - pts/0\n 12 1000 bob - pts/3\n13 0 root\n", "loginctl show": SESSIONS}
    assert inuse.state(answers(said, asked))["users"] == [BOB, "root on ttyS0 since Sun 2026-11-29 10:14:01 UTC"]
    assert asked[-1].endswith(" --property=State 12 13")


SSHD = [("sshd", 0), ("sshd", 0)]


@pytest.mark.parametrize(
    ("told", "state", "processes", "named"),
    [
        ("pts/3", "active", SSHD, []),
        ("pts/3", "active", [("sshd-session", 0), ("sshd-session", 0)], []),
        ("pts/3", "active", [*SSHD, ("bash", 34819)], [BOB]),
        ("pts/3", "active", [*SSHD, ("ba) sh (", 34819)], [BOB]),
        ("", "active", [*SSHD, ("bash", 34819)], [BOB]),
        ("", "active", [*SSHD, ("bash", 35075)], [BOB.replace("pts/3", "pts/259")]),
        ("", "active", [*SSHD, ("agetty", 1089)], [BOB.replace("pts/3", "a terminal")]),
        ("pts/3", "active", [("lxsession", 0)], [BOB]),
        ("pts/3", "closing", [("gpg-agent", 0)], []),
        ("pts/3", "closing", [("tmux: server", 0), ("bash", 34819)], [BOB]),
        ("pts/3", "active", [], [BOB]),
        ("pts/3", "closing", [], [BOB]),
        ("", "active", [*SSHD, ("sftp-server", 0)], []),
    ],
    ids=[
        "a shared connection whose terminal is closed", "the same of a newer OpenSSH", "a shell", "a name like a stat",
        "a shell, without utmp", "of many terminals", "a line", "a screen", "logged out, and dnf left a program",
        "logged out of tmux", "not shown", "logged out, not shown", "scp",
    ],
)  # fmt: skip
def test_who_is_at_a_terminal_is_read_from_the_processes(
    proc: Path, told: str, state: str, processes: Sequence[tuple[str, int]], named: list[str]
) -> None:
    """logind has it from utmp: never on a system without that, and of a shared connection for too long."""
    for pid, (name, terminal) in enumerate(processes, start=70):
        begin(proc, pid, name)
        (proc / str(pid) / "cgroup").write_text("1:name=systemd:/user.slice/user-1000.slice/session-12.scope\n")
        (proc / str(pid) / "stat").write_text(f"{pid} ({name}) S 1 {pid} {pid} {terminal} -1 4194560 0\n")
    begin(proc, 99, "bash")
    (proc / "99/cgroup").write_text("0::/user.slice/user-0.slice/session-c7.scope\n")
    (proc / "99/stat").write_text("99 (bash) S 1 99 99 34820 -1 4194560 0\n")
    shown = SESSIONS.partition("\n\n")[0].replace("TTY=pts/3", f"TTY={told}")
    shown = shown.replace("State=active", f"State={state}")
    assert (
        look({"loginctl list-sessions": "c7 0 root - pts/4\n12 1000 bob\n", "loginctl show": shown})["users"] == named
    )


@pytest.mark.parametrize(
    ("said", "users", "unknown"),
    [
        ({"who": "bob      pts/3        2026-11-29 10:12 (10.0.0.7)\n"}, ["bob pts/3 2026-11-29 10:12 ?10.0.0.7?"], {}),
        ({"who": ""}, [], {}),
        ({}, [], {"users": "neither loginctl nor who answers"}),
        ({"loginctl list": "12 1000 bob\n"}, [], {"users": "loginctl does not show the sessions that it lists"}),
        ({"loginctl list": "--help 1 x\n$(id) 1 x\n"}, [], {}),
    ],
    ids=["no logind", "no logind, nobody", "neither", "lists and does not show", "words of a shell"],
)
def test_where_logind_does_not_answer(
    proc: Path, said: Mapping[str, str], users: list[str], unknown: dict[str, str]
) -> None:
    assert proc.is_dir()
    found = look(said)
    assert (found["users"], found["unknown"]) == (users, unknown)


# ---------------------------------------------------------------- the rule

PROGRAM, JOB = "python3 (process 812, alice) on gpu 0", "Slurm's job 71 of alice"


@pytest.mark.parametrize(
    ("found", "restart", "gpus"),
    [
        ({}, ([], []), ([], [])),
        ({"programs": [PROGRAM]}, ([PROGRAM], []), ([PROGRAM], [])),
        ({"jobs": [JOB]}, ([JOB], []), ([JOB], [])),
        ({"users": [BOB]}, ([BOB], []), ([], [])),
        ({"unknown": {"users": "x"}}, ([], ["who is logged in is not known: x"]), ([], [])),
        ({"unknown": {"jobs": "x"}}, *[([], ["whether Slurm runs a job here is not known: x"])] * 2),
        ({"unknown": {"programs": "x"}}, *[([], ["whether a program uses a GPU is not known: x"])] * 2),
    ],
)
def test_what_hinders_a_restart_and_what_a_change_of_the_gpus(found: dict[str, Any], restart: Any, gpus: Any) -> None:
    whole = {"programs": [], "jobs": [], "users": [], "unknown": {}, **found}
    assert (inuse.hindering(whole, restart=True), inuse.hindering(whole, restart=False)) == (restart, gpus)


# ---------------------------------------------------------------- the collection's module


def test_the_module_asks_the_same_file_and_knows_our_own_programs(tmp_path: Path) -> None:
    assert (COLLECTION / "plugins/module_utils/inuse.py").resolve() == ROOT / "gpuprep/agent/inuse.py"
    own = tmp_path / "turn"
    own.write_text(f"{os.getpid()} {inuse.start(str(os.getpid()))}\n")
    arguments = json.dumps({"ANSIBLE_MODULE_ARGS": {"own": str(own)}})
    program = "from ansible_collections.gpuprep.gpu.plugins.modules import in_use; in_use.main()"
    done = subprocess.run(
        [sys.executable, "-c", program], input=arguments, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": f"{COLLECTION.parents[2]}:{os.environ.get('PYTHONPATH', '')}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer["by"], list)
    assert not any(f"process {os.getpid()}," in sentence for sentence in answer["by"])
    assert turn.running() is not None
