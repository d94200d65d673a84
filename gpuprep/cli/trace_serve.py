"""gpuprep trace serve."""

from __future__ import annotations

from pathlib import Path

import click

from gpuprep import listening
from gpuprep.cli import options, trace_options
from gpuprep.cli.console import steps

PORT = 8766


@click.command(short_help="Show profiles in a browser")
@trace_options.path
@click.option(
    "--listen", metavar="ADDRESS:PORT", default=f"127.0.0.1:{PORT}", show_default=True, help="Where to listen."
)
@options.no_token
@options.server_names
@trace_options.record
@trace_options.keep_paths
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
@options.store
def serve(
    path: Path,
    listen: str,
    no_token: bool,
    names: tuple[str, ...],
    run: str | None,
    keep_paths: bool,
    quiet: bool,
    store: str | None,
) -> None:
    """Show profiles in a browser: the page of `gpuprep trace report PATH --format html`, and Perfetto.

    PATH is a profile, or a folder of them. It prints the address, with a token that the browser must give once. A page
    takes start=N, stop=M and key_op=NAME in its address. Ctrl-C ends it.
    """
    trace_options.need_extra()
    from gpuprep.errors import UsageError
    from gpuprep.trace import serve as server
    from gpuprep.trace.reading import find
    from gpuprep.trace.web import Asked, Library, application
    from gpuprep.untrusted.masking import keep_secret

    where = listening.parse(listen, PORT)
    if no_token and not where.is_loopback:
        raise UsageError(
            f"--no-token with --listen {listen}: everybody who reaches this address could read the pages",
            "leave --no-token out",
        )
    if not where.is_loopback:
        click.echo(f"Note: {where.host} is no loopback address, and there is no TLS: others can read along", err=True)
    token = "" if no_token else listening.new_token()
    keep_secret(token)
    record = trace_options.recorded(run, store)
    library = Library(
        lambda: {_name(each, path): each for each in find(path)},
        [path] if path.is_dir() else [],
        whole=True,
        keep_paths=keep_paths,
        record=record,
    )
    runs = library.names()
    if len(runs) == 1:  # what is wrong with it is reported here, not in the browser
        with steps(f"trace serve {path.name}", quiet=quiet) as say:
            say(f"reading {path.name}")
            library.page(Asked(runs[0]))
    server.serve(application(library), where, token, names, say=lambda line: click.echo(line))


def _name(file: Path, asked: Path) -> str:
    return str(file.relative_to(asked)) if asked.is_dir() else file.name
