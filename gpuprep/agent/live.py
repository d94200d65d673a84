"""`gpuprep-agent live`: prints one line for each input line, until the input ends. For `gpuprep watch`.

NVML is opened for each answer and closed after it, so that between two answers the GPU can be reset and the driver
replaced.
"""

from __future__ import annotations

import os
import platform
import pwd
import select
import sys
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, List, Tuple, Union

from gpuprep.agent.facts import simulation, xids
from gpuprep.agent.facts.driver import as_optional
from gpuprep.agent.gpu.gpuanswers import mapped
from gpuprep.agent.gpu.nvml import Gpu, Nvml, normal_address
from gpuprep.records import Missing, ProcessOnGpu, Source, Str, Xid, to_json
from gpuprep.records.gpu import ClockPair
from gpuprep.records.live import LiveGpu, LiveSample

READY = "gpuprep-live 1"  # the first line
SILENCE_SECONDS = 120.0  # then the controller is gone without a message
XID_SECONDS = 20.0  # the log of a long boot takes a while to read
MOST_XIDS = 40
MOST_PROCESSES = 12  # of one GPU
MOST_LETTERS = 60  # of a name
MOST_BYTES = 60_000  # of an answer: the controller reads no longer line (remote/limits.py)
SLOWDOWN = 1  # nvmlTemperatureThresholds_t


def main() -> int:
    _say(READY)
    seen: Union[Tuple[Xid, ...], Missing] = ()
    looked = float("-inf")
    while _asked():
        if time.monotonic() - looked >= XID_SECONDS:
            seen, looked = _xids(), time.monotonic()
        _say(_line(sample(seen)))
    return 0


def _asked() -> bool:
    """Wait for a line; False if the input has ended or was silent for SILENCE_SECONDS."""
    if not select.select([0], [], [], SILENCE_SECONDS)[0]:
        return False
    return os.read(0, 4096) != b""


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def sample(seen: Union[Tuple[Xid, ...], Missing] = ()) -> LiveSample:
    with Nvml() as nvml:
        gpus = nvml.gpus()
        return LiveSample(
            taken_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            source=simulation.source(),
            driver=as_optional(nvml.driver_version()),
            gpus=gpus if isinstance(gpus, Missing) else tuple(_gpu(gpu) for gpu in gpus),
            xids=seen,
            hostname=platform.node()[:MOST_LETTERS],
        )


def _gpu(gpu: Gpu) -> LiveGpu:
    load = gpu.load()
    pci = gpu.get("nvmlDeviceGetPciInfo")
    memory = gpu.get("nvmlDeviceGetMemoryInfo")
    processes, more = _processes(gpu)
    return LiveGpu(
        index=gpu.index,
        uuid=_text(gpu.get("nvmlDeviceGetUUID")),
        name=_text(gpu.get("nvmlDeviceGetName")),
        pci_address="" if isinstance(pci, Missing) else _address(_text(pci.busId)),
        graphics_clock_mhz=load["graphics_clock_mhz"],
        memory_clock_mhz=load["memory_clock_mhz"],
        application_clocks=_application_clocks(gpu),
        power_watts=load["power_watts"],
        power_limit_watts=mapped(gpu.get("nvmlDeviceGetPowerManagementLimit"), lambda milliwatts: milliwatts / 1000),
        temperature_c=load["temperature_c"],
        slowdown_temperature_c=gpu.get("nvmlDeviceGetTemperatureThreshold", SLOWDOWN),
        event_reasons=load["event_reasons"],
        gpu_utilization_percent=load["gpu_utilization_percent"],
        encoder_utilization_percent=load["encoder_utilization_percent"],
        decoder_utilization_percent=load["decoder_utilization_percent"],
        memory_used_mib=mapped(memory, lambda info: info.used // 2**20),
        memory_total_mib=mapped(memory, lambda info: info.total // 2**20),
        ecc_corrected=gpu.get("nvmlDeviceGetTotalEccErrors", 0, 0),
        ecc_uncorrected=gpu.get("nvmlDeviceGetTotalEccErrors", 1, 0),
        processes=processes,
        more_processes=more,
    )


def _application_clocks(gpu: Gpu) -> Union[ClockPair, Missing]:
    graphics, memory = (gpu.get("nvmlDeviceGetApplicationsClock", clock) for clock in (0, 2))
    for reading in (graphics, memory):
        if isinstance(reading, Missing):
            return reading
    return ClockPair(memory, graphics)


def _processes(gpu: Gpu) -> Tuple[Union[Tuple[ProcessOnGpu, ...], Missing], int]:
    """(the processes with the most memory, how many more there are)."""
    processes = gpu.processes()
    if isinstance(processes, Missing):
        return processes, 0
    order = sorted(
        processes,
        key=lambda process: -1 if isinstance(process.memory_mib, Missing) else process.memory_mib,
        reverse=True,
    )
    kept = [
        replace(process, name=process.name[:MOST_LETTERS], owner=_owner(process)) for process in order[:MOST_PROCESSES]
    ]
    return tuple(kept), len(processes) - len(kept)


def _owner(process: ProcessOnGpu) -> Str:
    """The owner of a program, also without psutil, which an agent that is sent along lacks."""
    if isinstance(process.owner, str):
        return process.owner[:MOST_LETTERS]
    try:
        number = Path(f"/proc/{process.pid}").stat().st_uid
    except OSError as error:
        return Missing("not_visible", str(error)[:MOST_LETTERS])
    try:
        return pwd.getpwuid(number).pw_name[:MOST_LETTERS]
    except KeyError:
        return str(number)


def _xids() -> Union[Tuple[Xid, ...], Missing]:
    all_xids = xids.xids(simulated=simulation.source() is Source.SIMULATED)
    if isinstance(all_xids, Missing):
        return all_xids
    return tuple(replace(xid, message=xid.message[:MOST_LETTERS]) for xid in all_xids[-MOST_XIDS:])


def _line(made: LiveSample) -> str:
    """The sample as JSON on one line; without processes if it would be longer than MOST_BYTES."""
    text = to_json(made)
    if len(text) > MOST_BYTES and not isinstance(made.gpus, Missing):
        left_out = Missing("too_long", "there are too many to list")
        bare: List[Any] = [replace(gpu, processes=left_out) for gpu in made.gpus]
        text = to_json(replace(made, gpus=tuple(bare)))
    return text


def _text(value: Any) -> str:
    if isinstance(value, Missing):
        return ""
    return (value.decode(errors="replace") if isinstance(value, bytes) else str(value))[: 2 * MOST_LETTERS]


def _address(bus_id: str) -> str:
    """NVML's "00000000:00:1E.0" as the kernel writes it; "" for an invalid address."""
    try:
        return normal_address(bus_id)
    except ValueError:
        return ""
