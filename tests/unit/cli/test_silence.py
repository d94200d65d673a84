"""A run without a terminal is never silent for more than 15 s; what its lines say; failures that are one."""

from __future__ import annotations

import io
import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import amount
import psutil
import pytest
from fakeprograms import program
from places import SUPPORT
from pseudoterminal import Program
from terminalrecords import folders

from gpuprep.cli import console, repeated_errors
from gpuprep.cli.running import Running
from gpuprep.cli.steps import steps
from gpuprep.codecbuild import build, buildroot
from gpuprep.provisioning import ansible_events

MOST_SILENT = 15.0
TICK = 0.5


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Log:
    """A console without a terminal whose time is ours; `lines` are (seconds, line)."""

    def __init__(self, *hosts: str, quiet: bool = False) -> None:
        self.clock, self.stream = Clock(), io.StringIO()
        self.console = console.Console(hosts, verbose=0, quiet=quiet, no_color=True, stream=self.stream, now=self.clock)
        self.lines: list[tuple[float, str]] = []

    def tell(self, kind: str, detail: str = "", host: str = "", **more: object) -> None:
        named = {"role": "", "task": "", **more}
        step = ansible_events.Progress(kind, detail=detail, elapsed_seconds=0.0, **named)  # type: ignore[arg-type]
        self.console.progress(host or "gpu-01", step)
        self._read()

    def wait(self, seconds: float) -> None:
        until = self.clock.now + seconds
        while self.clock.now < until:
            self.clock.now += TICK
            self.console.tick()
            self._read()

    def _read(self) -> None:
        self.lines += [(self.clock.now - 1000.0, line) for line in self.stream.getvalue().splitlines()]
        self.stream.seek(0)
        self.stream.truncate()

    @property
    def said(self) -> list[str]:
        return [line for _, line in self.lines]

    @property
    def longest_silence(self) -> float:
        moments = [0.0, *(moment for moment, _ in self.lines), self.clock.now - 1000.0]
        return max(after - before for before, after in itertools.pairwise(moments))


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
    log.console.progress("gpu-01", ansible_events.Progress("steps", "", "", "", 0.0, steps))
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
        log.console.ended(host, 0)
    log.console.ended(hosts[3], 1)
    log.lines.clear()
    log.wait(console.SILENT_SECONDS)
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
    log.console.ended("a", 3, "a: cannot be reached")
    with log.console:
        pass
    assert log.stream.getvalue() == ""


@pytest.mark.parametrize("told", [0, 5, 10])
def test_the_part_that_is_done_never_goes_beyond_all(told: int) -> None:
    running = Running("a")
    running.take(ansible_events.Progress("steps", "", "", "", 0.0, (("facts", None), ("gemm", None))), 0.0)
    running.take(ansible_events.Progress("stage", "", "gemm", "matrix products", 0.0), 1.0)
    running.take(ansible_events.Progress("doing", "", "gemm", "bf16", 0.0, done=told, of=10, unit="types"), 2.0)
    assert running.fraction(3.0) == pytest.approx(0.5 + told / 20)


# ---------------------------------------------------------------- failures that are one


def unreachable(host: str, address: str = "10.0.0.7") -> str:
    return f"{host}: {address} does not answer on {host} port 22\nwhat to do: see `ssh {host}`"


def test_an_equal_failure_of_many_hosts_is_told_once_with_a_count() -> None:
    hosts = [f"web{number}" for number in range(1, 13)]
    log = Log(*hosts, "db1")
    for number, host in enumerate(hosts):
        log.console.ended(host, 3, unreachable(host, f"10.0.0.{number}"), f"run-{number}")
    log.console.ended("db1", 2, "db1: the profile does not fit")
    log.wait(10.0)
    assert log.said == [
        "  0:00 web1 | 10.0.0.0 does not answer on web1 port 22",
        "  0:00 db1 | the profile does not fit",
        "  0:05 11 more hosts: ADDRESS does not answer on HOST port 22: web2, web3 and 9 more",
    ]


def test_what_is_not_yet_told_is_told_at_the_end() -> None:
    log = Log("a", "b")
    with log.console:
        for host in ("a", "b"):
            log.console.ended(host, 3, unreachable(host))
    assert log.stream.getvalue().splitlines()[-1].endswith("1 more host: ADDRESS does not answer on HOST port 22: b")


def test_names_are_whole_words_and_others_are_other_failures() -> None:
    one, two, three = (
        repeated_errors.Failed("web1", "web1: x", "r1"),
        repeated_errors.Failed("web2", "web2: x", "r2"),
        repeated_errors.Failed("web1", "web10: x", "r3"),
    )
    assert repeated_errors.groups([one, three, two]) == [[one, two], [three]]
    assert repeated_errors.Failed("a", "a: at a.example.org\nwhere: a\nsee runs/r9/ansible.log", "r9").plain == (
        "at a.example.org\nsee runs/RUN/ansible.log"
    )
    assert repeated_errors.names(["a", "b", "c", "d"]) == "a, b, c, d"
    assert repeated_errors.names(list("abcde")) == "a, b and 3 more"
    assert repeated_errors.ADDRESS.sub("-", "1.2.3.4 v1.2.3 10.0.0.77.") == "- v1.2.3 -."


def test_a_name_with_signs_of_patterns_is_a_name() -> None:
    alike = repeated_errors.RepeatedErrors()
    assert alike.first(repeated_errors.Failed("[a-z", "[a-z: no answer"), 0.0) == "no answer"
    assert alike.first(repeated_errors.Failed("(b", "(b: no answer"), 1.0) == ""
    assert alike.others() == ["1 more host: no answer: (b"]
    assert alike.others() == []


# ---------------------------------------------------------------- the commands themselves

# As the program of test_cli_terminal, with everything in it ten times as often; every probe, every look and every
# task takes its time.
SLOWLY = """
import os, signal, sys, time
sys.path.insert(0, {tests!r})
signal.signal(signal.SIGINT, signal.default_int_handler)
from builders import bare_snapshot, finished_snapshot, good_probes, measured_t4, resolved
from fakehost import FakeHost, Script
from gpuprep.cli import console, main
from gpuprep.workflows import runs

console.SILENT_SECONDS = {silent}
WANTED = resolved()

class Slow(FakeHost):
    def run(self, command, **options):
        if " facts " in command or " probe gemm" in command or " probe toolkit" in command:
            time.sleep({seconds})
        return super().run(command, **options)

probes = {{result.probe: result for result in (*good_probes(WANTED), *measured_t4())}}
script = Script(snapshots=[finished_snapshot(WANTED)], probes=probes)
runs.Host = lambda target, **options: Slow(script, target, options)
main({words!r})
"""
SILENT, SECONDS = 0.4, 2.0
COMMANDS = {
    "plan": ["plan", "gpu-01", "--profile", "t4"],
    "provision": ["provision", "gpu-01", "--profile", "t4"],
    "tune": ["tune", "gpu-01", "--profile", "t4"],
    "validate": ["validate", "gpu-01", "--profile", "t4", "--only", "toolkit,gemm"],
    "validate of several": ["validate", "gpu-01", "gpu-02", "--profile", "t4", "--only", "toolkit"],
    "drift": ["drift", "gpu-01", "--profile", "t4"],
    "drift --probe": ["drift", "gpu-01", "--profile", "t4", "--probe", "quick"],
    "drift --fix": ["drift", "gpu-01", "--profile", "t4", "--fix"],
}


DAILY = ("provision", "validate", "drift")
# All print through one console: `make test` has the three that people run daily, and one of them on a terminal.
DAILY_FIRST = sorted(COMMANDS, key=lambda name: name not in DAILY)


def slowly(tmp_path: Path, words: list[str]) -> str:
    stored = [*words, "--store", f"sqlite:///{tmp_path}/history.db"] if words[0] != "plan" else words
    return SLOWLY.format(tests=str(SUPPORT), silent=SILENT, seconds=SECONDS, words=stored)


TRIES = 3  # other tests may keep the machine busy for a moment; a command that is silent is so each time


def longest(read: Callable[[], bytes], ended: Callable[[bytes], bool]) -> tuple[float, bytes]:
    """The longest silence from the first word to the end."""
    said, most, last = b"", 0.0, None
    while True:
        data = read()
        now = time.monotonic()
        most = max(most, 0.0 if last is None else now - last)
        if ended(data):
            return most, said
        last, said = now, said + data


@pytest.mark.parametrize("name", amount.few(DAILY_FIRST, len(DAILY)))
def test_no_command_is_silent_in_a_log(tmp_path: Path, name: str) -> None:
    _is_never_silent(lambda folder: _in_a_log(folder, COMMANDS[name]), tmp_path, rb"reading facts, 0:0[1-9]")


def _is_never_silent(run: Callable[[Path], tuple[float, bytes]], folder: Path, pattern: bytes) -> None:
    """`run` gives the longest silence and what was written, in a folder of its own."""
    for number in range(TRIES):
        own = folder / str(number)
        own.mkdir()
        most, said = run(own)
        assert re.search(pattern, said), said
        if most < SECONDS * 0.75:
            return
    pytest.fail(f"silent for {most:.1f} s: {said.decode(errors='replace')}")


def _in_a_log(folder: Path, words: list[str]) -> tuple[float, bytes]:
    with subprocess.Popen(
        [sys.executable, "-c", slowly(folder, words)], env={**os.environ, **folders(folder)},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        number = process.stderr.fileno()
        return longest(lambda: os.read(number, 65536), lambda data: not data)


@pytest.mark.parametrize("name", amount.few(DAILY_FIRST, 1))
def test_no_command_is_silent_on_a_terminal(tmp_path: Path, name: str) -> None:
    _is_never_silent(lambda folder: _on_a_terminal(folder, COMMANDS[name]), tmp_path, "━".encode())


def _on_a_terminal(folder: Path, words: list[str]) -> tuple[float, bytes]:
    with Program(slowly(folder, words), folder / "out", folders(folder)) as running:
        running.until(lambda screen: bool(screen.raw))

        def read() -> bytes:
            before = len(running.screen.raw)
            ended = not running._read(time.monotonic() + 30.0)
            return b"" if ended else running.screen.raw[before:] or b" "

        return longest(read, lambda data: not data)


# ---------------------------------------------------------------- commands that work on this computer


def test_the_steps_of_a_build_count_what_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    with steps("codec build --target linux", quiet=False) as say:
        say("building FFmpeg 7.1.5 for Linux")
        say.count("files compiled", 412, 980)
        [running] = say._console._running.values()
        assert running.line(running.title_began + 72.0).startswith("files compiled 412/980, 1:12")
    assert capsys.readouterr().err.splitlines() == ["  0:00 building FFmpeg 7.1.5 for Linux"]


def test_quiet_steps_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with steps("sim up t4", quiet=True) as say:
        say("booting t4")
        say.count("files", 1, 2)
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
        build._count(tmp_path / "work", lambda *what: counted.append(what))
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
    counted: list[tuple[str, int, int]] = []
    build._count(tmp_path, lambda *what: counted.append(what))
    assert counted == []
