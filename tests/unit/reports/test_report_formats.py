"""Every format of a report: read back by other libraries, hostile words escaped, nothing needed to be there."""

from __future__ import annotations

import copy
import csv
import dataclasses
import io
import json
import re
from collections.abc import Sequence
from typing import Any

import amount
import junitparser
import pytest
from hostiletexts import HOSTILE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pages import printed, without_script
from prometheus_client.parser import text_string_to_metric_families
from records_for_tests import record
from validations_for_tests import h200, real, several, t4

from gpuprep import records, reports
from gpuprep.untrusted import plaintext

RECORDS = {
    "h200": h200(),
    "t4": t4(),
    "real": real(),
    "several": several(),
    "old": dataclasses.replace(record(), measurements=()),
}


@pytest.mark.parametrize("style", reports.FORMATS)
@pytest.mark.parametrize("name", RECORDS)
def test_every_format_shows_every_kind_of_record(style: str, name: str) -> None:
    page = reports.render(RECORDS[name], style)
    assert RECORDS[name].host in page.replace("\\", "")
    assert page == reports.render(records.from_json(records.RunRecord, records.to_json(RECORDS[name])), style), (
        "a record read back looks the same"
    )


@pytest.mark.parametrize("style", reports.FORMATS)
def test_what_is_simulated_says_so_and_what_is_measured_does_not(style: str) -> None:
    assert "simulated" in reports.render(RECORDS["t4"], style).lower()
    assert "simulated" not in reports.render(RECORDS["h200"], style).lower()
    mixed = dataclasses.replace(RECORDS["t4"], source=records.Source.MEASURED)
    assert "simulated" in reports.render(mixed, style).lower(), "one simulated probe is enough"


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_tables_of_the_text_fit_its_width(width: int) -> None:
    page = "".join(printed(RECORDS[name], everything=True, width=width) for name in ("h200", "t4"))
    assert max(map(len, page.splitlines())) <= width
    assert re.search(r"GPU 0 +bf16 +8192³ +763 +71.2 % +718 +1560 +690", page)
    assert re.search(r"decode_av1 +SKIP +0.40 +–\n      \[av1 @ 0x55] Your platform", page)


# TFLOPS of 1070.5, and the share that every page shows: below a floor of 70 % it never looks like 70 %.
SHARES = ((749.30, "69.9"), (749.38, "70.0"), (535.2, "49.9"), (1070.4, "99.9"))


@pytest.mark.parametrize(("speed", "share"), SHARES)
def test_a_share_of_the_peak_is_never_rounded_up(speed: float, share: str) -> None:
    made = copy.deepcopy(RECORDS["h200"])
    products: Any = next(one.values for one in made.measurements if one.probe == "gemm")
    for product in products["gpus"][0]["gemms"]:
        product["tflops"] = speed if product["dtype"] == "bf16" else product["tflops"]
    for style in ("text", "markdown", "html"):
        page = reports.render(made, style).replace("\u00a0", " ").replace("\\", "")
        assert f"{share} %" in page, style


def test_a_refusal_that_was_expected_is_no_failure() -> None:
    """The outcome is FFmpeg's, the result is the verdict's."""
    for style in ("text", "markdown", "html"):
        page = reports.render(RECORDS["t4"], style)
        assert re.search(r"decode_av1 +SKIP|Decode AV1 \| SKIP|pill SKIP\">SKIP</span> Decode AV1<", page), style
    unjudged = dataclasses.replace(RECORDS["t4"], verdict=None, findings=())
    assert re.search(r"decode_av1 +failed", reports.render(unjudged, "text"))


def test_a_note_that_rows_share_stands_once() -> None:
    page = reports.render(RECORDS["h200"], "text")
    assert len(re.findall("encode (h264|hevc) p4", page)) == 2
    assert page.count("\n      OpenEncodeSessionEx failed: unsupported device (2)\n") == 1


def test_the_page_of_a_provision_shows_its_steps_and_that_of_a_plan_what_it_would_do() -> None:
    page = reports.render(RECORDS["old"], "html")
    assert re.search(r">codec</th>.*>180.2 s<.*>1</td>", page)
    planned = reports.render(dataclasses.replace(RECORDS["old"], verdict=None, findings=(), playbook=None), "html")
    assert "Install the NVIDIA driver (may reboot the machine)" in planned
    assert "Build FFmpeg with NVENC and NVDEC" in planned
    assert 'id="steps"' not in planned


def test_junit_has_a_case_a_finding_and_keeps_its_reason() -> None:
    suites = junitparser.JUnitXml.fromstring(reports.render(RECORDS["t4"], "junit").encode())
    (suite,) = suites
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (8, 1, 1, 2)
    assert suite.timestamp == "2026-11-20T10:00:00"
    seen = {f"{case.classname.rpartition('.')[2]}.{case.name}": case for case in suite}
    failure = seen["transcode one_to_n.size"].result[0]
    assert isinstance(failure, junitparser.Failure)
    assert "what to do: look at the command" in failure.text
    assert isinstance(seen["gpu 0.xid"].result[0], junitparser.Error)
    assert seen["transcode decode_av1.result"].result[0].message == "the T4's decoder does not know AV1"
    assert seen["gpu 0.gemm_fp16"].result == []
    (warned,) = [
        case
        for case in next(iter(junitparser.JUnitXml.fromstring(reports.render(RECORDS["h200"], "junit").encode())))
        if case.name == "pcie"
    ]
    assert warned.is_passed
    assert warned.system_out.startswith("WARN: expected generation 5, width 16")


def test_junit_counts_a_run_that_broke() -> None:
    broken = record(error="h: no route\nwhat to do: look", verdict=None, findings=())
    suite = next(iter(junitparser.JUnitXml.fromstring(reports.render(broken, "junit").encode())))
    assert (suite.tests, suite.errors) == (1, 1)
    assert next(iter(suite)).result[0].message == "h: no route"


# The figures of each kind of row: their columns in text and Markdown, behind the row's name in CSV, and the metrics.
LISTED = {
    "products": (
        ["TFLOPS", "of peak", "long run", "MHz", "W"],
        ["", " of peak", " sustained", " graphics clock", " power", " temperature"],
        ["gemm_operations_per_second", "gemm_peak_ratio", "gemm_sustained_operations_per_second",
         "gemm_graphics_clock_hertz", "gemm_power_watts", "gemm_temperature_celsius"],
    ),
    "bandwidth": (
        ["GB/s", "peak", "of peak"], ["", " of peak"], ["bandwidth_bytes_per_second", "bandwidth_peak_ratio"],
    ),
    "convolutions": (
        ["TFLOPS", "µs"], ["", " duration"], ["convolution_operations_per_second", "convolution_duration_seconds"],
    ),
    "transcodes": (
        ["s", "PSNR dB"], [" duration", " speed", " PSNR"],
        ["transcode_duration_seconds", "transcode_frames_per_second", "transcode_psnr_decibels"],
    ),
    "throughput": (
        ["sessions", "fps", "engine", "MHz"], ["", " sessions"],
        ["throughput_sessions", "throughput_frames_per_second"],
    ),
}  # fmt: skip
# How the rows of each kind begin in CSV, behind probe and GPU.
ROW = {
    "products": "fp16 4096", "bandwidth": "device copy", "convolutions": "fp16 NHWC", "transcodes": "plain",
    "throughput": "encode h264 p4",
}  # fmt: skip


@pytest.mark.parametrize("name", LISTED)
def test_each_listed_figure_is_in_every_format(name: str) -> None:
    """Of NCCL's collectives, which one GPU has not, tests/unit/reports/test_nccl_reports.py says the same."""
    heads, after, metrics = LISTED[name]
    pages = {style: reports.render(t4(), style) for style in ("text", "markdown", "csv", "prometheus")}
    for style in ("text", "markdown"):
        assert any(_in_order(heads, line) for line in pages[style].splitlines()), style
    for one in metrics:
        assert f"\ngpuprep_{one}{{" in pages["prometheus"], one
    figures = [
        f"{row['subject']} {row['name']}"
        for row in csv.DictReader(io.StringIO(pages["csv"]))
        if row["kind"] == "figure"
    ]
    for ending in after:
        assert any(re.search(rf"{ROW[name]}[^,]*{ending}$", figure) for figure in figures), (ending, figures)


def _in_order(words: Sequence[str], line: str) -> bool:
    return re.search(".*".join(map(re.escape, words)), line) is not None


def _samples(page: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for family in text_string_to_metric_families(page):
        assert family.documentation, family.name
        assert family.type == "gauge"
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def test_prometheus_figures_are_in_base_units() -> None:
    samples = _samples(reports.render(RECORDS["h200"], "prometheus"))
    bf16 = [one for one in samples["gpuprep_gemm_operations_per_second"] if one.labels["dtype"] == "bf16"]
    assert {(one.labels["shape"], one.value) for one in bf16} >= {("8192x8192x8192", 763.2e12)}
    assert bf16[0].labels["uuid"].startswith("GPU-6f1d52a4")
    assert {one.value for one in samples["gpuprep_bandwidth_bytes_per_second"]} >= {4260e9, 54.9e9, 380e9}
    assert {one.value for one in samples["gpuprep_verdict"] if one.labels["status"] == "WARN"} == {1.0}
    assert sum(one.value for one in samples["gpuprep_findings"]) == len(RECORDS["h200"].findings)
    refused = [one for one in samples["gpuprep_throughput_frames_per_second"] if one.labels["kind"] == "encode"]
    assert not refused, "a series without a reading is absent, not 0"


def test_prometheus_exposes_a_series_once() -> None:
    twice = dataclasses.replace(RECORDS["t4"], findings=RECORDS["t4"].findings * 2, verdict=None)
    lines = [line.rpartition(" ")[0] for line in reports.render(twice, "prometheus").splitlines() if line[0] != "#"]
    assert len(lines) == len(set(lines))


def _hostile() -> records.RunRecord:
    def spoil(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: spoil(item) for key, item in value.items()}
        if isinstance(value, list):
            return [spoil(item) for item in value]
        return HOSTILE if isinstance(value, str) else value

    base = RECORDS["t4"]
    findings = tuple(
        records.Finding(HOSTILE, HOSTILE, status, HOSTILE, HOSTILE, HOSTILE, HOSTILE) for status in records.Status
    )
    assert base.verdict
    return dataclasses.replace(
        base,
        host=HOSTILE,
        measurements=tuple(dataclasses.replace(one, values=spoil(one.values)) for one in base.measurements),
        findings=findings,
        verdict=dataclasses.replace(base.verdict, findings=findings, summary=HOSTILE),
    )


def test_hostile_words_stay_words() -> None:
    hostile = _hostile()
    junitparser.JUnitXml.fromstring(reports.render(hostile, "junit").encode())
    shown = {
        label
        for found in _samples(reports.render(hostile, "prometheus")).values()
        for one in found
        for label in one.labels.values()
    }
    assert plaintext.visible(HOSTILE) in shown
    markdown = reports.render(hostile, "markdown")
    assert not re.search(r"(?<!\\)[@#]\w", markdown)
    assert "<b>" not in markdown
    rows = [line for line in markdown.splitlines() if line.startswith("| ❌")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [7]
    page = without_script(reports.render(hostile, "html"))
    assert "&lt;/script&gt;&lt;b&gt;x &amp; &#34;q&#34;" in page
    assert "<b>x" not in page
    assert "<script" not in page


@pytest.mark.parametrize(
    "address", ["https://example.com/x.png", "data:text/html;base64,AAAA", "data:image/svg+xml;base64,AAAA", "a.jpg"]
)
def test_a_thumbnail_is_an_image_of_the_record_or_none(address: str) -> None:
    measurements = json.loads(records.to_json(RECORDS["t4"]))
    for result in measurements["measurements"]:
        for case in result["values"].get("cases", []):
            for output in case["outputs"]:
                output["first_frame"] = address
    page = reports.render(records.from_json(records.RunRecord, json.dumps(measurements)), "html")
    assert re.findall(r'<img src="([^"]{11})', page) == ["data:image/"] * 6, "the last frames are still there"
    assert address not in page


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, item in items for place in [(*path, key), *_places(item, (*path, key))][:40]]


WORSE = st.sampled_from(
    [
        {"missing": "gpu_is_lost", "detail": "GPU is lost"},
        None,
        "x",
        -1,
        0,
        1.5,
        float("nan"),
        True,
        [],
        {},
        [None],
        1e300,
    ]
)


@given(data=st.data())
@settings(max_examples=amount.examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.parametrize("name", ["h200", "t4", "real"])
def test_no_format_needs_anything_to_be_there(name: str, data: st.DataObject) -> None:
    damaged = []
    for result in RECORDS[name].measurements:
        values = copy.deepcopy(result.values)
        places = _places(values)
        for place in data.draw(st.lists(st.sampled_from(places), max_size=6)):
            holder: Any = values
            try:
                for key in place[:-1]:
                    holder = holder[key]
                if data.draw(st.booleans()):
                    del holder[place[-1]]
                else:
                    holder[place[-1]] = copy.deepcopy(data.draw(WORSE))
            except (KeyError, IndexError, TypeError):
                continue  # what stood there has been damaged away
        damaged.append(dataclasses.replace(result, values=values))
    spoilt = dataclasses.replace(RECORDS[name], measurements=tuple(damaged))
    for style in reports.FORMATS:
        assert reports.render(spoilt, style)


SPEEDS = {"tflops", "fps", "gb_per_s", "copy_gb_per_s", "read_gb_per_s", "triad_gb_per_s", "h2d_gb_per_s", "psnr_db"}


def negative(values: Any, key: str = "") -> Any:
    if isinstance(values, dict):
        return {name: negative(value, name) for name, value in values.items()}
    if isinstance(values, list):
        return [negative(value, key) for value in values]
    return -4.5 if key in SPEEDS and isinstance(values, (int, float)) else values


@pytest.mark.parametrize("style", [style for style in reports.FORMATS if style not in ("json", "sbom")])
@pytest.mark.parametrize("name", ["h200", "t4", "several"])
def test_a_negative_figure_is_impossible_and_never_shown_as_measured(name: str, style: str) -> None:
    run = RECORDS[name]
    wrong = tuple(dataclasses.replace(one, values=negative(one.values)) for one in run.measurements)
    page = reports.render(dataclasses.replace(run, measurements=wrong), style)
    page = without_script(page) if style == "html" else page
    shown = [line for line in page.splitlines() if "-4.5" in line or "\u22124.5" in line or re.search(r"} -\d", line)]
    assert shown == []
    if style in ("text", "markdown", "html"):
        assert "impossible" in page


def test_one_impossible_figure_beside_good_figures_of_other_gpus_is_named() -> None:
    run = RECORDS["several"]
    gemm = next(one for one in run.measurements if one.probe == "gemm")
    values = json.loads(json.dumps(gemm.values))
    values["gpus"][3] = negative(values["gpus"][3])
    page = reports.render(dataclasses.replace(run, measurements=(dataclasses.replace(gemm, values=values),)), "text")
    assert "impossible" in page
    assert "763" in page  # of the others
