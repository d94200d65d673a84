"""gpuprep plan."""

from __future__ import annotations

from typing import Any

import click

from gpuprep.cli import options
from gpuprep.cli.work import Request, execute
from gpuprep.reports import PLANS


@click.command()
@options.hosts
@options.profile
@options.results(*PLANS)
def plan(**shared: Any) -> int:
    """Show what provision would do and why; change nothing.

    Shows the same list as `gpuprep provision --check`. Without --profile, gpuprep proposes a profile for the GPUs of
    each host, and plans with it. A plan is not stored in the history.
    """
    return execute("plan", Request(**shared), stored=False)
