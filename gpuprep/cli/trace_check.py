"""gpuprep trace check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuprep.cli import options, tables, trace_options
from gpuprep.cli.console import check_output, emit, table_columns, want_color
from gpuprep.cli.steps import steps

if TYPE_CHECKING:
    from gpuprep.trace.checking import Checked


@click.command(short_help="Pass or fail a profile, for CI")
@trace_options.path
@click.option(
    "--rules",
    metavar="RULE",
    multiple=True,
    callback=options.names,
    help="Rules that must not speak: ids of docs/traces.md, or all. May be repeated. Default: all.",
)
@click.option(
    "--baseline",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A profile of before: what spoke there passes, and the step time is compared.",
)
@click.option(
    "--within",
    metavar="PERCENT",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    help="With --baseline: how much slower a step may be.",
)
@trace_options.iterations
@trace_options.record
@options.results("text", "json", "junit", told="see docs/traces.md")
@options.store
def check(
    path: Path,
    rules: tuple[str, ...],
    baseline: Path | None,
    within: float,
    start: int | None,
    stop: int | None,
    key_op: str,
    run: str | None,
    style: str,
    as_json: bool,
    output: Path | None,
    verbose: int,
    quiet: bool,
    no_color: bool,
    store: str | None,
) -> int:
    """Pass or fail a profile, for CI.

    It fails where a rule speaks that did not speak in --baseline, or where a step is slower than there. The exit code
    is 0 if everything passed, 1 if a check failed, and 3 if nothing failed but a rule could not be judged from this
    profile.
    """
    import sys

    form = options.chosen(style, as_json, False)
    check_output(output)
    trace_options.need_extra()
    from gpuprep.trace import checking, formats
    from gpuprep.trace.opening import Wish, open_trace

    record = trace_options.recorded(run, store)
    wish = Wish(start, stop, key_op)
    with steps(f"trace check {path.name}", quiet=quiet) as say:
        # The profile itself is not kept: memory for one is enough.
        before = open_trace(baseline, Wish(key_op=key_op), record, say=say).document if baseline else None
        document = open_trace(path, wish, record, say=say).document
        checked = checking.check(document, rules=rules or (checking.ALL,), baseline=before, within_percent=within)
    if form == "json":
        emit(formats.checked(document, checked), output)
    elif form == "junit":
        emit(formats.junit_of_checked(document, checked), output)
    else:
        color = output is None and want_color(sys.stdout, no_color)
        emit("\n".join(_page(checked, bool(verbose), color, table_columns(output))), output)
    return checked.exit_code


def _page(checked: Checked, whole: bool, color: bool, columns: int | None) -> list[str]:
    shown = [line for line in checked.lines if whole or line.status.value != "PASS"]
    rows = [(line.status.value, line.name, line.text) for line in shown]
    passed = len(checked.lines) - len(shown)
    lines = tables.lines(rows, color=color, columns=columns)
    lines += [f"{passed} passed (-v shows them)"] if passed else []
    return [*lines, checked.status.value]
