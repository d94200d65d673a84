"""Groups findings with one cause, so that a report shows each cause once. Groups change no status.

JSON, JUnit and the other formats for programs keep every finding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from gpuprep.checks.common import is_interrupted
from gpuprep.records import Finding, RunRecord, Status
from gpuprep.records.findings import findings_of
from gpuprep.reports import drifted


class _Judged(Protocol):
    @property
    def subject(self) -> str:
        """The name that the checks use."""


_T = TypeVar("_T", bound=_Judged)
FEW = 3  # names that a group shows; a larger one shows how many there are
QUOTED = re.compile(r'(, and the driver says so)?: "[^"]*"')  # the driver's words differ although the cause is the same
NUMBER = re.compile(r"(?<![A-Za-z])[0-9][0-9a-fA-F.:]*")  # figures, versions, addresses on the bus; not "a100"
UNREAD = re.compile(r"^.{0,200}? could not be read: (?P<why>.+)$", re.DOTALL)
# "H200 has no NVENC for H.264 (catalogue), ..." and what the other checks say of a missing engine.
LACKS = re.compile(r"^.{0,80}? has no (?P<engine>NVENC|NVDEC) for (?P<codecs>[^(]{1,80}?) \(catalogue\)")
NO_ENGINE = (
    (re.compile(r"does not encode\b|\bno encoder \(NVENC\)"), "NVENC"),
    (re.compile(r"does not decode\b|\bno decoder \(NVDEC\)"), "NVDEC"),
)


@dataclass(frozen=True)
class Group:
    """`findings` has one at least; all have the same status."""

    findings: tuple[Finding, ...]
    cause: str

    @property
    def first(self) -> Finding:
        return self.findings[0]

    @property
    def same_values(self) -> bool:
        """Whether the findings differ only in their names."""
        return len({(finding.expected, finding.actual, finding.reason) for finding in self.findings}) == 1

    @property
    def subject(self) -> str:
        """The one subject of all; "" of several."""
        return self.first.subject if len({finding.subject for finding in self.findings}) == 1 else ""

    @property
    def subjects(self) -> str:
        """ "transcode, throughput": the first words of the subjects, at most a few."""
        kinds = list(dict.fromkeys(finding.subject.partition(" ")[0] for finding in self.findings))
        return ", ".join(kinds[:FEW]) + (" and more" if len(kinds) > FEW else "")

    @property
    def count(self) -> str:
        """ "23 checks of transcode, throughput"; of one, its name."""
        if len(self.findings) == 1:
            return name(self.first)
        return f"{len(self.findings)} checks of {self.subjects}"

    @property
    def checks(self) -> str:
        """ "clocks of gpu 0, gpu 1 and 6 more"; of one, its name."""
        names = list(dict.fromkeys(self.names))
        if len(names) == 1:
            return names[0]
        properties = dict.fromkeys(finding.property.replace("_", " ") for finding in self.findings)
        return f"{_few(list(properties))} of {_few(list(dict.fromkeys(each.subject for each in self.findings)))}"

    @property
    def names(self) -> list[str]:
        return [name(finding) for finding in self.findings]

    @property
    def folded(self) -> bool:
        """Whether there are more names than need to be read at once."""
        return len(self.findings) > FEW and self.first.status is Status.UNKNOWN

    @property
    def named(self) -> str:
        """The names; if there are many, their number and the first ones."""
        names = self.names
        if not self.folded:
            return "; ".join(names)
        return f"{len(names)} checks: {'; '.join(names[:FEW])} and {len(names) - FEW} more"

    @property
    def title(self) -> str:
        """For a page that lists the names in a fold."""
        return f"{len(self.findings)} checks of {self.subjects}" if self.folded else self.named


def _few(names: Sequence[str]) -> str:
    more = len(names) - FEW
    return ", ".join(names[:FEW]) + (f" and {more} more" if more > 0 else "")


def name(finding: Finding) -> str:
    return f"{finding.subject}: {finding.property.replace('_', ' ')}"


def groups(findings: Iterable[Finding], now: str = "") -> list[Group]:
    """In the order of the first of each group. With `now`, the start of the check, one group has one date."""
    return _grouped(findings, lambda finding: (drifted.since(finding, now) if now else "", *_key(finding)))


def of_hosts(findings: Iterable[Finding]) -> list[Group]:
    """As groups(), for findings of several hosts or GPUs: the figures of one cause differ between them."""

    def key(finding: Finding) -> tuple[str, ...]:
        why = NUMBER.sub("#", QUOTED.sub("", finding.reason)) or finding.key
        return why, NUMBER.sub("#", finding.remedy)

    return _grouped(findings, key)


def _grouped(findings: Iterable[Finding], key: Callable[[Finding], tuple[str, ...]]) -> list[Group]:
    by_cause: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        by_cause.setdefault((finding.status.value, *key(finding)), []).append(finding)
    return [Group(tuple(listed), _cause(listed)) for listed in by_cause.values()]


def of_subjects(record: RunRecord) -> dict[str, Group]:
    """For each subject that was skipped altogether, the group of its first finding."""
    skipped = [finding for finding in findings_of(record) if finding.status is Status.SKIP]
    others = {finding.subject for finding in findings_of(record) if finding.status is not Status.SKIP}
    by_subject: dict[str, Group] = {}
    for group in groups(skipped):
        for finding in group.findings:
            if finding.subject not in others:
                by_subject.setdefault(finding.subject, group)
    return by_subject


def folded(rows: Sequence[_T], record: RunRecord) -> tuple[list[_T], list[tuple[Group, list[_T]]]]:
    """(rows of a table to show, rows left out by cause: several of them were skipped for the same cause)."""
    of = of_subjects(record)
    by_cause: dict[int, tuple[Group, list[_T]]] = {}
    for row in rows:
        if group := of.get(row.subject):
            by_cause.setdefault(id(group), (group, []))[1].append(row)
    more = [(group, listed) for group, listed in by_cause.values() if len(listed) > 1]
    folded_rows = {id(row) for _, listed in more for row in listed}
    return [row for row in rows if id(row) not in folded_rows], more


def _key(finding: Finding) -> tuple[str, ...]:
    if finding.status is Status.SKIP:
        engine, _ = _engine(finding.reason)
        return (engine or QUOTED.sub("", finding.reason) or finding.actual,)
    if is_interrupted(finding):  # each sentence names its probe, but the cause is the same
        return (finding.actual, finding.remedy)
    if finding.status is Status.UNKNOWN and (unread := UNREAD.match(finding.reason)):
        return (unread["why"], finding.remedy)
    return (finding.expected, finding.actual, finding.reason, finding.remedy)


def _engine(reason: str) -> tuple[str, str]:
    """The engine that is not there and the codecs that the reason names: ("NVENC", "H.264"); ("", "") for others."""
    if lacks := LACKS.match(reason):
        return lacks["engine"], lacks["codecs"]
    return next(((engine, "") for pattern, engine in NO_ENGINE if pattern.search(reason)), ("", ""))


def _cause(listed: list[Finding]) -> str:
    first = listed[0]
    if len(listed) == 1:
        return first.reason or first.actual
    engine = _engine(first.reason)[0] if first.status is Status.SKIP else ""
    if engine:
        named = [_engine(finding.reason)[1] for finding in listed]
        whole = not all(named)  # some sentences say that there is no such engine at all
        return f"this GPU has no {engine}" + ("" if whole else f" for {', '.join(dict.fromkeys(named))}")
    if is_interrupted(first):
        return "the run was interrupted before it measured them"
    if first.status is Status.UNKNOWN and (unread := UNREAD.match(first.reason)):
        one_reason = len({finding.reason for finding in listed}) == 1
        return first.reason if one_reason else f"they could not be read: {unread['why']}"
    return first.reason if len({finding.reason for finding in listed}) == 1 else QUOTED.sub("", first.reason)
