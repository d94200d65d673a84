"""FFmpeg's words: which line is the cause, and what it means. Lines of real runs are in cases/ffmpeg_lines."""

from __future__ import annotations

import pytest
from places import TESTS

from gpuprep.agent.video import ffmpegerrors

CASES = TESTS / "cases" / "ffmpeg_lines"
REFUSED = "OpenEncodeSessionEx failed: unsupported device (2): (no details)"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("h200-nvenc-h264", REFUSED),
        ("h200-nvenc-hevc", REFUSED),
        ("h200-decode-av1", "Hardware is lacking required capabilities"),
        ("no-driver", "Cannot load libcuda.so.1"),
        ("no-driver-cuvid", "Cannot load libnvcuvid.so.1"),
    ],
)
def test_decisive_line_of_a_real_run(name: str, line: str) -> None:
    lines = (CASES / f"{name}.txt").read_text().splitlines()
    assert ffmpegerrors.decisive_line(lines) == line
    assert lines[-1] != line


@pytest.mark.parametrize(
    ("line", "meaning", "denies"),
    [
        ("Cannot load libnvidia-encode.so.1", "video library is missing", ""),
        ("Driver does not support the required nvenc API version. Required: 13.1", "newer than the driver", ""),
        (REFUSED, "no encoder", "nvenc"),
        ("OpenEncodeSessionEx failed: out of memory (10): (no details)", "session limit", ""),
        ("OpenEncodeSessionEx failed: incompatible client key (21): (no details)", "session limit", ""),
        ("No capable devices found", "no GPU supports", ""),
        ("10 bit encode not supported", "10-bit", "nvenc.*.10bit"),
        ("YUV444P not supported", "4:4:4", "nvenc.*.444"),
        ("Temporal AQ not supported", "temporal", "nvenc.*.temporal_aq"),
        ("RC lookahead not supported", "look-ahead", "nvenc.*.lookahead"),
        ("Max B-frames 3 exceed 0", "B-frames", "nvenc.*.b_frames"),
        ("B frames as references are not supported", "references", "nvenc.*.b_ref"),
        ("InitializeEncoder failed: invalid param (8): Frame Dimension less than the minimum", "smaller", ""),
        ("No decoder surfaces left", "surfaces", ""),
        ("Using more than 32 (65) decode surfaces might cause nvdec to fail.", "many cores", ""),
        ("Impossible to convert between the formats supported by the filter", "a filter of the CPU", ""),
        ("Hardware is lacking required capabilities", "does not support this codec", "nvdec.*"),
        ("Codec av1_cuvid is not supported.", "does not support this codec", "nvdec.*"),
        ("av_interleaved_write_frame(): No space left on device", "disk is full", ""),
        ("No such filter: 'scale_npp'", "built without", ""),
    ],
)  # fmt: skip
def test_meaning(line: str, meaning: str, denies: str) -> None:
    known = ffmpegerrors.cause(line)
    assert known is not None
    assert meaning in known.meaning
    assert known.denies == denies
    assert known.remedy


def test_the_minimum_driver_line_is_not_the_cause() -> None:
    said = [
        "[h264_nvenc @ 0x55d] Cannot load libnvidia-encode.so.1",
        "[h264_nvenc @ 0x55d] The minimum required Nvidia driver for nvenc is 530.41.03 or newer",
        "Conversion failed!",
    ]
    assert ffmpegerrors.decisive_line(said) == "Cannot load libnvidia-encode.so.1"


def test_a_consequence_decides_only_where_no_cause_is_named() -> None:
    general = "[h264_nvenc @ 0x1] No capable devices found"
    assert ffmpegerrors.decisive_line(["Device creation failed: -1.", general]) == "Device creation failed: -1."
    assert ffmpegerrors.decisive_line([general, "[h264_nvenc @ 0x1] YUV444P not supported"]) == "YUV444P not supported"


def test_unknown_errors_give_the_first_bad_line_and_silence_gives_none() -> None:
    assert (
        ffmpegerrors.decisive_line(["Input #0", "[x @ 0x1] Something failed oddly", "Exiting."])
        == "Something failed oddly"
    )
    assert ffmpegerrors.decisive_line(["all is well"]) == "all is well"
    assert ffmpegerrors.decisive_line(["", "  "]) == ""
    assert ffmpegerrors.cause("frame=  96 fps=0.0") is None


def test_the_unused_option_of_a_real_run_is_seen() -> None:
    lines = (CASES / "h200-resize-unused.txt").read_text().splitlines()
    assert [line for line in lines if ffmpegerrors.UNUSED_OPTION.search(line)]
    lines = (CASES / "h200-decode-resize.txt").read_text().splitlines()
    assert not [line for line in lines if ffmpegerrors.UNUSED_OPTION.search(line)]


def test_every_entry_says_what_to_do() -> None:
    for known in (*ffmpegerrors.CAUSES, *ffmpegerrors.CONSEQUENCES):
        assert known.meaning
        assert known.remedy
