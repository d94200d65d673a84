"""gpuprep serve."""

from __future__ import annotations

from pathlib import Path

import click

from gpuprep import listening
from gpuprep.cli import options

GET_IT = "pip install 'gpuprep[serve]'   (in gpuprep's own environment), or pip install starlette uvicorn"
FEWEST_LETTERS = 16
PORT = 8765


@click.command()
@click.option(
    "--listen",
    metavar="ADDRESS:PORT",
    default=f"127.0.0.1:{PORT}",
    show_default=True,
    help="Where to listen. Without TLS use only a loopback address: docs/dashboard.md.",
)
@click.option(
    "--token",
    metavar="TEXT",
    envvar="GPUPREP_SERVE_TOKEN",
    show_envvar=True,
    help="What a browser must give once. Default: a new one at each start. Others can see it in the list of processes.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read the token from the first line of FILE.",
)
@options.no_token
@options.server_names
@click.option(
    "--tls-proxy",
    is_flag=True,
    help="Browsers reach the server over TLS through a proxy: the cookie is sent over TLS only.",
)
@options.store
def serve(
    listen: str,
    token: str | None,
    token_file: Path | None,
    no_token: bool,
    names: tuple[str, ...],
    tls_proxy: bool,
    store: str | None,
) -> None:
    """Show the recorded runs in a browser; change nothing.

    Pages for the fleet, hosts, runs, nights, trends and findings, without Grafana (docs/dashboard.md). It reads the
    store and contacts no host. Ctrl-C ends it.
    """
    from gpuprep.errors import UsageError

    try:
        from gpuprep.dashboard import app as server
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("starlette", "uvicorn", "anyio"):
            raise
        raise UsageError(f"`gpuprep serve` needs {missing}, which is not installed", GET_IT) from error
    from gpuprep import settings
    from gpuprep.store.readonly import ReadOnlyStore
    from gpuprep.untrusted.masking import keep_secret

    where = listening.parse(listen, PORT)
    if sum((token is not None and token_file is None, token_file is not None, no_token)) > 1:
        raise UsageError("--token, --token-file and --no-token exclude each other", "give one of them")
    if no_token and not where.is_loopback:
        raise UsageError(
            f"--no-token with --listen {listen}: everybody who reaches this address could read the pages",
            "leave --no-token out",
        )
    if token_file is not None:
        token = _first_line(token_file)
    if token is not None and (len(token) < FEWEST_LETTERS or not token.isascii() or not token.isprintable()):
        raise UsageError(
            f"the token must have {FEWEST_LETTERS} letters or more, all of them printable ASCII",
            "leave --token out, and a new one is made",
        )
    given = token is not None
    token = "" if no_token else token or listening.new_token()
    keep_secret(token)

    def say(line: str) -> None:
        # The user knows a token that he gave: it is not printed, so that no log has it.
        shown = line.replace(f"?token={token}", "?token=...") if given and token else line
        click.echo(shown, err=not line.startswith("http"))

    if not where.is_loopback and not tls_proxy:
        click.echo(
            f"Note: {where.host} is no loopback address, and there is no TLS: others on the network can read the pages",
            err=True,
        )
    for name in names:
        listening.check_name(name)
    opened = ReadOnlyStore.open(store or settings.load().store)
    server.serve(opened, where, token, names, secure=tls_proxy, say=say)


def _first_line(path: Path) -> str:
    from gpuprep.errors import UsageError

    try:
        with path.open(encoding="ascii") as file:
            return file.readline(1000).strip()
    except (OSError, ValueError) as error:
        raise UsageError(f"--token-file {path}: it cannot be read: {error}", "give a file with one line") from error
