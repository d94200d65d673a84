"""Text for a terminal: a first screen of at most 25 lines, or all tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuprep.trace.document import Advice, TraceDocument
from gpuprep.trace.formats.numbers import NOT_TOLD, cell, count, milliseconds, percent, share
from gpuprep.trace.formats.sheets import Cell, Sheet, sheet
from gpuprep.untrusted.plaintext import one_line

MOST_ADVICE = 3
MOST_OPS = 5
MOST_NOTES = 2
# The tables of --full, and how many of their rows a screen is given; the other formats have all rows.
TABLES = {
    "machine": 100, "gpus": 64, "iterations": 50, "op-types": 40, "ops": 60, "kernels": 60, "modules": 40, "roofs": 40,
    "notes": 100,
}  # fmt: skip
# Columns that a terminal has no room for.
TOO_WIDE = (
    "Stack trace", "Id", "Rule", "Module", "average", "shortest", "longest", "GPU time with children",
    "Work of a call", "Roof from", "Op type",
)  # fmt: skip
NAME = 48  # letters of a name in a table


def render(document: TraceDocument, *, full: bool = False, width: int = 80) -> str:
    lines = [*_head(document), *_advice(document, None if full else MOST_ADVICE, width)]
    if full:
        for name, most in TABLES.items():
            lines += _table(sheet(document, name), most)
    else:
        lines += _ops(document, width)
        lines += _notes(document)
        lines += ["", "--full shows all tables; --format html a page to explore them"]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(document: TraceDocument) -> Iterator[str]:
    file, one = document.file, document.summary
    yield one_line(f"{file.profile_name}  {_gpus(document)}  {file.format} {file.generation}".strip())
    chosen = count(one.total_iterations, "iteration")
    if one.iterations != one.total_iterations:
        chosen = f"iterations {one.start_iteration} to {one.stop_iteration} of {one.total_iterations}"
    yield (
        f"  {chosen} (split by {one_line(one.split_by, 60)}), {milliseconds(one.average_iteration_us)} ms each,"
        f" {milliseconds(one.wall_us)} ms in all"
    )
    yield f"  GPU utilization {percent(one.gpu_utilization_percent)}: busy {milliseconds(one.gpu_busy_us)} ms"
    yield (
        f"  kernel time {milliseconds(one.kernel_time_us)} ms of {count(one.kernels, 'kernel')};"
        f" memory operations {milliseconds(one.memory_time_us)} ms of {one.memory_operations:,}"
    )
    yield (
        f"  Tensor Core kernel efficiency {percent(one.tensor_core_efficiency_percent)}:"
        f" {milliseconds(one.tensor_core_kernel_time_us)} ms in Tensor Core kernels,"
        f" {milliseconds(one.ops_eligible_not_using_time_us)} ms in {count(one.ops_eligible_not_using, 'op')}"
        " that could use them and do not"
    )
    if one.unknown_kernel_time_us:
        yield f"  {milliseconds(one.unknown_kernel_time_us)} ms in kernels whose name does not tell"


def _gpus(document: TraceDocument) -> str:
    named: dict[str, int] = {}
    for device in document.file.devices:
        told = device.name or "a GPU without a name"
        told += f" ({device.compute_capability})" if device.compute_capability else ""
        named[told] = named.get(told, 0) + 1
    return ", ".join(f"{often} x {name}" if often > 1 else name for name, often in named.items()) or "no GPU"


def _advice(document: TraceDocument, most: int | None, width: int) -> Iterator[str]:
    found = document.advice
    told = [one for one in found if one.severity != "missing"] if most is not None else list(found)
    if not told:
        return
    shown = told if most is None else told[:most]
    yield ""
    yield "What to change" + (f" ({len(shown)} of {len(told)})" if len(shown) < len(told) else "")
    for one in shown:
        yield _cut(f"  {_gain(one):>14}  {one.rule}: {one.problem}", None if most is None else width)
        yield _cut(f"  {'':>14}  {one.recommendation}", None if most is None else width)
        if most is None:
            if one.gain:
                yield one_line(f"  {'':>14}  estimated: {one.gain.how}")
            if one.link:
                yield one_line(f"  {'':>14}  {one.link}")


def _gain(one: Advice) -> str:
    if one.gain is None:
        return {"missing": "cannot tell"}.get(one.severity, one.severity)
    return f"-{milliseconds(one.gain.us)} ms/step"


def _ops(document: TraceDocument, width: int) -> Iterator[str]:
    ops = sorted(document.ops, key=lambda one: -one.gpu_us)[:MOST_OPS]
    whole = document.summary.kernel_time_us + document.summary.memory_time_us
    if not ops or not whole:
        return
    yield ""
    yield f"  {'GPU ms':>10}  {'':>7}  {'calls':>7}  TC   op"
    for one in ops:
        uses = "yes" if one.using_tensor_cores else "NO" if one.eligible else "-"
        row = f"  {milliseconds(one.gpu_us):>10}  {share(one.gpu_us, whole):>7}  {one.calls:>7,}  {uses:<3}  {one.name}"
        yield _cut(row, width)


def _notes(document: TraceDocument) -> Iterator[str]:
    notes = document.file.notes
    if notes:
        yield ""
    for one in notes[:MOST_NOTES]:
        yield f"note: {one_line(one.text, 200)}"
    if len(notes) > MOST_NOTES:
        yield f"note: and {len(notes) - MOST_NOTES} more; --full has them"


def _table(one: Sheet, most: int) -> Iterator[str]:
    rows: list[tuple[Cell, ...]] = []
    more = 0
    for row in one.rows:
        if len(rows) < most:
            rows.append(row)
        else:
            more += 1
    if not rows:
        return
    kept = [place for place, column in enumerate(one.columns) if place == 0 or not _is_too_wide(column.title)]
    heads = [_head_of(one, place) for place in kept]
    cells = [[one_line(cell(row[place], one.columns[place].unit), NAME) for place in kept] for row in rows]
    numbers = [all(not isinstance(row[place], str) for row in rows) for place in kept]
    widths = [max(len(head), *(len(row[place]) for row in cells)) for place, head in enumerate(heads)]
    yield ""
    yield one.title
    for row_ in (heads, *cells):
        yield "  " + "  ".join(_aligned(row_, widths, numbers))
    if more:
        yield f"  ... and {more:,} more rows: --format csv --table {one.name}"


def _head_of(one: Sheet, place: int) -> str:
    column = one.columns[place]
    unit = "ms" if column.unit == "us" else column.unit
    return f"{column.title} ({unit})" if unit else column.title


def _aligned(row: Sequence[str], widths: Sequence[int], numbers: Sequence[bool]) -> Iterator[str]:
    for text, width, number in zip(row, widths, numbers, strict=True):
        yield f"{text:>{width}}" if number and text != NOT_TOLD else f"{text:<{width}}"


def _is_too_wide(title: str) -> bool:
    return any(title == word or title.endswith(f" {word}") for word in TOO_WIDE)


def _cut(line: str, width: int | None) -> str:
    if width is None:
        return line
    return line if len(line) <= width else line[: width - 1] + "…"
