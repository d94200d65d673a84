"""Ctrl-C, SIGTERM: a run ends with all that it started, and keeps what was measured; a second one ends at once.

Over a real sshd, with the agent's own processes; the GPU is made up (slowmachine.py).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import amount
import pytest
import sshserver
from fakehost import FakeHost, Script
from finishedt4 import ANSWERS, FINISHED, HERE, T4
from places import ROOT, SUPPORT
from records_for_tests import record
from slowmachine import SlowMachine
from waiting import until
from workflowstage import Stage, stage

from gpuprep import errors, records, remote, reports
from gpuprep.agent import turn
from gpuprep.remote import agent_client
from gpuprep.remote.probereports import Doing
from gpuprep.store import Store
from gpuprep.workflows import provision, runs

__all__ = ["stage"]  # a fixture

HANG = 600  # seconds; what ends in order takes five
ONE_WISH_SECONDS = 1.0  # two signals within them are one wish
MOMENTS = 10 if amount.ALL else 2  # each is a run of ten seconds
SEED = 12
needs_sshd = pytest.mark.skipif(sshserver.SSHD is None or os.geteuid() != 0, reason="needs an sshd, and root")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlowMachine]:
    yield from slow(tmp_path_factory.mktemp("slow"))


@pytest.fixture(scope="module")
def transcoding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlowMachine]:
    """One that never ends a transcode: what ends it is an interruption."""
    yield from slow(tmp_path_factory.mktemp("transcoding"), transcodes=False)


def slow(folder: Path, *, transcodes: bool = True) -> Iterator[SlowMachine]:
    home = folder / "home"
    (home / ".ssh").mkdir(parents=True)
    made = SlowMachine(folder, home, seconds=0.8, transcodes=transcodes)
    yield made
    made.sshd.stop()


def begin(machine: SlowMachine, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        machine.words("validate", "--only", "toolkit,codec,transcode,throughput", *more),
        env=machine.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_until(process: subprocess.Popen[str], words: str) -> None:
    """Until a line of progress has these words."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    raise AssertionError(f"it ended without saying {words!r}")


def gone(machine: SlowMachine) -> None:
    """Nothing that the run started is on the host any more, and no scratch folder."""

    def left() -> list[str]:
        return machine.left() + [str(path) for path in machine.scratch.iterdir()]

    until(lambda: not left(), lambda: f"left on the host: {left()}", HANG)


def newest(folder: Path) -> records.RunRecord:
    store = Store.open(f"sqlite:///{folder}/history.db")
    made: records.RunRecord = store.get("last")
    store.close()
    return made


@pytest.fixture(scope="module")
def whole_seconds(machine: SlowMachine) -> float:
    """How long a validate takes here that nobody interrupts."""
    began = time.monotonic()
    begin(machine).communicate(timeout=HANG)
    return time.monotonic() - began


def moments() -> list[float]:
    """Shares of a whole run."""
    chance = random.Random(SEED)
    return sorted(chance.uniform(0.05, 0.95) for _ in range(MOMENTS))


@pytest.mark.machines
@needs_sshd
@pytest.mark.parametrize("share", moments())
def test_at_any_moment_a_validate_ends_with_all_that_it_started(
    machine: SlowMachine, whole_seconds: float, share: float
) -> None:
    before, process = at_moment(machine, whole_seconds, share)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=HANG)
    gone(machine)
    if newest_id(machine.folder) == before:  # before a run began there is nothing to record
        assert process.returncode == 130, said
        assert share < 0.5, said
        return
    made = newest(machine.folder)
    assert made.exit_code == process.returncode, said
    if process.returncode != 130:  # everything was measured: there was nothing left to interrupt
        assert share > 0.5, said
        assert not made.error
        assert made.verdict is not None
        return
    assert "interrupted" in (made.error or "")
    measured = [result.probe for result in made.measurements if not isinstance(result.values, records.Missing)]
    rest = [result for result in made.measurements if isinstance(result.values, records.Missing)]
    assert all(result.values.reason == "interrupted" for result in rest if isinstance(result.values, records.Missing))
    assert measured == [name for name in ("toolkit", "codec", "transcode", "throughput") if name in measured]


def at_moment(machine: SlowMachine, whole_seconds: float, share: float) -> tuple[str, subprocess.Popen[str]]:
    """A validate after that share of a whole run, and the newest run before it.

    Where it ended before, the computer had more to do while a whole run was measured: this run tells what it takes now.
    """
    for _ in range(4):
        before, began = newest_id(machine.folder), time.monotonic()
        process = begin(machine)
        try:
            process.wait(share * whole_seconds)
        except subprocess.TimeoutExpired:
            return before, process
        process.communicate()
        whole_seconds = time.monotonic() - began
    raise AssertionError(f"it ended by itself within {share:.2f} of {whole_seconds:.1f} s")


def newest_id(folder: Path) -> str:
    """ "" before anything was recorded; a run that ended at once may have made the store."""
    try:
        return newest(folder).run_id if (folder / "history.db").exists() else ""
    except errors.UsageError:
        return ""


@needs_sshd
@pytest.mark.parametrize("number", amount.few([signal.SIGINT, signal.SIGTERM], 1))
def test_figures_of_probes_that_had_ended_are_kept_and_judged(transcoding: SlowMachine, number: signal.Signals) -> None:
    process = begin(transcoding)
    wait_until(process, "transcodes of NVIDIA's FFmpeg guide")
    until(
        lambda: any("/bin/ffmpeg" in one and " -nostdin " in one for one in transcoding.left()), transcoding.left, HANG
    )
    process.send_signal(number)
    _, said = process.communicate(timeout=HANG)
    assert process.returncode == 130
    assert "2 of 4 probes had ended, and their figures are kept" in said
    made = newest(transcoding.folder)
    values = {result.probe: result.values for result in made.measurements}
    assert list(values) == ["toolkit", "codec", "transcode", "throughput"]
    assert isinstance(values["toolkit"], dict)
    assert isinstance(values["codec"], dict)
    assert values["transcode"] == records.Missing("interrupted", "transcodes of NVIDIA's FFmpeg guide")
    partial = {result.probe: result.partial for result in made.measurements if result.partial}
    assert list(partial) == ["transcode"]
    assert partial["transcode"]["ffmpeg"]["version"] == "7.1.1"
    found = {finding.subject: finding for finding in made.findings}
    assert found["ffmpeg"].status is not records.Status.UNKNOWN
    assert found["transcode"].status is records.Status.UNKNOWN
    assert "interrupted" in found["transcode"].reason
    assert made.verdict is not None
    assert made.verdict.status is not records.Status.PASS


@pytest.mark.machines
@needs_sshd
def test_a_second_one_ends_at_once_and_the_host_tidies_up_by_itself(transcoding: SlowMachine) -> None:
    before = newest_id(transcoding.folder)
    process = begin(transcoding)
    wait_until(process, "transcodes of NVIDIA's FFmpeg guide")
    until(
        lambda: any("/bin/ffmpeg" in one and " -nostdin " in one for one in transcoding.left()), transcoding.left, HANG
    )
    process.send_signal(signal.SIGINT)
    wait_until(process, "Interrupted: ending what runs")
    time.sleep(ONE_WISH_SECONDS)  # before, it would be the same wish
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=HANG)
    assert process.returncode == 130
    assert "ended at once" in said
    gone(transcoding)
    assert newest_id(transcoding.folder) == before


# ---------------------------------------------------------------- one that Python drops

DROPPED = """
import signal, time
from gpuprep.cli.run_command import STOPPING
STOPPING.install()

class Destroyed:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)
        for _ in range(10):
            pass  # here the signal is handled, and what it raises is dropped

Destroyed()
print("goes on", flush=True)
try:
    while True:
        time.sleep(3600)
except KeyboardInterrupt:
    print("ended in order")
"""


def test_a_signal_that_comes_while_an_object_is_destroyed_is_not_lost() -> None:
    done = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("goes on\nended in order\n", "", 0)


# ---------------------------------------------------------------- hosts that do not end


STUCK = """
import signal, sys, threading, time
sys.path[:0] = {paths!r}
signal.signal(signal.SIGINT, signal.default_int_handler)
from fakehost import FakeHost, Script
from builders import bare_snapshot, finished_snapshot, good_probes, measured_t4, resolved
from gpuprep.cli import main
from gpuprep.workflows import runs

WANTED = resolved()

class Stuck(FakeHost):
    def run(self, command, **options):
        measures = b"clips_only" not in options.get("stdin", b"")
        if " probe throughput" in command and self.name == "stuck" and measures:
            print("stuck now", file=sys.stderr, flush=True)
            threading.Event().wait()  # a name server, a kernel: nothing that we could end
        return super().run(command, **options)

probes = {{result.probe: result for result in (*good_probes(WANTED), *measured_t4())}}
script = Script(snapshots=[finished_snapshot(WANTED)], probes=probes)
runs.Host = lambda target, **options: Stuck(script, target, options)
main({words!r})
"""


def test_a_host_that_does_not_end_is_not_waited_for_and_its_figures_are_kept(tmp_path: Path) -> None:
    words = ["validate", "good", "stuck", "--profile", "t4", "--store", f"sqlite:///{tmp_path}/history.db"]
    paths = [str(SUPPORT), str(ROOT)]
    folders = {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("STATE", "CACHE", "CONFIG")}
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK.format(paths=paths, words=words)], env={**os.environ, **folders},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until(process, "stuck now")
    until(lambda: newest_id(tmp_path) != "", "the other host's run is not recorded", HANG)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=HANG)
    assert process.returncode == 130, said
    made = newest(tmp_path)
    assert made.host == "stuck"
    assert "did not end in time" in (made.error or "")
    assert {"toolkit", "codec", "transcode", "gemm", "bandwidth"} <= {result.probe for result in made.measurements}


def test_a_record_is_stored_once_whoever_makes_it_first(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, records.RunRecord] = {}

    class Late(FakeHost):
        def run(self, command: str, **options: object) -> remote.CommandResult:
            if " probe gemm" in command:
                run = line_runs["here"]
                made["abandoned"] = run.abandon()
            return super().run(command, **options)  # type: ignore[arg-type]

    script = Script(snapshots=[FINISHED], probes=ANSWERS)
    monkeypatch.setattr(runs, "Host", lambda target, **options: Late(script, target, options))
    line_runs: dict[str, runs.Run] = {}
    line = runs.RunContext(lambda _host, _event: None, stage.store, lambda: False, runs=line_runs)
    ended = provision.validate(HERE, T4, runs.Options(), line)
    assert ended is made["abandoned"]
    assert stage.store.get("last") == ended
    # Before it begins what measures no speed: these share their turn.
    kept = [result.probe for result in ended.measurements]
    assert kept[:2] == ["toolkit", "cudnn"]
    assert kept[-1] == "gemm"
    assert "bandwidth" not in kept


def test_probes_that_did_not_end_are_unknown_and_the_rest_is_judged(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(FakeHost):
        def run(self, command: str, **options: object) -> remote.CommandResult:
            if " probe gemm" in command:
                stage.cancel.set()
                raise errors.Interrupted("here: interrupted")
            return super().run(command, **options)  # type: ignore[arg-type]

    script = Script(snapshots=[FINISHED], probes=ANSWERS)
    monkeypatch.setattr(runs, "Host", lambda target, **options: Stopped(script, target, options))
    made = stage(provision.validate)
    assert made.exit_code == 130
    assert made.verdict is not None
    assert made.verdict.status is records.Status.UNKNOWN
    by_probe = {result.probe: result.values for result in made.measurements}
    assert isinstance(by_probe["toolkit"], dict)
    assert isinstance(by_probe["gemm"], records.Missing)
    unknown = {finding.subject for finding in made.findings if finding.status is records.Status.UNKNOWN}
    assert unknown
    assert all("interrupted" in finding.reason for finding in made.findings if finding.status is records.Status.UNKNOWN)
    page = reports.render(made, "text")
    assert "provision" not in page, "to measure it again is what helps"
    assert stage.store.baseline_of("here") == {}
    assert stage.store.certified("here") is None


def test_a_lost_host_is_told_as_lost_though_its_other_probe_was_ended(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two probes says that the host is gone; the other is ended, and nobody stopped the run."""
    first, second = threading.Lock(), threading.Event()

    class Gone(FakeHost):
        def ended(self) -> bool:
            return bool(self.script.options[-1]["stopped"]())

        def check_free(self, since: float = 0.0) -> None:
            if self.ended():
                raise errors.Interrupted("here: interrupted")
            raise errors.HostUnreachable(f"here: no answer since {since}")

    def probe(host: Gone, *_: object, heard: Callable[[Doing], None], **_options: object) -> None:
        if first.acquire(blocking=False):
            heard(Doing(turn.SHARED_TURN_STARTED))
            assert second.wait(60)
            raise errors.HostUnreachable("here: the connection was lost")
        second.set()
        until(host.ended, "the other probe was not ended", 60)
        raise errors.Interrupted("here: interrupted")

    monkeypatch.setattr(runs, "Host", lambda target, **options: Gone(stage.script, target, options))
    monkeypatch.setattr(agent_client, "probe", probe)
    made = stage(provision.validate)
    assert (made.exit_code, str(made.error).partition("\n")[0]) == (3, "here: the connection was lost")


PARTS = [
    (("quick",), False),
    (("gpus", 0), {"index": 0, "uuid": "GPU-1", "name": "Tesla T4\x1b[2J", "pci_device_id": "0x1eb810de", "gemms": []}),
    (("gpus", 0, "gemms", 0), {"dtype": "fp16", "accumulate": "fp32", "m": 4096, "n": 4096, "k": 4096, "tflops": 21.5}),
    (("gpus", 0, "gemms", 1), {"dtype": "fp16", "accumulate": "fp32", "m": 8192, "n": 8192, "k": 8192, "tflops": 0.5}),
]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errors.Interrupted("here: interrupted"), "interrupted"),
        (errors.HostUnreachable("here: the connection was lost"), "command_failed"),
        (errors.AgentFailed("here: the agent was killed"), "command_failed"),
    ],
)
def test_what_a_probe_had_measured_is_kept_shown_and_judged_by_nobody(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, error: errors.GpuprepError, reason: str
) -> None:
    script = Script(snapshots=[FINISHED], probes=ANSWERS, measured={"gemm": PARTS}, ending={"gemm": error})
    monkeypatch.setattr(runs, "Host", script.host())
    made = stage(provision.validate)
    (result,) = [result for result in made.measurements if result.probe == "gemm"]
    assert isinstance(result.values, records.Missing)
    assert result.values.reason == reason
    assert result.partial is not None
    assert [row["tflops"] for row in result.partial["gpus"][0]["gemms"]] == [21.5, 0.5]
    assert "\x1b" not in result.partial["gpus"][0]["name"]
    assert stage.store.get(made.run_id) == made
    # 0.5 TFLOPS would fail, 21.5 would pass: neither is judged.
    judged = {finding.status for finding in made.findings if finding.subject.startswith(("gemm", "gpu 0 gemm"))}
    assert judged <= {records.Status.UNKNOWN}
    assert stage.store.baseline_of("here") == {}
    # Each page for people has the figure and says what it is; metrics and the list of runs have none.
    for style in ("text", "markdown", "html", "csv"):
        page = reports.render(made, style)
        assert "21.5" in page, style
        assert "did not finish" in page, style
    assert "gemm_peak_ratio" not in reports.render(made, "prometheus")
    headline = stage.store.headlines([made.run_id]).get(made.run_id)
    assert headline is None or headline.fp16_tflops is None


def test_an_abandoned_run_has_what_its_probe_had_measured(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    line_runs: dict[str, runs.Run] = {}
    made: list[records.RunRecord] = []

    class Stuck(FakeHost):
        def run(self, command: str, **options: object) -> remote.CommandResult:
            if " probe gemm" in command:
                made.append(line_runs["here"].abandon())
            return super().run(command, **options)  # type: ignore[arg-type]

    script = Script(snapshots=[FINISHED], probes=ANSWERS, measured={"gemm": PARTS})
    monkeypatch.setattr(runs, "Host", lambda target, **options: Stuck(script, target, options))
    line = runs.RunContext(lambda _host, _event: None, stage.store, lambda: False, runs=line_runs)
    provision.validate(HERE, T4, runs.Options(), line)
    last = made[0].measurements[-1]
    assert (last.probe, last.values) == ("gemm", records.Missing("interrupted", "matrix products"))
    assert last.partial is not None
    assert len(last.partial["gpus"][0]["gemms"]) == 2


# ---------------------------------------------------------------- several hosts


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell starts a background job with SIGINT ignored, and Python leaves it so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def on_two(work: Callable[[remote.Target], records.RunRecord], cancel: threading.Event) -> tuple[list[str], list[str]]:
    """The hosts of the records of a and b, one after the other; and what was told when they were interrupted."""
    told: list[str] = []
    made = runs.on_each(
        [remote.Target("a"), remote.Target("b")], work,
        forks=1, cancel=cancel, interrupted=lambda: told.append("told"),
    )  # fmt: skip
    return [one.host for one in made], told


def test_what_ends_the_program_is_raised_when_all_have_ended() -> None:
    ended: list[str] = []

    def work(target: remote.Target) -> records.RunRecord:
        ended.append(target.name)
        if target.name == "a":
            raise SystemExit(5)
        return record(host=target.name)

    with pytest.raises(SystemExit):
        on_two(work, threading.Event())
    assert ended == ["a", "b"]


@pytest.mark.usefixtures("interruptible")
def test_hosts_that_wait_for_their_turn_do_not_begin() -> None:
    cancel = threading.Event()
    begun: list[str] = []

    def work(target: remote.Target) -> records.RunRecord:
        if not cancel.is_set():
            begun.append(target.name)
            os.kill(os.getpid(), signal.SIGINT)
            cancel.wait(HANG)
        return record(host=target.name)

    assert on_two(work, cancel) == (["a", "b"], ["told"])
    assert begun == ["a"]


@pytest.mark.usefixtures("interruptible")
def test_a_signal_that_another_thread_got_ends_the_wait() -> None:
    """As one that comes just before the wait begins: Python has noted it, and the lock does not wake for it."""
    cancel = threading.Event()

    def work(target: remote.Target) -> records.RunRecord:
        main = threading.main_thread().ident
        assert main is not None
        if not cancel.is_set():
            while sys._current_frames()[main].f_code.co_name != "wait":  # of threading.Condition
                time.sleep(0.01)
            time.sleep(0.1)  # from there it goes on into the lock, which nothing shows
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            assert cancel.wait(HANG)
        return record(host=target.name)

    assert on_two(work, cancel) == (["a", "b"], ["told"])
