"""Waits for what comes by itself, with an end: a condition, the end of a process."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil


def until(true: Callable[[], bool], otherwise: str | Callable[[], object], seconds: float = 300) -> None:
    """Wait for a condition; fail with `otherwise`, or with what it tells, when it never comes true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, (
            f"not within {seconds:g} s: {otherwise if isinstance(otherwise, str) else otherwise()}"
        )
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """Whether a process runs. One that was killed may live for a moment, and then waits as a zombie for its parent."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
