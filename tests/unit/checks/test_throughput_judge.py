"""Frames a second, judged: by GPU, by what went wrong meanwhile, and never without evidence."""

from __future__ import annotations

from typing import Any

import pytest
from builders import load, with_parts
from judgedbandwidth import any_host, figures
from places import TESTS
from throughputrecords import CLOCK, DEVICE, LIMIT, WANTED, card, judged, judged_values, series, step

from gpuprep import catalogue, records
from gpuprep.desired import profile

REFERENCE = {("t4", "decode"): 1860, ("a100", "decode"): 1860, ("t4", "encode"): 1950, ("v100", "encode"): 1708,
             ("l4", "encode"): 2415, ("l4", "decode"): 2160, ("l40s", "decode"): 2160}  # fmt: skip
NO_NVENC = "OpenEncodeSessionEx failed: unsupported device (2): (no details)"


def test_the_real_h200_passes() -> None:
    """Seen on one with driver 580.159 and FFmpeg 7.1.5."""
    seen = {1: 654, 2: 1294, 4: 2476, 7: 3932, 8: 4025, 10: 4016}
    found = judged("h200", series("decode", "h264", *(step(n, fps) for n, fps in seen.items())))
    fps = found["throughput decode h264.fps"]
    assert fps.status is records.Status.PASS
    assert fps.actual == "4025 fps with 8 sessions, 90 %"
    assert "4483 fps: 7 decoders x 640 at 1545 MHz" in fps.expected
    assert "not verified" not in fps.expected
    assert found["gpu 0.video_clock"].status is records.Status.PASS


@pytest.mark.parametrize(
    ("model", "kind", "codec", "preset", "expected"),  # at the clock of the table
    [
        ("t4", "decode", "h264", None, 1542),
        ("t4", "decode", "hevc10", None, 2316),
        # 80 % of 2 x 932: more does not come through FFmpeg.
        ("t4", "decode", "vp9", None, 1491.2),
        ("t4", "decode", "h264-noisy", None, 1387.8),
        ("t4", "encode", "h264", "p3", 602),
        ("t4", "encode", "hevc", "p7", 171),
        # Volta encodes as Pascal, at its own clock, with three encoders.
        ("v100", "encode", "h264", "p1", 2076),
        ("v100", "encode", "hevc", "p3", 1329),
        ("a100", "decode", "hevc", None, 6580),
        ("l4", "encode", "h264", "p1", 1770),
        ("l4", "encode", "av1", "p5", 880),
        ("l4", "decode", "h264", None, 3612),
        ("l40s", "decode", "av1", None, 3054),
        # The smaller of decode (2 x 771) and encode (1 x 602).
        ("t4", "transcode", "h264", "p3", 602),
        # Between two presets of the table the slower one counts.
        ("t4", "encode", "h264", "p4", 264),
    ],
)
@pytest.mark.parametrize("share", [1.0, 0.95])  # of the highest clock
@pytest.mark.parametrize("percent", [100, 86, 84])
def test_rate_times_engines_times_clock(
    model: str, kind: str, codec: str, preset: str | None, expected: float, percent: int, share: float
) -> None:
    clock = CLOCK[model] * share
    fps = expected * clock / REFERENCE[model, "encode" if kind == "transcode" else kind]
    one = series(kind, codec, step(14, fps * percent / 100, video_clock_mhz=clock), preset=preset)
    subject = " ".join(word for word in ("throughput", kind, codec, preset) if word)
    finding = judged(model, one)[f"{subject}.fps"]
    # A count that is remembered fails no machine; a single engine is slow whatever the count.
    board = catalogue.board(DEVICE[model])
    assert board is not None
    field = "nvdec_engines" if kind == "decode" else "nvenc_engines"
    known = field not in board.model.unverified
    single = "1 encoder" in finding.expected
    assert finding.status is (
        records.Status.PASS if percent > 85 else records.Status.FAIL if known or single else records.Status.WARN
    )
    assert f"{fps:.0f} fps" in finding.expected


def test_between_two_presets_as_fast_as_the_quicker_one_can_be() -> None:
    """P5 of the table gives 264 fps and P3 602: P4 at 600 is sound, and at 900 no encoder can be so fast."""
    for fps, status in ((600, records.Status.PASS), (900, records.Status.UNKNOWN)):
        one = step(14, fps * CLOCK["t4"] / 1950, video_clock_mhz=CLOCK["t4"])
        assert (
            judged("t4", series("encode", "h264", one, preset="p4"))["throughput encode h264 p4.fps"].status is status
        )


def test_counts_from_memory_are_named_as_such() -> None:
    finding = judged("t4", series("decode", "h264", step(4, 1180, video_clock_mhz=1470)))["throughput decode h264.fps"]
    assert "2 decoders (a count remembered from data sheets, not verified)" in finding.expected


@pytest.mark.parametrize(("model", "kind"), [("v100", "decode")])
def test_without_a_published_rate_nothing_is_claimed(model: str, kind: str) -> None:
    finding = judged(model, series(kind, "h264", step(2, 700, video_clock_mhz=1372)))[f"throughput {kind} h264.fps"]
    assert finding.status is records.Status.SKIP
    assert "700 fps" in finding.actual
    assert "no rate" in finding.reason


def test_a_gpu_that_the_catalogue_lacks() -> None:
    one = series("decode", "h264", step(2, 700, video_clock_mhz=1470))
    found = judged("t4", one, pci_device_id="2782", name="RTX 4070 Ti")
    assert found["throughput decode h264.fps"].status is records.Status.SKIP
    assert "RTX 4070 Ti" in found["throughput decode h264.fps"].reason


NO_PSUTIL = {"missing": "not_installed", "detail": "psutil"}


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({"decoder_utilization_percent": 60, "cpu_percent": 99.0}, ["60 % busy", "the CPU, which was 99 % busy"]),
        ({"decoder_utilization_percent": 40, "io_wait_percent": 35.0, "cpu_percent": 60.0}, ["storage", "35 %"]),
        ({"decoder_utilization_percent": 70}, ["70 % busy", "neither CPU nor storage", "CPU 12 %"]),
        (
            {"decoder_utilization_percent": 70, "cpu_percent": NO_PSUTIL, "io_wait_percent": NO_PSUTIL},
            ["70 % busy", "how busy its CPU and storage were could not be read"],
        ),
        ({"decoder_utilization_percent": {"missing": "not_supported"}}, ["NVML did not say"]),
        ({"died": 3, "died_because": LIMIT}, ["3 of 8 sessions ended early", LIMIT]),
        ({}, ["98 % busy and yet slow"]),
    ],
)
def test_a_floor_that_is_missed_says_where_it_went(seen: dict[str, Any], words: list[str]) -> None:
    finding = judged("h200", series("decode", "h264", step(8, 2000, **seen)))["throughput decode h264.fps"]
    assert finding.status is records.Status.FAIL
    assert finding.actual == "2000 fps with 8 sessions, 45 %"
    for word in words:
        assert word in finding.reason


def test_engines_that_are_missing_are_counted() -> None:
    one = series("decode", "h264", step(1, 640), step(8, 2560))
    reason = judged("h200", one)["throughput decode h264.fps"].reason
    assert "one session alone reaches 640 of 640 fps" in reason
    assert "no more than 4.0 of them" in reason
    assert "fewer than 7 decoders" in reason


def test_a_low_clock_is_named_and_not_blamed_on_the_engines() -> None:
    slow = step(8, 2600, video_clock_mhz=1000, event_reasons=0x44)
    found = judged("h200", series("decode", "h264", slow))
    assert found["throughput decode h264.fps"].status is records.Status.PASS
    clock = found["gpu 0.video_clock"]
    assert clock.status is records.Status.WARN
    assert "65 %" in clock.reason
    assert "power limit" in clock.reason
    assert "thermal" in clock.reason


@pytest.mark.parametrize("kind", ["download", "ladder", "software"])
def test_what_decodes_each_picture_once_is_bound_by_the_decoders(kind: str) -> None:
    """No rate says how fast it must be, and it cannot be faster than decoding, nor without decoders at work."""
    assert judged("h200", series(kind, "h264", step(8, 2000, decoder_utilization_percent=60)))[
        f"throughput {kind} h264.fps"
    ].status is records.Status.SKIP  # fmt: skip
    for impossible in (step(8, 90_000, decoder_utilization_percent=60), step(8, 3000, decoder_utilization_percent=0)):
        found = judged("h200", series(kind, "h264", impossible))[f"throughput {kind} h264.fps"]
        assert found.status is records.Status.UNKNOWN


def test_heat_that_nvml_does_not_name_is_told() -> None:
    board = catalogue.board(DEVICE["a100"])
    assert board
    assert board.temperatures_c
    hot = board.temperatures_c["slowdown"]
    found = judged("a100", series("decode", "h264", step(8, 9000, temperature_c=hot)))
    assert found["gpu 0.video_temperature"].status is records.Status.WARN
    assert "gpu 0.video_temperature" not in judged(
        "a100", series("decode", "h264", step(8, 9000, temperature_c=hot - 1))
    )
    off = judged("a100", series("decode", "h264", step(8, 9000, temperature_c=hot + 20)))
    assert off["throughput decode h264.fps"].status is records.Status.UNKNOWN


@pytest.mark.parametrize("reasons", [0, {"missing": "not_supported"}, None])
def test_a_low_clock_without_a_reason(reasons: Any) -> None:
    found = judged("h200", series("decode", "h264", step(8, 2600, video_clock_mhz=1000, event_reasons=reasons)))
    assert "NVML" in found["gpu 0.video_clock"].reason


@pytest.mark.parametrize("model", ["a100", "h200"])
def test_no_encoder_is_a_skip_in_the_drivers_words(model: str) -> None:
    none = series("encode", "h264", preset="p3", outcome="failed", decisive_line=NO_NVENC)
    finding = judged(model, none)["throughput encode h264 p3.fps"]
    assert finding.status is records.Status.SKIP
    assert finding.actual == NO_NVENC


def test_no_encoder_that_the_driver_does_not_confirm_is_unknown() -> None:
    other = series("encode", "h264", preset="p3", outcome="failed", decisive_line="CUDA_ERROR_UNKNOWN: unknown error")
    assert judged("h200", other)["throughput encode h264 p3.fps"].status is records.Status.UNKNOWN


def test_an_encoder_where_there_should_be_none() -> None:
    """A source says that there is none: the figure is impossible."""
    one = series("encode", "h264", step(1, 600), preset="p3")
    finding = judged("h200", one)["throughput encode h264 p3.fps"]
    assert finding.status is records.Status.UNKNOWN
    assert "has none" in finding.reason


def test_an_encoder_that_the_driver_denies() -> None:
    none = series("encode", "h264", preset="p3", outcome="failed", decisive_line=NO_NVENC)
    finding = judged("t4", none)["throughput encode h264 p3.fps"]
    assert finding.status is records.Status.FAIL
    assert "though by gpuprep's catalogue a T4 has 1 encoder" in finding.reason


def test_of_a_gpu_that_the_catalogue_lacks_the_driver_alone_decides() -> None:
    none = series("encode", "h264", preset="p3", outcome="failed", decisive_line=NO_NVENC)
    finding = judged("t4", none, pci_device_id="2782")["throughput encode h264 p3.fps"]
    assert finding.status is records.Status.SKIP
    assert finding.actual == NO_NVENC


def test_the_clock_of_engines_at_rest_says_nothing() -> None:
    one = series("decode", "h264", step(1, 300, video_clock_mhz=600), step(8, 4025))
    assert judged("h200", one)["gpu 0.video_clock"].status is records.Status.PASS


def test_sessions_that_died_are_named_beside_the_speed() -> None:
    limited = step(3, 450, video_clock_mhz=1470, died=1, died_because=LIMIT)
    found = judged("t4", series("encode", "h264", step(1, 440, video_clock_mhz=1470), limited, preset="p3"))
    assert found["throughput encode h264 p3.fps"].status is records.Status.PASS
    sessions = found["throughput encode h264 p3.sessions"]
    assert sessions.status is records.Status.FAIL
    assert sessions.actual == "1 of 3 ended early"
    assert LIMIT in sessions.reason
    assert "session limit" in sessions.reason


def test_another_tenant_makes_a_low_figure_unknown() -> None:
    low = series("decode", "h264", step(8, 2000))
    process = {"pid": 41, "name": "python3", "memory_mib": 300}
    finding = judged("h200", low, other_processes=[process])["throughput decode h264.fps"]
    assert finding.status is records.Status.UNKNOWN
    assert "python3 (pid 41)" in finding.reason
    busy = {"encoder_utilization_percent": 0, "decoder_utilization_percent": 44}
    assert judged("h200", low, before=busy)["throughput decode h264.fps"].status is records.Status.UNKNOWN
    good = series("decode", "h264", step(8, 4025))
    assert judged("h200", good, other_processes=[process])["throughput decode h264.fps"].status is records.Status.PASS


@pytest.mark.parametrize(
    "one",
    [
        series("decode", "h264", outcome="not_run", decisive_line="no clip to work on"),
        series("decode", "h264", step(8, 4025, video_clock_mhz={"missing": "not_supported"})),
        series("decode", "h264", step(8, 4025, video_clock_mhz=None)),
        series("decode", "h264", step(8, 4025, decoder_utilization_percent={"missing": "not_supported"})),
        series("decode", "h264", outcome="something else"),
    ],
)
def test_without_evidence_it_is_unknown(one: dict[str, Any]) -> None:
    assert judged("h200", one)["throughput decode h264.fps"].status is records.Status.UNKNOWN


@pytest.mark.parametrize(
    "values", [records.Missing("command_failed", "the probe gave no result"), {}, {"gpus": [], "series": []}]
)
def test_no_measurement_at_all_is_unknown(values: Any) -> None:
    assert judged_values(values)["throughput.fps"].status is records.Status.UNKNOWN


def test_a_lost_gpu_is_unknown() -> None:
    found = judged("t4", error="GPU 0 has fallen off the bus")
    assert found["throughput gpu 0.fps"].status is records.Status.UNKNOWN
    assert "ask the provider" in found["throughput gpu 0.fps"].remedy


def test_what_had_no_time_or_was_left_out_on_purpose_is_skipped() -> None:
    late = series("encode", "hevc", preset="p7", outcome="no_time", decisive_line="the time was used up")
    assert judged("t4", late)["throughput encode hevc p7.fps"].status is records.Status.SKIP
    lacks = series("encode", "vp9", preset="p7", outcome="not_built", decisive_line="no encoder vp9_nvenc")
    assert judged("t4", lacks)["throughput encode vp9 p7.fps"].status is records.Status.SKIP
    wanted = series("encode", "h264", preset="p3", outcome="not_built", decisive_line="no encoder h264_nvenc")
    assert judged("t4", wanted)["throughput encode h264 p3.fps"].status is records.Status.UNKNOWN


def test_no_frame_at_all_fails_with_the_cause() -> None:
    dead = series("decode", "h264", step(1, 0.0, died=1), outcome="failed",
                  decisive_line="CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")  # fmt: skip
    finding = judged("h200", dead)["throughput decode h264.fps"]
    assert finding.status is records.Status.FAIL
    assert "the GPU failed while it worked" in finding.reason


def test_several_gpus_are_told_apart() -> None:
    one, two = card("h200", 0), card("h200", 1)
    values = {
        "gpus": [one, two],
        "series": [series("decode", "h264", step(8, 4025), gpu=one), series("decode", "h264", step(8, 2000), gpu=two)],
    }
    found = judged_values(values)
    assert found["throughput decode h264 gpu 0.fps"].status is records.Status.PASS
    assert found["throughput decode h264 gpu 1.fps"].status is records.Status.FAIL
    assert {"gpu 0.video_clock", "gpu 1.video_clock"} <= set(found)


def test_a_record_from_elsewhere_may_name_one_gpu_only() -> None:
    values = {"gpu": {"index": 0, "pci_device_id": "2335"}, "series": [series("decode", "h264", step(8, 4025))]}
    found = judged_values(values)
    assert found["throughput decode h264.fps"].status is records.Status.PASS
    # The highest clock is the catalogue's; who else used the GPU, nobody knows.
    assert found["gpu 0.video_clock"].status is records.Status.PASS
    assert found["gpu 0.video_alone"].status is records.Status.UNKNOWN


def test_the_floor_is_the_profiles_and_named() -> None:
    one = series("decode", "h264", step(8, 4025))
    strict = judged("h200", one, thresholds={"engine_percent_of_rate": profile.Threshold(95, "mine")})
    finding = strict["throughput decode h264.fps"]
    assert finding.status is records.Status.FAIL
    assert "at least 95 %" in finding.expected
    assert "mine" in finding.expected
    assert "default" in judged("h200", one, thresholds={})["throughput decode h264.fps"].expected


def test_a_profile_without_ffmpeg_asks_nothing() -> None:
    wanted = with_parts(WANTED, codec={"ffmpeg": "none"})
    assert figures("throughput", {}, wanted, any_host()) == []


def test_every_engine_of_the_catalogue_has_a_rate_or_none_is_published() -> None:
    """Volta's decoders and Blackwell's encoders are the ones without: there is no row, or no clock with it."""
    without = set()
    for board in catalogue.boards().values():
        ids: dict[str, Any] = {
            "pci_device_id": board.pci_device_ids[0],
            "pci_subsystem_id": (*board.subsystem_ids, "")[0],
        }
        for kind, preset, count in (
            ("decode", None, board.model.nvdec_engines),
            ("encode", "p3", board.model.nvenc_engines),
        ):
            one = series(kind, "h264", step(2, 700, video_clock_mhz=1372), preset=preset)
            found = judged("t4", one, **ids, name="", max_video_clock_mhz=None)
            (fps,) = (finding for key, finding in found.items() if key.endswith(".fps"))
            if count and "no rate" in fps.reason:
                without.add((board.model.key, kind))
    assert without == {("v100", "decode"), ("rtx_5090", "encode"), ("rtx_pro_6000", "encode")}
    assert load("t4").thresholds["engine_percent_of_rate"]


def test_a_record_of_a_real_h200() -> None:
    """Made by the probe on one H200, driver 580.159, FFmpeg 7.1.5, in 58 s."""
    path = TESTS / "cases" / "records" / "h200-throughput.json"
    result = records.from_json(records.ProbeResult, path.read_text())
    assert result.source is records.Source.MEASURED
    found = judged_values(result.values, {"engine_percent_of_rate": profile.Threshold(95)})
    assert {key: finding.status for key, finding in found.items()} == {
        "throughput decode h264.fps": records.Status.PASS,
        "throughput decode hevc.fps": records.Status.PASS,
        "throughput decode hevc10.fps": records.Status.PASS,
        "throughput decode vp9.fps": records.Status.PASS,
        "throughput encode h264 p3.fps": records.Status.SKIP,
        "throughput encode hevc p3.fps": records.Status.SKIP,
        "gpu 0.video_alone": records.Status.PASS,
        "gpu 0.video_slowdowns": records.Status.PASS,
        "gpu 0.video_clock": records.Status.PASS,
    }
    assert found["throughput encode hevc p3.fps"].actual == NO_NVENC
