"""Rules about work of several GPUs and ranks."""

from __future__ import annotations

import numpy as np

from gpuprep.trace.advice import intervals, kinds
from gpuprep.trace.advice.evidence import Evidence
from gpuprep.trace.advice.found import Found, quoted
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
    # And it can hide behind no more than there is of other kernels that it does not run beside yet.
    others = intervals.length(e.busy(~mask & e.kernels & device)) - (intervals.length(all_of) - ns)
    us = min(ns * (1 - 1 / buckets), max(0, others)) / e.steps / 1e3
    how = (
        f"at most the exposed time less that of one of {buckets:.0f} collectives, and no more than there are other "
        "kernels to hide it behind; waiting for other ranks is part of it"
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
