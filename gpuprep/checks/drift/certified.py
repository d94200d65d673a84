"""The certified run, and how a difference from it becomes one Finding.

Suppress a difference only if a profile check reports the same thing at equal or higher severity: it has the exact key,
names the same object if the key alone does not, and passed in the certified run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gpuprep.checks.common import skip, unknown, why_missing
from gpuprep.records import Finding, Missing, Snapshot, Status
from gpuprep.records.findings import PROBLEMS

# `last` is the newest run that passed. Without the validation, that is the run from which the host differs.
CERTIFY = "`gpuprep validate HOST --profile PROFILE`, then `gpuprep baseline set HOST last --reason WHY`"
MEANT = f"if the change was intended: {CERTIFY}"
AGAIN = f"{MEANT}; if not, undo it"


def spoken(
    by_profile: Sequence[Finding], *keys: str, status: Status = Status.WARN, naming: str = ""
) -> Finding | None:  # fmt: skip
    """The first finding of `keys` that is at least as severe as `status` and names `naming`; None without one."""
    enough = PROBLEMS[: PROBLEMS.index(status) + 1]
    for finding in by_profile:
        if finding.key in keys and finding.status in enough and (not naming or names(finding, naming)):
            return finding
    return None


def names(finding: Finding, what: str) -> bool:
    """Whether the finding's text contains `what` (a path, a package) as a whole word: not libcuda1 in libcuda1-i386."""
    return re.search(rf"(?<![\w./-]){re.escape(what)}(?![\w/-]|\.\w)", f"{finding.actual} {finding.reason}") is not None


@dataclass(frozen=True)
class Difference:
    """One difference from the certified run."""

    text: str  # "libcuda1 was 1, is 2"
    reported_by: Sequence[str] = ()  # keys of the profile's checks that may name the same difference
    naming: str = ""  # what their finding must name; "" where its key says it
    about: str = ""  # the file, the package, or what to do: for a remedy that is a function


@dataclass(frozen=True)
class Unread:
    """A reading that the certified run has and that cannot be read now."""

    what: str
    reading: Missing
    reported_by: Sequence[str] = ()  # keys of the profile's checks that may say why

    @property
    def text(self) -> str:
        return f"{self.what} could not be read: {why_missing(self.reading)}"


@dataclass(frozen=True)
class Certified:
    """The facts of the certified run, and the profile's findings on the present facts."""

    facts: Snapshot
    run_id: str
    at: str  # UTC, ISO 8601
    by_profile: Sequence[Finding]
    before: Sequence[Finding] = ()  # findings of the certified run

    @property
    def when(self) -> str:
        return f"certified in run {self.run_id} at {self.at}"

    def judged(
        self, subject: str, prop: str, differences: Sequence[Difference], shown: str, *, unread: Sequence[Unread] = (),
        why: str = "", remedy: str | Callable[[Sequence[str]], str] = AGAIN, status: Status = Status.FAIL,
        most: int | None = None,
    ) -> Finding:  # fmt: skip
        """The status is `status` if no profile check reports a difference, else UNKNOWN if a reading failed and no
        check says why, else SKIP if profile checks report every difference, else PASS.

        `shown` is the text of a PASS, `why` the meaning of a difference. At most `most` differences are named. A remedy
        that is a function gets what the differences are about, those that no profile check reports: "" means AGAIN.
        """
        expected = "as certified"
        ours: list[Difference] = []
        theirs: dict[str, list[str]] = {}
        for difference in differences:
            if elsewhere := self._speaker(difference.reported_by, status, difference.naming):
                theirs.setdefault(elsewhere.key, []).append(difference.text)
            else:
                ours.append(difference)
        reports = [f"{key} reports it:  {'; '.join(few(texts, most))}" for key, texts in theirs.items()]
        if ours:
            text = "; ".join(few([difference.text for difference in ours], most))
            also = [reading.text for reading in unread]
            because = "; ".join([text, *few(also, most), self.when]) + (f": {why}" if why else "")
            about = list(dict.fromkeys(difference.about for difference in ours if difference.about))
            advice = remedy if isinstance(remedy, str) else remedy(about) if about else ""
            return Finding(subject, prop, status, expected, text, because, advice or AGAIN)
        speakers = [(fact, self._speaker(fact.reported_by, Status.UNKNOWN)) for fact in unread]
        lost = [fact for fact, elsewhere in speakers if elsewhere is None]
        if lost:
            finding = unknown(
                subject, prop, lost[0].reading, expected=expected, what=lost[0].what,
                remedy="run the check again with -v",
            )  # fmt: skip
            return replace(finding, reason="; ".join([*few([fact.text for fact in lost], most), *reports]))
        reports += [
            f"{elsewhere.key} reports why {fact.what} cannot be read" for fact, elsewhere in speakers if elsewhere
        ]
        if reports:
            actual = "differs" if theirs else "not readable"
            return skip(subject, prop, expected=expected, actual=actual, reason="; ".join(reports))
        return Finding(subject, prop, Status.PASS, expected, shown, f"compared with what was {self.when}")

    def difference(
        self, subject: str, prop: str, differences: Sequence[str], shown: str, *, reported_by: Sequence[str] = (),
        why: str = "", remedy: str = AGAIN, status: Status = Status.FAIL,
    ) -> Finding:  # fmt: skip
        """As `judged`, for differences that profile checks report under the same keys."""
        all_of_them = [Difference(text, reported_by) for text in differences]
        return self.judged(subject, prop, all_of_them, shown, why=why, remedy=remedy, status=status)

    def missing(
        self, subject: str, prop: str, reading: Missing, *, reported_by: Sequence[str] = (), what: str
    ) -> Finding:
        """The finding for a reading that the certified run has and that cannot be read now."""
        return self.judged(subject, prop, [], "", unread=[Unread(what, reading, reported_by)])

    def _speaker(self, keys: Sequence[str], status: Status, naming: str = "") -> Finding | None:
        """The profile finding that already reports it; findings that did not pass in the certified run do not count."""
        old = {finding.key for finding in self.before if finding.status in (*PROBLEMS, Status.WAIVED)}
        return spoken(self.by_profile, *(key for key in keys if key not in old), status=status, naming=naming)


def few(texts: Sequence[str], most: int | None) -> list[str]:
    """The first `most` texts and "N more": a new driver version changes thirty packages."""
    more = len(texts) - most if most is not None else 0
    return [*texts[:most], f"{more} more"] if more > 0 else list(texts)
