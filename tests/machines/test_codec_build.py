"""FFmpeg built without a host: for Windows, run under Wine, and for Linux; both give the same frames of a clip."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import imageio_ffmpeg  # type: ignore[import-untyped]
import pytest
from machines import must
from wheelsfortests import sha256

from gpuprep.codecbuild import buildroot
from gpuprep.sim import base, mirror

# Each build compiles FFmpeg whole, as people get it.
pytestmark = [pytest.mark.e2e, pytest.mark.only_all]
WINE = ("env", "HOME=/build/work/home", "WINEDEBUG=-all", "/usr/lib/wine/wine64")


def built(target: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The unpacked archive. Its sources come from the local mirror that simulated machines use."""
    mirrors = mirror.ensure()
    config = folder / "config/gpuprep"
    config.mkdir(parents=True)
    (config / "config.yml").write_text(f"mirrors: {json.dumps(mirrors)}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    out = must("codec", "build", "--target", target, "-o", str(folder), "--quiet").stdout.strip()
    path = Path(out)
    if path.suffix == ".zip":
        zipfile.ZipFile(path).extractall(folder)
    else:
        subprocess.run(["tar", "-xf", str(path), "-C", str(folder)], check=True)
    return folder / path.name.split(".zip")[0].split(".tar")[0]


def intact(folder: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {*manifest["files"], "manifest.json"}
    assert {name: sha256(folder / name) for name in manifest["files"]} == manifest["files"]
    assert manifest["redistributable"]
    return manifest


def frames(text: str) -> list[str]:
    """Lines of framemd5 without its head, which names the program."""
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def clip(folder: Path) -> Path:
    path = folder / "clip.mp4"
    made = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25"]
    subprocess.run([*made, "-frames:v", "50", "-c:v", "libx264", "-pix_fmt", "yuv420p", str(path)], check=True)
    return path


TRANSCODE = ["-v", "error", "-i", "clip.mp4", "-vf", "crop=160:90:8:8", "-c:v", "rawvideo", "-f", "framemd5", "-"]


def names(listing: str) -> set[str]:
    return {words[1] for words in map(str.split, listing.splitlines()) if len(words) > 2}


def test_the_windows_build_under_wine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = built("windows", tmp_path, monkeypatch)
    manifest = intact(folder)
    assert re.fullmatch(r"[0-9.]+", manifest["minimum_driver"])
    assert f"[version]'{manifest['minimum_driver']}'" in (folder / "check.ps1").read_text()

    root = base.root("wine", "bookworm", ["wine64"])
    (root / "build").mkdir(exist_ok=True)
    scratch = tmp_path / "scratch"
    (scratch / "work/home").mkdir(parents=True)
    for path in (tmp_path, scratch):
        path.chmod(0o755)
    for path in (scratch / "work", scratch / "work/home"):
        os.chown(path, buildroot.NOBODY, buildroot.NOBODY)
    shutil.copytree(folder / "bin", scratch / "bin")
    shutil.copyfile(clip(tmp_path), scratch / "work/clip.mp4")

    def wine(*words: str) -> str:
        done = buildroot.run(root, scratch, [*WINE, "/build/bin/ffmpeg.exe", "-hide_banner", *words])
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    parts = manifest["parts"]
    assert {"h264_nvenc", "hevc_nvenc"} <= set(parts["encoders"])
    assert set(parts["encoders"]) <= names(wine("-encoders"))
    assert set(parts["decoders"]) <= names(wine("-decoders"))
    assert set(parts["filters"]) <= names(wine("-filters"))
    assert "cuda" in wine("-hwaccels").split()
    native = [imageio_ffmpeg.get_ffmpeg_exe(), "-hide_banner", *TRANSCODE]
    said = subprocess.run(native, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert len(frames(said)) == 50
    assert frames(wine(*TRANSCODE)) == frames(said)
    # Without a GPU the encoder is refused in the driver's words; it does not crash.
    refused = buildroot.run(
        root, scratch, [*WINE, "/build/bin/ffmpeg.exe", "-hide_banner", "-i", "clip.mp4", "-c:v", "h264_nvenc", "x.mp4"]
    )
    assert refused.returncode != 0
    assert "nvcuda.dll" in refused.stderr


def test_the_linux_build_runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = built("linux", tmp_path, monkeypatch)
    intact(folder)
    native = [imageio_ffmpeg.get_ffmpeg_exe(), "-hide_banner", *TRANSCODE]
    clip(tmp_path)
    said = subprocess.run(native, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    ours = [str(folder / "bin/ffmpeg"), "-hide_banner", *TRANSCODE]
    done = subprocess.run(ours, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert frames(done.stdout) == frames(said)
    check = subprocess.run(["sh", str(folder / "check.sh")], capture_output=True, text=True, check=False)
    assert check.returncode == 1  # no GPU here
    assert check.stdout.startswith("PASS  all files are those that were built\nFAIL  driver none, ")
    assert "PASS  FFmpeg has the NVENC encoders" in check.stdout
    (folder / "bin/ffprobe").write_bytes(b"")
    again = subprocess.run(["sh", str(folder / "check.sh")], capture_output=True, text=True, check=False)
    assert again.stdout.startswith("FAIL  all files are those that were built\n")
