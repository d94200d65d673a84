"""Which packages on a machine's disk are Debian's, by Debian's own signature.

apt compares only the size of a package that is already downloaded. So a package that one machine leaves for others must
be verified first: Release (signed by Debian) ► hash of Packages ► hash of the package. All three come from the
machine's own disk, so none is trusted without this check.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path
from urllib.parse import quote

from gpuprep.sim.machinedisk import Disk

LISTS = "var/lib/apt/lists"
RELEASE_BYTES, INDEX_BYTES = 4 << 20, 256 << 20
SIGNATURE_SECONDS = 30.0
NOBODY = 65534
FIELDS = frozenset({b"Package", b"Version", b"Architecture", b"Size", b"SHA256"})
MOST_RELEASES = 16
Content = tuple[str, str]  # size in bytes and sha256, as a list of packages writes them


def verified(disk: Disk, keyring: Path, names: Iterable[str]) -> dict[str, set[Content]]:
    """File name, as apt gives it, ► size and sha256 of the packages of that name; only verified ones of `names`."""
    wanted = {name.partition("_")[0].encode() for name in names}
    contents: dict[str, set[Content]] = {}
    releases = [name for name in disk.files(LISTS) if name.endswith("_InRelease")]
    for name in releases[:MOST_RELEASES]:
        signed = _signed_text(disk.read(f"{LISTS}/{name}", RELEASE_BYTES) or b"", keyring)
        for path, digest in _indexes(signed):
            file = name.removesuffix("InRelease") + path.replace("/", "_")
            index = disk.read(f"{LISTS}/{file}", INDEX_BYTES) or b""
            if hashlib.sha256(index).hexdigest() == digest:
                for package, content in _packages(index, wanted):
                    contents.setdefault(package, set()).add(content)
    return contents


def _signed_text(release: bytes, keyring: Path) -> str:
    """The part of a clear-signed text that the signature covers; "" where it is not by a key of the keyring."""
    gpgv = shutil.which("gpgv")
    if gpgv is None or not release:
        return ""
    who: Mapping[str, object] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    try:
        done = subprocess.run(
            [gpgv, "--quiet", "--homedir", "/nonexistent", "--keyring", str(keyring), "--output", "-", "-"],
            input=release, capture_output=True, timeout=SIGNATURE_SECONDS, check=False, cwd="/", **who,
        )  # type: ignore[call-overload]  # fmt: skip
    except subprocess.TimeoutExpired:
        return ""
    return str(done.stdout.decode("utf-8", "replace")) if done.returncode == 0 else ""


def _indexes(release: str) -> Iterator[tuple[str, str]]:
    """(path, sha256) of the lists of packages that a Release file names."""
    section = ""
    for line in release.splitlines():
        if not line.startswith(" "):
            section = line.rstrip()
        elif section == "SHA256:":
            words = line.split()
            if len(words) == 3 and words[2].endswith("/Packages") and "/binary-" in words[2]:
                yield words[2], words[0]


def _packages(index: bytes, wanted: Set[bytes]) -> Iterator[tuple[str, Content]]:
    """(file name as apt gives it, size and sha256) of each package of a list that is one of `wanted`."""
    for stanza in index.split(b"\n\n"):
        if stanza.partition(b"\n")[0].removeprefix(b"Package: ") not in wanted:
            continue
        fields = {}
        for line in stanza.split(b"\n"):
            key, colon, value = line.partition(b": ")
            if colon and key in FIELDS:
                fields[key] = value.decode("ascii", "replace").strip()
        if len(fields) == len(FIELDS):
            version = quote(fields[b"Version"], safe="+~")  # apt writes an epoch's colon as %3a
            name = f"{fields[b'Package']}_{version.replace('%3A', '%3a')}_{fields[b'Architecture']}.deb"
            yield name, (fields[b"Size"], fields[b"SHA256"].lower())
