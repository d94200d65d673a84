"""What a person looks for first comes first; one cause is told once; several GPUs stand side by side."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from typing import Any

import pytest
from judgedrecords import judged
from pages import printed, words_of
from records_for_tests import record
from validations_for_tests import h200, several, t4

from gpuprep import records, reports

SCREEN = 24  # rows of a terminal
UNREAD = "{} could not be read: no NVIDIA driver is loaded (NVML: Driver Not Loaded)"
NO_NVENC = "OpenEncodeSessionEx failed: unsupported device (2): (no details)"


def as_text(run: records.RunRecord, **how: Any) -> str:
    return printed(run, everything=True, **how)


@pytest.fixture(scope="module")
def whole() -> records.RunRecord:
    return judged("h200-gemm", "h200-bandwidth", "h200-transcode", "h200-throughput")


def with_findings(*findings: records.Finding, base: records.RunRecord | None = None) -> records.RunRecord:
    verdict = records.Verdict(findings[0].status, f"{findings[0].status.value}: some", findings)
    return dataclasses.replace(base or record(), verdict=verdict, findings=findings, source=records.Source.MEASURED)


# ---------------------------------------------------------------- the gravest first


@pytest.mark.parametrize("style", ["text", "markdown", "html"])
def test_a_lost_gpu_stands_before_speed_software_and_settings(style: str) -> None:
    of = [("agent", "version"), ("cuda", "version"), ("gemm", "fp16"), ("driver", "version"), ("gpus", "count")]
    listed = [records.Finding(*names, records.Status.FAIL, "1", "2", f"why {names[0]}") for names in of]
    setting = records.Finding("gpu 0", "power_limit", records.Status.FAIL, "1", "2", "why gpu 0", role="gpu_tuning")
    page = reports.render(with_findings(setting, *listed), style)
    places = [page.index(f"why {thing}") for thing in ("gpus", "driver", "gemm", "cuda", "gpu 0", "agent")]
    assert places == sorted(places)


# ---------------------------------------------------------------- one cause, one line


def test_an_engine_that_is_not_there_is_told_in_one_line_not_in_26(whole: records.RunRecord) -> None:
    page = as_text(whole)
    assert "  SKIP    23 checks of transcode, throughput: this GPU has no NVENC\n" in page
    assert len([line for line in page.splitlines() if "NVENC" in line or NO_NVENC in line]) == 3
    assert "  20 skipped: this GPU has no NVENC" in page
    markdown = reports.render(whole, "markdown")
    assert "| 23 checks of transcode, throughput | this GPU has no NVENC |" in markdown
    assert markdown.count("\n- transcode ") == 21
    html = reports.render(whole, "html")
    assert re.search(r"<summary>23 checks of transcode, throughput: this GPU has no NVENC</summary><ul", html)
    assert html.count("<li>transcode ") == 21


def test_programs_get_every_finding(whole: records.RunRecord) -> None:
    skipped = [one for one in whole.findings if one.status is records.Status.SKIP]
    assert len(skipped) == 25
    assert reports.render(whole, "junit").count("<skipped ") == 25
    assert records.from_json(records.RunRecord, reports.render(whole, "json")).findings == whole.findings


def test_a_codec_alone_is_named_with_its_codec() -> None:
    skipped = [
        records.Finding(f"transcode {case}", "completed", records.Status.SKIP, "it works", "not supported by this GPU",
                f'T4 has no NVENC for {codec} (catalogue), and the driver says so: "{said}"')
        for case, codec, said in (("a", "AV1", "x"), ("b", "AV1", "y"), ("c", "HEVC", "z"))
    ]  # fmt: skip
    assert "  SKIP    3 checks of transcode: this GPU has no NVENC for AV1, HEVC\n" in as_text(with_findings(*skipped))


def test_what_could_not_be_read_for_one_cause_is_told_once() -> None:
    unread = [
        records.Finding(
            f"gpu {n}",
            prop,
            records.Status.UNKNOWN,
            expected,
            "not readable",
            UNREAD.format(f"gpu {n} {prop}"),
            "load it",
        )
        for n in (0, 1)
        for prop, expected in (("ecc", "on"), ("persistence_mode", "on"), ("clocks", "1590 MHz"))
    ]
    other = records.Finding(
        "ffmpeg", "parts", records.Status.UNKNOWN, "h264_nvenc", "not read", "it did not answer", "validate again"
    )
    run = with_findings(*unread, other)
    page = as_text(run)
    assert "UNKNOWN 6 checks: gpu 0: ecc; gpu 0: persistence mode; gpu 0: clocks and 3\n" in page
    assert page.count("no NVIDIA driver is loaded") == page.count("what to do: load it") == 1
    assert "why: it did not answer" in page
    rows = [line for line in reports.render(run, "markdown").splitlines() if line.startswith("| ❔")]
    assert len(rows) == 2
    html = reports.render(run, "html")
    assert html.count('class="card issue UNKNOWN"') == 2
    assert html.count("<li>gpu ") == 6
    assert reports.render(run, "junit").count("<error ") == 7


def test_what_failed_is_named_one_by_one() -> None:
    failed = [
        records.Finding(f"gpu {n}", "ecc", records.Status.FAIL, "on", "off", "somebody set it", "set it")
        for n in range(8)
    ]
    page = " ".join(as_text(with_findings(*failed)).split())
    assert all(f"gpu {n}: ecc" in page for n in range(8))


def test_two_dates_or_two_remedies_are_two_causes() -> None:
    def cards(*findings: records.Finding, **changes: Any) -> int:
        run = dataclasses.replace(with_findings(*findings), **changes)
        return reports.render(run, "html").count('class="card issue UNKNOWN"')

    one = records.Finding("gpu 0", "ecc", records.Status.UNKNOWN, "on", "-", UNREAD.format("a"), "load it")
    assert cards(one, dataclasses.replace(one, subject="gpu 1", remedy="reboot")) == 2
    assert cards(one, dataclasses.replace(one, subject="gpu 1")) == 1
    dated = dataclasses.replace(one, subject="gpu 1", since="2026-11-19T02:31:00+00:00")
    checked = {"drift": records.DriftFacts("", ""), "command": "drift", "started_at": "2026-11-20T02:31:00+00:00"}
    assert cards(one, dated, **checked) == 2


# ---------------------------------------------------------------- the first screen


def test_the_first_screen_has_verdict_gravest_finding_and_best_figures(whole: records.RunRecord) -> None:
    lost = records.Finding("gpu 0", "pcie_link", records.Status.FAIL, "generation 5 x16", "generation 5 x8",
                   "half of the lanes are gone",
                   "reseat the card, or ask the provider for another machine")  # fmt: skip
    warn = records.Finding(
        "gpu 0", "temperature", records.Status.WARN, "below 85 °C", "86 °C", "it is hot", "look at the fans"
    )
    assert whole.verdict
    run = with_findings(lost, warn, *whole.findings, base=whole)
    first = "\n".join(as_text(run).splitlines()[:SCREEN])
    for part in (
        "FAIL  judge h200-1",
        "FAIL    gpu 0: pcie link",
        "what to do: reseat the card",
        "1 check more did not pass: see below",
        "bf16 824",
        "int8 1576",
        "h264 4993 fps = 166 streams of 30 fps, hevc 8866 = 295",
    ):
        assert part in " ".join(first.split()) or part in first, part
    page = as_text(run)
    assert (
        page.index("pcie link") < page.index("At a glance") < page.index("gpu 0: temperature") < page.index("Skipped")
    )
    html = reports.render(run, "html")
    places = [
        html.index(part)
        for part in ("half of the lanes", 'class="tiles"', "Best product", ">What else did not pass</h2>")
    ]
    assert places == sorted(places)


@pytest.mark.parametrize("make", [h200, several, t4])
def test_the_first_screen_is_no_longer_than_a_terminal(make: Any) -> None:
    lines = as_text(make(), width=80).splitlines()
    last = next(place for place, line in enumerate(lines) if line.startswith(("Skipped", "What else", "Matrix")))
    assert last <= SCREEN + 5
    assert "At a glance" in "\n".join(lines[:SCREEN])


def test_a_glance_says_what_kept_the_clock_low() -> None:
    assert re.search(r"^  slowed by +the 70 W power cap \(SM \d+ of 1590 MHz\) in \w+$", as_text(t4(), width=100), re.M)
    assert re.search(
        r"^  slowed by +the 700 W power cap \(SM \d+ of 1980 MHz\) in \w+$", as_text(h200(), width=100), re.M
    )
    free = copy.deepcopy(t4())
    for result in free.measurements:
        if result.probe == "gemm" and isinstance(result.values, dict):
            for gpu in result.values["gpus"]:
                for product in gpu["gemms"]:
                    product.update(graphics_clock_mhz=1590, event_reasons=0, sustained=None)
    assert "slowed by" not in as_text(free)


def test_a_glance_of_nothing_is_nothing() -> None:
    assert "At a glance" not in as_text(dataclasses.replace(record(), measurements=()))


@pytest.mark.parametrize(("fps", "streams"), [(29.9, 0), (30.0, 1), (4993.4, 166)])
def test_streams_are_whole(fps: float, streams: int) -> None:
    run = t4()
    values: Any = copy.deepcopy(run.measurements[-1].values)
    values["series"] = values["series"][:1]
    for step in values["series"][0]["steps"]:
        step["fps"] = fps
    run = dataclasses.replace(run, measurements=(dataclasses.replace(run.measurements[-1], values=values),))
    assert f"h264 {fps:.0f} fps = {streams} streams of 30 fps" in as_text(run)


# ---------------------------------------------------------------- side by side


def test_two_gpus_stand_in_columns_and_the_lowest_is_marked() -> None:
    run = several(2)
    page = as_text(run, width=80)
    assert re.search(r"GPU 0 +GPU 1 +lowest\n", page)
    assert re.search(r"  bf16 TFLOPS +700 +610↓ +87.1 %\n", page)
    assert "**610 ↓**" in reports.render(run, "markdown")
    assert '<td class="n low"><i>GPU 1</i>610 ↓</td>' in reports.render(run, "html")


def test_the_gravest_status_of_each_gpu_stands_above_its_figures() -> None:
    failed = records.Finding("gpu 1", "ecc", records.Status.FAIL, "on", "off", "why", "do")
    passed = records.Finding("gpu 0", "ecc", records.Status.PASS, "on", "on")
    page = reports.render(with_findings(failed, passed, base=several(2)), "html")
    states = page.partition('<th scope="row">checks</th>')[2].partition("</tr>")[0]
    assert words_of(states) == "GPU 0 PASS GPU 1 FAIL"


@pytest.mark.parametrize(
    ("copies", "shown"),
    [
        ((4232.0, 4246.0), "4232 +4246 +99.6 %"),
        ((4232.0, 4100.0), "4232 +4100↓ +96.8 %"),
        ((4232.0, None), "4232 +–"),
        ((4232.0, 0.0), "4232 +0.00↓ +0.0 %"),
    ],
)
def test_gpus_that_are_alike_are_not_marked(copies: tuple[Any, Any], shown: str) -> None:
    run = several(2)
    memory = next(one for one in run.measurements if one.probe == "bandwidth")
    values: Any = copy.deepcopy(memory.values)
    for gpu, speed in zip(values["gpus"], copies, strict=True):
        gpu["copy_gb_per_s"] = speed
    page = as_text(dataclasses.replace(run, measurements=(dataclasses.replace(memory, values=values),)), width=100)
    assert re.search(rf"^  device copy GB/s +{shown}$", page, re.M), page


def test_more_power_is_not_better_so_the_lowest_is_not_marked() -> None:
    run = several(2)
    values: Any = copy.deepcopy(run.measurements[0].values)
    for product in values["gpus"][1]["gemms"]:
        product["power_watts"] = 300.0
    results = (dataclasses.replace(run.measurements[0], values=values), *run.measurements[1:])
    page = as_text(dataclasses.replace(run, measurements=results), width=100)
    assert re.search(r"^  bf16 8192³ W +\d+ +300 +\d+\.\d %$", page, re.M), page


def test_a_shape_that_all_gpus_have_is_compared_not_the_fastest_of_one() -> None:
    run = several(3)
    values: Any = copy.deepcopy(run.measurements[0].values)
    for gpu in values["gpus"][1:]:
        gpu["gemms"] = [one for one in gpu["gemms"] if (one["dtype"], one["m"]) == ("fp16", 4096)]
    run = dataclasses.replace(run, measurements=(records.ProbeResult("gemm", records.Source.MEASURED, values, 1.0),))
    glance = as_text(run, width=100).partition("At a glance")[2].partition("\n\n")[0]
    assert re.findall(r"^  (fp16 .*?) TFLOPS", glance, re.M) == ["fp16 4096³"]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("count", [2, 8, 16])
def test_the_columns_fit_the_page(count: int, width: int) -> None:
    page = as_text(several(count), width=width)
    assert max(map(len, page.splitlines())) <= width
    if (count, width) == (8, 120):
        assert len(re.findall(r"^ +GPU 0 .*GPU 7 +lowest$", page, re.MULTILINE)) >= 4
    for place in range(count):
        assert f"GPU {place}" in page


def test_one_gpu_and_very_many_have_no_columns() -> None:
    assert "lowest" not in as_text(h200())
    assert "lowest" in as_text(several(32), width=120)
    assert "lowest" not in as_text(several(33), width=120)


@pytest.mark.parametrize("style", ["text", "markdown", "html"])
def test_words_of_a_host_stay_words_beside_each_other(style: str) -> None:
    text = json.dumps([dataclasses.asdict(one) for one in several(2).measurements], default=lambda one: one.value)
    hostile = "<b>x</b>|`y` \\u001b[31m"
    for name in ('"bf16"', '"decode"', '"h264"'):
        text = text.replace(name, json.dumps(hostile.encode().decode("unicode_escape")))
    results = tuple(
        records.ProbeResult(one["probe"], records.Source.MEASURED, one["values"], 1.0) for one in json.loads(text)
    )
    page = reports.render(dataclasses.replace(several(2), measurements=results), style)
    assert "\x1b" not in page
    assert "<b>x" not in page or style == "text"
