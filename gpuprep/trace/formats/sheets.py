"""A document as tables: what text, Markdown, CSV and Excel have in common.

Times are in microseconds as in the document; each format may show them in another unit. A cell is None where the
profile does not tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Union

from gpuprep.reports.csv import lines as csv_lines
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

    def head(self, *, milliseconds: bool = False) -> str:
        """ "GPU time (us)". `milliseconds`: of a table whose times numbers.cell() writes."""
        unit = "ms" if milliseconds and self.unit == "us" else self.unit
        return f"{self.title} ({unit})" if unit else self.title


@dataclass(frozen=True)
class Sheet:
    """`rows` can be asked for once."""

    name: str  # the word of --table
    title: str
    columns: tuple[Column, ...]
    rows: Iterator[tuple[Cell, ...]]


def columns_of(titles: str) -> tuple[Column, ...]:
    """ "Calls, GPU time (us)" """
    made = []
    for each in titles.split(", "):
        title, _, unit = each.partition(" (")
        made.append(Column(title, unit.removesuffix(")")))
    return tuple(made)


def csv(document: TraceDocument, name: str = "ops") -> str:
    """One table for spreadsheets, the profile's name in each row. `name`: one of NAMES."""
    return csv_of(sheet(document, name), "Profile", document.file.profile_name)


def csv_of(table: Sheet, of: str, name: str) -> str:
    """With a column `of` before the others, which has `name` in each row."""
    heads = (of, *(column.head() for column in table.columns))
    return "".join(csv_lines([heads, *((name, *row) for row in table.rows)]))


def sheets(document: TraceDocument) -> Iterator[Sheet]:
    for name in NAMES:
        yield sheet(document, name)


def sheet(document: TraceDocument, name: str) -> Sheet:
    title, columns, rows = _SHEETS[name]
    return Sheet(name, title, columns, iter(rows(document)))


# ---------------------------------------------------------------- one function a table


def _summary(document: TraceDocument) -> Iterable[tuple[Cell, ...]]:
    summary = document.summary
    return (
        ("Profile", document.file.profile_name, ""),
        ("First iteration", summary.start_iteration, ""),
        ("Last iteration", summary.stop_iteration, ""),
        ("Iterations", summary.iterations, ""),
        ("Iterations in the file", summary.total_iterations, ""),
        ("Split by", summary.split_by, ""),
        ("Wall clock time", summary.wall_us, "us"),
        ("Average iteration time", summary.average_iteration_us, "us"),
        ("Step without the profiler, timed", document.slowdown.us, "us"),
        ("Step without the profiler, at least", document.slowdown.least_us, "us"),
        ("Step without the profiler, at most", document.slowdown.most_us, "us"),
        ("GPU busy time, union, mean of the GPUs", summary.gpu_busy_us, "us"),
        ("GPU utilization", summary.gpu_utilization_percent, "%"),
        ("Kernels", summary.kernels, ""),
        ("Kernel time, sum", summary.kernel_time_us, "us"),
        ("Memory operations", summary.memory_operations, ""),
        ("Memory operation time, sum", summary.memory_time_us, "us"),
        ("Tensor Core kernels", summary.tensor_core_kernels, ""),
        ("Tensor Core kernel time, sum", summary.tensor_core_kernel_time_us, "us"),
        ("Time of kernels whose name does not tell", summary.unknown_kernel_time_us, "us"),
        ("GPU time of ops that could use Tensor Cores", summary.eligible_op_time_us, "us"),
        ("Tensor Core kernel efficiency", summary.tensor_core_efficiency_percent, "%"),
        ("Tensor Core time in other ops", summary.tensor_core_time_elsewhere_us, "us"),
        ("Ops that use Tensor Cores", summary.ops_using_tensor_cores, ""),
        ("GPU time of ops that use Tensor Cores", summary.ops_using_tensor_cores_time_us, "us"),
        ("Ops that could use Tensor Cores and do not", summary.ops_eligible_not_using, ""),
        ("GPU time of ops that could use Tensor Cores and do not", summary.ops_eligible_not_using_time_us, "us"),
        ("All other ops", summary.other_ops, ""),
        ("GPU time of all other ops", summary.other_ops_time_us, "us"),
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


def _device(device: DeviceTotals) -> tuple[Cell, ...]:
    return (
        device.device, device.name, device.compute_capability, device.sms, device.memory_bytes,
        device.utilization_percent, device.kernels,
        device.kernel_time_us, device.memory_operations, device.memory_time_us, device.busy_us, device.span_us,
    )  # fmt: skip


def _advice(advice: Advice) -> tuple[Cell, ...]:
    gain = advice.gain
    return (
        advice.rule, advice.severity, advice.problem, advice.recommendation, gain.us if gain else None,
        gain.how if gain else "",
        advice.link, len(advice.ops), len(advice.kernels),
    )  # fmt: skip


def _iteration(iteration: Iteration) -> tuple[Cell, ...]:
    return (
        iteration.index, iteration.name, "yes" if iteration.profiled else "no", iteration.start_us, iteration.wall_us,
        iteration.busy_us, iteration.kernels,
        iteration.tensor_core_kernels, iteration.gpu_time_us, iteration.tensor_core_time_us,
        iteration.other_kernel_time_us,
        iteration.memory_time_us,
    )  # fmt: skip


def _spread(spread: Spread) -> tuple[Cell, ...]:
    return spread.total, spread.average, spread.shortest, spread.longest


def _op_type(line: OpTypeLine) -> tuple[Cell, ...]:
    return (
        line.type, line.ops, line.calls, *_spread(line.cpu_us), *_spread(line.gpu_us), *_spread(line.cpu_overhead_us),
        *_spread(line.gpu_idle_us),
    )  # fmt: skip


def _op(line: OpLine) -> tuple[Cell, ...]:
    return (
        line.gpu_us, line.gpu_with_children_us, line.cpu_us, line.name, line.direction, line.type, line.calls,
        "yes" if line.eligible else "no", "yes" if line.using_tensor_cores else "no", line.kernel_calls, line.dtypes,
        line.shapes, line.module, line.cpu_overhead_us, line.gpu_idle_us, line.flops, line.tflops,
        " > ".join(line.stack),
        line.id,
    )  # fmt: skip


def _kernel(line: KernelLine) -> tuple[Cell, ...]:
    return (
        line.name, line.tensor_cores, line.calls, line.total_us, line.average_us, line.shortest_us, line.longest_us,
        "memory operation" if line.memory else "kernel", line.rule, line.id,
    )  # fmt: skip


def _module(line: ModuleLine) -> tuple[Cell, ...]:
    return line.module, line.calls, line.gpu_us, line.tensor_core_time_us, line.cpu_us


def _roof(line: RoofLine) -> tuple[Cell, ...]:
    return (
        line.type, line.shape, line.dtype, line.calls, line.gpu_us, line.tflops, line.roof_tflops, line.percent,
        line.words,
        line.better, line.better_us, line.roof_source, line.op,
    )  # fmt: skip


def _note(note: Note) -> tuple[Cell, ...]:
    return note.id, note.count, note.text


_FOUR = "{0} total (us), {0} average (us), {0} shortest (us), {0} longest (us)"
Rows = Callable[[TraceDocument], Iterable[tuple[Cell, ...]]]
_SHEETS: dict[str, tuple[str, tuple[Column, ...], Rows]] = {
    "summary": ("Performance summary", columns_of("Figure, Value, Unit"), _summary),
    "advice": (
        "Recommendations",
        columns_of("Rule, Kind, Problem, Recommendation, Gain a step (us), Estimated by, Link, Ops, Kernels"),
        lambda document: map(_advice, document.advice),
    ),
    "ops": (
        "Ops",
        columns_of(
            "GPU time (us), GPU time with children (us), CPU time (us), Op name, Direction, Op type, Calls"
            ", Could use Tensor Cores, Uses Tensor Cores, Kernel calls, Data type, Input shapes, Module"
            ", CPU overhead (us), GPU idle (us)"
            ", Work of a call (FLOP), Speed (TFLOPS), Stack trace, Id"
        ),
        lambda document: map(_op, document.ops),
    ),
    "op-types": (
        "Op type summary",
        columns_of(
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
        columns_of(
            "Kernel name, Uses Tensor Cores, Calls, GPU time (us), Average (us), Shortest (us), Longest (us), Kind"
            ", Rule, Id"
        ),
        lambda document: map(_kernel, document.kernels),
    ),
    "iterations": (
        "Iterations",
        columns_of(
            "Iteration, Name, Profiled, Start (us), Duration (us), GPU busy (us), Kernels, Tensor Core kernels"
            ", GPU time (us), Tensor Core time (us), Other kernel time (us), Memory operation time (us)"
        ),
        lambda document: map(_iteration, document.iterations),
    ),
    "gpus": (
        "GPUs",
        columns_of(
            "GPU, Name, Compute capability, SMs, Memory (bytes), Utilization (%), Kernels, Kernel time (us)"
            ", Memory operations, Memory operation time (us), Busy time of the file (us), Span of the file (us)"
        ),
        lambda document: map(_device, document.file.devices),
    ),
    "modules": (
        "Modules",
        columns_of("Module, Calls, GPU time with modules below (us), Tensor Core time (us), CPU time (us)"),
        lambda document: map(_module, document.modules),
    ),
    "roofs": (
        "Roofs",
        columns_of(
            "Op type, Shape, Data type, Calls, GPU time (us), Speed (TFLOPS), Roof (TFLOPS), Of the roof (%), Why"
            ", Better, Saves a step (us), Roof from, Op"
        ),
        lambda document: map(_roof, document.roofs),
    ),
    "machine": ("System config", columns_of("Field, Value"), _machine),
    "notes": ("Left out or mended", columns_of("Note, Count, What"), lambda document: map(_note, document.file.notes)),
}
NAMES = tuple(_SHEETS)
