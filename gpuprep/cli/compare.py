"""gpuprep compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuprep.cli import options
from gpuprep.cli.output import Output, as_output, table_lines

if TYPE_CHECKING:
    from gpuprep.records import RunRecord
    from gpuprep.reports.comparison import Comparison


@click.command()
@click.argument("one", metavar="RUN")
@click.argument("two", metavar="RUN")
@as_output(options.output)
@options.store
def compare(one: str, two: str, output: Output, store: str | None) -> None:
    """Show what changed between two recorded runs.

    Compares facts, findings and figures of the first RUN with those of the second. The runs may be of different hosts.
    RUN is a run id of `gpuprep history`, the beginning of a run id, or `last`. The exit code is 0 whether the runs
    differ or not.
    """
    from gpuprep.workflows import storeofruns

    with storeofruns.existing(store) as opened:
        first, second = opened.get(one), opened.get(two)

    from gpuprep.reports import comparison

    differences = comparison.compare(first, second)
    if output.as_json:
        from gpuprep.reports import documents

        compared = documents.Compared(documents.of_record(first), documents.of_record(second), differences)
        output.write(documents.document(compared))
    else:
        output.write("\n".join(_page(first, second, differences, output)))


def _page(first: RunRecord, second: RunRecord, result: Comparison, output: Output) -> list[str]:
    from gpuprep.reports import history as pages

    whole, color, columns = output.verbose, output.color, output.columns
    runs = [pages.compared_run("first", first), pages.compared_run("second", second)]
    lines = table_lines(runs, color=color, columns=columns)
    lines += [f"note: {note}" for note in result.notes]
    lines += ["", f"Facts: {len(result.facts)} changed"]
    lines += table_lines(pages.facts_table(result), indent="  ", columns=columns)
    rows, passed = pages.findings_table(result, whole=whole)
    beside = f"; {passed} more that only one run checked passed there (-v shows them)" if passed else ""
    lines += ["", f"Findings: {len(rows)} changed{beside}"]
    lines += table_lines(rows, color=color, indent="  ", columns=columns)
    rows, similar = pages.figures_table(result, whole=whole)
    beside = f", {similar} of them within {pages.ALIKE_PERCENT:g} % (-v shows them)" if similar else ""
    lines += ["", f"Figures: {len(result.figures)} compared{beside}"]
    lines += table_lines(rows, indent="  ", columns=columns)
    lines += [f"  not compared: {why}" for why in pages.not_compared(result)]
    return lines
