"""What a run is called and when it was. The controller and the host's own nightly check give the same names."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timezone

MOMENT = "%Y%m%d-%H%M%S"  # of UTC: the first part of an id


def new_run_id() -> str:
    """Sorts by time, to a quarter of a millisecond; the last two digits keep runs of the same moment apart."""
    moment = datetime.now(timezone.utc)
    return f"{moment:{MOMENT}}-{moment.microsecond // 250:03x}{secrets.token_hex(1)}"


def of_host(run_id: str, host: str) -> str:
    """Another id for a run that a host made, where its own is taken: nobody else's can end like this."""
    return f"{run_id[:55]}-{_digest(host)}"


def at_host(run_id: str, host: str) -> str:
    """The inverse: the id that the host itself has for it."""
    return run_id.removesuffix(f"-{_digest(host)}")


def _digest(host: str) -> str:
    return hashlib.sha256(host.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def now() -> str:
    """UTC, ISO 8601, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
