"""Reads name, owner and age of a program on a GPU from the system.

Owner and age come from psutil. An agent that is sent along may lack psutil, and then leaves both out: a second reader
of /proc is not worth it for hosts that gpuprep has not set up yet, on which a GPU is seldom in use.
"""

from __future__ import annotations

import time
from typing import Tuple

from gpuprep.agent.programs.run import read_text
from gpuprep.records import Int, Missing, Str

NO_PSUTIL = Missing("not_installed", "psutil, which reads it, is not installed with the agent")


def look(pid: int) -> Tuple[str, Str, Int]:
    """(the program's name, its owner, its age in seconds). The name is "" if it cannot be read."""
    try:
        import psutil  # late import: with idle GPUs the agent saves its memory
    except ImportError:
        return _name(pid), NO_PSUTIL, NO_PSUTIL
    try:
        process = psutil.Process(pid)
        name, owner, started = _name(pid), process.username(), process.create_time()
        if not process.is_running():  # its id may be reused already, and the values may be another program's
            raise psutil.NoSuchProcess(pid)
    except (psutil.Error, OSError, RuntimeError) as error:  # the latter two where a container hides /proc/stat
        unseen = Missing("not_visible", f"{error}")
        return "", unseen, unseen
    return name, owner, max(0, round(time.time() - started))


def _name(pid: int) -> str:
    """The program's name. Not by psutil, which also reads the command line: its owner can make that block for ever."""
    comm = read_text(f"/proc/{pid}/comm")
    return comm.strip() if isinstance(comm, str) else ""
