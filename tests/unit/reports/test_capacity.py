"""How many streams: which series, what is the limit, and how it is shown. And the two probes beside it."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from capacitytables import GPU, series, shown, step, values
from ffmpegplans import HD, planned

from gpuprep import catalogue, records
from gpuprep.agent.probes import latency, quality
from gpuprep.agent.programs import children
from gpuprep.agent.video import clips, throughputplan
from gpuprep.catalogue import boards
from gpuprep.checks.throughput import capacity
from gpuprep.records import evidence
from gpuprep.records.evidence import throughput
from gpuprep.reports import capacity as report
from gpuprep.reports import json as as_json
from gpuprep.reports import text
from gpuprep.sim import gpus as simulated
from gpuprep.sim.guest import commandline, pace, paced

T4, H100 = throughputplan.Engines(1, 2), throughputplan.Engines(0, 7)
REAL = next((one for one in clips.programs() if {"libx264", "rawvideo"} <= set(clips.encoders(one))), None)


# ---------------------------------------------------------------- the plan


def test_the_plan_holds_a_whole_run_and_every_preset_in_both_sizes() -> None:
    every = [(one.kind, one.codec, one.preset) for one in throughputplan.capacity_plan(T4)]
    assert {(one.kind, one.codec, one.preset) for one in throughputplan.plan(False, T4)} <= set(every)
    assert len(every) == len(set(every))
    for codec in ("h264", "hevc", "av1", "h264-2160p", "hevc-2160p", "av1-2160p"):
        assert {preset for kind, name, preset in every if kind == "encode" and name == codec} == set(
            throughputplan.PRESETS
        )
    assert ("ladder", "h264", "p3") in every
    assert ("decode", "h264-2160p", None) in every


def test_a_gpu_without_encoder_is_measured_for_what_it_can() -> None:
    every = throughputplan.capacity_plan(H100)
    assert {one.kind for one in every} == {"decode", "encode", "download", "software"}
    assert len([one for one in every if one.kind == "encode"]) == 2  # the driver's own refusal, once a codec
    software = next(one for one in every if one.kind == "software")
    assert (software.needs, software.clip, throughputplan.engines_of(software, H100)) == ("libx264", "h264-1080p", None)


@pytest.mark.parametrize("series", [*throughputplan.capacity_plan(T4), *throughputplan.capacity_plan(H100)], ids=str)
def test_each_series_has_a_clip_and_a_command(series: throughputplan.Series) -> None:
    assert clips.SPECS[series.clip].width == series.size[0]
    said = throughputplan.command("ffmpeg", series, Path("in.mp4"), 30)
    assert said[-2:] == ["null", "-"]
    assert said.count("-c:v") == {"decode": 0, "download": 0, "ladder": 3}.get(series.kind, 1)
    assert all(not word.endswith("-2160p_nvenc") for word in said)


def test_the_daily_run_is_what_it_was() -> None:
    assert set(throughputplan.CLIPS) == {"h264", "h264-noisy", "hevc", "hevc10", "vp9"}
    one = throughputplan.command("ffmpeg", throughputplan.Series("encode", "h264", "p3", True), Path("in.mp4"), 30)
    assert " ".join(one).endswith(
        "-i in.mp4 -map 0:v:0 -vf fps=120 -c:v h264_nvenc -preset p3 -b:v 5M -fps_mode passthrough -f null -"
    )


# ---------------------------------------------------------------- streams and the limit


def t4() -> catalogue.Board:
    return next(board for board in boards().values() if board.model.key == "t4")


def rows(*every: dict[str, Any], **changes: Any) -> list[capacity.Row]:
    decoded = evidence.measured(throughput.Throughput, values(*every, **changes))
    assert isinstance(decoded, throughput.Throughput)
    return capacity.rows(decoded, {0: t4()})


def only(*steps: dict[str, Any], kind: str = "encode", codec: str = "h264", **changes: Any) -> capacity.Row:
    (row,) = rows(series(kind, codec, None if kind == "decode" else "p3", *steps, **changes))
    return row


def test_streams_are_whole_and_of_the_best_step() -> None:
    row = only(step(599.9, 1), step(629.9, 2), step(610.0, 3))
    assert (row.fps, row.sessions, row.streams) == (629.9, 2, 20)
    assert only(step(29.9)).streams == 0


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
    row = only(step(600.0, **changes))
    assert row.limit == limit
    assert limit in row.limit_words


def test_where_nothing_was_full_the_limit_is_unknown_and_says_what_was_read() -> None:
    row = only(step(600.0))
    assert row.limit == capacity.UNKNOWN
    assert row.limit_words.startswith("UNKNOWN: none was full (NVDEC 20 %, NVENC 10 %")


def test_without_readings_no_part_is_named() -> None:
    absent: Any = {"missing": "not_supported", "detail": "NVML_ERROR_NOT_SUPPORTED"}
    names = [
        "encoder_utilization_percent", "decoder_utilization_percent", "gpu_utilization_percent", "memory_used_mib",
        "pcie_to_gpu_mb_per_s", "pcie_from_gpu_mb_per_s", "cpu_percent",
    ]  # fmt: skip
    row = only(step(600.0, **dict.fromkeys(names, absent)))
    assert row.limit_words == "UNKNOWN: NVML gave no reading"
    assert all("NVML_ERROR_NOT_SUPPORTED" in one.why for one in row.evidence if one.part not in ("memory", "PCIe"))


def test_a_session_limit_of_the_driver_is_the_limit() -> None:
    line = "OpenEncodeSessionEx failed: incompatible client key (21): (no details)"
    assert only(step(600.0, died=1, died_because=line)).limit.startswith("sessions")


def test_what_was_not_measured_has_no_number() -> None:
    refused = "OpenEncodeSessionEx failed: unsupported device (2): (no details)"
    denied = only(outcome="failed", decisive_line=refused)
    assert (denied.streams, denied.fps, denied.can) == (None, None, False)
    assert "no encoder (NVENC)" in denied.why
    late = only(outcome="no_time")
    assert (late.streams, late.can, late.why) == (None, True, "the time limit was reached before it began")
    dead = only(
        step(0.0, died=2, died_because="no frame for 20 s"), outcome="failed", decisive_line="no frame for 20 s"
    )
    assert (dead.streams, dead.why) == (None, "no frame for 20 s")


def test_beside_the_catalogue() -> None:
    # 602 fps by NVIDIA for one Turing encoder at 1950 MHz, a T4's video clock is lower.
    usual, large = rows(series("encode", "h264", "p3", step(300.0)), series("encode", "h264-2160p", "p3", step(115.0)))
    clock = t4().video_mhz
    assert clock is not None
    assert usual.expected == int(602 * clock / 1950 / 30)
    assert large.expected == int(602 * clock / 1950 / 4 / 30)
    assert usual.below
    assert not large.below
    assert only(step(900.0), kind="ladder").expected is None


# ---------------------------------------------------------------- reports


def test_the_page_says_streams_limit_quality_and_latency() -> None:
    page = text.render(shown(), width=110)
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
    page = text.render(shown("validate", capacity=False), width=110)
    assert "\nStreams\n" in page
    assert "gpuprep capacity measures them" in page


def test_simulated_streams_say_so() -> None:
    record = shown(source=records.Source.SIMULATED)
    assert "Streams (SIMULATED)" in text.render(record)
    assert {row.source for row in report.lines(record)} == {records.Source.SIMULATED}


def test_json_has_the_streams_beside_the_record() -> None:
    document = json.loads(as_json.render_several([shown()], 0))
    decode = next(row for row in document["streams"] if row["kind"] == "decode" and row["size"] == "4K")
    assert (decode["streams"], decode["limit"], decode["evidence"]["NVDEC"]) == (11, "NVDEC", 99.0)
    refused = next(row for row in document["streams"] if row["codec"] == "av1")
    assert (refused["streams"], refused["fps"]) == (None, None)
    assert refused["why"]
    assert "streams" not in json.loads(as_json.render_several([shown("validate")], 0))


def test_a_short_clips_fps_are_no_headline_figure() -> None:
    from measurements_for_tests import t4_transcode

    record = dataclasses.replace(
        shown(), measurements=(records.ProbeResult("transcode", records.Source.MEASURED, t4_transcode(), 9.0),)
    )
    page = text.render(record)
    table = page[page.index("Transcodes") :].splitlines()[1]
    assert table.split() == ["case", "result", "s", "PSNR", "dB"]


# ---------------------------------------------------------------- the simulated GPU


def test_a_simulated_ladder_costs_what_it_encodes() -> None:
    words = throughputplan.command("ffmpeg", throughputplan.Series("ladder", "h264", "p3", True), Path("in.mp4"), 30)[
        1:
    ]
    parsed = commandline.parse(words)
    assert paced.is_for(parsed)
    work = paced.work_of(parsed, planned(shlex.join(words)), HD)
    assert work.delivered == 1.0
    assert work.encode == pytest.approx(1 + (1280 * 720 + 854 * 480) / (1920 * 1080))
    video = simulated.models()["t4"].data["performance"]["video"]
    alone = pace.rate(dataclasses.replace(work, encode=1.0), video, 1500, 1, 1)
    assert 0 < pace.rate(work, video, 1500, 1, 1).fps < alone.fps


# ---------------------------------------------------------------- quality and latency, by a real FFmpeg on the CPU


@pytest.mark.skipif(REAL is None, reason="no ffmpeg with libx264 on this machine")
def test_quality_by_the_filters_that_the_build_has(tmp_path: Path) -> None:
    assert REAL is not None
    from gpuprep.agent.probes.codec import filters
    from gpuprep.agent.probes.transcoderun import execute
    from gpuprep.agent.programs.run import run

    source = tmp_path / "in.mp4"
    made = ["-v", "error", "-f", "lavfi", "-i", "testsrc2=s=320x240:r=30:d=1", "-c:v", "libx264", "-qp", "0"]
    assert execute([REAL, *made, "-pix_fmt", "yuv420p", str(source)], tmp_path, 60.0).outcome == "completed"
    worse = tmp_path / "out.mp4"
    assert execute([REAL, "-v", "error", "-i", str(source), "-c:v", "libx264", "-b:v", "100k", str(worse)], tmp_path,
                   60.0).outcome == "completed"  # fmt: skip
    clip = clips.Clip("x", source, "h264", 320, 240, "yuv420p", 30, 1.0)
    listed = run([REAL, "-hide_banner", "-filters"])
    assert isinstance(listed, str)
    have = filters(listed)
    read = quality._compared(REAL, clip, worse, have)
    assert isinstance(read["psnr_db"], float)
    assert 15 < read["psnr_db"] < 45
    if "xpsnr" in have:
        assert isinstance(read["xpsnr_db"], float)
    same = quality._compared(REAL, clip, source, ["psnr"])
    assert same["psnr_db"] == 100.0
    assert isinstance(same["xpsnr_db"], records.Missing)
    assert "no filter xpsnr" in same["xpsnr_db"].detail


@pytest.mark.skipif(REAL is None, reason="no ffmpeg with libx264 on this machine")
def test_latency_is_of_each_picture_through_the_pipes() -> None:
    assert REAL is not None
    with children.scratch("test", 96) as folder:
        units = latency.stream(folder)
    assert isinstance(units, list)
    assert len(units) == latency.PICTURES
    gpu_words = {"-hwaccel", "cuda", "-hwaccel_output_format"}
    said = [word for word in latency.command(latency.Work("decode", "h264", "")) if word not in gpu_words]
    at = said.index("-vf")
    late = latency.timed([REAL, *said[:at], *said[at + 2 :]], units, {})
    assert isinstance(late, list)
    assert latency.LEAST <= len(late) <= latency.PICTURES - latency.SETTLED
    assert all(one > 0 for one in late)


@pytest.mark.skipif(REAL is None, reason="no ffmpeg with libx264 on this machine")
def test_latency_without_a_gpu_is_missing_with_ffmpegs_reason() -> None:
    assert REAL is not None
    units = [b"\0" * (latency.WIDTH * latency.HEIGHT * 3 // 2)] * 3
    answer = latency.timed([REAL, *latency.command(latency.Work("encode", "h264", "p4"))], units, {})
    assert isinstance(answer, records.Missing)
    assert answer.detail


def test_flv_is_cut_at_its_pictures() -> None:
    def tag(kind: int, data: bytes) -> bytes:
        return bytes([kind]) + len(data).to_bytes(3, "big") + bytes(7) + data + bytes(4)

    header, setup = b"FLV" + bytes(10), tag(18, b"meta") + tag(9, b"\x17\x00conf")
    pictures = [tag(9, b"\x17\x01one"), tag(9, b"\x27\x01two")]
    assert latency.pieces(header + setup + b"".join(pictures)) == [header + setup + pictures[0], pictures[1]]
    assert isinstance(latency.pieces(b"nonsense"), records.Missing)


def test_markdown_has_the_streams() -> None:
    from gpuprep.reports import render

    page = render(shown(), "markdown")
    assert "| GPU 0 | encode | h264 | p3 | 18 |" in page
    assert "NVENC (98 %)" in page


# ---------------------------------------------------------------- the judge


def judged(one: dict[str, Any], model: str = "t4") -> dict[str, Any]:
    from throughputrecords import judged_values

    board = next(board for board in boards().values() if board.model.key == model)
    gpu = {**GPU, "pci_device_id": board.pci_device_ids[0], "pci_subsystem_id": ""}
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
    page = text.render(shown(), width=110, everything=False)
    assert "\nStreams\n" in f"\n{page}"
    assert "NVENC (98 %)" in page
    assert "\nStreams\n" not in f"\n{text.render(shown('validate'), width=110, everything=False)}"
