"""The HTML report in a real browser: its first screen, that it fits, can be read, searched and used by keyboard."""

from __future__ import annotations

import dataclasses
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import amount
import browser
import pytest
from capacitytables import shown
from fleetpages import FLEET
from judgedrecords import judged
from pages import without_script
from places import ROOT, TESTS
from records_for_tests import record
from validations_for_tests import h200, several, t4

from gpuprep import records, reports
from gpuprep.reports import capacity, floors
from gpuprep.reports.html import bars, headline
from gpuprep.reports.html.contents import TITLES, contents
from gpuprep.reports.html.words import WORDS

SCREEN = 800  # px high
DOCS = ROOT / "docs"
# What is looked at besides axe, overflow and overlaps (tests/support/browser.py).
READ = """() => {
  const shown = e => e.checkVisibility()
  const scale = svg => Math.hypot(svg.getScreenCTM().a, svg.getScreenCTM().b)
  const size = e => parseFloat(getComputedStyle(e).fontSize) * (e.ownerSVGElement ? scale(e) : 1)
  const all = selector => [...document.querySelectorAll(selector)].filter(shown)
  return {
    height: document.documentElement.scrollHeight,
    smallest: Math.min(...all('main text, main td, main p, main span').map(size)),
    slim: Math.max(0, ...all('tbody th').map(head => head.offsetHeight / head.offsetWidth)),
    broken: [...document.images].filter(image => !image.naturalWidth).length,
    unnamed: document.querySelectorAll('svg:not([aria-hidden]):not([aria-label])').length,
    undescribed: [...document.querySelectorAll('[aria-describedby]')]
      .filter(one => !document.getElementById(one.getAttribute('aria-describedby'))).length,
    sim: all('.sim').filter(one => one.getBoundingClientRect().bottom <= 800).length,
    red: Number(getComputedStyle(document.body).backgroundColor.match(/[0-9]+/)[0]),
    charts: all('svg.chart').length,
  }
}"""
WITH_FOLDS = ("well", "several", "t4", "fleet")
OPEN = "() => document.querySelectorAll('details').forEach(one => { one.open = true })"


@cache
def well() -> records.RunRecord:
    """A real H200, judged: all is well."""
    return judged("h200-gemm", "h200-bandwidth", "h200-transcode", "h200-throughput")


@cache
def pages() -> dict[str, str]:
    broken = record(error="t4: it was lost\nwhat to do: look at it", verdict=None, findings=(), measurements=())
    runs = {"well": well(), "h200": h200(), "several": several(), "t4": t4(), "old": record(), "broken": broken}
    runs["capacity"] = shown()
    passed = [dataclasses.replace(well(), host=f"t4-{number}") for number in range(3)]
    fleets = {"fleet": reports.render_fleet(FLEET, "html", 3), "fleet_well": reports.render_fleet(passed, "html", 0)}
    return {**{name: reports.render(run, "html") for name, run in runs.items()}, **fleets}


def at(folder: Path, page: str) -> str:
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    return path.as_uri()


# What has the focus; whether a reader sees that; whether it is in sight; whether nothing covers it.
STOP = """() => {
  const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
  const over = document.elementFromPoint((box.left + box.right) / 2, Math.min(box.top + 9, box.bottom));
  return [
    `${one.tagName} ${(one.getAttribute('href') || one.textContent || '').trim().slice(0, 40)}`,
    style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
    box.left >= 0 && box.right <= innerWidth && box.top >= 0 && box.top < innerHeight,
    !!over && (one.contains(over) || over.contains(one)),
  ];
}"""
STOPS = """() => [...document.querySelectorAll('a[href], button, summary, input, select, [tabindex="0"]')]
  .filter(one => one.checkVisibility()).length"""


# ---------------------------------------------------------------- looks


@pytest.mark.parametrize(
    ("name", "width", "dark"),
    browser.looks_at(["well", "h200", "several", "t4", "old", "broken", "capacity", "fleet", "fleet_well"]),
)
def test_the_page_has_no_fault_at_any_width_in_light_and_dark(
    chromium: browser.Chromium, tmp_path: Path, name: str, width: int, dark: bool
) -> None:
    url = at(tmp_path, pages()[name])
    seen = chromium.visit(url, width=width, height=SCREEN, dark=dark, do=lambda page: page.evaluate(READ))
    assert seen.faults() == []
    assert seen.answer["smallest"] >= 9
    assert seen.answer["slim"] < 2.5, "a table whose first column is squeezed"
    assert (seen.answer["broken"], seen.answer["unnamed"], seen.answer["undescribed"]) == (0, 0, 0)
    assert seen.answer["sim"] == (name in ("t4", "old", "broken", "fleet")), "on the first screen"
    assert (seen.answer["red"] < 60) == dark


@pytest.mark.parametrize(
    ("name", "width", "dark"),
    [*browser.looks_at(WITH_FOLDS), *(amount.case((name, 768, False), daily=False) for name in WITH_FOLDS)],
)
def test_nor_has_it_with_all_folds_open(
    chromium: browser.Chromium, tmp_path: Path, name: str, width: int, dark: bool
) -> None:
    def opened(page: Any) -> Any:
        page.evaluate(OPEN)
        return page.evaluate(READ)

    seen = chromium.visit(at(tmp_path, pages()[name]), width=width, height=SCREEN, dark=dark, do=opened)
    assert seen.faults() == []
    assert seen.answer["smallest"] >= 9
    assert seen.answer["slim"] < 2.5
    assert bool(seen.answer["charts"]) == (name != "fleet")


def test_the_browser_would_have_told(chromium: browser.Chromium, tmp_path: Path) -> None:
    """The tests above can fail: a page that is too wide, fetches, runs and styles something is seen to do so."""
    wrong = (
        '<img src="https://example.com/x.png" alt=""><script>document.title = "run"</script>'
        '<p style="color: red">red</p><svg onload="document.title = \'run\'"></svg>'
    )
    spoilt = pages()["t4"].replace("<main>", f"<main>{wrong}", 1)
    seen = chromium.visit(at(tmp_path, spoilt), width=400, check=False)
    assert seen.title != "run"
    said = "\n".join(seen.console)
    assert all(part in said for part in ("example.com/x.png", "script-src", "style-src"))
    assert seen.elsewhere == [], "the policy stops it before the browser asks"


@pytest.mark.parametrize("name", ["well", "t4", "fleet"])
def test_the_page_needs_nothing_beside_it(name: str) -> None:
    page = without_script(pages()[name])
    assert "default-src 'none'" in page
    assert "unsafe-inline" not in page
    assert " style=" not in page.partition("<body>")[2]
    links = re.findall(r'(?:src|href)="([^"]{0,12})|url\(([^)]*)|@import', page)
    assert {link for link, _ in links if not link.startswith("#")} <= {"data:,", "data:image/p", "data:image/j"}
    assert {inside for _, inside in links} == {""}


def test_it_prints_with_all_folds_open(chromium: browser.Chromium, tmp_path: Path) -> None:
    def printed(page: Any) -> Any:
        page.emulate_media(media="print")
        return page.evaluate(
            "() => [['.fold .inside', 'main'], ['.toc', 'nav'], ['.find', 'search']].map(([one]) =>"
            " [...document.querySelectorAll(one)].filter(e => e.getBoundingClientRect().height > 0).length)"
        )

    seen = chromium.visit(at(tmp_path, pages()["t4"]), do=printed, check=False)
    inside, toc, find = seen.answer
    assert inside == pages()["t4"].count('<details class="fold"')
    assert (toc, find) == (0, 0)


# ---------------------------------------------------------------- the first screen


def test_all_well_is_told_in_two_screens(chromium: browser.Chromium, tmp_path: Path) -> None:
    assert well().verdict.status is records.Status.PASS  # type: ignore[union-attr]
    healthy = dataclasses.replace(several(), findings=well().findings, verdict=well().verdict)
    for run in (well(), healthy):
        url = at(tmp_path, reports.render(run, "html"))
        seen = chromium.visit(url, height=SCREEN, do=lambda page: page.evaluate(READ), check=False)
        assert seen.answer["height"] < 2 * SCREEN


def test_the_first_screen_has_verdict_gravest_finding_and_figures(chromium: browser.Chromium, tmp_path: Path) -> None:
    found = """() => [...document.querySelectorAll('h1, .issue, .tile')].filter(one =>
        one.getBoundingClientRect().bottom <= 800).map(one => one.innerText.replace(/\\s+/g, ' '))"""
    seen = chromium.visit(at(tmp_path, pages()["t4"]), height=SCREEN, do=lambda page: page.evaluate(found), check=False)
    said = "\n".join(seen.answer)
    for part in (
        "FAIL", "transcode one_to_n: size", "look at the command and its log", "27.4 TFLOPS 42 % of 65.1, floor 30 %",
        "238 GB/s", "transcode h264 p4: streams of 1080p30 16 500 fps with 10 sessions", "4 of 6",
    ):  # fmt: skip
        assert part in said, part


def test_a_figure_that_is_not_there_is_unknown_and_says_why() -> None:
    missing = records.Missing("timed_out", "after 300 s")
    answers = (
        records.ProbeResult(
            "gemm", records.Source.MEASURED, {"missing": missing.reason, "detail": missing.detail}, 300.0
        ),
        records.ProbeResult("throughput", records.Source.MEASURED, {"gpus": [], "series": []}, 1.0),
    )
    run = dataclasses.replace(h200(), measurements=answers)
    said = {tile.name: (tile.value, *tile.what) for tile in headline.tiles(run)[:3]}
    assert said == {
        "half precision": ("UNKNOWN", "gemm: timed out, after 300 s"),
        "memory": ("UNKNOWN", "the probe bandwidth did not run"),
        "video streams": ("UNKNOWN", "no series gave a figure"),
    }
    page = reports.render(run, "html")
    assert page.count('<p class="figure"><span class="pill UNKNOWN">UNKNOWN</span></p>') == 3
    assert 'Throughput of the video engines</h2> <span class="soft">UNKNOWN: no series gave a figure' in page
    assert headline.tiles(dataclasses.replace(run, measurements=(), verdict=None)) == []


def test_a_gpu_without_an_encoder_says_so_beside_its_streams() -> None:
    tile = headline.tiles(well())[2]
    assert (tile.name, tile.value) == ("decode hevc: streams of 1080p30", "295")
    assert "encode: this GPU has no NVENC" in tile.what
    skipped = [one for one in well().findings if one.subject.startswith("throughput encode")]
    none = json.loads((TESTS / "cases/records/h200-throughput.json").read_text())
    none["values"]["series"] = [one for one in none["values"]["series"] if one["kind"] == "encode"]
    answer = records.ProbeResult("throughput", records.Source.MEASURED, none["values"], 1.0)
    run = dataclasses.replace(
        well(),
        measurements=(answer,),
        verdict=dataclasses.replace(well().verdict, findings=tuple(skipped)),  # type: ignore[type-var]
    )
    assert headline.tiles(run)[2].value == "none"


# ---------------------------------------------------------------- bars and floors


def test_every_floor_that_a_check_names_is_understood_and_drawn() -> None:
    judged_speeds = [
        one for one in well().findings
        if one.status is records.Status.PASS and re.search(r"≥|at least", one.expected)
        and re.match(r"gemm_(?!at_its)|memory_(copy|read|triad)|host_to|device_to|fps", one.property)
    ]  # fmt: skip
    assert len(judged_speeds) == 18
    for one in judged_speeds:
        assert floors.read(one.expected), one.expected
    charts = [bars.products(well()), bars.memory(well()), *bars.streams(well())]
    rows = [row for chart in charts for row in chart.rows]
    assert len(rows) == 17
    assert all(row.floor is not None and row.percent is not None and row.floor < row.percent for row in rows)
    page = reports.render(well(), "html")
    assert page.count('<path class="floor" d="M') >= len(rows)


def test_a_floor_is_the_figure_that_passes() -> None:
    assert floors.read("≥ 55 % of 1071 TFLOPS at 1980 MHz (profile h200)") == pytest.approx(589.05)
    assert floors.read("≥75 % of 320 GB/s") == 240
    rate = "at least 85 % (profile h200, measured on an H200) of 4483 fps: 7 decoders x 640 at 1545 MHz"
    assert floors.read(rate) == pytest.approx(3810.55)
    assert floors.read(f"{rate}, and 4479 fps, 90 % of the 4976 fps that healthy boards reach with this clip") == 4479
    for odd in ("", "on", "≥ 89 % of healthy boards at the same clock", "≥ % of x", "9" * 9999, "≥ " * 5000):
        assert floors.read(odd) is None


def test_a_bar_below_its_floor_is_marked_and_says_so() -> None:
    assert h200().verdict
    expected = "≥ 95 % of 4800 GB/s"
    slow = dataclasses.replace(
        h200().findings[2], status=records.Status.FAIL, property="memory_copy", expected=expected
    )
    run = dataclasses.replace(h200(), verdict=dataclasses.replace(h200().verdict, findings=(slow,)))  # type: ignore[type-var]
    (copy,) = [row for row in bars.memory(run).rows if row.name == "device copy"]
    assert copy.below
    assert (copy.comparison, copy.floor) == ("89\u00a0% of 4800, floor\u00a095\u00a0%", 95.0)
    assert "floor\u00a095\u00a0%, below it" in reports.render(run, "html")


def test_of_several_gpus_a_bar_is_the_lowest() -> None:
    values = json.loads(json.dumps([dataclasses.asdict(one)["values"] for one in several(3).measurements]))
    for product in values[0]["gpus"][2]["gemms"]:
        product["tflops"] *= 0.5
    answers = tuple(
        dataclasses.replace(one, values=value) for one, value in zip(several(3).measurements, values, strict=True)
    )
    run = dataclasses.replace(several(3), measurements=answers)
    bf16 = next(row for row in bars.products(run).rows if row.name == "BF16")
    assert bf16.value == "382"
    assert "GPU 2, the lowest of 3" in bf16.detail
    assert bars.products(run).note == "Of 3 GPUs the lowest"
    assert "lowest" not in bars.memory(run).rows[0].detail, "where all are alike no GPU is named"


def test_losses_fill_the_bar_up_to_the_peak() -> None:
    rows = bars.products(t4()).rows
    assert rows
    for row in rows:
        assert row.percent is not None
        assert [lost.end for lost in row.losses[:1]] == [100.0]
        assert all(row.percent - 1 <= lost.start < lost.end for lost in row.losses)


def test_streams_of_another_size_have_a_chart_of_their_own() -> None:
    values = json.loads(json.dumps(dataclasses.asdict(t4().measurements[-1])["values"]))
    values["series"][0].update(width=3840, height=2160)
    answers = (*t4().measurements[:-1], dataclasses.replace(t4().measurements[-1], values=values))
    charts = bars.streams(dataclasses.replace(t4(), measurements=answers))
    assert [chart.title for chart in charts] == ["Video: streams of 4K30", "Video: streams of 1080p30"]


# ---------------------------------------------------------------- contents, folds, search, words


@pytest.mark.parametrize("name", ["well", "several", "t4", "old", "broken"])
def test_the_contents_name_every_part(name: str) -> None:
    page = pages()[name]
    links = re.findall(r'<li><a href="#([^"]*)">([^<]*)', page)
    parts = re.findall(r'<(?:section[^>]*?|details class="fold") id="([^"]*)"', page)
    assert [link for link, _ in links] == [one for one in parts if one in TITLES] == parts
    assert all(TITLES[link] == title for link, title in links)


@pytest.mark.parametrize("width", [browser.NARROW, browser.WIDE])
def test_the_contents_stay_in_sight_and_open_what_they_lead_to(
    chromium: browser.Chromium, tmp_path: Path, width: int
) -> None:
    def go(page: Any) -> Any:
        link = page.get_by_role("link", name="System")
        link.focus()
        page.keyboard.press("Enter")
        page.locator("#system[open]").wait_for(state="attached")  # no JavaScript: the page allows none but its own
        seen = "e => { const box = e.getBoundingClientRect(); return box.top >= 0 && box.top < innerHeight }"
        return page.locator(".toc").evaluate(seen), page.locator("#system").evaluate(seen)

    seen = chromium.visit(at(tmp_path, pages()["t4"]), width=width, height=SCREEN, do=go, check=False)
    assert seen.answer == [True, True] or seen.answer == (True, True)


@pytest.mark.parametrize("width", [browser.NARROW, browser.WIDE])
@pytest.mark.parametrize("name", ["t4", "fleet"])
def test_the_tab_key_reaches_everything_there_and_back_and_nothing_covers_it(
    chromium: browser.Chromium, tmp_path: Path, name: str, width: int
) -> None:
    def walk(page: Any) -> Any:
        page.evaluate(OPEN)
        wanted = page.evaluate(STOPS)
        stops: dict[str, list[Any]] = {}
        for key in ("Tab", "Shift+Tab"):
            stops[key] = []
            for _ in range(wanted - (key != "Tab")):
                page.keyboard.press(key)
                stops[key].append(page.evaluate(STOP))
        return wanted, stops

    url = at(tmp_path, pages()[name])
    wanted, stops = chromium.visit(url, width=width, height=SCREEN, do=walk, check=False).answer
    assert wanted > 10
    for key, found in stops.items():
        assert not [stop for stop in found if stop[0].startswith("BODY")], key
        assert [stop for stop in found if not all(stop[1:])] == [], key


def test_all_checks_can_be_searched(chromium: browser.Chromium, tmp_path: Path) -> None:
    def find(page: Any) -> Any:
        shown = "() => [...document.querySelectorAll('#check-rows tr')].filter(e => e.checkVisibility()).length"
        counts = [page.evaluate(shown)]
        page.get_by_role("searchbox").fill("decode-hevc psnr")
        counts.append(page.evaluate(shown))
        told = page.locator(".find output").inner_text()
        page.get_by_role("searchbox").fill("")
        page.get_by_label("Status").select_option("SKIP")
        counts.append(page.evaluate(shown))
        page.get_by_label("Status").select_option("")
        return [*counts, page.evaluate(shown), told]

    seen = chromium.visit(at(tmp_path, pages()["well"]), do=find)
    every = len(well().findings)
    assert seen.answer == [0, 2, 25, every, f"2 of {every}"]
    assert seen.faults() == []


def test_without_script_the_page_is_complete_and_offers_no_search(chromium: browser.Chromium, tmp_path: Path) -> None:
    seen = chromium.visit(
        at(tmp_path, pages()["t4"]),
        javascript=False,
        do=lambda page: [page.locator(".find").is_visible(), page.locator("#check-rows tr").count()],
    )
    assert seen.answer == [False, len(t4().findings)]
    assert "27.4 TFLOPS" in seen.text


@pytest.mark.parametrize("width", [browser.NARROW, browser.WIDE])
def test_words_are_explained_by_keyboard_and_pointer(chromium: browser.Chromium, tmp_path: Path, width: int) -> None:
    def ask(page: Any) -> Any:
        words = page.locator("#best .word")
        said = []
        for place in range(words.count()):
            word, tip = words.nth(place), words.nth(place).locator(".tip")
            word.locator("button").focus()
            inside = tip.evaluate(
                "e => { const box = e.getBoundingClientRect();"
                " return e.checkVisibility() && box.left >= 0 && box.right <= document.documentElement.clientWidth }"
            )
            page.keyboard.press("Escape")
            closed = not tip.is_visible()
            page.keyboard.press("Tab")
            word.hover()
            said.append([tip.inner_text() in WORDS.values(), inside, closed, tip.is_visible()])
            page.mouse.move(0, 0)
        words.first.locator("button").focus()
        return said

    seen = chromium.visit(at(tmp_path, pages()["well"]), width=width, height=SCREEN, do=ask)
    assert len(seen.answer) >= 5
    assert all(all(one) for one in seen.answer), seen.answer
    assert [fault for fault in seen.faults() if not fault.startswith("overlaps")] == []


def test_the_words_are_those_of_the_glossary() -> None:
    glossary = (DOCS / "glossary.md").read_text(encoding="utf-8")
    for word, meaning in WORDS.items():
        assert f"| **{word}** | {meaning} |" in glossary, word
    used = set(re.findall(r'word_of\("([^"]*)"', (Path(headline.__file__).parent / "page.html").read_text()))
    assert used <= WORDS.keys()


def test_commands_are_folded_beside_their_pictures_and_short_clips_have_no_fps() -> None:
    page = pages()["t4"]
    cases = re.findall(r'<article class="case">.*?</article>', page, re.S)
    assert len(cases) == 7
    first = cases[0]
    assert first.index("<summary>command") < first.index("<pre") < first.index("<figcaption>")
    assert not re.search(r"\bfps\b", " ".join(cases))


def test_streams_have_their_limit_quality_and_latency() -> None:
    page = reports.render(shown(), "html")
    assert 'id="throughput" open' in page, "it is what the command is for"
    table = page.partition('<table class="capacity">')[2].partition("</table>")[0]
    said = " ".join(re.sub(r"<[^>]*>", " ", table).split())
    for part in [*capacity.HEADS, *(one for line in capacity.lines_of(shown()) for one in capacity.cells(line))]:
        assert part in " ".join(re.sub(r"<[^>]*>", " ", page).split()), part
    assert said
    for note in capacity.notes(shown()):
        assert note.replace("'", "&#39;").replace(">", "&gt;") in page


def test_what_a_run_says_in_backticks_is_code_and_stays_words() -> None:
    bad = dataclasses.replace(
        t4().findings[1], status=records.Status.FAIL, remedy="`gpuprep tune HOST` or `<b>x</b>` or ` one"
    )
    run = dataclasses.replace(t4(), findings=(bad,), verdict=dataclasses.replace(t4().verdict, findings=(bad,)))  # type: ignore[type-var]
    page = reports.render(run, "html")
    assert "<code>gpuprep tune sim:t4 --profile t4</code> or <code>&lt;b&gt;x&lt;/b&gt;</code> or ` one" in page


def test_commands_stand_in_one_block() -> None:
    assert t4().verdict
    bad = dataclasses.replace(
        t4().findings[1], status=records.Status.FAIL, role="gpu_tuning", remedy="gpuprep tune sets it"
    )
    run = dataclasses.replace(t4(), verdict=dataclasses.replace(t4().verdict, findings=(bad,)), findings=(bad,))  # type: ignore[type-var]
    lines = [one.line for one in contents(run)["commands"]]
    assert lines == [
        "gpuprep tune sim:t4 --profile t4",
        "gpuprep validate sim:t4 --profile t4",
        "gpuprep report 20261120-102000-t40000 --format json --output 20261120-102000-t40000.json",
    ]
    page = reports.render(run, "html")
    assert page.count('<pre class="mono commands">') == 1
    assert 'id="commands" open' in page
    assert 'id="commands" open' not in reports.render(well(), "html")


def test_a_hostile_host_is_one_word_in_each_command() -> None:
    run = dataclasses.replace(t4(), host="-x; $(id)", run_id="a; rm -rf /")
    lines = [one.line for one in contents(run)["commands"]]
    assert lines == [
        "gpuprep validate --profile t4 -- '-x; $(id)'",
        "gpuprep report 'a; rm -rf /' --format json --output report.json",
    ]
