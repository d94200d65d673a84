"""Which series are run, and how far sessions are raised."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpuprep import records
from gpuprep.agent.compute import cpu
from gpuprep.agent.video import throughputplan

T4, V100, H200 = throughputplan.Engines(1, 2), throughputplan.Engines(3, 1), throughputplan.Engines(0, 7)


def step(sessions: int, fps: float, used: Any = 50, died: int = 0) -> dict[str, Any]:
    return {
        "sessions": sessions,
        "fps": fps,
        "died": died,
        "encoder_utilization_percent": 0,
        "decoder_utilization_percent": used,
    }


def raised(engines: int | None, ladder: bool, fps: Any, used: Any = lambda _: 50) -> list[int]:
    """The numbers of sessions tried on engines that give `fps(sessions)`."""
    series = throughputplan.Series("decode", "hevc", None, ladder)
    steps: list[dict[str, Any]] = []
    while (count := throughputplan.next_sessions(steps, engines, series)) is not None:
        steps.append(step(count, fps(count), used(count)))
    return [one["sessions"] for one in steps]


def test_a_ladder_goes_up_to_one_more_than_the_engines() -> None:
    assert raised(7, True, lambda n: 640 * min(n, 7)) == [1, 4, 7, 8]
    assert raised(1, True, lambda n: 600 * min(n, 1)) == [1, 2]
    assert raised(2, True, lambda n: 700 * min(n, 2)) == [1, 2, 3]


def test_as_on_the_h200() -> None:
    seen = {1: 654, 4: 2476, 7: 3932, 8: 4025, 12: 4016}
    assert raised(7, True, seen.__getitem__) == [1, 4, 7, 8]


def test_sessions_are_raised_while_frames_grow() -> None:
    assert raised(2, True, lambda n: 300 * min(n, 5)) == [1, 2, 3, 5, 8]
    assert raised(7, False, lambda n: 500 * n)[-1] <= 32


def test_engines_that_are_full_end_it() -> None:
    assert raised(7, True, lambda n: 640 * n, lambda n: 95 if n >= 4 else 50) == [1, 4]
    assert raised(7, False, lambda n: 640 * n, lambda _: 98) == [14]


def test_a_reading_that_is_missing_does_not_end_it() -> None:
    assert raised(1, True, lambda n: 600 * min(n, 2), lambda _: records.Missing("not_supported")) == [1, 2, 3]


def test_cores_that_are_full_end_work_on_the_cpu_alone() -> None:
    for kind, full, more in (("software", 99.0, None), ("software", 60.0, 4), ("decode", 99.0, 4)):
        tried = [step(1, 300.0), {**step(2, 590.0), "cpu_percent": full}]
        assert throughputplan.next_sessions(tried, None, throughputplan.Series(kind, "h264", "", True)) == more


def test_unknown_engines() -> None:
    assert raised(None, True, lambda n: 500 * min(n, 4)) == [1, 2, 4, 8]
    assert raised(None, False, lambda n: 500 * min(n, 4)) == [4, 8]


def test_a_session_that_died_ends_it() -> None:
    ladder = throughputplan.Series("decode", "h264", None, True)
    assert throughputplan.next_sessions([step(1, 600), step(2, 900, died=1)], 2, ladder) is None
    assert throughputplan.next_sessions([step(1, 0.0)], 2, ladder) is None


@pytest.mark.parametrize("engines", [T4, V100, H200, throughputplan.Engines(None, None)])
@pytest.mark.parametrize("quick", [True, False])
def test_every_plan_decodes_h264_first_and_names_nothing_twice(engines: throughputplan.Engines, quick: bool) -> None:
    found = throughputplan.plan(quick, engines)
    assert (found[0].kind, found[0].codec) == ("decode", "h264")
    assert len({(one.kind, one.codec, one.preset) for one in found}) == len(found)


def test_what_the_gpus_get() -> None:
    def kinds(engines: throughputplan.Engines, quick: bool = False) -> list[str]:
        return [f"{one.kind} {one.codec} {one.preset or ''}".strip() for one in throughputplan.plan(quick, engines)]

    assert kinds(T4, quick=True) == ["decode h264", "encode h264 p3"]
    assert kinds(H200, quick=True) == ["decode h264"]
    # The driver's own words that there is no encoder are asked for.
    assert [kind for kind in kinds(H200) if "decode" not in kind] == ["encode h264 p3", "encode hevc p3"]
    for preset in ("p1", "p3", "p7"):
        assert {f"encode h264 {preset}", f"encode hevc {preset}"} <= set(kinds(V100))
    assert "transcode h264 p3" in kinds(T4)
    # The harder clip stands beside the light one, on the first GPU of a full run.
    for engines in (T4, V100, H200, throughputplan.Engines(None, None)):
        assert kinds(engines).count("decode h264-noisy") == 1
        assert "decode h264-noisy" not in kinds(engines, quick=True)
    (harder,) = [one for one in throughputplan.plan(False, H200) if one.codec == "h264-noisy"]
    assert harder.one_step
    assert harder.needs == ""


def test_engines_that_a_series_fills() -> None:
    assert throughputplan.engines_of(throughputplan.Series("decode", "vp9", None, False), V100) == 1
    assert throughputplan.engines_of(throughputplan.Series("encode", "hevc", "p1", False), V100) == 3
    assert throughputplan.engines_of(throughputplan.Series("transcode", "h264", "p3", True), V100) == 3
    assert (
        throughputplan.engines_of(
            throughputplan.Series("transcode", "h264", "p3", True), throughputplan.Engines(None, 2)
        )
        is None
    )


def test_where_there_is_no_engine_one_session_is_tried() -> None:
    assert throughputplan.next_sessions([], 0, throughputplan.Series("encode", "h264", "p3", False)) == 1


@pytest.mark.parametrize(("engines", "sessions"), [(T4, (3, 4, 6)), (V100, (2, 2, 3)), (H200, (8, 14, 21))])
def test_codecs_with_longer_pauses_begin_with_more_sessions(
    engines: throughputplan.Engines, sessions: tuple[int, int, int]
) -> None:
    quick, full = throughputplan.plan(True, engines), throughputplan.plan(False, engines)
    decode = {one.codec: one for one in full if one.kind == "decode"}
    series = [quick[0], decode["hevc"], decode["vp9"]]
    assert tuple(throughputplan.next_sessions([], engines.nvdec, one) for one in series) == sessions


def test_engines_from_the_catalogue() -> None:
    known = {"gpus": {"1eb8": {"model": {"nvenc_engines": 1, "nvdec_engines": 2}}}}
    assert throughputplan.engines_from(known, "1eb8") == T4
    assert throughputplan.engines_from(known, "2684") == throughputplan.Engines(None, None)
    assert throughputplan.engines_from({}, "1eb8") == throughputplan.Engines(None, None)
    assert throughputplan.engines_from(
        {"gpus": {"1eb8": {"model": {"nvenc_engines": "one"}}}}, "1eb8"
    ) == throughputplan.Engines(None, None)


def test_pictures_stay_on_the_gpu_and_nothing_is_written() -> None:
    for series in throughputplan.plan(False, V100):
        argv = throughputplan.command("ffmpeg", series, Path("/clips/a.mp4"), 30)
        assert argv.index("-threads") < argv.index("-i")
        assert argv[argv.index("-hwaccel_output_format") + 1] == "cuda"
        assert argv[-3:] == ["-f", "null", "-"]
        assert "-stream_loop" not in argv
        # Options of the output stand behind the input.
        assert argv.index("-fps_mode") > argv.index("-i")
    encode = throughputplan.command("ffmpeg", throughputplan.Series("encode", "hevc", "p7", False), Path("a.mp4"), 30)
    assert encode[encode.index("-vf") + 1] == "fps=120"
    assert encode[encode.index("-c:v") + 1] == "hevc_nvenc"
    assert "-vf" not in throughputplan.command(
        "ffmpeg", throughputplan.Series("transcode", "h264", "p3", True), Path("a.mp4"), 30
    )


@contextlib.contextmanager
def proc(folder: Path) -> Iterator[None]:
    """psutil reads `folder` instead of /proc: its own setting."""
    psutil.PROCFS_PATH = str(folder)
    try:
        yield
    finally:
        psutil.PROCFS_PATH = "/proc"


def test_how_busy_the_cpus_of_this_machine_were() -> None:
    with cpu.CpuUse() as use:
        deadline = time.process_time() + 0.1
        while time.process_time() < deadline:
            pass
    assert isinstance(use.busy_percent, float)
    assert 0 < use.busy_percent <= 100
    assert isinstance(use.io_wait_percent, float)


def test_how_busy_the_cpus_were(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2 3\n")
    with proc(tmp_path), cpu.CpuUse() as use:
        stat.write_text("cpu  160 0 60 810 70 0 0 0 0 0\ncpu0 1 2 3\n")
    assert use.busy_percent == 70.0
    assert use.io_wait_percent == 20.0


@pytest.mark.parametrize("text", ["", "nonsense\n", "cpu  1 2\n"])
def test_cpus_that_tell_nothing(tmp_path: Path, text: str) -> None:
    stat = tmp_path / "stat"
    stat.write_text(text)
    with proc(tmp_path), cpu.CpuUse() as use:
        pass
    assert isinstance(use.busy_percent, records.Missing)
    assert isinstance(use.io_wait_percent, records.Missing)
