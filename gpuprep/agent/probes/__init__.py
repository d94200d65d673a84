"""What can this machine's GPUs and programs do? Probes measure and report; they do not judge."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
import signal
import time
from typing import Any, Dict, Iterator

from gpuprep.agent import turn
from gpuprep.agent.facts.simulation import source
from gpuprep.agent.probereports import tell
from gpuprep.records import Missing, ProbeResult

MOST_SECONDS = 86_400
MEASURE = re.compile(r"^def measure\(arguments(?:: [^:\n]*)?\)", re.M)  # parts of a probe take more, or measure nothing


def probe(name: str) -> str:
    """The name of a probe: a module of this folder with `measure(arguments) -> values or Missing` (docs/records.md).

    It is imported when it is asked for: the libraries of one probe must not be needed, nor loaded, for another. If it
    also has `get_ready(arguments)`, that prepares what needs no GPU; its failures come again in `measure`.
    Raises ValueError if there is no such module.
    """
    spec = importlib.util.find_spec(f"{__name__}.{name}") if name.isidentifier() else None
    loader: Any = spec.loader if spec else None
    if loader is None or not MEASURE.search(loader.get_source(f"{__name__}.{name}") or ""):
        raise ValueError(name)
    return name


def run_probe(name: str, arguments: Dict[str, Any]) -> ProbeResult:
    """Run one probe. With "turn" (a kind of turn.py) in `arguments` it waits for its turn, and its time begins then.

    If it does not end within "turn_seconds", this process is killed, so that the next probe does not wait longer.
    """
    kind, seconds = arguments.pop("turn", None), arguments.pop("turn_seconds", None)
    module = importlib.import_module(f"{__name__}.{name}")
    if name != "nccl":  # it copies its worker before NVML is opened, and measures between whole GPUs
        _choose_instance()
    if kind is not None and turn.has_room() and hasattr(module, "get_ready"):
        module.get_ready(arguments)
    waited = turn.taken(str(kind)) if kind is not None else contextlib.nullcontext(False)
    with waited as beside, _ends_within(seconds):
        if kind is not None:
            tell(turn.SHARED_TURN_STARTED if beside else turn.TURN_STARTED)
        started = time.monotonic()
        values = module.measure(arguments)
        return ProbeResult(name, source(), values, round(time.monotonic() - started, 3))


def _choose_instance() -> None:
    """CUDA shows one MIG instance to a process, whichever it likes: here the first one of the first GPU that is cut."""
    from gpuprep.agent.gpu.nvml import Nvml  # the controller imports this room for the names of probes alone

    with Nvml() as nvml:
        gpus = nvml.gpus()
        parts = [gpu.mig_devices() for gpu in gpus] if not isinstance(gpus, Missing) else []
    first = next((devices[0] for devices in parts if devices and not isinstance(devices, Missing)), None)
    if first is not None:
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", first.uuid)


@contextlib.contextmanager
def _ends_within(seconds: object) -> Iterator[None]:
    """SIGALRM kills this process after `seconds`: while a driver call hangs, no Python code can run."""
    if not isinstance(seconds, (int, float)) or not 0 < seconds <= MOST_SECONDS:
        yield
        return
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
