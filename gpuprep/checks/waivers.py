"""Waivers: findings that the profile accepts for a while. Pure.

apply(waivers, host, findings, today)    findings, with those that are waived counted apart

Patterns are fnmatch's, case and all: `gpu *.xids` of findings, `rack7-*` of hosts. A waiver that fits nothing here says
nothing: it may be meant for another host or for GPUs that this one lacks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fnmatch import fnmatchcase

from gpuprep.desired.profile import Waiver
from gpuprep.records import Finding, Status
from gpuprep.records.findings import PROBLEMS


def apply(waivers: Sequence[Waiver], host: str, findings: Sequence[Finding], today: str) -> tuple[Finding, ...]:
    """`today` as "2026-11-21" (UTC), the last day on which a waiver that `expires` then still holds.

    One that holds turns what did not pass into WAIVED. One that has expired turns it into FAIL, and where all of its
    findings pass by now asks to be removed. What passed or was skipped stays as it is, always.
    """
    here = [waiver for waiver in waivers if fnmatchcase(host, waiver.hosts)]
    # Of several that fit, one that still holds counts, and of those the one that holds longest.
    here.sort(key=lambda waiver: waiver.expires, reverse=True)
    judged = [_judged(finding, here, today) for finding in findings]
    spent = [waiver for waiver in here if waiver.expires < today]
    return (*judged, *(_no_longer_needed(waiver) for waiver in spent if _all_pass(waiver, findings)))


def _judged(finding: Finding, waivers: Sequence[Waiver], today: str) -> Finding:
    waiver = next((waiver for waiver in waivers if fnmatchcase(finding.key, waiver.finding)), None)
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
    return dataclasses.replace(
        finding,
        status=Status.WAIVED,
        reason=f"waived until {waiver.expires} ({waiver.justification}){because}",
        waived=finding.status.value,
        waiver_expires=waiver.expires,
    )


def _all_pass(waiver: Waiver, findings: Sequence[Finding]) -> bool:
    """Something fits it, and all of that passes."""
    return {f.status for f in findings if fnmatchcase(f.key, waiver.finding)} == {Status.PASS}


def _no_longer_needed(waiver: Waiver) -> Finding:
    return Finding(
        "waiver",
        waiver.finding,
        Status.WARN,
        "a waiver that is needed",
        f"expired on {waiver.expires}, and what it waived passes",
        f"no longer needed on this host: {waiver.justification}",
        "remove it from the profile (waivers)",
    )
