"""Which agent this is: the version and a digest of its own sources, so that two of one version differ when they do."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Dict, Tuple

import gpuprep
from gpuprep import __version__
from gpuprep.agent.parts import INSTALLED, STREAMED


def sources(package: Path = Path(gpuprep.__file__).parent, parts: Tuple[str, ...] = STREAMED) -> Dict[str, bytes]:
    """File name inside the package `gpuprep` ─► content, in order of names. Of an agent on disk, never in a zip."""
    found = sorted({path for part in parts for path in package.glob(part)})
    return {path.relative_to(package).as_posix(): path.read_bytes() for path in found}


@lru_cache(maxsize=1)
def identity() -> str:
    """Of an agent that is installed, with all that judges: what is sent along is never asked who it is."""
    digest = hashlib.sha256()
    for name, content in sources(parts=INSTALLED).items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return f"{__version__}+{digest.hexdigest()[:16]}"
