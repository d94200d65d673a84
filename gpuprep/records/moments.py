"""Moments as records have them, UTC in ISO 8601, read without fear: a machine's clock or its owner may write anything.

Stdlib only; runs on the GPU VM, too.
"""

from __future__ import annotations

from datetime import datetime, timezone

from gpuprep.untrusted.plaintext import one_line

MOST_LETTERS = 40  # of a text that is no moment


def moment(written: object) -> datetime | None:
    """In UTC, which is also taken for a moment without a zone; None where it is none."""
    if not isinstance(written, str):
        return None
    try:
        read = datetime.fromisoformat(written)
        return read.astimezone(timezone.utc) if read.tzinfo else read.replace(tzinfo=timezone.utc)
    except (ValueError, OverflowError):
        return None


def seconds_between(began: object, ended: object) -> float | None:
    """None where one of the two is no moment; 0 where the clock was set back meanwhile."""
    first, last = moment(began), moment(ended)
    return None if first is None or last is None else max(0.0, (last - first).total_seconds())


def minute(written: str) -> str:
    """ "2026-11-19 02:31 UTC"; what is no moment as it is."""
    read = moment(written)
    return f"{read:%Y-%m-%d %H:%M} UTC" if read else one_line(written, MOST_LETTERS)
