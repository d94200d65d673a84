"""What a run is called and when it was. The controller and the host's own nightly check give the same names."""

from __future__ import annotations

import secrets
from datetime import datetime, timezone


def new_run_id() -> str:
    """Sorts by time, to a quarter of a millisecond; the last two digits keep runs of the same moment apart."""
    moment = datetime.now(timezone.utc)
    return f"{moment:%Y%m%d-%H%M%S}-{moment.microsecond // 250:03x}{secrets.token_hex(1)}"


def now() -> str:
    """UTC, ISO 8601, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
