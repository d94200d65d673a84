"""Transcodes as data, run and proven: with a real FFmpeg where pictures count, with stand-ins where it goes wrong."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import shlex
import signal
import threading
from pathlib import Path
from typing import Any

import fakeprograms
import pytest
import transcodeprobe
from places import TESTS
from probereportsfortests import measure
from transcodeprobe import COPY, Ran, execute, pictures, refusing, run_with, runner, stand_in, tiny
from waiting import alive, until

from gpuprep import records
from gpuprep.agent.probes import transcodecases
from gpuprep.agent.video import clips

CASES_FOLDER = TESTS / "cases"
__all__ = ["tiny"]


# ---------------------------------------------------------------- the table


def test_the_guide_is_complete() -> None:
    assert [case.number for case in transcodecases.CASES if case.number is not None] == list(range(1, 24))
    assert len(transcodecases.BY_ID) == len(transcodecases.CASES)
    assert {"decode-hevc", "decode-hevc-10bit", "decode-vp9", "decode-av1"} <= set(transcodecases.BY_ID)
    assert 5 <= len([case for case in transcodecases.CASES if case.quick]) <= 9


@pytest.mark.parametrize("case", transcodecases.CASES, ids=lambda case: case.id)
def test_each_case_is_whole(case: transcodecases.Case) -> None:
    words = transcodeprobe.command(case)
    assert case.capabilities
    assert case.outputs
    assert [words[i + 1] for i, word in enumerate(words) if word == "-i"] == [
        item.file for item in case.inputs if item.file != "like.mp4"
    ]
    for output in case.outputs:
        assert output.file in words
        assert any(item.file == output.source for item in case.inputs)
        assert (output.width % 2, output.height % 2) == (0, 0)
    assert words.count("-fps_mode") == len(case.outputs)
    assert words.index("-fps_mode") > words.index("-i")
    assert words.count("-hwaccel") == words.count("-hwaccel_output_format")
    assert bool(case.encoders) == any(name.startswith("nvenc") for name in case.capabilities)
    for name in case.encoders:
        assert name in words
    for item in case.inputs:
        assert item.clip in clips.SPECS
    for old in ("-vsync", "_aq", "scale_npp=640", "cude", "foo:bar"):
        assert not any(old in word for word in words)
    for option in ("-resize", "-crop"):  # these belong to the cuvid decoder of the same input
        if option in words:
            assert words[words.index(option) - 1] == "h264_cuvid"
    if any(output.bit_rate_kbps for output in case.outputs):
        assert min(item.seconds or 0 for item in case.inputs) >= 15
    assert shlex.split(case.arguments)[-1] == case.outputs[-1].file


# ---------------------------------------------------------------- one command


@pytest.mark.parametrize("name", ["h200-nvenc-h264", "no-driver"])
def test_a_refusal_keeps_the_decisive_line(tmp_path: Path, tiny: Path, name: str) -> None:
    lines = CASES_FOLDER / "ffmpeg_lines" / f"{name}.txt"
    row = run_with(tmp_path, tiny, f"cat {shlex.quote(str(lines))} >&2; exit 218")
    assert (row["outcome"], row["exit_code"]) == ("failed", 218)
    assert row["decisive_line"] in (
        "OpenEncodeSessionEx failed: unsupported device (2): (no details)",
        "Cannot load libcuda.so.1",
    )
    assert row["outputs"][0]["error"]


def test_where_there_is_no_encoder_one_refusal_of_each_is_enough(tmp_path: Path, tiny: Path) -> None:
    line = "OpenEncodeSessionEx failed: unsupported device (2): (no details)"
    rows, begun = refusing(tmp_path, tiny, line)
    assert begun == ["h264_nvenc", "hevc_nvenc"]
    assert [row["outcome"] for row in rows] == ["failed", "refused", "failed", "refused", "refused", "failed"]
    assert [row["refused_in"] for row in rows] == ["", "case0", "", "case2", "case0", ""]
    for row in rows[:5]:
        assert row["decisive_line"] == line
        assert row["outputs"][0]["error"]
        assert (row["exit_code"] is None) is (row["outcome"] == "refused")
    assert rows[1]["seconds"] == 0


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("OpenEncodeSessionEx failed: incompatible client key (21): (no details)", 218),  # too many sessions now
        ("10 bit encode not supported", 218),  # this command's format
        ("Codec not supported", 218),
        ("Cannot load libnvidia-encode.so.1", 255),
        ("something new", 1),
    ],
)
def test_a_refusal_that_may_be_this_command_s_decides_nothing(tmp_path: Path, tiny: Path, line: str, code: int) -> None:
    rows, begun = refusing(tmp_path, tiny, line, code)
    assert len(begun) == 5
    assert {row["outcome"] for row in rows} == {"failed"}
    assert {row["refused_in"] for row in rows} == {""}


def test_a_kill_a_hang_and_a_full_disk_are_outcomes(tmp_path: Path, tiny: Path) -> None:
    for number, (script, outcome, words) in enumerate(
        (
            ("kill -9 $$", "failed", "killed by signal 9"),
            ("sleep 3600 & wait", "timed_out", "stopped after 0.3 s"),
            ("echo '[x @ 0x1] Error writing: No space left on device' >&2; exit 228", "failed", "No space left"),
        )
    ):
        place = tmp_path / str(number)
        place.mkdir()
        limit = 0.3 if outcome == "timed_out" else COPY.timeout_seconds
        row = run_with(place, tiny, script, dataclasses.replace(COPY, timeout_seconds=limit))
        assert row["outcome"] == outcome
        assert words in row["decisive_line"]


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    ran = execute([str(tmp_path / "none")], tmp_path)
    assert ran.outcome == "failed"
    assert "could not be started" in ran.decisive


def test_parts_that_lack(tmp_path: Path, tiny: Path) -> None:
    row = run_with(tmp_path, tiny, "exit 1", dataclasses.replace(COPY, filters=("scale_npp",)))
    assert (row["outcome"], row["missing_parts"]) == ("not_built", ["filter scale_npp"])


def test_inputs_that_cannot_be_made_are_no_failure_of_the_case(
    tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = dataclasses.replace(COPY, inputs=(transcodecases.Input("input.mp4", "tiny", "raw", None, "nv12", 320, 192),))
    row = run_with(tmp_path, tiny, "echo 'No space left on device' >&2; exit 1", raw)
    assert row["outcome"] == "not_run"
    assert "No space left on device" in row["decisive_line"]
    fakeprograms.encoders(monkeypatch, tmp_path / "home")
    made = transcodeprobe.laid_out("ffmpeg", tmp_path, tmp_path / "empty")
    assert isinstance(made, records.Missing)
    assert made.reason == "not_installed"


def test_the_unused_option_is_kept(tmp_path: Path, tiny: Path) -> None:
    lines = CASES_FOLDER / "ffmpeg_lines" / "h200-resize-unused.txt"
    row = run_with(tmp_path, tiny, f"cat {shlex.quote(str(lines))} >&2")
    assert row["outcome"] == "completed"
    assert "has not been used" in row["warnings"][0]
    assert "format supported: yes, max_mb_count: 65536" in row["gpu_proof"]["nvdec_lines"]
    assert row["outputs"][0]["error"] == "FFmpeg wrote nothing here"


def test_garbage_makes_figures_missing_and_nothing_crashes(tmp_path: Path, tiny: Path) -> None:
    row = run_with(tmp_path, tiny, "echo garbage > output.mp4", ffprobe="echo '{\"streams\": [7, {}'")
    (output,) = row["outputs"]
    assert row["outcome"] == "completed"
    assert output["bytes"] == 8
    for key in ("codec", "frames", "b_frames", "first_frame"):
        assert isinstance(output[key], records.Missing), key


def test_a_disk_that_fails_later_leaves_the_others_alone(
    tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = Path.stat

    def broken(path: Path, **options: Any) -> os.stat_result:
        if path.name == "output.mp4":
            raise OSError(5, "Input/output error")
        return stat(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", broken)
        row = run_with(tmp_path, tiny, "echo written > output.mp4")
    assert "Input/output error" in row["outputs"][0]["error"]
    (row,) = runner("ffmpeg", tmp_path / "gone", tiny).run([COPY])
    assert row["outcome"] == "not_run"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # its pipe ends with the agent
@pytest.mark.parametrize(("cores", "programs"), [(2, 1), (16, 2)], ids=["one after the other", "beside others"])
def test_told_to_end_it_ends_with_its_programs(
    cores: int, programs: int, tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(*_: object) -> None:
        raise SystemExit(143)

    def tell(runs: Any) -> None:
        until(lambda: transcodeprobe.at_work(runs) == programs, "they did not begin", 300)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    runs = runner(stand_in(tmp_path, f"echo $$ >> {tmp_path}/begun; exec sleep 600"), tmp_path, tiny)
    before = signal.signal(signal.SIGTERM, told)
    teller = threading.Thread(target=tell, args=(runs,))
    teller.start()
    try:
        with pytest.raises(SystemExit):
            runs.run([COPY, dataclasses.replace(COPY, id="again")])
    finally:
        teller.join()
        signal.signal(signal.SIGTERM, before)
    begun = (tmp_path / "begun").read_text().split() if (tmp_path / "begun").exists() else []
    assert len(begun) <= programs  # a program may end before its first word
    assert not [pid for pid in begun if alive(int(pid))]
    del runs, teller
    gc.collect()  # the warning belongs here, and not to whatever test comes next


def test_decodes_run_beside_others_and_encodes_one_after_the_other(
    tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    begun, scratch = tmp_path / "begun", tmp_path / "scratch"
    begun.mkdir()
    scratch.mkdir()
    # Each waits until three decodes and one encode are there; a fifth one would be one too many.
    script = (
        f"touch {begun}/$$; i=0; while [ $(ls {begun} | wc -l) -lt 4 ] && [ $i -lt 6000 ]; "
        "do sleep 0.05; i=$((i+1)); done; sleep 0.2; exit 1"
    )
    runs = runner(stand_in(tmp_path, script), scratch, tiny)
    encode = dataclasses.replace(COPY, encoders=("h264_nvenc",))
    wanted = [
        *(dataclasses.replace(encode, id=f"encode{number}") for number in range(2)),
        *(dataclasses.replace(COPY, id=f"decode{number}") for number in range(3)),
    ]
    rows = runs.run(wanted)
    assert [row["id"] for row in rows] == [case.id for case in wanted]
    assert {row["outcome"] for row in rows} == {"failed"}
    assert [row["at_once"] for row in rows][:1] + [row["at_once"] for row in rows][2:] == [4, 4, 4, 4]
    assert rows[1]["at_once"] <= 4
    assert not list(scratch.iterdir())


def test_with_few_cores_cases_run_one_after_the_other(
    tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    rows = runner(stand_in(tmp_path, "sleep 0.05; exit 1"), tmp_path, tiny).run(
        [dataclasses.replace(COPY, id=f"decode{number}") for number in range(3)]
    )
    assert [row["at_once"] for row in rows] == [1, 1, 1]


# ---------------------------------------------------------------- proof


def test_ffprobe_is_read() -> None:
    seen = transcodeprobe.ffprobe_said((CASES_FOLDER / "ffprobe" / "h264-b-frames.json").read_text())
    assert seen == {
        "codec": "h264", "profile": "High", "pixel_format": "yuv420p", "width": 320, "height": 180, "frames": 12,
        "duration_seconds": 0.4, "audio": "aac", "b_frames": 2, "bit_rate_kbps": 194,
    }  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"streams": 3}', '{"streams": []}', '{"streams": [{"codec_type": "audio"}]}']
)
def test_what_ffprobe_never_says_is_missing(text: str) -> None:
    assert all(isinstance(value, records.Missing) for value in transcodeprobe.ffprobe_said(text).values())


def test_a_stream_without_figures_is_missing_figure_by_figure() -> None:
    text = json.dumps({"streams": [{"codec_type": "video", "codec_name": "h264", "width": "N/A"}]})
    seen = transcodeprobe.ffprobe_said(text)
    assert (seen["codec"], seen["audio"]) == ("h264", None)
    assert isinstance(seen["width"], records.Missing)
    assert isinstance(seen["frames"], records.Missing)


def test_raw_output_is_described_by_what_ffmpeg_said() -> None:
    lines = (CASES_FOLDER / "ffmpeg_lines" / "h200-decode-resize.txt").read_text().splitlines()
    assert transcodeprobe.ffmpeg_wrote("o.yuv", lines) == {
        "codec": "rawvideo", "pixel_format": "nv12", "width": 1280, "height": 720
    }  # fmt: skip
    assert isinstance(transcodeprobe.ffmpeg_wrote("other.yuv", lines), records.Missing)


def test_words_of_the_pass_are_read() -> None:
    lines = [
        "[Parsed_psnr_20 @ 0x1] PSNR y:39.0 u:41.2 v:40.3 average:39.27 min:36.4 max:42.0",
        "[Parsed_ssim_21 @ 0x1] SSIM Y:0.97 (15.6) U:0.98 (17.1) V:0.98 (17.0) All:0.979 (16.8)",
        "[Parsed_xpsnr_22 @ 0x1] XPSNR  y: 38.0298  u: 40.1  v: 39.2  (minimum: 38.0298)",
        "[blackdetect @ 0x1] black_start:0 black_end:0.5 black_duration:0.5",
        "[freezedetect @ 0x1] lavfi.freezedetect.freeze_start: 1",
        "[freezedetect @ 0x1] lavfi.freezedetect.freeze_duration: 0.75",
        "[freezedetect @ 0x1] lavfi.freezedetect.freeze_start: 2.2",
    ]
    assert transcodeprobe.filters_said(lines, 3.2) == {
        "psnr_db": 39.27, "ssim": 0.979, "xpsnr_db": 38.0298, "black_seconds": 0.5, "frozen_seconds": 1.75
    }  # fmt: skip
    assert isinstance(transcodeprobe.filters_said([], 1.0)["psnr_db"], records.Missing)


def test_a_copy_has_the_same_pictures(tmp_path: Path, tiny: Path) -> None:
    seen = pictures(tmp_path, tiny, "-c copy")
    assert (seen["psnr_db"], seen["ssim"], seen["xpsnr_db"]) == (100.0, 1.0, 100.0)
    assert (seen["black_seconds"], seen["frozen_seconds"]) == (0, 0)
    assert str(seen["first_frame"]).startswith("data:image/jpeg;base64,/9j/")
    assert seen["first_frame"] != seen["last_frame"]


def test_an_encode_is_near_and_a_wrong_picture_is_far(tmp_path: Path, tiny: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    near.mkdir()
    far.mkdir()
    good = pictures(near, tiny, "-c:v libx264 -preset ultrafast -b:v 5M")
    assert 30 < good["psnr_db"] < 100
    assert good["ssim"] > 0.9
    wrong = pictures(far, tiny, "-vf hflip -c:v libx264 -preset ultrafast -b:v 5M")
    assert wrong["psnr_db"] < 25


def test_black_and_frozen_pictures_are_seen(tmp_path: Path, tiny: Path) -> None:
    for name in ("black", "frozen"):
        (tmp_path / name).mkdir()
    black = pictures(tmp_path / "black", tiny, "-vf drawbox=t=fill:c=black -c:v libx264 -preset ultrafast")
    assert black["black_seconds"] > 1
    loop = "-vf trim=end_frame=10,tpad=stop_mode=clone:stop=38 -c:v libx264 -preset ultrafast"
    assert pictures(tmp_path / "frozen", tiny, loop)["frozen_seconds"] > 0.9


def test_what_is_expected_follows_from_the_inputs() -> None:
    clip = clips.Clip("h264-1080p", Path("x"), "h264", 1920, 1080, "yuv420p", 96, 3.2)
    case = transcodecases.BY_ID["decode"]
    want = transcodeprobe.expected(case, 0, input=clip)
    assert (want["frames"], want["bytes"], want["duration_seconds"]) == (96, 1280 * 720 * 3 // 2 * 96, None)
    case = transcodecases.BY_ID["yuv-420"]
    want = transcodeprobe.expected(case, 3, input=clip)
    assert (want["frames"], want["duration_seconds"], want["asked_kbps"], want["audio"]) == (24, 0.96, 14000, None)


def test_a_thumbnail_must_be_a_picture(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_text("no")
    assert isinstance(transcodeprobe.thumbnail(tmp_path / "x.jpg"), records.Missing)
    assert isinstance(transcodeprobe.thumbnail(tmp_path / "none.jpg"), records.Missing)


# ---------------------------------------------------------------- chapter 6.2, and all together


def test_one_process_saves_what_each_start_costs(tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = transcodeprobe.chunked(tmp_path, tiny, monkeypatch, "sleep 0.05")
    assert (seen["files"], seen["renditions"]) == (4, 2)
    assert seen["many_processes_seconds"] >= 8 * 0.05
    assert seen["saved_seconds"] == pytest.approx(
        seen["many_processes_seconds"] - seen["one_process_seconds"], abs=0.002
    )


def test_chunks_that_cannot_be_made_say_why(tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "OpenEncodeSessionEx failed: unsupported device (2): (no details)"
    row = {"id": "many-to-many", "outcome": "failed", "decisive_line": line}
    assert transcodeprobe.chunked(tmp_path, tiny, monkeypatch, "exit 0", row) == records.Missing("not_supported", line)
    assert transcodeprobe.chunked(
        tmp_path, tiny, monkeypatch, "echo 'Cannot load libcuda.so.1' >&2; exit 1"
    ) == records.Missing("command_failed", "Cannot load libcuda.so.1")


def test_the_guides_environment_is_set(tmp_path: Path) -> None:
    ffmpeg = stand_in(tmp_path, "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_MAX_CONNECTIONS >&2")
    assert execute([ffmpeg], tmp_path, transcodeprobe.guides_environment()).lines == ["0 2"]


def test_without_ffmpeg_there_is_no_measurement(tmp_path: Path) -> None:
    answer = measure("transcode", path=str(tmp_path / "ffmpeg"))
    assert isinstance(answer, records.Missing)
    assert answer.reason == "command_not_found"


def test_no_room_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    transcodeprobe.room(monkeypatch, 2**40)
    answer = measure("transcode", path=clips.programs()[0], quick=True)
    assert isinstance(answer, records.Missing)
    assert "no room" in answer.detail


def test_a_whole_run_on_this_machine(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU is asked: a case that needs none goes through measure() with the real program."""
    monkeypatch.setitem(transcodecases.BY_ID, "copy", COPY)
    values = measure("transcode", path=clips.programs()[0], cases=["copy"], clips=str(tiny), quick=True)
    assert isinstance(values, dict)
    (row,) = values["cases"]
    assert row["outcome"] == "completed"
    assert row["outputs"][0]["psnr_db"] == 100.0
    assert row["outputs"][0]["codec"]["missing"] == "command_not_found"  # imageio-ffmpeg has no ffprobe
    assert values["inputs"] == [
        {"name": "tiny", "codec": "h264", "width": 320, "height": 192, "frames": 48, "fps": 30, "audio": "aac"}
    ]
    json.dumps(values)


def test_lines_beyond_measure_are_cut() -> None:
    said = b"first\n" + b"x\n" * 1_000_000 + b"last\n"
    lines, most = transcodeprobe.kept_lines(said)
    assert (lines[0], lines[-1]) == ("first", "last")
    assert sum(map(len, lines)) < 2 * most
    assert Ran("failed", lines=["a", "b"]).decisive == "b"
