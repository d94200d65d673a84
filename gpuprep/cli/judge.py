"""gpuprep judge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuprep.cli import options
from gpuprep.cli.console import check_output, emit, page_width, want_color

if TYPE_CHECKING:
    from gpuprep.records import RunRecord


@click.command()
@click.argument("record", metavar="RECORD.json", type=click.Path(path_type=Path))
@options.profile
@click.option("--history", is_flag=True, help="Also compare real hosts with their baselines in the store.")
@click.option("--keep", is_flag=True, help="Store the new verdict as a new run.")
@options.output
@options.store
def judge(
    record: Path,
    profile: str | None,
    history: bool,
    keep: bool,
    as_json: bool,
    output: Path | None,
    verbose: int,
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

    check_output(output)
    if profile is None:
        known = ", ".join(loading.available())
        raise UsageError("`gpuprep judge` needs --profile", f"profiles: {known}, or a path to a YAML file")
    chosen = loading.load(profile)

    from gpuprep.records import showable
    from gpuprep.reports import json, text
    from gpuprep.store import Store
    from gpuprep.workflows import provision, rejudge

    opened = Store.open(store or settings.load().store) if history or keep else None
    try:
        past = (lambda host, measured: opened.baseline(host, list(measured))) if opened and history else None
        records = rejudge.judge_file(record, chosen, past)
        if opened is not None and keep:
            for one in records:
                opened.append(one)
    finally:
        if opened is not None:
            opened.close()
    code = provision.gravest([one.exit_code for one in records])
    if as_json:
        whole = showable.document(lambda shown: json.render_several(shown, code), records, whole=True)
        emit(whole, output)
        return code
    import sys

    color = output is None and want_color(sys.stdout, no_color)

    everything = verbose > 0 or output is not None

    def page(shown: Sequence[RunRecord]) -> str:
        return text.document(shown, color=color, width=page_width(), everything=everything, stored=keep)

    emit(showable.document(page, records), output)
    return code
