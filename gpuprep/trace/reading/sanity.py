"""Times that cannot be: left out or clipped, and counted. The columns begin at 0 afterwards."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from gpuprep.trace.columns import GpuKind

Array = np.ndarray[Any, Any]
Columns = dict[str, Array]

# A time of 0 is a fault where the other times are counted from 1970 or from a base: beyond this, 1000 s.
_FAR_NS = 10**12
_YEAR_NS = 366 * 86_400 * 10**9


def clean(gpu: Columns, calls: Columns, ops: Columns, memory: Columns, notes: Counter[str]) -> int:
    """Leaves out rows with times that cannot be, and moves all times so that the first is 0; what the first was, ns.

    The indices of `ops` must not be in use yet.
    """
    spans = (gpu, calls, ops)
    everything = [columns["start"] for columns in spans if len(columns["start"])]
    middle = int(np.median(np.concatenate(everything))) if everything else 0
    for columns in spans:
        wrong = _absurd(columns["start"], columns["end"], middle)
        if wrong.any():
            notes["impossible_times"] += int(wrong.sum())
            _keep(columns, ~wrong)
    wrong = _absurd(memory["time"], memory["time"], middle if everything else _median(memory["time"]))
    if wrong.any():
        notes["impossible_times"] += int(wrong.sum())
        _keep(memory, ~wrong)
    zeros = int(((gpu["end"] == gpu["start"]) & (gpu["kind"] == GpuKind.KERNEL)).sum())
    if zeros:
        notes["zero_durations"] += zeros
    times = [(gpu, "start"), (gpu, "end"), (calls, "start"), (calls, "end"), (ops, "start"), (ops, "end")]
    times.append((memory, "time"))
    zero = min((int(columns[key].min()) for columns, key in times if len(columns[key])), default=0)
    for columns, key in times:
        columns[key] -= zero
    return zero


def _median(times: Array) -> int:
    return int(np.median(times)) if len(times) else 0


def _absurd(start: Array, end: Array, middle: int) -> Array:
    """A time of 0 or less among real ones, a year away from the others, or longer than a year."""
    wrong: Array = (np.abs(start - middle) > _YEAR_NS) | (end - start > _YEAR_NS)
    return wrong | (start <= 0) if middle > _FAR_NS else wrong


def _keep(columns: Columns, rows: Array) -> None:
    for name in columns:
        columns[name] = columns[name][rows]
