"""Several profiles of one job: the ranks beside each other."""

from __future__ import annotations

from collections.abc import Iterator

from gpuprep.reports.markdown import paragraph, plain
from gpuprep.reports.markdown import table as markdown_table
from gpuprep.trace.formats.numbers import cell
from gpuprep.trace.formats.sheets import Cell, Sheet, columns
from gpuprep.trace.formats.text import table
from gpuprep.trace.ranks import CollectiveLine, RankLine, RanksDocument
from gpuprep.untrusted.plaintext import one_line

MOST_ROWS = {"ranks": 64, "collectives": 20, "rank-steps": 30}
NAMES = ("ranks", "collectives", "rank-steps")


def sheets(found: RanksDocument) -> Iterator[Sheet]:
    yield Sheet(
        "ranks",
        "Ranks",
        columns(
            "Rank, GPU name, Step (us), Busy (%), Compute (us), Collectives (us), Exposed (us), Overlapped (us)"
            ", Waiting (us), Late (us), Last (%), Steps, GPU, Clock offset (us), File"
        ),
        map(_rank, found.ranks),
    )
    yield Sheet(
        "collectives",
        "Collectives, times of one",
        columns(
            "Collective, Group, Group size, Data type, Size (bytes), Calls, Time (us), Exposed (us), Overlapped (us)"
            ", Transfer (us), Bus bandwidth (GB/s), Total (us), Ranks, Matched"
        ),
        map(_collective, found.collectives),
    )
    yield Sheet(
        "rank-steps",
        "Steps of all ranks",
        columns("Step, Rank, Duration (us), Busy (us), Exposed (us), Late (us), Waited for"),
        _steps(found),
    )


def _rank(one: RankLine) -> tuple[Cell, ...]:
    return (
        one.rank, one.gpu, one.step_us, one.busy_percent, one.compute_us, one.collective_us, one.exposed_us,
        one.overlapped_us, one.waiting_us, one.late_us, one.last_percent, one.steps, one.device, one.clock_offset_us,
        one.file,
    )  # fmt: skip


def _collective(one: CollectiveLine) -> tuple[Cell, ...]:
    return (
        one.name, one.group, one.group_size, one.dtype, one.bytes, one.calls, one.time_us, one.exposed_us,
        one.overlapped_us, one.transfer_us, one.bus_gb_s, one.total_us, one.ranks, one.matched,
    )  # fmt: skip


def _steps(found: RanksDocument) -> Iterator[tuple[Cell, ...]]:
    for step in found.steps:
        for place, one in enumerate(found.ranks):
            waited = "" if step.last_rank is None else "yes" if step.last_rank == one.rank else "no"
            figures = (step.wall_us[place], step.busy_us[place], step.exposed_us[place], step.late_us[place])
            yield (step.name, one.rank, *figures, waited)


def head(found: RanksDocument) -> Iterator[str]:
    of = f" of {found.world_size}" if found.world_size is not None else ""
    backend = f", {found.backend}" if found.backend else ""
    yield f"{len(found.ranks)}{of} ranks{backend}; times of a step, mean of {len(found.steps)} steps that all ranks have"
    if found.missing:
        shown = ", ".join(map(str, found.missing[:20]))
        yield f"no profile of rank {shown}" + (" and more" if len(found.missing) > 20 else "")
    if found.clocks:
        yield f"clocks: {found.clocks}"
    for one in found.stragglers:
        yield one.words
    for note in found.notes:
        yield f"note: {note.text}"


def text(found: RanksDocument, *, full: bool = False) -> str:
    lines = [one_line(line) for line in head(found)]
    for sheet in sheets(found):
        if full or sheet.name != "rank-steps":
            lines += table(sheet, MOST_ROWS[sheet.name])
    return "\n".join(line.rstrip() for line in lines) + "\n"


def markdown(found: RanksDocument) -> str:
    parts = [f"# {plain(found.job)}: ranks", *map(paragraph, head(found))]
    for sheet in sheets(found):
        heads = [f"{one.title} ({'ms' if one.unit == 'us' else one.unit})" if one.unit else one.title
                 for one in sheet.columns]  # fmt: skip
        rows = [
            [plain(cell(value, column.unit)) for value, column in zip(row, sheet.columns, strict=True)]
            for _, row in zip(range(MOST_ROWS[sheet.name]), sheet.rows, strict=False)
        ]
        if rows:
            parts.append(f"## {sheet.title}\n\n{markdown_table(heads, rows)}")
    return "\n\n".join(parts) + "\n"
