"""gpuprep watch."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from gpuprep.cli import options
from gpuprep.cli.output import as_output

if TYPE_CHECKING:
    from gpuprep.remote import Target
    from gpuprep.workflows.watch import Held, Watched

MOST_HOSTS = 200  # a connection and a thread each
FORKS = 20  # that connect at the same time
UNKNOWN = 3


@click.command()
@options.hosts
@click.option(
    "--interval",
    type=options.Number(0.5, 300),
    default=2.0,
    show_default=True,
    help="Seconds between two readings of a host.",
)
@as_output(options.output)
@options.store
def watch(interval: float, **shared: Any) -> int:
    """Watch the GPUs of machines on the terminal, as they are now; change nothing.

    One row per GPU, the worst first: clocks and power compared with the certified run, temperature, load of SMs, NVENC
    and NVDEC, memory, errors, what slows the GPU down, and programs with their users. A host that cannot be read is
    one UNKNOWN row, and is tried again. Ctrl-C ends the view.

    Without a terminal, with --json or with --output, watch prints the state once and ends; the exit code is 3 if a host
    could not be read. Watch judges nothing: `gpuprep drift` does. Runs and night checks go on meanwhile.
    """
    from gpuprep import settings
    from gpuprep.cli.console import want_color
    from gpuprep.cli.run_hosts import Request, ask_password, machines_of, needs_host
    from gpuprep.errors import UsageError
    from gpuprep.workflows.watch import Watching

    request = Request(profile=None, **shared)
    output = request.output
    needs_host("watch", request)
    site = settings.load()
    machines = machines_of(request)
    if len(machines) > MOST_HOSTS:
        raise UsageError(
            f"{len(machines)} hosts are too many: one watch connects to at most {MOST_HOSTS}",
            "give some of them, or --limit PATTERN",
        )
    password = ask_password() if request.ask_become_pass else None
    certified = _certified(machines, request.store or site.store)
    watching = Watching(
        machines,
        certified,
        interval=interval,
        forks=request.forks or site.forks or FORKS,
        become_password=password,
        accept_new_host_key=request.accept_new_host_key,
    )
    if not (output.as_json or output.file) and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        from gpuprep.cli import watchscreen

        try:
            with watching:
                watchscreen.show(
                    sys.stdout, want_color(sys.stdout, output.no_color), watching.hosts, watching.wait, interval
                )
        except KeyboardInterrupt:  # how a view is ended
            return 0
    with watching:
        watching.wait_for_each()
        hosts = watching.hosts()
    code = UNKNOWN if any(not host.gpus for host in hosts) else 0
    output.write(_document(hosts, code) if output.as_json else _page(hosts, output.columns))
    return code


def _certified(hosts: Sequence[Target], url: str | None) -> Mapping[str, Mapping[str, Held]]:
    """Host ► GPU UUID ► its certified settings; empty for a host without a certified run. {} without a store."""
    from gpuprep.errors import StoreError
    from gpuprep.paths import state_dir
    from gpuprep.untrusted.plaintext import visible
    from gpuprep.workflows.watch import held

    if not url and not (state_dir() / "history.db").exists():
        return {}
    from gpuprep.store import Store

    try:
        with Store.open(url) as store:
            return {target.name: held(store.certified(target.name)) for target in hosts}
    except StoreError as error:  # the GPUs can be watched all the same
        click.echo(f"note: {visible(error.what)}; nothing is compared with certified runs", err=True)
        return {}


def _page(hosts: Sequence[Watched], columns: int | None) -> str:
    from gpuprep.cli import watchrows
    from gpuprep.cli.output import table_lines

    table = [watchrows.HEAD, *watchrows.rows(hosts)]
    return "\n".join([*table_lines(table, columns=columns), watchrows.counted(hosts), watchrows.KEY])


def _document(hosts: Sequence[Watched], code: int) -> str:
    from gpuprep.records import Source
    from gpuprep.reports import documents

    listed = [
        {
            "host": host.name,
            "state": host.state,
            "source": (Source.SIMULATED if host.simulated else Source.MEASURED).value,
            "error": host.error,
            "notes": host.notes,
            "taken_at": host.sample.taken_at if host.sample else None,
            "driver": host.sample.driver if host.sample else None,
            "xids": host.sample.xids if host.sample else None,
            "gpus": [
                {"state": seen.state, "notes": seen.notes, "certified": seen.held, "now": seen.gpu}
                for seen in host.gpus
            ],
        }
        for host in hosts
    ]
    return documents.document({"hosts": listed, "exit_code": code})
