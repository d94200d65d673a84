"""gpuprep compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuprep.cli import options, tables
from gpuprep.cli.console import check_output, emit, table_columns, want_color

if TYPE_CHECKING:
    from gpuprep.records import RunRecord
    from gpuprep.reports.comparison import Comparison


@click.command()
@click.argument("one", metavar="RUN")
@click.argument("two", metavar="RUN")
@options.output
@options.store
def compare(
    one: str,
    two: str,
    as_json: bool,
    output: Path | None,
    verbose: int,
    quiet: bool,  # noqa: ARG001  taken for the sake of one set of flags; there is no progress
    no_color: bool,
    store: str | None,
) -> None:
    """Show what changed between two recorded runs.

    Compares facts, findings and figures of the first RUN with those of the second. The runs may be of different hosts.
    RUN is a run id of `gpuprep history`, the beginning of a run id, or `last`. The exit code is 0 whether the runs
    differ or not.
    """
    import sys

    from gpuprep.workflows import storeofruns

    check_output(output)
    opened = storeofruns.existing(store)
    try:
        first, second = opened.get(one), opened.get(two)
    finally:
        opened.close()

    from gpuprep.reports import comparison

    differences = comparison.compare(first, second)
    if as_json:
        from gpuprep.reports import documents

        compared = documents.Compared(documents.of_record(first), documents.of_record(second), differences)
        emit(documents.document(compared), output)
    else:
        color = output is None and want_color(sys.stdout, no_color)
        emit("\n".join(_page(first, second, differences, bool(verbose), color, table_columns(output))), output)


def _page(
    first: RunRecord, second: RunRecord, result: Comparison, whole: bool, color: bool, columns: int | None
) -> list[str]:
    from gpuprep.reports import history as pages

    lines = tables.lines(
        [pages.compared_run("first", first), pages.compared_run("second", second)], color=color, columns=columns
    )
    lines += [f"note: {note}" for note in result.notes]
    lines += ["", f"Facts: {len(result.facts)} changed"]
    lines += tables.lines(pages.facts_table(result), indent="  ", columns=columns)
    rows, passed = pages.findings_table(result, whole=whole)
    beside = f"; {passed} more that only one run checked passed there (-v shows them)" if passed else ""
    lines += ["", f"Findings: {len(rows)} changed{beside}"]
    lines += tables.lines(rows, color=color, indent="  ", columns=columns)
    rows, similar = pages.figures_table(result, whole=whole)
    beside = f", {similar} of them within {pages.ALIKE_PERCENT:g} % (-v shows them)" if similar else ""
    lines += ["", f"Figures: {len(result.figures)} compared{beside}"]
    lines += tables.lines(rows, indent="  ", columns=columns)
    lines += [f"  not compared: {why}" for why in pages.not_compared(result)]
    return lines
