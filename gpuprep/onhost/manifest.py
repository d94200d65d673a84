"""manifest.json beside what gpuprep installed: what it is, and the sha256 of every file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Dict, Union

from gpuprep.onhost.run import read_text
from gpuprep.records import Missing

NAME = "manifest.json"
CHUNK = 1 << 20


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


def is_intact(folder: Path, manifest: Dict[str, Any]) -> Union[bool, Missing]:
    """Every file that the manifest names is there and has its sha256."""
    files = manifest.get("files")
    if not isinstance(files, dict) or not files:
        return Missing("unparsable", f"{folder / NAME} names no files")
    try:
        return all(sha256(folder / name) == digest for name, digest in files.items())
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return False
    except OSError as error:
        return Missing("no_permission", str(error))


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while True:
            chunk = file.read(CHUNK)
            if not chunk:
                return digest.hexdigest()
            digest.update(chunk)
