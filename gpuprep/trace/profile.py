"""A profile with its links: which op launched which kernel, in which iteration. All tables are sums of its cells.

Rows of `cells` are the one source of every table: a range of iterations is a sum over rows, in Python and in the page.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from gpuprep.trace.columns import Floats, Ints, Trace


class UsesTensorCores(str, Enum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Direction(str, Enum):
    FORWARD = "fprop"
    BACKWARD = "bprop"
    NONE = ""


# Row 0 of the ops: GPU work without an op. Its name says why.
NO_OP = 0
# Iteration of what lies outside of all iterations.
OUTSIDE = -1
REPEATED = "repetition of kernels"  # Iterations.how: the program does not mark its steps


@dataclass(frozen=True)
class OpRow:
    """A row of the ops: one type of op at one place with one kind of input. Times are in Cells and OpCells."""

    name: str  # where it is called: module path, op, shapes
    type: str  # aten::addmm
    direction: Direction
    module: str  # "ResNet_0/Sequential_1/Conv2d_3", "" where the profile has no modules
    arguments: int  # index of Trace.arguments, -1 without
    dtypes: str
    shapes: str
    stack: tuple[str, ...]  # outermost first, of the first call
    eligible: bool  # its work could use Tensor Cores on the GPU of this profile
    why: str  # why it is eligible or not, in a few words
    flops: float  # of one call; NaN where the shapes do not tell


@dataclass(frozen=True)
class KernelRow:
    """A kernel or a memory operation by name."""

    name: str
    memory: bool  # a copy or a fill
    tensor_cores: UsesTensorCores
    rule: str  # the rule that decided; "" for unknown
    launch_grid: str  # of the first launch: "(128,1,1)"
    launch_block: str


@dataclass
class Iterations:
    """Iterations in the order of time, apart from each other. What is launched in [start, end] belongs to it."""

    names: list[str]  # "ProfilerStep#3"
    start: Ints  # ns
    end: Ints
    until: Ints  # the last end on the CPU or of the GPU work that it launched
    first: (
        Ints  # start of its first op: the wall clock of a range runs from `first` of its first one to its last `until`
    )
    how: str  # "ProfilerStep", "key op aten::addmm", REPEATED, "one": how the profile was split


@dataclass
class Cells:
    """Sums of GPU time by (iteration, op, kernel, device), sorted in this order. Times in ns."""

    iteration: Ints  # int32, OUTSIDE for what lies in none
    op: Ints  # int32, index of Profile.ops
    kernel: Ints  # int32, index of Profile.kernels
    device: Ints  # int32, the device's own number
    calls: Ints  # int64
    total: Ints
    shortest: Ints
    longest: Ints


@dataclass
class OpCells:
    """Sums of CPU time by (iteration, op). Times in ns; in 32 bits where all of a column fit: add, never multiply."""

    iteration: Ints
    op: Ints
    calls: Ints
    cpu: Ints  # the op's own range, with its children
    cpu_self: Ints  # without its children
    overhead: Ints  # cpu_self less the time in calls of the CUDA API
    gpu_idle: Ints  # gaps in the op's own GPU span
    cpu_shortest: Ints
    cpu_longest: Ints
    gpu_with_children: Ints  # its kernels and memory operations and those of the ops inside of it
    # Of the single calls, each with its own kernels alone, in whatever iteration these were launched: an op may last
    # beyond the end of its iteration. Sums of GPU time by iteration are those of Cells.
    gpu: Ints
    gpu_shortest: Ints
    gpu_longest: Ints
    overhead_shortest: Ints
    overhead_longest: Ints
    gpu_idle_shortest: Ints
    gpu_idle_longest: Ints


@dataclass
class ModuleCells:
    """Sums of CPU time by (iteration, module). Times in ns."""

    iteration: Ints
    module: Ints  # int32, index of Profile.modules
    calls: Ints
    cpu: Ints  # with all modules inside of it


@dataclass
class KernelInstances:
    """Of every GPU event of Trace.gpu, in its order: where it belongs."""

    kernel: Ints  # int32, index of Profile.kernels
    op: Ints  # int32, index of Profile.ops
    instance: Ints  # int32, row of Trace.ops: the innermost op around its launch; -1 without
    call: Ints  # int32, row of Trace.calls; -1 without
    iteration: Ints  # int32


@dataclass
class OpInstances:
    """Of every range of Trace.ops, in its order."""

    op: Ints  # int32, index of Profile.ops; -1 of ranges that are no op
    parent: Ints  # int32, row of Trace.ops: the innermost range around it on its thread; -1 without
    iteration: Ints  # int32
    # int64, ns, of each range: OpCells are sums of them. The page sums them anew when another key op moves the
    # iterations. Empty where the model did not tell.
    cpu_self: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    overhead: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    gpu_idle: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True)
class Links:
    """How the GPU events found their ops: numbers of GPU events."""

    to_call: int  # with an API call that launched them
    to_op: int  # with an op
    by_external: int  # of these, by the External id alone
    checked: int  # both the stack and the External id name an op
    agree: int  # and it is the same


@dataclass
class Profile:
    """A whole file, linked."""

    trace: Trace
    iterations: Iterations
    ops: list[OpRow]
    kernels: list[KernelRow]
    cells: Cells
    op_cells: OpCells
    gpu: KernelInstances
    ranges: OpInstances
    # Busy time of each (iteration, device): the union of its GPU events inside the iteration's own window, ns.
    # float64 (iterations, devices of `device_order`)
    busy: Floats
    device_order: list[int]
    modules: list[str]  # paths: "ResNet_0/Sequential_1/Conv2d_3"; empty where the profile has no modules
    module_cells: ModuleCells
    links: Links
    name: str = ""  # the profile's name, of --profile-name or of the file
