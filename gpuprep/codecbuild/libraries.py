"""The libraries that a build is linked with: their packages, and the files that go into the archive beside it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from gpuprep import catalogue
from gpuprep.catalogue.roles import codec_libraries
from gpuprep.codecbuild.target import Target
from gpuprep.errors import GpuprepError

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
