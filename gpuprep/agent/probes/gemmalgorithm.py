"""Converts cuBLASLt's names of an algorithm's parts to numbers."""

from __future__ import annotations

import math
import re
from typing import Any, Dict, Optional, Tuple


def described(tile: str, stages: str, split_k: int, waves: float) -> Dict[str, Any]:
    """The names as numbers: TILE_128x256 is 128 rows of D by 256 columns; STAGES_64x4 is four stages of 64 in k.

    A part without a number (TILE_UNDEFINED, "AUTO") is None.
    """
    rows, columns = _numbers(tile, "TILE")
    depth, count = _numbers(stages, "STAGES")
    return {
        "tile": tile,
        "tile_m": rows,
        "tile_n": columns,
        "tile_k": depth,
        "stages": count,
        "split_k": max(1, split_k),
        "waves": waves if math.isfinite(waves) else None,
    }


def mirrored(algorithm: Dict[str, Any]) -> Dict[str, Any]:
    """An algorithm for the transpose of D, with its tile again as rows of D by columns of D."""
    rows, columns = algorithm["tile_n"], algorithm["tile_m"]
    tile = algorithm["tile"] if rows is None else f"TILE_{rows}x{columns}"
    return {**algorithm, "tile": tile, "tile_m": rows, "tile_n": columns}


def _numbers(name: str, kind: str) -> Tuple[Optional[int], Optional[int]]:
    match = re.match(rf"{kind}_(\d+)x(\d+|AUTO)$", name)
    if match is None:
        return None, None
    return int(match[1]), None if match[2] == "AUTO" else int(match[2])
