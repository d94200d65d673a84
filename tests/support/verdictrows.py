"""How slow may a part of a board be before PASS ends? One row of what the modules verdict_table_* find."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    board: str  # its key
    what: str  # "memory copy", "peers", "decode h264"
    percent: int  # of a healthy board's speed: the highest that is no PASS
    status: str
    reason: str  # the finding that ends PASS
    known: bool = True  # somebody measured healthy boards of this kind; else of a guess
