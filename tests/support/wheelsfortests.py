"""Wheels made by hand, an index of them as a folder, and what their hashes are."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path


def wheel(folder: Path, name: str, version: str, *, says: str, build: str = "", requires: str = "") -> Path:
    """A wheel of one module, `name`, whose only content is SAYS = `says`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}{'-' + build if build else ''}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        f"{name}.py": f"SAYS = {says!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in files.items():
            archive.writestr(file, content)
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def index(folder: Path, *files: Path) -> str:
    """An index of these files as pip reads it, without hashes, as an attacker would leave them out; its address."""
    for file in files:
        name = file.name.split("-")[0].replace("_", "-")
        page = folder / name / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        there = page.read_text() if page.exists() else "<!DOCTYPE html><html><body>\n"
        page.write_text(there + f'<a href="{file.as_uri()}">{file.name}</a>\n')
    return folder.as_uri()
