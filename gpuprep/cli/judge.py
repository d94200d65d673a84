"""gpuprep judge."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuprep.cli import options
from gpuprep.cli import page as pages_of
from gpuprep.cli.console import check_output, emit, page_width, want_color
from gpuprep.reports import RECORDS
from gpuprep.untrusted.plaintext import command

if TYPE_CHECKING:
    from gpuprep.records import RunRecord


@click.command()
@click.argument("record", metavar="RECORD.json", type=click.Path(path_type=Path))
@options.profile
@click.option("--history", is_flag=True, help="Also compare real hosts with their baselines in the store.")
@click.option("--keep", is_flag=True, help="Store the new verdict as a new run.")
@options.results(*RECORDS)
@options.store
def judge(
    record: Path,
    profile: str | None,
    history: bool,
    keep: bool,
    style: str,
    as_json: bool,
    open_page: bool,
    output: Path | None,
    verbose: int,  # noqa: ARG001  taken for the sake of one set of flags; there is nothing more to say
    quiet: bool,  # noqa: ARG001
    no_color: bool,
    store: str | None,
) -> int:
    """Judge a recorded run again; no host is contacted.

    RECORD.json is the output of `gpuprep report RUN --format json` or of a command's --json, or figures that were
    measured elsewhere in that form (docs/records.md). The rules are those of `gpuprep validate`, the thresholds those
    of PROFILE. The exit code is that of the worst new verdict.
    """
    from gpuprep import settings
    from gpuprep.desired import loading
    from gpuprep.errors import UsageError

    form = options.chosen(style, as_json, open_page)
    check_output(output)
    if profile is None:
        known = ", ".join(loading.available())
        raise UsageError("`gpuprep judge` needs --profile", f"profiles: {known}, or a path to a YAML file")
    chosen = loading.load(profile)

    from gpuprep.records import showable
    from gpuprep.records.ids import new_run_id
    from gpuprep.reports import text
    from gpuprep.store import Store
    from gpuprep.workflows import provision, rejudge

    opened = Store.open(store or settings.load().store) if history or keep else None
    try:
        past = (lambda host, measured: opened.baseline(host, list(measured))) if opened and history else None
        records = rejudge.judge_file(record, chosen, past)
        if len(records) > 1:
            batch = new_run_id()
            records = [dataclasses.replace(one, batch_id=batch) for one in records]
        if opened is not None and keep:
            for one in records:
                opened.append(one)
    finally:
        if opened is not None:
            opened.close()
    code = provision.gravest([one.exit_code for one in records])
    if form != "text":
        pages_of.show(records, form, output, open_page=open_page, code=lambda _: code)
        return code
    import sys

    color = output is None and want_color(sys.stdout, no_color)

    def page(shown: Sequence[RunRecord]) -> str:
        pages = [text.render(one, color=color, width=page_width()) for one in shown]
        if len(shown) > 1:
            pages.append(text.render_summary(shown, color=color, width=page_width()))
        if keep:
            pages.append("".join(f"Report: {command('gpuprep', 'report', about=one.run_id)}\n" for one in shown))
        return "\n".join(pages)

    emit(showable.document(page, records), output)
    return code
