"""What `gpuprep trace report PATH --format json` prints, and what the page shows. Made of a Profile by trace/tables.

Times are microseconds as floats unless the name ends otherwise. null: not in the profile.

Its JSON Schema is made of these dataclasses by trace/formats/documents.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

SCHEMA_VERSION = 1
SMALLEST_GAIN_US = 0.05  # a step: a smaller gain counts as none


@dataclass(frozen=True)
class Note:
    """What was left out of the file, mended or guessed."""

    id: str
    count: int
    text: str  # "12 events with corrupt durations left out"


@dataclass(frozen=True)
class DeviceTotals:
    """Sums over the whole file, of one GPU."""

    device: int
    name: str
    compute_capability: str
    sms: int | None
    memory_bytes: int | None
    kernels: int
    kernel_time_us: float  # a sum: work at the same time on two streams counts twice
    memory_operations: int
    memory_time_us: float
    busy_us: float  # the union of all GPU events
    span_us: float  # first start to last end
    utilization_percent: float | None  # of the chosen iterations: busy time inside them


@dataclass(frozen=True)
class File:
    name: str
    profile_name: str
    format: str
    generation: str
    bytes: int
    rank: int | None
    world_size: int | None
    devices: tuple[DeviceTotals, ...]
    machine: dict[str, str]  # the System Config panel: what the file tells, then what the host's record tells
    machine_source: str  # "the trace", or "the trace and the record RUN"
    switches: dict[str, bool]
    notes: tuple[Note, ...]


@dataclass(frozen=True)
class Summary:
    """Of the chosen iterations."""

    start_iteration: int
    stop_iteration: int
    iterations: int  # chosen
    total_iterations: int
    split_by: str  # "ProfilerStep", "key op NAME", "one"
    wall_us: float
    gpu_busy_us: float  # mean over the devices of the union inside the window
    gpu_utilization_percent: float | None
    average_iteration_us: float
    kernels: int
    kernel_time_us: float
    memory_operations: int
    memory_time_us: float
    tensor_core_kernels: int
    tensor_core_kernel_time_us: float
    unknown_kernel_time_us: float  # kernels whose name does not tell
    eligible_op_time_us: float  # GPU time of the ops that could use Tensor Cores
    tensor_core_efficiency_percent: float | None  # Tensor Core time inside eligible ops / eligible op time
    tensor_core_time_elsewhere_us: float  # under ops that are not on the list
    ops_using_tensor_cores: int
    ops_using_tensor_cores_time_us: float
    ops_eligible_not_using: int
    ops_eligible_not_using_time_us: float
    other_ops: int
    other_ops_time_us: float


@dataclass(frozen=True)
class Iteration:
    index: int
    name: str
    start_us: float
    wall_us: float
    profiled: bool  # inside the chosen range
    kernels: int
    tensor_core_kernels: int
    gpu_time_us: float  # a sum over all kernels and memory operations, divided by the GPUs: may pass wall_us
    tensor_core_time_us: float
    other_kernel_time_us: float
    memory_time_us: float
    busy_us: float  # union, mean over the GPUs: never passes wall_us


@dataclass(frozen=True)
class OpLine:
    id: int
    name: str
    type: str
    direction: str
    module: str
    dtypes: str
    shapes: str
    stack: tuple[str, ...]
    calls: int
    kernel_calls: int
    eligible: bool
    using_tensor_cores: bool
    gpu_us: float  # kernels of the op itself: the rows sum to the total
    gpu_with_children_us: float
    cpu_us: float
    cpu_overhead_us: float
    gpu_idle_us: float
    flops: float | None  # of one call
    tflops: float | None  # FLOPs of all calls / GPU time


@dataclass(frozen=True)
class Spread:
    total: float
    average: float
    shortest: float
    longest: float


@dataclass(frozen=True)
class OpTypeLine:
    type: str
    ops: int
    calls: int
    cpu_us: Spread
    gpu_us: Spread
    cpu_overhead_us: Spread
    gpu_idle_us: Spread


@dataclass(frozen=True)
class KernelLine:
    id: int
    name: str
    memory: bool
    tensor_cores: str  # yes, no, unknown
    rule: str
    calls: int
    total_us: float
    average_us: float
    shortest_us: float
    longest_us: float


@dataclass(frozen=True)
class ModuleLine:
    module: str
    calls: int
    gpu_us: float  # with all modules below it
    tensor_core_time_us: float
    cpu_us: float


@dataclass(frozen=True)
class Gain:
    us: float  # a step
    how: str  # how it was estimated, in one sentence; with the range, and why there is one
    least_us: float | None = None  # the range that it lies in, where the profile leaves it open
    most_us: float | None = None
    # For a profile without marked steps, of which the profiler's slowdown is unknown: only this share is reported.
    share_percent: float | None = None

    @property
    def saves(self) -> str:
        """ "1.23 ms a step", "67 % of the time"; "" where it saves nothing."""
        if self.us < SMALLEST_GAIN_US:
            return ""
        if self.share_percent is not None:
            return f"{self.share_percent:.0f} % of the time"
        return f"{self.us / 1e3:,.2f} ms a step" if self.us >= 100 else f"{self.us:.1f} µs a step"


@dataclass(frozen=True)
class Advice:
    """A recommendation. `rule` is an id of advice/rules.yml."""

    rule: str
    severity: str  # "problem", "hint", "missing": cannot be judged from this profile
    problem: str  # with its figures
    recommendation: str
    link: str
    ops: tuple[int, ...]  # ids of the rows it is about
    kernels: tuple[int, ...]
    view: str  # the view of the page with the rows: "ops", "kernels", "iterations", "timeline", "memory", ""
    gain: Gain | None
    figures: dict[str, float] = field(default_factory=dict)
    unjudged: tuple[str, ...] = ()  # of severity "missing": the problems that cannot be judged without it


@dataclass(frozen=True)
class Slowdown:
    """How much the profiler slowed a step. Nothing is known where `us`, `least_us` and `most_us` are null."""

    us: float | None = None  # a step without the profiler, timed in the same run
    least_us: float | None = None  # where it was not timed: between the GPU's own work ...
    most_us: float | None = None  # ... and the profiled step
    words: str = ""  # the same in a sentence


@dataclass(frozen=True)
class RoofLine:
    """A matrix product, convolution or attention against the roof of its GPU at its data type."""

    op: int
    type: str
    shape: str  # "m=4096 n=4096 k=4097"
    dtype: str
    calls: int
    gpu_us: float  # of all calls
    tflops: float
    roof_tflops: float
    roof_source: str  # "catalogue" or "record RUN"
    # null above the peak: it needs fewer operations than are counted (Winograd), or is not possible
    percent: float | None
    words: str  # why it is below: tiles, waves, alignment
    better: str  # "3.1 times faster with K padded from 4097 to 4104", or ""
    better_us: float | None  # saved a step


@dataclass(frozen=True)
class TraceDocument:
    schema_version: int
    file: File
    summary: Summary
    iterations: tuple[Iteration, ...]
    op_types: tuple[OpTypeLine, ...]
    ops: tuple[OpLine, ...]
    kernels: tuple[KernelLine, ...]
    modules: tuple[ModuleLine, ...]
    advice: tuple[Advice, ...]
    roofs: tuple[RoofLine, ...]
    slowdown: Slowdown = Slowdown()


def plain(value: Any) -> Any:
    """For msgspec: a numpy number as a Python number. Raises TypeError for anything else."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no part of a document")


def unlike(before: TraceDocument, after: TraceDocument) -> list[str]:
    """Why steps of the two profiles cannot be compared, in sentences."""
    differences = []
    boards = [
        tuple(sorted({device.name for device in document.file.devices if device.kernels}))
        for document in (before, after)
    ]
    if boards[0] != boards[1]:
        words = [", ".join(names) or "no GPU" for names in boards]
        differences.append(f"The profiles are of different GPUs: {words[0]} and {words[1]}.")
    split = [document.summary.split_by for document in (before, after)]
    if split[0] != split[1]:
        differences.append(f"The profiles are split into iterations in different ways: {split[0]} and {split[1]}.")
    return differences
