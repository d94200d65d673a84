"""Runs programs inside a base disk while it is made."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpuprep.errors import SimError


def run(root: Path, *command: str) -> None:
    done = subprocess.run(["chroot", str(root), *command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SimError(
            f"{' '.join(command)} failed in the base disk: {done.stderr.strip()}", "this is a defect of gpuprep"
        )
