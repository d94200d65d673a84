"""gpuprep history prune, forget and export: delete runs, write runs to a file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from gpuprep.cli import options
from gpuprep.cli.console import check_output, open_output, unwritable
from gpuprep.cli.edge import drop_stdout
from gpuprep.cli.output import Output, as_output


@click.command("prune", short_help="Delete old runs that nothing refers to")
@click.option("--keep-days", type=click.IntRange(1, 36_500), required=True, help="Keep all runs of this many days.")
@click.option(
    "--keep-last",
    type=click.IntRange(min=0),
    default=30,
    show_default=True,
    help="Keep this many runs of each host, however old.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing.")
@as_output(options.output)
@options.store
def prune(keep_days: int, keep_last: int, dry_run: bool, output: Output, store: str | None) -> None:
    """Delete old runs that nothing refers to.

    Deletes each run with its findings, its measurements and its log folder on this machine. Always keeps the certified
    run of a host, the runs of its baseline and its last drift check.
    """
    from datetime import datetime, timedelta, timezone

    from gpuprep.paths import state_dir
    from gpuprep.store.retention import log_folders, remove
    from gpuprep.workflows import storeofruns

    before = (datetime.now(timezone.utc) - timedelta(days=keep_days)).isoformat(timespec="seconds")
    with storeofruns.existing(store) as opened:
        old = opened.prunable(before, keep_last)
        removed = old if dry_run else opened.prune(old)
    folders = log_folders(state_dir() / "runs", removed)
    if not dry_run:
        remove(folders)
    if output.as_json:
        from gpuprep.reports import documents

        output.write(documents.document(documents.Pruned(before, dry_run, tuple(removed), len(folders))))
        return
    lines = list(removed) if output.verbose else []
    would = "would be deleted" if dry_run else "deleted"
    lines.append(f"{len(removed)} runs from before {before[:10]} {would}, and {len(folders)} log folders")
    output.confirm("\n".join(lines))


@click.command("forget", short_help="Delete all that is stored of a host")
@click.argument("host", callback=options.named)
@click.option("--yes", is_flag=True, help="Also of a host with a certified run.")
@as_output(options.output)
@options.store
def forget(host: str, yes: bool, output: Output, store: str | None) -> None:
    """Delete all that is stored of a host, for good: a mistyped name, or a machine that was given back.

    Deletes its runs with their log folders on this machine, its baseline and its certified run. Other names of the same
    host stay. The machine itself is not contacted; a nightly check there goes on.
    """
    from gpuprep.errors import UsageError
    from gpuprep.paths import state_dir
    from gpuprep.store.retention import log_folders, remove
    from gpuprep.untrusted.plaintext import command, one_line
    from gpuprep.workflows import storeofruns

    with storeofruns.existing(store) as opened:
        storeofruns.check_known(opened, host)
        run_id = opened.host_baseline(host).run_id
        if run_id and opened.host_of(run_id) == host and not yes:
            advice = f"to delete it for good: `{command('gpuprep', 'history', 'forget', '--yes', about=host)}`"
            raise UsageError(f"{one_line(host)} has a certified run, {run_id}", advice)
        removed = opened.forget(host)
    folders = log_folders(state_dir() / "runs", removed)
    remove(folders)
    if output.as_json:
        from gpuprep.reports import documents

        output.write(documents.document(documents.Forgotten(host, tuple(removed), len(folders))))
        return
    output.confirm(f"{one_line(host)} is forgotten: {len(removed)} runs deleted, and {len(folders)} log folders")


@click.command("export", short_help="Write runs to stdout or a file, oldest first")
@click.argument("host", required=False, callback=options.named)
@click.option(
    "--format",
    "style",
    type=click.Choice(["jsonl", "csv"]),
    default="jsonl",
    show_default=True,
    help="jsonl: the whole record of each run, one per line. csv: rows of a table, see --what.",
)
@click.option(
    "--what",
    type=click.Choice(["runs", "findings", "measurements"]),
    help="With csv: which table. Default: runs.",
)
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to FILE instead of stdout.",
)
@options.store
def export(host: str | None, style: str, what: str | None, output: Path | None, store: str | None) -> None:
    """Write runs to stdout or a file, oldest first, of one host or of all hosts.

    A large store needs no more memory than a small store.
    """
    from gpuprep.errors import UsageError
    from gpuprep.workflows import storeofruns

    if style == "jsonl" and what is not None:
        raise UsageError("--what goes with --format csv: jsonl is whole records", "add --format csv, or drop --what")
    check_output(output)
    with storeofruns.existing(store) as opened:
        if host is not None:
            storeofruns.check_known(opened, host)
        if style == "jsonl":
            _write((f"{_strict(record)}\n" for record in opened.export_records(host)), output)
        else:
            from gpuprep.reports.csv import lines

            _write(lines(opened.export_rows(what or "runs", host)), output)


def _strict(record: str) -> str:
    """The record as strict JSON: an older gpuprep may have stored NaN and Infinity, which JSON does not have."""
    if "NaN" not in record and "Infinity" not in record:
        return record
    import json

    from gpuprep.records.showable import strict_json

    return strict_json(json.loads(record))


def _write(pieces: Iterable[str], output: Path | None) -> None:
    """Write to stdout, or to a file that appears only when it is complete."""
    import sys

    if output is None:
        try:
            sys.stdout.writelines(pieces)
            sys.stdout.flush()
        except BrokenPipeError:  # `| head`
            drop_stdout()
        return
    plain = output.is_file() or not output.exists()  # a pipe or a terminal cannot be replaced
    part = output.with_name(f".{output.name}.part") if plain else output
    try:
        with open_output(part) as file:
            file.writelines(piece.encode() for piece in pieces)
        if plain:
            part.replace(output)
    except OSError as error:
        raise unwritable(output, error) from error
    finally:
        if plain:
            part.unlink(missing_ok=True)
