"""ffmpeg's stand-in of simulated VMs with a real software ffmpeg behind it, and how it comes to be called."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fakeprograms import program
from ffmpegplans import LIBRARIES, boot, libraries, loads, run, software
from nvmlbench import hook

from gpuprep.sim import disk


def encoder() -> str | None:
    if importlib.util.find_spec("imageio_ffmpeg"):
        return str(importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe())
    return shutil.which("ffmpeg")


needs_ffmpeg = pytest.mark.skipif(encoder() is None, reason="no ffmpeg with software encoders is here")


@pytest.fixture(autouse=True)
def _as_in_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's libraries are found, the software ffmpeg is this computer's."""
    libraries(monkeypatch, tmp_path, *LIBRARIES)
    software(monkeypatch, Path(encoder() or "none"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    path = tmp_path / "input.yuv"
    made = f"{encoder()} -v error -f lavfi -i testsrc2=s=320x240:d=1:r=25 -pix_fmt yuv420p -f rawvideo {path}"
    subprocess.run(made.split(), check=True)
    return path


def video_of(path: Path) -> str:
    said = subprocess.run([encoder() or "", "-i", str(path)], capture_output=True, text=True, check=False).stderr
    return next(line for line in said.splitlines() if "Video:" in line)


@needs_ffmpeg
def test_raw_pictures_become_h264_of_the_asked_size(
    tmp_path: Path, raw: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = boot(tmp_path / "nvml", "t4")
    target = tmp_path / "out.mp4"
    words = (
        f"-v verbose -y -f rawvideo -s 320x240 -i {raw} -vf hwupload_cuda,scale_cuda=160:120 -c:v h264_nvenc {target}"
    )
    assert run(folder, *words.split()) == 0
    assert re.search(r"h264 \(High\).*yuv420p.*160x120", video_of(target))
    said = capfd.readouterr().err
    for line in ("Loaded Nvenc version 12.2", "Nvenc initialized successfully", "-> h264 (h264_nvenc))"):
        assert line in said
    assert "libx264" not in said
    assert loads(folder) == []


@needs_ffmpeg
def test_hevc_444_with_ten_bits(tmp_path: Path, raw: Path) -> None:
    target = tmp_path / "out.mp4"
    wish = f"-v error -y -f rawvideo -pix_fmt yuv444p16le -s 160x120 -i {raw} -c:v hevc_nvenc {target}"
    assert run(boot(tmp_path / "nvml", "v100"), *wish.split()) == 0
    assert re.search(r"hevc \(Rext\).*yuv444p10le", video_of(target))


# ---------------------------------------------------------------- how it is called


needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


@pytest.fixture(scope="module")
def preload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The hook as compiled for a machine; the stand-in writes its words to a file. One machine for all tests."""
    folder = tmp_path_factory.mktemp("machine")
    program(folder / "lib/ffmpeg", f'printf "%s\\n" "$@" >{folder}/called\nexit 42')
    program(folder / "opt/7.1/bin/ffmpeg", "exit 7")
    (folder / "bin").mkdir()
    (folder / "bin/ffmpeg").symlink_to(folder / "opt/7.1/bin/ffmpeg")
    return hook("exec.c", folder)


WAYS = {
    "subprocess": "subprocess.run(argv).returncode",
    "a shell": "subprocess.run(shlex.join(argv), shell=True).returncode",
    "env": "subprocess.run(['env', *argv]).returncode",
    "posix_spawn": "os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(argv[0], argv, dict(os.environ)), 0)[1])",
    "posix_spawnp": "os.waitstatus_to_exitcode(os.waitpid(os.posix_spawnp('ffmpeg', argv, dict(os.environ)), 0)[1])",
    "the path": "subprocess.run(['env', 'ffmpeg', *argv[1:]]).returncode",
}


def called(preload: Path, way: str, words: str, driver: bool = True) -> tuple[int, list[str]]:
    """The exit code, and what the stand-in was called with."""
    folder = preload.parent
    (folder / "called").unlink(missing_ok=True)
    version = folder / "run/proc/driver/nvidia/version"
    version.parent.mkdir(parents=True, exist_ok=True)
    version.unlink(missing_ok=True)
    if driver:
        version.write_text("NVRM version\n")
    link = folder / "bin/ffmpeg"
    code = f"import os, shlex, subprocess; argv = [{str(link)!r}, *{words.split()!r}]; print({WAYS[way]})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "LD_PRELOAD": str(preload), "PATH": f"{link.parent}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    seen = folder / "called"
    return int(done.stdout), seen.read_text().splitlines() if seen.exists() else []


WORK = "-i a.mp4 -c:v h264_nvenc b.mp4"


@needs_gcc
@pytest.mark.parametrize("way", WAYS)
def test_work_for_the_gpu_goes_to_the_stand_in(preload: Path, way: str) -> None:
    assert called(preload, way, WORK) == (42, [str(preload.parent / "opt/7.1/bin/ffmpeg"), *WORK.split()])


@needs_gcc
@pytest.mark.parametrize("words", ["-encoders", "-h encoder=h264_nvenc", "-i a.mp4 -c:v rawvideo b.yuv", "-buildconf"])
def test_everything_else_stays_with_the_installed_program(preload: Path, words: str) -> None:
    assert called(preload, "subprocess", words) == (7, [])


@needs_gcc
def test_without_a_driver_the_installed_program_says_so_itself(preload: Path) -> None:
    assert called(preload, "subprocess", WORK, driver=False) == (7, [])


def test_what_goes_into_a_machine_is_all_that_it_imports(tmp_path: Path) -> None:
    """The guest's programs run there without the rest of gpuprep and without any package."""
    disk.install_guest(tmp_path)
    python = tmp_path / disk.LIBRARY_FOLDER / "python"
    modules = [f"gpuprep.sim.guest.{path.stem}" for path in (python / "gpuprep/sim/guest").glob("[a-z]*.py")]
    assert {"gpuprep.sim.guest.ffmpeg", "gpuprep.sim.guest.tenant"} <= set(modules)
    code = f"import sys; sys.path.insert(0, {str(python)!r}); import {', '.join(modules)}"
    done = subprocess.run([sys.executable, "-IS", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert os.access(tmp_path / disk.LIBRARY_FOLDER / "ffmpeg", os.X_OK)
