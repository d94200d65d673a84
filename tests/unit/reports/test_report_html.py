"""The HTML report: its tiles, bars and floors, its parts and commands; and one look in a real browser."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import browser
import pytest
from capacitytables import shown
from pages import without_script, words_of
from places import TESTS
from reportpages import at, pages, well
from validations_for_tests import h200, several, t4

from gpuprep import records, reports


def with_findings(run: records.RunRecord, *findings: records.Finding) -> records.RunRecord:
    assert run.verdict
    return dataclasses.replace(run, findings=findings, verdict=dataclasses.replace(run.verdict, findings=findings))


def test_a_report_in_a_real_browser(chromium: browser.Chromium, tmp_path: Path) -> None:
    """Of all kinds of reports, at all widths: tests/browser/test_report_html.py."""
    seen = chromium.visit(at(tmp_path, pages()["t4"]), width=browser.NARROW)
    assert seen.faults() == []
    assert "27.4 TFLOPS" in seen.text


@pytest.mark.parametrize("name", ["well", "t4", "fleet"])
def test_the_page_needs_nothing_beside_it(name: str) -> None:
    page = without_script(pages()[name])
    assert "default-src 'none'" in page
    assert "unsafe-inline" not in page
    assert " style=" not in page.partition("<body>")[2]
    links = re.findall(r'(?:src|href)="([^"]{0,12})|url\(([^)]*)|@import', page)
    assert {link for link, _ in links if not link.startswith("#")} <= {"data:,", "data:image/p", "data:image/j"}
    assert {inside for _, inside in links} == {""}


# ---------------------------------------------------------------- tiles


def tiles(page: str) -> dict[str, tuple[str, ...]]:
    """The figure of each tile, by its name, and the lines below it."""
    found = {}
    for tile in re.findall(r'<div class="tile(?: none)?"><h3>.*?(?=<div class="tile|</section>)', page, re.S):
        name, figure = re.findall(r"<h3>(.*?)</h3>|<p class=\"figure\">(.*?)</p>", tile, re.S)
        below = re.findall(r'<p class="small soft">(.*?)</p>', tile, re.S)
        found[words_of(name[0])] = (words_of(figure[1]), *(html.unescape(words_of(one)) for one in below))
    return found


def test_a_figure_that_is_not_there_is_unknown_and_says_why() -> None:
    missing = {"missing": "timed_out", "detail": "after 300 s"}
    answers = (
        records.ProbeResult("gemm", records.Source.MEASURED, missing, 300.0),
        records.ProbeResult("throughput", records.Source.MEASURED, {"gpus": [], "series": []}, 1.0),
    )
    run = dataclasses.replace(h200(), measurements=answers)
    page = reports.render(run, "html")
    said = tiles(page)
    assert said.pop("checks passed")
    assert said == {
        "half precision": ("UNKNOWN", "gemm: timed out, after 300 s"),
        "memory": ("UNKNOWN", "the probe bandwidth did not run"),
        "video streams": ("UNKNOWN", "no series gave a figure"),
    }
    assert 'Throughput of the video engines</h2> <span class="soft">UNKNOWN: no series gave a figure' in page
    assert tiles(reports.render(dataclasses.replace(run, measurements=(), verdict=None, findings=()), "html")) == {}


def test_a_gpu_without_an_encoder_says_so_beside_its_streams() -> None:
    streams = tiles(pages()["well"])["decode hevc: streams of 1080p30"]
    assert streams[0] == "295"
    assert "encode: this GPU has no NVENC" in streams
    skipped = [one for one in well().findings if one.subject.startswith("throughput encode")]
    none = json.loads((TESTS / "cases/records/h200-throughput.json").read_text())
    none["values"]["series"] = [one for one in none["values"]["series"] if one["kind"] == "encode"]
    answer = records.ProbeResult("throughput", records.Source.MEASURED, none["values"], 1.0)
    run = with_findings(dataclasses.replace(well(), measurements=(answer,)), *skipped)
    assert tiles(reports.render(run, "html"))["video streams"][0] == "none"


# ---------------------------------------------------------------- bars and floors


@dataclass(frozen=True)
class Bar:
    name: str
    detail: str
    value: str
    comparison: str
    percent: float  # how much of it is filled
    floor: float | None  # where it is marked
    losses: list[tuple[float, float]]  # from and to


def charts(run: records.RunRecord) -> dict[str, list[Bar]]:
    """The bars of each chart, by its title."""
    found = {}
    page = html.unescape(reports.render(run, "html"))
    for title, body in re.findall(r'<table class="bars"><caption>(.*?)</caption>(.*?)</table>', page, re.S):
        found[title] = [_bar(row) for row in re.findall(r'<tr(?: class="low")?><th scope="row">.*?</tr>', body, re.S)]
    return found


def _bar(row: str) -> Bar:
    head, value, meter = re.findall(r"<t[hd][ >].*?</t[hd]>", row, re.S)
    name, _, detail = head.partition('<span class="soft">')
    losses = re.findall(r'class="loss [^"]*" x="([\d.]+)" y="2" width="([\d.]+)"', meter)
    filled = re.search(r'class="achieved(?: low)?" width="([\d.]+)"', meter)
    floor = re.search(r'class="floor" d="M([\d.]+)', meter)
    assert filled
    return Bar(
        words_of(name), words_of(detail), words_of(value).split()[0], words_of(re.sub("<svg.*?</svg>", "", meter)),
        float(filled[1]), float(floor[1]) if floor else None,
        [(float(start), float(start) + float(width)) for start, width in losses],
    )  # fmt: skip


def products(run: records.RunRecord) -> dict[str, Bar]:
    return {bar.name: bar for bar in charts(run)["Best product of each type"]}


def test_every_floor_that_a_check_names_is_drawn() -> None:
    drawn = [bar for chart in charts(well()).values() for bar in chart]
    assert len(drawn) == 17
    for bar in drawn:
        assert bar.floor is not None, bar
        assert bar.floor < bar.percent, bar


@pytest.mark.parametrize(
    ("expected", "floor"),
    [
        ("≥ 55 % of 1071 TFLOPS at 1980 MHz (profile h200)", 55.0),
        ("≥75 % of 1071 TFLOPS", 75.0),
        ("≥ 71.25 % of 1071 TFLOPS", 71.25),
        ("", None),
        ("on", None),
        ("≥ 89 % of healthy boards at the same clock", None),
        ("≥ % of x", None),
        ("9" * 9999, None),
        ("≥ " * 5000, None),
    ],
)
def test_a_floor_of_a_product_is_the_figure_that_passes(expected: str, floor: float | None) -> None:
    judged = records.Finding("gpu 0", "gemm_bf16", records.Status.PASS, expected, "763 TFLOPS")
    bar = products(with_findings(h200(), judged))["BF16"]
    assert bar.floor == (None if floor is None else pytest.approx(floor, abs=0.1))
    assert bar.comparison == "71.2 % of 1071" + (f", floor {floor:g} %" if floor else "")


RATE = "at least 85 % (profile h200, measured on an H200) of 4483 fps: 7 decoders x 640 at 1545 MHz"


@pytest.mark.parametrize(
    ("expected", "floor"),
    [
        (RATE, "3811"),
        (f"{RATE}, and 4479 fps, 90 % of the 4976 fps that healthy boards reach with this clip", "4479"),
        ("at least 100 % (profile h200) of 7618.3 fps: 7 decoders", "7618.3"),  # a little more than the 7618 measured
    ],
)
def test_a_floor_of_a_series_is_so_many_frames(expected: str, floor: str) -> None:
    judged = records.Finding("throughput decode h264", "fps", records.Status.PASS, expected, "7618 fps")
    bar = charts(with_findings(h200(), judged))["Video: streams of 1080p30"][0]
    assert (bar.value, bar.comparison.rpartition(", ")[2]) == ("253", f"floor {floor} fps")


def test_a_bar_below_its_floor_is_marked_and_says_so() -> None:
    slow = dataclasses.replace(
        h200().findings[2], status=records.Status.FAIL, property="memory_copy", expected="≥ 95 % of 4800 GB/s"
    )
    page = with_findings(h200(), slow)
    (copy,) = [bar for bar in charts(page)["Memory and links"] if bar.name == "device copy"]
    assert (copy.comparison, copy.floor) == ("88.7 % of 4800, floor 95 %, below it", 95.0)
    assert 'class="achieved low"' in reports.render(page, "html")


def test_of_several_gpus_a_bar_is_the_lowest() -> None:
    values = json.loads(json.dumps([dataclasses.asdict(one)["values"] for one in several(3).measurements]))
    for product in values[0]["gpus"][2]["gemms"]:
        product["tflops"] *= 0.5
    answers = tuple(
        dataclasses.replace(one, values=value) for one, value in zip(several(3).measurements, values, strict=True)
    )
    run = dataclasses.replace(several(3), measurements=answers)
    bf16 = products(run)["BF16"]
    assert bf16.value == "382"
    assert "GPU 2, the lowest of 3" in bf16.detail
    assert "Of 3 GPUs the lowest" in reports.render(run, "html")
    assert "lowest" not in charts(run)["Memory and links"][0].detail, "where all are alike no GPU is named"


def test_losses_fill_the_bar_up_to_the_peak() -> None:
    bars = products(t4()).values()
    assert bars
    for bar in bars:
        assert [end for _, end in bar.losses[:1]] == [pytest.approx(100.0, abs=0.02)]
        assert all(bar.percent - 1 <= start < end for start, end in bar.losses)


def test_streams_of_another_size_have_a_chart_of_their_own() -> None:
    values = json.loads(json.dumps(dataclasses.asdict(t4().measurements[-1])["values"]))
    values["series"][0].update(width=3840, height=2160)
    answers = (*t4().measurements[:-1], dataclasses.replace(t4().measurements[-1], values=values))
    found = charts(dataclasses.replace(t4(), measurements=answers))
    assert list(found)[2:] == ["Video: streams of 4K30", "Video: streams of 1080p30"]


# ---------------------------------------------------------------- contents, words, commands


@pytest.mark.parametrize("name", ["well", "several", "t4", "old", "broken"])
def test_the_contents_name_every_part(name: str) -> None:
    page = pages()[name]
    links = re.findall(r'<li><a href="#([^"]*)">([^<]*)', page)
    parts = re.findall(r'<(?:section[^>]*?|details class="fold") id="([^"]*)"', page)
    assert [link for link, _ in links] == parts
    assert all(title for _, title in links)


def test_each_word_that_is_explained_has_its_meaning_in_the_list() -> None:
    page = pages()["well"]
    meanings = dict(
        re.findall(r'<button type="button" aria-describedby="([^"]*)">[^<]*</button>.*?>([^<]+)</span>', page)
    )
    assert len(meanings) >= 5
    for name, meaning in meanings.items():
        assert re.search(rf'id="{name}"[^>]*>{re.escape(meaning)}<', page), name


def test_commands_are_folded_beside_their_pictures_and_short_clips_have_no_fps() -> None:
    cases = re.findall(r'<article class="case">.*?</article>', pages()["t4"], re.S)
    assert len(cases) == 7
    first = cases[0]
    assert first.index("<summary>command") < first.index("<pre") < first.index("<figcaption>")
    assert not re.search(r"\bfps\b", " ".join(cases))


def test_streams_have_their_limit_quality_and_latency() -> None:
    page = reports.render(shown(), "html")
    assert 'id="throughput" open' in page, "it is what the command is for"
    told = html.unescape(words_of(page))
    for row in (
        "h264 preset – 1080p30 46 4K30 11 catalogue 40 / 10 PSNR – XPSNR – ms – limit NVDEC (99 %)",
        "h264 preset p3 1080p30 18 4K30 – catalogue 15 PSNR 38.2 XPSNR – ms 6.2 limit NVENC (98 %)",
        "av1 preset p3 1080p30 cannot 4K30 – catalogue – PSNR – XPSNR – ms – limit cannot",
    ):
        assert row in told, row
    for note in (
        "streams = floor(fps / 30)",
        "the encoder does not support this codec (Codec not supported)",
        "XPSNR is UNKNOWN: this ffmpeg has no filter xpsnr",
        "ms: the median time of one picture, HOW",
        "of a clip encoded at 5000 kbit/s",
    ):
        assert note in told, note


def test_what_a_run_says_in_backticks_is_code_and_stays_words() -> None:
    bad = dataclasses.replace(
        t4().findings[1], status=records.Status.FAIL, remedy="`gpuprep tune HOST` or `<b>x</b>` or ` one"
    )
    page = reports.render(with_findings(t4(), bad), "html")
    assert "<code>gpuprep tune sim:t4 --profile t4</code> or <code>&lt;b&gt;x&lt;/b&gt;</code> or ` one" in page


def commands(page: str) -> list[str]:
    (block,) = re.findall(r'<pre class="mono commands">(.*?)</pre>', page, re.S)
    lines = html.unescape(re.sub(r"<[^>]*>", "", block)).splitlines()
    return [line for line in lines if line.startswith("gpuprep ")]


def test_commands_stand_in_one_block() -> None:
    bad = dataclasses.replace(
        t4().findings[1], status=records.Status.FAIL, role="gpu_tuning", remedy="gpuprep tune sets it"
    )
    page = reports.render(with_findings(t4(), bad), "html")
    assert commands(page) == [
        "gpuprep tune sim:t4 --profile t4",
        "gpuprep validate sim:t4 --profile t4",
        "gpuprep report 20261120-102000-t40000 --format json --output 20261120-102000-t40000.json",
    ]
    assert 'id="commands" open' in page
    assert 'id="commands" open' not in pages()["well"]


def test_a_hostile_host_is_one_word_in_each_command() -> None:
    run: Any = dataclasses.replace(t4(), host="-x; $(id)", run_id="a; rm -rf /")
    assert commands(reports.render(run, "html")) == [
        "gpuprep validate --profile t4 -- '-x; $(id)'",
        "gpuprep report 'a; rm -rf /' --format json --output report.json",
    ]
