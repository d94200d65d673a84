"""Builds FFmpeg for a target and puts it into an archive with its licence, its manifest and a check."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from gpuprep import __version__, catalogue
from gpuprep.agent.video.licences import licence
from gpuprep.catalogue.agent import role_folder
from gpuprep.catalogue.roles import codec_libraries, ffmpeg_release_key
from gpuprep.codecbuild import buildroot, sources
from gpuprep.codecbuild.target import Target, targets
from gpuprep.desired.profile import CodecWish
from gpuprep.errors import GpuprepError, UsageError
from gpuprep.paths import cache_dir
from gpuprep.untrusted.limits import file_text

# ---------------------------------------------------------------- libraries

# The libraries that a build is linked with: their packages, and the files that go into the archive beside it.

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]
SYSTEM = "debian-12"  # of the build roots
TOOLS = ("patchelf",)
# Of glibc: every Linux has its own, and it must be that one.
OF_THE_SYSTEM = re.compile(r"(ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libresolv|libmvec|libnsl|libutil)\.so")
LINKED = re.compile(r"^\s*(\S+) => (/\S+) \(0x", re.MULTILINE)
MOST_FILES, MOST_BYTES = 200, 64 << 20


def packages(wanted: Sequence[str]) -> tuple[str, ...]:
    """Packages of the build root for these libraries of a profile; () for none."""
    if not wanted:
        return ()
    known = codec_libraries(catalogue.archives()[SYSTEM])
    return tuple(sorted({*TOOLS, *(package for name in wanted for package in known[name])}))


def gather(root: Path, target: Target, run: Run) -> dict[str, bytes]:
    """Names in the archive ► content: lib/*, and the licence of each library's package.

    The programs then look for their libraries in ../lib before the system's: a library of another version would do
    harm. `run` runs a command in the root. Raises GpuprepError where a library is not found.
    """
    programs = [f"/build/work/out/bin/{name}" for name in target.programs]
    _run(run, ["patchelf", "--force-rpath", "--set-rpath", "$ORIGIN/../lib", *programs])
    output = _run(run, ["ldd", *programs])
    if "not found" in output:
        raise GpuprepError(f"a library of the build is missing: {output.strip()[:500]}", "run it again")
    needed = {name: path for name, path in LINKED.findall(output) if not OF_THE_SYSTEM.match(name)}
    if len(needed) > MOST_FILES:
        raise GpuprepError(f"the build needs {len(needed)} libraries", "choose fewer codec.libraries")
    files: dict[str, bytes] = {}
    for name, path in sorted(needed.items()):
        files[f"lib/{name}"] = _inside(root, path).read_bytes()
    if sum(map(len, files.values())) > MOST_BYTES:
        raise GpuprepError(f"the libraries have more than {MOST_BYTES >> 20} MiB", "choose fewer codec.libraries")
    return files | _licences(root, needed.values())


def _run(run: Run, words: Sequence[str]) -> str:
    done = run(words)
    if done.returncode != 0:
        raise GpuprepError(f"{words[0]} failed: {(done.stderr or done.stdout).strip()[-300:]}", "run it again")
    return done.stdout


def _inside(root: Path, path: str) -> Path:
    """A file of the build root, links followed within it: its links are relative, or begin at its root."""
    at = root / path.lstrip("/")
    for _ in range(8):
        if not at.is_symlink():
            return at
        target = at.readlink()
        at = root / str(target).lstrip("/") if target.is_absolute() else at.parent / target
    raise GpuprepError(f"{path} of the build root is a chain of links", "remove the build root and run it again")


def _licences(root: Path, paths: Iterable[str]) -> dict[str, bytes]:
    """licences/PACKAGE of each package that one of the files is of, as Debian has it."""
    wanted = {alias for path in paths for alias in (path, f"/usr{path}", path.removeprefix("/usr"))}
    licences: dict[str, bytes] = {}
    for listed in sorted((root / "var/lib/dpkg/info").glob("*.list")):
        if wanted.isdisjoint(listed.read_text(encoding="utf-8", errors="replace").splitlines()):
            continue
        package = listed.stem.partition(":")[0]
        text = root / "usr/share/doc" / package / "copyright"
        if text.is_file() and not text.is_symlink():
            licences[f"licences/{package}"] = text.read_bytes()
    return licences


# ---------------------------------------------------------------- build

# ---------------------------------------------------------------- bundle

# The archive that people get: programs, licences, a manifest with the sha256 of each file, a check to run there.

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
    """The build ran as another user: links that it left are not followed."""
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


# ---------------------------------------------------------------- build

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
    root = buildroot.ensure(target, packages(codec.libraries), progress)
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
        beside = gather(root, target, partial(buildroot.run, root, scratch)) if codec.libraries else {}
        return write(scratch / "work/out", target, about, output, beside)


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
