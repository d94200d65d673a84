"""ffmpeg's stand-in of simulated VMs: what a command becomes, what the GPU refuses, how fast the engines are."""

from __future__ import annotations

import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from ffmpegplans import HD, HEVC10, LIBRARIES, SIMULATED, Media, Ran, StandIn, Transcode, speed, transcodes
from waiting import until


@pytest.fixture
def ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> StandIn:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return StandIn(tmp_path, monkeypatch, capfd)


def worked(ran: Ran) -> str:
    """What the software ffmpeg was told, of a command that the GPU took."""
    assert ran.code == 0, ran.said
    return ran.software


def refused(ran: Ran, text: str) -> int:
    assert text in ran.said
    assert ran.software == ""
    assert ran.code != 0
    return ran.code


# ---------------------------------------------------------------- what becomes of a command


def test_words_belong_to_what_follows_them(ffmpeg: StandIn) -> None:
    ran = ffmpeg("t4", "-y -v error -hwaccel cuda -i a.mp4 -c:v h264_nvenc -bf 2 -an b.mp4 -c:v copy c.mp4 -shortest")
    assert worked(ran) == (
        "-hide_banner -y -v error -i a.mp4 -an -c:v libx264 -preset ultrafast "
        "-x264-params b-adapt=0:cabac=1:8x8dct=1 -b:v 2M -bf 2 -pix_fmt yuv420p b.mp4 -c:v copy c.mp4 -shortest"
    )


@pytest.mark.parametrize("words", ["-c:v X", "-codec:v X", "-vcodec X", "-c X", "-c:v:0 X", "-c:a copy -c:v X"])
def test_every_way_to_name_the_video_codec(ffmpeg: StandIn, words: str) -> None:
    assert "-c:v libx264" in worked(ffmpeg("t4", f"-i a {words.replace('X', 'h264_nvenc')} b"))


def test_the_sounds_codec_is_not_the_videos(ffmpeg: StandIn) -> None:
    assert worked(ffmpeg("t4", "-hwaccel cuda -i a -c:a copy b")) == "-hide_banner -i a -c:a copy b"


@pytest.mark.parametrize("words", ["-hwaccel cuda -i", "-i a -c:v h264_nvenc b -c:v"])
def test_a_command_that_ends_early_is_left_to_the_software(ffmpeg: StandIn, words: str) -> None:
    assert worked(ffmpeg("t4", words)).endswith(f"{words.split()[-1]} ")


TAKEN = [case for case in transcodes() if case.id != "decode-av1"]  # which none of the simulated GPUs decodes


@pytest.mark.parametrize("case", TAKEN, ids=lambda case: case.id)
def test_no_word_of_the_gpu_is_left_in_any_transcode(case: Transcode, ffmpeg: StandIn) -> None:
    ran = ffmpeg("t4", case.words, *case.media)
    text = worked(ran)
    for mark in ("cuda", "cuvid", "nvenc", "_npp", "hwupload", "hwdownload", "-resize", "-hw", "tune", "aq"):
        assert mark not in text
    assert re.findall(r"\[(\w+) @ \w+\] Nvenc initialized successfully", ran.said) == case.encoders
    assert not case.decodes or re.search("NVDEC capabilities|CUVID capabilities", ran.said)


def test_encoders_and_their_settings(ffmpeg: StandIn) -> None:
    text = "-i a.mp4 -c:v hevc_nvenc -preset p6 -tune hq -bf 3 -g 250 -maxrate 6M -c:a copy b.mp4"
    assert worked(ffmpeg("t4", text)) == (
        "-hide_banner -i a.mp4 -g 250 -maxrate 6M -c:a copy -c:v libx265 -preset ultrafast "
        "-x265-params log-level=none:b-adapt=0 -b:v 2M -bf 3 -pix_fmt yuv420p b.mp4"
    )


@pytest.mark.parametrize(("given", "becomes"), [("-cq 23", "-crf 23"), ("-qp 30", "-qp 30"), ("-b:v 5M", "-b:v 5M")])
def test_rate_control(ffmpeg: StandIn, given: str, becomes: str) -> None:
    text = worked(ffmpeg("t4", f"-i a.mp4 -c:v h264_nvenc {given} b.mp4"))
    assert becomes in text
    assert "-b:v 2M" not in text  # NVENC's own, where nothing is asked for


@pytest.mark.parametrize(
    ("given", "written"),
    [("p010le", "yuv420p10le"), ("yuv444p16le", "yuv444p10le"), ("nv12", "yuv420p"), ("yuv444p", "yuv444p")],
)
def test_what_is_written_of_raw_pictures(ffmpeg: StandIn, given: str, written: str) -> None:
    text = worked(ffmpeg("t4", f"-f rawvideo -pix_fmt {given} -s 640x480 -i a.yuv -c:v hevc_nvenc b.mp4"))
    assert text.endswith(f"-pix_fmt {written} b.mp4")


def test_resize_and_crop_belong_to_cuvid(ffmpeg: StandIn) -> None:
    done = worked(ffmpeg("t4", "-c:v h264_cuvid -crop 16x16x32x32 -resize 1280x720 -i a.mp4 b.yuv"))
    assert "-vf crop=iw-32-32:ih-16-16:32:16,scale=1280:720" in done
    assert done.endswith("-pix_fmt nv12 b.yuv")
    ignored = ffmpeg("t4", "-hwaccel cuda -resize 1280x720 -i a.mp4 b.yuv")
    assert "-vf" not in worked(ignored)
    assert "AVOption resize (of the cuvid decoders) has not been used for any stream" in ignored.said


def test_ten_bits_come_out_of_nvdec_as_p010(ffmpeg: StandIn) -> None:
    text = worked(ffmpeg("t4", "-hwaccel cuda -hwaccel_output_format cuda -i a.mp4 -vf hwdownload b.yuv", HEVC10))
    assert "-vf format=p010le" in text
    assert text.endswith("-pix_fmt p010le b.yuv")


def test_vsync_of_old_commands(ffmpeg: StandIn) -> None:
    assert "-fps_mode passthrough" in worked(ffmpeg("t4", "-vsync 0 -hwaccel cuda -i a.mp4 b.yuv"))


ON_GPU = "-hwaccel cuda -hwaccel_output_format cuda -i a.mp4 -vf"


@pytest.mark.parametrize(
    ("graph", "becomes"),
    [
        ("scale_cuda=1280:720", "scale=w=1280:h=720"),
        ("scale_npp=w=640:h=-2:interp_algo=super,hwdownload,format=nv12", "scale=w=640:h=-2,format=nv12,format=nv12"),
        ("scale_cuda=format=yuv420p", "format=yuv420p"),
        ("hwdownload,format=nv12,hwupload_cuda", "format=nv12,format=nv12"),
        ("yadif_cuda=0:-1:0,scale_cuda=2:3", "yadif=0:-1:0,scale=w=2:h=3"),
        ("fps=120", "fps=120"),
    ],
)
def test_a_chain_of_pictures_on_the_gpu(ffmpeg: StandIn, graph: str, becomes: str) -> None:
    assert f"-vf {becomes} -c:v libx264" in worked(ffmpeg("t4", f"{ON_GPU} {graph} -c:v h264_nvenc b.mp4"))


def test_labels_carry_where_pictures_are(ffmpeg: StandIn) -> None:
    graph = "[0:v]hwupload,split=2[a][b];[a]scale_cuda=2:2[c];[b]{}[d]"
    words = f"-i a.mp4 -filter_complex '{graph}' -map [c] -c:v h264_nvenc c.mp4 -map [d] -c:v h264_nvenc d.mp4"
    assert "[0:v]null,split=2[a][b];[a]scale=w=2:h=2[c];[b]scale=w=4:h=4[d]" in worked(
        ffmpeg("t4", words.replace("{}", "scale_cuda=4:4"))
    )
    refused(ffmpeg("t4", words.replace("{}", "scale=4:4")), "Impossible to convert between the formats")


@pytest.mark.parametrize(
    "words", ["-i a.mp4 -vf scale_cuda=2:2", f"{ON_GPU} scale=2:2", f"{ON_GPU} hwdownload,scale_cuda=2:2"]
)
def test_pictures_in_the_wrong_place_are_refused_as_by_ffmpeg(ffmpeg: StandIn, words: str) -> None:
    code = refused(ffmpeg("t4", f"{words} -c:v h264_nvenc b.mp4"), "Impossible to convert between the formats")
    assert code == 218


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-i a.mp4 -c:v hevc_nvenc b.mp4", "Unknown encoder 'hevc_nvenc'"),
        ("-c:v hevc_cuvid -i a.mp4 b.yuv", "Unknown decoder 'hevc_cuvid'"),
        (f"{ON_GPU} \"scale_npp@x=1:2,fps='a,b'\" b.yuv", "No such filter: 'scale_npp'"),
    ],
)
def test_what_a_build_lacks(ffmpeg: StandIn, words: str, said: str) -> None:
    ffmpeg.build(parts={"encoders": ["h264_nvenc"], "decoders": ["h264_cuvid"], "filters": ["scale_cuda", "fps"]})
    assert refused(ffmpeg("t4", words), said) == 8
    assert worked(ffmpeg("t4", f"-c:v h264_cuvid {ON_GPU} fps=2,scale_cuda=1:2 -c:v h264_nvenc b.mp4"))


# ---------------------------------------------------------------- what the GPU refuses

RAW = "-f rawvideo -s 1920x1080 -i x -c:v"
DEEP = "-f rawvideo -s 1920x1080 -pix_fmt yuv420p10le -i x -c:v"
FULL = "-f rawvideo -s 1920x1080 -pix_fmt yuv444p10le -i x -c:v"
NO_NVENC = "OpenEncodeSessionEx failed: unsupported device (2): (no details)"


@pytest.mark.parametrize(
    ("key", "words", "said"),
    [
        ("a100", f"{RAW} h264_nvenc", NO_NVENC),
        ("h200", f"{RAW} hevc_nvenc", NO_NVENC),
        ("t4", f"{DEEP} h264_nvenc", "10 bit encode not supported"),
        ("v100", f"{RAW} hevc_nvenc -bf 3", "Max B-frames 3 exceed 0"),
        ("v100", f"{RAW} hevc_nvenc -temporal-aq 1", "Temporal AQ not supported"),
        ("v100", f"{RAW} hevc_nvenc -b_ref_mode middle", "B frames as references are not supported"),
        ("t4", f"{RAW} av1_nvenc", "Codec not supported"),
        ("t4", f"{RAW} h264_nvenc -bf 5", "Max B-frames 5 exceed 4"),
    ],
)
def test_an_encode_that_the_gpu_cannot(ffmpeg: StandIn, key: str, words: str, said: str) -> None:
    ran = ffmpeg(key, f"{words} out.mp4")
    assert refused(ran, f"] {said}\n") == 187
    assert "] No capable devices found\n" in ran.said


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("t4", f"{FULL} hevc_nvenc -bf 5 -b_ref_mode middle -temporal_aq 1"),
        ("t4", f"{RAW} h264_nvenc -bf 3 -rc-lookahead 20 -temporal-aq 1 -b_ref_mode middle"),
        ("v100", f"{FULL} hevc_nvenc"),
        ("v100", f"{FULL.replace('p10le', 'p')} h264_nvenc -bf 4"),
    ],
)
def test_an_encode_that_the_gpu_can(ffmpeg: StandIn, key: str, words: str) -> None:
    assert worked(ffmpeg(key, f"{words} out.mp4"))


@pytest.mark.parametrize(("width", "height", "taken"), [(145, 49, True), (144, 49, False), (145, 48, False)])
def test_pictures_that_are_too_small_for_nvenc(ffmpeg: StandIn, width: int, height: int, taken: bool) -> None:
    words = f"-hwaccel cuda -i a.mp4 -s {width}x{height} -c:v h264_nvenc b.mp4"
    ran = ffmpeg("t4", words)
    if taken:
        worked(ran)
    else:
        refused(ran, "Frame Dimension less than the minimum")


@pytest.mark.parametrize("key", SIMULATED)
def test_what_each_of_them_decodes(ffmpeg: StandIn, key: str) -> None:
    """H.264, HEVC with ten bits and VP9; none of them AV1."""
    for media in (HD, HEVC10, Media("vp9", "yuv420p", 1920, 1080)):
        assert worked(ffmpeg(key, "-hwaccel cuda -i a.mp4 b.yuv", media))
    ran = ffmpeg(key, "-hwaccel cuda -i a.mp4 b.yuv", Media("av1", "yuv420p", 1920, 1080))
    assert refused(ran, "Hardware is lacking required capabilities") == 69


def test_444_hevc_is_not_decoded_by_a_v100(ffmpeg: StandIn) -> None:
    words, deep = "-c:v hevc_cuvid -i a.mp4 b.yuv", Media("hevc", "yuv444p", 1920, 1080)
    assert worked(ffmpeg("t4", words, deep))
    refused(ffmpeg("v100", words, deep), "Codec hevc_cuvid is not supported")


def test_headers_newer_than_the_driver(ffmpeg: StandIn) -> None:
    ffmpeg.build(headers_version="12.2.72.0")
    assert worked(ffmpeg("t4", f"{RAW} h264_nvenc out.mp4"))
    ffmpeg.build(headers_version="13.0.19.0")
    said = "Driver does not support the required nvenc API version. Required: 13.0 Found: 12.2"
    refused(ffmpeg("t4", f"{RAW} h264_nvenc out.mp4"), said)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"fault_gpu_lost": 1}, "CUDA_ERROR_NO_DEVICE"),
        ({"compute_mode": 2}, "CUDA_ERROR_DEVICE_UNAVAILABLE"),
        ({"fault_nvenc_sessions": 0}, "] OpenEncodeSessionEx failed: out of memory (10)"),
    ],
)
def test_a_gpu_that_lets_nobody_in(ffmpeg: StandIn, state: dict[str, Any], said: str) -> None:
    refused(ffmpeg("t4", f"{RAW} h264_nvenc out.mp4", **state), said)


def test_a_driver_whose_parts_differ(ffmpeg: StandIn) -> None:
    assert worked(ffmpeg("t4", f"{RAW} h264_nvenc out.mp4"))
    ffmpeg.change("system", installed_driver="550.163.02")
    refused(ffmpeg.again(f"{RAW} h264_nvenc out.mp4"), "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH")


@pytest.mark.parametrize(("mode", "taken"), [(0, True), (3, False)])
def test_a_gpu_for_one_process_alone(ffmpeg: StandIn, mode: int, taken: bool) -> None:
    assert worked(ffmpeg("t4", f"{RAW} h264_nvenc out.mp4", compute_mode=mode))
    with ffmpeg.load(memory_mib=1):
        assert (ffmpeg.again(f"{RAW} h264_nvenc out.mp4").code == 0) is taken


@pytest.mark.parametrize(("visible", "taken"), [("0", True), ("7", False), ("7,0", False), ("", False)])
def test_a_gpu_that_is_hidden(ffmpeg: StandIn, monkeypatch: pytest.MonkeyPatch, visible: str, taken: bool) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    ran = ffmpeg("t4", f"{RAW} h264_nvenc out.mp4")
    assert ("CUDA_ERROR_NO_DEVICE" not in ran.said) is taken
    assert bool(ran.software) is taken


def test_a_missing_library_of_the_driver(ffmpeg: StandIn) -> None:
    ffmpeg.libraries(*LIBRARIES[:2])
    refused(ffmpeg("t4", f"{RAW} h264_nvenc out.mp4"), "] Cannot load libnvidia-encode.so.1\n")
    assert worked(ffmpeg("t4", "-hwaccel cuda -i a.mp4 b.yuv")), "nothing is encoded"


def test_the_session_limit_counts_what_others_have_open(ffmpeg: StandIn) -> None:
    words = f"{RAW} h264_nvenc out.mp4"
    assert worked(ffmpeg("t4", words, fault_nvenc_sessions=1))
    with ffmpeg.load(encoder_codec=0):
        refused(ffmpeg.again(words), "OpenEncodeSessionEx failed: out of memory (10)")
    assert worked(ffmpeg.again(words))


def test_a_gpu_lost_in_the_middle_ends_the_work(ffmpeg: StandIn) -> None:
    ffmpeg.software("exec sleep infinity")

    def lose() -> None:
        until(lambda: bool(ffmpeg.loads()), "FFmpeg does not load the GPU")
        ffmpeg.change("gpu.0", fault_gpu_lost=1)

    ffmpeg.boot("t4")
    losing = threading.Thread(target=lose)
    losing.start()
    ran = ffmpeg.again(f"{RAW} h264_nvenc out.mp4")
    losing.join()
    assert ran.code != 0
    assert "CUDA_ERROR_UNKNOWN" in ran.said
    assert ffmpeg.loads() == []


# ---------------------------------------------------------------- what it says


def test_lines_of_the_software_ffmpeg(ffmpeg: StandIn) -> None:
    ffmpeg.says.write_text(
        "  Stream #0:0 -> #0:0 (h264 (native) -> h264 (libx264))\n[libx264 @ 0x1] using cpu capabilities: MMX2\n"
        "x265 [info]: HEVC encoder version\n[graph 0 input from stream 0:0 @ 0x1] w:1920 pixfmt:yuv420p tb:1/15360\n"
    )
    ran = ffmpeg("t4", "-hwaccel cuda -hwaccel_output_format cuda -c:v h264_cuvid -i a.mp4 -c:v h264_nvenc b.mp4")
    assert ran.said == (
        "  Stream #0:0 -> #0:0 (h264 (h264_cuvid) -> h264 (h264_nvenc))\n"
        "[graph 0 input from stream 0:0 @ 0x1] w:1920 pixfmt:cuda tb:1/15360\n"
    )


def test_the_features_that_announce_themselves(ffmpeg: StandIn) -> None:
    features = "-temporal_aq 1 -spatial-aq 1 -rc-lookahead 20"
    said = ffmpeg("t4", f"-v verbose -i a -c:v h264_nvenc {features} b.mp4").said
    assert "] Temporal AQ enabled.\n" in said
    assert "] AQ enabled.\n" in said
    assert "Lookahead enabled: depth 20" in said
    assert ffmpeg("t4", f"-i a -c:v h264_nvenc {features} b.mp4").said == ""


# ---------------------------------------------------------------- how fast

BUSY = 0.97  # of the published figures, with every engine busy


def test_one_session_has_one_engine_and_many_share_all() -> None:
    alone, full, crowded = (speed("a100", 1245, sessions, 0, decode_codec="h264") for sessions in (1, 5, 10))
    assert alone.fps == full.fps == pytest.approx(771 * 1245 / 1860 * BUSY)
    assert crowded.fps == pytest.approx(full.fps / 2)
    assert alone.decoder == pytest.approx(20)
    assert full.decoder * 5 == pytest.approx(crowded.decoder * 10) == pytest.approx(100)


def test_encoding_and_decoding_the_smaller_one_counts() -> None:
    found = speed("t4", 1470, 1, 1, decode_codec="h264", encode_codec="h264", preset=3, encode=4.0)
    assert found.fps == pytest.approx(602 * 1470 / 1950 * BUSY)
    assert found.encoder == pytest.approx(100)
    assert 5 < found.decoder < 15


def test_presets_between_those_of_the_table_and_smaller_pictures() -> None:
    rates = [speed("t4", 1950, 0, 1, encode_codec="h264", preset=p, encode=1.0).fps for p in range(1, 8)]
    assert rates == sorted(rates, reverse=True)
    assert rates[:2] == pytest.approx([833 * BUSY, (833 + 602) / 2 * BUSY])
    small = speed("t4", 1860, 1, 0, decode_codec="h264", width=960, height=540)
    assert small.fps == pytest.approx(4 * 771 * BUSY)


def test_engines_that_are_not_there_make_nothing() -> None:
    assert speed("a100", 1245, 1, 1, decode_codec="h264", encode_codec="h264", encode=1.0).fps == 0
    assert speed("t4", 1245, 1, 0, decode_codec="av1").fps == 0


def test_paced_work_reports_what_the_engines_make(ffmpeg: StandIn, tmp_path: Path) -> None:
    """As a session of the throughput probe: told to end, it reports once more and says so."""
    reports: list[dict[str, str]] = []
    shown: list[str] = []
    progress = tmp_path / "progress"
    os.mkfifo(progress)

    def watch() -> None:
        with progress.open() as lines:
            report: dict[str, str] = {}
            for line in lines:
                name, _, value = line.strip().partition("=")
                report[name] = value
                if name == "progress":
                    reports.append(report)
                    report = {}
                    if len(reports) == 10:
                        shown.append(ffmpeg.loads()[0]["graphics"])
                        os.kill(os.getpid(), signal.SIGTERM)

    watching = threading.Thread(target=watch)
    watching.start()
    words = (
        f"-v warning -progress {progress} -stats_period 0.05 -hwaccel cuda -hwaccel_output_format cuda -i x -f null -"
    )
    endless = Media("h264", "yuv420p", 1920, 1080, 30.0, 10**9)
    ran = ffmpeg("t4", words, endless, app_graphics=1590, app_memory=5001)
    watching.join()
    assert ran.code == 255
    assert "received signal 15" in ran.said
    assert (shown, reports[-1]["progress"]) == (["1590"], "end")
    # By its own clock: frames made / frames a second.
    first, last = ((int(one["frame"]), int(one["frame"]) / float(one["fps"])) for one in (reports[1], reports[-2]))
    assert (last[0] - first[0]) / (last[1] - first[1]) == pytest.approx(771 * 1470 / 1860 * BUSY, rel=0.03)
