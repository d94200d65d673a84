"""build.sh of the role gpu_codec, run as it is, on a small stand-in of FFmpeg's sources that the tests sign.

What FFmpeg's own configure says of names and of parts is in tests/machines/test_codec.py, of `make test-all`.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import gpghome
import pytest
from hostilebuilds import CODEC

# As FFmpeg's: it warns of names that it does not know, and leaves out what needs a library.
CONFIGURE = """#!/bin/sh
for word; do
  case $word in
    --enable-encoder=h264_nvenk) echo "WARNING: Option $word did not match anything" ;;
    --enable-libx264) echo "ERROR: libx264 not found"; exit 1 ;;
  esac
done
printf '#define CONFIG_H264_NVENC_ENCODER 1\\n#define CONFIG_LIBX264_ENCODER 0\\n' >config_components.h
echo '#define CONFIG_CUDA 1' >config.h
"""
MAKEFILE = """\
all: ffmpeg
ffmpeg: source.c
\tprintf "CC\\t%s\\n" source.c; cp source.c ffmpeg
install-progs: ffmpeg
\tmkdir -p $(DESTDIR)/opt/build/bin; cp ffmpeg $(DESTDIR)/opt/build/bin/
"""
FFMPEG = {
    "configure": CONFIGURE,
    "Makefile": MAKEFILE,
    "source.c": "what is built",
    "LICENSE.md": "the licence",
    "COPYING.GPLv2": "GPL",
}
HEADERS = {"Makefile": "install:\n\tmkdir -p $(PREFIX)\n"}


def gpg(home: Path, *words: str | Path) -> str:
    return gpghome.gpg(home, *words).decode()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with gpghome.made(tmp_path_factory, "ffmpeg", "stranger") as home:
        yield home


def fingerprint(keys: Path, name: str) -> str:
    rows = gpg(keys, "--with-colons", "--list-keys", name).splitlines()
    return next(row.split(":")[9] for row in rows if row.startswith("fpr:"))


def pack(path: Path, name: str, files: dict[str, str]) -> None:
    with tarfile.open(path, "w") as tar:
        for file, text in files.items():
            info = tarfile.TarInfo(f"{name}/{file}")
            info.size, info.mode = len(text.encode()), 0o755
            tar.addfile(info, io.BytesIO(text.encode()))


@dataclass(frozen=True)
class Given:
    """The folder that the role prepares for a build (tasks/start.yml)."""

    folder: Path
    keys: Path

    def sign(self, name: str = "ffmpeg") -> None:
        tarball = self.folder / "ffmpeg.tar"
        gpg(self.keys, "--local-user", name, "--armor", "--detach-sign", "-o", f"{tarball}.asc", tarball)

    def seal(self) -> None:
        names = ("ffmpeg.tar", "headers.tar")
        rows = [f"{hashlib.sha256((self.folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
        (self.folder / "sources.sha256").write_text("".join(rows))

    def change(self, file: str, text: str) -> None:
        """The same sources with another content of one file, sealed and signed again."""
        pack(self.folder / "ffmpeg.tar", "ffmpeg", {**FFMPEG, file: text})
        self.sign()
        self.seal()

    def build(self) -> str:
        """Run build.sh to its end; what it wrote as its result."""
        work = self.folder / "work"
        work.mkdir()
        command = ["bash", str(CODEC / "build.sh"), fingerprint(self.keys, "ffmpeg")]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
        result = (work / "result").read_text().strip()
        assert (done.returncode == 0) == (result == "ok"), (work / "log").read_text()
        return result


@pytest.fixture
def given(keys: Path, tmp_path: Path) -> Given:
    given = Given(tmp_path, keys)
    pack(tmp_path / "headers.tar", "headers", HEADERS)
    (tmp_path / "flags").write_text("--prefix=/opt/build\n--enable-cuda\n")
    (tmp_path / "components").write_text("H264_NVENC_ENCODER\nCUDA\n")
    (tmp_path / "release-key.asc").write_text(gpg(keys, "--armor", "--export", "ffmpeg"))
    given.change("source.c", FFMPEG["source.c"])
    return given


def test_a_build_leaves_programs_licences_and_counts(given: Given) -> None:
    assert given.build() == "ok"
    work = given.folder / "work"
    built = {str(path.relative_to(work / "out")) for path in (work / "out").rglob("*") if path.is_file()}
    assert built == {"bin/ffmpeg", "share/doc/ffmpeg/LICENSE.md", "share/doc/ffmpeg/COPYING.GPLv2"}
    assert (work / "out/bin/ffmpeg").read_text() == FFMPEG["source.c"]
    assert (work / "stage").read_text() == "built\n"
    assert (work / "total").read_text() == "1\n"


def another_file(given: Given) -> None:
    with (given.folder / "ffmpeg.tar").open("ab") as tarball:
        tarball.write(b"x")


def signature_of_something_else(given: Given) -> None:
    whole = (given.folder / "ffmpeg.tar").read_bytes()
    (given.folder / "ffmpeg.tar").write_bytes(b"something else")
    given.sign()
    (given.folder / "ffmpeg.tar").write_bytes(whole)


def signed_by_a_key_that_is_not_shipped(given: Given) -> None:
    given.sign("stranger")


def signed_by_another_key_that_is_shipped(given: Given) -> None:
    given.sign("stranger")
    (given.folder / "release-key.asc").write_text(gpg(given.keys, "--armor", "--export"))


def unknown_name(given: Given) -> None:
    (given.folder / "flags").write_text("--prefix=/opt/build\n--enable-encoder=h264_nvenk\n")


def part_without_its_library(given: Given) -> None:
    (given.folder / "components").write_text("H264_NVENC_ENCODER\nLIBX264_ENCODER\nNOWHERE_FILTER\n")


def library_that_is_not_there(given: Given) -> None:
    (given.folder / "flags").write_text("--enable-libx264\n")


def source_that_does_not_compile(given: Given) -> None:
    given.change("Makefile", "all:\n\t@echo 'source.c:1: error: no such thing' >&2; false\n")


REFUSED: dict[Callable[[Given], None], tuple[str, str]] = {
    another_file: ("verifying the sources", "a tarball changed on its way to the host: "),
    signature_of_something_else: ("verifying the sources", "the signature of FFmpeg's tarball is not good: "),
    signed_by_a_key_that_is_not_shipped: ("verifying the sources", "the signature of FFmpeg's tarball is not good: "),
    signed_by_another_key_that_is_shipped: ("verifying the sources", "FFmpeg's tarball is signed by another key: "),
    unknown_name: ("configuring", "this FFmpeg does not know: --enable-encoder=h264_nvenk"),
    part_without_its_library: (
        "configuring",
        "configure left out, because something they need is missing: libx264_encoder nowhere_filter",
    ),
    library_that_is_not_there: ("configuring", "configure failed: ERROR: libx264 not found"),
    source_that_does_not_compile: ("compiling", "make failed: source.c:1: error: no such thing"),
}


@pytest.mark.parametrize("wrong", REFUSED, ids=lambda wrong: wrong.__name__)
def test_a_build_that_ends_says_why_and_leaves_nothing_to_install(given: Given, wrong: Callable[[Given], None]) -> None:
    wrong(given)
    stage, why = REFUSED[wrong]
    assert given.build().startswith(why)
    assert (given.folder / "work/stage").read_text() == f"{stage}\n"
    assert not (given.folder / "work/out").exists()
