"""The probes of a run: who begins when, who waits for whom, and what is left when one breaks the run off."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from probestage import KINDS, PATIENCE, Fake, Stage, measured

from gpuprep import errors, records
from gpuprep.agent import __main__, host_paths, turn
from gpuprep.desired import probes
from gpuprep.records.evidence import kinds
from gpuprep.remote import agent_client
from gpuprep.workflows import measuring, runs


def test_the_next_probe_gets_ready_while_one_measures_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(name: str) -> None:
        following = {"gemm": "bandwidth", "bandwidth": "throughput"}.get(name)
        if following:
            stage.until(f"{following} gets ready")

    stage = Stage(work)
    run = measured(monkeypatch, stage, "gemm", "bandwidth", "throughput")
    assert run.names == ["gemm", "bandwidth", "throughput"]
    assert run.stages == ["gemm", "bandwidth", "throughput"]
    said = stage.said
    assert said.index("bandwidth gets ready") < said.index("gemm ends") < said.index("bandwidth begins")
    assert said.index("bandwidth begins") < said.index("throughput gets ready")


def test_those_that_share_begin_at_once_when_the_host_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first says so. The others do not wait for each other: each start takes a quarter of a second."""

    def work(name: str) -> None:
        if name == "cudnn":
            for other in ("toolkit", "codec", "transcode"):
                stage.until(f"{other} gets ready")
        else:
            stage.until("cudnn begins")

    stage = Stage(work)
    stage.held = ("toolkit", "codec", "transcode")
    run = measured(monkeypatch, stage, "toolkit", "codec", "cudnn", "gemm", "transcode")
    assert sorted(run.names) == ["codec", "cudnn", "gemm", "toolkit", "transcode"]
    assert stage.said.index("gemm gets ready") > stage.said.index("toolkit begins")


def test_on_a_host_without_room_they_begin_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    stage.room = False
    measured(monkeypatch, stage, "toolkit", "codec", "transcode")
    for before, after in (("toolkit", "codec"), ("codec", "transcode")):
        assert stage.said.index(f"{before} begins") < stage.said.index(f"{after} gets ready")


def test_what_shares_a_turn_is_at_work_together_and_before_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    sharing = ("toolkit", "codec", "cudnn", "transcode")

    def work(name: str) -> None:
        if name in sharing:
            for other in sharing:
                stage.until(f"{other} begins")

    stage = Stage(work)
    names = ["toolkit", "cudnn", "codec", "gemm", "transcode"]
    run = measured(monkeypatch, stage, *names)
    assert run.names == names
    assert stage.said.index("gemm begins") > max(stage.said.index(f"{name} ends") for name in sharing)


def test_clips_are_made_beside_matrix_products_and_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(name: str) -> None:
        if name == "gemm":
            stage.until("clips of throughput")
        if name.startswith("clips"):
            stage.until("gemm ends")
            assert not [words for words in stage.said if words.startswith("bandwidth")]

    stage = Stage(work)
    run = measured(monkeypatch, stage, "gemm", "bandwidth", "throughput")
    assert run.names == ["gemm", "bandwidth", "throughput"]
    assert stage.said.index("clips of throughput") < stage.said.index("bandwidth gets ready")


@pytest.mark.parametrize(
    "error", [errors.HostError("a command took longer than 180 s"), errors.AgentFailed("it broke")]
)
def test_clips_that_hang_hold_the_probes_back_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch, error: errors.HostError
) -> None:
    def work(name: str) -> None:
        if name.startswith("clips"):
            stage.until("gemm ends")
            raise error

    stage = Stage(work)
    run = measured(monkeypatch, stage, "gemm", "bandwidth", "throughput")
    assert 0 < stage.clips_seconds <= measuring.CLIPS_SECONDS < KINDS["throughput"].timeout_seconds
    assert run.names == ["gemm", "bandwidth", "throughput"]
    assert not any(isinstance(result.values, records.Missing) for result in run.draft.measurements)


@pytest.mark.parametrize(
    "error", [errors.AgentFailed("it broke"), errors.TookTooLong("a command took longer than 600 s")]
)
def test_a_probe_that_breaks_is_evidence_that_is_missing_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, error: errors.HostError
) -> None:
    def work(name: str) -> None:
        if name in ("gemm", "clips of throughput"):
            raise error

    run = measured(monkeypatch, Stage(work), "gemm", "bandwidth", "throughput")
    assert run.names == ["gemm", "bandwidth", "throughput"]
    assert [isinstance(result.values, records.Missing) for result in run.draft.measurements] == [True, False, False]


def test_an_error_of_the_host_ends_the_others_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(name: str) -> None:
        if name == "gemm":
            stage.until("bandwidth gets ready")
            raise errors.HostError("the connection was lost")

    stage = Stage(work)
    with pytest.raises(errors.HostError, match="connection was lost"):
        measured(monkeypatch, stage, "gemm", "bandwidth", "throughput")
    assert "broken off" in stage.said
    assert "throughput gets ready" not in stage.said


def test_when_the_user_stops_it_what_was_measured_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(name: str) -> None:
        if name == "bandwidth":
            run.cancelled = True
            raise errors.HostError("the connection was lost")  # another thread's end cut it

    stage = Stage(work)
    run = Fake(stage)
    monkeypatch.setattr(agent_client, "probe", stage.probe)
    with pytest.raises(errors.Interrupted):
        measuring.measure(cast(runs.Run, run), cast(Any, None), list(kinds.PROBES), {}, records.Source.MEASURED)
    assert run.names == ["toolkit", "cudnn", "codec", "gemm", "transcode"]


def test_the_agent_knows_each_probe_that_a_run_asks_for(capsys: pytest.CaptureFixture[str]) -> None:
    of_another_agent = 97  # it took the words, and is not the agent that was expected
    for name in probes.NAMES:
        assert __main__.main(["probe", name, "--expect", "another"]) == of_another_agent
    for other in ("nonsense", "latency", "burst", "../codec"):  # no module, a part of a probe, no probe, no name
        with pytest.raises(SystemExit):
            __main__.main(["probe", other, "--expect", "another"])
        assert f"invalid probe value: '{other}'" in capsys.readouterr().err


# ---------------------------------------------------------------- turns on the host

HOLD = """
import sys
from gpuprep.agent import host_paths, turn
host_paths.TURN = sys.argv[1]
turn.has_room = lambda: sys.argv[3] == "room"
with turn.taken(sys.argv[2]):
    print("begun", flush=True)
    sys.stdin.readline()
print("given back", flush=True)
sys.stdin.readline()
"""


class Holder:
    """Another process that takes a turn, gives it back at a word, and ends at the next."""

    def __init__(self, place: Path, kind: str, room: str = "room") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(place), kind, room],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def heard(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def __enter__(self) -> Holder:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "run" / "turn"
    monkeypatch.setattr(host_paths, "TURN", str(path))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(turn, "LEAST_CORES", 1)
    monkeypatch.setattr(turn, "FAREWELL_SECONDS", 1e6)
    return path


def taking(kind: str) -> tuple[threading.Event, threading.Thread]:
    taken = threading.Event()

    def take() -> None:
        with turn.taken(kind):
            taken.set()

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    return taken, thread


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the other process would take another user's file")


@needs_root
@pytest.mark.parametrize(
    ("held", "asked", "waits"),
    [("alone", "alone", True), ("alone", "shared", True), ("shared", "alone", True), ("shared", "shared", False)],
)
def test_a_turn_that_is_alone_is_alone(place: Path, held: str, asked: str, waits: bool) -> None:
    with Holder(place, held) as other:
        assert other.heard() == "begun"
        taken, thread = taking(asked)
        assert taken.wait(0.2 if waits else PATIENCE) is not waits
        other.process.kill()  # the kernel ends its turn
        thread.join(PATIENCE)
        assert taken.is_set()


@needs_root
def test_with_few_cores_nothing_is_shared(place: Path) -> None:
    with Holder(place, "shared", "no room") as other:
        assert other.heard() == "begun"
        taken, thread = taking("shared")
        assert not taken.wait(0.2)
        other.go_on()
        thread.join(PATIENCE)
        assert taken.is_set()


@needs_root
@pytest.mark.parametrize("waitable", [True, False])
def test_who_was_before_is_gone_when_a_turn_begins(
    place: Path, waitable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had the GPU open until then."""
    if not waitable:  # a kernel before 5.3

        def unknown(_: int) -> int:
            raise OSError(38, "Function not implemented")

        monkeypatch.setattr(os, "pidfd_open", unknown)
    with Holder(place, "alone") as other:
        assert other.heard() == "begun"
        taken, thread = taking("alone")
        other.go_on()
        assert other.heard() == "given back"
        assert not taken.wait(0.2)
        other.go_on()
        other.process.wait(PATIENCE)
        thread.join(PATIENCE)
        assert taken.is_set()


@needs_root
def test_one_that_does_not_go_is_not_waited_for_for_ever(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "FAREWELL_SECONDS", 0.1)
    with Holder(place, "alone") as other:
        assert other.heard() == "begun"
        other.go_on()
        assert other.heard() == "given back"
        with turn.taken("alone"):
            assert other.process.poll() is None


def test_a_number_that_is_another_program_s_now_is_not_waited_for(place: Path) -> None:
    place.parent.mkdir()
    place.write_text(f"{os.getppid()} 1\n1 \nrubbish\n\xff 3\n99999999999999999999 5\n", encoding="latin-1")
    with turn.taken("alone"):
        assert len(place.read_text().splitlines()) == 1


def test_the_file_is_closed_to_others_and_no_link_is_followed(place: Path, tmp_path: Path) -> None:
    with turn.taken("alone"):
        assert place.stat().st_mode & 0o077 == place.parent.stat().st_mode & 0o077 == 0
    place.unlink()
    (tmp_path / "victim").write_text("content")
    place.symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"), turn.taken("alone"):
        pass
    assert (tmp_path / "victim").read_text() == "content"
