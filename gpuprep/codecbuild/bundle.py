"""The archive that people get: programs, licences, a manifest with the sha256 of each file, a check to run there."""

from __future__ import annotations

import io
import json
import os
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from gpuprep.codecbuild import sources
from gpuprep.codecbuild.target import Target

CHECKS = {"windows": "check.ps1", "linux": "check.sh"}
EPOCH = (1980, 1, 1, 0, 0, 0)


def write(
    built: Path, target: Target, about: Mapping[str, Any], output: Path, beside: Mapping[str, bytes] | None = None
) -> Path:
    """Writes the archive of the folder `built` (bin/, share/doc/ffmpeg/) completely or not at all; returns its path.

    `beside`: further files by their names in the archive.
    """
    name = f"ffmpeg-{about['version']}-nvenc-{target.name}-x86_64"
    files: dict[str, bytes] = {f"bin/{program}": _regular(built / "bin" / program) for program in target.programs}
    for path in sorted((built / "share/doc/ffmpeg").iterdir()):
        files[f"licences/{path.name}"] = _regular(path)
    files.update(beside or {})
    check = (resources.files(__package__) / CHECKS[target.name]).read_text(encoding="utf-8")
    files[CHECKS[target.name]] = check.replace("@MINIMUM_DRIVER@", str(about["minimum_driver"])).encode()
    digests = {path: sources.sha256(content) for path, content in sorted(files.items())}
    files["manifest.json"] = (json.dumps({**about, "files": digests}, indent=1) + "\n").encode()
    output.mkdir(parents=True, exist_ok=True)
    final = output / f"{name}.{target.archive}"
    descriptor, name_of_part = tempfile.mkstemp(dir=output, prefix=f".{final.name}.")
    os.fchmod(descriptor, 0o644)
    os.close(descriptor)
    temporary = Path(name_of_part)
    try:
        (_zip if target.archive == "zip" else _tar)(temporary, name, files)
        temporary.rename(final)
    finally:
        temporary.unlink(missing_ok=True)
    return final


def _regular(path: Path) -> bytes:
    """The build ran as a stranger: what it left as a link is not followed."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        return file.read()


def _zip(path: Path, folder: str, files: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(f"{folder}/{name}", EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)


def _tar(path: Path, folder: str, files: Mapping[str, bytes]) -> None:
    with tarfile.open(path, "w:xz") as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mode = len(content), 0o755 if name.startswith("bin/") or name.endswith(".sh") else 0o644
            archive.addfile(entry, io.BytesIO(content))
