"""gpuprep status."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from gpuprep.cli import options
from gpuprep.cli.output import Output, as_output, fitting_columns, table_lines
from gpuprep.records import ended
from gpuprep.untrusted.plaintext import command as shell_command
from gpuprep.untrusted.plaintext import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from gpuprep.store import RunSummary, Store

NEVER = "never checked"
# Columns that a narrow terminal may not show, the most important first.
OPTIONAL = ("WHEN", "LAST ACTIVITY", "COMMAND", "PROFILE")
SUMMARY = 28  # columns of a summary, before others are shown beside it
UNITS = ((86400, "d"), (3600, "h"), (60, "min"))
OLD_DAYS = 2.0  # two nights: what is older may have changed since


@dataclass(frozen=True)
class Row:
    """A host: its newest run that says how it is, and its newest run of any kind; without any, both are None."""

    host: str  # the name that was asked for, else that of its newest run
    checked: RunSummary | None
    last: RunSummary | None
    names: tuple[str, ...]  # all of this host, sorted

    @property
    def result(self) -> str | None:
        return None if self.checked is None else _result(self.checked)

    @property
    def place(self) -> tuple[int, str]:
        return ended.place(self.result or "UNKNOWN"), self.host


@click.command()
@click.argument("hosts", metavar="[HOST]...", nargs=-1, callback=options.named)
@click.option(
    "-i", "--inventory", metavar="PATH", help="Ansible inventory. HOST is then a host or group pattern of it."
)
@click.option("--failed", is_flag=True, help="Only hosts that did not pass their last check, or never had one.")
@as_output(options.output)
@options.store
def status(hosts: tuple[str, ...], inventory: str | None, failed: bool, output: Output, store: str | None) -> None:
    """Show how each host was when it was last checked, the worst first.

    One row per host: its newest provision, tune, validate or drift that says how the host is, and how long ago that
    was. A plan, a refusal or a run that was stopped before it changed anything is its LAST ACTIVITY alone. HOST may be
    a pattern such as 'gpu-*'. Contacts no host: `gpuprep drift HOST` checks a host now, `gpuprep drift last HOST` reads
    its last night check, `gpuprep history` lists all runs, `gpuprep history forget HOST` removes a host that was given
    back. A machine that has several names is one host; each name that you ask for, or that the inventory has, is a row.
    The exit code is 0, whatever the results are; 2 if no run of a HOST is known: the others are shown.
    """
    from datetime import datetime, timezone

    from gpuprep.workflows import storeofruns

    with storeofruns.existing(store) as opened:
        names = _Names(opened)
        rows = [names.row((checked or last).host, checked, last) for checked, last in opened.newest_of_each()]
    unknown: list[str] = []
    if hosts or inventory is not None:
        rows, unknown = _chosen(names, rows, hosts, inventory)
    rows = sorted((row for row in rows if not failed or row.result not in ended.GOOD), key=lambda row: row.place)
    exit_code = 2 if unknown else 0
    now = datetime.now(timezone.utc)
    if output.as_json:
        output.write(_document(rows, unknown, exit_code, now))
    else:
        if rows:
            output.write(_page(rows, now, output, whole=bool(hosts) or output.verbose))
        elif not output.quiet and not unknown:
            does = shell_command("gpuprep", "validate", "--profile", "PROFILE", about=("HOST",))
            click.echo("no host like that" if failed else f"no host was checked yet: {does} does it", err=True)
        if unknown:
            known = "`gpuprep status` without a name lists all hosts"
            click.echo(f"Error: no run of {', '.join(map(one_line, unknown))} is recorded; {known}", err=True)
    if exit_code:
        raise click.exceptions.Exit(exit_code)


class _Names:
    """Which names are one host."""

    def __init__(self, store: Store) -> None:
        self._host = {known.name: known.host for known in store.names()}
        self._names: dict[str, list[str]] = {}
        for name, host in sorted(self._host.items()):
            self._names.setdefault(host, []).append(name)

    def of(self, name: str) -> tuple[str, ...]:
        return tuple(self._names.get(self._host.get(name, ""), [name]))

    def row(self, name: str, checked: RunSummary | None, last: RunSummary | None) -> Row:
        return Row(name, checked, last, self.of(name))


def _chosen(
    names: _Names, rows: Sequence[Row], hosts: Sequence[str], inventory: str | None
) -> tuple[list[Row], list[str]]:
    """The rows that are asked for, by the names asked for, and the names that no run has.

    A host of an inventory has a row in any case.
    """
    asked = list(hosts)
    if inventory is not None:
        from gpuprep.workflows import targets

        asked = [target.name for target in targets.parse(hosts, inventory)]
    by_name = {name: row for row in rows for name in row.names}
    chosen: dict[str, Row] = {}
    unknown = []
    for name in asked:
        if row := by_name.get(name):
            chosen[name] = replace(row, host=name)
        elif inventory is not None:
            chosen[name] = names.row(name, None, None)
        elif fitting := [row for row in rows if fnmatch.fnmatchcase(row.host, name)]:
            chosen.update((row.host, row) for row in fitting)
        else:
            unknown.append(name)
    return list(chosen.values()), unknown


def _document(rows: Sequence[Row], unknown: Sequence[str], exit_code: int, now: datetime) -> str:
    from gpuprep.cli.history import run_line
    from gpuprep.reports import documents

    listed = tuple(
        documents.HostStatus(
            row.host,
            row.result,
            _age(row.checked, now) if row.checked else None,
            run_line(row.checked) if row.checked else None,
            run_line(row.last) if row.last else None,
            tuple(name for name in row.names if name != row.host),
        )
        for row in rows
    )
    return documents.document(documents.Statuses(listed, tuple(unknown), exit_code))


def _result(run: RunSummary) -> str:
    return ended.word(run.verdict, run.exit_code)


def _age(run: RunSummary, now: datetime) -> float | None:
    """Seconds since the run ended; None if that time is invalid or in the future."""
    from gpuprep.records.moments import moment

    end = moment(run.ended_at)
    seconds = None if end is None else (now - end).total_seconds()
    return None if seconds is None or seconds < -60 else max(0.0, seconds)


def _age_text(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    for size, unit in UNITS:
        if seconds >= size:
            return f"{seconds // size:.0f} {unit} ago"
    return "now"


def _page(rows: Sequence[Row], now: datetime, output: Output, *, whole: bool) -> str:
    lines: list[tuple[str, ...]] = [("HOST", "RESULT", "COMMAND", "WHEN", "LAST ACTIVITY", "PROFILE", "SUMMARY")]
    lines += [_line(row, now) for row in rows]
    if not any(line[4] for line in lines[1:]):
        lines = [line[:4] + line[5:] for line in lines]
    table = fitting_columns(lines, output.columns, OPTIONAL, "SUMMARY", SUMMARY)
    shown = table_lines(table, color=output.color, columns=output.columns)
    words = [row.result or NEVER for row in rows]
    counts = ", ".join(f"{words.count(word)} {word}" for word in (*ended.WORST_FIRST, NEVER) if word in words)
    total = f"{_counted(rows)}: {counts}"
    old = sum(row.checked is not None and (_age(row.checked, now) or 0.0) > OLD_DAYS * 86400 for row in rows)
    if old:
        total += f"; {old} not checked for more than two days"
    shown.append(total)
    if whole:
        runs = [row.checked or row.last for row in rows]
        shown += [f"Report: {shell_command('gpuprep', 'report', about=run.run_id)}" for run in runs if run]
    return "\n".join(shown)


def _counted(rows: Sequence[Row]) -> str:
    hosts = {row.names for row in rows}
    names = sum(map(len, hosts))
    word = f"{len(hosts)} host{'s' * (len(hosts) != 1)}"
    if len(hosts) < len(rows):
        return f"{len(rows)} names of {word}"
    return f"{word} under {names} names" if names > len(hosts) else word


def _line(row: Row, now: datetime) -> tuple[str, ...]:
    checked, last = row.checked, row.last
    activity = ""
    if last and (checked is None or last.run_id != checked.run_id):
        planned = " --check" if last.command == "provision" and _result(last) == "DONE" else ""
        activity = f"{last.command}{planned} {_result(last)} {_age_text(_age(last, now))}"
    if checked is None:
        return row.host, NEVER, "", "", activity, last.profile if last else "", ""
    simulated = "simulated: " if checked.source.value == "simulated" else ""
    when = _age_text(_age(checked, now))
    return (
        row.host, _result(checked), checked.command, when, activity, checked.profile, simulated + checked.summary
    )  # fmt: skip
