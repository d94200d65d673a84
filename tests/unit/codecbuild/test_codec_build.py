"""FFmpeg for machines that gpuprep does not provision: what is fetched, left out and refused, and what the archive has.

The compiler's root is a stand-in at codecbuild/buildroot.py. The builds themselves: tests/machines.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from builders import load

from gpuprep import catalogue, errors
from gpuprep.codecbuild import build, buildroot, sources


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mirror with small files, whose sha256 is known."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "mirror"
    folder.mkdir()
    for name in ("ffmpeg-7.1.5.tar.xz", "ffmpeg-7.1.5.tar.xz.asc", "nv-codec-headers-12.1.14.0.tar.gz"):
        (folder / name).write_bytes(name.encode())
    return folder


def known(kind: str) -> dict[str, catalogue.Source]:
    found = {
        "ffmpeg": catalogue.Source("7.1.5", "https://up.example/ffmpeg-7.1.5.tar.xz", (digest("ffmpeg-7.1.5.tar.xz"),)),
        "nv_codec_headers": catalogue.Source(
            "12.1.14.0",
            "https://up.example/nv-codec-headers-12.1.14.0.tar.gz",
            (digest("nv-codec-headers-12.1.14.0.tar.gz"),),
        ),
    }
    return {found[kind].version: found[kind]}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def fetch(mirror: Path) -> dict[str, Path]:
    urls = {"ffmpeg": mirror.as_uri(), "nv_codec_headers": mirror.as_uri()}
    return sources.fetch(load().codec, urls, lambda _: None, known)


def test_tarballs_come_from_the_mirror_once(mirror: Path) -> None:
    found = fetch(mirror)
    assert {name: path.name for name, path in found.items()} == {
        "ffmpeg.tar": "ffmpeg-7.1.5.tar.xz",
        "ffmpeg.tar.asc": "ffmpeg-7.1.5.tar.xz.asc",
        "headers.tar": "nv-codec-headers-12.1.14.0.tar.gz",
    }
    for path in mirror.iterdir():
        path.unlink()
    assert fetch(mirror) == found


def test_another_file_under_the_right_name_is_not_kept(mirror: Path) -> None:
    (mirror / "ffmpeg-7.1.5.tar.xz").write_bytes(b"another")
    with pytest.raises(errors.GpuprepError, match=f"has the sha256 {digest('another')}, and "):
        fetch(mirror)
    (mirror / "ffmpeg-7.1.5.tar.xz").write_bytes(b"ffmpeg-7.1.5.tar.xz")
    assert fetch(mirror)


def test_a_file_without_an_end_is_cut(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MOST_BYTES", 10)
    with pytest.raises(errors.GpuprepError, match="is larger than"):
        fetch(mirror)


def test_what_cannot_be_fetched_says_where_mirrors_are_set(tmp_path: Path, mirror: Path) -> None:
    with pytest.raises(errors.GpuprepError, match=r"could not be fetched") as caught:
        fetch(tmp_path / "nowhere")
    assert "docs/mirrors.md" in caught.value.hint
    assert mirror.is_dir()


@pytest.mark.parametrize(
    ("codec", "says"), [({"ffmpeg": "none"}, "asks for no FFmpeg"), ({"npp": True}, "may not be given to others")]
)
def test_refused_before_anything_is_fetched(codec: dict[str, object], says: str, tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match=says):
        build.build(load(codec=codec).codec, "windows", tmp_path, {}, lambda _: None)


def test_windows_has_no_libraries_and_says_what_works(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="works: --target linux"):
        build.build(load("video").codec, "windows", tmp_path, {}, lambda _: None)


# ---------------------------------------------------------------- the archive

README = "Linux: 530.41.03 or newer\nWindows: 531.61 or newer\n"
LDD = """\
/build/work/out/bin/ffmpeg:
\tlinux-vdso.so.1 (0x00007ffd)
\tlibx264.so.164 => /lib/x86_64-linux-gnu/libx264.so.164 (0x00007f1)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f2)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f3)
"""


class Root:
    """The root that compilers run in: here it only has one library and its package, and answers what it is told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ldd, self.result, self.failing = LDD, "ok", ""
        self.leaves: Callable[[Path], None] = lambda _out: None  # does something to what was built
        self.packages: tuple[str, ...] = ()
        self.ran: list[list[str]] = []
        libraries = folder / "usr/lib/x86_64-linux-gnu"
        libraries.mkdir(parents=True)
        (folder / "lib").symlink_to("usr/lib")
        (libraries / "libx264.so.164").symlink_to("libx264.so.164.0")
        (libraries / "libx264.so.164.0").write_bytes(b"\x7fELF x264")
        files = {
            "var/lib/dpkg/info/libx264-164:amd64.list": "/usr/lib/x86_64-linux-gnu/libx264.so.164\n",
            "usr/share/doc/libx264-164/copyright": "GPL-2+\n",
        }
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True)
            (folder / name).write_text(text)

    def ensure(self, _target: object, more: Sequence[str], _progress: object) -> Path:
        self.packages = tuple(more)
        return self.folder

    def run(
        self, _root: Path, scratch: Path, words: Sequence[str], meanwhile: Callable[[], None] = lambda: None
    ) -> subprocess.CompletedProcess[str]:
        self.ran.append(list(words))
        if words[0] == "/bin/bash":
            self._compile(scratch / "work", "linux" if "linux" in (scratch / "spec.json").read_text() else "windows")
            meanwhile()
        said = self.ldd if words[0] == "ldd" else f"{words[0]} 14.0\nmore\n"
        return subprocess.CompletedProcess(list(words), int(words[0] == self.failing), said, "no such file")

    def _compile(self, work: Path, system: str) -> None:
        end = ".exe" if system == "windows" else ""
        files = {
            f"out/bin/ffmpeg{end}": "ffmpeg", f"out/bin/ffprobe{end}": "ffprobe",
            "out/share/doc/ffmpeg/LICENSE.md": "licence", "headers/README": README, "total": "980\n",
            "make.log": "CC\ta.o\nCC\tb.o\nLD\tx\n", "result": f"{self.result}\n", "log": "the compiler said no\n",
        }  # fmt: skip
        for name, text in files.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text(text)
        self.leaves(work / "out")


@pytest.fixture
def root(tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    made = Root(tmp_path / "root")
    monkeypatch.setattr(buildroot, "ensure", made.ensure)
    monkeypatch.setattr(buildroot, "run", made.run)
    tarballs = fetch(mirror)
    monkeypatch.setattr(sources, "fetch", lambda *_: tarballs)
    monkeypatch.setattr(os, "chown", lambda *_: None)
    return made


def built(folder: Path, system: str, counted: list[tuple[str, int, int]] | None = None, **codec: Any) -> Path:
    def count(*words: Any) -> None:
        (counted if counted is not None else []).append(words)

    return build.build(load(codec=codec).codec, system, folder, {}, lambda _: None, count)


def unpacked(path: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files of an archive without its one folder, and its manifest."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            found = {name: archive.read(name) for name in archive.namelist()}
    else:
        with tarfile.open(path) as tar:
            found = {member.name: read.read() for member in tar if (read := tar.extractfile(member)) is not None}
    assert {name.partition("/")[0] for name in found} == {path.name.removesuffix(".zip").removesuffix(".tar.xz")}
    files = {name.partition("/")[2]: content for name, content in found.items()}
    return files, json.loads(files.pop("manifest.json"))


PARTS = {"protocols": ("file", "unix", "tcp"), "encoders": ("h264_nvenc",)}


@pytest.mark.usefixtures("root")
def test_the_zip_has_a_manifest_of_all_its_files_and_is_the_same_each_time(tmp_path: Path) -> None:
    counted: list[tuple[str, int, int]] = []
    path = built(tmp_path, "windows", counted, parts=PARTS)
    assert counted == [("files compiled", 2, 980)]
    files, manifest = unpacked(path)
    assert manifest["files"] == {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    assert set(files) == {"bin/ffmpeg.exe", "bin/ffprobe.exe", "licences/LICENSE.md", "check.ps1"}
    assert b"[version]'531.61'" in files["check.ps1"]
    assert manifest["parts"] == {"protocols": ["file", "tcp"], "encoders": ["h264_nvenc"]}, "without what it has not"
    assert (manifest["version"], manifest["licence"]) == ("7.1.5", "GPL version 2 or later")
    assert manifest["compilers"]["clang"] == "clang 14.0"
    again = built(tmp_path / "again", "windows", parts=PARTS)
    assert path.read_bytes() == again.read_bytes()


def test_the_tarball_has_the_libraries_with_their_licences_and_not_glibcs(tmp_path: Path, root: Root) -> None:
    files, manifest = unpacked(built(tmp_path, "linux", libraries=("x264", "gnutls")))
    assert root.packages == ("ca-certificates", "libgnutls28-dev", "libx264-dev", "patchelf")
    assert ["patchelf", "--force-rpath", "--set-rpath", "$ORIGIN/../lib"] in [words[:4] for words in root.ran]
    beside = {name: content for name, content in files.items() if "x264" in name}
    assert beside == {"lib/libx264.so.164": b"\x7fELF x264", "licences/libx264-164": b"GPL-2+\n"}
    assert [name for name in files if name.startswith("lib/")] == ["lib/libx264.so.164"]
    assert set(files) == set(manifest["files"])
    assert (manifest["licence"], manifest["minimum_driver"]) == ("GPL version 2 or later", "530.41.03")


def test_without_libraries_nothing_is_linked_and_the_check_is_sound_shell(tmp_path: Path, root: Root) -> None:
    files, manifest = unpacked(built(tmp_path, "linux"))
    assert (root.packages, [words[0] for words in root.ran if words[0] in ("ldd", "patchelf")]) == ((), [])
    assert manifest["parts"]["protocols"] == list(load().codec.parts["protocols"])
    (tmp_path / "check.sh").write_bytes(files["check.sh"])
    done = subprocess.run(
        ["shellcheck", "--shell=sh", str(tmp_path / "check.sh")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"ldd": "\tlibx264.so.164 => not found\n"}, "missing"),
        ({"failing": "patchelf"}, "patchelf failed: no such file"),
        ({"failing": "/bin/bash"}, "FFmpeg was not built: ok\nthe compiler said no"),
        ({"result": "make failed"}, "FFmpeg was not built: make failed\nthe compiler said no"),
    ],
)
def test_what_is_not_there_ends_the_build(tmp_path: Path, root: Root, wrong: dict[str, str], why: str) -> None:
    vars(root).update(wrong)
    with pytest.raises(errors.GpuprepError) as ended:
        built(tmp_path, "linux", libraries=("x264",))
    assert why in ended.value.what
    assert not list(tmp_path.glob("*.tar*"))


def test_a_link_that_a_build_left_is_not_followed(tmp_path: Path, root: Root) -> None:
    def link(out: Path) -> None:
        (out / "bin/ffmpeg.exe").unlink()
        (out / "bin/ffmpeg.exe").symlink_to("/etc/shadow")

    root.leaves = link
    with pytest.raises(OSError, match="symbolic link"):
        built(tmp_path, "windows")
    assert not list(tmp_path.glob("*.zip*"))
