"""The cache of a user who is not root, on the machine that is measured."""

from __future__ import annotations

import os
from pathlib import Path


def folder() -> Path:
    """$XDG_CACHE_HOME/gpuprep. Raises OSError for a user without a home, as often in containers."""
    value = os.environ.get("XDG_CACHE_HOME", "")
    if value.startswith("/"):  # the XDG specification: a relative path is to be ignored
        return Path(value) / "gpuprep"
    try:
        return Path.home() / ".cache" / "gpuprep"
    except RuntimeError as error:
        raise FileNotFoundError("this user has no home folder; set HOME or XDG_CACHE_HOME") from error
