"""What was certified, and how a difference from it becomes one Finding. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuprep.checks.common import skip, unknown
from gpuprep.records import Finding, Missing, Snapshot, Status

AGAIN = "if it was meant: gpuprep validate, then gpuprep baseline set HOST last; if not, put back what was changed"
GRAVE = (Status.FAIL, Status.UNKNOWN, Status.WARN)


def spoken(by_profile: Sequence[Finding], *keys: str) -> Finding | None:
    """The first finding that did not pass among those of `keys`; a key that ends in "." means all of that subject."""
    for finding in by_profile:
        if finding.status in GRAVE and any(
            finding.key == key or (key.endswith(".") and f"{finding.subject}." == key) for key in keys
        ):
            return finding
    return None


@dataclass(frozen=True)
class Certified:
    """The facts of the certified run, and what the profile's checks say of the facts of now."""

    facts: Snapshot
    run_id: str
    at: str  # UTC, ISO 8601
    by_profile: Sequence[Finding]

    @property
    def when(self) -> str:
        return f"certified in run {self.run_id} at {self.at}"

    def same(
        self, subject: str, prop: str, differences: Sequence[str], shown: str, *, said: Sequence[str] = (),
        why: str = "", remedy: str = AGAIN, status: Status = Status.FAIL,
    ) -> Finding:  # fmt: skip
        """PASS without `differences` ("libcuda1 was 1, is 2"); SKIP where one of the keys `said` names it already."""
        expected = "as certified"
        if not differences:
            return Finding(subject, prop, Status.PASS, expected, shown, f"compared with what was {self.when}")
        elsewhere = spoken(self.by_profile, *said)
        if elsewhere is not None:
            reason = f"{elsewhere.key} says it: {'; '.join(differences)}"
            return skip(subject, prop, expected=expected, actual="differs", reason=reason)
        text = "; ".join(differences)
        because = f"{text}; {self.when}" + (f": {why}" if why else "")
        return Finding(subject, prop, status, expected, text, because, remedy)

    def missing(self, subject: str, prop: str, reading: Missing, *, said: Sequence[str] = (), what: str) -> Finding:
        """Was there when certified and cannot be read now."""
        elsewhere = spoken(self.by_profile, *said)
        if elsewhere is not None:
            reason = f"{elsewhere.key} says why it cannot be read"
            return skip(subject, prop, expected="as certified", actual="not readable", reason=reason)
        return unknown(subject, prop, reading, expected="as certified", what=what, remedy="run the check again with -v")
