"""A program on a GPU as the system sees it: its name, its owner and its age.

psutil tells owner and age. An agent that is sent along may find no psutil, and then leaves both out: a second reader of
/proc is not worth it for hosts that gpuprep has not set up yet, where a GPU is seldom in use.
"""

from __future__ import annotations

import time
from typing import Tuple

from gpuprep.agent.programs.run import read_text
from gpuprep.records import Int, Missing, Str

NO_PSUTIL = Missing("not_installed", "psutil, which reads it, is not installed with the agent")


def look(pid: int) -> Tuple[str, Str, Int]:
    """(the program's name, its owner, its age in seconds). The name is "" where it may not be seen."""
    try:
        import psutil  # not above: where the GPUs are idle, the agent does without its memory
    except ImportError:
        return _name(pid), NO_PSUTIL, NO_PSUTIL
    try:
        process = psutil.Process(pid)
        name, owner, started = _name(pid), process.username(), process.create_time()
        if not process.is_running():  # its number may be another program's already, and so may what was read
            raise psutil.NoSuchProcess(pid)
    except (psutil.Error, OSError, RuntimeError) as error:  # the latter two where a container hides /proc/stat
        unseen = Missing("not_visible", f"{error}")
        return "", unseen, unseen
    return name, owner, max(0, round(time.time() - started))


def _name(pid: int) -> str:
    """By hand: psutil reads the command line, too. Its owner chooses its length, and can let a reader wait for ever."""
    comm = read_text(f"/proc/{pid}/comm")
    return comm.strip() if isinstance(comm, str) else ""
