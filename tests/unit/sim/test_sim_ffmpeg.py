"""ffmpeg's stand-in of simulated VMs: what a command becomes, what the GPU refuses, how fast the engines are."""

from __future__ import annotations

import shlex

import pytest
from ffmpegplans import HD, planned

from gpuprep.agent.probes import transcodecases
from gpuprep.sim import gpus
from gpuprep.sim.guest import commandline, graph, mapping, pace, refusals, voice

HEVC10 = mapping.Media("hevc", "yuv420p10le", 1920, 1080)


def media_of(case: transcodecases.Case) -> list[mapping.Media]:
    found = []
    for item in (item for item in case.inputs if f"-i {item.file}" in case.arguments):
        ten = "10" in item.clip.partition("-")[0]
        codec = item.clip.partition("-")[0].removesuffix("10")
        raw = mapping.Media("rawvideo", item.pixel_format, item.width, item.height)
        found.append(
            raw if item.kind == "raw" else mapping.Media(codec, "yuv420p10le" if ten else "yuv420p", 1920, 1080)
        )
    return found


# ---------------------------------------------------------------- the command line


def test_words_belong_to_what_follows_them() -> None:
    command = commandline.parse(shlex.split("-y -v verbose -hwaccel cuda -i a.mp4 -c:v h264_nvenc -an b.mp4 -shortest"))
    assert command.general == [("y", None), ("v", "verbose")]
    assert [(file.url, file.options) for file in command.inputs] == [("a.mp4", [("hwaccel", "cuda")])]
    assert [(file.url, file.options) for file in command.outputs] == [("b.mp4", [("c:v", "h264_nvenc"), ("an", None)])]
    assert command.trailing == [("shortest", None)]


@pytest.mark.parametrize("words", ["-c:v x", "-codec:v x", "-vcodec x", "-c x", "-c:v:0 x", "-c:a y -c:v x"])
def test_every_way_to_name_the_video_codec(words: str) -> None:
    assert commandline.parse(["-i", "a", *words.split(), "b"]).outputs[0].video_codec() == "x"


def test_the_sounds_codec_is_not_the_videos() -> None:
    assert commandline.parse(["-i", "a", "-c:a", "copy", "b"]).outputs[0].video_codec() is None


def test_a_command_that_ends_early_is_still_taken_apart() -> None:
    assert commandline.parse(["-i"]).inputs[0].url == ""
    assert commandline.parse(["-c:v"]).trailing == [("c:v", "")]


# ---------------------------------------------------------------- what becomes of it


@pytest.mark.parametrize("case", transcodecases.CASES, ids=lambda case: case.id)
def test_no_word_of_the_gpu_is_left_in_any_transcode(case: transcodecases.Case) -> None:
    made = mapping.plan(commandline.parse([*transcodecases.PREFIX, *shlex.split(case.arguments)]), media_of(case))
    text = shlex.join(made.words)
    for mark in ("cuda", "cuvid", "nvenc", "_npp", "hwupload", "hwdownload", "-resize", "-hw", "tune", "aq"):
        assert mark not in text
    assert [encode.encoder for encode in made.encodes] == [
        name for name in case.encoders for output in case.outputs if output.codec != "rawvideo"
    ]
    if any(capability.startswith("nvdec.") for capability in case.capabilities):
        assert made.decodes


def test_encoders_and_their_settings() -> None:
    made = planned("-i a.mp4 -c:v hevc_nvenc -preset p6 -tune hq -bf 3 -g 250 -maxrate 6M -c:a copy b.mp4")
    assert shlex.join(made.words) == (
        "-hide_banner -i a.mp4 -g 250 -maxrate 6M -c:a copy -c:v libx265 -preset ultrafast "
        "-x265-params log-level=none:b-adapt=0 -b:v 2M -bf 3 -pix_fmt yuv420p b.mp4"
    )
    assert (made.encodes[0].codec, made.encodes[0].b_frames, made.encodes[0].options["preset"]) == ("hevc", 3, "p6")


@pytest.mark.parametrize(("given", "becomes"), [("-cq 23", "-crf 23"), ("-qp 30", "-qp 30"), ("-b:v 5M", "-b:v 5M")])
def test_rate_control(given: str, becomes: str) -> None:
    text = shlex.join(planned(f"-i a.mp4 -c:v h264_nvenc {given} b.mp4").words)
    assert becomes in text
    assert mapping.DEFAULT_BIT_RATE not in text


@pytest.mark.parametrize(
    ("given", "written"),
    [("p010le", "yuv420p10le"), ("yuv444p16le", "yuv444p10le"), ("nv12", "yuv420p"), ("yuv444p", "yuv444p")],
)
def test_what_is_written_of_raw_pictures(given: str, written: str) -> None:
    raw = mapping.Media("rawvideo", given, 640, 480)
    made = planned(f"-f rawvideo -pix_fmt {given} -s 640x480 -i a.yuv -c:v hevc_nvenc b.mp4", raw)
    assert made.words[-3:] == ["-pix_fmt", written, "b.mp4"]
    assert made.encodes[0].pixel_format == written


def test_resize_and_crop_belong_to_cuvid() -> None:
    done = planned("-c:v h264_cuvid -crop 16x16x32x32 -resize 1280x720 -i a.mp4 b.yuv")
    assert "-vf" in done.words
    assert "crop=iw-32-32:ih-16-16:32:16,scale=1280:720" in done.words[done.words.index("-vf") + 1]
    assert done.words[-3:] == ["-pix_fmt", "nv12", "b.yuv"]
    ignored = planned("-hwaccel cuda -resize 1280x720 -i a.mp4 b.yuv")
    assert "-vf" not in ignored.words
    assert "has not been used for any stream" in ignored.warnings[0]


def test_ten_bits_come_out_of_nvdec_as_p010() -> None:
    words = planned("-hwaccel cuda -hwaccel_output_format cuda -i a.mp4 -vf hwdownload b.yuv", HEVC10).words
    assert words[-3:] == ["-pix_fmt", "p010le", "b.yuv"]
    assert "format=p010le" in words


def test_vsync_of_old_commands() -> None:
    assert "-fps_mode passthrough" in shlex.join(planned("-vsync 0 -hwaccel cuda -i a.mp4 b.yuv").words)


# ---------------------------------------------------------------- graphs


@pytest.mark.parametrize(
    ("text", "software"),
    [
        ("scale_cuda=1280:720", "scale=w=1280:h=720"),
        ("scale_npp=w=640:h=-2:interp_algo=super,hwdownload,format=nv12", "scale=w=640:h=-2,format=nv12,format=nv12"),
        ("scale_cuda=format=yuv420p", "format=yuv420p"),
        ("hwdownload,format=nv12,hwupload_cuda", "format=nv12,format=nv12"),
        ("yadif_cuda=0:-1:0,scale_cuda=2:3", "yadif=0:-1:0,scale=w=2:h=3"),
        ("fps=120", "fps=120"),
    ],
)
def test_a_chain_of_pictures_on_the_gpu(text: str, software: str) -> None:
    assert graph.mapped(text, {"": graph.Pictures(True, "nv12")}, {}).text == software


def test_labels_carry_where_pictures_are() -> None:
    made = graph.mapped(
        "[0:v]hwupload,split=2[a][b];[a]scale_cuda=2:2[c]", {"0:v": graph.Pictures(False, "yuv420p")}, {}
    )
    assert made.text == "[0:v]null,split=2[a][b];[a]scale=w=2:h=2[c]"
    assert made.outputs["b"] == made.outputs["c"] == graph.Pictures(True, "yuv420p")


@pytest.mark.parametrize(
    ("text", "on_gpu"), [("scale_cuda=2:2", False), ("scale=2:2", True), ("hwdownload,scale_cuda=2:2", True)]
)
def test_pictures_in_the_wrong_place_are_refused_as_by_ffmpeg(text: str, on_gpu: bool) -> None:
    with pytest.raises(graph.CannotConvert, match="Impossible to convert between the formats"):
        graph.mapped(text, {"": graph.Pictures(on_gpu, "nv12")}, {})


def test_the_names_in_a_graph() -> None:
    assert graph.names("[0:v]scale_npp@x=1:2,fps='a,b'[o];[o]null") == ["scale_npp", "fps", "null"]


# ---------------------------------------------------------------- what the GPU refuses


def encode(
    encoder: str = "h264_nvenc", pixel_format: str = "yuv420p", b_frames: int = 0, **options: str
) -> mapping.Encode:
    return mapping.Encode(encoder, encoder.partition("_")[0], pixel_format, 1920, 1080, b_frames, options)


SIMULATED = [key for key, model in gpus.models().items() if not model.is_switch]


def video(key: str) -> dict[str, object]:
    return dict(gpus.models()[key].data["performance"]["video"])


NO_NVENC = "OpenEncodeSessionEx failed: unsupported device (2): (no details)"


@pytest.mark.parametrize(
    ("key", "wish", "said"),
    [
        ("a100", encode(), NO_NVENC),
        ("h200", encode("hevc_nvenc"), NO_NVENC),
        ("t4", encode(pixel_format="yuv420p10le"), "10 bit encode not supported"),
        ("v100", encode("hevc_nvenc", b_frames=3), "Max B-frames 3 exceed 0"),
        ("v100", encode("hevc_nvenc", "yuv420p", 0, **{"temporal-aq": "1"}), "Temporal AQ not supported"),
        ("v100", encode("hevc_nvenc", b_ref_mode="middle"), "B frames as references are not supported"),
        ("t4", encode("av1_nvenc"), "Codec not supported"),
        ("t4", encode(b_frames=5), "Max B-frames 5 exceed 4"),
    ],
)
def test_an_encode_that_the_gpu_cannot(key: str, wish: mapping.Encode, said: str) -> None:
    refusal = refusals.of_encode(wish, video(key))
    assert refusal is not None
    assert refusal.lines[0] == (wish.encoder, said)
    assert (wish.encoder, "No capable devices found") in refusal.lines
    assert refusal.exit_code != 0


@pytest.mark.parametrize(
    ("key", "wish"),
    [
        ("t4", encode("hevc_nvenc", "yuv444p10le", 5, b_ref_mode="middle", temporal_aq="1")),
        ("t4", encode(b_frames=3, **{"rc-lookahead": "20", "temporal-aq": "1", "b_ref_mode": "middle"})),
        ("v100", encode("hevc_nvenc", "yuv444p10le")),
        ("v100", encode("h264_nvenc", "yuv444p", 4)),
    ],
)
def test_an_encode_that_the_gpu_can(key: str, wish: mapping.Encode) -> None:
    assert refusals.of_encode(wish, video(key)) is None


def test_pictures_that_are_too_small_for_nvenc() -> None:
    small = mapping.Encode("h264_nvenc", "h264", "yuv420p", 128, 96, 0, {})
    refusal = refusals.of_encode(small, video("t4"))
    assert refusal is not None
    assert "Frame Dimension less than the minimum" in refusal.lines[0][1]


@pytest.mark.parametrize("key", SIMULATED)
def test_av1_is_decoded_by_none_of_them(key: str) -> None:
    refusal = refusals.of_decode(mapping.Decode(mapping.Media("av1", "yuv420p", 1920, 1080), "", True), video(key))
    assert refusal is not None
    assert refusal.lines[0] == ("av1", "Hardware is lacking required capabilities")


@pytest.mark.parametrize("key", SIMULATED)
@pytest.mark.parametrize(
    "media", [HD, HEVC10, mapping.Media("vp9", "yuv420p", 1920, 1080)], ids=lambda media: media.codec
)
def test_what_each_of_them_decodes(key: str, media: mapping.Media) -> None:
    assert refusals.of_decode(mapping.Decode(media, "", True), video(key)) is None


def test_444_hevc_is_not_decoded_by_a_v100() -> None:
    deep = mapping.Decode(mapping.Media("hevc", "yuv444p", 1920, 1080), "hevc_cuvid", True)
    assert refusals.of_decode(deep, video("t4")) is None
    refusal = refusals.of_decode(deep, video("v100"))
    assert refusal is not None
    assert "Codec hevc_cuvid is not supported" in refusal.lines[0][1]


def test_headers_newer_than_the_driver() -> None:
    refusal = refusals.of_driver(encode(), "13.0", "12.2")
    assert refusal is not None
    assert refusal.lines[0][1] == ("Driver does not support the required nvenc API version. Required: 13.0 Found: 12.2")
    assert refusals.of_driver(encode(), "12.1", "12.2") is None


# ---------------------------------------------------------------- what it says


def test_lines_of_the_software_ffmpeg() -> None:
    made = planned("-hwaccel cuda -hwaccel_output_format cuda -c:v h264_cuvid -i a.mp4 -c:v h264_nvenc b.mp4")
    mapped = "  Stream #0:0 -> #0:0 (h264 (native) -> h264 (libx264))"
    assert voice.rewritten(mapped, made) == "  Stream #0:0 -> #0:0 (h264 (h264_cuvid) -> h264 (h264_nvenc))"
    assert voice.rewritten("[libx264 @ 0x1] using cpu capabilities: MMX2", made) is None
    assert voice.rewritten("x265 [info]: HEVC encoder version", made) is None
    line = "[graph 0 input from stream 0:0 @ 0x1] w:1920 h:1080 pixfmt:yuv420p tb:1/15360"
    assert "pixfmt:cuda" in (voice.rewritten(line, made) or "")


def test_the_features_that_announce_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    voice.announce(planned("-i a -c:v h264_nvenc -temporal_aq 1 -spatial-aq 1 -rc-lookahead 20 b.mp4"))
    said = capsys.readouterr().err
    assert "] Temporal AQ enabled.\n" in said
    assert "] AQ enabled.\n" in said
    assert "Lookahead enabled: depth 20" in said


# ---------------------------------------------------------------- how fast


def test_one_session_has_one_engine_and_many_share_all() -> None:
    work, engines = pace.Work(decode_codec="h264"), video("a100")
    alone = pace.rate(work, engines, 1245, 1, 0)
    full = pace.rate(work, engines, 1245, 5, 0)
    crowded = pace.rate(work, engines, 1245, 10, 0)
    assert alone.fps == full.fps == pytest.approx(771 * 1245 / 1860 * pace.EFFICIENCY)
    assert crowded.fps == pytest.approx(full.fps / 2)
    assert alone.decoder_percent == pytest.approx(20)
    assert full.decoder_percent * 5 == pytest.approx(crowded.decoder_percent * 10) == pytest.approx(100)


def test_encoding_and_decoding_the_smaller_one_counts() -> None:
    work = pace.Work(decode_codec="h264", encode_codec="h264", preset=3, encode=4.0)
    found = pace.rate(work, video("t4"), 1470, 1, 1)
    assert found.fps == pytest.approx(602 * 1470 / 1950 * pace.EFFICIENCY)
    assert found.encoder_percent == pytest.approx(100)
    assert 5 < found.decoder_percent < 15


def test_presets_between_those_of_the_table_and_smaller_pictures() -> None:
    engines = video("t4")
    rates = [pace.engine_fps(pace.Work(encode_codec="h264", preset=p), engines, 1950)[1] for p in range(1, 8)]
    assert rates == sorted(rates, reverse=True)
    assert rates[1] == pytest.approx((833 + 602) / 2 * pace.EFFICIENCY)
    small = pace.Work(decode_codec="h264", width=960, height=540)
    assert pace.engine_fps(small, engines, 1860)[0] == pytest.approx(4 * 771 * pace.EFFICIENCY)


def test_engines_that_are_not_there_make_nothing() -> None:
    assert pace.rate(pace.Work("h264", "h264", encode=1.0), video("a100"), 1245, 1, 1).fps == 0
    assert pace.rate(pace.Work("av1"), video("t4"), 1245, 1, 0).fps == 0
