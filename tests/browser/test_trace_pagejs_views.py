"""The views of iterations, time and memory in a real browser: by mouse, by keys, at phone and desktop width."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import amount
import browser
import pytest
import synthetic
import viewpages
from traceserver import serving

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect = pytest.importorskip("playwright.sync_api").expect
STEPS = 6
VIEWS = ("iterations", "timeline", "memory")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("views")
    return viewpages.write(folder, viewpages.opened(viewpages.training(STEPS).write(folder / "all.pt.trace.json")))


Look = Callable[..., Any]


@pytest.fixture
def look(chromium: browser.Chromium, address: str) -> Look:
    """Does something in the page, and says what it returned. Nothing may be wrong with the page then."""

    def visit(do: Callable[[Page], Any], view: str, **options: Any) -> Any:
        def work(page: Page) -> Any:
            page.wait_for_selector("main > h1")
            answer = do(page)
            assert page.evaluate("window.evil") is None
            return answer

        seen = chromium.visit(f"{address}#/{view}", do=work, **options)
        assert seen.faults() == []
        return seen.answer

    return visit


def badges(page: Page) -> list[str]:
    return page.locator(".badge strong").all_inner_texts()


def kernels(page: Page) -> int:
    """Of the chosen iterations, as the tables have them."""
    found: int = page.evaluate("tracePage.state.tables.summary.kernels")
    return found


@cache
def a_step() -> int:
    """Kernels that each step launches."""
    return sum(event.kind == "kernel" for event in viewpages.training(2).gpu) - sum(
        event.kind == "kernel" for event in viewpages.training(1).gpu
    )


@pytest.mark.parametrize(("width", "dark"), browser.FEW_LOOKS)
@pytest.mark.parametrize("view", [*VIEWS, "timeline?it=all", "iterations?iterations=1-3&show=selected"])
def test_looks(look: Look, view: str, width: int, dark: bool) -> None:
    title = {"i": "Iterations", "t": "Timeline", "m": "Memory"}[view[0]]
    assert look(lambda page: page.inner_text("main > h1"), view, width=width, dark=dark) == title


def drag(page: Page, element: str, by: float, up: bool = True) -> None:
    box = page.locator(element).bounding_box()
    assert box
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + by / 2, y, steps=3)
    page.mouse.move(x + by, y, steps=3)
    if up:
        page.mouse.up()


def width_of_an_iteration(page: Page) -> float:
    """px, of the chart."""
    ends = [page.locator(f"#grip-{side} .boundary").bounding_box() for side in ("start", "stop")]
    assert ends[0]
    assert ends[1]
    start, stop = (int(text) for text in badges(page)[2:])
    return (ends[1]["x"] - ends[0]["x"]) / (stop - start + 1)


@pytest.mark.parametrize("width", [browser.NARROW, browser.WIDE])
def test_boundaries_are_dragged(look: Look, width: int) -> None:
    def do(page: Page) -> Any:
        step, found = width_of_an_iteration(page), [badges(page)]
        drag(page, "#grip-start .knob", 2 * step, up=False)
        found.append(badges(page))  # while it moves
        assert kernels(page) == a_step() * STEPS
        page.mouse.up()
        found.append(badges(page))
        drag(page, "#grip-stop .knob", -step)
        found.append(badges(page))
        assert page.evaluate("document.activeElement.id") == "grip-stop"
        return found, kernels(page), page.input_value("#field-start"), page.url, page.inner_text("#range")

    found, count, field, url, words = look(do, "iterations", width=width)
    assert found == [["6", "6", "0", "5"], ["6", "4", "2", "5"], ["6", "4", "2", "5"], ["6", "3", "2", "4"]]
    assert (count, field) == (3 * a_step(), "2")
    assert "iterations=2-4" in url
    assert words == "Iterations 2 to 4 of 6"


def test_boundaries_move_by_keys(look: Look) -> None:
    def do(page: Page) -> Any:
        found = []
        page.focus("#grip-start")
        for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "End", "Home", "PageUp"):
            page.keyboard.press(key)
            assert page.evaluate("document.activeElement.id") == "grip-start"
            slider = page.locator("#grip-start")
            found.append([slider.get_attribute(f"aria-value{name}") for name in ("now", "min", "max")])
        page.focus("#grip-stop")
        page.keyboard.press("ArrowDown")
        return found, badges(page), kernels(page)

    found, last, count = look(do, "iterations")
    assert [values[0] for values in found] == ["1", "2", "1", "5", "0", "1"]
    assert found[0][1:] == ["0", "5"]
    assert last == ["6", "4", "1", "4"]
    assert count == 4 * a_step()


def test_fields_are_typed_spun_and_wheeled(look: Look) -> None:
    def do(page: Page) -> Any:
        page.fill("#field-start", "3")
        page.keyboard.press("Enter")
        typed = badges(page)
        page.focus("#field-stop")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Tab")
        spun = badges(page)
        page.hover("#field-start")
        page.mouse.wheel(0, 100)
        page.wait_for_url(re.compile("iterations=2-4"))
        wheeled = badges(page)
        page.fill("#field-start", "99")  # no further than the last
        page.keyboard.press("Enter")
        beyond = badges(page)
        page.fill("#field-start", "")
        page.keyboard.press("Enter")
        return typed, spun, wheeled, beyond, page.input_value("#field-start")

    typed, spun, wheeled, beyond, empty = look(do, "iterations")
    assert typed == ["6", "3", "3", "5"]
    assert spun == ["6", "2", "3", "4"]
    assert wheeled == ["6", "3", "2", "4"]
    assert beyond == ["6", "1", "4", "4"]
    assert empty == "4"


def test_all_and_profiled_iterations(look: Look) -> None:
    def do(page: Page) -> Any:
        found = []
        for name in ("Profiled iterations", "All iterations"):
            page.get_by_role("button", name=name, exact=True).click()
            pressed = page.get_by_role("button", name=name, exact=True).get_attribute("aria-pressed")
            found.append((pressed, page.locator("svg.iterations").get_attribute("aria-label"), page.url))
        return found

    (one, profiled, url), (other, every, _) = look(do, "iterations?iterations=1-3")
    assert (one, other) == ("true", "true")
    assert profiled.startswith("Iterations 1 to 3;")
    assert every.startswith("Iterations 0 to 5; chosen are 1 to 3.")
    assert "show=selected" in url


def test_an_iteration_is_told_on_hover(look: Look) -> None:
    def do(page: Page) -> Any:
        box = page.locator("svg.iterations").bounding_box()
        assert box
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 150)
        page.wait_for_selector(".chart-tip:not([hidden])")
        return page.inner_text(".chart-tip")

    said = look(do, "iterations")
    assert said.startswith("ProfilerStep#")
    for word in ("Wall clock", "Kernels using Tensor Cores", "Memory operations: 10.00 µs", "GPU busy"):
        assert word in said


def test_a_key_op_is_picked(look: Look, address: str) -> None:
    def do(page: Page) -> Any:
        page.get_by_role("button", name="Select key op…").click()
        dialog = page.get_by_role("dialog")
        ok = dialog.get_by_role("button", name="OK", exact=True)
        assert ok.is_disabled()
        dialog.get_by_role("searchbox", name="Filter Op name").fill("foreach_add")
        dialog.get_by_text("Showing 1 to 1 of 1").wait_for()
        dialog.get_by_role("button", name="Choose aten::_foreach_add_", exact=True).click()
        ok.click()
        page.wait_for_url(re.compile("key="))
        picked = (badges(page), page.input_value("#field-key"), page.url, page.inner_text("main > .lead"))
        tables = page.evaluate(viewpages.AGGREGATE, [[{"keyOp": "aten::_foreach_add_"}], viewpages.TABLES])
        page.get_by_role("button", name="As the profile was split").click()
        return picked, tables, badges(page), page.url

    (picked, field, url, lead), (tables,), last, plain = look(do, "iterations")
    assert (picked, field) == (["6", "6", "0", "5"], "aten::_foreach_add_")
    assert "key=aten" in url
    assert "key=" not in plain.replace("kept=", "")
    assert "key op aten::_foreach_add_" in lead
    assert last == ["6", "6", "0", "5"]
    path = Path(address.removeprefix("file://")).parent / "all.pt.trace.json"
    python = viewpages.told(viewpages.opened(path, key_op="aten::_foreach_add_"))
    assert list(viewpages.differences(python, tables)) == []
    # The work before the first call is in no iteration.
    assert tables["summary"]["kernels"] == a_step() * (STEPS - 1) + 4


def test_a_dialog_is_left_without_a_choice(look: Look) -> None:
    def do(page: Page) -> Any:
        for leave in ("Cancel", "Escape"):
            page.get_by_role("button", name="Select key op…").click()
            page.get_by_role("searchbox", name="Filter Op name").fill("aten::mm")
            page.get_by_role("button", name="Choose aten::mm", exact=True).click()
            if leave == "Cancel":
                page.get_by_role("button", name="Cancel").click()
            else:
                page.keyboard.press("Escape")
            expect(page.locator("dialog")).to_have_count(0)
        return page.evaluate("tracePage.state.keyOp")

    assert look(do, "iterations") == ""


def test_choices_are_kept_and_stand_in_the_address(look: Look, chromium: browser.Chromium) -> None:
    def do(page: Page) -> Any:
        assert page.locator("#aggregation").count() == 0
        page.fill("#field-start", "2")
        page.keyboard.press("Enter")
        page.select_option("#domain", label="Optimizer.step#SGD.step (6)")
        inside = kernels(page)
        page.select_option("#domain", "")
        options = page.locator("#aggregation option").all_inner_texts()
        titles = [one.get_attribute("title") for one in page.locator("#aggregation option").all()]
        page.select_option("#aggregation", label="Iterations 2 to 5")
        page.get_by_role("link", name="Memory").click()
        page.wait_for_url(re.compile("#/memory"))
        return inside, options, titles, page.url

    inside, options, titles, url = look(do, "iterations")
    assert inside == STEPS
    assert options == ["Iterations 0 to 5", "Iterations 2 to 5", "Iterations 0 to 5 in Optimizer.step#SGD.step"]
    assert titles[2] == "Iterations 0 to 5; key op: as the profile was split; domain: Optimizer.step#SGD.step"
    again = chromium.visit(
        url,
        do=lambda page: (page.wait_for_selector("#aggregation"), page.locator("#aggregation option").all_inner_texts())[
            1
        ],
        check=False,
    )
    assert again.faults() == []
    assert sorted(again.answer) == sorted(options)
    assert "Iterations 2 to 5 of 6" in again.text


@pytest.mark.parametrize(
    ("view", "query"),
    amount.third(itertools.product(
        VIEWS,
        ["iterations=9-99", "iterations=4-1", "key=no::op", "domain=none", "kept=%5B%5B0,%22x%22%5D,7,null%5D",
         "kept=%7B", "it=-1", "it=77", "from=9&to=1", "key=%3Cimg src=x onerror=window.evil=1%3E"],
    )),
)  # fmt: skip
def test_an_odd_address_harms_nothing(look: Look, view: str, query: str) -> None:
    assert look(lambda page: page.locator("main > h1").count(), f"{view}?{query}", check=False) == 1


def shown(page: Page) -> str:
    return page.inner_text("#timeline-shown")


def window(page: Page) -> tuple[float, float]:
    """What part of the iteration is shown, in ns, as the address keeps it."""
    page.wait_for_url(re.compile("from="))
    query = page.evaluate("Object.fromEntries(new URLSearchParams(location.hash.split('?')[1]))")
    return float(query["from"]), float(query["to"])


@pytest.mark.parametrize("width", [browser.NARROW, browser.WIDE])
def test_the_timeline_zooms_and_moves(look: Look, width: int) -> None:
    def do(page: Page) -> Any:
        said = [shown(page)]
        page.hover("#timeline")
        page.mouse.wheel(0, -100)
        expect(page.locator("#timeline-shown")).not_to_have_text(said[0])
        said.append(shown(page))
        wheel = window(page)
        page.focus("#timeline")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("+")
        said.append(shown(page))
        page.keyboard.press("0")
        said.append(shown(page))
        page.get_by_role("button", name="Zoom in").click()
        before = shown(page)
        drag(page, "#timeline", -60)
        return said, wheel, before, shown(page), page.url

    said, (start, stop), before, dragged, _ = look(do, "timeline?it=2", width=width)
    assert said[0].startswith("Shown of iteration 2: ")
    assert said[0] == said[3]
    assert len(set(said)) == 3
    assert 0 < start < stop < 1_018_000
    assert before != dragged


# What a canvas says, and where: a letter outside of it, or of a name that was cut, is read by nobody.
RECORDED = """() => {
  window.said = [];
  const fill = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (words, x, y) {
    const wide = this.measureText(words).width, left = x - (this.textAlign === "center" ? wide / 2 : 0);
    document.body.dataset.said = window.said.push({ words, left, right: left + wide, room: this.canvas.clientWidth });
    return fill.call(this, words, x, y);
  };
  dispatchEvent(new HashChangeEvent("hashchange"));
}"""


@pytest.mark.parametrize("width", [browser.NARROW, browser.WIDE])
def test_names_of_threads_and_times_of_the_axis_are_whole(look: Look, width: int) -> None:
    def said(page: Page) -> list[dict[str, Any]]:
        page.evaluate(RECORDED)
        # Playwright's wait_for_function evaluates words in the page, which its security policy forbids.
        expect(page.locator("body")).to_have_attribute("data-said", re.compile(r"1[1-9]|[2-9]\d|\d{3}"))
        found: list[dict[str, Any]] = page.evaluate("window.said")
        return found

    found = look(said, "timeline", width=width)
    threads = [one for one in found if re.match(r"(CPU|GPU) ", one["words"])]
    axis = [one for one in found if re.fullmatch(r"[\d.]+ (ns|µs|ms|s)", one["words"])]
    assert {"GPU 0 stream 7", "GPU 1 stream 20"} <= {one["words"] for one in threads}
    assert not [one["words"] for one in threads if "…" in one["words"]]
    assert len(axis) >= 3
    for one in (*threads, *axis):
        assert 0 <= one["left"] < one["right"] <= one["room"], one
    for before, after in itertools.pairwise(axis):
        assert before["right"] < after["left"] or after["left"] < before["left"], (before, after)


def test_the_timeline_is_searched(look: Look) -> None:
    def do(page: Page) -> Any:
        page.fill("#timeline-search", "s16816gemm")
        expect(page.locator("#timeline-shown")).to_contain_text("found by the search")
        found = shown(page)
        page.get_by_role("button", name="Next match").click()
        picked = shown(page)
        page.focus("#timeline")
        page.keyboard.press("Enter")
        details = page.inner_text("#details")
        page.keyboard.press("Escape")
        page.wait_for_url(re.compile("find=s16816gemm"))
        return found, picked, details, page.locator("#details").is_hidden()

    found, picked, details, hidden = look(do, "timeline?it=3")
    assert found.endswith("; found by the search: 1")
    assert picked == "ampere_fp16_s16816gemm_fp16_128x128, GPU 1 stream 20, 30.00 µs. Enter shows more."
    for words in ("30.00 µs", "GPU 1 stream 20", "162 × 1 × 1", "256 × 1 × 1", "85.00 µs", "yes", "Iteration\n3"):
        assert words in details
    assert hidden


def test_events_are_clicked_hovered_and_walked(look: Look) -> None:
    place = """name => {
      const data = tracePage.state.data, box = document.querySelector("#timeline").getBoundingClientRect();
      return [box.left, box.top, box.width];
    }"""

    def do(page: Page) -> Any:
        left, top, width = page.evaluate(place)
        # The step itself is the first row: 1,000,000 ns wide but for what its kernels take behind it.
        page.mouse.move(left + width / 2, top + 26 + 8 + 9)
        page.wait_for_selector(".chart-tip:not([hidden])")
        tip = page.inner_text(".chart-tip")
        page.mouse.click(left + width / 2, top + 26 + 8 + 9)
        details = page.inner_text("#details h2")
        page.keyboard.press("Escape")
        page.focus("#timeline")
        walked = []
        for key in ("ArrowDown", "Shift+ArrowRight", "ArrowDown", "Shift+ArrowLeft", "ArrowUp"):
            page.keyboard.press(key)
            walked.append(shown(page))
        # The details take room beside the timeline, so it is drawn anew when they open and when they are closed.
        for key in ("Enter", "Escape"):
            wide = page.get_attribute("#timeline", "width") or ""
            page.keyboard.press(key)
            expect(page.locator("#timeline")).not_to_have_attribute("width", wide)
            walked.append(shown(page))
        return tip, details, walked

    tip, details, walked = look(do, "timeline?it=1")
    assert tip.startswith("ProfilerStep#1")
    assert details == "ProfilerStep#1"
    assert len(set(walked)) >= 4
    assert all(line.endswith("Enter shows more.") for line in walked)


def test_the_events_as_a_table(look: Look) -> None:
    def do(page: Page) -> Any:
        page.get_by_role("button", name="Show these events as a table").click()
        page.get_by_role("searchbox", name="Filter Name").fill("lonely")
        page.get_by_text("Showing 1 to 1 of 1").wait_for()
        row = page.locator("#table-events tbody tr").inner_text()
        page.get_by_role("button", name="Show in the timeline: lonely_kernel").click()
        return row, page.inner_text("#details")

    row, details = look(do, "timeline?it=4")
    assert "GPU 0 stream 7" in row
    assert "3,004" in row
    assert "launched outside of every op" in details


def test_hostile_names_are_text(look: Look) -> None:
    def do(page: Page) -> Any:
        page.fill("#timeline-search", "onerror")
        page.keyboard.press("Enter")
        expect(page.locator("#timeline-shown")).to_contain_text("Enter shows more")
        page.focus("#timeline")
        page.keyboard.press("Enter")
        return page.inner_text("#details h2"), page.locator("main img, aside img, nav img").count()

    title, images = look(do, "timeline")
    assert "<img src=x onerror=" in title
    assert images == 0


def test_memory_over_time(look: Look) -> None:
    def do(page: Page) -> Any:
        page.get_by_role("region", name="Memory of GPU 0").wait_for()
        return page.inner_text("section[aria-label='Memory of GPU 0']"), page.locator(".memory-peak").count()

    said, peaks = look(do, "memory")
    assert "Peak allocated\n9.8 GiB, 5.19 ms after the first event, in iteration 5" in said
    assert "Peak reserved\n10.3 GiB" in said
    assert "Memory of the GPU\n79.2 GiB; the peak is 12.3 % of it" in said
    assert "Events of the allocator\n18" in said
    assert peaks == 1


def test_memory_is_not_shown_without_events(chromium: browser.Chromium, tmp_path: Path) -> None:
    linked = viewpages.opened(synthetic.training().write(tmp_path / "none.json"))
    seen = chromium.visit(
        viewpages.write(tmp_path, linked) + "#/dashboard",
        do=lambda page: (page.wait_for_selector("main > h1"), page.locator("nav a").all_inner_texts())[1],
        check=False,
    )
    assert seen.faults() == []
    assert {"Timeline", "Iterations"} <= set(seen.answer)
    assert "Memory" not in seen.answer


def test_perfetto_from_a_file_and_from_a_server(look: Look) -> None:
    assert "ui.perfetto.dev" in look(lambda page: page.inner_text("section[aria-label=Perfetto]"), "timeline")
    told = """([protocol, pathname, search]) => {
      const source = tracePage.perfetto(tracePage.state, {protocol, pathname, search});
      return [...source.querySelectorAll("a")].map(one => one.getAttribute("href"));
    }"""
    for place, links in (
        (["http:", "/x/page", "?run=a%26b"], ["perfetto?run=a%26b", "raw?run=a%26b"]),
        (["http:", "/somewhere/else.html", "?run=a"], ["https://ui.perfetto.dev"]),
        (["file:", "/tmp/page", "?run=a"], ["https://ui.perfetto.dev"]),
    ):
        assert look(lambda page, place=place: page.evaluate(told, place), "timeline", check=False) == links


def test_a_served_page_leads_to_perfetto(chromium: browser.Chromium, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    for name in ("one.json", "two & three.json"):
        viewpages.training(2).write(folder / name)
    home = tmp_path / "home"
    home.mkdir()

    def follow(page: Page) -> Any:
        page.wait_for_selector("section[aria-label=Perfetto]")
        with page.expect_popup() as opened:
            page.get_by_role("link", name="Open in Perfetto").click()
        opened.value.get_by_role("button", name="Open in Perfetto").wait_for()
        with page.expect_download() as loaded:
            page.get_by_role("link", name="The trace itself").click()
        return opened.value.url, Path(loaded.value.path()).read_bytes()

    with serving(home, "--no-token", str(folder)) as server:
        run = quote("two & three.json", safe="")
        seen = chromium.visit(f"http://{server.place}/page?run={run}#/timeline", do=follow, check=False)
    url, trace = seen.answer
    assert url.endswith(f"/perfetto?run={run}")
    assert trace == (folder / "two & three.json").read_bytes()
    assert (seen.console, seen.errors, seen.elsewhere) == ([], [], [])
