"""May root run or read the file at a path? Only if no other user can replace it.

    untrusted_reason("/opt/conda/bin/ffmpeg")  "/opt/conda belongs to alice"; "" where only root can change it
    folders("/opt/conda/bin:/usr/bin")         the folders of a PATH that only root can change

Ask is_root() first: another user has no more rights to lose.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gpuprep.untrusted.owners import ROOT, weakness


class NotTrusted(OSError):
    """Root does not start this program; the text names the user who could have replaced it."""


def is_root() -> bool:
    return os.geteuid() == ROOT


def untrusted_reason(path: str) -> str:
    """Which user besides root can change the file at `path` (absolute), in words; "" if none, or without a file."""
    found = weakness(path, {ROOT})
    return found.why if found else ""


def folders(path: str) -> str:
    """A PATH without folders that another user can write to, and without the working folder."""
    return ":".join(folder for folder in path.split(":") if folder.startswith("/") and _is_closed(folder))


def _is_closed(folder: str) -> bool:
    """Whether only root can change the folder or add files. In /tmp any user can add files."""
    try:
        shared = Path(folder).stat().st_mode & stat.S_IWOTH
    except OSError:
        shared = 0
    return not shared and not untrusted_reason(folder)
