"""Builds FFmpeg for a target and puts it into an archive with its licence, its manifest and a check."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from gpuprep import __version__
from gpuprep.agent.video.licences import licence
from gpuprep.catalogue.agent import role_folder
from gpuprep.catalogue.roles import ffmpeg_release_key
from gpuprep.codecbuild import buildroot, bundle, libraries, sources
from gpuprep.codecbuild.target import Target, targets
from gpuprep.desired.profile import CodecWish
from gpuprep.errors import GpuprepError, UsageError
from gpuprep.paths import cache_dir
from gpuprep.untrusted.limits import file_text

PROGRAMS = ("build.sh", "parts.py", "release-key.asc", "sealing.py", "state.py")
Progress = Callable[[str], None]
Count = Callable[[str, int, int], None]  # of what, how many are done, of how many
COMPILED = re.compile(r"(?m)^(?:CC|X86ASM|AS|NVCC|HOSTCC)\t")
LINE_BYTES = 100


def build(
    codec: CodecWish,
    target_name: str,
    output: Path,
    mirrors: Mapping[str, str],
    progress: Progress,
    count: Count = lambda _unit, _done, _of: None,
) -> Path:
    """Builds and returns the archive, a new file in the folder `output`. Raises GpuprepError with what failed.

    `count` gets meanwhile how many files were compiled, of how many.
    """
    target = targets()[target_name]
    if codec.ffmpeg == "none":
        raise UsageError("the profile asks for no FFmpeg (codec.ffmpeg: none)", "choose another profile")
    if codec.npp:
        raise UsageError(
            "codec.npp: a build with libnpp may not be given to others; works: npp: false with scale_cuda",
            "change the profile",
        )
    if codec.libraries and not target.libraries:
        raise UsageError(
            f"codec.libraries ({', '.join(codec.libraries)}): none for {target.title}; works: --target linux, "
            "or a profile without codec.libraries and the parts that need them (base)",
            "change the profile or the target",
        )
    tarballs = sources.fetch(codec, mirrors, progress)
    root = buildroot.ensure(target, libraries.packages(codec.libraries), progress)
    with tempfile.TemporaryDirectory(prefix="gpuprep-codec-", dir=_scratch()) as folder:
        scratch = Path(folder)
        flags = _prepare(scratch, codec, target, tarballs)
        progress(f"building FFmpeg {codec.ffmpeg} for {target.title}; this takes minutes")
        words = ["/bin/bash", "/build/build.sh", ffmpeg_release_key()]
        done = buildroot.run(root, scratch, words, meanwhile=lambda: _count(scratch / "work", count))
        _check(scratch, done)
        compilers = _compilers(root, scratch, target)
        about = {
            "schema_version": 1,
            "name": "ffmpeg",
            "version": codec.ffmpeg,
            "headers_version": codec.headers,
            "target": target.name,
            "parts": target.parts(codec.parts),
            "configure": flags,
            "redistributable": True,
            "licence": licence(flags),
            "libraries": list(codec.libraries),
            "sources": {name: sources.digest(path) for name, path in tarballs.items() if not name.endswith(".asc")},
            "compilers": compilers,
            "minimum_driver": _minimum_driver(scratch / "work/headers/README", target),
            "built_by": f"gpuprep {__version__}",
        }
        beside = libraries.gather(root, target, partial(buildroot.run, root, scratch)) if codec.libraries else {}
        return bundle.write(scratch / "work/out", target, about, output, beside)


def _count(work: Path, count: Count) -> None:
    """How far the build is, by what it writes, as the role's progress.sh has it."""
    try:
        total = int(file_text(work / "total", LINE_BYTES, errors="replace", follow=False))
        done = len(COMPILED.findall(file_text(work / "make.log", errors="replace", follow=False)))
    except (OSError, ValueError):  # not there yet
        return
    if total > 0:
        count("files compiled", min(done, total), total)


def _scratch() -> Path:
    """On a disk: a build has a gigabyte of files, and /tmp may be memory."""
    folder = cache_dir() / "builds"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _prepare(scratch: Path, codec: CodecWish, target: Target, tarballs: Mapping[str, Path]) -> list[str]:
    """Writes what build.sh reads, by the role's own programs; returns configure's options."""
    scratch.chmod(0o755)
    programs = role_folder("gpu_codec") / "files/codec"
    for name in PROGRAMS:
        shutil.copyfile(programs / name, scratch / name)
    for name, path in tarballs.items():
        shutil.copyfile(path, scratch / name)
    sums = "".join(f"{sources.digest(scratch / name)}  {name}\n" for name in ("ffmpeg.tar", "headers.tar"))
    (scratch / "sources.sha256").write_text(sums)
    spec: dict[str, Any] = {
        "prefix": "/opt/gpuprep", "npp": False, "parts": target.parts(codec.parts), "ffmpeg": codec.ffmpeg,
        "headers": codec.headers, "key": "", "os": target.name, "arch": "x86_64", "libraries": list(codec.libraries),
    }  # fmt: skip
    (scratch / "spec.json").write_text(json.dumps(spec))
    done = subprocess.run(
        [sys.executable, "-IB", "-c", _PLAN, str(scratch)], capture_output=True, text=True, check=False, cwd=scratch
    )
    if done.returncode != 0:
        raise GpuprepError(done.stderr.strip().splitlines()[-1], "correct codec.parts of the profile")
    flags = [*(scratch / "flags").read_text().splitlines(), *target.flags]
    (scratch / "flags").write_text("".join(f"{flag}\n" for flag in flags))
    work = scratch / "work"
    work.mkdir()
    os.chown(work, buildroot.NOBODY, buildroot.NOBODY)
    return flags


# Isolated, with the role's programs alone on the path.
_PLAN = """
import runpy, sys
folder = sys.argv[1]
sys.path.insert(0, folder)
sys.argv = ["sealing.py", "plan", folder]
runpy.run_path(folder + "/sealing.py", run_name="__main__")
"""


def _check(scratch: Path, done: subprocess.CompletedProcess[str]) -> None:
    result = scratch / "work/result"
    result_text = result.read_text(errors="replace").strip()[:2000] if result.is_file() else ""
    if done.returncode == 0 and result_text == "ok":
        return
    log = scratch / "work/log"
    last = log.read_text(errors="replace").splitlines()[-5:] if log.is_file() else done.stderr.splitlines()[-5:]
    raise GpuprepError(f"FFmpeg was not built: {result_text or 'no result'}\n" + "\n".join(last), "run it again")


def _compilers(root: Path, scratch: Path, target: Target) -> dict[str, str]:
    versions = {}
    for name in ("clang", "nasm", target.compiler):
        output = buildroot.run(root, scratch, [name, "--version"]).stdout
        versions[name] = output.partition("\n")[0].strip()
    return versions


def _minimum_driver(readme: Path, target: Target) -> str:
    """What nv-codec-headers say of themselves: "Windows: 531.61 or newer"."""
    text = readme.read_text(errors="replace")[:20000] if readme.is_file() else ""
    match = re.search(rf"(?m)^{target.name.title()}: ([0-9.]+) or newer", text)
    return match[1] if match else ""
