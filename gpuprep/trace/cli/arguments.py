"""What the commands of gpuprep trace have in common."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuprep.cli.options import stack

if TYPE_CHECKING:
    from gpuprep.records import RunRecord

GET_IT = "pip install 'gpuprep[trace]'   (in gpuprep's own environment)"
NEEDED = ("msgspec", "numpy")

path = click.argument("path", metavar="PATH", type=click.Path(path_type=Path))

iterations = stack(
    click.option("--iter-start", "start", metavar="N", type=click.IntRange(min=0), help="First iteration that counts."),
    click.option("--iter-stop", "stop", metavar="M", type=click.IntRange(min=0), help="Last iteration that counts."),
    click.option("--key-op", metavar="NAME", default="", help="An iteration begins at each call of this op."),
)

record = click.option(
    "--record",
    "run",
    metavar="RUN",
    help="A recorded run of the machine that was profiled: the report then also has its roofs and findings.",
)

keep_paths = click.option(
    "--keep-paths", is_flag=True, help="Show whole paths of source files. By default folders of the user are left out."
)


def need_extra(*more: str) -> None:
    """Raises UsageError if a library of the extra is not installed."""
    from importlib.util import find_spec

    from gpuprep.errors import UsageError

    for name in (*NEEDED, *more):
        if find_spec(name) is None:
            raise UsageError(f"`gpuprep trace` needs {name}, which is not installed", GET_IT)


def recorded(run: str | None, store: str | None) -> RunRecord | None:
    """The record of --record. Raises UsageError, StoreError."""
    if run is None:
        return None
    from gpuprep.records import showable
    from gpuprep.workflows import storeofruns

    with storeofruns.existing(store) as opened:
        return showable.safe(opened.get(run))


def check_bytes(output: Path | None) -> None:
    """Raises UsageError if a workbook would go to a terminal: it needs a file or a program that reads it."""
    import sys

    from gpuprep.errors import UsageError

    if output is None and sys.stdout.isatty():
        raise UsageError("--format xlsx cannot be shown on a terminal", "name a file: --output profile.xlsx")


def check_table(name: str) -> None:
    """Raises UsageError for a --table that does not exist."""
    from gpuprep.errors import UsageError
    from gpuprep.trace.formats.sheets import NAMES

    if name not in NAMES:
        raise UsageError(f"--table {name}: there is no such table", f"one of {', '.join(NAMES)}")
