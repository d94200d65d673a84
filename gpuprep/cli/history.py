"""gpuprep history."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuprep.cli import options
from gpuprep.cli.console import check_output, emit, want_color

if TYPE_CHECKING:
    from gpuprep.history import RunSummary

COLORS = {"PASS": "green", "WARN": "yellow", "FAIL": "red", "UNKNOWN": "magenta", "REFUSED": "red", "FAILED": "red"}
# By exit code, the same words as in reports.
WITHOUT_VERDICT = {0: "DONE", 2: "REFUSED", 4: "FAILED", 130: "STOPPED"}


@click.command()
@click.argument("host", required=False)
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many runs to list.")
@options.output
@options.store
def history(
    host: str | None,
    limit: int,
    as_json: bool,
    output: Path | None,
    verbose: int,
    quiet: bool,
    no_color: bool,
    store: str | None,
) -> None:
    """List recorded runs, newest first.

    HOST is a host's name as it was given to the run.
    """
    import sys

    from gpuprep import siteconfig
    from gpuprep.history import Store

    check_output(output)
    opened = Store.open(store or siteconfig.load().store)
    try:
        found = opened.runs(host, limit)
    finally:
        opened.close()
    if as_json:
        emit(_json(found), output)
        return
    if not found and not quiet:
        click.echo(f"no runs of {host} are recorded" if host else "no runs are recorded yet", err=True)
    if found:
        emit(_table(found, output is None and want_color(sys.stdout, no_color), verbose), output)


def _json(found: list[RunSummary]) -> str:
    import json

    from gpuprep.records import SCHEMA_VERSION, to_json_value

    return json.dumps({"schema_version": SCHEMA_VERSION, "runs": to_json_value(found)}, indent=2)


def _table(found: list[RunSummary], color: bool, verbose: int) -> str:
    rows = [("RUN", "HOST", "COMMAND", "PROFILE", "RESULT", "")]
    for run in found:
        result = run.verdict.value if run.verdict else WITHOUT_VERDICT.get(run.exit_code, "UNKNOWN")
        simulated = "simulated" if run.source.value == "simulated" else ""
        rows.append((run.run_id, run.host, run.command, run.profile, result, simulated))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for number, row in enumerate(rows):
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        if color and row[4] in COLORS:
            cells[4] = click.style(cells[4], fg=COLORS[row[4]])
        lines.append("  ".join(cells).rstrip())
        if verbose and number and found[number - 1].summary:
            lines.append(f"    {found[number - 1].summary}")
    return "\n".join(lines)
