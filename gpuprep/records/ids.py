"""Run ids and times, made the same way on the controller and in a host's night check."""

from __future__ import annotations

import hashlib
import secrets
import threading
from datetime import datetime, timezone

MOMENT = "%Y%m%d-%H%M%S"  # of UTC: the first part of an id
_GIVEN: set[str] = set()  # by this process
_ONE_AT_A_TIME = threading.Lock()


def new_run_id() -> str:
    """A new run id. Ids sort by time, to a quarter of a millisecond; a random byte separates runs of one moment.

    Runs of one process never share an id: a sweep begins ten runs within such a moment, and a byte alone is too little.
    """
    with _ONE_AT_A_TIME:
        while (made := _made()) in _GIVEN:
            pass
        _GIVEN.add(made)
        return made


def _made() -> str:
    moment = datetime.now(timezone.utc)
    return f"{moment:{MOMENT}}-{moment.microsecond // 250:03x}{secrets.token_hex(1)}"


def of_host(run_id: str, host: str) -> str:
    """Another id for a run that a host made, if the run's own id is taken. No other id can end like this."""
    return f"{run_id[:55]}-{_digest(host)}"


def at_host(run_id: str, host: str) -> str:
    """The inverse of of_host: the id that the host itself uses."""
    return run_id.removesuffix(f"-{_digest(host)}")


def _digest(host: str) -> str:
    return hashlib.sha256(host.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def now() -> str:
    """The present time in UTC, ISO 8601, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
