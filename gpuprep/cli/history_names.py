"""gpuprep history names, join and part: which names are one host."""

from __future__ import annotations

import click

from gpuprep.cli import options, tables
from gpuprep.cli.output import Output, as_output
from gpuprep.untrusted.plaintext import one_line

HOW = {"joined": "joined by you", "apart": "set apart by you", "": "by SSH host key and hardware"}


@click.command("names", short_help="List the names of hosts, and which are one host")
@as_output(options.output)
@options.store
def names(output: Output, store: str | None) -> None:
    """List the names of hosts, and which of them are one host.

    Names of one host have one history. gpuprep joins two names if both answered with SSH host keys of one machine, and
    machine id and hardware, or a GPU, are the same.
    """
    from gpuprep.workflows import storeofruns

    with storeofruns.existing(store) as opened:
        known_names = opened.names()
    if output.as_json:
        from gpuprep.reports import documents

        listed = [
            documents.NameLine(
                known.name,
                known.host,
                tuple(sorted(known.identity.gpus)),
                known.identity.proven,
                known.seen_at,
                known.by_hand,
            )
            for known in known_names
        ]
        output.write(documents.document(documents.Names(tuple(listed))))
        return
    if not known_names:
        if not output.quiet:
            click.echo("no host was identified yet", err=True)
        return
    together = {known.host for known in known_names if known.name != known.host}
    rows = [("NAME", "HOST", "GPUS", "SEEN", "")]
    rows += [
        (known.name, known.host, str(len(known.identity.gpus)), known.seen_at[:10],
         HOW.get(known.by_hand, "") if known.by_hand or known.host in together else "")
        for known in known_names
    ]  # fmt: skip
    output.write("\n".join(tables.lines(rows, columns=output.columns)))


@click.command("join", short_help="Say that two names are one host")
@click.argument("name", callback=options.named)
@click.argument("other", metavar="NAME", callback=options.named)
@as_output(options.output)
@options.store
def join(name: str, other: str, output: Output, store: str | None) -> None:
    """Say that two names are one host: from now on they have one history, certified run and baseline."""
    from gpuprep.errors import UsageError
    from gpuprep.records.ids import now
    from gpuprep.workflows import storeofruns

    with storeofruns.existing(store) as opened:
        storeofruns.check_known(opened, name, other)
        if name == other:
            raise UsageError("a name cannot be joined with itself", "give two names")
        joined_names = opened.join(name, other, now())
    if output.as_json:
        from gpuprep.reports import documents

        output.write(documents.document(documents.Joined(name, tuple(joined_names))))
    else:
        output.confirm(f"one host from now on: {', '.join(map(one_line, joined_names))}")


@click.command("part", short_help="Say that a name is a host of its own")
@click.argument("name", callback=options.named)
@as_output(options.output)
@options.store
def part(name: str, output: Output, store: str | None) -> None:
    """Say that a name is a host of its own. It is not joined with another again, unless you do it with `join`."""
    from gpuprep.records.ids import now
    from gpuprep.workflows import storeofruns

    with storeofruns.existing(store) as opened:
        storeofruns.check_known(opened, name)
        others = opened.set_apart(name, now())
    if output.as_json:
        from gpuprep.reports import documents

        output.write(documents.document(documents.Parted(name, tuple(others))))
    else:
        was = f"; it was joined with {', '.join(map(one_line, others))}" if others else ""
        output.confirm(f"{one_line(name)} is a host of its own{was}")
