"""Where PASS ends for memory, host link and peers of each board: 80 to 92 % of healthy boards, where they are known."""

from __future__ import annotations

import pytest
from verdict_table_links import rows

from gpuprep import catalogue

pytestmark = pytest.mark.xdist_group("verdict_table")  # its rows are found once

LOWEST, HIGHEST = 80, 92


def test_pass_ends_between_80_and_92_percent_of_sound_boards() -> None:
    wrong = [row for row in rows() if row.known and not LOWEST <= row.percent <= HIGHEST]
    assert wrong == []


def test_every_row_says_why_and_none_passes_at_any_speed() -> None:
    assert all(row.reason and row.status in ("WARN", "FAIL", "UNKNOWN") and row.percent >= 50 for row in rows())
    assert len({(row.board, row.what) for row in rows()}) == len(rows())


@pytest.mark.parametrize(("what", "least"), [("memory", 45), ("host link", 60), ("peers", 15)])
def test_most_boards_are_in_the_table(what: str, least: int) -> None:
    found = {row.board for row in rows() if row.what == what and row.known}
    assert found <= set(catalogue.boards())
    assert len(found) >= least
