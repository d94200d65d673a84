"""The data of simulated GPUs, and what a boot makes of what is installed on a machine's disk."""

from __future__ import annotations

from pathlib import Path

import boottrees
import pytest
from kernelmodule import module
from nvmlbench import Booted, booted, catalogue_of_gpus, inherited

from gpuprep import errors
from gpuprep.sim import store

T4, SECOND = "0000:00:04.0", "0000:00:05.0"
KERNEL = "6.1.0-42-cloud-amd64"
CLOSED = "version=550.163.01\0license=NVIDIA\0"
OPEN = "version=550.163.01\0license=Dual MIT/GPL\0"
BUILT = f"lib/modules/{KERNEL}/updates/dkms"
DISK: dict[str, bytes | str] = {
    f"boot/vmlinuz-{KERNEL}": "", f"{BUILT}/nvidia-current.ko": module(CLOSED),
    "etc/modprobe.d/nvidia.conf": "install nvidia modprobe -i nvidia-current $CMDLINE_OPTS\nblacklist nouveau\n",
}  # fmt: skip
NONE: dict[str, bytes | str] = {f"boot/vmlinuz-{KERNEL}": ""}


def test_every_model_is_complete() -> None:
    devices = set()
    for key, model in catalogue_of_gpus().items():
        devices.add(model["pci"]["device"])
        if model.get("switch"):
            continue
        clocks, power = model["clocks"], model["power"]
        assert clocks["graphics_min"] <= clocks["default_graphics"] <= clocks["graphics_max"], key
        assert clocks["default_memory"] in clocks["memory"], key
        assert power["min"] <= power["default"] <= power["max"], key
        assert len(model["compute_capability"]) == 2, key
    assert len(devices) == len(catalogue_of_gpus())


def test_each_model_can_be_booted(tmp_path: Path) -> None:
    """Of Volta too, which a driver of branch 590 no longer drives."""
    keys = [key for key, model in catalogue_of_gpus().items() if not model.get("switch")]
    assert len(booted(tmp_path, keys, DISK).driven()) == len(keys)


def test_two_machines_never_share_a_uuid(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("a", "b")}
    uuids = []
    for name, folder in folders.items():
        folder.mkdir()
        uuids += booted(folder, ("t4", "t4"), DISK, name).driven()
    assert len(set(uuids)) == 4
    assert booted(folders["a"], ("t4",), {}, "a").driven() == uuids[:1]


def test_pci_folder_is_what_lspci_reads(tmp_path: Path) -> None:
    shown = booted(tmp_path, ("t4", "nvswitch"), DISK)
    bus = shown.sys / "bus/pci/devices"
    assert (bus / T4 / "device").read_text() == "0x1eb8\n"
    assert (bus / T4 / "class").read_text() == "0x030200\n"
    assert (bus / SECOND / "device").read_text() == "0x1af1\n"
    config = (bus / T4 / "config").read_bytes()
    assert config[:4] == bytes.fromhex("de10b81e")
    assert config[9:12] == bytes([0x00, 0x02, 0x03])
    assert (shown.driver_of(T4), shown.driver_of(SECOND)) == ("nvidia", "")
    assert [path.name for path in (shown.sys / "bus/pci/drivers/nvidia").iterdir()] == [T4]
    (tmp_path / "disk" / BUILT / "nvidia-current.ko").unlink()
    shown = booted(tmp_path, ("t4",), {})
    assert [path.name for path in bus.iterdir()] == [T4]
    assert shown.driver_of(T4) == ""


@pytest.mark.parametrize(
    ("fields", "keys", "drives"),
    [
        (CLOSED, ("t4", "v100"), 2),
        (OPEN, ("t4", "v100"), 1),
        (OPEN, ("v100",), 0),
        (CLOSED, (), 0),
        (CLOSED, ("nvswitch",), 0),
        ("license=NVIDIA\0", ("t4",), 0),
        ("version=590.44.01\0license=NVIDIA\0", ("v100", "a100"), 1),
    ],
)
def test_which_gpus_a_driver_drives(tmp_path: Path, fields: str, keys: tuple[str, ...], drives: int) -> None:
    shown = booted(tmp_path, keys, {**DISK, f"{BUILT}/nvidia-current.ko": module(fields)})
    assert len(shown.driven()) == drives
    # A driver that finds no GPU of its own does not stay loaded.
    assert (bool(shown.driver), "nvidia" in shown.modules) == (drives > 0, drives > 0)


def test_a_driver_tells_its_version_and_flavour(tmp_path: Path) -> None:
    closed = booted(tmp_path, ("t4",), DISK).driver
    assert closed.startswith("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  ")
    opened = booted(tmp_path, ("t4",), {f"{BUILT}/nvidia-current.ko": module(OPEN)}).driver
    assert opened.startswith("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.163.01  ")


def options(folder: Path, *lines: str) -> list[str]:
    """The driver's parameters, with these lines in modprobe.d."""
    return booted(folder, ("t4",), {**DISK, "etc/modprobe.d/own.conf": "\n".join(lines)}).params


def test_params_follow_the_options(tmp_path: Path) -> None:
    assert "RmProfilingAdminOnly: 1" in options(tmp_path)
    lines = (
        "# options nvidia NVreg_RegistryDwords=no", "options nvidia NVreg_EnableGpuFirmware=1 NVreg_RegistryDwords=a=1",
        "options nvidia-current NVreg_RestrictProfilingToAdminUsers=0 \\", "  NVreg_EnableGpuFirmware=0",
    )  # fmt: skip
    found = options(tmp_path, *lines)
    assert "RmProfilingAdminOnly: 0" in found
    assert "EnableGpuFirmware: 0" in found, "the module's own options come before those of nvidia"
    assert 'RegistryDwords: "a=1"' in found


def test_loaded_modules_are_shown_as_by_the_kernel(tmp_path: Path) -> None:
    shown = booted(tmp_path, ("t4",), DISK)
    assert shown.modules == ["nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia"]
    lines = (shown.run / "proc/modules").read_text().splitlines()
    assert all(line.split()[4] == "Live" for line in lines)
    assert (shown.sys / "module/nvidia/version").read_text() == "550.163.01\n"
    holders = (shown.sys / "module/nvidia/holders").iterdir()
    assert {path.name for path in holders} == {"nvidia_uvm", "nvidia_modeset"}


def test_nouveau_drives_what_no_driver_drives_until_it_is_blacklisted(tmp_path: Path) -> None:
    bare = booted(tmp_path, ("t4",), NONE)
    assert (bare.modules[0], bare.driver_of(T4), bare.driver) == ("nouveau", "nouveau", "")
    assert not (bare.sys / "module/nvidia").exists()
    blacklisted = booted(tmp_path, ("t4",), {"etc/modprobe.d/no.conf": "blacklist nouveau\n"})
    assert (blacklisted.modules, blacklisted.driver_of(T4)) == ([], "")


def test_etc_hides_a_file_of_the_same_name_and_links_stay_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "disk/etc/modprobe.d").mkdir(parents=True)
    (tmp_path / "disk/etc/modprobe.d/nvidia.conf").symlink_to("/etc/alternatives/nvidia.conf")
    files = {key: value for key, value in DISK.items() if key.startswith(("boot", "lib"))} | {
        "usr/lib/modprobe.d/a.conf": "blacklist nvidia\n", "etc/modprobe.d/a.conf": "blacklist nouveau\n",
        "etc/alternatives/nvidia.conf": "install nvidia modprobe -i nvidia-current\n",
    }  # fmt: skip
    assert booted(tmp_path, ("t4",), files).driver
    # The alternative names a module that is not built.
    absent = {"etc/alternatives/nvidia.conf": "install nvidia modprobe -i nvidia-tesla-535\n"}
    assert booted(tmp_path, ("t4",), absent).driver == ""


@pytest.mark.parametrize(
    ("line", "loads"), [("", True), ("blacklist nvidia", False), ("install nvidia /bin/false", False)]
)
def test_a_forbidden_module_does_not_load(tmp_path: Path, line: str, loads: bool) -> None:
    files = {**NONE, f"{BUILT}/nvidia.ko": module(CLOSED), "etc/modprobe.d/own.conf": f"{line}\n"}
    assert bool(booted(tmp_path, ("t4",), files).driver) is loads


@pytest.mark.parametrize(
    ("releases", "chosen", "starts"),
    [
        ((), "", ""),
        (("6.1.0-9-cloud-amd64", "6.1.0-10-cloud-amd64"), "", "6.1.0-10-cloud-amd64"),
        (("6.12.99+deb13-amd64", "6.12.117+deb13-amd64"), "", "6.12.117+deb13-amd64"),
        (("5.14.0-687.51.1.el9_8.x86_64", "5.14.0-687.54.1.el9_8.x86_64"), "5.14.0-687.51.1.el9_8.x86_64", ""),
        (("5.14.0-687.51.1.el9_8.x86_64",), "gone", "5.14.0-687.51.1.el9_8.x86_64"),
        (("5.14.0-687.51.1.el9_8.x86_64",), "../../etc/passwd", "5.14.0-687.51.1.el9_8.x86_64"),
    ],
)
def test_the_newest_kernel_starts_or_the_one_that_was_chosen(
    tmp_path: Path, releases: tuple[str, ...], chosen: str, starts: str
) -> None:
    files: dict[str, bytes | str] = {f"boot/vmlinuz-{release}": "" for release in releases}
    if chosen:
        files["boot/grub2/grubenv"] = f"saved_entry={chosen}\n"
    shown: Booted = booted(tmp_path, ("t4",), files)
    assert shown.kernel == (starts or chosen)


@pytest.mark.parametrize(
    ("files", "starts"),
    [
        (boottrees.debian(), boottrees.NEW),
        (boottrees.debian(saved_entry="1>2"), boottrees.OLD),
        (boottrees.rocky(boottrees.EL_NEW, boottrees.EL_OLD, saved_entry="1"), boottrees.EL_OLD),
        ({**boottrees.debian(), "/boot/grub/grub.cfg": "source (hd1)/x\n"}, boottrees.NEW),  # nobody knows: the newest
        ({**boottrees.debian(saved_entry="1>2"), f"/boot/vmlinuz-{boottrees.OLD}": None}, boottrees.NEW),  # it is gone
    ],
)
def test_what_the_boot_loader_names_starts(tmp_path: Path, files: dict[str, str | bytes | None], starts: str) -> None:
    there = {path.lstrip("/"): content for path, content in files.items() if content is not None}
    shown: Booted = booted(tmp_path, ("t4",), there)
    assert shown.kernel == starts


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a_b", "../x", "a" * 41, "a b"])
def test_names_that_no_machine_can_have(name: str) -> None:
    with pytest.raises(errors.SimError):
        store.folder(name)


NEW = """\
Types: deb
# a remark
URIs: http://a.example/debian
Suites: trixie trixie-updates
Components: main

Types: deb
URIs: http://a.example/sec
Suites: trixie-security
Components: main
"""
OLD = "deb [arch=amd64] https://other.example/apt stable stable\ndeb http://b.example/debian bookworm main non-free\n"


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("sources.list.d/debian.sources", NEW, ("http://a.example/debian", "http://a.example/sec")),
        ("sources.list.d/debian.sources", NEW.replace("Types", "Enabled: no\nTypes"), (None, None)),
        ("sources.list", OLD, ("http://b.example/debian", None)),
        ("sources.list.d/a.list", OLD, ("http://b.example/debian", None)),
        ("sources.list.d/a.list.disabled", OLD, (None, None)),
    ],
)
def test_the_mirror_of_this_computer(
    tmp_path: Path, file: str, text: str, found: tuple[str | None, str | None]
) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / file).write_text(text)
    assert inherited(tmp_path, {}).mirrors == found


def test_pip_settings_leave_local_folders_behind(tmp_path: Path) -> None:
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text(
        "[global]\nfind-links = /opt/wheels\nindex-url = https://mirror.example/simple\n"
        "extra-index-url = file:///opt/x https://b.example/simple\n"
    )
    found = inherited(tmp_path, {"HOME": str(tmp_path)}).pip
    assert found["index-url"] == "https://mirror.example/simple"
    assert found["extra-index-url"] == "https://b.example/simple"
    assert "find-links" not in found


def test_proxies_in_lower_case(tmp_path: Path) -> None:
    found = inherited(tmp_path, {"HTTPS_PROXY": "http://p.example:3128", "no_proxy": "localhost"}).proxies
    assert found["https_proxy"] == "http://p.example:3128"
    assert found["no_proxy"] == "localhost"
