"""What a throughput record cannot say: each figure changed so that it contradicts the others, and what vanished."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from judgedbandwidth import no_measurement
from places import TESTS
from throughputrecords import LIMIT, card, judged, judged_values, series, step

from gpuprep import records
from gpuprep.agent.video import clips, throughputplan
from gpuprep.desired import profile

RECORD = TESTS / "cases" / "records" / "h200-throughput.json"
BAD = (records.Status.UNKNOWN, records.Status.FAIL, records.Status.WARN)
SHIPPED = {"engine_percent_of_rate": profile.Threshold(85, shipped=True)}


def real() -> dict[str, Any]:
    values: dict[str, Any] = json.loads(RECORD.read_text())["values"]
    return values


def bad(values: Any, thresholds: dict[str, Any] | None = None) -> dict[str, records.Finding]:
    return {key: f for key, f in judged_values(values, thresholds or SHIPPED).items() if f.status in BAD}


def test_the_real_one_is_sound() -> None:
    assert bad(real()) == {}


def scaled(values: dict[str, Any], factor: float, only: str = "") -> dict[str, Any]:
    """Every figure of speed slower, and the frames with it: a GPU that is slow and not a record that is wrong."""
    for one in values["series"]:
        for seen in one["steps"]:
            if not only or one["codec"] == only:
                seen["fps"] *= factor
                seen["fps_each"] = [fps * factor for fps in seen["fps_each"]]
                seen["frames"] = round(seen["frames"] * factor)
    return values


@pytest.mark.parametrize("codec", ["h264", "hevc", "hevc10", "vp9"])
def test_a_real_gpu_that_is_slower_than_it_was_is_told(codec: str) -> None:
    assert bad(scaled(real(), 0.93, codec)) == {}
    slow = bad(scaled(real(), 0.85, codec))
    assert {key: finding.status for key, finding in slow.items()} == {
        f"throughput decode {codec}.fps": records.Status.WARN
    }
    (finding,) = slow.values()
    assert "healthy boards reach with this clip" in finding.reason
    (finding,) = bad(scaled(real(), 0.5, codec)).values()
    assert finding.status is records.Status.FAIL


Change = Callable[[dict[str, Any]], Any]


def last(values: dict[str, Any]) -> dict[str, Any]:
    """The step with all engines at work."""
    found: dict[str, Any] = values["series"][0]["steps"][-1]
    return found


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda v: last(v).update(fps=9986.8), "frames in 2.421 s are 4993 fps"),
        (lambda v: last(v).update(frames=24178), "are 9987 fps"),
        (lambda v: last(v).update(seconds=24.21), "are 499 fps"),
        (lambda v: last(v).update(seconds=0), "not recorded"),
        (lambda v: last(v).update(seconds=0.002421, frames=12), "a steady state of 0.002421 s is impossible"),
        (lambda v: v["series"][0].update(kind="dance"), "no series of the kind dance"),
        (lambda v: v["series"][0].update(kind=""), "its kind is not recorded"),
        (lambda v: last(v).update(frames=None), "not recorded"),
        (lambda v: last(v).update(fps_each=[713.0] * 6), "6 sessions"),
        (lambda v: last(v).update(fps_each=[900.0] * 7), "6300 together"),
        (lambda v: last(v).update(decoder_utilization_percent=0), "0 % busy: something else made these frames"),
        (lambda v: last(v).update(decoder_utilization_percent=30), "30 % busy"),
        (lambda v: last(v).update(decoder_utilization_percent=180), "180 % busy"),
        (lambda v: last(v).update(encoder_utilization_percent=150), "use of the encoders of 150"),
        (lambda v: last(v).update(gpu_utilization_percent=300), "use of the GPU of 300"),
        (lambda v: last(v).update(video_clock_mhz=210), "more than"),
        (lambda v: last(v).update(video_clock_mhz=3090), "its highest is 1545"),
        (lambda v: last(v).update(sessions=None), "how many sessions"),
        (lambda v: last(v).update(sessions=2, fps_each=[]), "7 decoders and 2 sessions can do"),
        (lambda v: last(v).update(died=9), "9 sessions are reported as ended early"),
        (lambda v: last(v).update(died_because=LIMIT), "no session died"),
        (lambda v: last(v).update(temperature_c=400), "temperature of 400"),
        (lambda v: last(v).update(power_watts=9000), "power of 9000"),
        (lambda v: last(v).update(cpu_percent=250), "CPU of 250"),
        (lambda v: last(v).update(fps=0), "none delivered"),
        (lambda v: last(v).update(fps=None), "no figure"),
        (lambda v: v["series"][0].update(outcome="failed"), "but delivered frames"),
        (lambda v: v["series"][0].update(outcome="no_time"), "reports that it did not run"),
        (lambda v: v["series"][0].update(outcome="not_built"), "reports that it did not run"),
        (lambda v: v["series"][0].update(decisive_line="CUDA_ERROR_UNKNOWN"), "no session died"),
        (lambda v: v["series"][0].update(width=640, height=360), "640x360 is recorded"),
        (lambda v: v["series"][1].update(outcome="completed"), "no session delivered"),
        (lambda v: v["gpus"][0].update(max_video_clock_mhz=900), "boards of its kind have 1545"),
        (lambda v: v["gpus"][0].update(name="Tesla T4"), "the name is that of a T4"),
        (lambda v: v["gpus"][0].pop("other_processes"), "not known"),
        (lambda v: v["gpus"][0].update(other_processes={"missing": "no_permission", "detail": "x"}), "not known (x)"),
        (lambda v: v["gpus"][0].update(other_processes=[7]), "an entry that is not valid"),
        (lambda v: v["gpus"][0].update(before={}), "before the measurement is not recorded"),
        (lambda v: v["gpus"][0]["before"].update(decoder_utilization_percent=40), "40 % busy before"),
        (lambda v: v["series"][0]["gpu"].update(index=5), "does not list the GPU"),
        (lambda v: v["series"][0]["gpu"].update(uuid="GPU-other"), "does not list the GPU"),
        (lambda v: v["series"].pop(0), "decode h264"),
        (lambda v: v["series"].pop(4), "decode hevc10"),
        (lambda v: v["series"][0].update(codec="h263"), "decode h264"),
        (lambda v: v["series"].__setitem__(0, 7), "not valid series"),
        (lambda v: v["series"][0]["steps"].__setitem__(0, 7), "not valid series"),
        (lambda v: last(v).update(event_reasons=None), "could not be read"),
    ],
)
def test_what_cannot_be_is_unknown_with_the_reason(change: Change, words: str) -> None:
    values = copy.deepcopy(real())
    change(values)
    found = bad(values)
    assert {finding.status for finding in found.values()} == {records.Status.UNKNOWN}, found
    assert any(words in finding.reason for finding in found.values()), [f.reason for f in found.values()]


FIGURES = ("fps", "frames", "seconds", "start_seconds", "decoder_utilization_percent", "encoder_utilization_percent",
           "video_clock_mhz", "event_reasons", "power_watts", "temperature_c", "cpu_percent", "io_wait_percent",
           "sessions", "died")  # fmt: skip


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e15, 1e300, -5, -50])
def test_a_figure_that_is_none_is_unknown_wherever_it_stands(figure: str, value: float) -> None:
    if (figure, value) == ("temperature_c", -5):
        pytest.skip("a chip can be as cold: checks/conditions.py")
    for place in (0, -1):
        values = copy.deepcopy(real())
        values["series"][0]["steps"][place][figure] = value
        (finding,) = no_measurement({"throughput": values})
        assert (finding.key, finding.status) == ("throughput.figures", records.Status.UNKNOWN)
        assert f"{figure} = " in finding.reason


@pytest.mark.parametrize(
    ("mask", "status"),
    [(0x8, records.Status.FAIL), (0x40, records.Status.FAIL), (0x80, records.Status.FAIL), (0x20, records.Status.WARN)],
)
def test_every_reason_of_every_step_counts(mask: int, status: records.Status) -> None:
    for number, seen in ((0, 0), (0, 3), (3, 0), (5, 0)):
        values = copy.deepcopy(real())
        values["series"][number]["steps"][seen]["event_reasons"] = mask
        (finding,) = bad(values).values()
        assert (finding.property, finding.status) == ("video_slowdowns", status)
    values["series"][5]["steps"][0]["event_reasons"] = 0x4
    assert bad(values) == {}  # a power cap is how the card works


def complete(model: str, *steps: dict[str, Any], index: int = 0, share: float = 1.0) -> list[dict[str, Any]]:
    """Every series of a sound H200 with the fps of the record, times `share`."""
    gpu = card(model, index)
    reached = {"h264": 5000, "h264-noisy": 4200, "hevc": 8866, "hevc10": 8284, "vp9": 4630}
    clip = {"name": "", "codec": "h264", "width": 1920, "height": 1080, "fps": 30, "bit_rate_kbps": 5100}
    noisy = {**clip, "name": "h264-1080p-noisy", "bit_rate_kbps": 8100}
    names = {"h264": "h264-1080p", "hevc": "hevc-1080p", "hevc10": "hevc10-1080p", "vp9": "vp9-1080p"}
    found = []
    for one in throughputplan.plan(index > 0, throughputplan.Engines(0, 7)):
        if one.kind != "decode":
            line = "OpenEncodeSessionEx failed: unsupported device (2): (no details)"
            end = {"outcome": "failed", "decisive_line": line}
            found.append(series("encode", one.codec, preset=one.preset, gpu=gpu, **end))
            continue
        read = (
            noisy
            if one.codec == "h264-noisy"
            else {**clip, "name": names[one.codec], "codec": clips.SPECS[names[one.codec]].codec}
        )
        found.append(series("decode", one.codec, step(14, share * reached[one.codec]), gpu=gpu, clip=read))
    return [*found, *steps]


def test_a_gpu_beside_its_twin() -> None:
    gpus = [card("h200", 0), card("h200", 1)]
    key = "throughput decode h264 gpu 1.fps_against_best"
    for share, status in ((0.97, records.Status.PASS), (0.85, records.Status.WARN), (0.6, records.Status.FAIL)):
        every = [*complete("h200"), *complete("h200", index=1, share=share)]
        found = judged_values({"gpus": gpus, "series": every}, SHIPPED)
        assert found[key].status is status
        assert found["throughput decode h264 gpu 0.fps_against_best"].status is records.Status.PASS
        if status is not records.Status.PASS:
            assert "gpu 0, which is the same board" in found[key].reason
    busy = [gpus[0], {**gpus[1], "other_processes": [{"pid": 7, "name": "python3"}]}]
    assert judged_values({"gpus": busy, "series": every}, SHIPPED)[key].status is records.Status.UNKNOWN
    other = [gpus[0], {**gpus[1], "pci_device_id": "2330"}]
    assert key not in judged_values({"gpus": other, "series": every}, SHIPPED)


def test_a_series_that_vanished_from_the_second_gpu() -> None:
    values = {"gpus": [card("h200", 0), card("h200", 1)], "series": complete("h200")}
    found = judged_values(values, SHIPPED)
    assert found["throughput gpu 1.series"].status is records.Status.UNKNOWN
    assert "decode h264" in found["throughput gpu 1.series"].reason
    assert "throughput gpu 0.series" not in found


def test_the_harder_clip_is_a_series_of_its_own() -> None:
    every = complete("h200")
    values = {"gpus": [card("h200")], "series": every}
    assert bad(values) == {}
    fps = judged_values(values, SHIPPED)["throughput decode h264-noisy.fps"]
    assert fps.actual == "4200 fps with 14 sessions, 104 %, streams of 8.1 Mbit/s"
    noisy = next(one for one in every if one["codec"] == "h264-noisy")
    left = {**values, "series": [one for one in every if one is not noisy]}
    assert "decode h264-noisy" in bad(left)["throughput gpu 0.series"].reason
    for speed, status in ((2800, records.Status.WARN), (2300, records.Status.FAIL)):
        noisy["steps"] = [step(14, speed)]
        assert bad(values)["throughput decode h264-noisy.fps"].status is status


@pytest.mark.parametrize(
    ("clip", "words"),
    [
        ({"bit_rate_kbps": 300}, "300 kbit/s, and h264-1080p is made with 5000"),
        ({"name": "h264-540p"}, "the clip h264-540p is not the one of this series"),
        ({"width": 640, "height": 360}, "the clip is 640x360"),
    ],
)
def test_a_clip_that_is_not_gpupreps_proves_nothing(clip: dict[str, Any], words: str) -> None:
    every = complete("h200")
    every[0]["clip"].update(clip)
    found = bad({"gpus": [card("h200")], "series": every})
    assert found["throughput decode h264.fps"].status is records.Status.UNKNOWN
    assert words in found["throughput decode h264.fps"].reason


def test_a_ladder_that_ended_early_is_not_slow() -> None:
    """No time was left for more than one session, and that one had an engine of its own."""
    early = judged("h200", series("decode", "h264", step(1, 700, decoder_utilization_percent=14)), thresholds=SHIPPED)
    assert early["throughput decode h264.fps"].status is records.Status.UNKNOWN
    assert "1 session cannot fill 7 decoders" in early["throughput decode h264.fps"].reason
    slow = judged("h200", series("decode", "h264", step(1, 300, decoder_utilization_percent=14)), thresholds=SHIPPED)
    assert slow["throughput decode h264.fps"].status is records.Status.FAIL


def test_a_count_that_one_session_confirms_fails_a_machine() -> None:
    alone = step(1, 600, video_clock_mhz=1470, decoder_utilization_percent=50)
    slow = step(4, 900, video_clock_mhz=1470)
    found = judged("t4", series("decode", "h264", alone, slow))["throughput decode h264.fps"]
    assert found.status is records.Status.FAIL
    assert "2 decoders (as one session alone shows)" in found.expected
    found = judged("t4", series("decode", "h264", slow))["throughput decode h264.fps"]
    assert found.status is records.Status.WARN
    assert "no source gives their number" in found.reason


def test_where_no_source_gives_the_count_one_session_does() -> None:
    """No source says how many decoders an A10 has."""
    a10: dict[str, Any] = {"pci_device_id": "2236", "name": "NVIDIA A10", "max_video_clock_mhz": 1575}
    alone = step(1, 700, video_clock_mhz=1575, decoder_utilization_percent=50)
    sound = judged("t4", series("decode", "h264", alone, step(4, 1380, video_clock_mhz=1575)), **a10)
    assert sound["throughput decode h264.fps"].status is records.Status.PASS
    slow = judged("t4", series("decode", "h264", alone, step(4, 1000, video_clock_mhz=1575)), **a10)
    assert slow["throughput decode h264.fps"].status is records.Status.FAIL
    one = judged("t4", series("decode", "h264", step(4, 1380, video_clock_mhz=1575)), **a10)
    assert one["throughput decode h264.fps"].status is records.Status.SKIP
    assert "no source says how many decoders" in one["throughput decode h264.fps"].reason
    for fps, status in ((600, records.Status.WARN), (610, records.Status.SKIP)):  # one decoder gives 708
        busy = step(1, fps, video_clock_mhz=1575, decoder_utilization_percent={"missing": "not_sampled"})
        first = judged("t4", series("decode", "h264", busy, step(4, 1380, video_clock_mhz=1575)), **a10)
        assert first["throughput decode h264.fps"].status is status
    less = judged("t4", series("decode", "h264", step(4, 300, video_clock_mhz=1575)), **a10)
    assert less["throughput decode h264.fps"].status is records.Status.FAIL


def test_between_the_two_limits_it_is_told() -> None:
    one = series("decode", "h264", step(4, 0.8 * 2 * 771 * 1470 / 1860, video_clock_mhz=1470))
    shipped = {"engine_percent_of_rate": profile.Threshold(70, shipped=True)}
    told = judged("t4", one, thresholds=shipped)["throughput decode h264.fps"]
    assert (told.status, told.expected.partition(" of ")[0]) == (records.Status.WARN, "at least 85 % (gpuprep)")
    own = {"engine_percent_of_rate": profile.Threshold(70)}  # the user's
    assert judged("t4", one, thresholds=own)["throughput decode h264.fps"].status is records.Status.PASS


def test_a_gpu_whose_engines_nobody_read_is_no_fault() -> None:
    line = "OpenEncodeSessionEx failed: unsupported device (2): (no details)"
    none = series("encode", "h264", preset="p3", outcome="failed", decisive_line=line)
    assert judged("b200", none)["throughput encode h264 p3.fps"].status is records.Status.SKIP


def test_published_figures_may_lack_what_is_not_published_and_nothing_else() -> None:
    gpu = {"index": 0, "pci_device_id": "2335"}
    one = {"kind": "decode", "codec": "h264", "outcome": "completed", "steps": [{"sessions": 14, "fps": 4250}]}
    values: dict[str, Any] = {"published": "a paper", "gpus": [gpu], "series": [one]}
    found = judged_values(values)
    assert {finding.status for finding in found.values()} == {records.Status.PASS}
    slow = copy.deepcopy(values)
    slow["series"][0]["steps"][0]["fps"] = 2000
    assert (
        bad(slow)["throughput decode h264.fps"].status is records.Status.UNKNOWN
    )  # nobody knows how busy the engines were
    slow["series"][0]["steps"][0]["decoder_utilization_percent"] = 99
    assert bad(slow)["throughput decode h264.fps"].status is records.Status.FAIL
    for changed, status in (
        ({"fps": 9000}, records.Status.UNKNOWN),
        ({"event_reasons": 0x40}, records.Status.FAIL),
        ({"died": 2, "died_because": LIMIT}, records.Status.FAIL),
        ({"decoder_utilization_percent": 1}, records.Status.UNKNOWN),
    ):
        there = copy.deepcopy(values)
        there["series"][0]["steps"][0].update(changed)
        assert status in {finding.status for finding in bad(there).values()}, changed
    busy = copy.deepcopy(values)
    busy["gpus"][0]["other_processes"] = [{"pid": 7}]
    assert bad(busy)["gpu 0.video_alone"].status is records.Status.UNKNOWN


def test_the_same_series_twice_is_judged_twice() -> None:
    values = real()
    values["series"].append(copy.deepcopy(values["series"][0]))
    last_one = values["series"][-1]["steps"]
    for seen in last_one:
        seen.update(fps=seen["fps"] / 4, fps_each=[], frames=seen["frames"] // 4)
    assert bad(values)["throughput decode h264 (2).fps"].status is records.Status.FAIL


def test_a_whole_run_that_calls_itself_quick_is_whole() -> None:
    values = real()
    values["quick"] = True
    assert bad(values) == {}
    values["series"].pop(4)
    assert "decode hevc10" in bad(values)["throughput gpu 0.series"].reason
    values["series"] = values["series"][:1]
    assert bad(values) == {}  # all that a quick run has
