"""Rules about work of several GPUs and ranks, and what the host's own record says of its GPUs, in its words."""

from __future__ import annotations

import re

import numpy as np

from gpuprep.records import Finding, Missing, Snapshot
from gpuprep.records.findings import PROBLEMS, findings_of, in_order
from gpuprep.trace.advice import intervals, kinds
from gpuprep.trace.advice.evidence import Evidence
from gpuprep.trace.advice.gains import durations, gain
from gpuprep.trace.advice.replay import Change
from gpuprep.trace.advice.rulebook import Found, quoted
from gpuprep.trace.document import Gain


def comm_exposed(e: Evidence) -> Found | None:
    mask = e.of_kernels(e.kernel_rows(kinds.NCCL))
    if not mask.any():
        return None
    device = e.trace.gpu.device[e.gpu] == e.main_device
    all_of = e.busy(mask & device)
    alone = intervals.without(all_of, e.busy(~mask & device))
    ns = intervals.length(alone)
    if ns <= 0.1 * e.wall:
        return None
    # The last bucket is there only when the backward pass has ended: its part cannot be covered.
    buckets = max(1.0, mask.sum() / e.steps)
    # And it can hide only behind other kernels that it does not overlap yet.
    others = intervals.length(e.busy(~mask & e.kernels & device)) - (intervals.length(all_of) - ns)
    us = min(ns * (1 - 1 / buckets), max(0, others)) / e.steps / 1e3
    how = (
        f"at most the exposed time minus that of one of {buckets:.0f} collectives, and not more than the other "
        "kernels that can hide it; waiting for other ranks is part of it"
    )
    figures = {"ms": e.a_step(intervals.length(all_of)), "exposed_ms": e.a_step(ns), "percent": 100 * ns / e.wall}
    rows = np.unique(e.profile.gpu.kernel[e.gpu[mask]])
    return Found(figures, kernels=rows.tolist(), gain=Gain(us, how, 0.0, us) if buckets > 1 else None)


def dp_not_ddp(e: Evidence) -> Found | None:
    if len(e.devices) < 2 or not len(e.ranges(kinds.DATA_PARALLEL)):
        return None
    distributed = any("DistributedDataParallel" in name for name in e.names)
    return None if distributed else Found({"gpus": len(e.devices)})


def not_nccl(e: Evidence) -> Found | None:
    if not len(e.gpu):
        return None
    backend = e.trace.machine.get("backend", "").lower()
    gloo = len(e.ranges(kinds.GLOO)) > 0
    if "nccl" in backend and not gloo:
        return None
    if not gloo and not backend:
        return None
    if "nccl" in backend or e.kernel_rows(kinds.NCCL).any():
        return None  # gloo beside NCCL carries objects of the host
    return Found({}, {"backend": quoted(backend or "gloo")})


def straggler(e: Evidence) -> Found | None:
    """`e.last_rank` is set by who read all ranks: (rank, ns a step that the others wait for it, share of steps)."""
    if e.last_rank is None:
        return None
    rank, ns, share = e.last_rank
    step = e.wall / e.steps
    if share <= 0.5 or ns <= 0.05 * step:
        return None
    how = "what the others wait for it at the median step"
    return Found({"rank": rank, "ms": ns / 1e6, "percent": 100 * ns / step}, gain=Gain(ns / 1e3, how))


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
