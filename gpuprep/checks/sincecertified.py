"""The host against its own certified facts and against the check before. Pure.

What a profile cannot know: which GPUs these are, in which order, which exact versions were certified, what was counted
since the last check. Where there is no such record, there is nothing to say.
"""

from __future__ import annotations

from gpuprep.records import Finding, Snapshot
from gpuprep.wanted import Wanted


def findings(
    wanted: Wanted, snapshot: Snapshot, certified: Snapshot | None, previous: Snapshot | None
) -> list[Finding]:
    """Findings beyond those of the profile; `certified` and `previous` are None where no such run is recorded."""
    return []
