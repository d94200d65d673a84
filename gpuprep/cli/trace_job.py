"""gpuprep trace report FOLDER: what the profiles of several ranks show together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpuprep.errors import UsageError

if TYPE_CHECKING:
    from gpuprep.cli.steps import Steps
    from gpuprep.records import RunRecord
    from gpuprep.trace.opening import Wish
    from gpuprep.trace.reading import Found

FORMATS = ("text", "json", "csv", "xlsx", "markdown", "html")
TABLES = ("ranks", "collectives", "steps", "notes")


def rendered(
    folder: Path, files: Found, wish: Wish, form: str, record: RunRecord | None, *, table: str, full: bool, say: Steps
) -> str | bytes:
    """Raises UsageError for what is told of one profile alone."""
    if form not in FORMATS:
        raise UsageError(
            f"--format {form} shows one profile, and {folder.name} has several",
            f"name the file of one rank, or take one of {', '.join(FORMATS)}",
        )
    if wish.start is not None or wish.stop is not None:
        raise UsageError(
            "--iter-start and --iter-stop are of one profile",
            "of a folder, the iterations that all ranks have are compared; name the file of one rank",
        )
    if record is not None and form != "html":
        raise UsageError("--record is of one machine", "take it with --format html, or with the file of one rank")
    table = "ranks" if table == "ops" else table  # the default of --table
    if form == "csv" and table not in TABLES:
        raise UsageError(f"--table {table}: there is no such table of a folder", f"one of {', '.join(TABLES)}")
    from gpuprep.trace.formats import json, ranks
    from gpuprep.trace.opening import open_trace
    from gpuprep.trace.opening.job import open_job
    from gpuprep.trace.page import html

    job = open_job(folder, wish, files, say=say)
    document = job.ranks
    if form == "html":  # the page of the lowest rank, with what all show together
        opened = open_trace(job.first, wish, record, last_rank=job.last_rank, say=say)
        say("writing")
        return html(opened.profile, opened.document, document)
    say("writing")
    if form == "csv":
        return ranks.csv(document, table)
    if form == "xlsx":
        return ranks.xlsx(document)
    if form == "json":
        return json.render(document)
    return ranks.markdown(document) if form == "markdown" else ranks.text(document, full=full)
