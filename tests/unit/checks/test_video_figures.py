"""Figures beside the frames a second of video that cannot be: traffic, memory, times, clips, and those of capacity."""

from __future__ import annotations

from typing import Any

import pytest
from mutations import ANY, Mutation

from gpuprep import records

H200, T4 = "h200-throughput", "t4-throughput"
VALUES = ("measurements", 0, "values")
LINK = {"generation": 1, "width": 16, "max_generation": 5, "max_width": 16}
LATE = {"kind": "encode", "codec": "h264", "preset": "p4", "frames": 75, "median_ms": 6.25, "p95_ms": 8.0, "how": ""}
GOOD = {
    "codec": "h264", "preset": "p4", "encoder": "h264_nvenc", "asked_kbps": 5000, "bit_rate_kbps": 5100, "frames": 96,
    "psnr_db": 38.2, "xpsnr_db": 36.9,
}  # fmt: skip


def wrong(record: str, **changes: dict[str, Any]) -> list[records.Finding]:
    """What does not pass. `step` of the fastest step of the first series, `gpu`, `clip` and `values` get more keys."""
    first = (*VALUES, "series", 0)
    places = {"step": (*first, "steps", -1), "gpu": (*VALUES, "gpus", 0), "series": first, "values": VALUES}
    made = tuple((places[name], lambda old, more=more: {**old, **more}) for name, more in changes.items())
    judged = Mutation("video", record, "changed", ANY, made).findings()
    return [one for one in judged if one.status not in (records.Status.PASS, records.Status.SKIP)]


@pytest.mark.parametrize(
    "changes",
    [
        {"step": {"memory_used_mib": 143771}},
        {"step": {"memory_used_mib": 9000}, "gpu": {"memory_total_mib": 143771}},
        {"step": {"pcie_to_gpu_mb_per_s": 61000.0, "pcie_from_gpu_mb_per_s": 61000.0}},  # by the board: 63 GB/s
        {"step": {"pcie_to_gpu_mb_per_s": 61000.0}, "gpu": {"pcie": LINK}},
    ],
)
def test_what_a_gpu_can_have_passes(changes: dict[str, Any]) -> None:
    assert wrong(H200, **changes) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"step": {"memory_used_mib": 999999}}, "MiB of memory in use of 999999"),
        ({"step": {"memory_used_mib": 25000}, "gpu": {"memory_total_mib": 24000}}, "MiB of memory in use of 25000"),
        ({"step": {"memory_used_mib": -5}}, "memory_used_mib = -5"),
        ({"step": {"pcie_to_gpu_mb_per_s": 1e9}}, "MB/s to the GPU of 1e+09"),
        ({"step": {"pcie_from_gpu_mb_per_s": 90000.0}}, "MB/s from the GPU of 90000"),
        (
            {"step": {"pcie_to_gpu_mb_per_s": 30000.0}, "gpu": {"pcie": {**LINK, "max_generation": 3}}},
            "MB/s to the GPU of 30000",
        ),
        ({"gpu": {"pcie": {**LINK, "max_generation": 9}}}, "a PCIe link of generation 1 now and 9 at most"),
        ({"gpu": {"pcie": {**LINK, "width": 32}}}, "a PCIe link with 32 lanes now and 16 at most"),
        ({"gpu": {"memory_total_mib": 999999}}, "memory of 999999 MiB"),
        ({"step": {"power_watts": 0.0}}, "power of 0"),
        ({"step": {"encoder_utilization_percent": 101.0}}, "use of the encoders of 101"),
        ({"step": {"gpu_utilization_percent": 400.0}}, "use of the GPU of 400"),
        ({"step": {"start_seconds": 5000.0}}, "a step of 5000 s is recorded"),
        ({"step": {"seconds": 20000.0, "frames": 99868000}}, "a step of 20000 s is recorded"),
        ({"step": {"fps_each": [4800.0, 32.0, 32.0, 32.0, 32.0, 32.0, 33.4]}}, "one session alone has 4800 fps"),
        ({"series": {"clip": {"name": "h264-1080p", "codec": "vp9", "width": 1920, "height": 1080, "fps": 30,
                              "bit_rate_kbps": 5100}}}, "the clip is vp9, and h264-1080p is h264"),
        ({"series": {"clip": {"name": "h264-1080p", "codec": "h264", "width": 1920, "height": 1080, "fps": 999,
                              "bit_rate_kbps": 5100}}}, "999 pictures a second"),
    ],
)  # fmt: skip
def test_what_no_gpu_can_have_is_unknown(changes: dict[str, Any], words: str) -> None:
    found = wrong(H200, **changes)
    assert {one.status for one in found} == {records.Status.UNKNOWN}
    assert any(words in one.reason for one in found), [one.reason for one in found]
    assert all(one.remedy for one in found)


def capacity(late: dict[str, Any] | None = None, made: dict[str, Any] | None = None) -> list[records.Finding]:
    more = {"capacity": True, "latency": [{**LATE, **(late or {})}], "quality": [{**GOOD, **(made or {})}]}
    return wrong(T4, values=more)


def test_latency_and_quality_that_can_be_are_no_finding() -> None:
    assert capacity() == []
    assert capacity({"p95_ms": 6.25}, {"xpsnr_db": {"missing": "not_installed", "detail": "no filter"}}) == []
    assert capacity({}, {"encoder": "libx264", "preset": "veryfast"}) == []
    nothing = {"missing": "not_run", "detail": "the time limit was reached before it began"}
    assert capacity({"median_ms": nothing, "p95_ms": nothing, "frames": None}) == []


@pytest.mark.parametrize(
    ("late", "words"),
    [
        ({"p95_ms": 5.0}, "a 95th percentile of 5 ms is below the median, 6.25 ms"),
        ({"median_ms": 0.0}, "a median of 0 ms"),
        ({"median_ms": 1e6, "p95_ms": 1e6}, "a median of 1e+06 ms"),
        ({"p95_ms": None}, "no 95th percentile"),
        ({"frames": 9000}, "9000 pictures are counted"),
        ({"frames": None}, "None pictures are counted"),
    ],
)
def test_a_latency_that_cannot_be_is_unknown(late: dict[str, Any], words: str) -> None:
    (found,) = capacity(late)
    assert (found.key, found.status) == ("latency encode h264 p4.ms", records.Status.UNKNOWN)
    assert words in found.reason


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"psnr_db": 1e9}, "a PSNR of 1e+09 dB"),
        ({"xpsnr_db": 101.0}, "an XPSNR"),
        ({"psnr_db": 100.0, "xpsnr_db": 100.0}, "identical with the source's"),
        ({"psnr_db": 80.0}, "are of different pictures"),
        ({"bit_rate_kbps": 90000}, "90000 kbit/s came out"),
        ({"bit_rate_kbps": 0}, "0 kbit/s came out"),
        ({"asked_kbps": 50}, "50 kbit/s were asked for"),
        ({"encoder": "av1_nvenc"}, "the encoder av1_nvenc is not one of h264"),
        ({"preset": "p9"}, "NVENC has no preset p9"),
        ({"frames": 0}, "how many pictures"),
    ],
)
def test_a_quality_that_cannot_be_is_unknown(made: dict[str, Any], words: str) -> None:
    (found,) = capacity(None, made)
    assert (found.property, found.status) == ("pictures", records.Status.UNKNOWN)
    assert words.replace("an XPSNR", "XPSNR") in found.reason


def test_other_pictures_than_those_that_went_in_fail_and_negative_figures_are_unknown() -> None:
    (found,) = capacity(None, {"psnr_db": 9.0, "xpsnr_db": 8.0})
    assert (found.status, "are not those of its input" in found.reason) == (records.Status.FAIL, True)
    assert {one.status for one in capacity(None, {"psnr_db": -3.0})} == {records.Status.UNKNOWN}
    assert {one.status for one in capacity({"median_ms": -1.0})} == {records.Status.UNKNOWN}


@pytest.mark.parametrize("lost", ["latency", "quality"])
def test_a_run_of_capacity_that_lost_its_figures_is_unknown(lost: str) -> None:
    more: dict[str, Any] = {"capacity": True, "latency": [LATE], "quality": [GOOD], lost: []}
    (found,) = wrong(T4, values=more)
    assert (found.key, found.status) == (f"throughput.{lost}", records.Status.UNKNOWN)
