"""docs/verdicts.md: how slow can each board be before PASS ends? Found with the judge itself.

GPUPREP_UPDATE_GOLDEN=1 writes the page again.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

import pytest
import verdict_table_gemm
import verdict_table_links
import verdict_table_video
from places import ROOT

from gpuprep import catalogue

pytestmark = pytest.mark.xdist_group("verdict_table")  # its rows are found once

PAGE = ROOT / "docs/verdicts.md"
MARK = "<!-- tests/unit/checks/test_verdict_table.py writes what follows -->\n"
PRODUCTS = (verdict_table_gemm.EVERYTHING, "fp64", "fp32", "tf32", "fp16", "fp16 added in fp16", "bf16", "int8", "fp8")
LINKS = ("memory", "memory copy", "memory read", "memory triad", "host link", "peers")
VIDEO = ("decode", "encode")
PUBLISHED = tuple(name for name in PRODUCTS if name != "fp16 added in fp16")
UNCLOCKED = """Figures that somebody published, or a table for `gpuprep judge` without clocks. 100 % is the median of
what was published of healthy boards. A low clock and a slow chip look the same there, so the limits are as wide as
healthy boards differ: a sound T4 was published with 37 % of its FP16 peak (power and heat at 70 W), the usual one has
64 %. Two and more data types are also judged together, by their median (of two, both must be slow).

"""
TIGHT = range(80, 93)  # per cent of healthy boards, where PASS is to end


class Cell(NamedTuple):
    percent: int
    status: str


@cache
def cells() -> dict[str, dict[str, list[Cell]]]:
    """By board and by what was made slower."""
    found: dict[str, dict[str, list[Cell]]] = defaultdict(lambda: defaultdict(list))
    for row in verdict_table_gemm.rows():
        # One per cent more still passes.
        found[row.board][row.what].append(Cell(row.percent + 1, row.status))
    for link in verdict_table_links.rows():
        found[link.board][link.what].append(Cell(link.percent, link.status))
    for engine in verdict_table_video.rows():
        found[engine.board][engine.what.split()[0]].append(Cell(engine.percent + 1, engine.status))
    return {key: dict(found[key]) for key in catalogue.boards() if key in found}


@cache
def unclocked() -> dict[str, dict[str, list[Cell]]]:
    """Of published figures without a clock."""
    found: dict[str, dict[str, list[Cell]]] = defaultdict(lambda: defaultdict(list))
    for row in verdict_table_gemm.unclocked():
        found[row.board][row.what].append(Cell(row.percent + 1, row.status))
    return {key: dict(found[key]) for key in catalogue.boards() if key in found}


def shown(some: Iterable[Cell] | None) -> str:
    """ "87 FAIL"; of several the lowest and the highest, "85 to 90 WARN, FAIL"."""
    every = list(some or ())
    if not every:
        return ""
    low, high = min(one.percent for one in every), max(one.percent for one in every)
    statuses = ", ".join(dict.fromkeys(sorted(one.status for one in every)))
    return f"{low} {statuses}" if low == high else f"{low} to {high} {statuses}"


def table(names: tuple[str, ...], rows: Mapping[str, Mapping[str, list[Cell]]]) -> str:
    lines = [f"| board | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for key, row in rows.items():
        if any(name in row for name in names):
            lines.append(f"| {catalogue.boards()[key].name} | {' | '.join(shown(row.get(n)) for n in names)} |")
    return "\n".join(lines) + "\n"


def outside() -> str:
    """Lines of what ends below or above the range that is aimed at."""
    counts: Counter[tuple[str, bool]] = Counter()
    lines = []
    for key, row in cells().items():
        for name, every in row.items():
            for one in every:
                counts[name, one.percent in TIGHT] += 1
                if one.percent not in TIGHT:
                    lines.append(f"- {catalogue.boards()[key].name}, {name}: {one.percent} % ({one.status})")
    inside = sum(n for (_, tight), n in counts.items() if tight)
    head = f"{inside} of {sum(counts.values())} end between {TIGHT[0]} and {TIGHT[-1]} %."
    return f"{head} The others:\n\n{chr(10).join(dict.fromkeys(lines))}\n" if lines else f"{head}\n"


def generated() -> str:
    parts = [
        ("Matrix products", table(PRODUCTS, cells())),
        ("Matrix products without a clock", UNCLOCKED + table(PUBLISHED, unclocked())),
        ("Memory, host link, copies between GPUs", table(LINKS, cells())),
        ("Video engines", table(VIDEO, cells())),
        ("How many are tight", outside()),
    ]
    return MARK + "".join(f"\n## {title}\n\n{text}" for title, text in parts)


def test_the_page_has_what_the_judge_does() -> None:
    written = PAGE.read_text(encoding="utf-8")
    head = written[: written.index(MARK)]
    if os.environ.get("GPUPREP_UPDATE_GOLDEN"):
        PAGE.write_text(head + generated(), encoding="utf-8")
        written = PAGE.read_text(encoding="utf-8")
    assert written == head + generated(), "run: GPUPREP_UPDATE_GOLDEN=1 pytest tests/unit/checks/test_verdict_table.py"


def test_no_board_is_let_off() -> None:
    """What is known of healthy boards is held to it: a board 15 % slower in all its products never passes."""
    held = [(key, one) for key, row in cells().items() for one in row.get(verdict_table_gemm.EVERYTHING, ())]
    assert held
    assert not [(key, one) for key, one in held if one.percent <= 85]


def test_without_a_clock_together_ends_at_85_and_alone_at_75_where_no_sound_board_is_slower() -> None:
    held = {(key, name): one for key, row in unclocked().items() for name, (one,) in row.items()}
    assert not [place for place, one in held.items() if place[1] == verdict_table_gemm.EVERYTHING and one.percent < 85]
    low = {place for place, one in held.items() if one.percent < 75}
    assert low == {("t4", "fp16"), ("rtx_a6000", "fp32")}  # published at 37 and 39 % of the peak, and sound


def test_the_engines_of_each_board_end_between_80_and_92_percent() -> None:
    rows = verdict_table_video.rows()
    assert len({row.board for row in rows}) >= 45
    assert all(row.percent in TIGHT for row in rows), [row for row in rows if row.percent not in TIGHT]
    assert all(row.status in ("WARN", "FAIL") and row.reason for row in rows)


def test_memory_and_links_end_between_80_and_92_percent_where_healthy_boards_are_known() -> None:
    rows = verdict_table_links.rows()
    assert [row for row in rows if row.known and row.percent not in TIGHT] == []
    assert all(row.reason and row.status in ("WARN", "FAIL", "UNKNOWN") and row.percent >= 50 for row in rows)
    assert len({(row.board, row.what) for row in rows}) == len(rows)


@pytest.mark.parametrize(("what", "least"), [("memory", 45), ("host link", 60), ("peers", 15)])
def test_most_boards_are_in_the_table(what: str, least: int) -> None:
    found = {row.board for row in verdict_table_links.rows() if row.what == what and row.known}
    assert found <= set(catalogue.boards())
    assert len(found) >= least
