"""What only the user can change: the finding names the line, the file, and whose it is; no role is promised for it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from builders import finished_snapshot, resolved

from gpuprep import checks, records

WANTED = resolved()
FINISHED = finished_snapshot(WANTED)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
FILE = "/etc/modprobe.d/zz-admin.conf"
MINE = "/usr/local/sbin/ffmpeg"


def finding(key: str, **changed: Any) -> records.Finding:
    found = {one.key: one for one in checks.compare(WANTED, dataclasses.replace(FINISHED, **changed))}
    return found[key]


def modprobe(text: str, file: str = FILE, **changed: Any) -> dict[str, Any]:
    verb, module, *rest = text.split()
    line = records.ModprobeLine(file, (verb, module.replace("-", "_"), *rest), text)
    return {"modprobe": (line,), "owners": {file: None}, **changed}


def ffmpeg(path: str, search: str = PATH, **changed: Any) -> dict[str, Any]:
    codec = dataclasses.replace(FINISHED.codec, ffmpeg_path=path, ffmpeg_real_path=path)
    shells = dataclasses.replace(FINISHED.shells, login_path=search)
    return {"codec": codec, "shells": shells, "owners": {path: None}, **changed}


def library(path: str, *lines: tuple[str, str]) -> dict[str, Any]:
    cuda = dataclasses.replace(FINISHED.cuda, library_folders=("/usr/lib/x86_64-linux-gnu",))
    named = tuple(
        records.ConfigLine(file, line, tuple(f"/{part}".rstrip(":") for part in line.split("/", 1)[1].split(":/")))
        for file, line in lines
    )
    owners = {path: None, **{file: None for file, _ in lines}}
    return {"cuda": cuda, "libraries": {"libcudart.so.12": path}, "config_lines": named, "owners": owners}


RESTRICTED = "options nvidia-current NVreg_RestrictProfilingToAdminUsers=" + (
    "1" if WANTED.tuning.profiling_counters == "open" else "0"
)
BY_HAND: list[tuple[str, dict[str, Any], str]] = [
    (
        "driver.modprobe_options",
        modprobe(RESTRICTED),
        f"remove the line `{RESTRICTED}` from {FILE}, which belongs to no",
    ),
    (
        "driver.modprobe_options",
        modprobe(f"{RESTRICTED} NVreg_UsePageAttributeTable=1", owners={FILE: "acme-gpu"}),
        f"remove `{RESTRICTED.split()[-1]}` from the line `{RESTRICTED} NVreg_UsePageAttributeTable=1` of {FILE}, which"
        " belongs to package acme-gpu",
    ),
    (
        "driver.modprobe_options",
        modprobe(RESTRICTED, "/usr/lib/modprobe.d/acme.conf", owners={"/usr/lib/modprobe.d/acme.conf": "acme-gpu"}),
        "`sudo cp /usr/lib/modprobe.d/acme.conf /etc/modprobe.d/acme.conf` hides",
    ),
    ("driver.module_allowed", modprobe("blacklist nvidia"), f"remove the line `blacklist nvidia` from {FILE}"),
    ("driver.module_allowed", modprobe("install nvidia-uvm /bin/false"), "`install nvidia-uvm /bin/false`"),
    ("driver.module_allowed", modprobe("blacklist nvidia", "/proc/cmdline"), "from the kernel's command line"),
    ("driver.module_allowed", modprobe("blacklist nvidia", owners={}), f"`dpkg -S {FILE}` names its package"),
    ("ffmpeg.path", ffmpeg(MINE), f"{MINE}, which belongs to no package: `sudo mv {MINE} {MINE}.off`"),
    ("ffmpeg.path", ffmpeg(MINE, owners={MINE: "acme-ffmpeg"}), "`sudo apt-get remove acme-ffmpeg`"),
    (
        "ffmpeg.path",
        ffmpeg(MINE, config_lines=(records.ConfigLine("/etc/profile", f"PATH={PATH}", tuple(PATH.split(":"))),)),
        f"`sudo mv {MINE} {MINE}.off`",  # not the line that everybody's PATH is
    ),
    (
        "kernel.headers",
        {
            "kernel": dataclasses.replace(FINISHED.kernel, headers_running=False),
            "packages": {
                **FINISHED.packages,
                f"linux-headers-{FINISHED.kernel.running}": records.Package("1", held=False),
            },
        },
        f"`sudo apt-get install --reinstall linux-headers-{FINISHED.kernel.running}`",
    ),
    *(
        (
            "driver.runfile",
            {"driver": dataclasses.replace(FINISHED.driver, runfile=path)},
            f"`sudo {path} --uninstall --silent`, then reboot, then `gpuprep provision",
        )
        for path in ("/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-installer")
    ),
    (
        "driver.next_boot_module",
        {
            "kernel": dataclasses.replace(FINISHED.kernel, next_boot="9.9-mine", headers_next_boot=False),
            "driver": dataclasses.replace(FINISHED.driver, module_next_boot_version=None),
            "owners": {"/boot/vmlinuz-9.9-mine": None},
        },
        "/boot/vmlinuz-9.9-mine, which belongs to no package: `sudo mv /boot/vmlinuz-9.9-mine /root/`",
    ),
    (
        "cuda.version",
        {
            "cuda": dataclasses.replace(FINISHED.cuda, nvcc_path="/opt/cuda-11/bin/nvcc", nvcc_version="11.8"),
            "config_lines": (
                records.ConfigLine("/etc/profile.d/c.sh", "export PATH=/opt/cuda-11/bin:$PATH", ("/opt/cuda-11/bin",)),
            ),
        },
        "remove the line `export PATH=/opt/cuda-11/bin:$PATH` from /etc/profile.d/c.sh",
    ),
    (
        "cuda.version",
        {"cuda": dataclasses.replace(FINISHED.cuda, nvcc_path="/opt/bin/nvcc", nvcc_version="11.8")},
        "`sudo mv /opt/bin/nvcc /opt/bin/nvcc.off`",
    ),
    (
        "extras.tmux",
        {"commands": {**FINISHED.commands, "tmux": None}, "owners": {"/usr/bin/tmux": "tmux"}},
        "`sudo apt-get install --reinstall tmux`",
    ),
    (
        "cuda.libraries",
        library("/opt/mine/libcudart.so.12", ("/etc/ld.so.conf.d/000.conf", "/opt/mine")),
        "remove the line `/opt/mine` from /etc/ld.so.conf.d/000.conf, which belongs to no package,"
        " then `sudo ldconfig`",
    ),
    (
        "cuda.libraries",
        library("/usr/local/lib/libcudart.so.12", ("/etc/ld.so.conf.d/libc.conf", "/usr/local/lib")),
        "`sudo mv /usr/local/lib/libcudart.so.12 /root/`, then `sudo ldconfig`",
    ),
    (
        "cuda.libraries",
        library("/opt/a/libcudart.so.12", ("/etc/profile.d/a.sh", "export LD_LIBRARY_PATH=/opt/a:/opt/b")),
        "remove `/opt/a` from the line `export LD_LIBRARY_PATH=/opt/a:/opt/b` of /etc/profile.d/a.sh",
    ),
    (
        "ffmpeg.path",
        ffmpeg(
            "/opt/conda/bin/ffmpeg",
            f"/opt/conda/bin:{PATH}",
            config_lines=(
                records.ConfigLine("/etc/profile.d/conda.sh", "PATH=/opt/conda/bin:$PATH", ("/opt/conda/bin",)),
            ),
            owners={"/etc/profile.d/conda.sh": None},
        ),
        "remove the line `PATH=/opt/conda/bin:$PATH` from /etc/profile.d/conda.sh, which belongs to no package",
    ),
    ("ffmpeg.path", ffmpeg("/usr/bin/ffmpeg", "/usr/bin:/bin"), "put /usr/local/bin before /usr/bin on PATH"),
    (
        "ffprobe.path",
        {
            "commands": {**FINISHED.commands, "ffprobe": "/usr/local/sbin/ffprobe"},
            "shells": dataclasses.replace(FINISHED.shells, login_path=PATH),
            "owners": {"/usr/local/sbin/ffprobe": None},
        },
        "`sudo mv /usr/local/sbin/ffprobe /usr/local/sbin/ffprobe.off`",
    ),
    (
        "driver.unattended_upgrades",
        {
            "apt": records.AptFacts((), ()),
            "config_lines": (
                records.ConfigLine("/etc/apt/apt.conf.d/99mine", "#clear Unattended-Upgrade::Package-Blacklist;"),
            ),
            "owners": {"/etc/apt/apt.conf.d/99mine": None},
        },
        "remove the line `#clear Unattended-Upgrade::Package-Blacklist;` from /etc/apt/apt.conf.d/99mine",
    ),
]


@pytest.mark.parametrize(("key", "changed", "says"), BY_HAND)
def test_a_file_of_somebody_else_is_named_with_what_to_do(key: str, changed: dict[str, Any], says: str) -> None:
    found = finding(key, **changed)
    assert found.status is records.Status.FAIL
    assert says in found.remedy
    assert not found.role, "no role changes it, so none is offered"


def test_a_program_behind_ours_is_the_roles_matter() -> None:
    """The link is gone: then the distribution's program is found, and making the link helps."""
    found = finding("ffmpeg.path", **ffmpeg("/usr/bin/ffmpeg"))
    assert found.role == "gpu_codec"
    assert found.remedy.startswith("`gpuprep provision")


def test_a_hostile_name_is_one_word_of_the_command() -> None:
    name = "/usr/local/sbin/ffmpeg; rm -rf ~"
    assert "mv '/usr/local/sbin/ffmpeg; rm -rf ~' '" in finding("ffmpeg.path", **ffmpeg(name)).remedy
