"""Which agent this is: the version and a digest of its own sources, so that two of one version differ when they do."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Dict

import gpuprep
from gpuprep import __version__

# Everything that the agent consists of, besides pynvml; the role gpu_agent's filter names the same.
PARTS = ("__init__.py", "errors.py", "gpufacts.py", "recordcodec.py", "records.py", "onhost/**/*.py")


def sources(package: Path = Path(gpuprep.__file__).parent) -> Dict[str, bytes]:
    """File name inside the package `gpuprep` ─► content, in order of names. Of an agent on disk, never in a zip."""
    found = sorted({path for part in PARTS for path in package.glob(part)})
    return {path.relative_to(package).as_posix(): path.read_bytes() for path in found}


def identity() -> str:
    digest = hashlib.sha256()
    for name, content in sources().items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return f"{__version__}+{digest.hexdigest()[:16]}"
