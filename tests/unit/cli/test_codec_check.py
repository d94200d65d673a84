"""What an ffmpeg command needs of a build and of a GPU. No command is run, and hostile words do nothing."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import amount
import pytest
from commandline import Shell, own_folders
from fakehost import Script
from ffmpegchecks import answered, asked, build, checked, of_profile, tries
from hypothesis import given, settings
from hypothesis import strategies as some
from records_for_tests import measured as record_of

from gpuprep import errors, records, remote
from gpuprep.agent.probes import transcodecases
from gpuprep.records.evidence.codec import Codec
from gpuprep.store import Store
from gpuprep.workflows import codeccheck

BASE, VIDEO = of_profile("base"), of_profile("video")


def named(words: str, kind: str) -> list[str]:
    return [one.name for one in asked(words).needs if one.kind == kind]


LIVE = (
    "ffmpeg -hide_banner -y -hwaccel cuda -hwaccel_output_format cuda -c:v h264_cuvid -i https://a.example/in.m3u8 "
    '-filter_complex "[0:v]split=2[a][b];[a]scale_cuda=1280:720[x];[b]hwdownload,format=nv12|yuv420p,'
    "drawtext=text='a,b;c[d]':x=1[y]\" -map [x] -c:v av1_nvenc -preset p4 -c:a libopus -bsf:v 'noise=1,dump_extra' "
    '-f mpegts "srt://10.0.0.1:9000?mode=caller" -map [y] -c:v:0 libx264 -pix_fmt yuv420p out.mp4'
)


def test_every_kind_of_part_of_a_live_ladder() -> None:
    assert named(LIVE, "encoders") == ["av1_nvenc", "libopus", "libx264"]
    assert named(LIVE, "decoders") == ["h264_cuvid"]
    assert named(LIVE, "hwaccels") == ["cuda"]
    assert named(LIVE, "filters") == ["split", "scale_cuda", "hwdownload", "format", "drawtext"]
    assert named(LIVE, "protocols") == ["https", "tls", "libsrt", "file"]
    assert named(LIVE, "demuxers") == ["hls"]
    assert named(LIVE, "muxers") == ["mpegts", "mp4"]
    assert named(LIVE, "bsfs") == ["noise", "dump_extra"]
    assert named(LIVE, "pix_fmts") == ["nv12", "yuv420p"]
    assert named(LIVE, "gpu") == ["cuda", "nvdec.h264", "nvenc.av1"]


@pytest.mark.parametrize(
    ("words", "kind", "names"),
    [
        ("ffmpeg -i a.mkv -c copy b.mp4", "encoders", []),
        ("ffmpeg -f lavfi -i testsrc2=s=64x64,noise=alls=8 -c:v libx265 -f null -", "filters", ["testsrc2", "noise"]),
        ("ffmpeg -f lavfi -i sine -f null -", "indevs", ["lavfi"]),
        ("ffmpeg -i rtsp://cam/1 -c copy out.ts", "demuxers", ["rtsp"]),
        ("ffmpeg -i - -f rawvideo pipe:1", "protocols", ["pipe"]),
        ("ffmpeg -i a.mp4 -c:v libx264 -f tee '[f=mpegts]udp://1.2.3.4:5|[f=flv]rtmps://x/y'", "muxers",
         ["tee", "mpegts", "flv"]),
        ("ffmpeg -i a.mp4 -c:v libx264 -f tee '[f=mpegts]udp://1.2.3.4:5|[f=flv]rtmps://x/y'", "protocols",
         ["file", "udp", "rtmps", "tls"]),
        ("ffmpeg -i a.mp4 -c:v h264_nvenc -bf 3 -b_ref_mode middle -rc-lookahead 20 -temporal_aq 1 b.mp4", "gpu",
         ["nvenc.h264", "nvenc.h264.b_frames", "nvenc.h264.lookahead", "nvenc.h264.temporal_aq", "nvenc.h264.b_ref"]),
        ("ffmpeg -i a.mp4 -c:v hevc_nvenc -pix_fmt p010le -bf 0 b.mp4", "gpu", ["nvenc.hevc", "nvenc.hevc.10bit"]),
        ("ffmpeg -i C:/a.mp4 -c:v libx264 b.mp4", "protocols", ["file"]),
        ("/opt/x/ffmpeg -i a.wav -af loudnorm -c:a aac b.m4a", "filters", ["loudnorm"]),
    ],
)  # fmt: skip
def test_needs(words: str, kind: str, names: list[str]) -> None:
    assert named(words, kind) == names


@pytest.mark.parametrize(
    "words",
    [
        "ffmpeg -i a.mp4 -vstats -c:v libx264 b.mp4",
        "ffmpeg -i a.mp4 -copyinkf -c:v libx264 b.mp4",
        "ffmpeg -display_hflip -i a.mp4 -nostats -c:v libx264 b.mp4",
        "ffmpeg -i a.mp4 -an -noautorotate -c:v libx264 b.mp4",
        "ffmpeg -i a.mp4 -a_flag_of_tomorrow -c:v libx264 b.mp4",
    ],
)
def test_an_option_without_a_value_takes_no_other_option_away(words: str) -> None:
    found = asked(words)
    assert [(one.kind, one.name) for one in found.needs] == [
        ("protocols", "file"), ("demuxers", "mov"), ("encoders", "libx264"), ("muxers", "mp4"),
    ]  # fmt: skip


def test_an_output_without_video_has_no_video_encoder_to_name() -> None:
    assert not any("names no video encoder" in note for note in asked("ffmpeg -i a.mp4 -vn -c:a aac b.m4a").notes)
    assert named("ffmpeg -i a.mp4 -c copy -f segment -segment_format nut o%03d.nut", "muxers") == ["nut", "segment"]


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("ffmpeg -i a.mp4 b.mp4", ["video", "audio"]),
        ("ffmpeg -i a.mp4 -c:v libx264 b.mp4", ["audio"]),
        ("ffmpeg -i a.mp4 -vcodec libx264 -acodec aac b.mp4", []),
        ("ffmpeg -i a.mp4 -c:a aac b.mp4", ["video"]),
        ("ffmpeg -i a.mp4 -c:v libx264 -an b.mp4", []),
        ("ffmpeg -i a.mp4 -c copy b.mp4", []),
        ("ffmpeg -i a.mp4 -map 0:v:0 -c:v libx264 b.mp4", []),
        ("ffmpeg -i a.mp4 -map 0 -c:v libx264 b.mp4", ["audio"]),
        ("ffmpeg -i a.mp4 -map 0:v -map 0:a? -c:v libx264 b.mp4", ["audio"]),
        ("ffmpeg -i a.mp4 -f null -", []),
    ],
)
def test_an_encoder_that_is_left_to_ffmpeg_is_a_note(words: str, left: list[str]) -> None:
    notes = " ".join(asked(words).notes)
    assert [kind for kind in ("video", "audio") if f"names no {kind} encoder" in notes] == left


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ("-c:v libx264 -c:v mpeg4", "-c:v libx264 is given again later, and FFmpeg uses the last: mpeg4"),
        ("-vcodec libx264 -c:v mpeg4", "-vcodec libx264 is given again later, and FFmpeg uses the last: mpeg4"),
        ("-vf hflip -filter:v vflip", "-vf hflip is given again later, and FFmpeg uses the last: vflip"),
        ("-flags +cgop -flags ilme", "-flags +cgop is given again later, and FFmpeg uses the last: ilme"),
        ("-flags cgop -flags +ilme -movflags faststart -movflags -empty_moov", ""),
        ("-map_channel 0.0.0 -map_channel 0.0.1", ""),
        ("-b:v 2M -b:v 2M -map 0:v -map 0:a -metadata a=b -metadata c=d -c:v:0 h264_nvenc -c:v:1 libx264 -an -an", ""),
    ],
)  # fmt: skip
def test_of_an_option_that_is_given_twice_the_last_counts(words: str, note: str) -> None:
    assert [one for one in asked(f"ffmpeg -i a.mp4 {words} b.mp4").notes if "given again" in one] == [note] * bool(note)


@pytest.mark.parametrize(("option", "said"), [("crf 23", True), ("x264-params a=1", True), ("cq 23", False)])
def test_an_option_that_only_other_encoders_have_is_a_note(option: str, said: bool) -> None:
    noted = checked(f"ffmpeg -i a.mp4 -c:v h264_nvenc -{option} -an b.mp4", VIDEO).asked.notes
    assert any("and FFmpeg ignores it" in note for note in noted) == said
    noted = checked(f"ffmpeg -i a.mp4 -c:v libx264 -{option} -an b.mp4", VIDEO).asked.notes
    assert not any("and FFmpeg ignores it" in note for note in noted)


@pytest.mark.parametrize(("value", "said"), [("0:s", True), ("0:v:1", True), ("0:s?", False), ("0:a", False)])
def test_a_stream_that_an_input_may_lack_is_a_note(value: str, said: bool) -> None:
    notes = checked(f"ffmpeg -i a.mkv -map 0:v -map {value} -c copy b.mkv", VIDEO).asked.notes
    assert any("no such stream" in note for note in notes) == said


def test_what_only_a_file_could_tell_is_said_and_no_need() -> None:
    notes = " ".join(asked("ffmpeg -i a.mp4 -filter_complex_script g.txt b.mp4").notes)
    assert "no file is opened" in notes
    assert "-filter_complex_script reads a file" in notes
    assert "names no video encoder" in notes


@pytest.mark.parametrize(
    "graph",
    [
        "[0:v]concat=v=\u00b2",
        "[0:v]concat=v=" + "9" * 5000,
        "x" + "[a]" * 15000,
        "[a]" * 15000 + "x",
        "[" * 60000,
        ";".join(f"[a{n + 1}]x[a{n}]" for n in range(3000)),
    ],
    ids=["another-digit", "large-figure", "labels-behind", "labels-before", "brackets", "backwards"],
)
def test_a_graph_that_is_made_to_take_long_does_not(graph: str) -> None:
    assert checked(["ffmpeg", "-i", "a.mp4", "-filter_complex", graph, "b.mp4"], VIDEO).exit_code in (0, 1, 3)


@pytest.mark.parametrize(
    "words",
    [[], ["rm", "-rf", "/"], ["ffmpeg"], ["ffmpeg", "-version"], ["ffmpeg", "a" * 70000], ["ffmpeg", *"ab" * 2000]],
)
def test_what_is_no_command_is_refused(words: list[str]) -> None:
    with pytest.raises(errors.UsageError):
        asked(words)


GRAPH = "[0:v]split[a][b];[b][a]overlay_cuda[c]"
WORDS = ["-i", "-vf", "-f", "tee", "[", "]]", "-c:v", "-filter_complex", GRAPH, "-map", "[c]", "0:v", "-hwaccel",
         "cuda", "-hwaccel_output_format", "-gpu", "h264_nvenc", "-preset", "lavfi"]  # fmt: skip


@settings(max_examples=amount.examples(300), deadline=None)
@given(
    some.lists(
        some.one_of(
            some.text(max_size=40),
            some.sampled_from(WORDS),
        )
    )
)
def test_no_words_break_it(words: list[str]) -> None:
    try:
        found = asked(["ffmpeg", *words])
        assert checked(["ffmpeg", *words], VIDEO).exit_code in (0, 1, 3)
    except errors.UsageError:
        return
    for one in found.needs:
        assert one.name.isascii()
        assert len(one.name) <= 64 or one.kind == "gpu"


# ---------------------------------------------------------------- answers


def test_what_base_lacks_and_which_key_adds_it() -> None:
    found = answered(LIVE, BASE)
    lacking = {key for key, one in found.items() if one.status is records.Status.FAIL}
    assert lacking == {
        "encoders libopus", "encoders libx264", "filters drawtext", "protocols https", "protocols tls",
        "protocols libsrt", "bsfs noise", "bsfs dump_extra", "gpu nvenc.av1",
    }  # fmt: skip
    x264 = found["encoders libx264"].remedy
    assert x264 == "codec.parts.encoders with libx264 and codec.libraries with x264; profile video has it"
    assert "T4 cannot do av1" in found["gpu nvenc.av1"].why


def test_the_video_profile_has_what_jobs_ask_for() -> None:
    words = (
        "ffmpeg -i https://a/b.mp4 -i srt://1.2.3.4:5 -vf drawtext=text=x,subtitles=a.srt -c:v libx264 -c:a libopus "
        "a.mkv "
        "-c:v libx265 -c:a aac b.mp4"
    )
    assert {one.status for one in answered(words, VIDEO).values()} == {records.Status.PASS}


@pytest.mark.parametrize(
    ("words", "gpu", "status"),
    [
        ("ffmpeg -i a.mp4 -c:v h264_nvenc b.mp4", "t4", records.Status.PASS),
        ("ffmpeg -i a.mp4 -c:v h264_nvenc b.mp4", "h100", records.Status.FAIL),
        ("ffmpeg -i a.mp4 -c:v h264_nvenc -pix_fmt p010le b.mp4", "rtx_5090", records.Status.PASS),
        ("ffmpeg -i a.mp4 -c:v h264_nvenc -pix_fmt p010le b.mp4", "l4", records.Status.FAIL),
        ("ffmpeg -i a.mp4 -c:v av1_nvenc b.mp4", "l4", records.Status.PASS),
        ("ffmpeg -i a.mp4 -c:v hevc_nvenc -bf 3 b.mp4", "v100", records.Status.FAIL),
        ("ffmpeg -i a.mp4 -c:v h264_nvenc b.mp4", None, records.Status.UNKNOWN),
        ("ffmpeg -c:v av1_cuvid -i a.mp4 -f null -", "t4", records.Status.FAIL),
        ("ffmpeg -c:v mpeg2_cuvid -i a.ts -f null -", "v100", records.Status.PASS),
        ("ffmpeg -c:v vp8_cuvid -i a.webm -f null -", "h100", records.Status.PASS),
        ("ffmpeg -c:v mpeg4_cuvid -i a.mp4 -f null -", "l4", records.Status.PASS),
        ("ffmpeg -c:v mjpeg_cuvid -i a.mov -f null -", "t4", records.Status.PASS),  # by CUDA, on every GPU
    ],
)
def test_what_the_gpu_can_do(words: str, gpu: str | None, status: records.Status) -> None:
    found = [one for key, one in answered(words, BASE, gpu).items() if key.startswith("gpu")]
    assert [one.status for one in found][-1] is status


def test_a_codecs_name_is_the_encoder_that_ffmpeg_takes_for_it() -> None:
    found = answered("ffmpeg -i a.mp4 -c:v h264 -c:a mp3 b.mp4", BASE)
    assert found["encoders h264"].status is records.Status.UNKNOWN
    assert found["encoders h264"].remedy == "write h264_nvenc in place of h264"
    assert found["encoders mp3"].status is records.Status.FAIL
    assert "libmp3lame" in found["encoders mp3"].remedy
    both = build(encoders=("libx264", "h264_nvenc"), muxers=("mp4",))
    answer = answered("ffmpeg -i a.mp4 -c:v h264 b.mp4", both)["encoders h264"]
    assert (answer.status, answer.why) == (records.Status.PASS, "FFmpeg takes libx264 for it")


def test_scale_npp_comes_with_npp_and_what_no_key_adds_is_said() -> None:
    words = "ffmpeg -i a.mp4 -vf scale_npp=1280:720 -c:v h264_vaapi b.mp4"
    without, with_npp = answered(words, BASE, None), answered(words, of_profile("base", npp=True), None)
    assert without["filters scale_npp"].remedy.startswith("codec.npp: true")
    assert with_npp["filters scale_npp"].status is records.Status.PASS
    assert without["encoders h264_vaapi"].remedy.startswith("write h264_nvenc in place of h264_vaapi")
    assert without["gpu cuda"].status is records.Status.PASS  # every GPU of NVIDIA


def test_without_evidence_nothing_passes() -> None:
    found = answered("ffmpeg -i a.mp4 -c:v h264_nvenc b.mp4", records.Missing("not_recorded", "no probe"))
    assert {one.status for key, one in found.items() if not key.startswith("gpu")} == {records.Status.UNKNOWN}


def test_lists_of_the_probe_count_before_configures_arguments() -> None:
    parts = build(encoders=("libx264",), decoders=(), filters=(), muxers=("mp4",), demuxers=("mov", "mp4"),
                  protocols=("file", "srt"), pix_fmts=("yuv420p",), buildconf=("--enable-gpl",))  # fmt: skip
    found = answered("ffmpeg -i srt://a:1 -f mp4 -c:v libx264 -pix_fmt yuv420p -an b.mp4", parts)
    assert {one.status for one in found.values()} == {records.Status.PASS}
    unknown = records.Missing("not_recorded")
    old = dataclasses.replace(parts, muxers=unknown, protocols=unknown)
    found = answered("ffmpeg -i srt://a:1 -f mp4 b.mp4", old)
    assert found["muxers mp4"].status is records.Status.UNKNOWN


# ---------------------------------------------------------------- frames, options and values

CASES = Path(__file__).resolve().parents[2] / "cases"


def commands(file: str) -> Iterator[Any]:
    """Name, GPU, exit code, command and all that must be said, of each command of a file."""
    text = "\n".join(line for line in (CASES / file).read_text().splitlines() if not line.startswith("#"))
    for block in re.split(r"\n(?=\S)", text.strip()):
        head, command, *says = [line.strip() for line in block.splitlines()]
        name, gpu, code = head.split()
        yield pytest.param(gpu, int(code), command, says, id=name)


def said(words: str | list[str], parts: Codec = VIDEO, gpu: str = "t4", gpus: int | None = None) -> list[str]:
    """What is wrong or not known, with what to do, one line each."""
    return [
        f"{one.status.value} {one.title}: {one.why}" + (f" -> {one.remedy}" if one.remedy else "")
        for one in checked(words, parts, gpu, gpus).answers
        if one.status is not records.Status.PASS
    ]


@pytest.mark.parametrize(
    ("gpu", "code", "command", "says"), [*commands("public/codec_commands.txt"), *commands("ffmpeg_commands.txt")]
)
def test_a_command_is_followed_from_the_input_to_the_encoder(
    gpu: str, code: int, command: str, says: list[str]
) -> None:
    assert (said(command, gpu=gpu), checked(command, VIDEO, gpu).exit_code) == (says, code)


@pytest.mark.parametrize("version", ["5.1.9-0+deb12u1", "7.1.5", "8.1.2", "9.0.2"])
@pytest.mark.parametrize("gpu", ["t4", "v100"])
def test_every_command_of_nvidias_guide_is_right(version: str, gpu: str) -> None:
    parts = of_profile("base", npp=not version.startswith("9"), version=version)
    cases = [case for case in transcodecases.CASES if not (version.startswith("9") and case.id == "scale-npp")]
    assert {case.id: said(f"ffmpeg {case.arguments}", parts, gpu) for case in cases} == {case.id: [] for case in cases}


@pytest.mark.parametrize(
    ("version", "words", "says"),
    [
        ("6.1.1", "-autorotate 0 -i a.mp4 -c:v h264_nvenc -an b.mp4", []),
        ("", "-autorotate 0 -i a.mp4 -c:v h264_nvenc -an b.mp4", ["UNKNOWN option -autorotate"]),
        ("9.0.2", "-i a.mp4 -vsync 0 -c:v h264_nvenc -an b.mp4", ["FAIL option -vsync"]),
        ("9.0.2", "-i a.mp4 -c:v h264_nvenc -preset lossless -rc vbr_hq -temporal_aq 1 -an b.mp4",
         ["FAIL option -temporal_aq", "FAIL option -preset", "FAIL option -rc"]),
        ("9.0.2", "-i a.mp4 -c:v h264_nvenc -profile:v high444p -an b.mp4", []),
        ("9.0.2", "-i a.mp4 -c:v h264_nvenc -profile:v high422 -an b.mp4", ["FAIL GPU nvenc.h264.422"]),
        ("8.1.2", "-i a.mp4 -vf format=yuv422p -c:v hevc_nvenc -an b.mp4", ["FAIL GPU nvenc.hevc.422"]),
        ("8.1.2", "-i a.mp4 -pix_fmt yuv444p -c:v av1_nvenc -an b.mp4",
         ["FAIL GPU nvenc.av1"]),
        ("7.1.5", "-i a.mp4 -vf format=yuv422p -c:v hevc_nvenc -an b.mp4", []),
        ("8.0.1", "-hwaccel cuda -hwaccel_output_format cuda -i a.mp4 -vf crop=8:8 -c:v h264_nvenc -an b.mp4",
         ["UNKNOWN frames crop"]),
        ("8.1.2", "-hwaccel cuda -hwaccel_output_format cuda -i a.mp4 -vf crop=8:8 -c:v h264_nvenc -an b.mp4",
         ["FAIL frames crop"]),
        ("8.1.2", "-hwaccel cuda -hwaccel_output_format cuda -i a.mp4 -vf crop=8:8,hwdownload,format=nv12 -an b.mp4",
         ["FAIL frames crop"]),
        ("8.1.2", "-hwaccel cuda -hwaccel_output_format cuda -i a.mp4 -vf crop=8:8,fps=5,scale_cuda -c:v h264_nvenc -an"
         " b.mp4", []),
        ("7.1.5", "-i a.mkv -c:v h264_nvenc -an -c:s srt b.mp4", ["FAIL output b.mp4"]),
        ("7.1.5", "-i a.mkv -c:v h264_nvenc -an -c:s mov_text b.mp4", []),
        ("7.1.5", "-i a.mkv -c:v h264_nvenc -an -c:s srt b.mkv", []),
        ("7.1.5", "-i a.mkv -c:v h264_nvenc -an -c:s mov_text b.mkv", ["FAIL output b.mkv"]),
        ("7.1.5", "-i a.mkv -c:v h264_nvenc -an -c:s copy b.mp4", []),
        ("7.1.5", "-i a.mp4 -vf overlay -c:v h264_nvenc -an b.mp4", ["FAIL filter overlay"]),
        ("7.1.5", "-i a.mp4 -vf hwupload_cuda,overlay_cuda=1:1 -c:v h264_nvenc -an b.mp4",
         ["FAIL filter overlay_cuda"]),
        ("7.1.5", "-i a.mp4 -vf movie=l.png[l];[in][l]overlay -c:v h264_nvenc -an b.mp4", ["FAIL filter movie"]),
        ("6.0", "-i a.mp4 -c:v hevc_nvenc -an -f flv rtmp://a/b", ["FAIL output rtmp"]),
        ("6.1.1", "-i a.mp4 -c:v hevc_nvenc -an -f flv rtmp://a/b", []),
        ("7.1.5", "-i a.mp4 -vf hwupload_cuda,scale_cuda=640:360:interp_algo=lanczoss -c:v h264_nvenc -an b.mp4",
         ["FAIL filter scale_cuda"]),
        ("7.1.5", "-i a.mp4 -vf hwupload_cuda,yadif_cuda=send_fields -c:v h264_nvenc -an b.mp4",
         ["FAIL filter yadif_cuda"]),
        ("7.1.5", "-i a.mp4 -vf hwupload_cuda,bwdif_cuda=1:-1:all,yadif_cuda=send_field -c:v h264_nvenc -an b.mp4", []),
        ("7.1.5", "-i a.mp4 -vf hwupload_cuda,select=\"'gt(scene,0.4)'\" -c:v h264_nvenc -an b.mp4",
         ["FAIL frames select"]),
        ("7.1.5", "-i a.mp4 -vf hwupload_cuda,select=\"'not(mod(n,2))'\" -c:v h264_nvenc -an b.mp4", []),
        ("7.1.5", "-i a.mp4 -vf hwupload=derive_device=vulkan,scale_cuda=640:360 -c:v h264_nvenc -an b.mp4",
         ["UNKNOWN frames hwupload"]),
        ("9.0.2", "-i a.mp4 -vf hwmap -c:v h264_nvenc -an b.mp4", ["FAIL frames hwmap"]),
        ("9.1", "-i a.mp4 -vf hwmap -c:v h264_nvenc -an b.mp4", ["UNKNOWN frames hwmap"]),
        ("9.0.2", "-hwaccel cuda -hwaccel_output_format cuda -i a.mp4 -vf scale_npp=640:360 -c:v h264_nvenc -an b.mp4",
         ["FAIL filter scale_npp"]),
        ("11.0", "-i a.mp4 -c:v h264_nvenc -option_of_tomorrow 1 -preset p8 -an b.mp4",
         ["UNKNOWN option -option_of_tomorrow", "UNKNOWN option -preset"]),
        ("N-118000-gabc", "-i a.mp4 -c:v h264_nvenc -option_of_tomorrow 1 -an b.mp4",
         ["UNKNOWN option -option_of_tomorrow"]),
    ],
)  # fmt: skip
def test_options_and_values_are_those_of_this_ffmpeg(version: str, words: str, says: list[str]) -> None:
    found = said(f"ffmpeg {words}", of_profile("video", npp=True, version=version))
    assert [one.split(":")[0] for one in found] == says


@pytest.mark.parametrize(
    ("option", "right", "wrong"),
    [
        ("b:v", ["4M", "4Mi", "4KiB", "5 000k", "1e6", "2*1000k", "max", "PI", "0x10", "min(4M;5M)"],
         ["4Mb", "4Mbps", "x", "5,5M", "", "1_000", "4.5.6", "k", "4MM", "8M/s", "2*x"]),
        ("b:v", ["0", "1.5"], ["-1", "-1.5"]),
        ("maxrate", ["0"], ["-1"]),
        ("probesize", ["32", "5M"], ["31", "-1"]),
        ("g", ["50", "-1", "12a", "25*2"], ["x", "5s", ""]),
        ("q:v", ["2", "2.5", "2k", "-1"], ["2,5", "x", "1+1", "auto"]),
        ("frames:v", ["10", "1k", "1.5k", "10.0", "-1"], ["x", "all", "1.5"]),
        ("ac", ["2"], ["2.1"]),
        ("threads", ["0", "4", "auto", "2*2", "1.5"], ["x", "-1", "max4"]),
        ("level", ["41", "4.1", "unknown", "-99"], ["x", "high"]),
        ("ss", ["-5", "-0:01"], ["x"]),
        ("to", ["5"], ["-5", "-0:01"]),
        ("ar", ["48000", "48k", "44.1k"], ["x", "48kHz"]),
        ("t", ["10", "1:30", "01:30:00", "1:2", "10s", "10ms", "1.5"],
         ["-5", "-0:01", "-00:00:00.5", "0:x", "x", ".5", "1:30:",
          "10sec", "1m", "90 ", "1:2:3:4", "00:00:10,5", "1:75", "100:00", "inf"]),
        ("r", ["25", "30000/1001", "30:1", "ntsc", "ntsc-film", "1/2", "60*1", "23.976", "PI"],
         ["x", "30fps", "0", "-1", "29,97", "24p", "auto", "30/x"]),
        ("s", ["1280x720", "1280:720", "hd720", "1280X720", "2kdci"],
         ["HD720", "x", "1280", "1280x", "0x0", "-1x720", "uhd", "720p", "1280 x 720", "1920x1080p", "iw:ih"]),
        ("aspect", ["16:9", "16/9", "1.78"], ["x", "16x9", "0", "4:3:2", "auto"]),
        ("color_primaries", ["bt709", "9", "bt2020"], ["x", "bt2021"]),
        ("strict", ["-2", "experimental"], ["x", "veri"]),
        ("flags", ["+cgop", "+global_header+cgop", "-loop"], ["cgop-x", "+closed_gop"]),
        ("fps_mode", ["cfr", "vfr"], ["x"]),
        ("movflags", ["+faststart", "frag_keyframe+empty_moov"], ["+fast_start"]),
    ],
)  # fmt: skip
def test_a_value_is_one_that_ffmpeg_reads(option: str, right: list[str], wrong: list[str]) -> None:
    """Each was given to FFmpeg 5.1.9 and 9.0.2, which agree; the flags of a format to the muxer that has them."""
    command = ["ffmpeg", "-i", "a.mp4", f"-{option}", "", "-c:v", "mpeg4", "-an", "b.mp4"]
    refused = []
    for value in (*right, *wrong):
        command[4] = value
        refused += [value] * any(line.startswith(f"FAIL option -{option}:") for line in said(command))
    assert refused == wrong


@pytest.mark.parametrize(
    ("number", "gpus", "says"),
    [
        ("1", 1, ["FAIL GPU number 1: the host has one GPU, number 0 -> write 0"]),
        ("2", 2, ["FAIL GPU number 2: the host has 2 GPUs, numbers 0 to 1 -> write 0 to 1"]),
        ("1", 2, []),
        ("any", 1, []),
    ],
)
def test_the_number_of_a_gpu_must_be_there(number: str, gpus: int, says: list[str]) -> None:
    ways = [
        f"ffmpeg -i a.mp4 -c:v h264_nvenc -gpu {number} -an b.mp4",
        f"ffmpeg -hwaccel cuda -hwaccel_device {number} -i a.mp4 -c:v h264_nvenc -an b.mp4",
        f"ffmpeg -init_hw_device cuda=cu:{number} -i a.mp4 -c:v h264_nvenc -an b.mp4",
        f"ffmpeg -i a.mp4 -vf hwupload_cuda=device={number} -c:v h264_nvenc -an b.mp4",
    ]
    assert {way: said(way, gpus=gpus) for way in ways} == {way: says for way in ways}


def test_an_encoder_that_ffmpeg_takes_by_itself_must_be_in_the_build() -> None:
    assert said("ffmpeg -i a.mkv -c:v h264_nvenc b.mkv", BASE) == [
        "UNKNOWN encoder: no audio encoder is named, matroska takes ac3 then, and this FFmpeg has no encoder for it:"
        " FFmpeg stops if an input has sound -> add -c:a aac, or -an"
    ]  # fmt: skip
    assert said("ffmpeg -f lavfi -i testsrc -c:v h264_nvenc b.mkv", BASE) == []
    assert [one.split(" ->")[0][:12] for one in said("ffmpeg -i a.mkv -vf scale=64:64 -an b.mp4", BASE)] == [
        "FAIL encoder"
    ]
    assert said("ffmpeg -hwaccel cuda -hwaccel_output_format cuda -i a.mkv -an b.m3u8", BASE) == []  # h264_nvenc is all


def test_a_format_is_found_by_both_of_its_names() -> None:
    words = "ffmpeg -f s16le -i a.pcm -f s16le -"
    assert said(words, BASE) == []
    listed = build(muxers=("s16le", "mpeg"), demuxers=("s16le", "mpeg"), protocols=("file", "pipe"), version="7.1.5",
                   encoders=("pcm_s16le", "mpeg1video", "mp2"))  # fmt: skip
    assert said(words, listed) == []
    assert said("ffmpeg -i a.mpg -c copy b.mpg", listed) == []
    assert answered("ffmpeg -i a.mp4 -c copy -f dvd x", BASE)["muxers dvd"].remedy == "codec.parts.muxers with mpeg2dvd"


def test_pictures_need_their_decoder_and_encoder() -> None:
    found = answered("ffmpeg -i a.mp4 -i logo.png -filter_complex overlay -c:v h264_nvenc -an b.mp4", BASE)
    assert (
        found["decoders png"].remedy
        == "codec.parts.decoders with png and codec.libraries with zlib; profile video has it"
    )
    assert said("ffmpeg -i a.mp4 -frames:v 1 b.png", BASE) == [
        "FAIL encoder: no video encoder is named, image2 takes png then, and this FFmpeg has no encoder for it"
        " -> codec.parts.encoders with png and codec.libraries with zlib"
    ]


# ---------------------------------------------------------------- the command


PARTS: dict[str, Any] = {
    "path": "/usr/local/bin/ffmpeg", "version": "7.1.5", "licence": "GPL version 2 or later",
    "encoders": ["libx264"],
    "decoders": [], "filters": [], "hwaccels": ["cuda"], "muxers": ["mp4"], "demuxers": ["mov"], "bsfs": [],
    "protocols": ["file"], "pix_fmts": ["yuv420p"], "buildconf": [],
}  # fmt: skip


@pytest.fixture(autouse=True)
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Hosts that cannot be reached, until the test gives them an answer."""
    script = Script(
        connecting={name: errors.HostUnreachable(f"{name} cannot be reached") for name in ("gpu-1", "gpu-2")}
    )
    monkeypatch.setattr(codeccheck, "Host", script.host())
    return script


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """With one run of gpu-1 that asked FFmpeg for its parts, and a newer one that did not."""
    own_folders(monkeypatch, tmp_path)
    url = f"sqlite:///{tmp_path / 'history.db'}"
    opened = Store.open(url)
    asked_run = record_of("20261120-100000-abc123", 1.0, day=1)
    opened.append(
        dataclasses.replace(
            asked_run, measurements=(records.ProbeResult("codec", records.Source.MEASURED, PARTS, 1.0),)
        )
    )
    opened.append(record_of("20261121-100000-abc124", 1.0, day=2))
    opened.close()
    return url


@pytest.fixture
def check(store: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    return lambda *words: Shell(capsys)("codec", "check", "--store", store, *words)


Check = Callable[..., tuple[int, str, str]]


def test_a_hosts_last_record_that_has_the_parts(check: Check) -> None:
    code, out, _ = check("gpu-1", "--", "ffmpeg", "-i", "a.mp4", "-c:v", "libx264", "-c:a", "copy", "b.mp4")
    assert code == 0
    assert out.startswith("FFmpeg 7.1.5, GPL version 2 or later, of gpu-1, run 20261120-100000-abc123")
    assert "note: gpu-1 was not asked; this is from its last record: gpu-1 cannot be reached\n" in out
    code, out, _ = check("gpu-1", "--json", "--", "ffmpeg", "-i", "a.mp4", "-c:v", "libx265", "b.mp4")
    document = json.loads(out)
    assert (code, document["exit_code"]) == (1, 1)
    lacking = [one for one in document["needs"] if one["status"] == "FAIL"]
    assert [(one["kind"], one["name"]) for one in lacking] == [("encoders", "libx265")]


def test_a_host_knows_how_many_gpus_it_has(check: Check) -> None:
    words = ["--", "ffmpeg", "-hwaccel_device", "1", "-i", "a.mp4", "-c:v", "libx264", "-an", "b.mp4"]
    code, out, _ = check("gpu-1", *words)
    assert code == 1
    assert "FAIL    GPU number 1: the host has one GPU, number 0 (-hwaccel_device 1)\n        -> write 0\n" in out
    assert check("--profile", "video", *words)[0] == 3


def test_a_record_and_a_profile(check: Check) -> None:
    words = ["--", "ffmpeg", "-i", "a.mp4", "-c:v", "libx264", "-an", "b.mp4"]
    assert check("--record", "20261120-100000-abc123", *words)[0] == 0
    assert check("--record", "20261121-100000-abc124", *words)[0] == 3
    assert check("--profile", "t4", *words)[0] == 1
    assert check("--profile", "video", *words)[0] == 0


@pytest.mark.parametrize("arguments", [["--", "ffmpeg", "-i", "a", "b"], ["gpu-2", "--", "ffmpeg", "-i", "a", "b"]])
def test_without_parts_to_compare_with_it_is_a_wrong_usage(check: Check, arguments: list[str]) -> None:
    code, out, err = check(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("Error: ")


def test_words_that_would_move_a_cursor_are_shown_as_escapes(check: Check) -> None:
    hostile = "x\x1b[2J\u202e"
    for words in (
        ["-c:v", hostile, "b\n.mp4"],
        ["-c:v", "h264_nvenc", "-preset", hostile, "-gpu", hostile, f"-{hostile}", "1", "b.mp4"],
        ["-filter_complex", f"[{hostile}]scale_cuda={hostile}=1:format={hostile}[o]", "-map", f"[{hostile}]", "b.mp4"],
        ["-vf", f"format={hostile}", "-pix_fmt", hostile, "-s", hostile, hostile],
        ["-filter_hw_device", hostile, "-map", f"9{hostile}", "-f", hostile, "-"],
    ):
        _, out, err = check("gpu-1", "--", "ffmpeg", "-hwaccel_output_format", hostile, "-i", f"{hostile}.mp4", *words)
        assert not {"\x1b", "\u202e"} & set(out + err)
        assert all(len(line) < 500 for line in out.splitlines())


def test_a_name_that_configure_writes_otherwise_is_found() -> None:
    words = "ffmpeg -i a.mkv -c:v copy -c:s mov_text b.mp4"
    assert answered(words, VIDEO)["encoders mov_text"].status is records.Status.PASS
    built = of_profile("video", encoders=("mov_text",))
    assert answered(words, built)["encoders mov_text"].status is records.Status.PASS
    assert answered(words, BASE)["encoders mov_text"].remedy.startswith(
        "codec.parts.encoders with movtext; profile video"
    )


# ---------------------------------------------------------------- the host's FFmpeg itself


def answers_of(script: Script, *ends: Any, **parts: Any) -> None:
    """Let the host answer with these parts, and FFmpeg end so with what it tries."""
    script.connecting.clear()
    facts = record_of("20261120-100000-abc123", 1.0).before
    script.snapshots = [facts] if facts else []
    values = {**PARTS, "filters": ["eq", "scale", "movie"], **parts, "tried": list(ends)}
    script.probes["codec"] = records.ProbeResult("codec", records.Source.MEASURED, values, 1.0)


EQ = ["ffmpeg", "-i", "a.mp4", "-vf", "eq=x=1", "-c:v", "libx264", "-preset", "fast", "-an", "b.mp4"]
TOMORROW = ["ffmpeg", "-i", "a.mp4", "-c:v", "libx264", "-option_of_tomorrow", "1", "-an", "b.mp4"]


@pytest.mark.parametrize(
    ("words", "ends", "code", "says"),
    [
        (EQ, [[0, ""], [0, ""]], 0, "PASS"),
        (EQ, [[1, "[Parsed_eq_1 @ 0x55] Option 'x' not found\nError initializing complex filters."], [0, ""]], 1,
          "FAIL    filter eq: FFmpeg on the host says: Option 'x' not found (-vf eq=x=1)\n"
         "        -> look it up there: ffmpeg -h filter=eq\n"),
        (EQ, [[-11, "[Eval @ 0x7f] Undefined constant or missing '(' in 'y'"], [0, ""]], 1, "in 'y'"),  # and it crashed
        (EQ, [[0, ""], [1, "[libx264 @ 0x5] Error setting preset/tune fast/(null)."]], 1, "FAIL    encoder libx264: "),
        (EQ, [[1, "Invalid too big or non positive size for width '9000'"], [0, ""]], 0, "PASS"),  # of the test picture
        (EQ, [[124, "timed out"]], 0, "PASS"),
        (EQ, [[1, "Error applying option 'x' to filter 'eq': Option not found"]], 1, "FAIL    filter eq: FFmpeg"),
        (EQ, [[1, "[AVFilterGraph @ 0x5] Could not set non-existent option 'x' to value '1'"]], 1, "says: Could not"),
        (EQ, [[0, ""], [1, "x264 [error]: high profile doesn't support 4:4:4"]], 1, "FAIL    encoder libx264: FFmpeg"),
        (EQ, [[1, "Error parsing global options: Invalid argument"]], 0, "PASS"),  # of the try's own words
        (TOMORROW, [[0, ""]], 0, "PASS"),
        (TOMORROW, [[1, "Unrecognized option 'option_of_tomorrow'."]], 1, "Unrecognized option"),
        (TOMORROW, [[1, "Cannot load libcuda.so.1"]], 0, "PASS"),
        (TOMORROW, [[137, ""]], 3, "UNKNOWN option -option_of_tomorrow"),
        (TOMORROW, [], 3, "UNKNOWN option -option_of_tomorrow"),
        *((TOMORROW, [hostile], 3, "UNKNOWN option")
          for hostile in (None, 0, [0], ["0", ""], [0, 1], [True, ""], {"0": ""})),
        (EQ, [[1, "Option '\x1b[2J\u202e' not found " + "x" * 2000]], 1, "FFmpeg on the host says: Option '"),
    ],
)  # fmt: skip
def test_what_the_hosts_ffmpeg_says(
    check: Check, script: Script, words: list[str], ends: list[Any], code: int, says: str
) -> None:
    answers_of(script, *ends, version="11.0" if words is TOMORROW else "7.1.5")
    ended, out, _ = check("gpu-1", "--", *words)
    assert (ended, says in out) == (code, True), out
    assert "of gpu-1, as it is now\n" in out
    assert f"tried {3 if words is EQ else 1} filters, encoders and graphs on test pictures; " in out
    assert not {"\x1b", "\u202e"} & set(out)
    assert len(out) < 2000


STACK = ["ffmpeg", "-i", "a.mp4", "-i", "b.mp4", "-filter_complex", "[0:v]scale=9:9[a];[1:v][a]hstack[o]",
         "-map", "[o]", "-c:v", "libx264", "-an", "o.mp4"]  # fmt: skip
HEIGHTS = (
    "[Parsed_hstack_1 @ 0x55] Input 1 height 9 does not match input 0 height {}.\n"
    "[Parsed_hstack_1 @ 0x55] Failed to configure output pad on Parsed_hstack_1\nError reinitializing filters!"
)


@pytest.mark.parametrize(
    ("graph", "says"),
    [
        ([[1, HEIGHTS.format(8)], [1, HEIGHTS.format(8)]],
         "FAIL    filter hstack: FFmpeg on the host says: Input 1 height 9 does not match input 0 height 8."
         " (-filter_complex [0:v]scale=9:9[a];[1:v][a]hstack[o])\n"
         "        -> give hstack the inputs and outputs that it takes: ffmpeg -h filter=hstack\n"),
        ([[1, HEIGHTS.format(64)], [1, HEIGHTS.format(4320)]], ""),  # it depends on the input: no height is known
        ([[0, ""], [1, HEIGHTS.format(8)]], ""),
        ([[1, HEIGHTS.format(8)]], ""),  # only one of both was tried
        ([[1, "Cannot allocate memory"], [1, "Cannot allocate memory"]], ""),
        ([[1, "Cannot find a matching stream for unlabeled input pad 1 on filter Parsed_hstack_1"]] * 2, "hstack: F"),
    ],
)  # fmt: skip
def test_a_whole_graph_is_refused_where_no_input_would_do(
    check: Check, script: Script, graph: list[Any], says: str
) -> None:
    answers_of(script, [0, ""], [0, ""], [0, ""], *graph, filters=["scale", "hstack"])
    code, out, _ = check("gpu-1", "--", *STACK)
    assert (code, says in out, "FAIL" in out) == (1 if says else 0, True, bool(says)), out


def test_options_that_only_ffmpeg_knows_are_named(check: Check, script: Script) -> None:
    words = ["--", "ffmpeg", "-i", "a.mp4", "-vf", "eq=x=1,hflip,scale=8:8", "-c:v", "libx264", "-an", "b.mp4"]
    note = "note: the options of eq are not looked up here: `gpuprep codec check HOST` asks FFmpeg there\n"
    assert note in check("--profile", "video", *words)[1]
    answers_of(script, [0, ""], [124, ""], [1, "Option 'x' not found"])
    _, out, _ = check("gpu-1", *words)
    assert "not looked up" not in out
    assert "tried 5 filters, encoders and graphs on test pictures; 2 of these tests gave a clear answer\n" in out


def test_a_host_without_a_run_is_asked_too(check: Check, script: Script) -> None:
    answers_of(script)
    words = ["--", "ffmpeg", "-i", "a.mp4", "-c:v", "libx264", "-an", "b.mp4"]
    assert check("gpu-2", *words)[0] == 0
    assert check("gpu-2", *words[:4], "h264_nvenc", "-gpu", "1", *words[5:])[0] == 1  # it has one


@pytest.mark.parametrize(
    "words",
    [
        "-vf movie=CANARY,eq", "-vf subtitles=CANARY", "-vf lut3d=CANARY", "-vf drawtext=textfile=CANARY",
        "-vf drawtext=fontfile=CANARY:text=a", "-vf drawtext=/text=CANARY", "-vf sendcmd=f=CANARY", "-vf psnr=CANARY",
        "-vf eq=contrast=1[a];movie=CANARY", r"-vf eq=contrast=1\\,movie=CANARY", "-vf ' eq=1[x];[x]movie=CANARY'",
        "-vf curves=psfile=CANARY", "-af arnndn=m=CANARY", "-vf libvmaf=log_path=CANARY", "-vf zmq=CANARY",
        "-vf patched=CANARY", "-vf metadata=print:file=CANARY", "-passlogfile CANARY", "-x264-params stats=CANARY",
        "-stats_file CANARY", "-key CANARY", "-f tee [f=mp4]CANARY|x", "-sdp_file CANARY", "-attach CANARY",
        "-/filter:v CANARY", "-dump_attachment CANARY", "-vf frei0r=CANARY", "-filter_complex_script CANARY",
    ],
)  # fmt: skip
def test_no_file_is_in_the_words_that_are_tried(words: str) -> None:
    command = f"ffmpeg -i CANARY.mp4 {words} -c:v libx264 -preset fast CANARY.mp4"
    tried = tries(command)
    assert "CANARY" not in " ".join(tried)
    assert any("-preset" in one for one in tried)


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="there is no ffmpeg here")
def test_a_real_ffmpeg_is_asked(check: Check, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(codeccheck, "Host", remote.Host)
    graph = (
        "[0:v]split=2[a][b];[a]eq=brightnes=0.1,fade=in:0:30[x];[b]scale=640:-2,drawbox=c=nocolour,"
        "hue=h=90[y];[x][1:v]overlay=W-w:y=foo[z]"
    )
    made = ["-filter_complex", graph, "-map", "[z]", "-c:v", "h264_nvenc", "-preset", "p4", "-rc", "vbr_hqq", "-an"]
    words = ["ffmpeg", "-i", "a.mp4", "-i", "b.png", *made, str(tmp_path / "o.mp4"), "-map", "[y]", "-f", "null", "-"]
    code, out, _ = check("local", "--", *words)
    said = [line.split(" says: ")[1].split(" (")[0] for line in out.splitlines() if " says: " in line]
    assert (code, said[0], said[-1][:18]) == (1, "Option 'brightnes' not found", "Undefined constant")
    assert {line.split()[2].rstrip(":") for line in out.splitlines() if " says: " in line} == {
        "eq",
        "drawbox",
        "overlay",
    }
    assert not (tmp_path / "o.mp4").exists()


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="there is no ffmpeg here")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("-vf scale=640:360,crop=1280:720", "filter crop: FFmpeg on the host says: Invalid too big"),
        ("-vf subtitles=a.srt,scale=640:360,pad=320:200", "filter pad: FFmpeg on the host says: Padded dimensions"),
        ("-vf crop=7680:4320,pad=8000:4320", ""),  # of an input that is large enough, and one that is small enough
        ("-vf pad=1280:720", ""),
        ("-vf volume=2", "filter volume: FFmpeg on the host says: Cannot connect audio"),
        ("-filter_complex [0:v]hflip[x][y] -map [x] -map [y]", "filter hflip: FFmpeg on the host says: "),
        ("-filter_complex [0:v]scale=64:64[x];[x][1:v]hstack[y] -map [y]", ""),
        ("-filter_complex [0:v]scale=64:64[x];[1:v]scale=64:36[y];[x][y]hstack[z] -map [z]", "filter hstack: "),
        ("-filter_complex [0:v][0:a][1:v][1:a]concat=n=2:v=1:a=1[x][y] -map [x] -map [y]", ""),
        ("-vf crop=9000:100", ""),  # of an input that is wide enough
        ("-vf crop=9000:9000", ""),
        *((f"-vf extractplanes={plane}", "") for plane in "yuvargb"),
        ("-filter_complex [0:v]extractplanes=y+u+a[x][y][z] -map [x] -map [y] -map [z]", ""),
        ("-filter_complex [0:v]extractplanes=r+a[x][y] -map [x] -map [y]", ""),
        ("-filter_complex [0:v]extractplanes=y+r[x][y] -map [x] -map [y]", "filter extractplanes: FFmpeg on"),
        ("-filter_complex [0:v]alphaextract[x] -map [x]", ""),
        ("-filter_complex [0:v]drawtext=fontfile=x:text=y,split[x][y];[x]hflip[z];[z][y]vstack -map 0:a", ""),
    ],
)
def test_a_real_ffmpeg_links_whole_graphs(words: str, says: str) -> None:
    found = checked(f"ffmpeg -i a.mp4 -i b.mp4 {words} -f null -", VIDEO, ffmpeg=shutil.which("ffmpeg")).answers
    heard = [f"{one.title}: {one.why}" for one in found if " says: " in one.why]
    assert [bool(heard), says in " ".join(heard)] == [bool(says), True], heard
