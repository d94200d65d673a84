"""Is the newest result of a machine still valid for the machine now? Pure, and small, because the hooks load it.

`gpuprep-drift last`, the schedulers' hooks and, on the controller, `gpuprep drift last` use this rule. A result that is
too old, from the future or from another machine is UNKNOWN, never PASS.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from gpuprep.records import RunRecord, Snapshot, is_moment
from gpuprep.untrusted.limits import json_document

# A check is due every 24 hours: one night may be missed (the node was off, a job used the GPU), two may not. The hour
# is for the check itself and for the clock change in autumn; the timer's random delay of the plan comes on top.
FRESH = timedelta(hours=2 * 24 + 1)
MOST_DELAY_MINUTES = 720  # a profile can say no more
AHEAD = timedelta(minutes=5)  # a result from later than now: the clock was set back


@dataclass(frozen=True)
class Machine:
    """Host name and boot ID that identify the machine a result came from.

    In a pod, socket.gethostname() is the pod's name. So the host's file is read, too, and the boot ID, which is unique.
    """

    names: Collection[str]  # its host name, and the one in /etc/hostname
    boot_id: str  # "": it cannot be read

    @classmethod
    def of(cls, seen: Snapshot) -> Machine:
        return cls((seen.hostname,), seen.kernel.boot_id)


def fresh_for(plan: str) -> timedelta:
    """How old a result may be: FRESH plus the random delay of the timer in `plan`, the text of the host's plan."""
    try:
        minutes = json_document(plan)["drift"]["random_delay_minutes"]
        return FRESH + timedelta(minutes=min(max(0, int(minutes)), MOST_DELAY_MINUTES))
    except (ValueError, LookupError, TypeError, OverflowError):
        return FRESH


def why_unknown(record: RunRecord, now: datetime, fresh: timedelta, here: Machine) -> str:
    """Why this record says nothing about the machine `here` at `now` (of its own clock); "" if it does."""
    return stale_reason(record, now, fresh) or foreign_reason(record, here)


def stale_reason(record: RunRecord, now: datetime, fresh: timedelta) -> str:
    """Why the result is too old, from the future or without a valid time; "" if it is none of these."""
    ended = moment(record.ended_at)
    if ended is None:
        return f"{record.ended_at!r:.40} is no moment"
    if ended - now > AHEAD:
        return f"last check {shown(ended)} is later than now: is the clock right?"
    if now - ended > fresh:
        return f"last check {shown(ended)} is over {fresh // timedelta(hours=1)} h old"
    return ""


def is_ahead(record: RunRecord, now: datetime) -> bool:
    """Whether the run began or ended later than now."""
    return any(
        recorded is not None and recorded - now > AHEAD
        for recorded in map(moment, (record.started_at, record.ended_at))
    )


def foreign_reason(record: RunRecord, here: Machine) -> str:
    """Why the result is another machine's: a machine from an image has such results at first. "" if not, or unknown."""
    seen = record.after
    if seen is None or seen.hostname in here.names or (seen.kernel.boot_id and seen.kernel.boot_id == here.boot_id):
        return ""
    return f"the last result is of another machine, {seen.hostname}"


def moment(text: str) -> datetime | None:
    """The moment in UTC; None if the text is not a moment with a time zone."""
    return datetime.fromisoformat(text).astimezone(timezone.utc) if is_moment(text) else None


def shown(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M} UTC"
