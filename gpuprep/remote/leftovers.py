"""Ends what an interrupted playbook left running on a host: downloads, compilers, everything that its tasks started.

Killing ssh here ends nothing on the host. Every process of a task has the run id in its environment
(the collection's playbooks/provision.yml), so it can be identified. A package manager is left to end by itself: killing
it would damage its database.
"""

from __future__ import annotations

import shlex

from gpuprep.errors import GpuprepError
from gpuprep.remote.core import Host
from gpuprep.remote.limits import TOLD_LETTERS
from gpuprep.remote.lock import program
from gpuprep.untrusted.plaintext import one_line

SECONDS = 10.0  # the user's patience ends it sooner
LEFT = "left "


def end(host: Host, run_id: str, units: tuple[str, ...] = ()) -> str:
    """Names of processes that were left running ("apt-get, dpkg"); "" for none. Also stops the systemd `units`.

    Returns "" if the host cannot be reached.
    """
    words = " ".join(map(shlex.quote, ["python3", "-I", "-S", "-c", program("leftovers"), run_id, *units]))
    try:
        output = host.run(words, become=True, timeout=SECONDS).stdout
    except GpuprepError:
        return ""
    last = (output.strip().splitlines() or [""])[-1]
    return one_line(last.removeprefix(LEFT), TOLD_LETTERS) if last.startswith(LEFT) else ""
