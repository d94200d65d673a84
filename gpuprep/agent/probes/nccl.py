"""NCCL on all GPUs of the machine: all-reduce, all-gather and reduce-scatter from 8 B to 4 GiB, results checked.

NCCL waits for ever on a link that does not answer, so a worker calls it (ncclrun.py). The worker is killed if it
reports nothing for too long; its measurements until then are kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Sequence, Union

from gpuprep.agent.compute import ncclplan
from gpuprep.agent.compute.sampler import Sampler
from gpuprep.agent.facts import simulation
from gpuprep.agent.gpu.nvml import Gpu, Nvml
from gpuprep.agent.probereports import measured, measured_each, tell
from gpuprep.agent.probes import ncclrun, simulated
from gpuprep.agent.probes.gpuforms import named, other_processes
from gpuprep.agent.programs import children
from gpuprep.agent.programs.run import read_text
from gpuprep.agent.programs.worker import Silent, Tell, Worker
from gpuprep.records import GpuFacts, Missing, Source, to_json_value

PATIENCE_SECONDS = 60.0  # from one message of the worker to the next; communicators of 8 GPUs take up to 10
MOST_SECONDS, QUICK_MOST_SECONDS = 240.0, 90.0  # in all
MOST_VARIABLES, MOST_LETTERS, MOST_WARNINGS, MOST_TRANSPORTS = 32, 100, 3, 8
CHANNELS = re.compile(r"\b(\d{1,4}) coll channels,.*?\b(\d{1,4}) nvls channels")
TRANSPORT = re.compile(r" -> \S+(?: \[\w+\])? via ([A-Z0-9]+(?:/[A-Za-z]+(?: pointer)?)?)")
WARNING = re.compile(r"NCCL WARN (.*)")
SIMULATED_SHARE = 0.95  # of what copies between the GPUs reach
SIMULATED_LATENCY = 6e-6  # seconds for each GPU


def measure(arguments: Dict[str, Any]) -> Union[Dict[str, Any], Missing]:
    """arguments: quick (bool, default false). Values: docs/records.md, "nccl". Takes about 10 s, quick about 5 s."""
    quick = bool(arguments.get("quick", False))
    if simulation.source() is Source.SIMULATED:
        values = _before(quick)
        return values if isinstance(values, Missing) or len(values["gpus"]) < 2 else _simulated(values, quick)
    with _Caller(quick) as caller:
        values = _before(quick)
        if isinstance(values, Missing) or len(values["gpus"]) < 2:
            return values
        with children.scratch("nccl") as folder:
            log = folder / "nccl.log"
            caller.begin([gpu["uuid"] for gpu in values["gpus"]], log)
            return _measured(values, caller.worker, quick, log)


def _before(quick: bool) -> Union[Dict[str, Any], Missing]:
    """The values that are known before the first call of NCCL; Missing if it cannot be measured."""
    with Nvml() as nvml:
        gpus = nvml.gpus()
        if isinstance(gpus, Missing):
            return gpus
        facts = [gpu.facts() for gpu in gpus]
        return {
            "quick": quick,
            "environment": _environment(),
            "gpus": [{**named(details), "other_processes": other_processes(gpu)} for details, gpu in zip(facts, gpus)],  # noqa: B905
            "links": _links(gpus, facts),
            "points": [],
            "error": None,
        }


class _Caller:
    """The worker that calls NCCL. It is copied before this process opens NVML, and waits for begin().

    In a copy of a process that had opened NVML, ncclCommInitAll crashed (SIGSEGV; two H100, NCCL 2.28, driver 580).
    """

    def __init__(self, quick: bool) -> None:
        self._heard, self._told = os.pipe()
        self.worker = Worker(lambda tell: self._work(tell, quick))

    def __enter__(self) -> _Caller:
        self.worker.__enter__()
        os.close(self._heard)
        return self

    def __exit__(self, *error: Any) -> None:
        if self._told >= 0:
            os.close(self._told)
        self.worker.__exit__(*error)

    def begin(self, uuids: Sequence[str], log: Path) -> None:
        write_end, self._told = self._told, -1
        # A worker that died by then is known by its code.
        with contextlib.suppress(BrokenPipeError), os.fdopen(write_end, "w", encoding="utf-8") as pipe:
            json.dump([list(uuids), str(log)], pipe)

    def _work(self, tell: Tell, quick: bool) -> None:
        os.close(self._told)
        with os.fdopen(self._heard, encoding="utf-8") as heard:
            asked = heard.read()
        if asked:  # else there was nothing to measure
            uuids, log = json.loads(asked)
            ncclrun.work(tell, uuids, quick, log)


def _environment() -> List[Dict[str, str]]:
    """Environment variables that change NCCL's behaviour; without NCCL_VERSION: NCCL ignores it."""
    set_here = os.environ.items()
    variables = sorted((name, value) for name, value in set_here if name.startswith("NCCL_") and name != "NCCL_VERSION")
    return [{"name": name[:MOST_LETTERS], "value": value[:MOST_LETTERS]} for name, value in variables[:MOST_VARIABLES]]


def _links(gpus: Sequence[Gpu], facts: Sequence[GpuFacts]) -> List[Dict[str, Any]]:
    """Number of active NVLinks from each GPU to each other GPU, or to switches."""
    return [
        {"from": gpu.index, "to": other.index, "nvlinks": to_json_value(gpu.nvlinks(other.pci_address))}
        for gpu in gpus
        for other in facts
        if other.index != gpu.index
    ]


def _measured(values: Dict[str, Any], worker: Worker, quick: bool, log: Path) -> Union[Dict[str, Any], Missing]:
    until = time.monotonic() + (QUICK_MOST_SECONDS if quick else MOST_SECONDS)
    values["stopped"], doing = None, "starting"
    measured_each(values)
    with Nvml() as nvml:
        gpus = nvml.gpus()
        gpus = [] if isinstance(gpus, Missing) else gpus
        with Sampler(gpus) as sampler:
            try:
                for message in worker.messages(until=until, patience=PATIENCE_SECONDS):
                    if "missing" in message:
                        return Missing(message["missing"]["missing"], message["missing"].get("detail", ""))
                    doing = message.get("doing", doing)
                    tell(doing, done=len(values["points"]), of=_points(values, quick), unit="collectives")
                    _note(values, message)
                    if message.get("point", {}).get("bytes", 0) >= ncclplan.MEDIUM:
                        _note_links(values["gpus"], gpus)
                if worker.code != 0 and values["error"] is None:
                    values["error"] = f"the process that calls NCCL ended with code {worker.code} while {doing}"
            except Silent as silent:
                values["stopped"] = {"doing": doing, "seconds": round(silent.seconds, 1)}
        for entry, gpu in zip(values["gpus"], gpus):  # noqa: B905
            entry.update(_sampled(sampler, gpu.index))
    return {**values, **chosen(read_text(log) or "")}


def _points(values: Dict[str, Any], quick: bool) -> int:
    """Number of points to measure; 0 while the GPUs' memory is unknown."""
    most = values.get("most_bytes", 0)
    return len(ncclplan.OPERATIONS) * len(ncclplan.sizes(quick, most))


def _note(values: Dict[str, Any], message: Dict[str, Any]) -> None:
    if "point" in message:
        values["points"].append(message["point"])
        measured(message["point"], "points", len(values["points"]) - 1)
    values.update(message.get("loaded", {}))
    if "most_bytes" in message:
        values["most_bytes"] = message["most_bytes"]
    for key in ("error", "failed"):
        if key in message:
            values["error"] = message[key]


def _note_links(entries: List[Dict[str, Any]], gpus: Sequence[Gpu]) -> None:
    """Store the PCIe links under load: an idle link shows generation 1."""
    for entry, gpu in zip(entries, gpus):  # noqa: B905
        entry["pcie"] = to_json_value(gpu.pcie())


def _sampled(sampler: Sampler, index: int) -> Dict[str, Any]:
    document: Dict[str, Any] = to_json_value(
        {
            "graphics_clock_mhz": sampler.highest(index, "graphics_clock_mhz"),
            "power_watts": sampler.highest(index, "power_watts"),
            "temperature_c": sampler.highest(index, "temperature_c"),
            "event_reasons": sampler.event_reasons(index),
        }
    )
    return document


def chosen(log: Union[str, Missing]) -> Dict[str, Any]:
    """From NCCL's log: number of channels, multicast (NVLS) or not, transports, and the last warnings."""
    if isinstance(log, Missing) or not log:
        return {}
    choices: Dict[str, Any] = {}
    if match := CHANNELS.search(log):
        choices.update(channels=int(match[1]), nvls_channels=int(match[2]))
    counted = Counter(TRANSPORT.findall(log)).most_common(MOST_TRANSPORTS)
    choices["transports"] = [{"name": name, "count": count} for name, count in counted]
    warnings = [warning.strip()[: 3 * MOST_LETTERS] for warning in WARNING.findall(log)]
    return {"chosen": choices, "warnings": warnings[-MOST_WARNINGS:]}


# ---------------------------------------------------------------- simulated


def _simulated(values: Dict[str, Any], quick: bool) -> Dict[str, Any]:
    models = simulated.gpus()
    lost = [model.index for model in models if model.lost]
    if lost:
        return {**values, "error": f"ncclCommInitAll: unhandled cuda error (GPU {lost[0]} is lost)"}
    pairs = [(model, other) for model in models for other in models if model.index != other.index]
    speed = min(origin.peer_gb_per_s(other) for origin, other in pairs) * SIMULATED_SHARE
    for entry, model in zip(values["gpus"], models):  # noqa: B905
        entry.update(
            named(model),
            pcie=model.pcie(),
            graphics_clock_mhz=model.graphics_clock_mhz("memory"),
            power_watts=model.power_watts("memory"),
            temperature_c=model.temperature_c("memory"),
            event_reasons=model.event_reasons("memory"),
        )
    return {
        **values,
        "libraries": [],
        "bindings": {},
        "links": [{"from": origin.index, "to": other.index, "nvlinks": origin.nvlinks} for origin, other in pairs],
        "most_bytes": ncclplan.SIZES[-1],
        "points": [
            _simulated_point(models, operation, size, speed)
            for operation in ncclplan.OPERATIONS
            for size in ncclplan.sizes(quick, ncclplan.SIZES[-1])
        ],
    }


def _simulated_point(
    models: Sequence[simulated.SimulatedGpu], operation: str, size: int, speed: float
) -> Dict[str, Any]:
    ranks = len(models)
    fitted = ncclplan.fitted(operation, size, ranks)
    moved = fitted * ncclplan.bus_factor(operation, ranks)
    seconds = models[0].noisy(SIMULATED_LATENCY * ranks + moved / speed / 1e9, operation, size)
    return ncclplan.point(operation, fitted, ranks, seconds, wrong=0)
