"""Sessions of a stand-in for FFmpeg that reports as the real one does; and of the real one, in software."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fakeprograms
import psutil
import pytest
from fakepynvml import install, refuse
from probereportsfortests import assert_same, listening, measure
from samplerows import loaded_answers

from gpuprep import records
from gpuprep.agent.probes import throughput
from gpuprep.agent.video import clips, sessions, throughputplan

NO_NVENC = "[h264_nvenc @ 0x55d0] OpenEncodeSessionEx failed: unsupported device (2): (no details)"
LIMIT = "[h264_nvenc @ 0x55d0] OpenEncodeSessionEx failed: incompatible client key (21): (no details)"
# Reports 100 frames every tenth of a second. Its behaviour is set by files beside it.
STAND_IN = """
    #!{python}
    import os, pathlib, sys, time
    here = pathlib.Path(__file__).parent
    if "-encoders" in sys.argv:
        coders = ["aac"] if (here / "no nvenc").exists() else ["h264_nvenc", "hevc_nvenc"]
        sys.exit(print("".join(f" V....D {{coder}}           x\\n" for coder in coders)))
    if "-filters" in sys.argv:
        sys.exit(0)
    if "-version" in sys.argv:
        sys.exit(print("ffmpeg version 7.1.5 Copyright"))
    with open(here / "started", "a") as log:
        log.write(os.environ.get("CUDA_VISIBLE_DEVICES", "") + "\\n")
    encodes = any(word.endswith("_nvenc") for word in sys.argv)
    if encodes and (here / "refuses").exists():
        sys.stderr.write((here / "refuses").read_text() + "\\n[vost#0:0] Error while opening encoder\\n")
        print("frame=0\\nfps=0.0\\nprogress=end", flush=True)  # as the real one does before it fails
        sys.stderr.write("Conversion failed!\\n")
        time.sleep(0.1)
        sys.exit(218)
    if (here / "limit").exists():
        try:
            os.mkdir(here / "taken-1"); mine = here / "taken-1"
        except FileExistsError:
            time.sleep(0.2)
            sys.stderr.write((here / "limit").read_text() + "\\n")
            sys.exit(1)
    frames = 0
    while not (here / "silent").exists() or frames < 300:
        frames += 0 if (here / "nothing").exists() else 100
        sys.stdout.write("frame=%d\\nfps=0.0\\nprogress=continue\\n" % frames)
        sys.stdout.flush()
        time.sleep(0.1)
        if (here / "ends").exists() and frames >= 500:
            sys.exit(sys.stdout.write("frame=%d\\nprogress=end\\n" % frames) and None)
        if (here / "crashes").exists() and frames >= 500:
            sys.stderr.write("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered\\n")
            os.abort()
    time.sleep(3600)
"""


@pytest.fixture
def ffmpeg(tmp_path: Path) -> Path:
    program = tmp_path / "ffmpeg"
    program.write_text(textwrap.dedent(STAND_IN.format(python=sys.executable)).lstrip())
    program.chmod(0o755)
    return program


def one(ffmpeg: Path) -> list[str]:
    return throughputplan.command(str(ffmpeg), throughputplan.Series("decode", "h264", None, True), Path("in.mp4"), 30)


def test_frames_of_the_steady_state(ffmpeg: Path) -> None:
    done = sessions.together([one(ffmpeg)] * 3, seconds=0.8, environment=sessions.environment({}))
    assert done.sessions == 3
    assert done.died == ()
    assert done.steady is not None
    assert done.seconds > 0.8
    assert len(done.steady.fps_each) == 3
    assert all(fps > 0 for fps in done.steady.fps_each)
    assert done.frames >= done.steady.frames > 0


def test_meanwhile_is_while_all_deliver(ffmpeg: Path) -> None:
    seen = []

    @contextlib.contextmanager
    def during() -> Iterator[None]:
        seen.append("begin")
        yield
        seen.append("end")

    sessions.together([one(ffmpeg)] * 2, seconds=0.3, environment=sessions.environment({}), during=during)
    assert seen == ["begin", "end"]


def test_no_session_is_left_behind(ffmpeg: Path) -> None:
    pids: list[int] = []

    def stopped() -> contextlib.AbstractContextManager[None]:
        pids.extend(runs(ffmpeg))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sessions.together([one(ffmpeg)] * 3, seconds=600, environment=sessions.environment({}), during=stopped)
    assert len(pids) == 3
    assert not runs(ffmpeg)


def runs(program: Path) -> list[int]:
    """The processes with a program in their command line."""
    return [one.pid for one in psutil.process_iter(["cmdline"]) if str(program) in " ".join(one.info["cmdline"] or ())]


def test_a_session_that_crashes_has_died_and_the_others_count(ffmpeg: Path) -> None:
    (ffmpeg.parent / "crashes").touch()
    done = sessions.together([one(ffmpeg)] * 2, seconds=600, environment=sessions.environment({}))
    assert [how for how, _ in done.died] == ["it was killed by signal 6"] * 2
    assert all("ILLEGAL_ADDRESS" in said for _, said in done.died)
    assert done.steady is None


def test_an_input_that_ends_ends_the_measurement(ffmpeg: Path) -> None:
    (ffmpeg.parent / "ends").touch()
    done = sessions.together([one(ffmpeg)], seconds=3000, environment=sessions.environment({}))
    assert done.died == ()
    assert done.steady is not None
    assert done.steady.frames == 400
    assert done.seconds < 3000


def test_a_session_that_never_delivers(ffmpeg: Path) -> None:
    (ffmpeg.parent / "nothing").touch()
    done = sessions.together([one(ffmpeg)], seconds=600, environment=sessions.environment({}), patience=0.5)
    assert [how for how, _ in done.died] == ["no frame for 0.5 s"]
    assert done.steady is None


def test_a_session_that_falls_silent(ffmpeg: Path) -> None:
    (ffmpeg.parent / "silent").touch()
    done = sessions.together([one(ffmpeg)], seconds=600, environment=sessions.environment({}), stall=0.6)
    assert [how for how, _ in done.died] == ["no frame for 0.6 s"]


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        sessions.together([[str(tmp_path / "nowhere")]], seconds=1, environment=sessions.environment({}))


# ---------------------------------------------------------------- the probe


GPU_IS_LOST = 15
Gpus = Callable[..., None]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Gpus:
    """NVML counts as many GPUs as the test says, all at work."""

    def count(number: int, **answers: Any) -> None:
        told = {
            **loaded_answers(),
            "nvmlDeviceGetCount": number,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetUUID": lambda index: f"GPU-{index:08d}",
        }
        install(monkeypatch, {**told, **answers})

    monkeypatch.setattr(throughput, "WINDOW_SECONDS", 0.4)
    monkeypatch.setattr(throughput, "QUICK_WINDOW_SECONDS", 0.4)
    monkeypatch.setattr(throughput, "QUICK_BUDGET_SECONDS", 600.0)
    monkeypatch.setattr(throughput, "START_SECONDS", 0.0)
    return count


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A folder with all clips, as long as the probe wants them. The stand-in does not read them."""
    folder = tmp_path / "clips"
    folder.mkdir()
    for name in throughputplan.EVERY_CLIP.values():
        large = name.endswith("-2160p")
        seconds = throughput.LARGE_CLIP_SECONDS if large else throughput.CLIP_SECONDS
        times = clips.repeats(clips.SPECS[name], seconds)
        bits = 50_000 * clips.SPECS[name].frames * times // clips.FPS
        (folder / f"{name}-x{times}.mp4").write_bytes(b"\0" * (bits // 8))
    return folder


def engines(nvenc: int, nvdec: int) -> dict[str, Any]:
    return {"1eb8": {"model": {"nvenc_engines": nvenc, "nvdec_engines": nvdec}}}


def measured(ffmpeg: Path, kept: Path, **arguments: Any) -> dict[str, Any]:
    with listening() as told:
        values = measure("throughput", **{"path": str(ffmpeg), "quick": True, "clips": str(kept), **arguments})
    assert isinstance(values, dict)
    assert_same(told, values, "ffmpeg", "gpus", *(["series"] if values["series"] else []))
    return values


def test_quick_is_one_series_a_kind_of_engine(ffmpeg: Path, gpus: Gpus, kept: Path) -> None:
    gpus(1)
    values = measured(ffmpeg, kept, gpus=engines(1, 2))
    assert values["ffmpeg"] == {"path": str(ffmpeg), "version": "7.1.5"}
    assert values["gpu"]["uuid"] == "GPU-00000000"
    decode, encode = values["series"]
    assert (decode["kind"], decode["outcome"], decode["engines"]) == ("decode", "completed", 2)
    assert (encode["kind"], encode["preset"], encode["engines"]) == ("encode", "p3", 1)
    # 130 s of it; the stand-in's clips are small files of zeros.
    assert decode["clip"] == {
        "name": "h264-1080p", "codec": "h264", "width": 1920, "height": 1080, "fps": 30, "bit_rate_kbps": 50,
    }  # fmt: skip
    step = decode["steps"][0]
    assert step["sessions"] == 3
    assert step["decoder_utilization_percent"] == 22
    assert step["video_clock_mhz"] == 1200
    assert step["event_reasons"] == 1
    assert step["cpu_percent"] >= 0
    assert len(step["fps_each"]) == 3
    assert step["fps"] == pytest.approx(sum(step["fps_each"]), abs=0.2)


def test_each_gpu_in_turn_by_its_uuid(ffmpeg: Path, gpus: Gpus, kept: Path) -> None:
    gpus(2)
    values = measured(ffmpeg, kept, gpus=engines(0, 1))
    assert [one["gpu"]["index"] for one in values["series"]] == [0, 1]
    started = (ffmpeg.parent / "started").read_text().split()
    assert set(started) == {"GPU-00000000", "GPU-00000001"}
    assert started == sorted(started)
    assert [one["steps"][0]["sessions"] for one in values["series"]] == [2, 2]


def test_no_encoder_in_the_drivers_own_words(ffmpeg: Path, gpus: Gpus, kept: Path) -> None:
    gpus(1)
    (ffmpeg.parent / "refuses").write_text(NO_NVENC)
    decode, encode = measured(ffmpeg, kept, gpus=engines(1, 1))["series"]
    assert decode["outcome"] == "completed"
    assert encode["outcome"] == "failed"
    assert encode["decisive_line"] == "OpenEncodeSessionEx failed: unsupported device (2): (no details)"
    assert encode["steps"][0]["died"] == encode["steps"][0]["sessions"] > 0


def test_sessions_beyond_a_limit_are_counted_and_named(ffmpeg: Path, gpus: Gpus, kept: Path) -> None:
    gpus(1)
    (ffmpeg.parent / "limit").write_text(LIMIT)
    decode = measured(ffmpeg, kept, gpus=engines(0, 2))["series"][0]
    assert decode["outcome"] == "completed"
    assert decode["steps"][0]["died"] == 2
    assert "incompatible client key (21)" in decode["steps"][0]["died_because"]
    assert decode["steps"][0]["fps"] > 0
    assert len(decode["steps"][0]["fps_each"]) == 1


def test_a_part_that_was_not_built(ffmpeg: Path, gpus: Gpus, kept: Path) -> None:
    gpus(1)
    (ffmpeg.parent / "no nvenc").touch()
    encode = measured(ffmpeg, kept, gpus=engines(1, 2))["series"][1]
    assert encode["outcome"] == "not_built"
    assert "h264_nvenc" in encode["decisive_line"]


def test_time_that_is_used_up(ffmpeg: Path, gpus: Gpus, kept: Path) -> None:
    gpus(1)
    values = measured(ffmpeg, kept, gpus=engines(1, 1), quick=False, seconds=2.5)
    assert values["series"][0]["outcome"] == "completed"
    assert values["series"][-1]["outcome"] == "no_time"


def test_capacity_measures_more_and_says_what_it_had_no_time_for(
    ffmpeg: Path, gpus: Gpus, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(1)
    monkeypatch.setattr(throughput, "QUALITY_SECONDS", 0.0)
    values = measured(ffmpeg, kept, gpus=engines(1, 1), quick=False, capacity=True, seconds=2.5)
    assert values["capacity"] is True
    assert [
        (one.kind, one.codec, one.preset) for one in throughputplan.capacity_plan(throughputplan.Engines(1, 1))
    ] == [(one["kind"], one["codec"], one["preset"]) for one in values["series"]]
    large = next(one for one in values["series"] if one["codec"] == "h264-2160p")
    assert (large["width"], large["height"], large["outcome"]) == (3840, 2160, "no_time")
    step = values["series"][0]["steps"][0]
    assert {"gpu_utilization_percent", "memory_used_mib", "pcie_to_gpu_mb_per_s"} <= set(step)
    assert values["latency"]
    assert all(isinstance(one["median_ms"], records.Missing) for one in values["latency"])
    assert all(isinstance(one["psnr_db"], records.Missing) for one in values["quality"])


def test_a_lost_gpu(ffmpeg: Path, gpus: Gpus, kept: Path) -> None:
    gpus(1, nvmlDeviceGetHandleByIndex=refuse(GPU_IS_LOST))
    values = measured(ffmpeg, kept)
    assert values["series"] == []
    assert "fallen off the bus" in values["gpus"][0]["error"]


def test_without_clips_it_says_why(ffmpeg: Path, gpus: Gpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(1)
    fakeprograms.encoders(monkeypatch, tmp_path / "home")
    decode = measured(ffmpeg, tmp_path / "empty", gpus=engines(0, 2))["series"][0]
    assert (decode["outcome"], decode["steps"]) == ("not_run", [])
    assert "no ffmpeg here encodes H264" in decode["decisive_line"]


def test_no_gpu_and_no_ffmpeg(ffmpeg: Path, gpus: Gpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(0)
    assert isinstance(measure("throughput", path=str(ffmpeg)), records.Missing)
    fakeprograms.login(monkeypatch, tmp_path / "home", str(tmp_path / "home"))
    answer = measure("throughput")
    assert isinstance(answer, records.Missing)
    assert answer.reason == "not_installed"


# ---------------------------------------------------------------- the real FFmpeg, without its CUDA options

REAL = shutil.which("ffmpeg") or next(iter(clips.programs()), None)


@pytest.mark.skipif(REAL is None, reason="no ffmpeg on this machine")
def test_the_real_one_in_software(tmp_path: Path) -> None:
    pictures = tmp_path / "in.avi"
    source = "testsrc2=s=640x360:r=30:d=8"
    assert REAL is not None
    made = ["-v", "error", "-f", "lavfi", "-i", source, "-c:v", "mjpeg", str(pictures)]
    assert os.spawnv(os.P_WAIT, REAL, [REAL, *made]) == 0
    argv = throughputplan.command(REAL, throughputplan.Series("decode", "h264", None, True), pictures, 30)
    at = argv.index("-hwaccel")
    software = argv[:at] + argv[at + 4 :]
    done = sessions.together([software], seconds=3000, environment=sessions.environment({}))
    assert done.died == ()
    assert done.frames == 240
