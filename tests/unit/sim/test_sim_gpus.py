"""The data of simulated GPUs, and what a boot makes of what is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprep import errors
from gpuprep.sim import base, boot, controller, driver, gpus, modprobe, pci, store, sysfs, within


def test_every_model_is_complete() -> None:
    for key, model in gpus.models().items():
        assert model.architecture in driver.facts()["architectures"], key
        if model.is_switch:
            continue
        clocks, power = model.data["clocks"], model.data["power"]
        supported = model.supported_clocks()
        assert clocks["default_graphics"] in supported[clocks["default_memory"]], key
        assert max(supported[max(supported)]) == clocks["graphics_max"], key
        assert power["min"] <= power["default"] <= power["max"], key
        assert len(model.data["compute_capability"]) == 2, key


def test_pci_ids_are_unique() -> None:
    ids = [model.data["pci"]["device"] for model in gpus.models().values()]
    assert len(ids) == len(set(ids))


def test_an_unknown_model_names_the_known_ones() -> None:
    with pytest.raises(errors.SimError) as caught:
        gpus.check(("t4", "rtx9"))
    assert "rtx9" in caught.value.what
    assert "t4" in caught.value.hint


def test_none_is_no_gpu() -> None:
    assert gpus.check(("none",)) == ()


def test_two_machines_never_share_a_uuid() -> None:
    uuids = [device.uuid for name in ("a", "b") for device in gpus.devices(name, ("t4", "t4"))]
    assert len(set(uuids)) == 4
    assert [d.uuid for d in gpus.devices("a", ("t4",))] == uuids[:1]


def test_pci_folder_is_what_lspci_reads(tmp_path: Path) -> None:
    devices = gpus.devices("a", ("t4", "nvswitch"))
    pci.write(tmp_path, devices, {"0000:00:04.0": "nvidia"})
    assert (tmp_path / "0000:00:04.0/device").read_text() == "0x1eb8\n"
    assert (tmp_path / "0000:00:04.0/class").read_text() == "0x030200\n"
    assert (tmp_path / "0000:00:05.0/device").read_text() == "0x1af1\n"
    config = (tmp_path / "0000:00:04.0/config").read_bytes()
    assert config[:4] == bytes.fromhex("de10b81e")
    assert config[9:12] == bytes([0x00, 0x02, 0x03])
    assert (tmp_path / "0000:00:04.0/driver").readlink().name == "nvidia"
    pci.write(tmp_path, devices[:1])
    assert [path.name for path in tmp_path.iterdir()] == ["0000:00:04.0"]
    assert not (tmp_path / "0000:00:04.0/driver").is_symlink()


PROPRIETARY = modprobe.Module("nvidia-current", "/x.ko", "550.163.01", "NVIDIA")
OPEN = modprobe.Module("nvidia-current-open", "/x.ko", "550.163.01", "Dual MIT/GPL")


@pytest.mark.parametrize(
    ("module", "keys", "drives"),
    [
        (PROPRIETARY, ("t4", "v100"), 2),
        (OPEN, ("t4", "v100"), 1),
        (OPEN, ("v100",), None),
        (PROPRIETARY, (), None),
        (PROPRIETARY, ("nvswitch",), None),
        (None, ("t4",), None),
        (modprobe.Module("nvidia", "/x.ko", "590.44.01", "NVIDIA"), ("v100", "a100"), 1),
    ],
)
def test_which_gpus_a_driver_drives(module: modprobe.Module | None, keys: tuple[str, ...], drives: int | None) -> None:
    loaded = driver.load(module, gpus.devices("m", keys), {})
    assert (None if loaded is None else len(loaded.drives)) == drives


def test_params_follow_the_options() -> None:
    assert "RmProfilingAdminOnly: 1\n" in driver.params_text({})
    opened = driver.params_text({"NVreg_RestrictProfilingToAdminUsers": "0", "NVreg_EnableGpuFirmware": "0"})
    assert "RmProfilingAdminOnly: 0\n" in opened
    assert "EnableGpuFirmware: 0\n" in opened
    assert 'RegistryDwords: "a=1"\n' in driver.params_text({"NVreg_RegistryDwords": "a=1"})


def test_version_text_names_the_flavour() -> None:
    closed = driver.version_text(driver.Loaded("550.163.01", False, (), {}))
    assert closed.startswith("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  ")
    opened = driver.version_text(driver.Loaded("550.163.01", True, (), {}))
    assert opened.startswith("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.163.01  ")


def test_modules_text_is_what_proc_modules_has() -> None:
    text = driver.modules_text(driver.Loaded("550.163.01", False, ("0000:00:04.0",), {}), False)
    assert [line.split()[0] for line in text.splitlines()] == ["nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia"]
    assert all(line.split()[4] == "Live" for line in text.splitlines())
    assert "nouveau" not in text
    assert driver.modules_text(None, True).startswith("nouveau ")


def test_sysfs_has_a_folder_for_each_module(tmp_path: Path) -> None:
    loaded = driver.Loaded("550.163.01", False, ("0000:00:04.0",), {})
    sysfs.write_modules(tmp_path, driver.modules_text(loaded, False), "550.163.01")
    assert (tmp_path / "nvidia/version").read_text() == "550.163.01\n"
    assert {path.name for path in (tmp_path / "nvidia/holders").iterdir()} == {"nvidia_uvm", "nvidia_modeset"}
    sysfs.write_modules(tmp_path, "")
    assert not (tmp_path / "nvidia").exists()


def test_modprobe_configuration() -> None:
    text = (
        "# options nvidia NVreg_No=1\nblacklist nouveau\noptions nvidia-current NVreg_A=1 \\\n  NVreg_B=2\n"
        "options nvidia NVreg_A=0 NVreg_C=3\ninstall nvidia modprobe -i nvidia-current $CMDLINE_OPTS\n"
    )
    found = modprobe.parse([text])
    assert found.blacklist == {"nouveau"}
    assert modprobe.nvidia_options(found, PROPRIETARY) == {"NVreg_A": "1", "NVreg_B": "2", "NVreg_C": "3"}


def test_etc_hides_a_file_of_the_same_name_and_links_stay_below_the_root(tmp_path: Path) -> None:
    for folder in ("etc/modprobe.d", "usr/lib/modprobe.d", "etc/alternatives", "lib/modules/6.1/updates/dkms"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "usr/lib/modprobe.d/a.conf").write_text("blacklist nvidia\n")
    (tmp_path / "etc/modprobe.d/a.conf").write_text("blacklist nouveau\n")
    (tmp_path / "etc/alternatives/nvidia.conf").write_text("install nvidia modprobe -i nvidia-current\n")
    (tmp_path / "etc/modprobe.d/nvidia.conf").symlink_to("/etc/alternatives/nvidia.conf")
    with within.Disk(tmp_path) as disk:
        found = modprobe.read(disk)
        assert modprobe.nvidia_module(disk, "6.1", found) is None
    assert found.blacklist == {"nouveau"}
    assert found.install == {"nvidia": "modprobe -i nvidia-current"}


@pytest.mark.parametrize("line", ["blacklist nvidia", "install nvidia /bin/false"])
def test_a_forbidden_module_does_not_load(tmp_path: Path, line: str) -> None:
    (tmp_path / "lib/modules/6.1").mkdir(parents=True)
    (tmp_path / "lib/modules/6.1/nvidia.ko").touch()
    with within.Disk(tmp_path) as disk:
        assert modprobe.nvidia_module(disk, "6.1", modprobe.parse([line])) is None


@pytest.mark.parametrize(
    ("releases", "newest"),
    [
        ((), ""),
        (("6.1.0-9-cloud-amd64", "6.1.0-10-cloud-amd64"), "6.1.0-10-cloud-amd64"),
        (("6.12.99+deb13-amd64", "6.12.117+deb13-amd64"), "6.12.117+deb13-amd64"),
    ],
)
def test_newest_kernel(tmp_path: Path, releases: tuple[str, ...], newest: str) -> None:
    (tmp_path / "boot").mkdir()
    for release in releases:
        (tmp_path / f"boot/vmlinuz-{release}").touch()
    with within.Disk(tmp_path) as disk:
        assert boot.newest_kernel(disk) == newest


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a_b", "../x", "a" * 41, "a b"])
def test_names_that_no_machine_can_have(name: str) -> None:
    with pytest.raises(errors.SimError):
        store.folder(name)


def test_an_unknown_release_names_the_known_ones() -> None:
    with pytest.raises(errors.SimError) as caught:
        base.release("debian99")
    assert "debian12, debian13" in caught.value.hint


def test_mirrors_of_both_kinds_of_sources() -> None:
    new = "Types: deb\n# a remark\nURIs: http://a.example/debian\nSuites: trixie trixie-updates\nComponents: main\n\n"
    new += "Types: deb\nURIs: http://a.example/sec\nSuites: trixie-security\nComponents: main\n"
    old = (
        "deb [arch=amd64] https://other.example/apt stable stable\ndeb http://b.example/debian bookworm main non-free\n"
    )
    assert controller.find_mirrors(controller.parse_deb822(new)) == controller.Mirrors(
        "http://a.example/debian", "http://a.example/sec"
    )
    assert controller.find_mirrors(controller.parse_one_line(old)) == controller.Mirrors(
        "http://b.example/debian", None
    )
    assert controller.find_mirrors(controller.parse_deb822(new.replace("Types", "Enabled: no\nTypes"))) == (
        controller.Mirrors(None, None)
    )


def test_pip_settings_leave_local_folders_behind(tmp_path: Path) -> None:
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text(
        "[global]\nfind-links = /opt/wheels\nindex-url = https://mirror.example/simple\n"
        "extra-index-url = file:///opt/x https://b.example/simple\n"
    )
    found = controller.pip_settings({"HOME": str(tmp_path)})
    assert found["index-url"] == "https://mirror.example/simple"
    assert found["extra-index-url"] == "https://b.example/simple"
    assert "find-links" not in found


def test_proxies_in_lower_case() -> None:
    found = controller.proxies({"HTTPS_PROXY": "http://p.example:3128", "no_proxy": "localhost"})
    assert found["https_proxy"] == "http://p.example:3128"
    assert found["no_proxy"] == "localhost"
