"""manifest.json beside what gpuprep installed: what it is, and the sha256 of every file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, Union

from gpuprep.onhost.digests import sha256
from gpuprep.onhost.run import read_text
from gpuprep.records import Missing

NAME = "manifest.json"


def read_manifest(folder: Path) -> Union[Dict[str, Any], Missing, None]:
    """The manifest of `folder`; None where it has none."""
    path = folder / NAME
    text = read_text(path)
    if not isinstance(text, str):
        return text
    try:
        document = json.loads(text)
    except ValueError as error:
        return Missing("unparsable", f"{path}: {error}")
    return document if isinstance(document, dict) else Missing("unparsable", f"{path} holds no object")


def is_intact(folder: Path, manifest: Dict[str, Any], digest: Callable[[Path], str] = sha256) -> Union[bool, Missing]:
    """Every file that the manifest names is there and has its sha256 (and its size, where the manifest has that)."""
    files = manifest.get("files")
    if not isinstance(files, dict) or not files:
        return Missing("unparsable", f"{folder / NAME} names no files")
    try:
        return all(_is_as_named(folder / name, entry, digest) for name, entry in files.items())
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return False
    except OSError as error:
        return Missing("no_permission", str(error))


def _is_as_named(path: Path, entry: object, digest: Callable[[Path], str]) -> bool:
    if not isinstance(entry, dict):
        return digest(path) == entry
    return path.stat().st_size == entry.get("size") and digest(path) == entry.get("sha256")
