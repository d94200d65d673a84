"""gpuprep codec: FFmpeg for machines that gpuprep does not provision."""

from __future__ import annotations

from pathlib import Path

import click

from gpuprep.cli.console import emit
from gpuprep.cli.steps import steps


@click.group(short_help="Build FFmpeg with NVENC for machines that gpuprep does not provision")
def codec() -> None:
    """Build FFmpeg with NVENC and NVDEC for machines that gpuprep does not provision."""


@codec.command()
@click.option("--target", type=click.Choice(["linux", "windows"]), required=True, help="The system it shall run on.")
@click.option("--profile", metavar="NAME|PATH", default="base", show_default=True, help="Its codec part is built.")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Folder of the archive. Default: the current folder.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def build(target: str, profile: str, output: Path, quiet: bool) -> None:
    """Build FFmpeg with the parts of a profile in a build root of its own; needs root on Linux.

    The archive (a zip for Windows, a tarball for Linux) has ffmpeg and ffprobe, their licences, a manifest with the
    sha256 of each file, and a check to run on the GPU machine.
    """
    from gpuprep import settings
    from gpuprep.codecbuild import build as builder
    from gpuprep.desired import loading

    wish = loading.load(profile).codec
    with steps(f"codec build --target {target}", quiet=quiet) as say:
        path = builder.build(wish, target, output.resolve(), settings.load().mirrors, say, say.count)
    emit(str(path), None)
