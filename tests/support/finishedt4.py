"""A host with a T4 as provision leaves it, what its probes report, and its profile."""

from __future__ import annotations

import copy
import dataclasses

from builders import as_measured, bare_snapshot, finished_snapshot, good_probes, measured_t4

from gpuprep.desired import loading, state
from gpuprep.records import (
    ProbeResult,
)
from gpuprep.remote import Target

T4 = loading.load("t4")
WANTED = state.resolve(T4, bare_snapshot())
ANSWERS = {result.probe: result for result in (*good_probes(WANTED), *measured_t4())}
FINISHED = finished_snapshot(WANTED)
# This machine: Ansible runs here; the facts come from a scripted Host.
HERE = Target("here", local=True)


def real(slower: float = 1.0, *, quick: bool) -> dict[str, ProbeResult]:
    """Probes of a GPU that is none of ours, its products and copies `slower` times as fast."""
    told = {name: as_measured(one) for name, one in ANSWERS.items()}
    for name in ("gemm", "bandwidth"):
        values = copy.deepcopy(told[name].values)
        assert isinstance(values, dict)
        values["quick"] = quick
        for gpu in values["gpus"]:
            for measured in [*gpu.get("gemms", ()), gpu]:
                for figure in ("tflops", "copy_gb_per_s"):
                    if figure in measured:
                        measured[figure] *= slower
                if "microseconds" in measured:
                    measured["microseconds"] /= slower
        told[name] = dataclasses.replace(told[name], values=values)
    return told
