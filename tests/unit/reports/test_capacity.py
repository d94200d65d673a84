"""How many streams: which series, what is the limit, and how it is shown. And the two probes beside it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import capacityprobes
import pytest
from capacityprobes import REAL, Planned
from capacitytables import GPU, series, shown, step, values
from measurements_for_tests import t4_transcode
from pages import printed
from throughputrecords import judged_values

from gpuprep import catalogue, records, reports

# ---------------------------------------------------------------- the plan


ON_A_T4, ON_AN_H100 = capacityprobes.planned(nvenc=1, nvdec=2), capacityprobes.planned(nvenc=0, nvdec=7)


def test_the_plan_holds_a_whole_run_and_every_preset_in_both_sizes() -> None:
    every = [(one.kind, one.codec, one.preset) for one in ON_A_T4]
    daily = capacityprobes.planned(nvenc=1, nvdec=2, daily=True)
    assert {(one.kind, one.codec, one.preset) for one in daily} <= set(every)
    assert len(every) == len(set(every))
    for codec in ("h264", "hevc", "av1", "h264-2160p", "hevc-2160p", "av1-2160p"):
        presets = {preset for kind, name, preset in every if kind == "encode" and name == codec}
        assert presets == {f"p{number}" for number in range(1, 8)}
    assert ("ladder", "h264", "p3") in every
    assert ("decode", "h264-2160p", None) in every


def test_a_gpu_without_encoder_is_measured_for_what_it_can() -> None:
    assert {one.kind for one in ON_AN_H100} == {"decode", "encode", "download", "software"}
    assert len([one for one in ON_AN_H100 if one.kind == "encode"]) == 2  # the driver's own refusal, once a codec
    software = next(one for one in ON_AN_H100 if one.kind == "software")
    assert (software.needs, software.clip, software.engines) == ("libx264", "h264-1080p", None)


@pytest.mark.parametrize("one", [*ON_A_T4, *ON_AN_H100], ids=lambda one: f"{one.kind} {one.codec} {one.preset}")
def test_each_series_has_a_clip_and_a_command(one: Planned) -> None:
    assert one.clip_width == one.width
    assert one.command[-2:] == ["null", "-"]
    assert one.command.count("-c:v") == {"decode": 0, "download": 0, "ladder": 3}.get(one.kind, 1)
    assert all(not word.endswith("-2160p_nvenc") for word in one.command)


def test_the_daily_run_is_what_it_was() -> None:
    daily = capacityprobes.planned(nvenc=1, nvdec=2, daily=True)
    assert {one.codec for one in daily} == {"h264", "h264-noisy", "hevc", "hevc10", "vp9"}
    (encode,) = [one for one in daily if (one.kind, one.codec, one.preset) == ("encode", "h264", "p3")]
    assert " ".join(encode.command).endswith(
        "-i in.mp4 -map 0:v:0 -vf fps=120 -c:v h264_nvenc -preset p3 -b:v 5M -fps_mode passthrough -f null -"
    )


# ---------------------------------------------------------------- streams and the limit


Row = dict[str, Any]  # one of "streams" in the JSON document of `gpuprep capacity`


def rows(*every: dict[str, Any], **changes: Any) -> list[Row]:
    probed = (records.ProbeResult("throughput", records.Source.MEASURED, values(*every, **changes), 60.0),)
    document = json.loads(reports.render_fleet([dataclasses.replace(shown(), measurements=probed)], "json", 0))
    found: list[Row] = document["streams"]
    return found


def row_of(*steps: dict[str, Any], kind: str = "encode", codec: str = "h264", **changes: Any) -> dict[str, Any]:
    return series(kind, codec, None if kind == "decode" else "p3", *steps, **changes)


def only(*steps: dict[str, Any], **changes: Any) -> Row:
    (row,) = rows(row_of(*steps, **changes))
    return row


def limit_words(*steps: dict[str, Any]) -> str:
    """What the table says of the limit."""
    probed = (records.ProbeResult("throughput", records.Source.MEASURED, values(row_of(*steps)), 60.0),)
    page = printed(dataclasses.replace(shown(), measurements=probed), width=300)
    (line,) = [line for line in page.splitlines() if line.startswith("    h264")]
    return line.split("  ")[-1]


def test_streams_are_whole_and_of_the_best_step() -> None:
    row = only(step(599.9, 1), step(629.9, 2), step(610.0, 3))
    assert (row["fps"], row["sessions"], row["streams"]) == (629.9, 2, 20)
    assert only(step(29.9))["streams"] == 0


def test_presets_stand_in_their_order_however_they_were_measured() -> None:
    shuffled = [
        series("encode", codec, preset, step(60.0)) for preset in ("p7", "p1", "p4") for codec in ("hevc", "h264")
    ]
    assert [(row["codec"], row["preset"]) for row in rows(*shuffled)] == [
        (codec, preset) for codec in ("hevc", "h264") for preset in ("p1", "p4", "p7")
    ]


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({"encoder_utilization_percent": 99}, "NVENC"),
        ({"decoder_utilization_percent": 97}, "NVDEC"),
        ({"gpu_utilization_percent": 96}, "SM"),
        ({"memory_used_mib": 15000}, "memory"),
        ({"pcie_from_gpu_mb_per_s": 14000.0}, "PCIe"),
        ({"cpu_percent": 98.0}, "CPU"),
        ({"encoder_utilization_percent": 92, "decoder_utilization_percent": 99}, "NVDEC"),
    ],
)
def test_the_limit_is_the_part_that_was_full(changes: dict[str, Any], limit: str) -> None:
    assert only(step(600.0, **changes))["limit"] == limit
    assert limit in limit_words(step(600.0, **changes))


def test_where_nothing_was_full_the_limit_is_unknown_and_says_what_was_read() -> None:
    assert only(step(600.0))["limit"] == "UNKNOWN"
    assert limit_words(step(600.0)).startswith("UNKNOWN: none was full (NVDEC 20 %, NVENC 10 %")


def test_without_readings_no_part_is_named() -> None:
    absent: Any = {"missing": "not_supported", "detail": "NVML_ERROR_NOT_SUPPORTED"}
    names = [
        "encoder_utilization_percent", "decoder_utilization_percent", "gpu_utilization_percent", "memory_used_mib",
        "pcie_to_gpu_mb_per_s", "pcie_from_gpu_mb_per_s", "cpu_percent",
    ]  # fmt: skip
    assert limit_words(step(600.0, **dict.fromkeys(names, absent))) == "UNKNOWN: NVML gave no reading"
    evidence = only(step(600.0, **dict.fromkeys(names, absent)))["evidence"]
    assert evidence == dict.fromkeys(("NVDEC", "NVENC", "SM", "memory", "PCIe", "CPU"))


def test_a_session_limit_of_the_driver_is_the_limit() -> None:
    line = "OpenEncodeSessionEx failed: incompatible client key (21): (no details)"
    assert only(step(600.0, died=1, died_because=line))["limit"].startswith("sessions")


def test_what_was_not_measured_has_no_number() -> None:
    refused = "OpenEncodeSessionEx failed: unsupported device (2): (no details)"
    denied = only(outcome="failed", decisive_line=refused)
    assert (denied["streams"], denied["fps"]) == (None, None)
    assert "no encoder (NVENC)" in denied["why"]
    late = only(outcome="no_time")
    assert (late["streams"], late["why"]) == (None, "the time limit was reached before it began")
    dead = only(
        step(0.0, died=2, died_because="no frame for 20 s"), outcome="failed", decisive_line="no frame for 20 s"
    )
    assert (dead["streams"], dead["why"]) == (None, "no frame for 20 s")


def test_beside_the_catalogue() -> None:
    # 602 fps by NVIDIA for one Turing encoder at 1950 MHz, a T4's video clock is lower.
    usual, large = rows(series("encode", "h264", "p3", step(300.0)), series("encode", "h264-2160p", "p3", step(115.0)))
    clock = catalogue.board(GPU["pci_device_id"], GPU["pci_subsystem_id"]).video_mhz  # type: ignore[union-attr]
    assert clock is not None
    assert usual["catalogue_streams"] == int(602 * clock / 1950 / 30)
    assert large["catalogue_streams"] == int(602 * clock / 1950 / 4 / 30)
    assert (usual["below_catalogue"], large["below_catalogue"]) == (True, False)
    assert only(step(900.0), kind="ladder")["catalogue_streams"] is None


# ---------------------------------------------------------------- reports


def test_the_page_says_streams_limit_quality_and_latency() -> None:
    page = printed(shown(), width=110, everything=True)
    line = next(row for row in page.splitlines() if row.strip().startswith("h264") and "NVDEC" in row)
    assert line.split()[2:4] == ["46", "11"]
    assert "NVDEC (99 %)" in line
    encode = next(row for row in page.splitlines() if "NVENC (98 %)" in row)
    assert encode.split()[:3] == ["h264", "p3", "18"]
    assert "38.2" in encode
    assert "6.2" in encode
    assert "cannot" in page
    assert "XPSNR is UNKNOWN: this ffmpeg has no filter xpsnr" in " ".join(page.split())
    assert "streams = floor(fps / 30)" in page


def test_validate_has_the_same_section_where_it_was_measured() -> None:
    page = printed(shown("validate", capacity=False), width=110, everything=True)
    assert "\nStreams\n" in page
    assert "gpuprep capacity measures them" in page


def test_simulated_streams_say_so() -> None:
    run = shown(source=records.Source.SIMULATED)
    assert "Streams (SIMULATED)" in reports.render(run, "text")
    document = json.loads(reports.render_fleet([run], "json", 0))
    assert {row["source"] for row in document["streams"]} == {"simulated"}


def test_json_has_the_streams_beside_the_record() -> None:
    document = json.loads(reports.render_fleet([shown()], "json", 0))
    decode = next(row for row in document["streams"] if row["kind"] == "decode" and row["size"] == "4K")
    assert (decode["streams"], decode["limit"], decode["evidence"]["NVDEC"]) == (11, "NVDEC", 99.0)
    refused = next(row for row in document["streams"] if row["codec"] == "av1")
    assert (refused["streams"], refused["fps"]) == (None, None)
    assert refused["why"]
    assert "streams" not in json.loads(reports.render_fleet([shown("validate")], "json", 0))


def test_a_short_clips_fps_are_no_headline_figure() -> None:
    record = dataclasses.replace(
        shown(), measurements=(records.ProbeResult("transcode", records.Source.MEASURED, t4_transcode(), 9.0),)
    )
    page = reports.render(record, "text")
    table = page[page.index("Transcodes") :].splitlines()[1]
    assert table.split() == ["case", "result", "s", "PSNR", "dB"]


# ---------------------------------------------------------------- the simulated GPU


def test_a_simulated_ladder_costs_what_it_encodes() -> None:
    rungs = 1 + (1280 * 720 + 854 * 480) / (1920 * 1080)
    delivered, encoded, fps = capacityprobes.simulated_ladder()
    assert delivered == 1.0
    assert encoded == pytest.approx(rungs)
    assert 0 < fps < capacityprobes.simulated_ladder(encodes=1.0)[2]


# ---------------------------------------------------------------- quality and latency, by a real FFmpeg on the CPU


@pytest.mark.skipif(REAL is None, reason="no ffmpeg with libx264 on this machine")
def test_quality_by_the_filters_that_the_build_has(tmp_path: Path) -> None:
    source, worse = capacityprobes.clip_and_a_worse_one(tmp_path)
    read = capacityprobes.compared(source, worse)
    assert isinstance(read["psnr_db"], float)
    assert 15 < read["psnr_db"] < 45
    same = capacityprobes.compared(source, source, ["psnr"])
    assert same["psnr_db"] == 100.0
    assert isinstance(same["xpsnr_db"], records.Missing)
    assert "no filter xpsnr" in same["xpsnr_db"].detail


@pytest.mark.only_all  # a whole stream by a real FFmpeg
@pytest.mark.skipif(REAL is None, reason="no ffmpeg with libx264 on this machine")
def test_latency_is_of_each_picture_through_the_pipes() -> None:
    late, most = capacityprobes.latency_of_decoding()
    assert isinstance(late, list)
    assert 10 <= len(late) < most
    assert all(one > 0 for one in late)


@pytest.mark.skipif(REAL is None, reason="no ffmpeg with libx264 on this machine")
def test_latency_without_a_gpu_is_missing_with_ffmpegs_reason() -> None:
    answer = capacityprobes.latency_on_a_gpu(3)
    assert isinstance(answer, records.Missing)
    assert answer.detail


def test_flv_is_cut_at_its_pictures() -> None:
    def tag(kind: int, data: bytes) -> bytes:
        return bytes([kind]) + len(data).to_bytes(3, "big") + bytes(7) + data + bytes(4)

    header, setup = b"FLV" + bytes(10), tag(18, b"meta") + tag(9, b"\x17\x00conf")
    pictures = [tag(9, b"\x17\x01one"), tag(9, b"\x27\x01two")]
    assert capacityprobes.pieces(header + setup + b"".join(pictures)) == [header + setup + pictures[0], pictures[1]]
    assert isinstance(capacityprobes.pieces(b"nonsense"), records.Missing)


def test_markdown_has_the_streams() -> None:
    page = reports.render(shown(), "markdown")
    assert "| GPU 0 | encode | h264 | p3 | 18 |" in page
    assert "NVENC (98 %)" in page


# ---------------------------------------------------------------- the judge


def judged(one: dict[str, Any]) -> dict[str, Any]:
    gpu = {**GPU, "pci_subsystem_id": ""}
    made = values({**one, "gpu": gpu})
    made["gpu"], made["gpus"] = gpu, [{**made["gpus"][0], **gpu}]
    return {key: found for key, found in judged_values(made).items() if key.startswith("throughput")}


@pytest.mark.parametrize(
    ("kind", "codec", "line"),
    [
        ("decode", "av1", "Hardware is lacking required capabilities"),
        ("encode", "av1", "Codec not supported"),
        ("encode", "av1-2160p", "Codec not supported"),
    ],
)
def test_what_driver_and_catalogue_both_deny_is_skipped(kind: str, codec: str, line: str) -> None:
    one = series(kind, codec, None if kind == "decode" else "p3", outcome="failed", decisive_line=line)
    found = next(finding for key, finding in judged(one).items() if f"{kind} {codec}" in key)
    assert found.status.value == "SKIP"
    assert "catalogue says the same of a T4" in found.reason


def test_a_codec_that_the_gpu_should_have_still_fails() -> None:
    one = series("encode", "h264-2160p", "p3", outcome="failed", decisive_line="Codec not supported")
    found = next(finding for key, finding in judged(one).items() if "encode h264-2160p" in key)
    assert found.status.value in ("FAIL", "WARN")


def test_an_encoder_on_the_cpu_that_the_profile_does_not_build_is_skipped() -> None:
    one = series("software", "h264", "medium", outcome="not_built", decisive_line="this ffmpeg has no encoder libx264")
    found = next(finding for key, finding in judged(one).items() if "software" in key)
    assert found.status.value == "SKIP"
    assert "without libx264" in found.reason


def test_the_short_page_of_capacity_has_its_tables() -> None:
    page = printed(shown(), width=110)
    assert "\nStreams\n" in f"\n{page}"
    assert "NVENC (98 %)" in page
    assert "\nStreams\n" not in f"\n{printed(shown('validate'), width=110)}"
