"""A signed archive of packages, as Debian's is."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import gpghome
import pytest

from gpuprep.sim import debs, prerequisites, signedpackages

needs_gpg = pytest.mark.skipif(
    not (shutil.which("gpg") and shutil.which("gpgv")), reason="signs with gpg, checks with gpgv"
)


PACKAGE, NAME = b"!<arch>\nas Debian made it", "hello_1%3a2.10-5_amd64.deb"


SUITE = "deb.debian.org_debian_dists_trixie_"


INDEX = SUITE + "main_binary-amd64_Packages"


class Archive:
    """A machine's disk after apt has downloaded a package from an archive that `key` signs."""

    def __init__(self, keys: Path, root: Path) -> None:
        self.keys, self.root = keys, root
        self.lists, self.archives = root / signedpackages.LISTS, root / debs.ARCHIVES
        self.lists.mkdir(parents=True)
        self.archives.mkdir(parents=True)
        self.package(PACKAGE)
        self.index(PACKAGE)
        self.release("archive")

    def package(self, content: bytes) -> None:
        (self.archives / NAME).write_bytes(content)

    def index(self, package: bytes) -> None:
        (self.lists / INDEX).write_text(
            "Package: other\nVersion: 1\nArchitecture: all\nSize: 1\nSHA256: 00\n\n"
            f"Package: hello\nVersion: 1:2.10-5\nArchitecture: amd64\nFilename: pool/main/h/{NAME}\n"
            f"Size: {len(package)}\nSHA256: {hashlib.sha256(package).hexdigest()}\n\n"
        )

    def text(self) -> str:
        content = (self.lists / INDEX).read_bytes()
        row = f" {hashlib.sha256(content).hexdigest()} {len(content)} main/binary-amd64/Packages\n"
        return f"Origin: Debian\nSuite: trixie\nMD5Sum:\n 00 1 main/binary-amd64/Packages\nSHA256:\n{row}"

    def harvest(self) -> int:
        """The computer takes what Debian has signed, for other machines; how many packages."""
        return debs.harvest("debian13", self.root)

    def release(self, signer: str) -> None:
        signed = gpghome.gpg(self.keys, "--clearsign", "--local-user", signer, stdin=self.text().encode())
        (self.lists / f"{SUITE}InRelease").write_bytes(signed)


def given_to(root: Path) -> int:
    """How many packages another machine gets."""
    return debs.seed("debian13", root)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A gpg home with the keys `archive`, which the computer trusts (keyring.gpg), and `machine`, which it does not."""
    public = tmp_path_factory.getbasetemp() / f"keyring-{os.getpid()}.gpg"
    with gpghome.made(tmp_path_factory, "archive", "machine") as home:
        public.write_bytes(gpghome.gpg(home, "--export", "archive"))
        (home / "keyring").symlink_to(public)
        yield home


@pytest.fixture
def archive(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Archive]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # gpgv reads it as a user that may not enter pytest's folder
    keyring = Path("/dev/shm") / f"gpuprep-test-{os.getpid()}.gpg"
    keyring.write_bytes((keys / "keyring").read_bytes())
    keyring.chmod(0o644)
    monkeypatch.setattr(prerequisites, "KEYRINGS", (str(keyring),))
    yield Archive(keys, tmp_path / "root")
    keyring.unlink()
