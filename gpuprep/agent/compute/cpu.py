"""Measures the use of the machine's CPUs while something runs, in per cent of all CPUs together, with psutil.

Only probes use it, to explain a low speed. Without psutil (an agent that was sent along) the speed is measured all the
same.
"""

from __future__ import annotations

from typing import Any, Union

from gpuprep.records import Float, Missing


class CpuUse:
    """`with CpuUse() as use: work()`; afterwards `use` has the per cent."""

    busy_percent: Float
    io_wait_percent: Float

    def __enter__(self) -> CpuUse:
        _since_last()
        return self

    def __exit__(self, *error: object) -> None:
        times = _since_last()
        if isinstance(times, Missing):
            self.busy_percent = self.io_wait_percent = times
        else:
            self.busy_percent = max(0.0, round(100 - times.idle - times.iowait, 1))
            self.io_wait_percent = times.iowait


def _since_last() -> Union[Any, Missing]:
    """psutil's per cent of each kind of CPU time since this thread's last call; Missing without psutil."""
    try:
        import psutil
    except ImportError:
        return Missing("not_installed", "psutil, which reads it, is not installed with the agent")
    try:
        times = psutil.cpu_times_percent()
    except (OSError, TypeError, ValueError) as error:  # a container may hide /proc/stat, or show an empty one
        return Missing("unparsable", f"/proc/stat names no times of the CPUs ({error})")
    return times if any(times) else Missing("unparsable", "/proc/stat names no times of the CPUs")
