"""What FFmpeg's build for another system makes of what was compiled: its archive, with the libraries beside it."""

from __future__ import annotations

import hashlib
import json
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuprep.codecbuild import build
from gpuprep.codecbuild.target import targets

ABOUT = {"version": "7.1.5", "minimum_driver": "531.61", "licence": "GPL version 2 or later"}


def compiled(folder: Path, system: str) -> Path:
    """What a build leaves."""
    for program in targets()[system].programs:
        path = folder / "bin" / program
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(program)
    (folder / "share/doc/ffmpeg").mkdir(parents=True)
    (folder / "share/doc/ffmpeg/LICENSE.md").write_text("licence")
    return folder


def archived(built: Path, system: str, output: Path, beside: Mapping[str, bytes] | None = None) -> Path:
    return build.write(built, targets()[system], ABOUT, output, beside)


def unpacked(path: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files of an archive without its one folder, and its manifest, whose digests are those of the files."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            found = {name: archive.read(name) for name in archive.namelist()}
    else:
        with tarfile.open(path) as tar:
            found = {member.name: read.read() for member in tar if (read := tar.extractfile(member)) is not None}
    assert {name.partition("/")[0] for name in found} == {path.name.removesuffix(".zip").removesuffix(".tar.xz")}
    files = {name.partition("/")[2]: content for name, content in found.items()}
    manifest = json.loads(files.pop("manifest.json"))
    assert manifest["files"] == {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return files, manifest


def parts(system: str, wished: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    """Those of a profile that this system can have."""
    return targets()[system].parts(wished)


def packages(wished: Sequence[str]) -> tuple[str, ...]:
    """What is installed where FFmpeg is compiled with these libraries."""
    return build.packages(wished)


def gathered(root: Path, system: str, run: build.Run) -> dict[str, bytes]:
    """The libraries and licences that go beside the programs. `run` runs a command in the build's root."""
    return build.gather(root, targets()[system], run)
