"""Since when should a host measure its speed at night, and when did it last measure? Pure.

On a GPU that is always in use the probe is skipped every night, perhaps for longer than results are kept. So each
record copies both times from the record before; nightly/metrics.py shows them.
"""

from __future__ import annotations

from gpuprep.nightly import freshness
from gpuprep.records import DriftFacts, RunRecord, Snapshot


def carried(newest: RunRecord | None, seen: Snapshot | None, now: str, measured_at: str) -> tuple[str, str]:
    """(wanted since, measured at) for a check with `probe: quick`. All moments in UTC, ISO 8601; "" for never.

    `newest` is the previous record, `seen` are the present facts, `measured_at` is "" if this check did not measure.
    Times in `newest` from a wrong clock or another machine are ignored.
    """
    before = DriftFacts()
    if newest is not None and newest.drift is not None and not _is_foreign(newest, seen):
        before = newest.drift
    return _until(now, before.probe_asked_since) or now, measured_at or _until(now, before.probe_measured_at)


def _is_foreign(newest: RunRecord, seen: Snapshot | None) -> bool:
    """Whether the record is another machine's (its image had it). Without facts this is unknown: False."""
    if seen is None:
        return False
    return bool(freshness.why_not_of(newest, freshness.Machine.of(seen)))


def _until(now: str, noted: str) -> str:
    """`noted` if it is a moment not later than `now`, else ""."""
    then, limit = freshness.moment(noted), freshness.moment(now)
    return noted if then is not None and limit is not None and then <= limit else ""
