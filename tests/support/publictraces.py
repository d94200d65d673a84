"""Public traces, where GPUPREP_PUBLIC_TRACES names a folder of them; tests of them are skipped without it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def folder() -> Path | None:
    named = os.environ.get("GPUPREP_PUBLIC_TRACES", "")
    return Path(named) if named and Path(named).is_dir() else None


def named(*endings: str) -> list[Path]:
    here = folder()
    return sorted(path for path in here.iterdir() if path.name.endswith(endings)) if here else []


needed = pytest.mark.skipif(folder() is None, reason="GPUPREP_PUBLIC_TRACES names no folder of public traces")
