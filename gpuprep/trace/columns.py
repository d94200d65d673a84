"""What a profile holds, as columns: one numpy array a property, one row an event. Readers fill it, the model links it.

Times are whole nanoseconds since `Trace.zero_ns`. What the file does not give: -1, "", NaN.
"""

from __future__ import annotations

import contextlib
import ctypes
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.floating[Any]]

NONE = -1
# Notes of a profile whose GPU is not of NVIDIA: it has no Tensor Cores, and is in no catalogue.
OTHER_VENDORS = ("amd_gpu", "xpu", "other_accelerator")


class GpuKind(IntEnum):
    """What a GPU event is: a kernel, or a memory operation."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2


class OpKind(IntEnum):
    """What a range on the CPU is."""

    OP = 0  # an operator of the framework; of Nsight Systems an NVTX range that is named like an operator
    ANNOTATION = 1  # a name that a program gave: ProfilerStep#3, Optimizer.step, an NVTX range
    MODULE = 2  # nn.Module: Linear_0
    PYTHON = 3  # a Python function: file(line): name


@dataclass
class GpuEvents:
    """Kernels, copies and fills of GPU memory. Every array has one row an event, in the order of the file."""

    start: Ints  # int64, ns
    end: Ints  # int64, ns; never before start
    kind: Ints  # uint8, GpuKind
    name: Ints  # int32, index of Trace.names
    device: Ints  # int32
    stream: Ints  # int64
    process: Ints  # int32, index of Trace.processes: a correlation id is unique only within a process
    correlation: Ints  # int64
    external: Ints  # int64, the op's id if the file has it; always checked against the call stack
    bytes: Ints  # int64, of memory operations
    grid: Ints  # int32, (rows, 3)
    block: Ints  # int32, (rows, 3)
    registers: Ints  # int32, a thread
    shared: Ints  # int32, bytes of shared memory
    blocks_per_sm: Floats  # float32, as the profiler says
    occupancy: Floats  # float32, percent, as the profiler estimates
    graph_node: Ints  # int64, of a CUDA graph


@dataclass
class Calls:
    """Calls of the CUDA runtime and driver."""

    start: Ints
    end: Ints
    name: Ints  # int32, index of Trace.names: cudaLaunchKernel, without a suffix _v7000
    thread: Ints  # int32, index of Trace.threads
    process: Ints
    correlation: Ints
    external: Ints


@dataclass
class Ops:
    """Ranges on CPU threads: operators, annotations, modules, Python functions."""

    start: Ints
    end: Ints
    kind: Ints  # uint8, OpKind
    name: Ints  # int32, index of Trace.names
    thread: Ints
    process: Ints
    external: Ints
    sequence: Ints  # int64, joins a forward op with its backward op
    forward_thread: Ints  # int64, of a backward op: torch's own number of the forward thread
    arguments: Ints  # int32, index of Trace.arguments


@dataclass(frozen=True)
class Arguments:
    """What an op was called with, as far as the profile tells. Texts are as in the file, bounded, not yet made safe."""

    shapes: tuple[Any, ...] = ()  # one entry an input: a tuple of sizes, () for a scalar, a tuple of tuples for a list
    dtypes: tuple[str, ...] = ()  # "float", "c10::Half", "c10::BFloat16", "Scalar", ""
    strides: tuple[Any, ...] = ()
    concrete: tuple[str, ...] = ()  # the values of scalar inputs: "[1, 1]", "False"
    output: tuple[int, ...] = ()  # of a convolution without `concrete`, as its backward op tells (work/flops.py)
    other: tuple[tuple[str, str], ...] = ()  # kernel_backend, Collective name, Group size and their like


@dataclass
class MemoryEvents:
    """What the allocator did, of `[memory]` events."""

    time: Ints  # int64, ns
    device: Ints  # int32; -1 is the CPU
    bytes: Ints  # int64; below 0: freed
    allocated: Ints  # int64, total after it
    reserved: Ints  # int64


@dataclass(frozen=True)
class Thread:
    process: int
    label: str  # the name in the file


@dataclass(frozen=True)
class Device:
    """A GPU of the machine; used or not."""

    index: int
    name: str = ""
    compute_capability: str = ""  # "8.0"
    sms: int = NONE
    memory_bytes: int = NONE


class Format(str, Enum):
    KINETO = "kineto"
    NSYS = "nsys"


@dataclass
class Trace:
    """One profile: one file of one process (Kineto) or of one session (Nsight Systems)."""

    file: str  # its name without the folder
    format: Format
    generation: str  # "G1" to "G4" of Kineto; the schema's version of Nsight Systems: "3.25.0"
    size: int  # bytes of the file as it lies on the disk
    zero_ns: int  # the time 0 of all columns, ns since 1970; -1 where the file does not tell
    names: list[str]
    processes: list[str]
    threads: list[Thread]
    devices: list[Device]
    gpu: GpuEvents
    calls: Calls
    ops: Ops
    memory: MemoryEvents
    arguments: list[Arguments]
    # Pairs of rows of `ops`: a forward op and its backward op, of flows `fwdbwd`. int32, (pairs, 2)
    backward_of: Ints
    # What the profile was recorded with: record_shapes, with_stack, profile_memory, with_flops, with_modules.
    switches: dict[str, bool] = field(default_factory=dict)
    # What the file says of its machine: cuda_driver_version, driver, cpu, backend. Never an environment.
    machine: dict[str, str] = field(default_factory=dict)
    # What was left out or repaired: key of a sentence in notes.yml ► how often.
    notes: dict[str, int] = field(default_factory=dict)
    rank: int = NONE
    world_size: int = NONE


# ---------------------------------------------------------------- memory of arrays

# Memory that glibc's malloc would keep. Other C libraries have no such calls, and keep it.


def own_memory_for_arrays(least: int = 1 << 20) -> None:
    """From now on each array of `least` bytes or more gets memory of its own, which goes back to the system with it.

    glibc raises that limit up to 32 MiB by itself, and keeps what is smaller. Of a profile of 5 GB, with columns of
    tens of MB that come and go, that was 1 GB. mallopt(3): M_MMAP_THRESHOLD is -3.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(-3, least)


def give_back() -> None:
    """Memory of freed arrays to the system. Between the steps of linking a profile of 5 GB that is 0.6 GB.

    Arrays below the limit of own_memory_for_arrays() lie between others, and larger ones may fill their gaps.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
