"""Seconds as a person reads them while a command runs."""

from __future__ import annotations


def clock(seconds: float) -> str:
    """Whole minutes and seconds: 65.9 ─► "1:05"."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"
