"""gpuprep doctor."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, BinaryIO

import click

from gpuprep.cli import options
from gpuprep.cli.output import as_output


@click.command(short_help="Say what is wrong with machines and what to do")
@options.hosts
@click.option("--log", metavar="FILE", help="Read this log (- is stdin) in place of a host.")
@click.option(
    "--bundle",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write what was read to FILE, a .tar.gz for a support ticket, without secrets, addresses and names.",
)
@as_output(options.output)
def doctor(log: str | None, bundle: Path | None, **shared: Any) -> int:
    """Say what is wrong with machines and what to do, the gravest first; change nothing.

    HOST may be any machine with an NVIDIA GPU, `local` too; no profile is needed, and gpuprep need not have set it up.
    Read are the kernel's log, Xids, DKMS, packages, modprobe, the loader, device nodes, containers, Secure Boot, the
    next boot, Fabric Manager and the licence of a vGPU. With --log: what a pasted log of FFmpeg, CUDA, PyTorch, dkms,
    apt, dnf, docker or NCCL says.

    Exit code 0: nothing was found. 1: something is wrong. 3: a host could not be read, or the log says nothing known.
    """
    from gpuprep.cli.console import page_width, want_color
    from gpuprep.cli.run_hosts import Request, ask_password, machines_of
    from gpuprep.errors import UsageError
    from gpuprep.reports import doctor as shown
    from gpuprep.workflows import doctor as examining

    request = Request(profile=None, store=None, **shared)
    output = request.output
    named = bool(request.hosts or request.inventory or request.batch)
    if named == (log is not None):
        raise UsageError("`gpuprep doctor` needs a HOST or --log FILE", "gpuprep doctor local")
    if log is not None:
        examined = [examining.of_log(_text(log))]
    else:
        password = ask_password() if request.ask_become_pass else None
        examined = examining.of_hosts(
            machines_of(request), become_password=password, accept_new_host_key=request.accept_new_host_key,
            forks=request.forks,
        )  # fmt: skip
    code = max((each.exit_code for each in examined), key=(0, 3, 1).index)
    if bundle is not None:
        _write_bundle(bundle, list(shown.bundle(examined, code)))
    color = want_color(sys.stdout, output.no_color) and output.file is None
    text = shown.as_json(examined, code) if output.as_json else shown.as_text(examined, color=color, width=page_width())
    output.write(text)
    return code


def _text(path: str) -> str:
    """The log, at most its last MiB. Raises UsageError."""
    from gpuprep.doctor import MOST_CHARACTERS
    from gpuprep.errors import UsageError
    from gpuprep.untrusted.limits import open_regular

    most = 4 * MOST_CHARACTERS
    try:
        if path == "-":
            data = _end(sys.stdin.buffer, most)
        else:
            with open_regular(path) as file:
                file.seek(max(0, file.seek(0, 2) - most))
                data = file.read(most)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", "give a file of text, or - for stdin") from error
    return data.decode(errors="replace")


def _end(file: BinaryIO, most: int) -> bytes:
    """The last `most` bytes of a file that cannot be wound forward, such as a pipe."""
    data = b""
    while more := file.read(most):
        data = (data + more)[-most:]
    return data


def _write_bundle(path: Path, files: list[tuple[str, str]]) -> None:
    """List the files, then write them. Raises UsageError."""
    import io
    import tarfile

    from gpuprep.errors import UsageError

    for name, text in files:
        click.echo(f"bundle: {name}, {len(text.splitlines())} lines", err=True)
    try:
        with tarfile.open(path, "x:gz") as archive:
            for name, text in files:
                data = text.encode(errors="replace")
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", "give the path of a new file") from error
