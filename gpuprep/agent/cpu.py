"""How busy the machine's CPUs were while something ran, from /proc/stat."""

from __future__ import annotations

from typing import List, Tuple

from gpuprep.agent.run import read_text
from gpuprep.records import Float, Missing

STAT = "/proc/stat"
# Columns of the line "cpu": user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice (in user already).
IDLE, IO_WAIT, COUNTED = 3, 4, 8


class CpuUse:
    """`with CpuUse() as use: work()`, then per cent of all CPUs together."""

    def __init__(self, path: str = STAT) -> None:
        self._path = path
        self._ticks: Tuple[int, ...] = ()

    def __enter__(self) -> CpuUse:
        self._before = self._read()
        return self

    def __exit__(self, *error: object) -> None:
        after = self._read()
        if len(self._before) == len(after) == COUNTED:
            self._ticks = tuple(max(0, after[i] - self._before[i]) for i in range(COUNTED))

    def _read(self) -> List[int]:
        text = read_text(self._path)
        first = text.split("\n", 1)[0].split() if isinstance(text, str) else []
        return [int(word) for word in first[1 : COUNTED + 1] if word.isdigit()] if first[:1] == ["cpu"] else []

    def _percent(self, ticks: int) -> float:
        return round(100 * ticks / sum(self._ticks), 1)

    @property
    def busy_percent(self) -> Float:
        if not sum(self._ticks):
            return Missing("unparsable", f"{self._path} names no times of the CPUs")
        return self._percent(sum(self._ticks) - self._ticks[IDLE] - self._ticks[IO_WAIT])

    @property
    def io_wait_percent(self) -> Float:
        if not sum(self._ticks):
            return Missing("unparsable", f"{self._path} names no times of the CPUs")
        return self._percent(self._ticks[IO_WAIT])
