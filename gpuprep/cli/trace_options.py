"""What the commands of gpuprep trace have in common."""

from __future__ import annotations

from pathlib import Path

import click

from gpuprep.cli.options import _stack

GET_IT = "pip install 'gpuprep[trace]'   (in gpuprep's own environment)"
NEEDED = ("msgspec", "numpy")

file = click.argument("path", metavar="PATH", type=click.Path(path_type=Path))

iterations = _stack(
    click.option("--iter-start", "start", type=click.IntRange(min=0), help="First iteration to count, from 0."),
    click.option("--iter-stop", "stop", type=click.IntRange(min=0), help="Last iteration to count; it is included."),
    click.option(
        "--key-op", metavar="NAME", default="", help="Split into iterations at each call of this op or annotation."
    ),
    click.option("--profile-name", metavar="TEXT", default="", help="Name of the profile. Default: that in the file."),
    click.option(
        "--keep-paths", is_flag=True, help="Show folders of the recorded machine; else file names alone are shown."
    ),
)


def need_extra(*more: str) -> None:
    """Raises UsageError where a library of the extra is not installed."""
    from importlib.util import find_spec

    from gpuprep.errors import UsageError

    for name in (*NEEDED, *more):
        if find_spec(name) is None:
            raise UsageError(f"`gpuprep trace` needs {name}, which is not installed", GET_IT)
