"""gpuprep sim: simulated GPU VMs."""

from __future__ import annotations

import click

from gpuprep.cli.console import steps
from gpuprep.cli.groups import Subcommands


@click.group(
    "sim", cls=Subcommands, short_help="Start and stop simulated GPU VMs: real Linux machines with a simulated GPU"
)
def sim() -> None:
    """Start and stop simulated GPU VMs: real Linux machines with a simulated GPU.

    A machine has real Debian, systemd, sshd and apt, an ordinary user `debian` with sudo, and no root login. Its GPU,
    its running kernel and NVML are simulated. The driver loads only after a reboot, and only if DKMS built it.
    Other commands reach the machine as sim:NAME. Needs root on Linux.
    """


def _gpus_of(name: str, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Without --gpu, a machine named after a model (t4, v100-2) gets that GPU; any other machine gets a t4."""
    from gpuprep.sim import gpus

    if wanted:
        return wanted
    models = sorted(gpus.models(), key=len, reverse=True)
    return (next((model for model in models if name == model or name.startswith(f"{model}-")), "t4"),)


@sim.command("up", short_help="Boot a machine, making it first if needed")
@click.argument("name")
@click.option(
    "--os",
    "os_name",
    metavar="OS",
    default="debian13",
    show_default=True,
    help="The system, such as debian12, ubuntu2404, rhel9 or amzn2023. A wrong name lists all of them.",
)
@click.option(
    "--gpu",
    "gpu_names",
    metavar="MODEL",
    multiple=True,
    help="A GPU of the machine; repeat it for several GPUs, `none` for no GPU. Default: the model in NAME, or t4.",
)
@click.option("--clone-of", metavar="OTHER", help="Start with a copy of the disk of OTHER, which must be stopped.")
@click.option(
    "--nouveau/--no-nouveau", default=True, show_default=True, help="Whether nouveau is loaded on the bare machine."
)
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def up(name: str, os_name: str, gpu_names: tuple[str, ...], clone_of: str | None, nouveau: bool, quiet: bool) -> None:
    """Boot the machine NAME, making it first if there is none.

    A machine that already runs stays as it is. The first machine of an OS release takes about a minute more, for the
    base disk.
    """
    import gpuprep.sim

    gpus = _gpus_of(name, gpu_names)
    with steps(f"sim up {name}", quiet=quiet) as say:
        machine = gpuprep.sim.up(name, os=os_name, gpus=gpus, progress=say, clone_of=clone_of, nouveau=nouveau)
    state = "is up" if machine.booted else "was up already"
    click.echo(
        f"{name} {state}: {machine.os}, GPUs {', '.join(machine.gpus) or 'none'}, SSH on 127.0.0.1:{machine.port}"
    )
    click.echo(f"use it as sim:{name}, or look inside with: gpuprep sim exec {name} -- bash")


@sim.command("down", short_help="Stop a machine and delete its disk")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--keep", is_flag=True, help="Shut down and keep the disk: `up` boots it again, `--clone-of` can use it.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def down(names: tuple[str, ...], keep: bool, quiet: bool) -> None:
    """Stop machines and, unless --keep is given, delete their disks."""
    import gpuprep.sim

    for name in names:
        with steps(f"sim down {name}", quiet=quiet) as say:
            gpuprep.sim.down(name, keep=keep, progress=say)
        click.echo(f"{name} is {'stopped, its disk kept' if keep else 'gone'}")


@sim.command("list", short_help="List all simulated machines")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
def list_machines(as_json: bool) -> None:
    """List all simulated machines, running or stopped."""
    import gpuprep.sim

    machines = gpuprep.sim.machines()
    if as_json:
        from gpuprep.reports import documents

        rows = tuple(
            documents.Machine(
                m.name, m.os, tuple(m.gpus), m.address, m.port, m.user, m.identity_file, m.known_hosts, m.running
            )
            for m in machines
        )
        click.echo(documents.document(documents.Machines(rows)))
        return
    if not machines:
        click.echo("no simulated VMs; gpuprep sim up t4 makes one")
    for m in machines:
        state = "running" if m.running else "stopped"
        click.echo(f"{m.name:20} {state:8} {m.os:10} {','.join(m.gpus) or 'none':24} {m.address}:{m.port}")


@sim.command("exec", short_help="Run a command inside a machine as root")
@click.argument("name")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def execute(ctx: click.Context, name: str, command: tuple[str, ...]) -> None:
    """Run COMMAND inside the machine NAME as root and end with its exit code.

    Write -- before the command: gpuprep sim exec t4 -- nvidia-smi -L
    """
    from gpuprep.sim import inside

    ctx.exit(inside.run(name, command))


@sim.command("fault", short_help="Start or remove a fault on a running machine")
@click.argument("name", required=False)
@click.argument("kind", required=False)
@click.option(
    "--gpu", type=click.IntRange(min=0), default=0, show_default=True, help="Number of the GPU that gets the fault."
)
@click.option("--clear", is_flag=True, help="Remove the fault.")
@click.option("--list", "list_kinds", is_flag=True, help="List all kinds of faults.")
def fault(name: str | None, kind: str | None, gpu: int, clear: bool, list_kinds: bool) -> None:
    """Start the fault KIND on the machine NAME, or remove it."""
    from gpuprep.sim import faults

    if list_kinds:
        for key, data in faults.kinds().items():
            click.echo(f"{key:28} {data['help']}")
        return
    if name is None or kind is None:
        raise click.UsageError(f"NAME and KIND are needed; kinds: {', '.join(faults.kinds())}")
    faults.play(name, kind, gpu=gpu, clear=clear)
    click.echo(f"{kind} {'removed from' if clear else 'started on'} {name}")
