"""The view of all ranks in the page, in a real Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import browser
import pytest
import tracesteps
from manyranks import job

from gpuprep.trace import opening
from gpuprep.trace import page as pages

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = '<img src=x onerror="window.broken=1"></script><b>'


def made(folder: Path, name: str = "", room: int | None = None) -> Path:
    traces = job()
    for trace in traces:
        for event in trace.events:
            if name and event["name"] == "record_param_comms":
                event["args"]["Process Group Name"] = name
        trace.write(folder)
    target = folder / "page.html"
    target.write_text(tracesteps.page_of_ranks(folder, room), encoding="utf-8")
    return target


@pytest.mark.parametrize(("width", "dark"), browser.FEW_LOOKS)
def test_the_view_says_who_waits_for_whom(chromium: browser.Chromium, tmp_path: Path, width: int, dark: bool) -> None:
    page = made(tmp_path)
    seen = chromium.visit(
        f"{page.as_uri()}#/ranks",
        width=width,
        dark=dark,
        do=lambda page: page.wait_for_selector("#content h1"),
        picture=tmp_path / f"{width}-{dark}.png",
    )
    assert seen.faults() == []
    for words in (
        "3 of 3 ranks",
        "Rank 2 enters collectives last: in 3 of 3 steps the others waited longest for it, 0.80 ms a step (8 % of it).",
        "Clocks: the ranks' own clocks agree",
        "all_reduce",
        "4.89",
        "ProfilerStep#2",
        "800.000 (8.0 %)",
    ):
        assert words in seen.text, words


def own_work(page: Page) -> float:
    """GPU time of the kernel that takes another time in each rank, µs a call."""
    assert page.locator("#table-kernels tbody tr", has_text="own_work").count() == 1
    found: float = page.evaluate("tracePage.state.tables.kernels.find(one => one.name === 'own_work').average_us")
    return found


def shown(page: Page, rank: int) -> None:
    page.locator("#range", has_text=f"Rank {rank}.").wait_for()


def test_every_rank_can_be_chosen(chromium: browser.Chromium, tmp_path: Path) -> None:
    """By the list beside the views, by its row of the view Ranks, by the address, and back again."""

    def look(page: Page) -> list[object]:
        page.wait_for_selector("#rank")
        assert page.inner_text(".bar .name") == tmp_path.name
        seen: list[object] = [page.locator("#rank").inner_text().split("\n"), own_work(page)]
        page.focus("#rank")
        page.select_option("#rank", "1")
        shown(page, 1)
        seen += [own_work(page), page.evaluate("document.activeElement.id"), page.inner_text("#range")]
        page.evaluate("location.hash = '#/ranks?rank=1'")
        page.get_by_role("button", name="Show rank 2").click()
        shown(page, 2)
        page.evaluate("location.hash = '#/kernels?rank=2&iterations=1-2'")
        page.wait_for_selector("#table-kernels")
        seen += [own_work(page), page.inner_text("#range"), page.inner_text("#navigation")]
        page.select_option("#rank", "0")
        shown(page, 0)
        seen += [own_work(page), page.inner_text("#range")]
        page.go_back()
        shown(page, 2)
        seen.append(own_work(page))
        for nonsense in ("rank=7", "rank=-1", "rank=1e1", "rank="):
            page.evaluate(f"location.hash = '#/kernels?{nonsense}'")
            shown(page, 0)
            seen.append(own_work(page))
            page.evaluate("location.hash = '#/kernels?rank=2'")
            shown(page, 2)
        return seen

    seen = chromium.visit(f"{made(tmp_path).as_uri()}#/kernels", do=look, width=browser.WIDE, dark=False)
    assert seen.faults() == []
    names, *rest = seen.answer
    assert names == ["Rank 0", "Rank 1", "Rank 2, straggler"]
    first, second, focus, range_, third, ranged, navigation, again, kept, back, *nonsense = rest
    assert (first, second, third, again, back) == (2980, 3080, 3880, 2980, 3880)
    assert (focus, range_) == ("rank", "Rank 1. Iterations 0 to 2 of 3")
    assert (ranged, kept) == ("Rank 2. Iterations 1 to 2 of 3", "Rank 0. Iterations 1 to 2 of 3")
    assert "rank2.json" in navigation
    assert nonsense == [2980] * 4


def test_a_page_that_has_no_room_for_all_ranks_says_which(chromium: browser.Chromium, tmp_path: Path) -> None:
    def look(page: Page) -> str:
        page.get_by_role("button", name="Show rank 1").click()
        return page.inner_text("#details")

    path = made(tmp_path, room=1)  # not even the sums of a second rank
    size = path.stat().st_size
    seen = chromium.visit(f"{path.as_uri()}#/ranks", do=look, width=browser.WIDE, dark=False)
    assert "No room in this page for the profile of rank 1, 2." in seen.text
    assert "Rank 1 (not in this page)" in seen.text
    assert "`gpuprep trace serve` with the folder of the ranks shows it." in seen.answer
    assert seen.faults() == []
    assert size < made(tmp_path, room=10_850_000).stat().st_size


def test_the_straggler_is_among_the_recommendations(chromium: browser.Chromium, tmp_path: Path) -> None:
    seen = chromium.visit(f"{made(tmp_path).as_uri()}#/advice", width=browser.WIDE, dark=False)
    assert "Rank 2 enters most collectives last" in seen.text


def test_a_page_of_one_profile_has_no_such_view(chromium: browser.Chromium, tmp_path: Path) -> None:
    one = opening.open_trace(job()[0].write(tmp_path))
    page = tmp_path / "page.html"
    page.write_text(pages.html(one.profile, one.document), encoding="utf-8")
    seen = chromium.visit(f"{page.as_uri()}#/ranks", width=browser.WIDE, dark=False)
    assert "Ranks" not in seen.text


def test_names_of_groups_are_inert(chromium: browser.Chromium, tmp_path: Path) -> None:
    seen = chromium.visit(f"{made(tmp_path, HOSTILE).as_uri()}#/ranks", width=browser.WIDE, dark=False)
    assert seen.faults() == []
    assert HOSTILE in seen.text
