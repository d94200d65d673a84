"""Ends on a host what an interrupted playbook left running there: downloads, compilers, whatever its tasks had started.

ssh that is killed ends nothing at its other end. All that a task starts has the run's id in its environment
(playbooks/provision.yml), and is found by it. What a package manager has begun is left to end by itself: its database
would be broken.
"""

from __future__ import annotations

import functools
import importlib.resources
import shlex

from gpuprep.errors import GpuprepError
from gpuprep.remote.core import Host
from gpuprep.remote.limits import TOLD_LETTERS
from gpuprep.untrusted.plaintext import one_line

SECONDS = 10.0  # the user's patience ends it sooner
LEFT = "left "


def end(host: Host, run_id: str, units: tuple[str, ...] = ()) -> str:
    """What goes on there ("apt-get, dpkg"); "" for nothing. `units` of systemd are stopped, too.

    A host that cannot be asked any more is left as it is: then its own end of the connection is all there is.
    """
    words = " ".join(map(shlex.quote, ["python3", "-I", "-S", "-c", _program(), run_id, *units]))
    try:
        output = host.run(words, become=True, timeout=SECONDS).stdout
    except GpuprepError:
        return ""
    last = (output.strip().splitlines() or [""])[-1]
    return one_line(last.removeprefix(LEFT), TOLD_LETTERS) if last.startswith(LEFT) else ""


@functools.cache
def _program() -> str:
    return (importlib.resources.files("gpuprep.remote") / "leftoversprogram.py").read_text(encoding="utf-8")
