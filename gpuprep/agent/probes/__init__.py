"""What can this machine's GPUs and programs do? Probes measure and report; they never pass or fail."""

from __future__ import annotations

import contextlib
import importlib
import signal
import time
from typing import Any, Dict, Iterator

from gpuprep.agent import turn
from gpuprep.agent.facts.system import source
from gpuprep.agent.probereports import tell
from gpuprep.records import ProbeResult

# Each is a module of this folder with `measure(arguments) -> values or Missing`, imported when it is asked for: the
# libraries of one probe must not be needed, nor loaded, for another. The forms of the values are docs/records.md.
# Where it also has `get_ready(arguments)`, that does beforehand what needs no GPU; what fails there fails again later.
PROBES = ("toolkit", "codec", "bandwidth", "nccl", "cudnn", "transcode", "throughput", "gemm")
MOST_SECONDS = 86_400


def run_probe(name: str, arguments: Dict[str, Any]) -> ProbeResult:
    """`arguments` may have "turn", a word of turn.py: then it measures in its turn, and its seconds begin there.

    One that does not end in "turn_seconds" is ended with this process: the next one waits no longer than that.
    """
    kind, seconds = arguments.pop("turn", None), arguments.pop("turn_seconds", None)
    module = importlib.import_module(f"{__name__}.{name}")
    if kind is not None and turn.has_room() and hasattr(module, "get_ready"):
        module.get_ready(arguments)
    waited = turn.taken(str(kind)) if kind is not None else contextlib.nullcontext(False)
    with waited as beside, _ends_within(seconds):
        if kind is not None:
            tell(turn.BESIDE if beside else turn.BEGUN)
        started = time.monotonic()
        values = module.measure(arguments)
        return ProbeResult(name, source(), values, round(time.monotonic() - started, 3))


@contextlib.contextmanager
def _ends_within(seconds: object) -> Iterator[None]:
    """SIGALRM ends this process then: a call into a driver that does not return lets no code of Python run."""
    if not isinstance(seconds, (int, float)) or not 0 < seconds <= MOST_SECONDS:
        yield
        return
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
