"""gpuprep trace check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuprep.cli import options
from gpuprep.cli.console import steps
from gpuprep.cli.output import Output, as_output, table_lines
from gpuprep.trace.cli import arguments, folders

if TYPE_CHECKING:
    from gpuprep.trace.checking import Checked
    from gpuprep.trace.document import TraceDocument
    from gpuprep.trace.ranks import RanksDocument


@click.command(short_help="Pass or fail a profile, for CI")
@arguments.path
@click.option(
    "--rules",
    metavar="RULE",
    multiple=True,
    callback=options.names,
    help="Rules to check: ids of docs/traces.md, or all. May be repeated. Default: all.",
)
@click.option(
    "--baseline",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="An earlier profile, or folder of ranks: its problems do not fail the check again; step times are compared.",
)
@click.option(
    "--within",
    metavar="PERCENT",
    type=options.Number(min=0),
    default=5.0,
    show_default=True,
    help="With --baseline: how much slower a step may be.",
)
@arguments.iterations
@arguments.record
@as_output(options.results("text", "json", "junit", description="see docs/traces.md"))
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
    output: Output,
    store: str | None,
) -> int:
    """Pass or fail a profile, for CI.

    PATH is a profile, or a folder with one file per rank: then each rank is judged, and the step time of the job is
    that of its slowest rank. The check fails if a rule finds a problem that --baseline does not have, or if a step is
    slower than there. The exit code is 0 if everything passed, 1 if a check failed, and 3 if nothing failed but a rule
    that counts could not be judged from this profile.
    """
    arguments.need_extra()
    from gpuprep.trace import checking, formats
    from gpuprep.trace.opening import Wish, open_trace
    from gpuprep.trace.reading import look

    record = arguments.recorded(run, store)
    wish, rules = Wish(start, stop, key_op), rules or (checking.ALL,)
    files = look(path)
    old = (baseline, look(baseline)) if baseline else None
    document: TraceDocument | RanksDocument
    several = folders.both_folders((path, files), old) if old else len(files.profiles) > 1
    with steps(f"trace check {path.name}", quiet=output.quiet) as say:
        if several:
            folders.no_record(record)
            document, checked = folders.checked(path, files, wish, rules, old, within_percent=within, say=say)
        else:
            # The profile is dropped after its check, so that only one is in memory.
            before = open_trace(old[1].profiles[0], Wish(key_op=key_op), record, say=say).document if old else None
            document = open_trace(files.profiles[0], wish, record, say=say).document
            checked = checking.check(document, rules=rules, baseline=before, within_percent=within)
    if output.form == "json":
        output.write(formats.checked(document, checked))
    elif output.form == "junit":
        output.write(formats.junit_of_checked(document, checked))
    else:
        output.write("\n".join(_page(checked, output)))
    return checked.exit_code


def _page(checked: Checked, output: Output) -> list[str]:
    from gpuprep.trace.formats.numbers import ranks_in_words

    # A line that is the same in several ranks is printed once.
    ranks: dict[tuple[str, str, str], list[int]] = {}
    for line in checked.lines:
        of = ranks.setdefault((line.status.value, line.name, line.text), [])
        of += [] if line.rank is None else [line.rank]
    shown = {key: of for key, of in ranks.items() if output.verbose or key[0] != "PASS"}
    # One reason why several rules could not be judged is also printed once.
    rules: dict[tuple[str, str, str], list[str]] = {}
    for (status, name, text), of in shown.items():
        words = ": ".join(filter(None, [ranks_in_words(of) if of else "", text]))
        rules.setdefault((status, words, "" if words else name), []).append(name)
    rows = [
        (status, *((names[0], words) if len(names) == 1 else (f"{len(names)} rules", f"{', '.join(names)}: {words}")))
        for (status, words, _), names in rules.items()
    ]
    passed = sum(line.status.value == "PASS" for line in checked.lines) * (not output.verbose)
    lines = table_lines(rows, color=output.color, columns=output.columns)
    lines += [f"{passed} passed (-v shows them)"] if passed else []
    return [*lines, checked.status.value]
