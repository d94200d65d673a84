"""Several ranks of one job, for a terminal, a pull request, a spreadsheet."""

from __future__ import annotations

from collections.abc import Iterator

from gpuprep.reports.markdown import paragraph, plain
from gpuprep.reports.terminal import aligned
from gpuprep.trace.formats.markdown import section
from gpuprep.trace.formats.numbers import cell, count, milliseconds
from gpuprep.trace.formats.sheets import Cell, Sheet, columns_of, csv_of
from gpuprep.trace.ranks import RanksDocument
from gpuprep.untrusted.plaintext import one_line

MOST_ROWS = {"ranks": 64, "collectives": 12}  # of a terminal's first screen; --full and the others have all
# The columns that a first screen has room for.
SHORT = {
    "ranks": (
        "Rank", "Step (ms)", "GPU busy (%)", "Compute (ms)", "Collectives (ms)", "Exposed (ms)", "Waiting (ms)",
        "Late (ms)",
    ),
    "collectives": (
        "Collective", "Ranks", "Size (bytes)", "Calls a rank", "One call (ms)", "Exposed (ms)", "Bus bandwidth (GB/s)",
    ),
}  # fmt: skip
MOST_MISSING = 12
MOST_NOTES = 4
NAME = 40  # characters of a name in a table


def tables(document: RanksDocument) -> Iterator[Sheet]:
    """ranks, collectives, steps, notes: the words of --table."""
    yield Sheet("ranks", "Ranks, a step", _RANKS, (_rank(document, place) for place in range(len(document.ranks))))
    yield Sheet("collectives", "Collectives", _COLLECTIVES, (
        (collective.name, collective.group, collective.group_size, collective.dtype, collective.bytes,
        collective.calls, collective.total_us, collective.time_us,
         collective.exposed_us, collective.overlapped_us, collective.transfer_us, collective.bus_gb_s)
        for collective in document.collectives
    ))  # fmt: skip
    yield Sheet("steps", "Steps by rank", _STEPS, (
        (step.name, line.rank, step.wall_us[place], step.busy_us[place], step.exposed_us[place], step.late_us[place],
         "most" if step.last_rank == line.rank else "")
        for step in document.steps for place, line in enumerate(document.ranks)
    ))  # fmt: skip
    yield Sheet("notes", "Left out or guessed", _NOTES, ((note.id, note.count, note.text) for note in document.notes))


def text(document: RanksDocument, *, full: bool = False) -> str:
    lines = [
        one_line(
            f"{document.job}  {_ranks(document)}  {document.backend}  {count(len(document.steps), 'common step')}"
        ),
        f"  clocks: {document.clocks}{_error(document)}",
    ]
    lines += [f"  {words}" for words in (document.slowdown.words, *_findings(document)) if words]
    lines += [] if full else [f"  {_SAID}"]
    for table in tables(document):
        if table.name == "steps" and not full:
            continue
        lines += _table(table, full) if table.name != "notes" else []
    if document.notes:
        lines.append("")
    shown = document.notes if full else document.notes[:MOST_NOTES]
    lines += [f"note: {one_line(note.text, 200)}" for note in shown]
    if len(shown) < len(document.notes):
        lines.append(f"note: and {len(document.notes) - len(shown)} more; --full has them")
    if not full:
        lines += [
            "",
            "--full shows all tables; `trace report` with the file of one rank shows its ops",
        ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def markdown(document: RanksDocument) -> str:
    parts = [f"# {plain(document.job)}: {plain(_ranks(document))}"]
    said = (document.slowdown.words, *_findings(document), f"Clocks: {document.clocks}{_error(document)}.")
    parts += [paragraph(words) for words in said if words]
    for table in tables(document):
        parts += section(table)
    return "\n\n".join(parts) + "\n"


def csv(document: RanksDocument, table: str = "ranks") -> str:
    """Raises KeyError for a table that is none of `tables`."""
    return csv_of({sheet.name: sheet for sheet in tables(document)}[table], "Job", document.job)


def xlsx(document: RanksDocument) -> bytes:
    from gpuprep.trace.formats.xlsx import book  # it needs an additional library

    return book(document.job, tables(document))


def _ranks(document: RanksDocument) -> str:
    here = len(document.ranks)
    return count(here, "rank") if document.world_size is None else f"{here} of {count(document.world_size, 'rank')}"


def _error(document: RanksDocument) -> str:
    if document.clock_error_us is None:
        return ""
    return f" (ends of one collective lie {milliseconds(document.clock_error_us)} ms apart)"


def _findings(document: RanksDocument) -> Iterator[str]:
    if not document.steps and len(document.ranks) > 1:
        yield "No step is in all of these profiles: they are hardly of one job."
        return
    for straggler in document.stragglers:
        yield straggler.words
    if not document.stragglers and any(line.late_us is not None for line in document.ranks):
        yield "No straggler: no rank is last in most steps by 5 % of a step."
    if missing := document.missing:
        listed = ", ".join(map(str, missing[:MOST_MISSING]))
        more = f" and {len(missing) - MOST_MISSING} more" if len(missing) > MOST_MISSING else ""
        yield f"No profile of rank {listed}{more}: it is not known what they wait for."


def _rank(document: RanksDocument, place: int) -> tuple[Cell, ...]:
    rank = document.ranks[place]
    return (
        rank.rank, rank.step_us, rank.busy_us, rank.busy_percent, rank.compute_us, rank.collective_us, rank.exposed_us,
        rank.overlapped_us, rank.waiting_us, rank.late_us, rank.last_percent, rank.clock_offset_us, rank.device,
        rank.file,
    )  # fmt: skip


_RANKS = columns_of(
    "Rank, Step (us), GPU busy (us), GPU busy (%), Compute (us), Collectives (us), Exposed (us), Overlapped (us)"
    ", Waiting (us), Late (us), Last (%), Clock moved (us), GPU, File"
)
_COLLECTIVES = columns_of(
    "Collective, Group, Ranks, Data type, Size (bytes), Calls a rank, All calls (us), One call (us), Exposed (us)"
    ", Overlapped (us), Transfer (us), Bus bandwidth (GB/s)"
)
_STEPS = columns_of("Name, Rank, Duration (us), GPU busy (us), Exposed (us), Late (us), Waited for")
_NOTES = columns_of("Note, Count, What")
_SAID = "Exposed: collectives beside which no kernel runs. Late: what the others wait for this rank."


def _table(sheet: Sheet, full: bool) -> Iterator[str]:
    rows = list(sheet.rows)
    if not rows:
        return
    shown = rows if full else rows[: MOST_ROWS[sheet.name]]
    titles = [column.head(milliseconds=True) for column in sheet.columns]
    kept = [place for place, title in enumerate(titles) if full or title in SHORT[sheet.name]]
    heads = [titles[place] for place in kept]
    cells = [[one_line(cell(row[place], sheet.columns[place].unit), NAME) for place in kept] for row in shown]
    yield ""
    yield sheet.title
    right = {column for column, place in enumerate(kept) if not isinstance(rows[0][place], str)}
    yield from ("  " + "  ".join(line) for line in aligned([heads, *cells], right))
    if len(shown) < len(rows):
        yield f"  ... and {len(rows) - len(shown):,} more: --full"
