"""What the attacks on FFmpeg builds share: the role's programs, and a build folder with its manifest."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from places import COLLECTION

ROLE = COLLECTION / "roles" / "gpu_codec"
CODEC = ROLE / "files" / "codec"
KEY = "0123456789ab"
NAMES = ("state", "parts", "copying", "sealing", "install")


@contextmanager
def programs() -> Iterator[dict[str, ModuleType]]:
    """The role's on-host programs, imported as they import one another."""
    sys.path.insert(0, str(CODEC))
    try:
        yield {name: importlib.import_module(name) for name in NAMES}
    finally:
        sys.path.remove(str(CODEC))
        for name in NAMES:
            sys.modules.pop(name, None)


def spec(prefix: Path) -> dict[str, Any]:
    wish = {"os": "debian-13", "arch": "x86_64", "ffmpeg": "7.1.5", "headers": "12.1.14.0", "npp": False, "parts": {}}
    return {**wish, "key": KEY, "prefix": str(prefix), "unit": "no-such-unit-of-gpuprep", "user": "nobody"}


def a_build(folder: Path) -> Path:
    """bin/ffmpeg and a licence, and the manifest that names both."""
    content = {"bin/ffmpeg": b"\x7fELF a program", "share/doc/ffmpeg/LICENSE.md": b"GPL"}
    for name, data in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    files = {name: hashlib.sha256(data).hexdigest() for name, data in content.items()}
    (folder / "manifest.json").write_text(json.dumps({"key": KEY, "version": "7.1.5", "files": files}))
    return folder


def sh(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run to its end, within five minutes: what blocks is an attack that succeeded."""
    options = {"env": {**os.environ, "LC_ALL": "C"}, **options}
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, timeout=300, **options
    )
