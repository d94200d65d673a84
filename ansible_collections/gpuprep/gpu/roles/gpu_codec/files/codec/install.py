"""Puts verified things into the prefix, whole or not at all. As root.

    install.py headers SPEC TARBALL   nv-codec-headers, and the link that pkg-config finds
    install.py built SPEC SCRATCH     SCRATCH/work/out, just built here, as <prefix>/ffmpeg/<version>-<key>
    install.py build SPEC ARCHIVE     the same of a finished build, a .tar.xz
    install.py switch SPEC            `current` and the links on the PATH; prunes builds older than the previous one
    install.py pack SPEC FILE         the installed build as FILE (.tar.xz)

SPEC as in state.py. Prints JSON. Exit code 1: one line on stderr says why; 3: what was handed over is not what its
manifest says.
"""

from __future__ import annotations

import json
import lzma
import os
import pwd
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from copying import copy_out, unpack
from parts import Refused, check_parts
from sealing import about, write_manifest
from state import (
    PKG_CONFIG_LINK,
    Spec,
    build_flaw,
    build_folder,
    headers_folder,
    old_builds,
    points,
    sha256,
    wanted_links,
)


class NotAsSealed(Exception):
    """A build that is not what its manifest says."""


def headers(spec: Spec, tarball: Path) -> dict[str, Any]:
    """The headers need no compiler: they are copied, and the version is written into their pkg-config file."""
    target = headers_folder(spec)
    new = fresh_folder(target)
    include, pkg_config = new / "include" / "ffnvcodec", new / "lib" / "pkgconfig"
    include.mkdir(parents=True)
    pkg_config.mkdir(parents=True)
    with tarfile.open(tarball) as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isfile() else None
            name = Path(member.name).name
            if stream and member.name.endswith(f"/include/ffnvcodec/{name}") and name.endswith(".h"):
                (include / name).write_bytes(stream.read())
            elif stream and name == "ffnvcodec.pc.in":
                text = stream.read().decode().replace("@@PREFIX@@", str(target))
                (pkg_config / "ffnvcodec.pc").write_text(text, encoding="utf-8")
    if not (pkg_config / "ffnvcodec.pc").is_file() or not (include / "nvEncodeAPI.h").is_file():
        raise Refused(
            f"{tarball} holds no nv-codec-headers: no include/ffnvcodec/nvEncodeAPI.h or ffnvcodec.pc.in in it"
        )
    found = (pkg_config / "ffnvcodec.pc").read_text(encoding="utf-8")
    if f"\nVersion: {spec['headers']}\n" not in found:
        raise Refused(f"{tarball} holds another version of nv-codec-headers than {spec['headers']}")
    write_manifest(new, {"name": "nv-codec-headers", "version": str(spec["headers"]), "source": sha256(tarball)})
    put_in_place(new, target)
    PKG_CONFIG_LINK.parent.mkdir(parents=True, exist_ok=True)
    link(PKG_CONFIG_LINK, str(target / "lib/pkgconfig/ffnvcodec.pc"))
    return {"installed": str(target)}


def built(spec: Spec, scratch: Path) -> dict[str, Any]:
    """The scratch folder is root's; its folder work is the build user's, and nothing in it is trusted."""
    account = pwd.getpwnam(spec["user"])
    end_build(spec, account.pw_uid)
    new = fresh_folder(build_folder(spec))
    try:
        ended = copy_out(scratch, ("work", "out"), new, account.pw_uid)
        seconds = max(0.0, round(ended - (scratch / "spec.json").stat().st_mtime, 1))
        write_manifest(new, about(spec, scratch, seconds))
        checked(spec, new)
    except Refused:
        shutil.rmtree(new)
        raise
    put_in_place(new, build_folder(spec))
    # Only a host that compiled has this; one that was given a finished build does not.
    compiled = scratch.parent / "compiled.json"
    written = compiled.with_name(f".compiled.json.{os.getpid()}")
    written.write_text(json.dumps({"key": spec["key"], "seconds": seconds}) + "\n", encoding="utf-8")
    written.replace(compiled)
    return {"installed": str(build_folder(spec))}


def end_build(spec: Spec, user: int) -> None:
    """Ends all processes of the build user, so that no file changes while it is copied."""
    # Waits until the unit has ended, with every process in it. A unit that has gone already is no failure.
    subprocess.run(["systemctl", "stop", f"{spec['unit']}.service"], capture_output=True, check=False)
    left = [process.name for process in Path("/proc").glob("[0-9]*") if owner_of(process) == user]
    if left:
        raise Refused(f"{spec['user']} still runs processes: {', '.join(left[:10])}; end them, then run this again")


def owner_of(process: Path) -> int:
    """By hand: the host's own Python, which runs this, has no psutil."""
    try:
        return process.stat().st_uid
    except OSError:  # it has ended meanwhile
        return -1


def build(spec: Spec, archive: Path) -> dict[str, Any]:
    new = fresh_folder(build_folder(spec))
    try:
        unpack(archive, new)
        checked(spec, new)
    except (Refused, EOFError, tarfile.TarError, lzma.LZMAError, ValueError, RecursionError) as error:
        shutil.rmtree(new)
        raise NotAsSealed(str(error).replace(str(new), str(archive))) from error
    put_in_place(new, build_folder(spec))
    return {"installed": str(build_folder(spec))}


def checked(spec: Spec, new: Path) -> None:
    why = build_flaw(spec, new)
    if why:
        raise Refused(why)
    check_parts(spec, new, user="nobody")


def fresh_folder(target: Path) -> Path:
    """An empty folder beside `target`, on the same file system; leftovers of killed runs go."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for leftover in target.parent.glob(".new-*"):
        shutil.rmtree(leftover)
    folder = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
    folder.chmod(0o755)
    return folder


def put_in_place(new: Path, target: Path) -> None:
    for path in [new, *new.rglob("*")]:
        os.chown(path, 0, 0)
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    os.sync()
    if target.exists():
        broken = target.with_name(f".new-broken-{os.getpid()}")
        target.rename(broken)
        new.rename(target)
        shutil.rmtree(broken)
    else:
        new.rename(target)


def link(path: Path, target: str) -> None:
    """Make or move a link in one step: there is no moment without it."""
    if path.exists() and not path.is_symlink():
        kept = path.with_name(f"{path.name}.before-gpuprep")
        path.rename(kept)
        sys.stderr.write(f"kept {path} as {kept}\n")
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(path)


def switch(spec: Spec) -> dict[str, Any]:
    why = build_flaw(spec, build_folder(spec))
    if why:
        raise Refused(why)
    for path, target in wanted_links(spec).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not points(path, target):
            link(path, target)
    removed = old_builds(spec)
    for path in removed:
        shutil.rmtree(path)
    return {"removed": [str(path) for path in removed]}


def pack(spec: Spec, archive: Path) -> dict[str, Any]:
    folder = build_folder(spec)
    with tarfile.open(archive, "w:xz", preset=4) as tar:
        for path in sorted(folder.rglob("*")):
            tar.add(path, arcname=str(path.relative_to(folder)), recursive=False, filter=anonymous)
    return {"sha256": sha256(archive), "bytes": archive.stat().st_size}


def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without owner and time, so that the same build gives the same archive."""
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mtime = 0
    return member


def main(command: str, spec: Spec, paths: list[Path]) -> dict[str, Any]:
    if command == "headers":
        return headers(spec, paths[0])
    if command == "built":
        return built(spec, paths[0])
    if command == "build":
        return build(spec, paths[0])
    if command == "pack":
        return pack(spec, paths[0])
    return switch(spec)


if __name__ == "__main__":
    try:
        sys.stdout.write(
            json.dumps(main(sys.argv[1], json.loads(sys.argv[2]), [Path(path) for path in sys.argv[3:]])) + "\n"
        )
    except (Refused, OSError) as failure:
        sys.exit(str(failure))
    except NotAsSealed as refusal:
        sys.stderr.write(f"{refusal}\n")
        sys.exit(3)
