"""Every view of the page in a real browser: its panels and columns, its controls, by mouse and by keyboard."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import itertools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import browser
import pytest
import tracepages
from places import TESTS
from tracepages import STEPS, look, opened

from gpuprep.trace import opening
from gpuprep.trace import page as pages

if TYPE_CHECKING:
    from playwright.sync_api import Page

VIEWS = {
    "dashboard": "Dashboard",
    "advice": "Recommendations",
    "op-types": "Op type summary",
    "ops?op=1": "Ops and kernels",
    "kernels?kernel=1": "Kernels",
    "by-iteration?iteration=2": "Kernels by iteration",
    "by-op?iteration=2&op=1": "Kernels by op",
    "modules": "Group by module",
    "roofs": "Roofs",
    "gpus": "GPUs",
    "help": "Help",
}
# Titles of columns by the name of their table: those of DLProf's viewer, and what is new.
SPREAD = ["Total", "Avg", "Min", "Max"]
KERNELS = ["Kernel name", "Device ID", "Stream", "Kernel timestamp (µs)", "Start on the GPU (µs)", "GPU time (µs)",
           "Uses Tensor Cores", "Grid", "Block"]  # fmt: skip
ITERATIONS = ["Iteration", "Name", "Timestamp (µs)", "Duration (µs)", "Total kernels", "Tensor Core kernels",
              "Average GPU time (µs)", "Average Tensor Core time (µs)", "GPU busy (µs)"]  # fmt: skip
SUMMARY = ["Kernel name", "Uses Tensor Cores", "Calls", "GPU time (µs)", "Avg (µs)", "Min (µs)", "Max (µs)", "Rule"]
COLUMNS = {
    "op-types": {"op-types": ["Op type", "No. ops", "No. calls", *SPREAD * 4]},
    "ops?op=1": {
        "ops": ["GPU time (µs)", "CPU time (µs)", "Op name", "Direction", "Op type",
                "Calls",
                "Could use Tensor Cores", "Uses Tensor Cores", "Kernel calls", "Data type", "Input shapes",
                "GPU time with children (µs)", "TFLOP/s", "Stack trace"],
        "op-kernels": SUMMARY,
    },
    "kernels": {"kernels": [*SUMMARY, "Memory"]},
    "by-iteration?iteration=2": {"iterations": ITERATIONS, "iteration-kernels": ["Op name", *KERNELS]},
    "by-op?iteration=2&op=OP": {
        "iterations": ITERATIONS,
        "iteration-ops": ["Op name", "Direction", "Op type", "Op start (µs)", "Total kernels", "Tensor Core kernels",
                          "Total GPU time (µs)", "Tensor Core GPU time (µs)", "Data type", "Input shapes",
                          "Stack trace"],
        "iteration-op-kernels": KERNELS,
    },
    "gpus": {
        "gpus": ["Device ID", "Device name", "Compute capability", "SM count", "Utilization (%)", "Memory (bytes)",
                 "Kernels", "Kernel time (µs)", "Memory operations", "Memory time (µs)", "Busy (µs)", "Span (µs)"],
    },
    "modules": {"modules": ["Module", "Calls", "GPU time (µs)", "Tensor Core GPU time (µs)", "CPU time (µs)"]},
    "roofs": {
        "roofs": ["Op", "GPU time (µs)", "Of the roof (%)", "What would be faster", "Saved a step (µs)",
                  "Why it is below", "TFLOP/s", "Roof TFLOP/s", "Roof from", "Shape", "Data type", "Calls", "Op type"],
    },
}  # fmt: skip
HEADS = """name => [...document.querySelectorAll(`#table-${name} thead th:not(.pick) .dt-column-title`)]
  .map(one => one.textContent).filter(Boolean)"""


def mm() -> int:
    """An op that launched kernels in each iteration."""
    return next(one.id for one in opened().document.ops if one.type == "aten::mm" and one.kernel_calls)


@pytest.mark.parametrize(("view", "width", "dark"), browser.looks_at(VIEWS))
def test_no_view_has_a_fault_at_any_width_in_light_and_dark(
    chromium: browser.Chromium, tmp_path: Path, view: str, width: int, dark: bool
) -> None:
    seen = look(chromium, tmp_path, view, width=width, dark=dark)
    assert seen.faults() == []
    assert seen.title.startswith(VIEWS[view])
    assert "Profile" not in VIEWS[view]
    assert "My <b>profile</b>" in seen.title


@pytest.mark.parametrize("view", COLUMNS)
def test_the_tables_have_the_columns_of_dlprof(chromium: browser.Chromium, tmp_path: Path, view: str) -> None:
    def heads(page: Page) -> dict[str, Any]:
        return {name: page.evaluate(HEADS, name) for name in COLUMNS[view]}

    seen = look(chromium, tmp_path, view.replace("OP", str(mm())), heads, check=False)
    want = {name: [one for one in titles if one != "Stack trace"] for name, titles in COLUMNS[view].items()}
    has = {name: [one for one in titles if one != "Stack trace"] for name, titles in seen.answer.items()}
    assert has == want


def test_a_file_with_stacks_has_a_column_with_them(chromium: browser.Chromium, tmp_path: Path) -> None:
    assert any(one.stack for one in opened().document.ops)
    seen = look(chromium, tmp_path, "ops", lambda page: page.evaluate(HEADS, "ops"), check=False)
    assert "Stack trace" in seen.answer


# ---------------------------------------------------------------- the dashboard


def test_the_dashboard_has_every_panel_of_dlprof(chromium: browser.Chromium, tmp_path: Path) -> None:
    panels = "[...document.querySelectorAll('.panel h2')].map(one => one.textContent)"
    seen = look(chromium, tmp_path, do=lambda page: page.evaluate(panels), check=False)
    assert [one for one in seen.answer if one != "Notes of this file"] == [
        "Recommendations", "GPU utilization", "Op GPU time", "Kernel GPU time", "Tensor Core kernel efficiency",
        "Performance summary", "System configuration", "Iteration summary", "Top 10 GPU ops", "Guidance",
    ]  # fmt: skip


@pytest.mark.parametrize("often", [0, 1, 40])
@pytest.mark.parametrize(("width", "dark"), browser.DAILY_LOOKS)
def test_the_first_screen_says_what_to_change_and_what_the_profiler_cost(
    chromium: browser.Chromium, tmp_path: Path, width: int, dark: bool, often: int
) -> None:
    """However many recommendations there are, the rings stay near."""
    content = pages.html(opened().profile, dataclasses.replace(opened().document, advice=tracepages.ADVICE * often))
    head = "[...document.querySelectorAll('h2')].find(one => one.textContent === title)"

    def tops(page: Page) -> list[float]:
        return [
            page.evaluate(f"title => {head}.getBoundingClientRect().top", title)
            for title in ("Recommendations", "GPU utilization")
        ]

    seen = look(chromium, tmp_path, do=tops, content=content, width=width, dark=dark, javascript=True)
    assert seen.faults() == []
    assert seen.answer[0] < 400
    assert seen.answer[1] < (1200 if width == browser.NARROW else 800)
    assert opened().document.slowdown.words in seen.text
    assert ("saves about 1.23 ms a step" in seen.text) == (often > 0)
    assert ("All 160 recommendations" in seen.text) == (often == 40)


def test_the_table_of_recommendations_shows_what_each_saves(chromium: browser.Chromium, tmp_path: Path) -> None:
    def heads(page: Page) -> tuple[list[str], bool]:
        box = "document.querySelector('#table-recommendations').parentElement"
        return page.evaluate(HEADS, "recommendations"), page.evaluate(f"{box}.scrollWidth <= {box}.clientWidth + 1")

    titles, whole = look(chromium, tmp_path, "advice", heads, check=False).answer
    assert titles[0] == "Saves a step (µs)"
    assert whole, "a column is cut off on a screen"


def test_bars_have_letters_of_the_size_of_all_others(chromium: browser.Chromium, tmp_path: Path) -> None:
    scale = "(one => one.clientWidth / one.viewBox.baseVal.width)(document.querySelector('.bars svg'))"
    for width in (browser.NARROW, browser.WIDE):
        seen = look(chromium, tmp_path, do=lambda page: page.evaluate(scale), width=width, check=False)
        assert seen.answer == pytest.approx(1.0, abs=0.01), width


def test_the_performance_summary_is_the_document_s(chromium: browser.Chromium, tmp_path: Path) -> None:
    rows = """() => Object.fromEntries([...document.querySelectorAll('.figures dt')].map(one =>
      [(one.querySelector('.word') || one).firstChild.textContent.trim(), one.nextElementSibling.textContent]))"""
    seen = look(chromium, tmp_path, do=lambda page: page.evaluate(rows), check=False).answer
    summary = opened().document.summary
    assert seen["Wall clock time"].endswith(" ms")
    assert float(seen["Wall clock time"][:-3]) == pytest.approx(summary.wall_us / 1000, abs=0.0051)
    assert summary.gpu_utilization_percent is not None
    assert seen["GPU utilization"] == f"{summary.gpu_utilization_percent:.1f} %"
    assert seen["Total iterations"] == seen["Profiled iterations"] == str(STEPS)
    assert (seen["Start iteration"], seen["Stop iteration"]) == ("0", str(STEPS - 1))
    assert float(seen["Average iteration time"][:-3]) == pytest.approx(summary.average_iteration_us / 1000, abs=0.0051)
    assert seen["Profile name"] == "My <b>profile</b>"
    assert {
        "GPU count",
        "GPU names",
        "CPU model",
        "GPU driver version",
        "Framework",
        "CUDA version",
        "cuDNN version",
    } <= set(seen)
    assert seen["CPU model"] == "not in the trace"


def test_a_legend_entry_hides_and_shows_its_slice(chromium: browser.Chromium, tmp_path: Path) -> None:
    def toggle(page: Page) -> list[Any]:
        panel = page.locator(".panel", has=page.get_by_role("heading", name="Kernel GPU time"))
        entry = panel.get_by_role("button", name="All other kernels")
        found: list[Any] = [panel.locator(".slice.eligible").count()]
        for key in ("Enter", "Space"):  # by keyboard; a click is the same event
            entry.press(key)
            found += [entry.get_attribute("aria-pressed"), panel.locator(".slice.eligible").count()]
        return found

    assert look(chromium, tmp_path, do=toggle, check=False).answer == [1, "false", 0, "true", 1]


def test_a_slice_tells_its_time_on_hover(chromium: browser.Chromium, tmp_path: Path) -> None:
    def hover(page: Page) -> tuple[str, str]:
        panel = page.locator(".panel", has=page.get_by_role("heading", name="GPU utilization"))
        slice_ = panel.locator(".slice.tc")
        slice_.dispatch_event("pointerenter")
        return slice_.locator("title").text_content() or "", panel.locator(".middle").text_content() or ""

    title, middle = look(chromium, tmp_path, do=hover, check=False).answer
    share = f"{opened().document.summary.gpu_utilization_percent:.1f} %"
    assert title == f"Utilized: {share}, {share}"
    assert middle == share


@pytest.mark.parametrize(
    ("button", "title", "first"),
    [("Show op details", "Op details", "All ops"), ("Show kernel details", "Kernel details", "All kernels")],
)
def test_details_open_beside_the_content_and_close(
    chromium: browser.Chromium, tmp_path: Path, button: str, title: str, first: str
) -> None:
    def open_and_close(page: Page) -> list[Any]:
        page.get_by_role("button", name=button).click()
        pane = page.locator("#details")
        rows = pane.locator("tbody tr").all_inner_texts()
        found: list[Any] = [pane.get_by_role("heading").inner_text(), rows]
        page.keyboard.press("Escape")
        found += [pane.is_visible(), page.evaluate("document.activeElement.textContent")]
        page.get_by_role("button", name=button).click()
        return found

    for width in (browser.NARROW, browser.WIDE):
        seen = look(chromium, tmp_path, do=open_and_close, width=width)
        assert seen.faults() == []
        heading, rows, visible, focus = seen.answer
        assert heading == title
        assert rows[0].startswith(first)
        assert len(rows) == 4
        assert not visible
        assert focus == button
    summary = opened().document.summary
    totals = {
        "Op details": summary.ops_using_tensor_cores + summary.ops_eligible_not_using + summary.other_ops,
        "Kernel details": summary.kernels + summary.memory_operations,
    }
    assert rows[0].split("\t")[-1] == f"{totals[title]:,}"


def test_a_word_is_explained_on_focus(chromium: browser.Chromium, tmp_path: Path) -> None:
    def focus(page: Page) -> str:
        page.get_by_role("button", name="What is GPU utilization?").focus()
        return page.locator("[role=tooltip]:visible").inner_text()

    for width in (browser.NARROW, browser.WIDE):
        seen = look(chromium, tmp_path, do=focus, width=width, check=False)
        assert "union of kernels" in seen.answer
        assert seen.wider == []


def test_more_leads_to_the_views_of_a_panel(chromium: browser.Chromium, tmp_path: Path) -> None:
    def follow(page: Page) -> str:
        page.get_by_label("More views of Op GPU time").click()
        page.locator(".more[open]").get_by_role("link", name="Op type summary").click()
        page.locator("h1", has_text="Op type summary").wait_for()
        return page.url

    assert look(chromium, tmp_path, do=follow, check=False).answer.endswith("#/op-types")


# ---------------------------------------------------------------- the frame and the address


def test_the_navigation_lists_the_views_and_closes(chromium: browser.Chromium, tmp_path: Path) -> None:
    def close(page: Page) -> list[Any]:
        links = page.locator("#navigation li a").all_inner_texts()
        page.get_by_role("button", name="Close the navigation").click()
        found = [links, page.locator("#navigation").is_visible(), page.evaluate("document.activeElement.id")]
        page.keyboard.press("Enter")
        return [*found, page.locator("#navigation").is_visible()]

    links, shown, focus, again = look(chromium, tmp_path, do=close, check=False).answer
    assert set(VIEWS.values()) <= set(links)
    assert not shown
    assert focus == "menu"
    assert again


def test_gpus_are_a_view_only_where_there_are_several(chromium: browser.Chromium, tmp_path: Path) -> None:
    one = tracepages.alone()
    seen = look(
        chromium, tmp_path, "gpus", content=one, do=lambda page: page.locator("#navigation li a").all_inner_texts()
    )
    assert "GPUs" not in seen.answer
    assert seen.title.startswith("Dashboard")
    assert seen.faults() == []


@pytest.mark.parametrize(
    "place",
    [
        "",
        "#/nothing",
        "#/constructor",
        "#/ops?key=nope&domain=%3Cb%3E",
        "#/ops?op=99999",
        "#/ops?iterations=7-3",
        "#/ops?iterations=0-99999",
        "#<b>",
        "#/ops?rows=x.y",
    ],
)
def test_an_address_that_is_none_shows_the_page(chromium: browser.Chromium, tmp_path: Path, place: str) -> None:
    url = tracepages.write(tmp_path) + place
    seen = chromium.visit(url, do=lambda page: page.locator("#content h1").inner_text())
    assert seen.answer in ("Dashboard", "Ops and kernels")
    assert seen.faults() == []


def test_the_range_of_the_address_is_that_of_all_figures(chromium: browser.Chromium, tmp_path: Path) -> None:
    seen = look(chromium, tmp_path, "dashboard?iterations=1-2")
    assert seen.faults() == []
    assert f"Iterations 1 to 2 of {STEPS}" in seen.text
    assert "2 profiled (1 to 2), the others are pale" in seen.text


def test_a_view_is_reached_by_keyboard_alone(chromium: browser.Chromium, tmp_path: Path) -> None:
    def walk(page: Page) -> list[str]:
        order = []
        for _ in range(6):
            page.keyboard.press("Tab")
            order.append(page.evaluate("document.activeElement.textContent"))
        page.keyboard.press("Enter")
        page.locator("h1", has_text="Op type summary").wait_for()
        order.append(page.evaluate("document.activeElement.id"))
        return order

    order = look(chromium, tmp_path, do=walk, check=False).answer
    assert order == ["To the content", "Views", "✕", "Dashboard", "Recommendations", "Op type summary", "content"]


def test_without_its_script_the_page_tells_its_main_figures(chromium: browser.Chromium, tmp_path: Path) -> None:
    seen = chromium.visit(tracepages.write(tmp_path), javascript=False)
    assert "needs its script" in seen.text
    assert f"{STEPS} of {STEPS}" in seen.text
    assert "My <b>profile</b>" in seen.text
    assert "Use torch.autocast" in seen.text


def test_a_page_that_was_cut_says_so(chromium: browser.Chromium, tmp_path: Path) -> None:
    cut = tracepages.text().replace('id="profile">', 'id="profile">AAAA')
    seen = chromium.visit(
        tracepages.write(tmp_path, cut), do=lambda page: page.get_by_text("could not unpack").wait_for()
    )
    assert "This page could not unpack its profile" in seen.text


# ---------------------------------------------------------------- from row to row


def test_a_row_shows_what_it_is_made_of(chromium: browser.Chromium, tmp_path: Path) -> None:
    def pick(page: Page) -> list[Any]:
        found: list[Any] = [page.locator("#table-iteration-ops").count()]
        page.locator("#table-iterations tbody tr").nth(1).locator("td").nth(2).click()  # anywhere in the row
        page.get_by_label("Filter Total kernels").last.fill(">0")
        page.locator("#table-iteration-ops_info", has_text="rows)").wait_for()
        row = page.locator("#table-iteration-ops tbody tr").first.locator("button.pick")
        row.press("Enter")
        found += [row.get_attribute("aria-pressed"), page.locator("#table-iteration-op-kernels tbody tr").count()]
        return [*found, page.url.split("#")[1].split("&")[0], page.locator(".picked").count()]

    before, pressed, kernels, url, picked = look(chromium, tmp_path, "by-op", pick, check=False).answer
    assert before == 0
    assert pressed == "true"
    assert kernels > 0
    assert url == "/by-op?iteration=1"
    assert picked == 2


def test_a_recommendation_leads_to_its_rows(chromium: browser.Chromium, tmp_path: Path) -> None:
    def follow(page: Page) -> list[Any]:
        page.get_by_role("link", name="Show the rows of: 3 matrix products").click()
        page.wait_for_selector("#table-ops")
        found = [page.locator(".only").inner_text(), page.locator(".dt-info").first.inner_text()]
        page.get_by_role("link", name="Show all rows").click()
        page.locator(".only").wait_for(state="detached")
        return found

    words, info = look(chromium, tmp_path, "advice", follow, check=False).answer
    assert words.startswith("3 rows of the recommendation: 3 matrix products run in FP32 <img")
    assert info == "Showing 1 to 3 of 3"


def test_the_recommendations_of_a_recorded_training_lead_to_their_rows(
    chromium: browser.Chromium, tmp_path: Path
) -> None:
    found = opening.open_trace(TESTS / "traces" / "recorded/resnet-amp.json.gz")
    about = [one for one in found.document.advice if one.view in ("ops", "kernels")]

    def follow(page: Page) -> list[str]:
        links = page.locator(".advice a.rows-of").evaluate_all("all => all.map(one => one.getAttribute('href'))")
        rows = []
        for link in [one for one in links if "rows=" in one]:
            page.evaluate("link => { location.hash = link }", link)
            page.locator(".only").wait_for()
            rows.append(page.locator(".dt-info").first.inner_text())
        return rows

    seen = look(chromium, tmp_path, "advice", follow, content=pages.html(found.profile, found.document), check=False)
    counts = [len(one.ops if one.view == "ops" else one.kernels) for one in about]
    assert len(counts) > 2
    assert seen.answer == [f"Showing 1 to {min(10, rows)} of {rows}" for rows in counts]
    assert seen.faults() == []


def test_links_of_recommendations_open_a_new_tab_and_are_links_only_if_they_are_http(
    chromium: browser.Chromium, tmp_path: Path
) -> None:
    links = "[...document.querySelectorAll('.advice a[target]')].map(one => [one.href, one.target, one.rel])"
    seen = look(chromium, tmp_path, "advice", lambda page: page.evaluate(links), check=False)
    assert seen.answer == [["https://pytorch.org/docs/stable/amp.html", "_blank", "noopener noreferrer"]]
    assert "about 1.23 ms a step" in seen.text
    assert "Cannot be told" in seen.text


# ---------------------------------------------------------------- the same figures as the document's

CELLS = """name => [...document.querySelectorAll(`#table-${name} tbody tr`)].map(row =>
  [...row.cells].filter(cell => !cell.matches('.pick')).map(cell => cell.textContent.replaceAll(',', '')))"""


def figures(cells: list[str]) -> list[float]:
    return [float(one) for one in cells]


def test_the_rows_are_those_of_the_document(chromium: browser.Chromium, tmp_path: Path) -> None:
    def rows(page: Page) -> dict[str, list[list[str]]]:
        found = {}
        for view, table in (("ops", "ops"), ("kernels", "kernels"), ("gpus", "gpus"), ("modules", "modules")):
            page.evaluate("view => tracePage.go(view)", view)
            page.locator(f"#table-{table} tbody tr").first.wait_for()
            found[table] = page.evaluate(CELLS, table)
        return found

    tables = look(chromium, tmp_path, "ops", rows, check=False).answer
    document = opened().document
    ops = sorted(document.ops, key=lambda one: -one.gpu_us)
    assert figures([row[0] for row in tables["ops"]]) == pytest.approx([one.gpu_us for one in ops[:10]], abs=0.0006)
    kernels = sorted(document.kernels, key=lambda one: -one.total_us)[:10]
    assert [row[0] for row in tables["kernels"]][:3] == [one.name.replace(",", "") for one in kernels[:3]]
    assert [row[2] for row in tables["kernels"]] == [str(one.calls) for one in kernels]
    for row, device in zip(tables["gpus"], document.file.devices, strict=True):
        assert row[:4] == [str(device.device), device.name, device.compute_capability, str(device.sms)]
        assert float(row[4]) == pytest.approx(device.utilization_percent, abs=0.051)
        assert [row[6], row[8]] == [str(device.kernels), str(device.memory_operations)]
        times = [device.kernel_time_us, device.memory_time_us, device.busy_us, device.span_us]
        assert figures([row[7], row[9], row[10], row[11]]) == pytest.approx(times, abs=0.0006)
    modules = [one.module.replace(",", "") for one in document.modules]
    shown = [path if not place else path.rpartition("/")[2] for place, path in enumerate(modules)]
    assert [row[0] for row in tables["modules"]] == shown


@pytest.mark.parametrize("column", ["Module", "Calls", "GPU time (µs)", "CPU time (µs)"])
def test_modules_are_a_tree_by_whatever_they_are_sorted(
    chromium: browser.Chromium, tmp_path: Path, column: str
) -> None:
    def paths(page: Page) -> list[list[str]]:
        found = []
        head = page.get_by_role("columnheader", name=column).first
        for order in ("descending", "ascending"):
            head.click()
            page.locator(f'#table-modules th[aria-sort="{order}"]', has_text=column).wait_for()
            found.append(page.evaluate("[...document.querySelectorAll('#table-modules .depth')].map(one => one.title)"))
        return found

    profile = opening.open_trace(TESTS / "traces/recorded/gpt-stacks.json.gz")
    content = pages.html(profile.profile, profile.document)
    orders = look(chromium, tmp_path, "modules", paths, content=content, check=False).answer
    assert orders[0] != orders[1] or column == "Calls"
    for order in orders:
        assert sorted(order) == sorted(one.module for one in profile.document.modules)
        for above, path in itertools.pairwise(order):
            outer = path.rpartition("/")[0]
            assert not outer or above == outer or above.startswith(f"{outer}/"), (above, path)


def test_the_kernels_of_an_iteration_are_those_of_the_document(chromium: browser.Chromium, tmp_path: Path) -> None:
    lead = look(chromium, tmp_path, "by-iteration?iteration=2", check=False).text
    devices = opened().profile.gpu
    want = int((devices.iteration == 2).sum())
    assert f"The {want} kernels and memory operations of iteration 2 (ProfilerStep#2)." in lead


# ---------------------------------------------------------------- public profiles, no part of the project

FOLDER = os.environ.get("GPUPREP_PUBLIC_TRACES", "")
FILES = sorted(one for kind in ("*.json.gz", "*.sqlite") for one in Path(FOLDER).glob(kind)) if FOLDER else []
PUBLIC_VIEWS = ("dashboard", "op-types", "ops?op=1", "by-op?iteration=0", "gpus", "modules", "advice", "roofs")

public = pytest.mark.skipif(not FILES, reason="GPUPREP_PUBLIC_TRACES names no folder with profiles")


@public
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_page_of_a_public_profile_has_no_fault(chromium: browser.Chromium, tmp_path: Path, file: Path) -> None:
    opened = opening.open_trace(file)
    content = pages.html(opened.profile, opened.document)
    events = opened.profile.trace.gpu.start.size + opened.profile.trace.ops.start.size
    assert events > 100_000 or len(content) <= 3_000_000
    assert len(content) <= 15_000_000
    for packed in re.findall(r'octet-stream" id="[a-z]+">([^<]*)<', content):
        assert b"must-never-be-shown" not in gzip.decompress(base64.b64decode(packed)), "of the recorded environment"
    for view in PUBLIC_VIEWS:
        for width in (browser.NARROW, browser.WIDE):
            assert (
                tracepages.look(
                    chromium, tmp_path, view, content=content, width=width, check=width == browser.WIDE
                ).faults()
                == []
            )
