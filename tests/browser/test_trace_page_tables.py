"""The controls of the tables in a real browser: filters, order, pages, long cells, exports; and how fast they are."""

from __future__ import annotations

import csv
import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import browser
import pytest
from tracepages import EVIL, LONG, STEPS, look, opened

if TYPE_CHECKING:
    from playwright.sync_api import Page

MANY = 100_000
SECONDS = 0.3  # for a sort or a filter of that many rows
TRIES = 12
SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


def info(page: Page, table: str) -> str:
    return page.locator(f"#table-{table}_info").inner_text()


def column(page: Page, table: str, place: int) -> list[str]:
    return page.locator(f"#table-{table} tbody tr td:nth-child({place})").all_inner_texts()


def settled(page: Page, table: str, words: str) -> str:
    """Waits for the line below a table."""
    page.locator(f"#table-{table}_info", has_text=words).wait_for()
    return info(page, table)


# ---------------------------------------------------------------- filters


def test_a_search_shows_the_rows_with_the_text_in_any_column(chromium: browser.Chromium, tmp_path: Path) -> None:
    def search(page: Page) -> list[Any]:
        everything = info(page, "ops")
        page.get_by_label("Search Ops").fill("ADDMM")
        page.locator("#table-ops_info", has_text="of ").wait_for()
        page.locator("#table-ops_info", has_text="rows)").wait_for()
        return [everything, info(page, "ops"), column(page, "ops", 4)]

    everything, found, names = look(chromium, tmp_path, "ops", search, check=False).answer
    ops = opened().document.ops
    want = [one for one in ops if "addmm" in f"{one.name} {one.type} {one.stack}".lower()]
    assert everything == f"Showing 1 to {min(10, len(ops))} of {len(ops)}"
    assert found == f"Showing 1 to {len(want)} of {len(want)} (of {len(ops)} rows)"
    assert names
    assert all("addmm" in name.lower() for name in names)


@pytest.mark.parametrize(
    ("label", "text", "holds"),
    [
        ("Filter Could use Tensor Cores", "1", lambda one: one.eligible),
        ("Filter Could use Tensor Cores", "0", lambda one: not one.eligible),
        ("Filter Kernel calls", ">5", lambda one: one.kernel_calls > 5),
        ("Filter Kernel calls", "<= 5", lambda one: one.kernel_calls <= 5),
        ("Filter Kernel calls", "=0", lambda one: one.kernel_calls == 0),
        ("Filter Op type", "aten::MM", lambda one: "aten::mm" in one.type),
        ("Filter Op name", "no such op", lambda one: "no such op" in one.name),
    ],
)
def test_a_column_is_filtered_by_the_box_below_its_head(
    chromium: browser.Chromium, tmp_path: Path, label: str, text: str, holds: Callable[[Any], bool]
) -> None:
    ops = opened().document.ops
    want = sum(map(holds, ops))
    words = f"Showing {1 if want else 0} to {min(10, want)} of {want} (of {len(ops)} rows)"

    def filtered(page: Page) -> str:
        page.get_by_label(label).fill(text)
        return settled(page, "ops", words)

    seen = look(chromium, tmp_path, "ops", filtered)
    assert seen.faults() == []
    assert 0 <= want < len(ops)
    assert seen.answer == words


def test_filters_of_several_columns_hold_together(chromium: browser.Chromium, tmp_path: Path) -> None:
    ops = opened().document.ops
    want = sum("aten" in one.type and one.kernel_calls > 0 and not one.using_tensor_cores for one in ops)

    def filtered(page: Page) -> str:
        page.get_by_label("Filter Op type").fill("aten")
        page.get_by_label("Filter Kernel calls").fill(">0")
        page.get_by_label("Filter Uses Tensor Cores").fill("0")
        return settled(page, "ops", f"of {want} ")

    assert look(chromium, tmp_path, "ops", filtered, check=False).answer.startswith(
        f"Showing 1 to {min(10, want)} of {want} "
    )


def test_kernels_that_do_not_tell_are_found_by_a_question_mark(chromium: browser.Chromium, tmp_path: Path) -> None:
    kernels = opened().document.kernels
    want = {
        text: sum(one.tensor_cores == told for one in kernels)
        for text, told in (("1", "yes"), ("0", "no"), ("?", "unknown"))
    }

    def filtered(page: Page) -> None:
        for text, rows in want.items():
            page.get_by_label("Filter Uses Tensor Cores").fill(text)
            settled(page, "kernels", f"of {rows} (")

    look(chromium, tmp_path, "kernels", filtered, check=False)
    assert sum(want.values()) == len(kernels)
    assert all(want.values())


# ---------------------------------------------------------------- order and pages


def test_numbers_are_sorted_the_greatest_first_and_texts_from_a(chromium: browser.Chromium, tmp_path: Path) -> None:
    def sort(page: Page) -> list[list[str]]:
        head = page.locator("#table-ops thead th", has_text="Calls").first
        found = []
        for order in ("descending", "ascending"):
            head.click()
            page.locator(f"#table-ops th[aria-sort={order}]", has_text="Calls").first.wait_for()
            found.append(column(page, "ops", 7))
        page.get_by_label("Filter Op type").fill("aten")
        settled(page, "ops", "rows)")
        names = page.locator("#table-ops thead th", has_text="Op type")
        names.get_by_role("button").press("Enter")
        page.locator("#table-ops th[aria-sort=ascending]", has_text="Op type").wait_for()
        return [*found, column(page, "ops", 6)]

    falling, rising, names = look(chromium, tmp_path, "ops", sort, check=False).answer
    calls = sorted(one.calls for one in opened().document.ops)
    assert falling == [f"{one:,}" for one in calls[::-1][:10]]
    assert rising == [f"{one:,}" for one in calls[:10]]
    assert len(set(names)) > 2
    assert names == sorted(names, key=str.lower)


def test_a_page_has_as_many_rows_as_are_chosen(chromium: browser.Chromium, tmp_path: Path) -> None:
    total = len(opened().document.ops)

    def lengths(page: Page) -> list[Any]:
        list_ = page.locator("#table-ops_wrapper select").first
        found: list[Any] = [list_.locator("option").all_inner_texts()]
        for length in (25, 50, 100, 10):
            list_.select_option(str(length))
            found.append(settled(page, "ops", f"1 to {min(length, total)} of"))
        page.locator("#table-ops_wrapper .dt-paging-button.next").click()
        found.append(settled(page, "ops", "11 to"))
        page.locator("#table-ops_wrapper .dt-paging-button.previous").click()
        found.append(settled(page, "ops", "Showing 1 to"))
        return found

    seen = look(chromium, tmp_path, "ops", lengths)
    assert seen.faults() == []
    assert seen.answer[0] == ["10", "25", "50", "100"]
    assert seen.answer[-2] == f"Showing 11 to {min(20, total)} of {total}"


def test_a_long_cell_shows_more_and_less(chromium: browser.Chromium, tmp_path: Path) -> None:
    def toggle(page: Page) -> list[Any]:
        page.get_by_label("Filter Kernel name").fill("cutlass")
        cell = page.locator("#table-kernels td", has_text="cutlass").first
        settled(page, "kernels", "of 1 ")
        found: list[Any] = [cell.inner_text()]
        cell.get_by_role("button").press("Enter")
        found += [cell.inner_text(), cell.get_by_role("button").get_attribute("aria-expanded")]
        cell.get_by_role("button").click()
        return [*found, cell.inner_text(), page.locator(".picked").count()]

    short, long, expanded, again, picked = look(chromium, tmp_path, "kernels", toggle, check=False).answer
    assert len(LONG) > 100
    assert short.startswith(LONG[:100])
    assert LONG not in short
    assert short.endswith("See more")
    assert long == f"{LONG} See less"
    assert expanded == "true"
    assert (again, picked) == (short, 0), "the button is not a click on the row"


def test_the_order_and_filters_stay_when_the_range_changes(chromium: browser.Chromium, tmp_path: Path) -> None:
    def change(page: Page) -> list[Any]:
        page.get_by_label("Filter Op type").fill("aten::mm")
        settled(page, "ops", "rows)")
        page.evaluate("tracePage.choose({ start: 1, stop: 2 })")
        settled(page, "ops", "rows)")
        return [page.get_by_label("Filter Op type").input_value(), set(column(page, "ops", 6))]

    assert look(chromium, tmp_path, "ops", change, check=False).answer == ["aten::mm", {"aten::mm"}]


# ---------------------------------------------------------------- exports


def exported(page: Page, label: str) -> bytes:
    """Of the table of op types, with a filter that leaves what is not of aten."""
    page.get_by_label("Filter Op type").fill("e")
    page.get_by_label("Filter No. ops").fill(">0")
    rows = [one for one in opened().document.op_types if "e" in one.type.lower() and one.ops > 0]
    settled(page, "op-types", f"of {len(rows)}")
    with page.expect_download() as waiting:
        page.get_by_role("button", name=label, exact=True).click()
    assert (
        waiting.value.suggested_filename == f"My_b_profile_b_-op-types.{'xlsx' if label == 'Excel' else label.lower()}"
    )
    return Path(waiting.value.path()).read_bytes()


def wanted() -> list[Any]:
    rows = [one for one in opened().document.op_types if "e" in one.type.lower() and one.ops > 0]
    return sorted(rows, key=lambda one: -one.gpu_us.total)


def test_csv_has_the_filtered_rows_and_the_profile_s_name(chromium: browser.Chromium, tmp_path: Path) -> None:
    data = look(chromium, tmp_path, "op-types", lambda page: exported(page, "CSV"), check=False).answer
    heads, *rows = csv.reader(io.StringIO(data.decode()))
    assert heads[:4] == ["Profile", "Op type", "No. ops", "No. calls"]
    assert {row[0] for row in rows} == {"My <b>profile</b>"}
    assert sorted(int(row[3]) for row in rows) == sorted(one.calls for one in wanted())
    totals = [float(row[heads.index("Total GPU time (µs)")]) for row in rows]
    assert totals == pytest.approx([one.gpu_us.total for one in wanted()])
    formulas = [row[1] for row in rows if "HYPERLINK" in row[1]]
    assert formulas == [f"'{EVIL[4]}"], "no cell may run"


def test_json_has_the_filtered_rows_and_what_they_are_of(chromium: browser.Chromium, tmp_path: Path) -> None:
    found = json.loads(look(chromium, tmp_path, "op-types", lambda page: exported(page, "JSON"), check=False).answer)
    assert (found["profile"], found["table"]) == ("My <b>profile</b>", "Op types")
    assert found["iterations"] == {"start": 0, "stop": STEPS - 1}
    assert [row["gpu_us_total"] for row in found["rows"]] == pytest.approx([one.gpu_us.total for one in wanted()])
    assert {row["type"] for row in found["rows"]} >= {EVIL[0], EVIL[4]}
    assert not any("\x1b" in row["type"] or "\u202e" in row["type"] for row in found["rows"])


def test_excel_is_a_workbook_of_texts_and_numbers(chromium: browser.Chromium, tmp_path: Path) -> None:
    data = look(chromium, tmp_path, "op-types", lambda page: exported(page, "Excel"), check=False).answer
    with zipfile.ZipFile(io.BytesIO(data)) as book:
        assert book.testzip() is None
        for name in book.namelist():
            ElementTree.fromstring(book.read(name))
        rows = ElementTree.fromstring(book.read("xl/worksheets/sheet1.xml")).findall(f".//{SHEET}row")
    cells = [["".join(cell.itertext()) for cell in row] for row in rows]
    assert cells[0] == ["My <b>profile</b>", "Op types"]
    assert cells[1][:3] == ["Op type", "No. ops", "No. calls"]
    assert [int(row[2]) for row in cells[2:]] == [one.calls for one in wanted()]
    assert not any(cell.find(f"{SHEET}f") is not None for row in rows for cell in row), "no formula"
    kinds = {cell.get("t", "n") for row in rows[2:] for cell in row}
    assert kinds == {"inlineStr", "n"}


def test_the_filtered_rows_are_copied(chromium: browser.Chromium, tmp_path: Path) -> None:
    def copy(page: Page) -> list[str]:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.get_by_label("Filter Kernel calls").fill(">0")
        settled(page, "ops", "rows)")
        page.get_by_role("button", name="Copy").click()
        page.get_by_text("rows copied").wait_for()
        return [page.locator(".exports [role=status]").inner_text(), page.evaluate("navigator.clipboard.readText()")]

    said, text = look(chromium, tmp_path, "ops", copy, check=False).answer
    want = sum(one.kernel_calls > 0 for one in opened().document.ops)
    title, heads, *rows = text.split("\n")
    assert said == f"{want} rows copied"
    assert len(rows) == want
    assert title == "My <b>profile</b>\tOps"
    assert heads.startswith("GPU time (µs)\t")
    assert len({line.count("\t") for line in [heads, *rows]}) == 1


def test_print_puts_the_filtered_rows_of_all_pages_on_paper(chromium: browser.Chromium, tmp_path: Path) -> None:
    want = sum(one.kernel_calls <= 5 for one in opened().document.ops)
    assert 10 < want < len(opened().document.ops), "more than a page, less than all"

    def paper(page: Page) -> list[Any]:
        page.evaluate("window.print = () => {}")
        page.get_by_label("Filter Kernel calls").fill("<=5")
        settled(page, "ops", f"of {want} (")
        page.get_by_role("button", name="Print").click()
        page.emulate_media(media="print")
        shown = page.locator("body > *:visible").evaluate_all("all => all.map(one => one.id)")
        found = [shown, page.locator("#paper h1").inner_text(), page.locator("#paper tbody tr").count(), page.pdf()[:5]]
        page.emulate_media(media="screen")
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        return [*found, page.locator("#paper").count()]

    shown, title, rows, pdf, after = look(chromium, tmp_path, "ops", paper, check=False).answer
    assert shown == ["paper"]
    assert title == "My <b>profile</b>: Ops"
    assert rows == want
    assert pdf == b"%PDF-"
    assert after == 0


@pytest.mark.parametrize("view", ["dashboard", "op-types", "gpus"])
def test_a_view_prints_without_what_only_a_screen_needs(chromium: browser.Chromium, tmp_path: Path, view: str) -> None:
    def paper(page: Page) -> list[int]:
        page.emulate_media(media="print")
        return [page.locator(f"{one}:visible").count() for one in ("nav", ".exports", ".filters", ".info", "h1")]

    assert look(chromium, tmp_path, view, paper, check=False).answer == [0, 0, 0, 0, 1]


# ---------------------------------------------------------------- many rows

TIMED = """async count => {
  const page = tracePage, place = document.getElementById("content");
  place.replaceChildren();
  const name = row => `aten::op_${row % 900} (ampere_fp16_s16816gemm_${(row * 7919) % 100003}_kernel)`;
  const number = factor => row => ((row * factor) % 1000003) / 7;
  const columns = [{ key: "name", title: "Name", get: name },
    { key: "module", title: "Module", get: row => `net/layer${row % 50}` },
    { key: "tc", title: "TC", kind: "bool", get: row => row % 7 === 0 },
    ...[7919, 104729, 1299709, 15485863].map((factor, at) =>
      ({ key: `n${at}`, title: `N${at}`, kind: "number", digits: 3, get: number(factor) }))];
  const { api } = page.table(place, { name: "many", title: "Many", count, columns });
  const frame = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)));
  const timed = async work => {
    await frame();
    const start = performance.now();
    work();
    await frame();
    return (performance.now() - start) / 1000;
  };
  const fields = place.querySelectorAll(".filters input"), search = place.querySelector(".search input");
  // What the waiting behind each key press calls at its end.
  const type = (field, text) => { field.value = text; field.dispatchEvent(new Event("input")); api.page(0).draw(); };
  const seconds = {};
  seconds["sort numbers"] = await timed(() => api.order([3, "desc"]).draw());
  seconds["sort numbers again"] = await timed(() => api.order([3, "asc"]).draw());
  seconds["sort texts"] = await timed(() => api.order([0, "asc"]).draw());
  seconds["sort modules"] = await timed(() => api.order([1, "desc"]).draw());
  seconds["search"] = await timed(() => type(search, "gemm_77"));
  seconds["search again"] = await timed(() => type(search, "gemm_777"));
  seconds["search digits"] = await timed(() => type(search, "4711"));
  seconds["no search"] = await timed(() => type(search, ""));
  seconds["filter texts"] = await timed(() => type(fields[0], "op_17"));
  seconds["filter numbers"] = await timed(() => type(fields[3], ">70000"));
  seconds["filter ticks"] = await timed(() => type(fields[2], "1"));
  // The waiting behind each key press (120 ms) goes back to the first page. Timers end in the order of their moments.
  await new Promise(done => setTimeout(done, 200));
  seconds["next page"] = await timed(() => api.page("next").draw("page"));
  return [seconds, document.getElementById("table-many_info").textContent];
}"""


def rows_of_many(chromium: browser.Chromium, folder: Path, enough: Callable[[dict[str, float]], bool]) -> list[Any]:
    """(seconds of each step, the line below the table) of tries, until the best of each step is quick enough."""

    def tries(page: Page) -> list[Any]:
        runs = [page.evaluate(TIMED, MANY)]
        while len(runs) < TRIES and not enough(best_of(runs)):
            runs.append(page.evaluate(TIMED, MANY))
        return runs

    found: list[Any] = look(chromium, folder, "op-types", tries, check=False).answer
    return found


def best_of(runs: list[Any]) -> dict[str, float]:
    return {name: min(seconds[name] for seconds, _ in runs) for name in runs[0][0]}


def test_100_000_rows_are_filtered(chromium: browser.Chromium, tmp_path: Path) -> None:
    runs = rows_of_many(chromium, tmp_path, lambda _: True)
    rows = [
        row
        for row in range(MANY)
        if f"op_{row % 900}".startswith("op_17") and row % 7 == 0 and ((row * 7919) % 1000003) / 7 > 70000
    ]
    assert runs[0][1] == f"Showing 11 to 20 of {len(rows):,} (of {MANY:,} rows)"


@pytest.mark.only_all
def test_100_000_rows_are_sorted_and_filtered_in_tenths_of_a_second(chromium: browser.Chromium, tmp_path: Path) -> None:
    """The best of some tries, at most TRIES: other work on this machine only adds to it."""
    best = best_of(rows_of_many(chromium, tmp_path, lambda best: max(best.values()) <= SECONDS))
    print({name: round(value, 3) for name, value in best.items()})
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # other work on this machine takes its share
    assert {name: value for name, value in best.items() if value > SECONDS * busy} == {}
