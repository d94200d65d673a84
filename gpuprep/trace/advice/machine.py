"""What the host's own record says of its GPUs: findings that slow a program down, in their own words."""

from __future__ import annotations

import re

from gpuprep.records import Finding, Missing, Snapshot
from gpuprep.records.findings import PROBLEMS, findings_of, in_order
from gpuprep.trace.advice import kinds
from gpuprep.trace.advice.evidence import Evidence
from gpuprep.trace.advice.found import Found
from gpuprep.trace.advice.gains import durations, gain
from gpuprep.trace.advice.replay import Change
from gpuprep.trace.document import Gain

SUBJECT = re.compile(r"^gpu \d+$")
SLOWING = re.compile(r"power|clock|pcie|persistence|slowdown|held_down|temperature|throttl")
LINK = re.compile(r"^pcie_(link|lanes|width|generation)|^host_copies|pcie_link")


def findings(e: Evidence) -> list[Found]:
    """One for each finding; its words are the record's."""
    if e.record is None:
        return []
    problems = []
    for finding in in_order(findings_of(e.record), PROBLEMS):
        if SUBJECT.match(finding.subject) and SLOWING.search(finding.property):
            problems.append(_from_finding(finding))
    link = _narrow(e.record.after or e.record.before)
    if link and not any("pcie_link" in problem.texts["finding"] for problem in problems):
        problems.append(Found({"share": link[1]}, {"finding": link[0], "remedy": LANES}, gain=_of_link(e, link[1])))
    return problems


LANES = "Look at the slot, the riser and the BIOS, or at the type of the cloud machine."


def _from_finding(finding: Finding) -> Found:
    words = f"{finding.subject}: {finding.property}: expected {finding.expected}, found {finding.actual}"
    if finding.reason:
        words += f" ({finding.reason})"
    remedy = finding.remedy or "See the report of the record."
    severity = "hint" if finding.status.value == "UNKNOWN" else "problem"
    return Found({}, {"finding": words + ".", "remedy": remedy}, severity=severity)


def _narrow(snapshot: Snapshot | None) -> tuple[str, float] | None:
    """A GPU with fewer lanes than its link could have: (words, share of the lanes). An idle link's generation says
    nothing, so that is not compared."""
    if snapshot is None or isinstance(snapshot.gpus, Missing):
        return None
    for gpu in snapshot.gpus:
        link = gpu.pcie
        if isinstance(link, Missing) or isinstance(link.width, Missing) or isinstance(link.max_width, Missing):
            continue
        if 0 < link.width < link.max_width:
            words = f"gpu {gpu.index}: its PCIe link has {link.width} of {link.max_width} lanes."
            return words, link.width / link.max_width
    return None


def _of_link(e: Evidence, share: float) -> Gain | None:
    mask = e.of_kernels(e.kernel_rows(kinds.HOST_COPY))
    if not mask.any():
        return None
    new = durations(e)
    new[e.gpu[mask]] *= share
    return gain(e, Change(gpu_ns=new), "the copies between host and GPU take the time of all lanes")
