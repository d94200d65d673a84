"""Prints the state of the codec stack on this host as JSON: `state.py SPEC`. Changes nothing.

SPEC is JSON: os, arch, ffmpeg, headers, npp, parts, key, prefix, unit. Standard library only, Python 3.9 or newer.
The role runs this file through stdin, so that asking leaves nothing behind; the other files of this folder import it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import Any

Spec = dict[str, Any]

PATH_LINKS = Path("/usr/local/bin")
PKG_CONFIG_LINK = Path("/usr/local/lib/pkgconfig/ffnvcodec.pc")
PROGRAMS = ("ffmpeg", "ffprobe")
MANIFEST_BYTES = 1 << 20
MANIFEST_FILES = 4096
FILE_NAME = re.compile(r"[A-Za-z0-9._+-]+(?:/[A-Za-z0-9._+-]+)*")
SHA256 = re.compile(r"[0-9a-f]{64}")
BUILD_NAME = re.compile(r"[0-9][\w.]*-[0-9a-f]{12}")


def build_folder(spec: Spec) -> Path:
    return Path(spec["prefix"]) / "ffmpeg" / f"{spec['ffmpeg']}-{spec['key']}"


def headers_folder(spec: Spec) -> Path:
    return Path(spec["prefix"]) / "nv-codec-headers" / str(spec["headers"])


def wanted_links(spec: Spec) -> dict[Path, str]:
    """Every link of a finished host and where it points."""
    current = Path(spec["prefix"]) / "ffmpeg" / "current"
    links = {current: build_folder(spec).name}
    links.update({PATH_LINKS / name: str(current / "bin" / name) for name in PROGRAMS})
    return links


def sha256(path: Path) -> str:
    """Of a plain file; a link is not followed. Raises OSError."""
    digest = hashlib.sha256()
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def manifest_of(folder: Path) -> dict[str, Any]:
    """Raises OSError and ValueError: a manifest that is a link, a pipe, too large or not of the known form is none."""
    descriptor = os.open(folder / "manifest.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is no plain file")
        text = stream.read(MANIFEST_BYTES + 1)
    if len(text) > MANIFEST_BYTES:
        raise ValueError(f"it has more than {MANIFEST_BYTES} bytes")
    try:
        manifest = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    files = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(files, dict):
        raise ValueError("it has no files")
    if len(files) > MANIFEST_FILES:
        raise ValueError(f"it names more than {MANIFEST_FILES} files")
    for name, digest in files.items():
        if not FILE_NAME.fullmatch(name) or len(name) > 255 or ".." in name.split("/") or "." in name.split("/"):
            raise ValueError(f"{name!a:.80} is no name of a file below it")
        if not isinstance(digest, str) or not SHA256.fullmatch(digest):
            raise ValueError(f"{name} has no sha256")
    return dict(manifest)


def unlisted(folder: Path, named: Collection[str]) -> str:
    """The first thing in `folder` that is not a plain file of `named` or a folder of one; "" where there is none."""
    folders = {f"{parent}/" for name in named for parent in PurePosixPath(name).parents}
    waiting = [""]
    while waiting:
        here = waiting.pop()
        with os.scandir(folder / here) as entries:
            for entry in entries:
                name = here + entry.name
                if entry.is_dir(follow_symlinks=False) and f"{name}/" in folders:
                    waiting.append(f"{name}/")
                elif name not in named or not entry.is_file(follow_symlinks=False):
                    return name
    return ""


def flaw(folder: Path, expected: dict[str, Any]) -> str:
    """Why `folder` is not the intact thing whose manifest says `expected`, and nothing else; "" where it is."""
    if folder.is_symlink() or not folder.is_dir():
        return f"{folder} does not exist"
    try:
        manifest = manifest_of(folder)
    except (OSError, ValueError) as error:
        return f"{folder}/manifest.json cannot be read: {error}"
    for key, value in expected.items():
        if manifest.get(key) != value:
            return f"{folder}/manifest.json says {key} {manifest.get(key)!a:.80}, expected {value!r}"
    recorded = manifest["files"]
    if not recorded:
        return f"{folder}/manifest.json names no files"
    try:
        other = unlisted(folder, {*recorded, "manifest.json"})
        if other:
            return f"{folder} holds {other!a:.200}, which is no plain file that its manifest names"
        for name, digest in recorded.items():
            path = folder / name
            if not path.is_file():
                return f"{path} is missing"
            found = sha256(path)
            if found != digest:
                return f"{path} has the sha256 {found}, its manifest says {digest}"
    except OSError as error:
        return f"{folder} cannot be read: {error}"
    return ""


def build_flaw(spec: Spec, folder: Path) -> str:
    return flaw(folder, {"key": spec["key"], "version": str(spec["ffmpeg"])})


def state(spec: Spec) -> dict[str, Any]:
    """`why` of each part is "" where it is as wanted."""
    links = [str(link) for link, target in wanted_links(spec).items() if not points(link, target)]
    return {
        "headers": headers_state(spec),
        "ffmpeg": build_flaw(spec, build_folder(spec)),
        "links": f"not linked to this build: {', '.join(links)}" if links else "",
        "running": running_build(spec),
        "old": [str(path) for path in old_builds(spec)],
    }


def points(link: Path, target: str) -> bool:
    return link.is_symlink() and str(link.readlink()) == target


def headers_state(spec: Spec) -> str:
    why = flaw(headers_folder(spec), {"version": str(spec["headers"])})
    if why:
        return why
    if not points(PKG_CONFIG_LINK, str(headers_folder(spec) / "lib/pkgconfig/ffnvcodec.pc")):
        return f"{PKG_CONFIG_LINK} does not point to version {spec['headers']}"
    if shutil.which("pkg-config") is None:
        return "pkg-config is not installed"
    done = subprocess.run(["pkg-config", "--modversion", "ffnvcodec"], capture_output=True, text=True, check=False)
    found = done.stdout.strip() or done.stderr.strip()
    return "" if found == str(spec["headers"]) else f"pkg-config finds ffnvcodec {found}, expected {spec['headers']}"


def running_build(spec: Spec) -> str:
    """The key of the build at work, from the unit's description; "" where none is."""
    show = ["systemctl", "show", "--property=ActiveState,Description", spec["unit"]]
    lines = subprocess.run(show, capture_output=True, text=True, check=False).stdout.splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    if found.get("ActiveState") not in ("active", "activating", "deactivating", "reloading"):
        return ""
    return found.get("Description", "").rpartition(" ")[2]


def old_builds(spec: Spec) -> list[Path]:
    """Builds to prune: all but the wanted one and the newest of the others."""
    folder = build_folder(spec).parent
    if not folder.is_dir():
        return []
    others = [
        path
        for path in folder.iterdir()
        if BUILD_NAME.fullmatch(path.name) and path.is_dir() and not path.is_symlink() and path != build_folder(spec)
    ]
    return sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)[1:]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(state(json.loads(sys.argv[1]))) + "\n")
