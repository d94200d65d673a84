"""What is known of the machine that a profile was recorded on: System Config, and the GPU's board in the catalogue.

A trace tells little: neither the CPU nor the driver, and no version of PyTorch or cuDNN. A host's record (--record RUN)
and the notes that `gpuprep trace record` writes beside a trace tell the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from gpuprep import __version__
from gpuprep.catalogue import Board, board_of
from gpuprep.records import DecodeError, GpuFacts, Missing, RunRecord, Snapshot, from_json_value, showable
from gpuprep.trace.advice import physics
from gpuprep.trace.columns import Device, Format, Trace
from gpuprep.untrusted.limits import file_text, json_document
from gpuprep.untrusted.plaintext import one_line

NOT_TOLD = "not in the trace"
SIDECAR = ".gpuprep.json"  # recording/ writes it beside a trace
MOST_TIMED = 1000
LONGEST_STEP_MS = 86_400_000.0


def used_devices(trace: Trace) -> list[Device]:
    """Those that worked; all of the file where none did."""
    used = set(np.unique(trace.gpu.device).tolist())
    return [device for device in trace.devices if device.index in used] or trace.devices


def board_used(trace: Trace, record: RunRecord | None) -> Board | None:
    """The board of the GPUs that worked; None where they differ or the catalogue does not know them."""
    boards = [_board(device, record) for device in used_devices(trace)]
    keys = {board.key if board else "" for board in boards}
    return boards[0] if len(keys) == 1 else None


def _board(device: Device, record: RunRecord | None) -> Board | None:
    for gpu in _gpus(record):
        if gpu.name == device.name:
            return board_of(gpu)
    return physics.board_of(device)


@dataclass(frozen=True)
class Beside:
    """What `gpuprep trace record` wrote beside a trace."""

    machine: dict[str, str]
    record: RunRecord | None = None
    timed_step_ns: float | None = None  # a step without the profiler


def beside(path: Path) -> Beside:
    """Empty if the notes are missing or cannot be read: the trace is still shown."""
    try:
        sidecar = json_document(file_text(path.with_name(f"{path.name}{SIDECAR}")))
        record = sidecar.get("record") if isinstance(sidecar, dict) else None
        known = showable.safe(from_json_value(RunRecord, record)) if record else None
    except (OSError, ValueError, DecodeError):
        return Beside({})
    machine = sidecar.get("machine") if isinstance(sidecar, dict) else None
    items = machine.items() if isinstance(machine, dict) else ()
    noted = {one_line(key, 60): one_line(value, 200) for key, value in items if isinstance(value, str)}
    return Beside(noted, known, _timed(sidecar.get("step_ms_without_profiler") if isinstance(sidecar, dict) else None))


def _timed(durations: object) -> float | None:
    """ns of the median of the steps that were timed; None where that is no list of times."""
    if not isinstance(durations, list) or not 0 < len(durations) <= MOST_TIMED:
        return None
    times = [
        float(duration) for duration in durations if type(duration) in (int, float) and 0 < duration < LONGEST_STEP_MS
    ]
    return median(times) * 1e6 if len(times) == len(durations) else None


def system_config(trace: Trace, record: RunRecord | None, noted: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """The fields of the panel, in its order, and the source of each."""
    of_record = dict(_of_record(record))
    values = {**dict(_of_trace(trace)), **{key: value for key, value in noted.items() if value}, **of_record}
    wanted = ("GPU count", "GPU names", "CPU model", "GPU driver version", "Framework", "CUDA version", "cuDNN version")
    fields = {key: values.pop(key, NOT_TOLD) for key in wanted}
    raw = {key: value for key, value in trace.machine.items() if key not in _READ}
    source = ["the trace", *(["the notes beside it"] if noted else [])]
    source += [f"the record {record.run_id}"] if record else []
    return {**fields, **values, **raw, "gpuprep version": __version__}, " and ".join(source)


# Keys of Trace.machine that are shown under the panel's own names.
_READ = ("cpu", "driver", "cuda_driver_version", "cuda_runtime_version", "export_product_version", "framework")


def _of_trace(trace: Trace) -> Iterator[tuple[str, str]]:
    used = used_devices(trace)
    if used:
        worked = len(used) if trace.gpu.start.size else 0
        yield "GPU count", f"{len(trace.devices)}, of which {worked} worked in this profile"
        yield "GPU names", ", ".join(dict.fromkeys(device.name or "without a name" for device in used))
    machine = trace.machine
    for key, field in (
        ("cpu", "CPU model"),
        ("driver", "GPU driver version"),
        ("export_product_version", "NSys version"),
    ):
        if machine.get(key):
            yield field, machine[key]
    if machine.get("framework"):
        yield "Framework", machine["framework"]
    elif trace.format is Format.KINETO and any(name.startswith("aten::") for name in trace.names):
        yield "Framework", "PyTorch (its version is not in the trace)"
    versions = [
        f"{what} {_cuda(machine[key])}"
        for key, what in (("cuda_runtime_version", "runtime"), ("cuda_driver_version", "driver API"))
        if machine.get(key)
    ]
    if versions:
        yield "CUDA version", ", ".join(versions)


def _cuda(number: str) -> str:
    """12090 ► 12.9, as cudaRuntimeGetVersion counts."""
    if not (number.isdecimal() and len(number) <= 6 and int(number) >= 1000):
        return number
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}"


def _of_record(record: RunRecord | None) -> Iterator[tuple[str, str]]:
    snapshot = _snapshot(record)
    if record is None or snapshot is None:
        return
    yield "Host", f"{one_line(snapshot.hostname, 100)}, {one_line(snapshot.os.pretty_name, 100)}"
    for field, value in (
        ("GPU driver version", snapshot.driver.loaded_version),
        ("cuDNN version", snapshot.cudnn.version),
        ("CUDA toolkit", snapshot.cuda.nvcc_version),
        ("Kernel", snapshot.kernel.running),
    ):
        if isinstance(value, str) and value:
            yield field, one_line(value, 100)
    torch = snapshot.python_modules.get("torch")
    if isinstance(torch, str):
        yield "Framework", f"PyTorch {one_line(torch, 100)}"


def _snapshot(record: RunRecord | None) -> Snapshot | None:
    return None if record is None else record.after or record.before


def _gpus(record: RunRecord | None) -> tuple[GpuFacts, ...]:
    snapshot = _snapshot(record)
    return () if snapshot is None or isinstance(snapshot.gpus, Missing) else snapshot.gpus
