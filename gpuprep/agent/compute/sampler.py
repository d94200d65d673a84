"""NVML's readings while something runs: a thread reads a few GPUs some twenty times a second.

A short piece of work still gets two readings: the first is taken before `with` goes on, the last when it ends.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Dict, List, Protocol, Sequence, Union

from gpuprep.records import Missing

COLUMNS = (
    "graphics_clock_mhz",
    "memory_clock_mhz",
    "video_clock_mhz",
    "power_watts",
    "temperature_c",
    "event_reasons",
    "gpu_utilization_percent",
    "encoder_utilization_percent",
    "decoder_utilization_percent",
)


class Sampled(Protocol):
    """A GPU to sample: `agent.nvml.Gpu`, whose NVML must stay open meanwhile."""

    index: int

    def load(self) -> Dict[str, Any]: ...


class Sampler:
    """`with Sampler(gpus) as sampler: work()`; afterwards it has the figures. `hz` is the wanted rate, 10 or more."""

    def __init__(self, gpus: Sequence[Sampled], hz: float = 20.0) -> None:
        self._gpus = gpus
        self._period = 1 / hz
        self._rows: Dict[int, List[Dict[str, Any]]] = {gpu.index: [] for gpu in gpus}
        self._seconds: List[float] = []
        self._taken = threading.Condition()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sampler", daemon=True)
        self._started = 0.0

    def __enter__(self) -> Sampler:
        self._started = time.monotonic()
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()
        self._sample()

    def _watch(self) -> None:
        due = self._started + self._period
        while not self._done.wait(max(0.0, due - time.monotonic())):
            self._sample()
            due = max(due + self._period, time.monotonic())  # a slow NVML lowers the rate and never makes a burst

    def _sample(self) -> None:
        self._seconds.append(round(time.monotonic() - self._started, 3))
        for gpu in self._gpus:
            self._rows[gpu.index].append(gpu.load())
        with self._taken:
            self._taken.notify_all()

    def wait(self, readings: int) -> None:
        """Wait until every GPU has this many readings; for work that takes no time itself."""
        with self._taken:
            self._taken.wait_for(lambda: all(len(rows) >= readings for rows in self._rows.values()))

    def telemetry(self, index: int) -> Dict[str, Any]:
        """Columns of equal length, None for a failed reading. `hz` is the rate that was reached."""
        rows = self._rows[index]
        span = self._seconds[-1] - self._seconds[0] if self._seconds else 0.0
        table: Dict[str, Any] = {
            "hz": round((len(rows) - 1) / span, 1) if span > 0 else 0.0,
            "seconds": list(self._seconds),
        }
        for column in COLUMNS:
            table[column] = [None if isinstance(row[column], Missing) else row[column] for row in rows]
        return table

    def seconds(self) -> float:
        """Seconds since the start, on the clock of the readings."""
        return time.monotonic() - self._started

    def _values(self, index: int, column: str, since: float = 0.0) -> Union[List[float], Missing]:
        rows = zip(self._rows[index], self._seconds)  # noqa: B905
        readings = [row[column] for row, seconds in rows if seconds >= since]
        good = [value for value in readings if not isinstance(value, Missing)]
        if good:
            return good
        return readings[0] if readings else Missing("not_sampled", "nothing was sampled")

    def mean(self, index: int, column: str, since: float = 0.0) -> Union[float, Missing]:
        """The mean of the readings that succeeded, from second `since` on; Missing with NVML's reason if none did."""
        values = self._values(index, column, since)
        return values if isinstance(values, Missing) else round(sum(values) / len(values), 1)

    def highest(self, index: int, column: str) -> Union[float, Missing]:
        values = self._values(index, column)
        return values if isinstance(values, Missing) else max(values)

    def event_reasons(self, index: int) -> Union[int, Missing]:
        """All event reasons of all readings as one mask; Missing without readings."""
        values = self._values(index, "event_reasons")
        if isinstance(values, Missing):
            return values
        mask = 0
        for value in values:
            mask |= int(value)
        return mask
