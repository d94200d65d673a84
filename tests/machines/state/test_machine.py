"""Independent eyes on a provisioned machine: knows the profile and the host, and nothing of gpuprep.

Run against any machine that was provisioned, simulated or real:

    gpuprep profiles show t4 --json >t4.json
    GPUPREP_STATE_PROFILE=t4.json pytest tests/machines/state --hosts=ssh://debian@HOST --sudo

Every test asks the machine itself, by the tools an operator would use.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

# What a card's clocks should be when the profile says `max`: (memory, graphics) MHz by PCI device id.
# Source: NVIDIA's data sheets and the AWS and Azure guides for T4, V100 and A100.
MAX_CLOCKS = {
    "1eb8": (5001, 1590),
    "1db1": (877, 1530),
    "1db5": (877, 1530),
    "1db4": (877, 1380),
    "1db6": (877, 1380),
    "1df6": (1107, 1597),
    "20b0": (1215, 1410),
    "20f1": (1215, 1410),
    "20b2": (1593, 1410),
    "20b5": (1512, 1410),
}
DEBIAN_DRIVER_BRANCH = {"12": "535.", "13": "550."}
DEBIAN_CUDA = {"12": "11.8", "13": "12.4"}
# `auto`, by the major version of CUDA. Source: the last cuDNN for Volta; NVIDIA's support matrix of cuDNN.
CUDNN = {"11": "9.10.2", "12": "9.10.2", "13": "9.14.0"}

PROFILE: dict[str, Any] = json.loads(Path(os.environ["GPUPREP_STATE_PROFILE"]).read_text())


def smi(host: Any, query: str) -> list[list[str]]:
    out = host.check_output(f"nvidia-smi --query-gpu={query} --format=csv,noheader,nounits")
    return [[field.strip() for field in line.split(",")] for line in out.splitlines()]


def user(host: Any, command: str) -> str:
    """`command` as the ordinary user, not root."""
    name = host.check_output("getent passwd 1000").split(":")[0]
    return str(
        host.check_output(f"setpriv --reuid={name} --regid={name} --init-groups -- sh -c {shlex.quote(command)}")
    )


@pytest.fixture(scope="module")
def kernel(host: Any) -> str:
    return str(host.check_output("uname -r"))


@pytest.fixture(scope="module")
def release(host: Any) -> str:
    return str(host.check_output(". /etc/os-release; echo $VERSION_ID"))


# ---------------------------------------------------------------- driver


def test_headers_of_the_running_kernel(host: Any, kernel: str) -> None:
    assert host.file(f"/lib/modules/{kernel}/build/Makefile").exists


def test_dkms_built_for_the_running_kernel(host: Any, kernel: str) -> None:
    lines = [line for line in host.check_output("dkms status").splitlines() if "nvidia" in line]
    assert any(kernel in line and line.endswith("installed") for line in lines), lines


def test_versions_agree(host: Any, release: str) -> None:
    on_disk = host.check_output(
        "/sbin/modinfo -F version $(/sbin/modinfo -n nvidia-current || /sbin/modinfo -n nvidia)"
    )
    loaded = re.search(
        r"Kernel Module(?: for x86_64)?\s+(\S+)", host.file("/proc/driver/nvidia/version").content_string
    )
    assert loaded is not None
    versions = {on_disk, loaded.group(1), *[row[0] for row in smi(host, "driver_version")]}
    assert len(versions) == 1, versions
    assert on_disk.startswith(DEBIAN_DRIVER_BRANCH[release])


def test_flavour(host: Any) -> None:
    open_module = "Open Kernel Module" in host.file("/proc/driver/nvidia/version").content_string
    assert open_module == (PROFILE["driver"]["flavour"] == "open")


def test_nouveau_is_gone_and_stays_gone(host: Any) -> None:
    assert not re.search(r"^nouveau ", host.file("/proc/modules").content_string, re.M)
    assert "blacklist nouveau" in host.check_output("cat /etc/modprobe.d/*.conf /usr/lib/modprobe.d/*.conf 2>/dev/null")


@pytest.mark.parametrize("library", ["libcuda.so.1", "libnvcuvid.so.1", "libnvidia-encode.so.1", "libnvidia-ml.so.1"])
def test_driver_libraries(host: Any, library: str) -> None:
    assert library in host.check_output("/sbin/ldconfig -p")


@pytest.mark.parametrize("package", ["libcuda1", "libnvcuvid1", "libnvidia-encode1", "nvidia-smi"])
def test_driver_packages_are_held(host: Any, package: str) -> None:
    assert package in host.check_output("apt-mark showhold").split()


def test_module_package_is_held(host: Any) -> None:
    held = host.check_output("apt-mark showhold").split()
    assert {"nvidia-kernel-dkms", "nvidia-open-kernel-dkms"} & set(held), held


def test_unattended_upgrades_leave_the_driver_alone(host: Any) -> None:
    dump = host.check_output("apt-config dump Unattended-Upgrade::Package-Blacklist")
    patterns = re.findall(r'"([^"\n]+)";', dump)
    assert any(re.match(pattern, "nvidia-kernel-dkms") for pattern in patterns), dump
    assert any(re.match(pattern, "libcuda1") for pattern in patterns), dump


def test_profiling_counters(host: Any) -> None:
    want = "0" if PROFILE["tuning"]["profiling_counters"] == "open" else "1"
    assert f"RmProfilingAdminOnly: {want}" in host.file("/proc/driver/nvidia/params").content_string


def test_profiling_counters_after_the_next_boot(host: Any) -> None:
    want = "0" if PROFILE["tuning"]["profiling_counters"] == "open" else "1"
    options = host.check_output("cat /etc/modprobe.d/*.conf")
    assert re.search(rf"^options nvidia\b.*NVreg_RestrictProfilingToAdminUsers={want}", options, re.M), options


# ---------------------------------------------------------------- tuning


def test_every_gpu_answers(host: Any) -> None:
    on_the_bus = host.check_output("cat /sys/bus/pci/devices/*/vendor /sys/bus/pci/devices/*/class").split()
    assert on_the_bus.count("0x10de") >= len(smi(host, "name")) > 0


@pytest.mark.parametrize("unit", ["nvidia-persistenced.service", "gpuprep-tune.service"])
def test_units(host: Any, unit: str) -> None:
    assert host.check_output(f"systemctl is-enabled {unit} || true") in ("enabled", "static")
    assert host.check_output(f"systemctl is-active {unit} || true") == "active"


def test_persistence_mode(host: Any) -> None:
    want = "Enabled" if PROFILE["tuning"]["persistence"] else "Disabled"
    assert {row[0] for row in smi(host, "persistence_mode")} == {want}


def test_clocks(host: Any) -> None:
    assert PROFILE["tuning"]["clocks"] == "max", "this suite knows the expected clocks of `max` only"
    for device, memory, graphics in smi(host, "pci.device_id,clocks.applications.memory,clocks.applications.graphics"):
        assert (int(memory), int(graphics)) == MAX_CLOCKS[device[2:6].lower()]


def test_power_limit(host: Any) -> None:
    limits = smi(host, "power.limit,power.default_limit")
    assert limits
    for limit, default in limits:
        want = PROFILE["tuning"]["power_limit_watts"]
        assert float(limit) == float(default if want == "default" else want)


def test_compute_mode(host: Any) -> None:
    want = PROFILE["tuning"]["compute_mode"].replace("_", " ").title().replace(" ", "_")
    assert {row[0] for row in smi(host, "compute_mode")} == {want}


# ---------------------------------------------------------------- CUDA and cuDNN


def test_nvcc_version(host: Any, release: str) -> None:
    wanted = PROFILE["cuda"]["version"]
    want = DEBIAN_CUDA[release] if wanted == "auto" else wanted
    assert f"release {want}," in user(host, "nvcc --version")


def test_nvcc_compiles(host: Any) -> None:
    source = r"__global__ void f(int *p) { *p = 1; } int main() { return 0; }"
    user(host, f"d=$(mktemp -d) && cd $d && echo '{source}' >a.cu && nvcc -o a a.cu && ./a; e=$?; rm -rf $d; exit $e")


@pytest.mark.parametrize("program", ["nvcc", "ffmpeg", "nvidia-smi"])
def test_path_of_a_login_shell(host: Any, program: str) -> None:
    host.check_output(f"env -i HOME=/root bash -lc 'command -v {program}'")


@pytest.mark.parametrize("program", ["nvcc", "ffmpeg"])
def test_path_of_a_non_login_shell(host: Any, program: str) -> None:
    line = next(line for line in host.file("/etc/environment").content_string.splitlines() if line.startswith("PATH="))
    path = line.split("=", 1)[1].strip("\"'")
    host.check_output(f"env -i PATH={path} sh -c 'command -v {program}'")


@pytest.mark.parametrize("program", ["nvcc", "ffmpeg"])
def test_path_of_a_service(host: Any, program: str) -> None:
    host.check_output(f"systemd-run --quiet --wait --pipe sh -c 'command -v {program}'")


def test_cuda_home_everywhere(host: Any) -> None:
    login = host.check_output("env -i HOME=/root bash -lc 'echo $CUDA_HOME'")
    service = host.check_output("systemd-run --quiet --wait --pipe sh -c 'echo $CUDA_HOME'")
    assert login == service != ""
    assert host.file(login).is_directory


def test_cupti_is_on_the_loader_path(host: Any) -> None:
    assert "libcupti.so" in host.check_output("/sbin/ldconfig -p")


@pytest.fixture(scope="module")
def cudnn(host: Any) -> list[str]:
    """Major, minor and patch version of the wanted cuDNN."""
    wanted = PROFILE["cudnn"]["version"]
    if wanted == "auto":
        runtime = host.run("ls /usr/local/cuda/lib64/libcudart.so.* /usr/lib/x86_64-linux-gnu/libcudart.so.*").stdout
        wanted = CUDNN[re.findall(r"libcudart\.so\.(\d+)", runtime)[0]]
    return str(wanted).split(".")[:3]


def test_cudnn_is_the_wanted_one_for_a_program_linked_against_it(host: Any, cudnn: list[str]) -> None:
    major, minor, patch = cudnn
    program = r"int main(void) { printf(\"%%zu\", cudnnGetVersion()); }"
    source = rf"#include <stdio.h>\nsize_t cudnnGetVersion(void); {program}"
    out = user(
        host,
        f'd=$(mktemp -d) && cd $d && printf "{source}" >a.c && gcc -w -include stddef.h a.c -o a'
        f" /opt/gpuprep/cudnn/current/lib/libcudnn.so.{major} -Wl,--allow-shlib-undefined && ./a;"
        " e=$?; rm -rf $d; exit $e",
    )
    assert out == str(int(major) * 10000 + int(minor) * 100 + int(patch))


def test_cudnn_is_what_the_loader_finds(host: Any, cudnn: list[str]) -> None:
    found = re.findall(rf"libcudnn\.so\.{cudnn[0]} .*=> (\S+)", host.check_output("/sbin/ldconfig -p"))
    assert found
    assert host.check_output(f"realpath {found[0]}").startswith("/opt/gpuprep/cudnn/")


# ---------------------------------------------------------------- codec


def test_headers_for_those_who_build_against_them(host: Any) -> None:
    out = host.check_output("PKG_CONFIG_PATH=/usr/local/lib/pkgconfig pkg-config --modversion ffnvcodec")
    assert out == PROFILE["codec"]["headers"]


def test_ffmpeg_version(host: Any) -> None:
    assert user(host, "ffmpeg -version").startswith(f"ffmpeg version {PROFILE['codec']['ffmpeg']}")


def test_ffprobe_is_of_the_same_build(host: Any) -> None:
    build = "$(dirname $(realpath $(command -v ffmpeg)))"
    assert user(host, "realpath $(command -v ffprobe)") == user(host, f"realpath {build}/ffprobe")


@pytest.mark.parametrize("kind", ["encoders", "decoders", "filters"])
def test_ffmpeg_parts(host: Any, kind: str) -> None:
    listed = {
        line.split()[1] for line in user(host, f"ffmpeg -hide_banner -{kind}").splitlines() if len(line.split()) > 1
    }
    assert set(PROFILE["codec"]["parts"][kind]) <= listed, set(PROFILE["codec"]["parts"][kind]) - listed


def test_ffmpeg_for_nvidia(host: Any) -> None:
    encoders = user(host, "ffmpeg -hide_banner -encoders")
    assert "h264_nvenc" in encoders
    assert "hevc_nvenc" in encoders
    assert "cuda" in user(host, "ffmpeg -hide_banner -hwaccels").split()
    assert "scale_cuda" in user(host, "ffmpeg -hide_banner -filters")


def test_ffmpeg_may_be_redistributed(host: Any) -> None:
    assert ("--enable-nonfree" in user(host, "ffmpeg -hide_banner -buildconf")) == PROFILE["codec"]["npp"]


def test_ffmpeg_transcodes(host: Any) -> None:
    user(host, "ffmpeg -v error -f lavfi -i testsrc2=d=1:s=320x240 -f null -")


def test_ffmpeg_files_are_those_of_the_manifest(host: Any) -> None:
    home = host.check_output("dirname $(dirname $(realpath $(command -v ffmpeg)))")
    assert home.startswith(PROFILE["codec"]["prefix"] + "/ffmpeg/")
    manifest = json.loads(host.file(f"{home}/manifest.json").content_string)
    sums = "".join(f"{digest}  {home}/{path}\n" for path, digest in manifest["files"].items())
    assert len(manifest["files"]) >= 2
    host.check_output(f"printf %s {shlex.quote(sums)} | sha256sum --check --quiet --strict")


# ---------------------------------------------------------------- the rest


def test_extras(host: Any) -> None:
    for tool in PROFILE["extras"]["tools"]:
        if tool == "opencv":
            user(host, "/usr/bin/python3 -c 'import cv2; assert cv2.__version__'")
        else:
            assert host.exists(tool), tool


def test_agent(host: Any) -> None:
    facts = json.loads(host.check_output("echo '{}' | gpuprep-agent facts"))
    assert facts["source"] == ("simulated" if host.file("/etc/gpuprep-sim").exists else "measured")


def test_provenance(host: Any) -> None:
    provenance = json.loads(host.file("/etc/gpuprep/provenance.json").content_string)
    assert provenance


def test_nothing_failed(host: Any) -> None:
    failed = host.check_output("systemctl --failed --plain --no-legend || true")
    assert not re.search(r"nvidia|gpuprep", failed), failed


def test_no_package_is_half_installed(host: Any) -> None:
    assert host.check_output("dpkg --audit") == ""
