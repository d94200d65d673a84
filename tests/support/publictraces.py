"""Public traces, where GPUPREP_PUBLIC_TRACES names a folder of them; tests of them are skipped without it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuprep.trace.opening.machine import SIDECAR


def folder() -> Path | None:
    named = os.environ.get("GPUPREP_PUBLIC_TRACES", "")
    return Path(named) if named and Path(named).is_dir() else None


def named(*endings: str) -> list[Path]:
    """Without the notes that `trace record` writes beside a trace."""
    here = folder()
    every = sorted(path for path in here.iterdir() if path.name.endswith(endings)) if here else []
    return [path for path in every if not path.name.endswith(SIDECAR)]


needed = pytest.mark.skipif(folder() is None, reason="GPUPREP_PUBLIC_TRACES names no folder of public traces")
