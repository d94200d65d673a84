"""ffmpeg's stand-in of simulated VMs with a real software ffmpeg behind it, and how it comes to be called."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import fakeprograms
import pytest
from waiting import until

from gpuprep.agent.gpu import simstate
from gpuprep.sim import disk, driver, gpus, native, nvmlstate
from gpuprep.sim.guest import ffmpeg, machine


def program() -> str | None:
    if importlib.util.find_spec("imageio_ffmpeg"):
        return str(importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe())
    return shutil.which("ffmpeg")


needs_ffmpeg = pytest.mark.skipif(program() is None, reason="no ffmpeg with software encoders is here")


def boot(folder: Path, key: str, version: str = "550.163.01", **values: object) -> Path:
    devices = gpus.devices("test", [key])
    loaded = driver.Loaded(version, False, tuple(device.bus_id for device in devices), {})
    nvmlstate.write_boot(folder, loaded, devices)
    with nvmlstate.changed(folder) as state:
        state["gpu.0"].update({name: str(value) for name, value in values.items()})
    return folder


@pytest.fixture(autouse=True)
def _as_in_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The driver's libraries are found, the software ffmpeg is this computer's; signals are as before afterwards."""
    drivers(monkeypatch, tmp_path, "libcuda.so.1", "libnvcuvid.so.1", "libnvidia-encode.so.1")
    monkeypatch.setattr(machine, "SOFTWARE", tuple((path.parent, path.name) for path in [Path(program() or "none")]))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def drivers(monkeypatch: pytest.MonkeyPatch, folder: Path, *names: str) -> None:
    """The libraries that the loader's list has."""
    rows = "".join(f"\t{name} (libc6,x86-64) => /usr/lib/{name}\n" for name in names)
    ldconfig = fakeprograms.program(folder / "bin" / "ldconfig", f"cat <<'END'\n{rows}END")
    monkeypatch.setattr(machine, "LDCONFIG", str(ldconfig))


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    path = tmp_path / "input.yuv"
    made = f"{program()} -v error -f lavfi -i testsrc2=s=320x240:d=1:r=25 -pix_fmt yuv420p -f rawvideo {path}"
    subprocess.run(made.split(), check=True)
    return path


def run(folder: Path, words: str, *more: str) -> int:
    return ffmpeg.main(["/opt/gpuprep/ffmpeg/current/bin/ffmpeg", *words.split(), *more], folder)


def video_of(path: Path) -> str:
    said = subprocess.run([program() or "", "-i", str(path)], capture_output=True, text=True, check=False).stderr
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
    assert run(folder, words) == 0
    assert re.search(r"h264 \(High\).*yuv420p.*160x120", video_of(target))
    said = capfd.readouterr().err
    for line in ("Loaded Nvenc version 12.2", "Nvenc initialized successfully", "-> h264 (h264_nvenc))"):
        assert line in said
    assert "libx264" not in said
    assert simstate.loads(0, folder) == []


@needs_ffmpeg
def test_hevc_444_with_ten_bits(tmp_path: Path, raw: Path) -> None:
    target = tmp_path / "out.mp4"
    wish = f"-v error -y -f rawvideo -pix_fmt yuv444p16le -s 160x120 -i {raw} -c:v hevc_nvenc {target}"
    assert run(boot(tmp_path / "nvml", "v100"), wish) == 0
    assert re.search(r"hevc \(Rext\).*yuv444p10le", video_of(target))


@needs_ffmpeg
def test_the_session_limit_counts_what_others_have_open(
    tmp_path: Path, raw: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = boot(tmp_path / "nvml", "t4", fault_nvenc_sessions=1)
    words = f"-v error -y -f rawvideo -s 320x240 -i {raw} -c:v h264_nvenc {tmp_path / 'out.mp4'}"
    assert run(folder, words) == 0
    with simstate.load(0, {"encoder_codec": 0}, folder):
        assert run(folder, words) != 0
    assert "OpenEncodeSessionEx failed: out of memory (10)" in capfd.readouterr().err


def test_no_nvenc_no_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out.mp4"
    assert run(boot(tmp_path / "nvml", "a100"), f"-f rawvideo -s 320x240 -i x -c:v h264_nvenc {target}") != 0
    assert "] OpenEncodeSessionEx failed: unsupported device (2): (no details)\n" in capfd.readouterr().err
    assert not target.exists()


def test_a_lost_gpu(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = boot(tmp_path / "nvml", "t4", fault_gpu_lost=1)
    assert run(folder, "-f rawvideo -s 320x240 -i x -c:v h264_nvenc out.mp4") != 0
    assert "CUDA_ERROR_NO_DEVICE" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("kind", "said"),
    [({"compute_mode": 2}, "CUDA_ERROR_DEVICE_UNAVAILABLE"), ({}, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH")],
)
def test_a_gpu_that_lets_nobody_in(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: dict[str, int], said: str
) -> None:
    folder = boot(tmp_path / "nvml", "t4", "550.163.01", **kind)
    if not kind:
        with nvmlstate.changed(folder) as state:
            state["system"]["installed_driver"] = "550.163.02"
    assert run(folder, "-f rawvideo -s 320x240 -i x -c:v h264_nvenc out.mp4") != 0
    assert said in capfd.readouterr().err


def test_a_gpu_that_is_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert run(boot(tmp_path / "nvml", "t4"), "-f rawvideo -s 320x240 -i x -c:v h264_nvenc out.mp4") != 0
    assert "CUDA_ERROR_NO_DEVICE" in capfd.readouterr().err


def test_a_driver_older_than_the_headers(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = boot(tmp_path / "nvml", "t4", "470.256.02")
    assert run(folder, "-f rawvideo -s 320x240 -i x -c:v h264_nvenc out.mp4") != 0
    assert (
        "Driver does not support the required nvenc API version. Required: 12.1 Found: 11.1" in capfd.readouterr().err
    )


def test_a_missing_library_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    drivers(monkeypatch, tmp_path, "libcuda.so.1", "libnvcuvid.so.1")
    assert run(boot(tmp_path / "nvml", "t4"), "-f rawvideo -s 320x240 -i x -c:v h264_nvenc out.mp4") != 0
    assert "] Cannot load libnvidia-encode.so.1\n" in capfd.readouterr().err


@needs_ffmpeg
def test_a_gpu_lost_in_the_middle_ends_the_work(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = boot(tmp_path / "nvml", "t4")
    words = "-v error -y -re -f lavfi -i testsrc2=s=320x240:r=25:d=60 -c:v h264_nvenc -f mp4"

    def lose() -> None:
        until(lambda: bool(simstate.loads(0, folder)), "FFmpeg does not load the GPU", 20)
        with nvmlstate.changed(folder) as state:
            state["gpu.0"]["fault_gpu_lost"] = "1"

    losing = threading.Thread(target=lose)
    losing.start()
    began = time.monotonic()
    assert run(folder, words, str(tmp_path / "out.mp4")) != 0
    losing.join()
    assert time.monotonic() - began < 30
    assert "CUDA_ERROR_UNKNOWN" in capfd.readouterr().err


def test_paced_work_reports_what_the_engines_make(tmp_path: Path) -> None:
    """As a process, as a session of the throughput probe is: told to end, it reports once more and says so."""
    folder = boot(tmp_path / "nvml", "t4", app_graphics=1590, app_memory=5001)
    code = (
        "import sys; from pathlib import Path; from gpuprep.sim.guest import ffmpeg, machine, mapping\n"
        "machine.missing_library = lambda: ''\n"
        "machine.media = lambda file, real: mapping.Media('h264', 'yuv420p', 1920, 1080, 30.0, 6000)\n"
        "sys.exit(ffmpeg.main(sys.argv[2:], Path(sys.argv[1])))"
    )
    words = "-v warning -progress pipe:1 -stats_period 0.1 -hwaccel cuda -hwaccel_output_format cuda -i x -f null -"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder), "/ffmpeg", *words.split()], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:  # fmt: skip
        seen, rest = _watched(process, folder)
        assert process.wait(timeout=10) == 255
    assert rest.rstrip().endswith("progress=end")
    fps = (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0])
    assert fps == pytest.approx(771 * 1470 / 1860 * 0.97, rel=0.1)


def _watched(process: subprocess.Popen[str], folder: Path) -> tuple[list[tuple[float, int]], str]:
    """(when how many frames were reported, what was said after it was told to end)."""
    assert process.stdout is not None
    seen: list[tuple[float, int]] = []
    for line in process.stdout:
        if line.startswith("frame=") and int(line[6:]) > 0:
            seen.append((time.monotonic(), int(line[6:])))
            if len(seen) == 1:
                assert simstate.loads(0, folder)[0]["graphics"] == "1590"
            if len(seen) == 20:
                process.terminate()
                break
    return seen, process.stdout.read()


# ---------------------------------------------------------------- how it is called


@pytest.fixture
def preload(tmp_path: Path) -> Path:
    """The hook as compiled for a machine, with its folders moved; the stand-in writes its words to a file."""
    stand_in = tmp_path / "lib/ffmpeg"
    stand_in.parent.mkdir()
    stand_in.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/called\nexit 42\n')
    stand_in.chmod(0o755)
    text = native.sources("exec.c")["exec.c"].replace("/usr/lib/gpuprep-sim", str(tmp_path / "lib"))
    return native.build("exec.so", {"exec.c": text}, "-shared", "-fPIC", f'-DSIM_RUN="{tmp_path}/run"')


WAYS = {
    "subprocess": "subprocess.run(argv).returncode",
    "a shell": "subprocess.run(shlex.join(argv), shell=True).returncode",
    "env": "subprocess.run(['env', *argv]).returncode",
    "posix_spawn": "os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(argv[0], argv, dict(os.environ)), 0)[1])",
    "posix_spawnp": "os.waitstatus_to_exitcode(os.waitpid(os.posix_spawnp('ffmpeg', argv, dict(os.environ)), 0)[1])",
    "the path": "subprocess.run(['env', 'ffmpeg', *argv[1:]]).returncode",
}


def called(tmp_path: Path, preload: Path, way: str, words: str) -> tuple[int, list[str]]:
    real = tmp_path / "opt/7.1/bin/ffmpeg"
    real.parent.mkdir(parents=True, exist_ok=True)
    real.write_text("#!/bin/sh\nexit 7\n")
    real.chmod(0o755)
    link = tmp_path / "bin/ffmpeg"
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(real)
    code = f"import os, shlex, subprocess; argv = [{str(link)!r}, *{words.split()!r}]; print({WAYS[way]})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "LD_PRELOAD": str(preload), "PATH": f"{link.parent}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    seen = tmp_path / "called"
    return int(done.stdout), seen.read_text().splitlines() if seen.exists() else []


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("way", WAYS)
def test_work_for_the_gpu_goes_to_the_stand_in(tmp_path: Path, preload: Path, way: str) -> None:
    version = tmp_path / "run/proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("NVRM version\n")
    assert called(tmp_path, preload, way, "-i a.mp4 -c:v h264_nvenc b.mp4") == (
        42, [str(tmp_path / "opt/7.1/bin/ffmpeg"), "-i", "a.mp4", "-c:v", "h264_nvenc", "b.mp4"],
    )  # fmt: skip


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("words", ["-encoders", "-h encoder=h264_nvenc", "-i a.mp4 -c:v rawvideo b.yuv", "-buildconf"])
def test_everything_else_stays_with_the_installed_program(tmp_path: Path, preload: Path, words: str) -> None:
    version = tmp_path / "run/proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("NVRM version\n")
    assert called(tmp_path, preload, "subprocess", words) == (7, [])


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_without_a_driver_the_installed_program_says_so_itself(tmp_path: Path, preload: Path) -> None:
    assert called(tmp_path, preload, "subprocess", "-i a.mp4 -c:v h264_nvenc b.mp4") == (7, [])


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
