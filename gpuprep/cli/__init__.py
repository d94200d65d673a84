"""Which options does a command have, and what does it print? Returns an exit code.

The start imports click and nothing else that is slow, so `gpuprep --help` and shell completion answer at once.
A command's module is imported when the command runs.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

import click

from gpuprep import __version__
from gpuprep.cli.groups import LazyGroup

EPILOG = """\b
Exit codes:
  0    done, and every check that counts passed
  1    done, but a check failed
  2    wrong usage, a bad profile, or an impossible combination; nothing was changed
  3    unknown: host unreachable, evidence missing, or an error inside gpuprep
  4    a provisioning step failed
  130  interrupted; to continue, run the same command again

\b
HOST is a host name, an SSH alias, user@host:port, [v6-address]:port, local, sim:NAME,
or, with -i, a host or group pattern of an Ansible inventory."""


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpuprep", message="%(prog)s %(version)s")
def cli() -> None:
    """Turn a bare cloud VM into a certified GPU machine, and prove it.

    Start with `gpuprep init HOST`, or rehearse on a simulated machine: `gpuprep sim up t4`.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: run one command line and exit with its exit code."""
    # A start makes classes and functions that stay. Python's default looks through them for garbage every 700 objects,
    # which takes a seventh of the start of a command.
    gc.set_threshold(50_000)
    if "_GPUPREP_COMPLETE" in os.environ:  # a shell asks: cli/completion.py
        from gpuprep.cli.completion import answer

        sys.exit(answer(cli, os.environ["_GPUPREP_COMPLETE"]))
    from gpuprep.cli.run_command import run

    sys.exit(run(cli, list(sys.argv[1:] if arguments is None else arguments)))
