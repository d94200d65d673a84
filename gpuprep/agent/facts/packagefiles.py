"""What is wrong with the driver's and the CUDA toolkit's packages: files that are gone, changed or closed to users, and
packages that they need and are not there. Changes nothing.

Without gpuprep's other modules and stdlib only, Python 3.9 or newer: the agent imports it, and so does the collection's
module package_files, by a link.

As `dpkg --verify` and `rpm -V` do, but a file is read only if it changed in any way (ctime) after its package was
installed: CUDA has gigabytes. ctime cannot be set by a program; a machine whose files were all copied is read whole.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import subprocess
import time
from pathlib import Path
from typing import Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

RED_HAT = Path("/etc/system-release")
DPKG = Path("/var/lib/dpkg")
# Names of packages ► whose they are.
TOOLKIT = re.compile(
    r"cuda|cudnn|libaccinj|libcu(blas|dart|dnn|fft|file|inj|pti|rand|solver|sparse)|libnpp"
    r"|libnv(blas|fatbin|jitlink|jpeg|ptxcompiler|rtc|toolsext|vm)|nvidia-(cuda|profiler|visual)"
)
DRIVER = re.compile(
    r"nvidia|libnvidia|libcuda|libnv|lib(egl|gl1|gles|glx)-nvidia|firmware-nvidia|glx-alternative-nvidia"
    r"|xserver-xorg-video-nvidia|kmod-nvidia|xorg-x11"
)
COMPILER = re.compile(r"(g\+\+|gcc|cpp|libgcc|libstdc\+\+)(-|$)")  # GNU's, with which nvcc works
# What nobody needs to run a program, and what small images leave out.
UNUSED = re.compile(r"/usr/(local/)?share/(doc|man|info|locale|lintian|bug|licenses)/|/usr/lib/\.build-id/")
MOST_NAMED = 20  # files of one package
SECONDS = 20.0  # for reading files; what was read by then is known the next time, where the agent remembers it
ROLE_SECONDS = 1800.0  # a role cannot go on without it, and remembers nothing: a copied machine is read whole
CHUNK = 1 << 20
# rpm's numbers: of digests, and of files that are meant to change, to be absent or not to be there.
ALGORITHMS = {"1": "md5", "8": "sha256", "9": "sha384", "10": "sha512"}
CONFIG, DOC, MISSING_OK, GHOST = 1, 2, 8, 64
RPM_FILES = (
    "[%{=NAME}\\t%{=INSTALLTIME}\\t%{=FILEDIGESTALGO}\\t%{FILEMODES}\\t%{FILEFLAGS}\\t%{FILESTATES}\\t%{FILEDIGESTS}\\t"
    "%{FILENAMES}\\n]"
)

DPKG_NEEDS = "${db:Status-Status}\\t${Package}\\t${Provides}\\t${Pre-Depends}, ${Depends}\\n"
ABSENT = "which it needs, is not installed"  # how the agent says that of a package
RPM_NEEDS = re.compile(
    r"(?m)^\s+([A-Za-z0-9][\w.+-]{0,199})(?: [<=>]+ \S+)? is needed by \(installed\) (\S{1,200})-[^-\s]+-[^-\s]+$",
    re.ASCII,
)

Digest = Callable[[Path, str], str]


class File(NamedTuple):
    path: str
    installed: float  # when its package was
    algorithm: str
    digest: str  # "": there is none to compare with, as of a link
    mode: int  # what everybody needs to be allowed, of 0o555


class TooSlow(Exception):
    """Reading the files took too long."""


def whose(package: str) -> str:
    """ "cuda" or "driver"; "" for a package of neither."""
    return "cuda" if TOOLKIT.match(package) and package != "libcuda1" else "driver" if DRIVER.match(package) else ""


def wrong(
    packages: Iterable[str], *, rpm: bool, digest: Digest, dpkg: Path = DPKG, seconds: Optional[float] = None
) -> Dict[str, List[str]]:
    """Package ─► what is wrong with its files: "/usr/bin/nvidia-smi is gone". Raises OSError, TooSlow."""
    names = sorted(packages)
    files = _of_rpm(names) if rpm else _of_dpkg(names, dpkg)
    found: Dict[str, List[str]] = {}
    seconds = SECONDS if seconds is None else seconds
    ends = time.monotonic() + seconds
    for package, file in files:
        said = _said(file, digest, ends)
        if said and len(found.setdefault(package, [])) < MOST_NAMED:
            found[package].append(f"{file.path} {said}")
    return found


def absent(names: Sequence[str], *, rpm: bool, dpkg: Path = DPKG) -> List[Tuple[str, str]]:
    """(package, what it needs and is not installed): somebody removed it by force. By names alone, not by versions."""
    if rpm:
        # Ends with 1 if a package is missing.
        said = _run(["rpm", "-V", "--nofiles", "--noscripts", *names]) if names else ""
        return sorted({(package, need) for need, package in RPM_NEEDS.findall(said or "")})
    text = _run(["dpkg-query", f"--admindir={dpkg}", "-W", "-f", DPKG_NEEDS])
    rows = [line.split("\t") for line in (text or "").splitlines() if line.startswith("installed\t")]
    there = {name for row in rows for name in _named(f"{row[1]}, {row[2]}")}
    needs = ((row[1], _named(need.replace("|", ","))) for row in rows if row[1] in names for need in row[3].split(","))
    return sorted({(name, either[0]) for name, either in needs if either and not there.intersection(either)})


def _named(relation: str) -> List[str]:
    """ "libc6 (>= 2.38), python3:any" ─► ["libc6", "python3"]."""
    return re.findall(r"(?:^|,)\s*([a-z0-9][a-z0-9+.-]*)", relation)


def md5_or_other(path: Path, algorithm: str) -> str:
    value = hashlib.new(algorithm)
    with open(path, "rb") as opened:
        for chunk in iter(lambda: opened.read(CHUNK), b""):
            value.update(chunk)
    return value.hexdigest()


def _said(file: File, digest: Digest, ends: float) -> str:
    try:
        status = os.lstat(file.path)
    except (FileNotFoundError, NotADirectoryError):
        return "is gone"
    if not stat.S_ISLNK(status.st_mode) and file.mode & ~status.st_mode:
        use = "run" if file.mode & 0o111 else "read"
        return f"has mode {stat.S_IMODE(status.st_mode):04o}: not everybody can {use} it"
    # rpm knows whole seconds.
    if not file.digest or status.st_ctime < int(file.installed) + 1:
        return ""
    if not Path(file.path).is_file():
        return "is no file any more"
    if time.monotonic() > ends:
        raise TooSlow("reading what changed took too long")
    return "" if digest(Path(file.path), file.algorithm) == file.digest else "was changed"


def _of_dpkg(names: Sequence[str], dpkg: Path) -> Iterator[Tuple[str, File]]:
    diverted = dict(_diversions(dpkg / "diversions"))
    overridden = {line.split(" ", 3)[-1] for line in _lines(str(dpkg / "statoverride"))}  # modes that somebody chose
    for name in names:
        for listing in [dpkg / f"info/{name}.list", *sorted((dpkg / "info").glob(f"{name}:*.list"))]:
            if not listing.exists():
                continue
            stem = str(listing)[: -len(".list")]
            digests = {}
            for line in _lines(f"{stem}.md5sums"):
                value, _, path = line.partition("  ")
                digests[f"/{path}"] = value
            settings = {line.split()[-1] for line in _lines(f"{stem}.conffiles") if line.split()}
            paths = _lines(str(listing))
            folders = {path.rpartition("/")[0] for path in paths}
            installed = listing.stat().st_mtime
            for path in paths:
                if path in folders or path in settings or path == "/." or UNUSED.match(path):
                    continue
                target, by = diverted.get(path, (path, name))
                place = path if by == name else target
                mode = 0 if path in overridden else _mode(path, place)
                yield name, File(place, installed, "md5", digests.get(path, ""), mode)


def _mode(path: str, place: str) -> int:
    """What everybody needs to be allowed; dpkg keeps no modes. Beside nvcc lies nvcc.profile, which nobody runs."""
    if not path.rpartition("/")[0].endswith("bin"):
        return 0o444 if path.startswith("/usr/") else 0
    try:
        with open(place, "rb") as opened:
            return 0o555 if opened.read(4).startswith((b"\x7fELF", b"#!")) else 0o444
    except OSError:  # gone, or closed to this user
        return 0o555


def _diversions(path: Path) -> Iterator[Tuple[str, Tuple[str, str]]]:
    """From ─► (to, the package that diverts it and keeps its own file there), three lines each."""
    lines = _lines(str(path))
    for number in range(0, len(lines) - 2, 3):
        yield lines[number], (lines[number + 1], lines[number + 2])


def _lines(path: str) -> List[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return []


def _of_rpm(names: Sequence[str]) -> Iterator[Tuple[str, File]]:
    if not names:
        return
    done = _run(["rpm", "-q", "--qf", RPM_FILES, *names])
    for line in (done or "").splitlines():
        fields = line.split("\t")
        if len(fields) != 8 or not (fields[1] + fields[3] + fields[4]).isdigit():
            continue
        name, installed, algorithm, mode, flags, state, value, path = fields
        is_folder = int(mode) & 0o170000 == 0o040000
        if is_folder or int(flags) & (CONFIG | DOC | MISSING_OK | GHOST) or state not in ("0", "(none)", ""):
            continue
        if not UNUSED.match(path):
            needed = int(mode) & 0o555
            yield name, File(path, float(installed), ALGORITHMS.get(algorithm, "md5"), value.strip(), needed)


def _run(command: Sequence[str]) -> Optional[str]:
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=120, check=False, env=environment
    )
    return done.stdout


def broken_and_absent(subject: str) -> Dict[str, List[str]]:
    """{"broken": packages, "absent": packages} of the driver, of cuda or of the compiler."""
    rpm = RED_HAT.exists()
    everything = _run(["rpm", "-qa", "--qf", "%{NAME}\\n"] if rpm else ["dpkg-query", "-W", "-f", "${Package}\\n"])
    names = set((everything or "").splitlines())
    compiler = subject == "compiler"
    mine = {name for name in names if (COMPILER.match(name) if compiler else whose(name) == subject)}
    # apt refuses to work while any of them is missing, also one of another role.
    asked = mine if rpm else mine | set(filter(whose, names))
    needed = sorted({need for _, need in absent(sorted(asked), rpm=rpm)})
    return {"broken": list(wrong(mine, rpm=rpm, digest=md5_or_other, seconds=ROLE_SECONDS)), "absent": needed}
