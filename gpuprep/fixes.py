"""What `drift --fix` puts back: settings, units, links and holds; never a package, never a reboot.

plan(wanted, snapshot, findings)   findings ─► Planned fixes, each a command a person could type. Pure
apply(host, planned)               run one as root ─► Fix
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuprep.host import Host
from gpuprep.records import Finding, Fix, Snapshot
from gpuprep.wanted import Wanted

TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class Planned:
    finding: str  # key of the finding that it is for
    what: str  # "turn persistence mode on"
    command: str  # for the host's /bin/sh, as root


def plan(wanted: Wanted, snapshot: Snapshot, findings: Sequence[Finding]) -> list[Planned]:
    """In the order in which they must run; one command that serves several findings is there once."""
    return []


def apply(host: Host, planned: Planned) -> Fix:
    done = host.run(planned.command, become=True, timeout=TIMEOUT_SECONDS)
    said = "" if done.exit_code == 0 else (done.stderr or done.stdout).strip()[-300:]
    return Fix(planned.finding, planned.what, planned.command, done.exit_code, said)
