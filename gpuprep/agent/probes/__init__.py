"""Probes measure and report; they never pass or fail."""

from __future__ import annotations

import importlib
import time
from typing import Any, Dict

from gpuprep.agent.system import source
from gpuprep.records import ProbeResult

# Each is a module of this folder with `measure(arguments) -> values or Missing`, imported when it is asked for: the
# libraries of one probe must not be needed, nor loaded, for another. The forms of the values are docs/records.md.
PROBES = ("toolkit", "codec", "bandwidth", "nccl", "cudnn", "transcode", "throughput", "gemm")


def run_probe(name: str, arguments: Dict[str, Any]) -> ProbeResult:
    started = time.monotonic()
    values = importlib.import_module(f"{__name__}.{name}").measure(arguments)
    return ProbeResult(name, source(), values, round(time.monotonic() - started, 3))
