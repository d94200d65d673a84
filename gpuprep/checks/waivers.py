"""Waivers: findings that the profile accepts until a date.

apply(waivers, host, findings, today)    findings, with accepted findings turned into WAIVED

Patterns are those of fnmatch, with case: `gpu *.xids` for findings, `rack7-*` for hosts. What is found in several ways
(ALSO) is one finding for a waiver: `gpu *.pcie_link` also fits what NCCL or a transcode saw of the link. A waiver
that matches nothing on this host is not reported: it may be for another host or for GPUs that this host lacks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fnmatch import fnmatchcase

from gpuprep.desired.profile import Waiver
from gpuprep.records import Finding, Status
from gpuprep.records.findings import PROBLEMS

# Property of a finding ► the property of the same finding, measured by the check of its own.
ALSO = {"nccl_pcie_link": "pcie_link", "video_pcie_link": "pcie_link", "pcie": "pcie_link"}


def fits(waiver: Waiver, finding: Finding) -> bool:
    """Whether the waiver is about the finding, however that was measured."""
    names = (finding.property, ALSO.get(finding.property, finding.property))
    return any(fnmatchcase(f"{finding.subject}.{name}", waiver.finding) for name in names)


def apply(waivers: Sequence[Waiver], host: str, findings: Sequence[Finding], today: str) -> tuple[Finding, ...]:
    """`today` as "2026-11-21" (UTC), the last day on which a waiver that `expires` then is valid.

    A valid waiver turns a finding that did not pass into WAIVED. An expired waiver turns it into FAIL; if all its
    findings pass, a WARN asks to remove it. PASS and SKIP never change.
    """
    here = [waiver for waiver in waivers if fnmatchcase(host, waiver.hosts)]
    # Of several that match, a valid one counts, and of the valid ones the one that expires last.
    here.sort(key=lambda waiver: waiver.expires, reverse=True)
    judged = [_judged(finding, here, today) for finding in findings]
    for waiver in here:
        statuses = {finding.status for finding in findings if fits(waiver, finding)}
        if waiver.expires < today and statuses == {Status.PASS}:
            judged.append(_no_longer_needed(waiver))
    return tuple(judged)


def _judged(finding: Finding, waivers: Sequence[Waiver], today: str) -> Finding:
    waiver = next((waiver for waiver in waivers if fits(waiver, finding)), None)
    if waiver is None or finding.status not in PROBLEMS:
        return finding
    because = f": {finding.reason}" if finding.reason else ""
    if waiver.expires < today:
        return dataclasses.replace(
            finding,
            status=Status.FAIL,
            reason=f"its waiver expired on {waiver.expires} ({waiver.justification}){because}",
            remedy="; ".join(filter(None, [finding.remedy, "or renew the waiver in the profile (waivers)"])),
            waiver_expires=waiver.expires,
        )
    why = f"waived until {waiver.expires} ({waiver.justification}){because}"
    return dataclasses.replace(
        finding, status=Status.WAIVED, reason=why, waived=finding.status.value, waiver_expires=waiver.expires
    )


def _no_longer_needed(waiver: Waiver) -> Finding:
    expected = "a waiver that is needed"
    actual = f"expired on {waiver.expires}; the waived check passes now"
    why = f"no longer needed on this host: {waiver.justification}"
    return Finding("waiver", waiver.finding, Status.WARN, expected, actual, why, "remove it from the profile (waivers)")
