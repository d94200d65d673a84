"""A local mirror of the tarballs that FFmpeg is built from, for simulated VMs and for sites without internet access.

A mirror is a directory, or a URL prefix, that holds upstream's files under upstream's names:

    ffmpeg-7.1.5.tar.xz  ffmpeg-7.1.5.tar.xz.asc  nv-codec-headers-12.1.14.0.tar.gz

`ensure` fills one from Debian's source packages, through whatever Debian mirror this machine's own apt uses: it works
wherever apt works. FFmpeg's tarball and signature in Debian are upstream's, byte for byte. The headers' tarball is
Debian's own repack (an .xz of the same tag, under its true name); `nv-codec-headers-….tar.gz` is a link to it, because
tar looks at content and not at names, and its sha256 therefore differs from the one of upstream's release file.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuprep import paths
from gpuprep.errors import SimError
from gpuprep.sim.paths import Progress, locked

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
APT_HELPER = "/usr/lib/apt/apt-helper"
SUITES = ("trixie", "trixie-updates")
DOWNLOAD_SECONDS = 600.0


@dataclass(frozen=True)
class MirroredFile:
    """One file of Debian's source package `package`, what it is called in the mirror, and its pinned sha256."""

    package: str
    debian_name: str
    name: str
    sha256: str
    link: str = ""  # a second name in the mirror: what upstream calls it


FILES = (
    MirroredFile(
        "ffmpeg",
        "ffmpeg_7.1.5.orig.tar.xz",
        "ffmpeg-7.1.5.tar.xz",
        "de668509caf9e35e3cd162473441fdb29538c6d96ed080292b3cf9e6fc5d558f",
    ),
    MirroredFile(
        "ffmpeg",
        "ffmpeg_7.1.5.orig.tar.xz.asc",
        "ffmpeg-7.1.5.tar.xz.asc",
        "7ce4b9d56e3ef0cd4c3a9c0b2c8a034ac91e6c4c011c1f10b05a8aa7292fca35",
    ),
    MirroredFile(
        "nv-codec-headers",
        "nv-codec-headers_12.1.14.0.orig.tar.xz",
        "nv-codec-headers-12.1.14.0.tar.xz",
        "0ca1a0c85b149646fa6ce4d600584507fdccf5a23d58e668d8701e89cee0c3fb",
        link="nv-codec-headers-12.1.14.0.tar.gz",
    ),
)


def directory() -> Path:
    """Where the mirror is kept: $XDG_CACHE_HOME/gpuprep/mirror."""
    return paths.cache_dir() / "mirror"


def ensure(progress: Progress | None = None) -> dict[str, str]:
    """Fill the mirror where it is incomplete; returns the URL prefix of each source: "ffmpeg", "nv_codec_headers".

    Files already there with the right sha256 are not fetched again. Raises SimError where this machine has no Debian
    mirror, or the mirror does not have the pinned files.
    """
    target = directory()
    target.mkdir(parents=True, exist_ok=True)
    say = progress or (lambda _line: None)
    # Machines that start at once: one fills it, the others find the files.
    with locked(target / ".lock", lambda: say("waiting for another command, which fetches the sources")):
        return _filled(target, say)


def _filled(target: Path, progress: Progress) -> dict[str, str]:
    missing = [file for file in FILES if sha256_of(target / file.name) != file.sha256]
    if missing:
        with tempfile.TemporaryDirectory(prefix="gpuprep-mirror-") as scratch:
            _fetch(missing, target, Path(scratch), progress)
    for file in FILES:
        if file.link and not (target / file.link).is_symlink():
            (target / file.link).symlink_to(file.name)
    return {"ffmpeg": target.as_uri(), "nv_codec_headers": target.as_uri()}


def sha256_of(path: Path) -> str:
    """The file's sha256 in hex; "" where there is no such file."""
    if not path.is_file():
        return ""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def _fetch(missing: Sequence[MirroredFile], target: Path, scratch: Path, progress: Progress) -> None:
    archive = debian_archive(_run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]))
    options = _private_apt(scratch, archive)
    progress("reading Debian's list of source packages")
    _run(["apt-get", *options, "update"])
    for file in missing:
        progress(f"fetching {file.name}")
        listing = _run(["apt-cache", *options, "showsrc", "--only-source", file.package])
        uri = f"{archive}/{_pool_path(file, listing)}"
        part = scratch / file.name
        _run([APT_HELPER, "download-file", uri, str(part), f"SHA256:{file.sha256}"])
        digest = sha256_of(part)
        if digest != file.sha256:
            raise SimError(f"{uri} has the sha256 {digest}, expected {file.sha256}", "try another Debian mirror")
        shutil.copyfile(part, target / f".{file.name}.part")
        (target / f".{file.name}.part").replace(target / file.name)


def debian_archive(indextargets: str) -> str:
    """The Debian archive among apt's configured ones (one URI a line). Raises SimError where there is none."""
    uris = [line.strip().rstrip("/") for line in indextargets.splitlines()]
    archive = next((uri for uri in uris if uri.endswith("/debian")), None)
    if archive is None or not KEYRING.is_file():
        raise SimError("this machine's apt names no Debian archive to take FFmpeg's sources from", _BY_HAND)
    return archive


def _private_apt(scratch: Path, archive: str) -> list[str]:
    """apt options for a configuration of its own, so that this machine's apt is not touched and root is not needed."""
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (scratch / folder).mkdir(parents=True)
    lines = [f"deb-src [signed-by={KEYRING}] {archive} {suite} main\n" for suite in SUITES]
    (scratch / "sources.list").write_text("".join(lines), encoding="utf-8")
    settings = {
        "Dir::State": scratch / "state",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": scratch / "cache",
        "Dir::Etc::SourceList": scratch / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        # As root, apt downloads as the user _apt, who cannot write into a private folder.
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    return [part for key, value in settings.items() for part in ("-o", f"{key}={value}")]


def _pool_path(file: MirroredFile, showsrc: str) -> str:
    """Path of `file` below the archive's root, from the output of `apt-cache showsrc`."""
    for paragraph in showsrc.split("\n\n"):
        if f" {file.debian_name}\n" not in f"{paragraph}\n":
            continue
        for line in paragraph.splitlines():
            if line.startswith("Directory: "):
                return f"{line.removeprefix('Directory: ').strip()}/{file.debian_name}"
    raise SimError(f"Debian's source package {file.package} no longer has {file.debian_name}", _BY_HAND)


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    except FileNotFoundError as error:
        raise SimError(f"{command[0]} is not here: only a Debian controller can fill the mirror", _BY_HAND) from error
    except subprocess.TimeoutExpired as error:
        raise SimError(f"{command[0]} did not finish within {DOWNLOAD_SECONDS:.0f} seconds", _BY_HAND) from error
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-5:])
        raise SimError(f"`{shlex.join(command[:1] + command[-2:])}` failed with {done.returncode}:\n{last}", _BY_HAND)
    return done.stdout


_BY_HAND = "put upstream's tarballs into the mirror directory by hand, or let the playbook fetch them from upstream"
