"""FFmpeg without a host: what is fetched, what is left out, what is refused. The builds themselves: tests/machines."""

from __future__ import annotations

import hashlib
import json
import subprocess
import zipfile
from pathlib import Path

import pytest
from builders import load

from gpuprep import catalogue, errors
from gpuprep.codecbuild import build, bundle, sources, target


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


def test_windows_is_built_without_what_it_has_not() -> None:
    wished = {"protocols": ("file", "unix", "tcp"), "encoders": ("h264_nvenc",)}
    assert target.targets()["windows"].parts(wished) == {"protocols": ["file", "tcp"], "encoders": ["h264_nvenc"]}
    assert target.targets()["linux"].parts(wished)["protocols"] == ["file", "unix", "tcp"]


def out_of_a_build(folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "share/doc/ffmpeg").mkdir(parents=True)
    for name in ("ffmpeg.exe", "ffprobe.exe"):
        (folder / "bin" / name).write_bytes(name.encode())
    (folder / "share/doc/ffmpeg/LICENSE.md").write_text("licence")
    return folder


ABOUT = {"version": "7.1.5", "minimum_driver": "531.61"}


def test_the_zip_has_a_manifest_of_all_its_files(tmp_path: Path) -> None:
    built = out_of_a_build(tmp_path / "out")
    path = bundle.write(built, target.targets()["windows"], ABOUT, tmp_path)
    again = bundle.write(built, target.targets()["windows"], ABOUT, tmp_path / "again")
    assert path.read_bytes() == again.read_bytes()
    with zipfile.ZipFile(path) as archive:
        files = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(files.pop("manifest.json"))
    assert manifest["files"] == {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    assert set(files) == {"bin/ffmpeg.exe", "bin/ffprobe.exe", "licences/LICENSE.md", "check.ps1"}
    assert b"[version]'531.61'" in files["check.ps1"]


def test_a_link_that_a_build_left_is_not_followed(tmp_path: Path) -> None:
    built = out_of_a_build(tmp_path / "out")
    (built / "bin/ffmpeg.exe").unlink()
    (built / "bin/ffmpeg.exe").symlink_to("/etc/shadow")
    with pytest.raises(OSError, match="symbolic link"):
        bundle.write(built, target.targets()["windows"], ABOUT, tmp_path)
    assert not list(tmp_path.glob("*.zip*"))


def test_the_check_of_the_linux_tarball_is_sound_shell() -> None:
    script = Path(bundle.__file__).with_name("check.sh")
    done = subprocess.run(["shellcheck", "--shell=sh", str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
