"""gpuprep codec: what a command needs of FFmpeg, and FFmpeg for machines that gpuprep does not provision."""

from __future__ import annotations

from pathlib import Path

import click

from gpuprep.cli import options
from gpuprep.cli.console import emit, refuse_link, steps
from gpuprep.cli.groups import Subcommands


@click.group(cls=Subcommands, short_help="Check an ffmpeg command against a build, and build FFmpeg for other machines")
def codec() -> None:
    """Check an ffmpeg command against a build, and build FFmpeg with NVENC and NVDEC for other machines."""


@codec.command()
@click.option(
    "--target", type=click.Choice(["linux", "windows"]), required=True, help="The system that FFmpeg will run on."
)
@click.option(
    "--profile",
    metavar="NAME|PATH",
    default="base",
    show_default=True,
    help="Build FFmpeg as the codec section of this profile says.",
)
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

    refuse_link(output)
    wish = loading.load(profile).codec
    with steps(f"codec build --target {target}", quiet=quiet) as say:
        path = builder.build(wish, target, output.resolve(), settings.load().mirrors, say, say.count)
    emit(str(path), None)


@codec.command(context_settings={"ignore_unknown_options": True})
@click.argument("host", required=False, callback=options.named)
@click.option("--record", "run", metavar="RUN", help="Take the parts from this recorded run; `last` is the newest.")
@click.option("--profile", metavar="NAME|PATH", help="Take the parts that a build by this profile would have.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
@options.store
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="-- ffmpeg ...")
def check(
    host: str | None, run: str | None, profile: str | None, as_json: bool, store: str | None, words: tuple[str, ...]
) -> int:
    """Show what is wrong with an ffmpeg command, and what it needs that a build lacks. Opens no file of the command.

    The frames are followed through each filter: where they are (in the GPU's memory or the computer's) and in which
    format. Options and their values are those of the build's version of FFmpeg.

    The FFmpeg of HOST is asked for its parts. It tries, on test pictures, what of the command needs no GPU: filters,
    graphs, encoders. A HOST that cannot be reached is judged by its last record (`gpuprep validate HOST --only
    codec` makes one). --record and --profile ask nobody.

    Exit code 0: the build has all parts, and they fit together. 1: a part is missing, or FFmpeg would not do what the
    command says; the output names what to write, or the key of a profile that adds the part. 3: gpuprep cannot tell.
    """
    from gpuprep.reports import codeccheck as shown
    from gpuprep.workflows import codeccheck

    if host is not None and host.rpartition("/")[2] == "ffmpeg":  # `codec check --profile video -- ffmpeg ...`
        words, host = (host, *words), None
    # click leaves options that it does not know to the command, and FFmpeg has none with two dashes.
    for word in (host or "", *words[:1]):
        if word.startswith("--"):
            raise click.NoSuchOption(word.partition("=")[0], ctx=click.get_current_context())
    document = codeccheck.check(words, host=host, run=run, profile=profile, store=store)
    emit(shown.as_json(document) if as_json else shown.as_text(document), None)
    return document.exit_code
