"""Who uses a GPU, with real processes of real users, and how findings name them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from fakepynvml import gpu, install, refuse, t4_answers

from gpuprep import records
from gpuprep.agent.gpu import gpuprocess
from gpuprep.checks import conditions
from gpuprep.records import evidence
from gpuprep.records.evidence import shared
from gpuprep.remote import agent_client

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
NO_ACCOUNT = 54321
SECONDS = 300  # within which whatever is here ends; it takes a fraction of one

# A program that calls itself `name`, then says so and waits until its input ends.
CALLED = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(15, os.fsencode(sys.argv[1]), 0, 0, 0)
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def running(*prefix: str, name: str = "trainer") -> Iterator[int]:
    """The process id of a living program, started by `prefix`."""
    words = [*prefix, "/usr/bin/python3", "-I", "-S", "-c", CALLED, name]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.pid
        process.kill()


def as_user(uid: int) -> tuple[str, ...]:
    return ("/usr/bin/setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")


def test_a_program_of_mine() -> None:
    import getpass

    began = time.monotonic()
    with running() as pid:
        name, owner, age = gpuprocess.look(pid)
        took = time.monotonic() - began
    assert (name, owner) == ("trainer", getpass.getuser())
    assert isinstance(age, int)
    assert 0 <= age <= took + 2


@needs_root
def test_another_users_program_and_one_of_no_account() -> None:
    with running(*as_user(65534)) as pid:
        assert gpuprocess.look(pid)[:2] == ("trainer", "nobody")
    with running(*as_user(NO_ACCOUNT)) as pid:
        assert gpuprocess.look(pid)[:2] == ("trainer", str(NO_ACCOUNT))


def test_an_age_is_that_of_the_program() -> None:
    """pid 1 is as old as this machine or container."""
    _, _, age = gpuprocess.look(1)
    assert isinstance(age, int)
    assert abs(age - (time.time() - psutil.Process(1).create_time())) < 2


@pytest.mark.parametrize("name", ["a) R 1 1 (b", "a b", "x\x1b[2J", "\u202etxt", "a\nb", ")", "Uid: 0 0 0"])
def test_a_name_that_imitates_the_kernels_files(name: str) -> None:
    with running(name=name) as pid:
        assert gpuprocess.look(pid)[:2] == (name, psutil.Process().username())


def test_a_command_line_is_not_read(tmp_path: Path) -> None:
    """psutil's own name() takes a longer one from there: of any length, in memory that may never answer."""
    (tmp_path / "trainer-of-many").symlink_to("/bin/sh")  # 15 letters: all that the kernel keeps of a name
    words = ["trainer-of-many" + "x" * 100_000, "-c", "echo ready; read _"]
    with subprocess.Popen(
        words, executable=tmp_path / "trainer-of-many", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert len(psutil.Process(process.pid).name()) > 100_000
        assert gpuprocess.look(process.pid)[0] == "trainer-of-many"
        process.kill()


def test_a_program_that_has_ended() -> None:
    with running() as pid:
        pass
    name, owner, age = gpuprocess.look(pid)
    assert name == ""
    assert isinstance(owner, records.Missing)
    assert owner.reason == "not_visible"
    assert age == owner


def test_a_program_that_has_ended_and_is_not_reaped() -> None:
    process = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert gpuprocess.look(process.pid)[:2] == ("true", psutil.Process().username())
    process.wait()


# ---------------------------------------------------------------- in process ids and a /proc of its own


def in_own_proc(program: str, *words: str, mount: str = "rw") -> Any:
    """What the program prints as JSON, as root of new process ids, with a /proc that shows those alone."""
    script = 'mount -t proc -o "$1" proc /proc && shift && exec "$@"'
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount", "--kill-child", "sh", "-c", script, "sh", mount,
         sys.executable, "-c", program, *words],
        capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"no namespaces here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


REUSED = """
import json, os, subprocess, sys
from gpuprep.agent.gpu import gpuprocess
from gpuprep.records import to_json_value

def start():
    return subprocess.Popen(["sleep", "60"])

first = start()
other = None

def between(frame, event, argument):
    '''When the name was read: the program ends, and another gets its number.'''
    global other
    if event == "return" and frame.f_code is gpuprocess._name.__code__ and other is None:
        first.kill(), first.wait()
        with open("/proc/sys/kernel/ns_last_pid", "w") as last:
            last.write(str(first.pid - 1))
        other = start()

sys.setprofile(between)
seen = gpuprocess.look(first.pid)
sys.setprofile(None)
other_seen = gpuprocess.look(other.pid)
print(json.dumps([first.pid == other.pid, to_json_value(seen), to_json_value(other_seen)]))
other.kill(), other.wait()
"""


@needs_root
def test_a_number_that_is_another_programs_meanwhile() -> None:
    same, seen, after = in_own_proc(REUSED)
    assert same, "the test did not get the number again"
    assert seen[0] == ""
    assert seen[1]["missing"] == seen[2]["missing"] == "not_visible"
    assert after[:2] == ["sleep", "root"]


HIDDEN = """
import json, os, sys
import psutil
from gpuprep.agent.gpu import gpuprocess
from gpuprep.records import to_json_value
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
print(json.dumps(to_json_value([gpuprocess.look(1 + (os.getpid() == 1)), gpuprocess.look(os.getpid())])))
"""


@needs_root
@pytest.mark.parametrize("hidepid", [1, 2])
def test_proc_that_hides_other_users(hidepid: int) -> None:
    # A second process, of root, is the parent: the program itself is not number 1.
    program = f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', {HIDDEN!r}]).returncode)"
    hidden, own = in_own_proc(program, mount=f"hidepid={hidepid}")
    assert hidden[0] == ""
    assert hidden[1]["missing"] == "not_visible"
    assert own[1] == "nobody"
    assert own[2] >= 0


# ---------------------------------------------------------------- what it costs


LISTS = """
import json, os, sys
import psutil
from gpuprep.agent.gpu import gpuprocess
seen = []
sys.addaudithook(lambda event, words: seen.append(str(words[0])) if event in ("os.listdir", "os.scandir") else None)
gpuprocess.look(os.getpid())
print(json.dumps(seen))
"""


def test_other_processes_are_not_looked_at() -> None:
    """So it takes as long on a host with 50,000 processes as on one with ten."""
    done = subprocess.run([sys.executable, "-c", LISTS], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def gpu_with(monkeypatch: pytest.MonkeyPatch, pids: Sequence[int], **answers: Any) -> Any:
    listing = [types.SimpleNamespace(pid=pid, usedGpuMemory=300 * 2**20) for pid in pids]
    given = {"nvmlDeviceGetComputeRunningProcesses": listing, "nvmlDeviceGetGraphicsRunningProcesses": []}
    install(monkeypatch, {**t4_answers(), **given, **answers})
    return gpu()


def test_a_gpu_with_10000_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.process_time()
    found = gpu_with(monkeypatch, range(1, 10_001), nvmlSystemGetProcessName=refuse(6)).processes()
    assert time.process_time() - began < SECONDS
    assert isinstance(found, list)
    assert len(found) == 10_000
    mine = found[os.getpid() - 1] if os.getpid() <= 10_000 else found[0]
    assert isinstance(mine.owner, str)


def test_nvml_names_what_is_not_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = 2**22
    found = gpu_with(monkeypatch, [nobody], nvmlSystemGetProcessName=b"/usr/bin/python3").processes()
    assert isinstance(found, list)
    assert (found[0].name, found[0].memory_mib) == ("/usr/bin/python3", 300)
    assert isinstance(found[0].owner, records.Missing)


def test_the_agent_that_is_sent_along_leaves_out_what_only_psutil_tells(tmp_path: Path) -> None:
    (tmp_path / "agent.zip").write_bytes(agent_client.agent_archive())
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'agent.zip')!r})\n"
        "import json, os; from gpuprep.agent.gpu import gpuprocess; from gpuprep.agent.compute import cpu\n"
        "from gpuprep.records import to_json_value\n"
        "with cpu.CpuUse() as use: pass\n"
        "print(json.dumps(to_json_value([*gpuprocess.look(os.getpid()), use.busy_percent])))"
    )
    done = subprocess.run(["/usr/bin/python3", "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    name, owner, age, busy = json.loads(done.stdout)
    assert name == "python3"
    assert owner["missing"] == age["missing"] == busy["missing"] == "not_installed"


# ---------------------------------------------------------------- words


def read(**values: Any) -> shared.Process:
    """A process as a measurement has it."""
    found = evidence.measured(shared.Process, values)
    assert isinstance(found, shared.Process)
    return found


def test_a_record_of_before_is_still_read() -> None:
    process = records.from_json_value(records.ProcessOnGpu, {"pid": 77, "name": "python3", "memory_mib": 300})
    assert (process.owner, process.age_seconds) == (records.NOT_READ, records.NOT_READ)
    assert conditions.shown_process(process) == "python3 (pid 77)"


@pytest.mark.parametrize(
    ("process", "words"),
    [
        (records.ProcessOnGpu(4711, "python3", 300, "alice", 7300), "python3 (pid 4711, alice, since 2 h)"),
        (records.ProcessOnGpu(4711, "", 300, "alice", 59), "a program (pid 4711, alice, since 59 s)"),
        (records.ProcessOnGpu(4711, "python3", 300, records.NOT_READ, 60), "python3 (pid 4711, since 1 min)"),
        (records.ProcessOnGpu(4711, "python3", 300, "alice", records.NOT_READ), "python3 (pid 4711, alice)"),
        ({"pid": 7, "name": "python3"}, "python3 (pid 7)"),
        ({"pid": 7, "name": "python3", "owner": "bob", "age_seconds": 200_000}, "python3 (pid 7, bob, since 2 d)"),
        ({"owner": {"missing": "not_visible"}, "age_seconds": -5}, "a program (pid ?)"),
        ({"pid": 7, "name": 3, "owner": 4, "age_seconds": 10**400}, "a program (pid 7)"),
        ({"pid": 7, "name": "a\nb\x1b[2J", "owner": "root\u202e\n"}, "a b\\x1b[2J (pid 7, root\\u202e)"),
    ],
)
def test_how_a_process_is_named(process: records.ProcessOnGpu | dict[str, Any], words: str) -> None:
    assert conditions.shown_process(process if isinstance(process, records.ProcessOnGpu) else read(**process)) == words


def test_a_long_name_is_cut() -> None:
    text = conditions.shown_process(read(pid=7, name="n" * 10**6, owner="o" * 10**6))
    assert len(text) < 2 * conditions.MOST_NAME_LETTERS + 20


def test_several() -> None:
    assert (
        conditions.shown_processes([read(pid=1, name="a"), records.ProcessOnGpu(2, "b", 1)]) == "a (pid 1), b (pid 2)"
    )
    assert conditions.shown_processes([]) == ""


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h"), (86399, "23 h"), (86400, "1 d")]
)
def test_spans(seconds: int, words: str) -> None:
    assert conditions.span(seconds) == words
