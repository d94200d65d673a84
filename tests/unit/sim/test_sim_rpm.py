"""The stub archives of RPM systems: what the data say. What the real rpm and dnf make of them: tests/machines."""

from __future__ import annotations

import pytest
import rpmarchives
import yaml
from places import COLLECTION
from rpmarchives import RPM_SYSTEMS, SYSTEMS, archives, inside, packages, streams

from gpuprep import catalogue
from gpuprep.catalogue import roles

# One of each: its kin are one system to the roles. AlmaLinux 10 has a driver of its own besides.
ALMA = catalogue.archives()["almalinux-10"]
RELEASES = [*{one.roles: one for one in reversed(list(catalogue.archives().values())) if one.rpm}.values(), ALMA]
EACH = [*SYSTEMS.values(), "almalinux10"]
# Where each source of a system lies in the stub archives; the others are the system's own repositories.
FOLDERS = {"nvidia": ("nvidia/",), "distribution": ("amazonlinux-nvidia", "almalinux-nvidia")}


@pytest.mark.parametrize("os_name", EACH)
def test_whatever_a_package_requires_is_there(os_name: str) -> None:
    found = packages(os_name)
    there = {rpmarchives.release_package(os_name), *(package.name for package in found)}
    there |= {word.split(" ")[0] for package in found for word in package.provides}
    wanted = {word.split(" ")[0] for package in found for word in package.requires if word[0] != "("}
    assert wanted - there == set()


def test_each_release_with_rpm_packages_has_stub_archives() -> None:
    assert {release.roles for release in RELEASES} == set(SYSTEMS)


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.key)
def test_a_machine_has_each_driver_that_its_plan_can_choose(release: catalogue.OsRelease) -> None:
    """In one version with Fabric Manager, in the stream that the role enables, and each toolkit."""
    os_name = "almalinux10" if release is ALMA else SYSTEMS[release.roles]
    for source, offer in release.sources.items():
        folders = [found for folder, found in archives(os_name).items() if folder.startswith(FOLDERS[source])]
        there = {(package.name, package.upstream) for found in folders for package in found}
        for driver in offer.drivers:
            fabric = {(part, driver.version) for part in roles.fabric_packages(release, source, driver.version)}
            has_it = catalogue.has_fabric_manager(release.key.rpartition("-")[0], source) and driver.fabric_manager
            assert (fabric <= there) == has_it, (source, driver.version)
            for flavour in driver.modules:
                full = "full" if roles.has_full_libraries(release, source, driver.version) else "compute"
                parts = roles.driver_packages(release, source, flavour, driver.version, libraries=full)
                assert {(part, driver.version) for part in parts} <= there, (source, driver.version)
                stream = roles.driver_stream(release, source, flavour, driver.version)
                assert bool(stream) == (source == "nvidia" and release.roles != "EL-10")
                assert not stream or stream in streams(os_name)
        for version in offer.cuda:
            assert set(roles.cuda_packages(release, source, version)) <= {name for name, _ in there}, (source, version)


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_package_that_a_role_installs_is_a_name_that_rpm_does_not_know(system: str) -> None:
    """No package of Enterprise Linux 8 is named `python3`: rpm says that it is absent, and each run installs it."""
    there = {package.name for package in packages(SYSTEMS[system])}
    preflight = yaml.safe_load((COLLECTION / f"roles/gpu_preflight/vars/{system}.yml").read_text())
    wanted = {*preflight["gpu_preflight_python_packages"], *preflight["gpu_preflight_hold_packages"]}
    wanted |= {name for tool in ("python3", "gcc", "tmux") for name in catalogue.tools(rpm=True)[tool].packages}
    assert wanted <= there


@pytest.mark.parametrize("os_name", EACH)
def test_whatever_a_toolkit_requires_is_there_in_that_version(os_name: str) -> None:
    """cuda-toolkit-13-0 wants its parts in 13.0.2 or newer."""
    for folder, found in archives(os_name).items():
        there: dict[str, list[tuple[int, ...]]] = {}
        for package in found:
            there.setdefault(package.name, []).append(numbers(package.upstream))
        wanted = {word for package in found if package.name.startswith("cuda-") for word in package.requires}
        for name, _, least in (word.split(" ") for word in wanted if " >= " in word):
            assert max(there[name]) >= numbers(least), (folder, name, least)


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def test_almalinuxs_own_driver_has_modules_for_the_kernel_that_runs_and_rocky_linux_has_it_not() -> None:
    found = archives("almalinux10")
    *_, kernel = (one.nevra for one in found["baseos"] if one.name == "kernel-core")
    modules = {one.name: one.requires for one in found["almalinux-nvidia"] if "kmod" in one.name}
    assert not [name for name in modules if "dkms" in name]
    assert f"kernel-core-uname-r = {kernel.removeprefix('kernel-core-0:')}" in modules["kmod-nvidia-open"]
    assert "almalinux-nvidia" not in archives("rocky10")


def test_a_stream_has_its_own_module_in_the_newest_version_alone() -> None:
    found = streams("rocky9")
    assert {"580", "580-dkms", "580-open", "570-open", "550-dkms", "latest-dkms", "open-dkms"} <= found.keys()
    modules = {name for name in found["580-open"] if name.startswith("kmod")}
    assert modules == {"kmod-nvidia-open-dkms-3:580.178.04-1.el9.noarch"}
    assert "nvidia-driver-cuda-3:580.95.05-1.el9.x86_64" in found["580-open"]
    assert not [name for name in found["580-open"] if "570." in name]
    assert all("dnf-plugin-nvidia-0:2.2-1.el9.noarch" in names for names in found.values())
    assert not any(stream.startswith("550") for stream in streams("amzn2023"))


def test_no_two_packages_of_a_spec_file_have_one_name_or_one_file() -> None:
    made = rpmarchives.batches("rocky9")
    assert sum(made) == len(packages("rocky9"))
    assert len(made) < 12  # each is a process of seconds
    both = [(f"kmod-nvidia-{kind}-dkms", "3:580.178.04-1.el9") for kind in ("open", "latest")]
    assert rpmarchives.batches_of(*both) == 2  # both are nvidia/580.178.04 for DKMS


@pytest.mark.parametrize(
    ("name", "version", "source"),
    [
        ("kmod-nvidia-open-dkms", "3:570.211.01-1.el9", "nvidia-open-570.211.01"),
        ("kmod-nvidia-open-dkms", "3:580.178.04-1.el9", "nvidia-580.178.04"),
        ("kmod-nvidia-latest-dkms", "3:570.211.01-1.el9", "nvidia-570.211.01"),
    ],
)
def test_dkms_knows_the_module_by_its_real_name(name: str, version: str, source: str) -> None:
    content = inside(name, version)
    assert f"usr/src/{source}/dkms.conf" in content.texts
    lines = content.scripts["post"].splitlines()
    assert lines
    assert all(line.endswith("|| :") for line in lines)  # a failed build is no error, as in NVIDIA's


def test_a_program_comes_with_its_package_alone() -> None:
    links = [link for name in ("clang", "dkms", "gcc", "gcc-c++", "make", "nasm") for link in inside(name, "1-1").links]
    assert len(links) == len(set(links))
    assert "usr/sbin/dkms" in inside("dkms", "3.2.2-1.el9").links
    nothing = inside("libvdpau", "1.0-1.el9", "x86_64")
    assert (nothing.texts, nothing.libraries, nothing.links) == ({}, {}, {})


@pytest.mark.parametrize("os_name", RPM_SYSTEMS)
def test_a_system_says_what_it_is(os_name: str) -> None:
    text = rpmarchives.os_release(os_name)
    assert "\nID=" in f"\n{text}"
    assert "(simulated)" in text
    ids, disabled, folders = rpmarchives.repositories(os_name)
    assert disabled <= ids
    assert folders <= set(archives(os_name))
