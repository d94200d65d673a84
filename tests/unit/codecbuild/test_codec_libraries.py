"""The libraries that go into an archive beside FFmpeg: which packages, which files, whose licences."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from builders import load

from gpuprep import errors
from gpuprep.codecbuild import build, bundle, libraries, target

LDD = """\
/build/work/out/bin/ffmpeg:
\tlinux-vdso.so.1 (0x00007ffd)
\tlibx264.so.164 => /lib/x86_64-linux-gnu/libx264.so.164 (0x00007f1)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f2)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f3)
"""


def test_packages_are_those_of_the_role_and_the_tool_that_sets_the_path() -> None:
    assert libraries.packages(()) == ()
    assert libraries.packages(("x264", "gnutls")) == ("ca-certificates", "libgnutls28-dev", "libx264-dev", "patchelf")


def test_windows_has_no_libraries_and_says_what_works(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="works: --target linux"):
        build.build(load("video").codec, "windows", tmp_path, {}, lambda _: None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A build root with one library, reached through links as in Debian, and its package."""
    made = tmp_path / "root"
    folder = made / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True)
    (made / "lib").symlink_to("usr/lib")
    (folder / "libx264.so.164").symlink_to("libx264.so.164.0")
    (folder / "libx264.so.164.0").write_bytes(b"\x7fELF x264")
    listed = made / "var/lib/dpkg/info/libx264-164:amd64.list"
    listed.parent.mkdir(parents=True)
    listed.write_text("/usr/lib/x86_64-linux-gnu/libx264.so.164\n/usr/share/doc/libx264-164/copyright\n")
    words = made / "usr/share/doc/libx264-164/copyright"
    words.parent.mkdir(parents=True)
    words.write_text("GPL-2+\n")
    return made


class Root:
    """What runs commands in the build root: no root and no container here, only the answers."""

    def __init__(self, said: str, code: int = 0) -> None:
        self.said, self.code = said, code
        self.ran: list[list[str]] = []

    def __call__(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        self.ran.append(list(words))
        said = self.said if words[0] == "ldd" else ""
        return subprocess.CompletedProcess(list(words), self.code, said, "no such file")


def test_libraries_and_their_licences_but_not_glibcs(root: Path) -> None:
    inside = Root(LDD)
    found = libraries.gather(root, target.targets()["linux"], inside)
    assert found == {"lib/libx264.so.164": b"\x7fELF x264", "licences/libx264-164": b"GPL-2+\n"}
    assert inside.ran[0][:4] == ["patchelf", "--force-rpath", "--set-rpath", "$ORIGIN/../lib"]


@pytest.mark.parametrize(
    ("said", "code", "why"),
    [("\tlibx264.so.164 => not found\n", 0, "missing"), (LDD, 1, "patchelf failed: no such file")],
)
def test_what_is_not_there_ends_the_build(root: Path, said: str, code: int, why: str) -> None:
    with pytest.raises(errors.GpuprepError, match=why):
        libraries.gather(root, target.targets()["linux"], Root(said, code))


def test_the_tarball_holds_them_and_names_them_in_its_manifest(tmp_path: Path) -> None:
    import json
    import tarfile

    built = tmp_path / "out"
    for path in ("bin/ffmpeg", "bin/ffprobe", "share/doc/ffmpeg/COPYING.GPLv2"):
        (built / path).parent.mkdir(parents=True, exist_ok=True)
        (built / path).write_text(path)
    about = {"version": "7.1.5", "minimum_driver": "530.41.03", "licence": "GPL version 2 or later"}
    beside = {"lib/libx264.so.164": b"x264", "licences/libx264-164": b"GPL"}
    archive = bundle.write(built, target.targets()["linux"], about, tmp_path, beside)
    with tarfile.open(archive) as tar:
        names = {os.path.relpath(name, "ffmpeg-7.1.5-nvenc-linux-x86_64") for name in tar.getnames()}
        member = tar.extractfile("ffmpeg-7.1.5-nvenc-linux-x86_64/manifest.json")
        assert member is not None
        manifest = json.load(member)
    assert {"lib/libx264.so.164", "licences/libx264-164"} <= names
    assert set(beside) <= set(manifest["files"])
