"""The view of all ranks in the page, in a real Chromium."""

from __future__ import annotations

from pathlib import Path

import browser
import pytest
from manyranks import job

from gpuprep.trace.opening import Wish, open_trace
from gpuprep.trace.opening.job import open_job
from gpuprep.trace.page import html

HOSTILE = '<img src=x onerror="window.broken=1"></script><b>'


def made(folder: Path, name: str = "") -> Path:
    traces = job()
    for trace in traces:
        for event in trace.events:
            if name and event["name"] == "record_param_comms":
                event["args"]["Process Group Name"] = name
        trace.write(folder)
    opened = open_job(folder, Wish())
    one = open_trace(opened.first, last_rank=opened.last_rank)
    target = folder / "page.html"
    target.write_text(html(one.profile, one.document, opened.ranks), encoding="utf-8")
    return target


@pytest.mark.parametrize(("width", "dark"), browser.LOOKS)
def test_the_view_says_who_waits_for_whom(chromium: browser.Chromium, tmp_path: Path, width: int, dark: bool) -> None:
    page = made(tmp_path)
    seen = chromium.visit(f"{page.as_uri()}#/ranks", width=width, dark=dark, picture=tmp_path / f"{width}-{dark}.png")
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


def test_the_straggler_is_among_the_recommendations(chromium: browser.Chromium, tmp_path: Path) -> None:
    seen = chromium.visit(f"{made(tmp_path).as_uri()}#/advice", width=browser.WIDE, dark=False)
    assert "Rank 2 enters most collectives last" in seen.text


def test_a_page_of_one_profile_has_no_such_view(chromium: browser.Chromium, tmp_path: Path) -> None:
    one = open_trace(job()[0].write(tmp_path))
    page = tmp_path / "page.html"
    page.write_text(html(one.profile, one.document), encoding="utf-8")
    seen = chromium.visit(f"{page.as_uri()}#/ranks", width=browser.WIDE, dark=False)
    assert "Ranks" not in seen.text


def test_names_of_groups_are_inert(chromium: browser.Chromium, tmp_path: Path) -> None:
    seen = chromium.visit(f"{made(tmp_path, HOSTILE).as_uri()}#/ranks", width=browser.WIDE, dark=False)
    assert seen.faults() == []
    assert HOSTILE in seen.text
