"""The facts of a host, as the real readers give them."""

from __future__ import annotations

import copy
import dataclasses

from builders import as_measured
from finishedt4 import ANSWERS

from gpuprep.records import (
    ProbeResult,
)


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
