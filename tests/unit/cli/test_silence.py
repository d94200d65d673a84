"""A run without a terminal is never silent for more than 15 s; what its lines say; failures that are one."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import amount
import psutil
import pytest
from fakeprograms import program
from places import SUPPORT
from progresslog import Log, compiled, event, folders, on_this_computer, part_done
from pseudoterminal import Program

from gpuprep.codecbuild import buildroot

MOST_SILENT = 15.0


def test_every_kind_of_work_is_told_again_and_again() -> None:
    log = Log("gpu-01")
    log.wait(40.0)  # before anything was heard of the host
    log.tell("stage", "reading facts")
    log.wait(70.0)
    log.tell("task_start", role="gpu_driver", task="Build the driver")
    log.wait(90.0)
    log.tell("waiting", "compiled 4 of 9 files", role="gpu_driver", task="Build the driver")
    log.wait(90.0)
    log.tell("task_end", "changed", role="gpu_driver", task="Build the driver")
    log.wait(60.0)  # between two tasks
    log.tell("stage", "transcodes of NVIDIA's FFmpeg guide", task="transcode")
    log.wait(50.0)
    assert log.longest_silence <= MOST_SILENT
    text = "\n".join(log.said)
    assert re.search(r"  reading facts, 0:12$", text, re.MULTILINE)
    assert re.search(r"  Build the driver, compiled 4 of 9 files, 1:4\d$", text, re.MULTILINE)


def test_what_a_probe_does_and_what_is_left_of_it_and_of_the_run() -> None:
    log = Log("gpu-01")
    steps = (("facts", 5.0), ("transcode", 111.0), ("throughput", 60.0))
    log.tell("steps", steps=steps)
    log.tell("stage", "transcodes of NVIDIA's FFmpeg guide", task="transcode")
    log.clock.now += 40.5
    log.tell("doing", "scale-cuda", task="transcode", done=12, of=30, unit="transcodes")
    log.lines.clear()
    log.wait(0.5)
    assert log.said == ["  0:41   transcodes 12/30, scale-cuda, 0:41, about 1:10 left, about 2:15 left of the run"]


def test_without_earlier_runs_a_probe_goes_by_its_own_pace() -> None:
    log = Log("gpu-01")
    log.tell("stage", "aggregate throughput of the video engines", task="throughput")
    log.wait(20.0)
    log.tell("doing", "encode h264 p3, 4 at once", task="throughput", done=2, of=8, unit="series")
    log.wait(10.0)
    assert log.said[-1].endswith("series 2/8, encode h264 p3, 4 at once, 0:24, about 0:56 left")


def test_several_hosts_are_one_line() -> None:
    hosts = [f"web{number}" for number in range(1, 61)]
    log = Log(*hosts)
    for host in hosts[:10]:
        log.tell("stage", "reading facts", host=host)
    for host in hosts[:3]:
        log.ended(host, 0)
    log.ended(hosts[3], 1)
    log.lines.clear()
    log.wait(MOST_SILENT)
    [line] = log.said
    assert line == (
        "  0:12 4/60, 3 ok, 1 failed; web5: reading facts, 0:12; web6: reading facts, 0:12; web7: reading facts, 0:12; "
        "and 3 more at work"
    )
    log.wait(60.0)
    assert log.longest_silence <= MOST_SILENT


def test_quiet_is_silent() -> None:
    log = Log("a", "b", quiet=True)
    log.tell("stage", "reading facts", host="a")
    log.ended("a", 3, "a: cannot be reached")
    log.close()
    assert log.said == []


@pytest.mark.parametrize("told", [0, 5, 10])
def test_the_part_that_is_done_never_goes_beyond_all(told: int) -> None:
    events = [
        event("steps", steps=(("facts", None), ("gemm", None))),
        event("stage", "matrix products", task="gemm"),
        event("doing", "bf16", done=told, of=10, unit="types"),
    ]
    assert part_done(events) == pytest.approx(0.5 + told / 20)


# ---------------------------------------------------------------- failures that are one


def unreachable(host: str, address: str = "10.0.0.7") -> str:
    return f"{host}: {address} does not answer on {host} port 22\nwhat to do: see `ssh {host}`"


def test_an_equal_failure_of_many_hosts_is_told_once_with_a_count() -> None:
    hosts = [f"web{number}" for number in range(1, 13)]
    log = Log(*hosts, "db1")
    for number, host in enumerate(hosts):
        log.ended(host, 3, unreachable(host, f"10.0.0.{number}"), f"run-{number}")
    log.ended("db1", 2, "db1: the profile does not fit")
    log.wait(10.0)
    assert log.said == [
        "  0:00 web1 | 10.0.0.0 does not answer on web1 port 22",
        "  0:00 db1 | the profile does not fit",
        "  0:05 11 more hosts: ADDRESS does not answer on HOST port 22: web2, web3 and 9 more",
    ]


def test_what_is_not_yet_told_is_told_at_the_end() -> None:
    log = Log("a", "b")
    for host in ("a", "b"):
        log.ended(host, 3, unreachable(host))
    assert not log.said[-1].endswith(": b")
    log.close()
    assert log.said[-1].endswith("1 more host: ADDRESS does not answer on HOST port 22: b")


def failures(*told: tuple[str, str, str]) -> list[str]:
    """Hosts that failed, each with its error and run; what the log says of them, without times."""
    log = Log(*{host: "" for host, _, _ in told})
    for host, error, run in told:
        log.ended(host, 3, error, run)
    log.close()
    return [line.split(None, 1)[1] for line in log.said]


def test_names_are_whole_words_and_others_are_other_failures() -> None:
    assert failures(("web1", "web1: x", "r1"), ("web3", "web10: x", "r3"), ("web2", "web2: x", "r2")) == [
        "web1 | x", "web3 | web10: x", "1 more host: x: web2",
    ]  # fmt: skip


def test_where_it_was_and_its_log_make_no_other_failure() -> None:
    said = failures(
        *(
            (host, f"{host}: at gpus.example.org\nwhere: {host}\nsee runs/r-{host}/ansible.log", f"r-{host}")
            for host in "ab"
        )
    )
    assert said[-1] == "1 more host: at gpus.example.org: b"


@pytest.mark.parametrize(("others", "named"), [("bcde", "b, c, d, e"), ("bcdef", "b, c and 3 more")])
def test_many_hosts_are_named_by_the_first(others: str, named: str) -> None:
    said = failures(*((host, f"{host}: x", f"r-{host}") for host in f"a{others}"))
    assert said[-1] == f"{len(others)} more hosts: x: {named}"


def test_an_address_is_no_version() -> None:
    said = failures(("a", "a: 1.2.3.4 v1.2.3 10.0.0.77.", ""), ("b", "b: 4.3.2.1 v1.2.3 10.0.0.78.", ""))
    assert said[-1] == "1 more host: ADDRESS v1.2.3 ADDRESS.: b"


def test_a_name_with_signs_of_patterns_is_a_name() -> None:
    said = failures(("[a-z", "[a-z: no answer", ""), ("(b", "(b: no answer", ""))
    assert said == ["[a-z | no answer", "1 more host: no answer: (b"]


# ---------------------------------------------------------------- the commands themselves

# As the program of test_cli_terminal. Each look and each probe waits for a byte in the FIFO `gate`.
SLOWLY = """
import os, signal, sys
sys.path.insert(0, {tests!r})
signal.signal(signal.SIGINT, signal.default_int_handler)
from builders import bare_snapshot, finished_snapshot, good_probes, measured_t4, resolved
from fakehost import FakeHost, Script
from gpuprep.cli import console, main
from gpuprep.workflows import runs

console.SILENT_SECONDS = 0.1
WANTED = resolved()
GATE = os.open({gate!r}, os.O_RDONLY)

class Slow(FakeHost):
    def run(self, command, **options):
        if " facts " in command or " probe gemm" in command or " probe toolkit" in command:
            os.read(GATE, 1)
        return super().run(command, **options)

probes = {{result.probe: result for result in (*good_probes(WANTED), *measured_t4())}}
script = Script(snapshots=[finished_snapshot(WANTED)], probes=probes)
runs.Host = lambda target, **options: Slow(script, target, options)
main({words!r})
"""
COMMANDS = {
    "provision": ["provision", "gpu-01", "--profile", "t4"],
    "validate": ["validate", "gpu-01", "--profile", "t4", "--only", "toolkit,gemm"],
    "drift": ["drift", "gpu-01", "--profile", "t4"],
    "plan": ["plan", "gpu-01", "--profile", "t4"],
    "tune": ["tune", "gpu-01", "--profile", "t4"],
    "validate of several": ["validate", "gpu-01", "gpu-02", "--profile", "t4", "--only", "toolkit"],
    "drift --probe": ["drift", "gpu-01", "--profile", "t4", "--probe", "quick"],
    "drift --fix": ["drift", "gpu-01", "--profile", "t4", "--fix"],
}
SAYS_NOTHING = 300.0  # seconds: no machine is so busy


def slowly(tmp_path: Path, words: list[str]) -> str:
    stored = [*words, "--store", f"sqlite:///{tmp_path}/history.db"] if words[0] != "plan" else words
    return SLOWLY.format(tests=str(SUPPORT), gate=f"{tmp_path}/gate", words=stored)


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Callable[[], int]]:
    """Lets a command go on from where it waits."""
    os.mkfifo(tmp_path / "gate")
    gate = os.open(tmp_path / "gate", os.O_RDWR)
    yield lambda: os.write(gate, b"x")
    os.close(gate)


@pytest.mark.parametrize("name", amount.few(COMMANDS, 1))
def test_no_command_is_silent_in_a_log(tmp_path: Path, release: Callable[[], int], name: str) -> None:
    """Whatever it waits for, lines go on coming; each time it goes on only after two of them."""
    waited = again = 0
    with subprocess.Popen(
        [sys.executable, "-c", slowly(tmp_path, COMMANDS[name])], env={**os.environ, **folders(tmp_path)},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        try:
            said = b""
            while select.select([process.stderr], [], [], SAYS_NOTHING)[0]:
                data = os.read(process.stderr.fileno(), 65536)
                if not data:
                    break
                said += data
                again += len(re.findall(rb", 0:\d\d(?:;|,|\n|$)", data))
                if again >= 2:
                    waited, again = waited + 1, 0
                    release()
            else:
                pytest.fail(f"it was silent, after {said.decode(errors='replace')}")
        finally:
            process.kill()
    assert waited >= 1
    assert b"reading facts, 0:0" in said


@pytest.mark.parametrize("name", amount.few(COMMANDS, 1))
def test_no_command_is_silent_on_a_terminal(tmp_path: Path, release: Callable[[], int], name: str) -> None:
    with Program(slowly(tmp_path, COMMANDS[name]), tmp_path / "out", folders(tmp_path)) as running:
        running.until(lambda screen: len(set(re.findall(rb"reading facts *(\d:\d\d)", screen.raw))) > 2)
        for _ in range(50):
            release()
        assert running.end()[0] in (0, 1)


# ---------------------------------------------------------------- commands that work on this computer


def test_the_steps_of_a_build_count_what_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    def tell(say: Any) -> None:
        say("building FFmpeg 7.1.5 for Linux")
        say.count("files compiled", 412, 980)

    assert on_this_computer("codec build --target linux", tell).startswith("files compiled 412/980, 1:12")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("building FFmpeg 7.1.5 for Linux")


def test_quiet_steps_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    on_this_computer("sim up t4", lambda say: say("booting t4"), quiet=True)
    assert capsys.readouterr().err == ""


NSPAWN = """echo $$ > {folder}/pid
printf 'CC\\tlibavutil/a.o\\nX86ASM\\tb.o\\nsome warning\\n' > {folder}/work/make.log
echo 980 > {folder}/work/total
exec sleep 300"""


def test_a_build_tells_how_far_it_is_and_ends_with_its_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    program(tmp_path / "bin" / "systemd-nspawn", NSPAWN.format(folder=tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(buildroot, "EVERY_SECONDS", 0.1)
    counted: list[tuple[str, int, int]] = []

    def meanwhile() -> None:
        counted.extend(compiled(tmp_path / "work"))
        if counted:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        buildroot.run(tmp_path, tmp_path, ["true"], meanwhile)
    assert counted == [("files compiled", 2, 980)]
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("total", ["", "x", "9" * 5000, "-1"])
def test_what_a_build_writes_may_be_anything(tmp_path: Path, total: str) -> None:
    (tmp_path / "make.log").write_bytes(b"CC\t\xff\n" * 10)
    (tmp_path / "total").write_text(total)
    assert compiled(tmp_path) == []
