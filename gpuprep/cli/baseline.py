"""gpuprep baseline: the certified run and the figures that a host is compared with."""

from __future__ import annotations

import click

from gpuprep.cli import options
from gpuprep.cli.groups import Subcommands
from gpuprep.cli.output import Output, as_output, table_lines
from gpuprep.untrusted.plaintext import one_line


@click.group(cls=Subcommands)
def baseline() -> None:
    """Show, set and clear the certified run and the figures of a host.

    `gpuprep drift` compares a host with its certified run and its baseline figures. If you do not use `set`, each
    provision or validate that passes becomes the certified run, unless the run measured less than the certified run
    before it or found something worse. A baseline figure comes from the first passing run that measured it.
    """


@baseline.command("show")
@click.argument("host", callback=options.named)
@as_output(options.output)
@options.store
def show(host: str, output: Output, store: str | None) -> int:
    """Show the certified run and the baseline figures of a host.

    The exit code is 3 if the host has neither.
    """
    from gpuprep.workflows import storeofruns

    with storeofruns.existing(store) as opened:
        host_baseline = opened.host_baseline(host)
    code = 0 if host_baseline.run_id or host_baseline.figures else 3
    if output.as_json:
        from gpuprep.reports import documents

        figures = [
            documents.BaselineFigure(
                key.gpu_uuid, key.probe, key.versions, name, baseline.value, baseline.run_id, baseline.set_at
            )
            for key, named in host_baseline.figures.items()
            for name, baseline in named.items()
        ]
        certified = None
        if host_baseline.run_id:
            certified = documents.CertifiedRun(
                host_baseline.run_id, host_baseline.run_at, host_baseline.set_at or None, host_baseline.reason
            )
        output.write(documents.document(documents.Baseline(host, host_baseline.names, certified, tuple(figures), code)))
        return code
    from gpuprep.reports import history as pages

    why = f": {one_line(host_baseline.reason)}" if host_baseline.reason else ""
    how = (
        f"set by hand at {host_baseline.set_at}{why}"
        if host_baseline.set_at
        else "the newest run that passed as a whole"
    )
    also = [f"also called {', '.join(map(one_line, host_baseline.names))}"] if host_baseline.names else []
    run = (
        f"run {host_baseline.run_id} of {host_baseline.run_at} ({how})"
        if host_baseline.run_id
        else "no run that passed is recorded"
    )
    rows = pages.baseline_table(host_baseline.figures)
    output.write(
        "\n".join([f"{host}: {run}", *also, *(table_lines(rows, columns=output.columns) or [pages.NO_FIGURES])]),
    )
    return code


@baseline.command("set")
@click.argument("host", callback=options.named)
@click.argument("run", required=False)
@click.option(
    "--reason",
    metavar="TEXT",
    default="",
    help="Why you choose this run; needed if the run measured less or found something worse.",
)
@as_output(options.output)
@options.store
def set_(host: str, run: str | None, reason: str, output: Output, store: str | None) -> None:
    """Make a run that passed the certified run of a host, and its figures the baseline.

    RUN is a run id of `gpuprep history`, the beginning of a run id, or `last`: the newest provision or validate of HOST
    that passed. A run that measured less than the certified run, found something worse, or followed an open FAIL of
    drift needs --reason; without RUN, such runs are passed over. Your choice stays until you set or clear it again,
    whatever runs pass later.
    """
    from gpuprep.records.ids import now
    from gpuprep.workflows import certify, storeofruns

    with storeofruns.existing(store) as opened:
        done = certify.certify(opened, host, run, now(), reason.strip())
    count = sum(len(figures) for figures in done.measured.values())
    if output.as_json:
        from gpuprep.reports import documents

        changed = documents.BaselineSet(host, done.record.run_id, done.before, reason.strip(), count)
        output.write(documents.document(changed))
    else:
        simulated = " (simulated: its figures are not used for comparison)" if done.record.source == "simulated" else ""
        what = f"{host} is compared with run {done.record.run_id} of {done.record.started_at}"
        before = f"; before, to run {done.before}" if done.before not in (None, done.record.run_id) else ""
        why = f"; why: {one_line(reason.strip())}" if reason.strip() else ""
        output.confirm(f"{what}, with {count} figures{simulated}{before}{why}")


@baseline.command("clear")
@click.argument("host", callback=options.named)
@click.option("--probe", metavar="PROBE", help="Delete only the figures of this probe: gemm, bandwidth or throughput.")
@as_output(options.output)
@options.store
def clear(host: str, probe: str | None, output: Output, store: str | None) -> None:
    """Delete the baseline figures of a host, and the choice of its certified run.

    The next run that passes sets new figures. The certified run is then the newest run that passed.
    """
    from gpuprep.checks.baseline import READERS
    from gpuprep.errors import UsageError
    from gpuprep.workflows import storeofruns

    if probe is not None and probe not in READERS:
        raise UsageError(
            f"there are no baseline figures of a probe {probe!r}", f"probes with figures are {', '.join(READERS)}"
        )
    with storeofruns.existing(store) as opened:
        storeofruns.check_known(opened, host)
        figures, named = opened.clear_baseline(host, probe)
    if output.as_json:
        from gpuprep.reports import documents

        output.write(documents.document(documents.BaselineCleared(host, figures, named)))
    else:
        run = " and the run that was set" if named else ""
        output.confirm(f"{host}: {figures} figures{run} forgotten")
