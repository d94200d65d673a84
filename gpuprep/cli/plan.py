"""gpuprep plan."""

from __future__ import annotations

from typing import Any

import click

from gpuprep.cli import options
from gpuprep.cli.work import Request, execute


@click.command()
@options.hosts
@options.profile
@options.output
def plan(**shared: Any) -> int:
    """Show what provision would do and why, changing nothing.

    The list is the one of `gpuprep provision --check`. A plan is not kept in the history.
    """
    return execute("plan", Request(**shared), stored=False)
