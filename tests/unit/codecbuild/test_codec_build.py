"""FFmpeg for machines that gpuprep does not provision: what is fetched, left out and refused, and what the archive has.

The builds themselves: tests/machines.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from builders import load
from codecbuilds import archived, compiled, gathered, packages, parts, unpacked

from gpuprep import catalogue, errors
from gpuprep.codecbuild import build, sources


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


@pytest.mark.parametrize("name", ["ffmpeg.tar", "headers.tar"])
def test_a_tarball_that_somebody_changed_after_the_download_is_fetched_anew(mirror: Path, name: str) -> None:
    kept = fetch(mirror)[name]
    right = kept.read_bytes()
    kept.write_bytes(b"changed")
    assert fetch(mirror)[name].read_bytes() == right
    kept.write_bytes(b"changed")
    (mirror / kept.name).unlink()
    with pytest.raises(errors.GpuprepError, match="could not be fetched"):
        fetch(mirror)


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


def test_windows_is_built_without_what_it_has_not() -> None:
    wished = {"protocols": ("file", "unix", "tcp"), "encoders": ("h264_nvenc",)}
    assert parts("windows", wished) == {"protocols": ["file", "tcp"], "encoders": ["h264_nvenc"]}
    assert parts("linux", wished)["protocols"] == ["file", "unix", "tcp"]


def test_the_zip_has_a_manifest_of_all_its_files_and_is_the_same_each_time(tmp_path: Path) -> None:
    built = compiled(tmp_path / "out", "windows")
    path = archived(built, "windows", tmp_path)
    assert path.read_bytes() == archived(built, "windows", tmp_path / "again").read_bytes()
    files, _ = unpacked(path)
    assert set(files) == {"bin/ffmpeg.exe", "bin/ffprobe.exe", "licences/LICENSE.md", "check.ps1"}
    assert b"[version]'531.61'" in files["check.ps1"]


def test_a_link_that_a_build_left_is_not_followed(tmp_path: Path) -> None:
    built = compiled(tmp_path / "out", "windows")
    (built / "bin/ffmpeg.exe").unlink()
    (built / "bin/ffmpeg.exe").symlink_to("/etc/shadow")
    with pytest.raises(OSError, match="symbolic link"):
        archived(built, "windows", tmp_path)
    assert not list(tmp_path.glob("*.zip*"))


def test_the_tarball_holds_the_libraries_and_a_check_of_sound_shell(tmp_path: Path) -> None:
    beside = {"lib/libx264.so.164": b"x264", "licences/libx264-164": b"GPL"}
    files, manifest = unpacked(archived(compiled(tmp_path / "out", "linux"), "linux", tmp_path, beside))
    assert {name: files[name] for name in beside} == beside
    assert (manifest["version"], manifest["licence"]) == ("7.1.5", "GPL version 2 or later")
    (tmp_path / "check.sh").write_bytes(files["check.sh"])
    done = subprocess.run(
        ["shellcheck", "--shell=sh", str(tmp_path / "check.sh")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


# ---------------------------------------------------------------- the libraries beside it

LDD = """\
/build/work/out/bin/ffmpeg:
\tlinux-vdso.so.1 (0x00007ffd)
\tlibx264.so.164 => /lib/x86_64-linux-gnu/libx264.so.164 (0x00007f1)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f2)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f3)
"""


def test_packages_are_those_of_the_role_and_the_tool_that_sets_the_path() -> None:
    assert packages(()) == ()
    assert packages(("x264", "gnutls")) == ("ca-certificates", "libgnutls28-dev", "libx264-dev", "patchelf")


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
    found = gathered(root, "linux", inside)
    assert found == {"lib/libx264.so.164": b"\x7fELF x264", "licences/libx264-164": b"GPL-2+\n"}
    assert inside.ran[0][:4] == ["patchelf", "--force-rpath", "--set-rpath", "$ORIGIN/../lib"]


@pytest.mark.parametrize(
    ("said", "code", "why"),
    [("\tlibx264.so.164 => not found\n", 0, "missing"), (LDD, 1, "patchelf failed: no such file")],
)
def test_what_is_not_there_ends_the_build(root: Path, said: str, code: int, why: str) -> None:
    with pytest.raises(errors.GpuprepError, match=why):
        gathered(root, "linux", Root(said, code))
