"""The HTML report in a real browser: its first screen, that it fits, can be read, searched and used by keyboard."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import amount
import browser
import pytest
from places import ROOT
from reportpages import at, pages, well
from validations_for_tests import several, t4

from gpuprep import records, reports

SCREEN = 800  # px high
GLOSSARY = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
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
        "FAIL", "transcode one_to_n: size", "look at the command and its log", "27.4 TFLOPS 42.0 % of 65.1, floor 30 %",
        "238 GB/s", "transcode h264 p4: streams of 1080p30 16 500 fps with 10 sessions", "4 of 6",
    ):  # fmt: skip
        assert part in said, part


# ---------------------------------------------------------------- contents, folds, search, words


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
            said.append([f" | {tip.inner_text()} |" in GLOSSARY, inside, closed, tip.is_visible()])
            page.mouse.move(0, 0)
        words.first.locator("button").focus()
        return said

    seen = chromium.visit(at(tmp_path, pages()["well"]), width=width, height=SCREEN, do=ask)
    assert len(seen.answer) >= 5
    assert all(all(one) for one in seen.answer), seen.answer
    assert [fault for fault in seen.faults() if not fault.startswith("overlaps")] == []
