"""Moments in records, UTC in ISO 8601. Reads any text: a wrong clock or a hostile owner may write anything.

Stdlib only; runs on the GPU VM, too.
"""

from __future__ import annotations

from datetime import datetime, timezone

from gpuprep.untrusted.plaintext import one_line

MOST_LETTERS = 40  # of a text that is no moment


def moment(written: object) -> datetime | None:
    """The moment in UTC; without a zone it counts as UTC. None if the text is not a moment."""
    if not isinstance(written, str):
        return None
    try:
        read = datetime.fromisoformat(written)
        return read.astimezone(timezone.utc) if read.tzinfo else read.replace(tzinfo=timezone.utc)
    except (ValueError, OverflowError):
        return None


def seconds_between(began: object, ended: object) -> float | None:
    """Seconds from `began` to `ended`. None if one is not a moment; 0 if the clock was set back."""
    first, last = moment(began), moment(ended)
    return None if first is None or last is None else max(0.0, (last - first).total_seconds())


def minute(written: str) -> str:
    """ "2026-11-19 02:31 UTC"; a text that is not a moment is returned unchanged."""
    read = moment(written)
    return f"{read:%Y-%m-%d %H:%M} UTC" if read else one_line(written, MOST_LETTERS)
