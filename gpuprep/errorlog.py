"""Writes an unexpected error in full to a file in the state folder that only the user can read."""

from __future__ import annotations

import os
import secrets
import sys
import traceback
from datetime import datetime, timezone
from pathlib import Path

from gpuprep import __version__
from gpuprep.paths import private_folder, private_text, state_dir
from gpuprep.untrusted.masking import masked
from gpuprep.untrusted.plaintext import one_line, visible


def named(error: BaseException) -> str:
    """ "an error inside gpuprep: KeyError: 'x'": one line, with unsafe characters escaped."""
    message = one_line(masked(str(error)).split("\n", 1)[0])
    return f"an error inside gpuprep: {type(error).__name__}: {message}"


def whole(error: BaseException, doing: str) -> str:
    """The contents of the file: versions, `doing` as the third line, the traceback."""
    text = masked("".join(traceback.format_exception(error)))
    return f"gpuprep {__version__}\npython {sys.version}\n{doing}\n\n{visible(text)}"


def keep(text: str) -> Path:
    """Write `text` to a new file, mode 0600, and return its path. Raises OSError."""
    private_folder(state_dir() / "errors")
    moment = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    path = state_dir() / "errors" / f"{moment}-{os.getpid()}-{secrets.token_hex(2)}.log"
    private_text(path, text)
    return path
