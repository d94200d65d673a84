"""A document as tables: what text, Markdown, CSV and Excel have in common.

Times are in microseconds as in the document; each format may show them in another unit. A cell is None where the
profile does not tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Union

from gpuprep.trace.document import (
    Advice,
    DeviceTotals,
    Iteration,
    KernelLine,
    ModuleLine,
    Note,
    OpLine,
    OpTypeLine,
    RoofLine,
    Spread,
    TraceDocument,
)

Cell = Union[str, int, float, None]


@dataclass(frozen=True)
class Column:
    title: str
    unit: str = ""  # "us", "%", "bytes", "TFLOPS", "FLOP"


@dataclass(frozen=True)
class Sheet:
    """`rows` can be asked for once."""

    name: str  # the word of --table
    title: str
    columns: tuple[Column, ...]
    rows: Iterator[tuple[Cell, ...]]


def _columns(titles: str) -> tuple[Column, ...]:
    """ "Calls, GPU time (us)" """
    made = []
    for each in titles.split(", "):
        title, _, unit = each.partition(" (")
        made.append(Column(title, unit.removesuffix(")")))
    return tuple(made)


def sheets(document: TraceDocument) -> Iterator[Sheet]:
    for name in NAMES:
        yield sheet(document, name)


def sheet(document: TraceDocument, name: str) -> Sheet:
    title, columns, rows = _SHEETS[name]
    return Sheet(name, title, columns, iter(rows(document)))


# ---------------------------------------------------------------- one function a table


def _summary(document: TraceDocument) -> Iterable[tuple[Cell, ...]]:
    one = document.summary
    return (
        ("Profile", document.file.profile_name, ""),
        ("First iteration", one.start_iteration, ""),
        ("Last iteration", one.stop_iteration, ""),
        ("Iterations", one.iterations, ""),
        ("Iterations in the file", one.total_iterations, ""),
        ("Split by", one.split_by, ""),
        ("Wall clock time", one.wall_us, "us"),
        ("Average iteration time", one.average_iteration_us, "us"),
        ("GPU busy time, union, mean of the GPUs", one.gpu_busy_us, "us"),
        ("GPU utilization", one.gpu_utilization_percent, "%"),
        ("Kernels", one.kernels, ""),
        ("Kernel time, sum", one.kernel_time_us, "us"),
        ("Memory operations", one.memory_operations, ""),
        ("Memory operation time, sum", one.memory_time_us, "us"),
        ("Tensor Core kernels", one.tensor_core_kernels, ""),
        ("Tensor Core kernel time, sum", one.tensor_core_kernel_time_us, "us"),
        ("Time of kernels whose name does not tell", one.unknown_kernel_time_us, "us"),
        ("GPU time of ops that could use Tensor Cores", one.eligible_op_time_us, "us"),
        ("Tensor Core kernel efficiency", one.tensor_core_efficiency_percent, "%"),
        ("Tensor Core time in other ops", one.tensor_core_time_elsewhere_us, "us"),
        ("Ops that use Tensor Cores", one.ops_using_tensor_cores, ""),
        ("GPU time of ops that use Tensor Cores", one.ops_using_tensor_cores_time_us, "us"),
        ("Ops that could use Tensor Cores and do not", one.ops_eligible_not_using, ""),
        ("GPU time of ops that could use Tensor Cores and do not", one.ops_eligible_not_using_time_us, "us"),
        ("All other ops", one.other_ops, ""),
        ("GPU time of all other ops", one.other_ops_time_us, "us"),
    )


def _machine(document: TraceDocument) -> Iterable[tuple[Cell, ...]]:
    file = document.file
    yield "File", file.name
    yield "Format", f"{file.format} {file.generation}".strip()
    yield "Size of the file", f"{file.bytes} bytes"
    if file.rank is not None:
        yield "Rank", f"{file.rank}" + (f" of {file.world_size}" if file.world_size is not None else "")
    yield from file.machine.items()
    for name, on in file.switches.items():
        yield name, "on" if on else "off"
    yield "Told by", file.machine_source


def _device(one: DeviceTotals) -> tuple[Cell, ...]:
    return (
        one.device, one.name, one.compute_capability, one.sms, one.memory_bytes, one.utilization_percent, one.kernels,
        one.kernel_time_us, one.memory_operations, one.memory_time_us, one.busy_us, one.span_us,
    )  # fmt: skip


def _advice(one: Advice) -> tuple[Cell, ...]:
    gain = one.gain
    return (
        one.rule, one.severity, one.problem, one.recommendation, gain.us if gain else None, gain.how if gain else "",
        one.link, len(one.ops), len(one.kernels),
    )  # fmt: skip


def _iteration(one: Iteration) -> tuple[Cell, ...]:
    return (
        one.index, one.name, "yes" if one.profiled else "no", one.start_us, one.wall_us, one.busy_us, one.kernels,
        one.tensor_core_kernels, one.gpu_time_us, one.tensor_core_time_us, one.other_kernel_time_us,
        one.memory_time_us,
    )  # fmt: skip


def _spread(one: Spread) -> tuple[Cell, ...]:
    return one.total, one.average, one.shortest, one.longest


def _op_type(one: OpTypeLine) -> tuple[Cell, ...]:
    return (
        one.type, one.ops, one.calls, *_spread(one.cpu_us), *_spread(one.gpu_us), *_spread(one.cpu_overhead_us),
        *_spread(one.gpu_idle_us),
    )  # fmt: skip


def _op(one: OpLine) -> tuple[Cell, ...]:
    return (
        one.gpu_us, one.gpu_with_children_us, one.cpu_us, one.name, one.direction, one.type, one.calls,
        "yes" if one.eligible else "no", "yes" if one.using_tensor_cores else "no", one.kernel_calls, one.dtypes,
        one.shapes, one.module, one.cpu_overhead_us, one.gpu_idle_us, one.flops, one.tflops, " > ".join(one.stack),
        one.id,
    )  # fmt: skip


def _kernel(one: KernelLine) -> tuple[Cell, ...]:
    return (
        one.name, one.tensor_cores, one.calls, one.total_us, one.average_us, one.shortest_us, one.longest_us,
        "memory operation" if one.memory else "kernel", one.rule, one.id,
    )  # fmt: skip


def _module(one: ModuleLine) -> tuple[Cell, ...]:
    return one.module, one.calls, one.gpu_us, one.tensor_core_time_us, one.cpu_us


def _roof(one: RoofLine) -> tuple[Cell, ...]:
    return (
        one.type, one.shape, one.dtype, one.calls, one.gpu_us, one.tflops, one.roof_tflops, one.percent, one.words,
        one.better, one.better_us, one.roof_source, one.op,
    )  # fmt: skip


def _note(one: Note) -> tuple[Cell, ...]:
    return one.id, one.count, one.text


_FOUR = "{0} total (us), {0} average (us), {0} shortest (us), {0} longest (us)"
Rows = Callable[[TraceDocument], Iterable[tuple[Cell, ...]]]
_SHEETS: dict[str, tuple[str, tuple[Column, ...], Rows]] = {
    "summary": ("Performance summary", _columns("Figure, Value, Unit"), _summary),
    "advice": (
        "Recommendations",
        _columns("Rule, Kind, Problem, Recommendation, Gain a step (us), Estimated by, Link, Ops, Kernels"),
        lambda document: map(_advice, document.advice),
    ),
    "ops": (
        "Ops",
        _columns(
            "GPU time (us), GPU time with children (us), CPU time (us), Op name, Direction, Op type, Calls, TC eligible"
            ", Using TC, Kernel calls, Data type, Input shapes, Module, CPU overhead (us), GPU idle (us)"
            ", Work of a call (FLOP), Speed (TFLOPS), Stack trace, Id"
        ),
        lambda document: map(_op, document.ops),
    ),
    "op-types": (
        "Op type summary",
        _columns(
            ", ".join(
                (
                    "Op type, Ops, Calls",
                    *(_FOUR.format(each) for each in ("CPU time", "GPU time", "CPU overhead", "GPU idle")),
                )
            )
        ),
        lambda document: map(_op_type, document.op_types),
    ),
    "kernels": (
        "Kernels",
        _columns(
            "Kernel name, Using TC, Calls, GPU time (us), Average (us), Shortest (us), Longest (us), Kind, Rule, Id"
        ),
        lambda document: map(_kernel, document.kernels),
    ),
    "iterations": (
        "Iterations",
        _columns(
            "Iteration, Name, Profiled, Start (us), Duration (us), GPU busy (us), Kernels, TC kernels, GPU time (us)"
            ", TC time (us), Other kernel time (us), Memory operation time (us)"
        ),
        lambda document: map(_iteration, document.iterations),
    ),
    "gpus": (
        "GPUs",
        _columns(
            "GPU, Name, Compute capability, SMs, Memory (bytes), Utilization (%), Kernels, Kernel time (us)"
            ", Memory operations, Memory operation time (us), Busy time of the file (us), Span of the file (us)"
        ),
        lambda document: map(_device, document.file.devices),
    ),
    "modules": (
        "Modules",
        _columns("Module, Calls, GPU time with modules below (us), TC time (us), CPU time (us)"),
        lambda document: map(_module, document.modules),
    ),
    "roofs": (
        "Roofs",
        _columns(
            "Op type, Shape, Data type, Calls, GPU time (us), Speed (TFLOPS), Roof (TFLOPS), Of the roof (%), Why"
            ", Better, Saves a step (us), Roof from, Op"
        ),
        lambda document: map(_roof, document.roofs),
    ),
    "machine": ("System config", _columns("Field, Value"), _machine),
    "notes": ("Left out or mended", _columns("Note, Count, What"), lambda document: map(_note, document.file.notes)),
}
NAMES = tuple(_SHEETS)
