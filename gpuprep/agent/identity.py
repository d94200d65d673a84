"""Identifies the agent by its version and a digest of its sources: two agents of one version may have other sources."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Dict, Iterator, Tuple

import gpuprep
from gpuprep import __version__
from gpuprep.agent.parts import INSTALLED, STREAMED

OTHER_AGENT = 97  # the exit code of an agent that is not the one that was asked for
PACKAGE = Path(gpuprep.__file__).parent


def sources(package: Path = PACKAGE, parts: Tuple[str, ...] = STREAMED) -> Dict[str, bytes]:
    """File name inside the package `gpuprep` ─► content, sorted by name. Only for an agent on disk, not in a zip."""
    return dict(_read(package, parts))


def _read(package: Path, parts: Tuple[str, ...]) -> Iterator[Tuple[str, bytes]]:
    """(name, content) of one file after the other: all files at once would need a megabyte of memory."""
    for path in sorted({path for part in parts for path in package.glob(part)}):
        yield path.relative_to(package).as_posix(), path.read_bytes()


@lru_cache(maxsize=1)
def identity() -> str:
    """Version and digest of an installed agent, with its checks. Not used for an agent that is sent along."""
    digest = hashlib.sha256()
    for name, content in _read(PACKAGE, INSTALLED):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return f"{__version__}+{digest.hexdigest()[:16]}"
