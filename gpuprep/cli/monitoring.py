"""gpuprep monitoring."""

from __future__ import annotations

from pathlib import Path

import click

from gpuprep.cli.console import check_output, emit
from gpuprep.cli.groups import Subcommands

_output = click.option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the result to FILE instead of stdout.",
)


@click.group(cls=Subcommands)
def monitoring() -> None:
    """Print alert rules and a dashboard for the metrics of drift.

    docs/drift.md, "Metrics and alerts", lists the metrics and says how Prometheus gets them.
    """


@monitoring.command()
@_output
def rules(output: Path | None) -> None:
    """Print the alert rules, for rule_files of prometheus.yml."""
    _show("rules", output)


@monitoring.command()
@_output
def dashboard(output: Path | None) -> None:
    """Print the dashboard, for Grafana's import or provisioning."""
    _show("dashboard", output)


def _show(name: str, output: Path | None) -> None:
    from gpuprep.nightly import monitoring as files

    check_output(output)
    emit(files.text(name), output)
