"""gpuprep judge."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuprep.cli import options
from gpuprep.cli.console import page_width
from gpuprep.cli.output import Output, as_output, show_records
from gpuprep.reports import RECORDS

if TYPE_CHECKING:
    from gpuprep.records import RunRecord


@click.command()
@click.argument("record", metavar="[RECORD.json|FIGURES.csv]", required=False, type=click.Path(path_type=Path))
@options.profile
@click.option("--history", is_flag=True, help="Also compare real hosts with their baselines in the store.")
@click.option(
    "--template",
    type=click.Choice(["csv", "json"]),
    help="Print a file of figures to fill in, and judge nothing. With --profile for its GPU.",
)
@click.option("--keep", is_flag=True, help="Store the new verdict as a new run.")
@as_output(options.results(*RECORDS))
@options.store
def judge(
    record: Path | None,
    profile: str | None,
    history: bool,
    template: str | None,
    keep: bool,
    output: Output,
    store: str | None,
) -> int:
    """Judge a recorded run again; no host is contacted.

    RECORD.json is the output of `gpuprep report RUN --format json` or of a command's --json, or figures that were
    measured elsewhere in that form or as a table, FIGURES.csv (docs/records.md; --template prints one to fill in), or
    what nvbandwidth, nccl-tests, gpu-burn or SuperBench wrote. The rules are those of `gpuprep validate`, the
    thresholds those of PROFILE. The exit code is that of the worst new verdict.
    """
    from gpuprep import settings
    from gpuprep.desired import loading
    from gpuprep.errors import UsageError

    if template is not None and (record is not None or history or keep or output.form != "text"):
        other = record or "--history, --keep and --format"
        raise UsageError(f"--template prints a file to fill in, and does not go with {other}", "give one of them")
    if template is not None:
        from gpuprep.workflows import rejudge

        output.write(rejudge.text(template, profile))
        return 0
    if record is None:
        raise UsageError("`gpuprep judge` needs a file", "`gpuprep judge --template csv` prints one to fill in")
    if profile is None:
        known = ", ".join(loading.available())
        raise UsageError("`gpuprep judge` needs --profile", f"profiles: {known}, or a path to a YAML file")
    chosen = loading.load(profile)

    from gpuprep.records import showable
    from gpuprep.records.ids import new_run_id
    from gpuprep.reports import text_hosts
    from gpuprep.store import Store
    from gpuprep.untrusted import masking
    from gpuprep.workflows import provision, rejudge, storeofruns

    opened = None
    if keep:
        opened = Store.open(store or settings.load().store)
    elif history:
        opened = storeofruns.existing(store)
    try:
        past = (lambda host, measured: opened.baseline(host, list(measured))) if opened and history else None
        records = rejudge.judge_file(record, chosen, past)
        if len(records) > 1:
            batch = new_run_id()
            records = [dataclasses.replace(record, batch_id=batch) for record in records]
        if opened is not None and keep:
            typed = masking.without_secret(store)
            asked = {"asked": {"store": typed}} if typed else {}  # the report's commands name the same store
            records = [
                dataclasses.replace(judged_record, options={**judged_record.options, **asked})
                for judged_record in records
            ]
            for judged_record in records:
                opened.append(judged_record)
    finally:
        if opened is not None:
            opened.close()
    code = provision.worst([record.exit_code for record in records])
    if output.form != "text":
        show_records(records, output.form, output.file, open_page=output.open_page, code=lambda _: code)
        return code
    everything = output.verbose or output.file is not None

    def page(shown: Sequence[RunRecord]) -> str:
        return text_hosts.document(shown, color=output.color, width=page_width(), everything=everything, stored=keep)

    output.write(showable.document(page, records))
    return code
