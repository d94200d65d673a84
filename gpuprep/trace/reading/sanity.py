"""Drops or clips impossible timestamps, and counts them. The columns begin at 0 afterwards."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from gpuprep.trace.columns import NONE, GpuKind
from gpuprep.trace.reading.events import NO_TIME

Array = np.ndarray[Any, Any]
Columns = dict[str, Array]

# A time of 0 is a fault where the other times are counted from 1970 or from a base: beyond this, 1000 s.
_FAR_NS = 10**12
NO_TIME_BELOW = NO_TIME // 2  # NO_TIME, also after roundings
_SAMPLE = 100_000  # times of a table that tell where its middle is
_YEAR_NS = 366 * 86_400 * 10**9
# Work of one stream runs one after the other. The next kernel may start early (programmatic dependent launch), but does
# not end before. An event that ends after one that follows it, by more than this runs past the next one's start, and is
# this many times longer than others of its name, has a wrong end: ROCm writes such (TraceLens issue 669).
_OVERRUN_NS = 10**6
_TIMES_LONGER = 10
_TIMES_LONGER_THAN_STREAM = 100  # if its name is rare


def clean(gpu: Columns, calls: Columns, ops: Columns, memory: Columns, notes: Counter[str], first: int = 2**62) -> int:
    """Drop rows with impossible timestamps, and shift all times so that the first is 0; returns the first time, ns.

    The indices of `ops` must not be in use yet. `first` is the earliest of events that are in none of the columns.
    """
    spans = (gpu, calls, ops)
    everything = [columns["start"][:: len(columns["start"]) // _SAMPLE + 1] for columns in spans]
    middle = _median(np.concatenate(everything))
    for columns in spans:
        wrong = _absurd(columns["start"], columns["end"], middle)
        if wrong.any():
            notes["impossible_times"] += int(wrong.sum())
            _keep(columns, ~wrong)
    wrong = _absurd(memory["time"], memory["time"], middle if any(map(len, everything)) else _median(memory["time"]))
    if wrong.any():
        notes["impossible_times"] += int(wrong.sum())
        _keep(memory, ~wrong)
    order = np.lexsort((gpu["end"], gpu["start"], gpu["stream"], gpu["device"]))
    if twice := _twice(gpu, order):
        notes["events_twice"] += twice
    clipped = _clip(gpu, order)
    if clipped:
        notes["clipped_durations"] += clipped
    zeros = int(((gpu["end"] == gpu["start"]) & (gpu["kind"] == GpuKind.KERNEL)).sum())
    if zeros:
        notes["zero_durations"] += zeros
    times = [(gpu, "start"), (gpu, "end"), (calls, "start"), (calls, "end"), (ops, "start"), (ops, "end")]
    times.append((memory, "time"))
    zero = min((int(columns[key].min()) for columns, key in times if len(columns[key])), default=0)
    if first < zero and zero - first < _YEAR_NS and (first > 0 or zero < _FAR_NS):
        zero = first
    for columns, key in times:
        columns[key] -= zero
    return zero


def count_missing(gpu: Columns, calls: Columns, notes: Counter[str]) -> None:
    """Counts GPU events without the call that launched them. Says where there are no GPU events at all."""
    if not len(gpu["start"]):
        notes["no_gpu_events"] += 1
        return
    # A correlation is unique in its process alone; it has 32 bits.
    known = gpu["process"] >= 0  # the others are counted
    launched, called = ((each["process"].astype(np.int64) << 40) + each["correlation"] for each in (gpu, calls))
    launched = launched[known]
    called = np.sort(called)
    at = np.minimum(np.searchsorted(called, launched), max(len(called) - 1, 0))
    count = int((called[at] != launched).sum()) if len(called) else len(launched)
    if count:
        notes["no_launches"] += count


def _median(times: Array) -> int:
    return min(int(np.median(times)), 2**62) if len(times) else 0


def _absurd(start: Array, end: Array, middle: int) -> Array:
    """A time of 0 or less among real ones, a year away from the others, or longer than a year."""
    # As doubles: a difference of two times may be more than int64 holds.
    begin = start.astype(float)
    wrong: Array = (np.abs(begin - middle) > _YEAR_NS) | (end - begin > _YEAR_NS) | (start < NO_TIME_BELOW)
    return wrong | (start <= 0) if middle > _FAR_NS else wrong


def _twice(gpu: Columns, order: Array) -> int:
    """GPU events that stand in the file once more, as of a file that was joined with itself. Those of 0 ns are ignored:
    old profilers count whole µs. `order`: by device, stream, start, end."""
    same = gpu["end"][order[1:]] > gpu["start"][order[1:]]
    for key in ("device", "stream", "start", "end", "name", "correlation", "graph_node"):
        same &= gpu[key][order[1:]] == gpu[key][order[:-1]]
    return int(same.sum())


def _clip(gpu: Columns, order: Array) -> int:
    """Ends events of corrupt length, in place, where the next one on their stream starts; returns how many."""
    if len(gpu["start"]) < 2:
        return 0
    device, stream, start, end = (gpu[key][order] for key in ("device", "stream", "start", "end"))
    same = (device[1:] == device[:-1]) & (stream[1:] == stream[:-1]) & (start[1:] > start[:-1])
    overruns = np.flatnonzero(same & (stream[:-1] != NONE) & (end[:-1] - start[1:] > _OVERRUN_NS))
    overruns = overruns[_outlasts(device, stream, end, overruns)]
    rows = order[overruns]
    # Nodes of a CUDA graph may run at the same time under the name of one stream.
    alone = ~_of_graphs(gpu, rows)
    overruns, rows = overruns[alone], rows[alone]
    if not len(rows):
        return 0
    lengths = gpu["end"] - gpu["start"]
    usual, times = _usual(gpu["name"], lengths, rows)
    on_stream, _ = _usual((gpu["device"].astype(np.int64) << 40) + gpu["stream"], lengths, rows)
    often = times > 2
    most = np.where(often, usual * _TIMES_LONGER, on_stream * _TIMES_LONGER_THAN_STREAM)
    wrong = lengths[rows] > most
    gpu["end"][rows[wrong]] = start[overruns[wrong] + 1]
    return int(wrong.sum())


def _outlasts(device: Array, stream: Array, end: Array, places: Array) -> Array:
    """Whether the event at each place ends after one that follows it on its stream. By device, stream and start."""
    if not len(places):
        return np.zeros(0, bool)
    borders = np.flatnonzero((device[1:] != device[:-1]) | (stream[1:] != stream[:-1])) + 1
    earliest = end.copy()  # of this event and all that follow
    for begin, until in zip([0, *borders], [*borders, len(end)], strict=True):
        earliest[begin:until] = np.minimum.accumulate(end[begin:until][::-1])[::-1]
    outlasts: Array = end[places] > earliest[places + 1]
    return outlasts


def _of_graphs(gpu: Columns, rows: Array) -> Array:
    """Whether each row is a node of a CUDA graph: newer profilers number nodes; in older traces all of a launch share
    its correlation."""
    if not len(rows):
        return np.zeros(0, bool)
    launches = (gpu["process"].astype(np.int64) << 40) + gpu["correlation"]
    distinct, counts = np.unique(launches, return_counts=True)
    shared = counts[np.searchsorted(distinct, launches[rows])] > 1
    of_graphs: Array = (gpu["graph_node"][rows] >= 0) | (shared & (gpu["correlation"][rows] > 0))
    return of_graphs


def _usual(groups: Array, lengths: Array, rows: Array) -> tuple[Array, Array]:
    """The median length in the group of each of `rows`, and how many are in it."""
    order = np.lexsort((lengths, groups))
    distinct, first, counts = np.unique(groups[order], return_index=True, return_counts=True)
    middle = (lengths[order][first + (counts - 1) // 2] + lengths[order][first + counts // 2]) / 2
    at = np.searchsorted(distinct, groups[rows])
    return middle[at], counts[at]


def _keep(columns: Columns, rows: Array) -> None:
    for name in columns:
        columns[name] = columns[name][rows]
