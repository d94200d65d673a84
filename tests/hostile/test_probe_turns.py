"""A host that lies about whose turn it is, a probe that never ends, and what lies where turns and clips are kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from probestage import Stage, measured

from gpuprep import errors, paths, records
from gpuprep.agent import host_paths, inuse, turn
from gpuprep.agent.video import clips
from gpuprep.remote import probereports
from gpuprep.workflows import measuring


class Liar(Stage):
    """It says many times that a turn begins."""

    def probe(self, _: object, name: str, arguments: dict[str, Any], **options: Any) -> records.ProbeResult:
        if "heard" in options:
            for _ in range(20):
                options["heard"](probereports.Doing(turn.TURN_STARTED))
        return super().probe(_, name, arguments, **options)


def test_a_turn_begins_once_whatever_the_host_says(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Liar()
    run = measured(monkeypatch, stage, "gemm", "bandwidth", "throughput")
    assert run.names == run.stages == ["gemm", "bandwidth", "throughput"]
    assert stage.said.count("clips of throughput") == 1


def test_each_probe_is_told_how_long_its_turn_may_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hung one is ended by that, before the next one's patience ends: else that would end the run."""
    asked: dict[str, tuple[float, float]] = {}

    class Asked(Stage):
        def probe(self, _: object, name: str, arguments: dict[str, Any], **options: Any) -> records.ProbeResult:
            if not arguments.get("clips_only"):
                asked[name] = (arguments["turn_seconds"], options["timeout"])
            return super().probe(_, name, arguments, **options)

    measured(monkeypatch, Asked(), "transcode", "gemm")
    own, patience = asked["gemm"]
    assert asked["transcode"][0] == 1200
    assert patience - own > asked["transcode"][0]


def test_what_was_ended_for_its_time_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(name: str) -> None:
        if name == "gemm":
            raise errors.AgentFailed("the agent ended with exit code -14: ")

    monkeypatch.setattr(measuring, "ON_THE_WAY_SECONDS", 1000.0)
    run = measured(monkeypatch, Stage(work), "gemm")
    (result,) = run.draft.measurements
    assert result.values == records.Missing("command_failed", "it did not end within 600 s of its turn")


HANGS = """
import sys, time, types
from gpuprep.agent import host_paths, probes, turn
host_paths.TURN = sys.argv[1]
turn.os.geteuid = lambda: 0
def measure(arguments):
    print("begun", flush=True)
    signals = __import__("signal")
    signals.pthread_sigmask(signals.SIG_BLOCK, [signals.SIGTERM])
    while True:
        time.sleep(1000)
sys.modules["gpuprep.agent.probes.gemm"] = types.SimpleNamespace(measure=measure)
probes.run_probe("gemm", {"turn": "alone", "turn_seconds": 2.0})
"""


def test_a_probe_that_hangs_ends_with_its_turn(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", HANGS, str(tmp_path / "turn")]
    ran = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (-signal.SIGALRM, "begun\n"), ran.stderr


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "turn"
    monkeypatch.setattr(host_paths, "TURN", str(path))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    return path


NO_PROCESS = {
    "superscript": "² 1\n", "arabic": "٣ 1\n", "long": "9" * 4000, "nul": "\0 \0\n", "itself": f"{os.getpid()} 1\n",
    "negative": "-1 5\n",
}  # fmt: skip


@pytest.mark.parametrize("content", NO_PROCESS.values(), ids=NO_PROCESS)
def test_what_is_no_number_of_a_process_is_passed_over(place: Path, content: str) -> None:
    place.write_text(content)
    with turn.taken("alone"):
        assert place.read_text().startswith(f"{os.getpid()} ")


def test_the_newest_processes_are_read_however_many_shared_a_turn(place: Path) -> None:
    place.write_text("4194304 1\n" * 1000 + f"{os.getppid()} {inuse.start(str(os.getppid()))}\n")
    assert turn.running() == [os.getppid()]
    place.unlink()
    assert turn.running() == []


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_pipe_or_a_folder_in_its_place_is_an_error_and_no_wait(place: Path, make: Any) -> None:
    make(place)
    with pytest.raises(OSError), turn.taken("alone"):  # noqa: PT011  each has its own
        pass


@pytest.mark.usefixtures("place")
def test_a_disk_that_is_full_is_an_error_and_the_turn_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"), turn.taken("alone"):
            pass
    with turn.taken("alone"):
        pass


# ---------------------------------------------------------------- clips


def test_another_process_that_makes_room_too_does_not_cost_a_clip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clips, "LIMIT_BYTES", 0)
    new = tmp_path / "a-x2.mp4"
    for name in ("a-x2.mp4", "b-x2.mp4", "c-x2.mp4"):
        (tmp_path / name).write_bytes(b"1")
    (tmp_path / "gone-x2.mp4").symlink_to(tmp_path / "nothing")  # as one that went away after the look
    clips._make_room(tmp_path, new)
    assert new.exists()
    assert not (tmp_path / "b-x2.mp4").exists()


def test_an_empty_clip_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that lost its power after a clip was made may have its name, and nothing in it."""
    made = []
    monkeypatch.setattr(clips, "_generate", lambda _, path: made.append(path))
    (tmp_path / "h264-1080p.mp4").touch()
    clips.clip("h264-1080p", within=tmp_path)
    assert made == [tmp_path / "h264-1080p.mp4"]


# ---------------------------------------------------------------- the user's folders


def test_a_relative_cache_folder_is_ignored_by_turns_and_clips(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_CACHE_HOME", "../../etc")
    assert turn._place() == home / ".cache/gpuprep/turn"
    assert clips.folder().is_relative_to(home / ".cache/gpuprep")


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", none)
    for variable, folder in (("XDG_CACHE_HOME", paths.cache_dir), ("XDG_STATE_HOME", paths.state_dir)):
        monkeypatch.delenv(variable, raising=False)
        with pytest.raises(errors.UsageError, match="no home folder") as refused:
            folder()
        assert variable in refused.value.hint
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert clips.clip("h264-1080p") == records.Missing(
        "command_failed", "this user has no home folder; set HOME or XDG_CACHE_HOME"
    )
    with pytest.raises(OSError, match="no home folder"), turn.taken("alone"):
        pass
