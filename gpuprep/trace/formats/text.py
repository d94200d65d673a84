"""Text for a terminal: a first screen of at most 25 lines, or all tables."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence

from gpuprep.reports.terminal import aligned, cut
from gpuprep.trace.advice import rules
from gpuprep.trace.document import Advice, TraceDocument
from gpuprep.trace.formats.numbers import NOT_TOLD, cell, count, gpus, milliseconds, percent, share
from gpuprep.trace.formats.sheets import Cell, Sheet, sheet
from gpuprep.trace.profile import REPEATED
from gpuprep.untrusted.plaintext import one_line

MOST_ADVICE = 3
MOST_LINES = 2  # of a recommendation
MOST_OPS = 4
SCREEN = 25  # lines of the first screen
MOST_NOTES = 100
MOST_LETTERS = 2000
# The tables of --full, and how many of their rows a screen is given; the other formats have all rows.
TABLES = {
    "machine": 100, "gpus": 64, "iterations": 50, "op-types": 40, "ops": 60, "kernels": 60, "modules": 40, "roofs": 40,
}  # fmt: skip
# Columns that a terminal has no room for.
TOO_WIDE = (
    "Stack trace", "Id", "Rule", "Module", "average", "shortest", "longest", "GPU time with children",
    "Work of a call", "Roof from", "Op type",
)  # fmt: skip
NAMESPACES = re.compile(r"\bvoid |\(anonymous namespace\)::|\bat::native::|\bcutlass::")
NAME = 48  # characters of a name in a table
SENTENCES = ("Why", "Better", "Value")  # columns whose end says what counts
WORDS = 200
TENSOR_CORES = "Tensor Cores"
MOST_DEPTH = 8  # of modules


def render(document: TraceDocument, *, full: bool = False, width: int = 80) -> str:
    if not full:
        above, below = [*_head(document, width), *_changes(document, width)], list(_left_out(document, width))
        below.append("--full shows all tables; --format html a page to explore them")
        room = SCREEN - len(above) - len(below) - 2  # an empty line, and the head of the table
        lines = [*above, *_ops(document, width, min(MOST_OPS, room)), *below]
    else:
        lines = [*_head(document, width), *_advice(document, width)]
        for name, most in TABLES.items():
            lines += _table(sheet(document, name), most)
        lines += _notes(document, width)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(document: TraceDocument, width: int) -> Iterator[str]:
    file, summary = document.file, document.summary
    yield one_line(f"{file.profile_name or file.name}  {gpus(document)}  {file.format} {file.generation}".strip())
    chosen = count(summary.total_iterations, "iteration")
    if summary.iterations != summary.total_iterations:
        chosen = f"iterations {summary.start_iteration} to {summary.stop_iteration} of {summary.total_iterations}"
    split = {"one": "not split", REPEATED: f"steps found by {REPEATED}"}.get(
        summary.split_by, f"split by {one_line(summary.split_by, 60)}"
    )
    yield (
        f"  {chosen} ({split}), {milliseconds(summary.average_iteration_us)} ms each, "
        f"{milliseconds(summary.wall_us)} ms in all"
    )
    if document.slowdown.words:
        yield from textwrap.wrap(document.slowdown.words, width, initial_indent="  ", subsequent_indent="  ")
    yield f"  GPU utilization {percent(summary.gpu_utilization_percent)}: busy {milliseconds(summary.gpu_busy_us)} ms"
    unknown = f"; of {milliseconds(summary.unknown_kernel_time_us)} ms the name does not tell"
    yield (
        f"  {count(summary.kernels, 'kernel')} {milliseconds(summary.kernel_time_us)} ms,"
        f" {count(summary.memory_operations, 'memory operation')} {milliseconds(summary.memory_time_us)} ms"
    )
    yield (
        f"  Tensor Core kernels {milliseconds(summary.tensor_core_kernel_time_us)} ms, efficiency"
        f" {percent(summary.tensor_core_efficiency_percent)}{unknown if summary.unknown_kernel_time_us else ''}"
    )
    if summary.ops_eligible_not_using:
        yield (
            f"  {count(summary.ops_eligible_not_using, 'op')} could use Tensor Cores and"
            f" {'does' if summary.ops_eligible_not_using == 1 else 'do'} not:"
            f" {milliseconds(summary.ops_eligible_not_using_time_us)} ms"
        )


def _changes(document: TraceDocument, width: int) -> Iterator[str]:
    """The first screen's: what gains most, or what is missing where nothing can be judged."""
    advice = [advice for advice in document.advice if advice.severity != "missing"] or list(document.advice)
    if not advice:
        return
    shown = advice[:MOST_ADVICE]
    yield ""
    left = f" ({len(shown)} of {len(advice)}, then {', '.join(_ids(advice))})" if len(shown) < len(advice) else ""
    yield cut(f"What to change in a step{left}", width)
    for change in shown:
        yield cut(f"  {_gain(change):>14}  {rules()[change.rule].title}", width)
        wrapped = _wrapped(change.recommendation, width)
        yield from wrapped[: MOST_LINES - 1]
        if len(wrapped) >= MOST_LINES:
            rest = wrapped[MOST_LINES - 1]
            yield rest if len(wrapped) == MOST_LINES else cut(f"{rest} …", width)
    if missing := next((one for one in document.advice if one.unjudged and one not in shown), None):
        yield cut(f"  {_gain(missing):>14}  {', '.join(missing.unjudged)}", width)
        yield cut(_wrapped(missing.recommendation, width)[0], width)


def _ids(listed: Sequence[Advice]) -> list[str]:
    """Of what the first screen has no room for."""
    return list(dict.fromkeys(advice.rule for advice in listed[MOST_ADVICE:]))


def _advice(document: TraceDocument, width: int) -> Iterator[str]:
    if not document.advice:
        return
    yield ""
    yield "What to change in a step (each change alone: what they save does not add up)"
    for advice in document.advice:
        yield f"  {_gain(advice):>14}  {rules()[advice.rule].title} ({advice.rule})"
        estimated = f"Estimated: {advice.gain.how}" if advice.gain else ""
        for text in filter(None, (advice.problem, advice.recommendation, estimated, advice.link)):
            yield from _wrapped(text, width)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(
        one_line(text, MOST_LETTERS),
        max(width, 60),
        initial_indent=" " * 18,
        subsequent_indent=" " * 18,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _gain(advice: Advice) -> str:
    if advice.gain is None:
        return {"missing": "cannot tell"}.get(advice.severity, advice.severity)
    if advice.gain.saves and advice.gain.share_percent is not None:
        return f"saves {advice.gain.share_percent:.0f} %"
    return f"saves {milliseconds(advice.gain.us)} ms" if advice.gain.saves else "saves nothing"


def _ops(document: TraceDocument, width: int, most: int) -> Iterator[str]:
    ops = sorted(document.ops, key=lambda op: -op.gpu_us)[: max(0, most)]
    whole = document.summary.kernel_time_us + document.summary.memory_time_us
    if not ops or not whole:
        return
    yield ""
    yield f"  {'GPU ms':>8}  {'':>7}  {'calls':>6}  {TENSOR_CORES}  op"
    for op in ops:
        uses = "yes" if op.using_tensor_cores else "NO" if op.eligible else "-"
        name = op_name(op.name, op.module, op.shapes)
        figures = f"  {milliseconds(op.gpu_us):>8}  {share(op.gpu_us, whole):>7}  {op.calls:>6,}"
        yield cut(f"{figures}  {uses:<{len(TENSOR_CORES)}}  {name}", width)


def op_name(name: str, module: str, shapes: str) -> str:
    """With the last module of its path alone, and its shapes at the end."""
    call = name.removesuffix(shapes).rstrip() if shapes else name
    if module and call.startswith(f"{module}/"):
        above, _, last = module.rpartition("/")
        call = f"{'…/' if above else ''}{last}/{call[len(module) + 1 :]}"
    return f"{call} {shapes}".rstrip()


def _left_out(document: TraceDocument, width: int) -> Iterator[str]:
    notes = document.file.notes
    if not notes:
        return
    whole = one_line(notes[0].text, MOST_LETTERS)
    more = f"; --full has {count(len(notes) - 1, 'more note')}" if len(notes) > 1 else ""
    yield ""
    if len(whole) + len(more) + 6 <= width:
        yield f"note: {whole}{more}"
        return
    # Before the first colon is what happened, after it what that means.
    begin = whole.partition(": ")[0]
    more = f" (why, and {len(notes) - 1} more: --full)" if len(notes) > 1 else " (why: --full)"
    lines = textwrap.wrap(f"note: {begin}{more}", max(width, 60), subsequent_indent=" " * 6, break_on_hyphens=False)
    yield from lines[: MOST_LINES - 1]
    if len(lines) >= MOST_LINES:
        rest = lines[MOST_LINES - 1]
        yield rest if len(lines) == MOST_LINES else cut(f"{rest} …", width)


def _notes(document: TraceDocument, width: int) -> Iterator[str]:
    """Sentences: a table would cut them."""
    notes = document.file.notes
    if notes:
        yield ""
        yield "Left out or mended"
    for note in notes[:MOST_NOTES]:
        yield from textwrap.wrap(
            one_line(note.text, MOST_LETTERS), max(width, 60), initial_indent="  ", subsequent_indent="    "
        )
    if len(notes) > MOST_NOTES:
        yield f"  ... and {len(notes) - MOST_NOTES:,} more: --format csv --table notes has all"


def _table(sheet: Sheet, most: int) -> Iterator[str]:
    rows = list(itertools.islice(sheet.rows, most))
    more = sum(1 for _ in sheet.rows)
    if not rows:
        return
    kept = [
        place
        for place, column in enumerate(sheet.columns)
        if place == 0 or not any(column.title == word or column.title.endswith(f" {word}") for word in TOO_WIDE)
    ]
    heads = [sheet.columns[place].head(milliseconds=True) for place in kept]
    rows = list(map(_short_names(sheet), rows))
    most_letters = [WORDS if sheet.columns[place].title in SENTENCES else NAME for place in kept]
    cells = [
        [
            one_line(cell(row[place], sheet.columns[place].unit), most)
            for place, most in zip(kept, most_letters, strict=True)
        ]
        for row in rows
    ]
    right = {at for at, place in enumerate(kept) if all(not isinstance(row[place], str) for row in rows)}
    yield ""
    yield sheet.title
    for line in aligned([heads, *cells], right):
        # Columns without figures need no alignment to the right.
        texts = (f"{NOT_TOLD:<{len(text)}}" if text.strip() == NOT_TOLD else text for text in line)
        yield "  " + "  ".join(texts)
    if more:
        yield f"  ... and {more:,} more rows: --format csv --table {sheet.name} has all"


def _short_names(sheet: Sheet) -> Callable[[tuple[Cell, ...]], tuple[Cell, ...]]:
    """Long names of ops and kernels often differ only at their end."""
    titles = [column.title for column in sheet.columns]

    def shorter(row: tuple[Cell, ...]) -> tuple[Cell, ...]:
        cells = list(row)
        if "Op name" in titles and "Module" in titles:
            name, module, shapes = (str(row[titles.index(title)]) for title in ("Op name", "Module", "Input shapes"))
            cells[titles.index("Op name")] = op_name(name, module, shapes).removesuffix(shapes).rstrip()
        if titles[0] == "Module":  # a tree
            outer, _, last = str(row[0]).rpartition("/")
            cells[0] = f"{'· ' * min(MOST_DEPTH, outer.count('/') + bool(outer))}{last}"
        if "Kernel name" in titles:
            cells[titles.index("Kernel name")] = NAMESPACES.sub("", str(row[titles.index("Kernel name")]))
        return tuple(cells)

    return shorter
