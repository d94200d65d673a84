"""The stub archives of RPM systems: what the data say, and what the real rpm and dnf make of them in the build root."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from canaryprogram import CANARY

from gpuprep import catalogue
from gpuprep.catalogue import agent, roles
from gpuprep.sim import base, boot, rpmbase, rpmpresented, rpmrepository, within
from gpuprep.sim.archive import payload, rpmmodules, rpmpayload, rpmspec, stubs, systems

NVIDIA = {"el9": "rhel9", "el8": "rhel8", "amzn2023": "amzn2023"}
# One of each: its kin are one system to the roles.
RELEASES = list({one.roles: one for one in reversed(list(catalogue.archives().values())) if one.rpm}.values())
EL9 = stubs.rpm_archives("el9", "rhel9")


@cache
def every(dist: str) -> dict[stubs.Archive, list[stubs.Stub]]:
    return {archive: list(stubs.stubs(archive)) for archive in stubs.rpm_archives(dist, NVIDIA[dist])}


@cache
def streams(dist: str) -> dict[str, set[str]]:
    """Module stream ► its packages."""
    archive = stubs.rpm_archives(dist, NVIDIA[dist])[0]
    documents = yaml.safe_load_all(rpmmodules.modules(archive, every(dist)[archive]))
    data = [document["data"] for document in documents if document["document"] == "modulemd"]
    return {entry["stream"]: set(entry["artifacts"]["rpms"]) for entry in data}


@pytest.mark.parametrize("dist", NVIDIA)
def test_whatever_a_package_requires_is_there(dist: str) -> None:
    found = [stub for packages in every(dist).values() for stub in packages]
    release = next(system.release.package for system in systems.rpm_systems().values() if system.dist == dist)
    there = {release, *(stub.name for stub in found)}
    there |= {word.split(" ")[0] for stub in found for word in stub.relations.get("provides", ())}
    wanted = {word.split(" ")[0] for stub in found for word in stub.relations.get("depends", ()) if word[0] != "("}
    assert wanted - there == set()


SYSTEMS = {"EL-9": ("el9", "rhel9"), "EL-8": ("el8", "rhel8"), "Amazon-2023": ("amzn2023", "amzn2023")}


def test_each_release_with_rpm_packages_has_stub_archives() -> None:
    assert {release.roles for release in RELEASES} == set(SYSTEMS)
    assert dict(SYSTEMS.values()) == NVIDIA


# Where each source of a system lies in the stub archives; the others are the system's own repositories.
FOLDERS = {"nvidia": "nvidia/", "distribution": "amazonlinux-nvidia"}


def offered(release: catalogue.OsRelease, source: str) -> set[tuple[str, str]]:
    """(name, upstream version) of every stub of a source."""
    found = every(SYSTEMS[release.roles][0]).items()
    return {
        (stub.name, stub.upstream)
        for archive, packages in found
        for stub in packages
        if archive.folder.startswith(FOLDERS[source])
    }


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.key)
def test_a_machine_has_each_driver_that_its_plan_can_choose(release: catalogue.OsRelease) -> None:
    """In one version with Fabric Manager, in the stream that the role enables, and each toolkit."""
    for source, offer in release.sources.items():
        there = offered(release, source)
        names = {name for name, _ in there}
        for driver in offer.drivers:
            fabric = {(part, driver.version) for part in roles.fabric_packages(release, source, driver.version)}
            assert (fabric <= there) == driver.fabric_manager, (source, driver.version)
            for flavour in driver.modules:
                full = "full" if roles.has_full_libraries(release, source, driver.version) else "compute"
                parts = roles.driver_packages(release, source, flavour, driver.version, libraries=full)
                assert {(part, driver.version) for part in parts} <= there, (source, driver.version)
                stream = roles.driver_stream(release, source, flavour, driver.version)
                assert bool(stream) == (source == "nvidia")
                assert not stream or stream in streams(SYSTEMS[release.roles][0])
        for version in offer.cuda:
            assert set(roles.cuda_packages(release, source, version)) <= names, (source, version)


@pytest.mark.parametrize("dist", NVIDIA)
def test_no_package_that_a_role_installs_is_a_name_that_rpm_does_not_know(dist: str) -> None:
    """No package of Enterprise Linux 8 is named `python3`: rpm says that it is absent, and each run installs it."""
    there = {stub.name for packages in every(dist).values() for stub in packages}
    system = next(system for system, (name, _) in SYSTEMS.items() if name == dist)
    preflight = yaml.safe_load((agent.role_folder("gpu_preflight") / f"vars/{system}.yml").read_text())
    wanted = {*preflight["gpu_preflight_python_packages"], *preflight["gpu_preflight_hold_packages"]}
    wanted |= {name for tool in ("python3", "gcc", "tmux") for name in catalogue.tools(rpm=True)[tool].packages}
    assert wanted <= there


@pytest.mark.parametrize("dist", NVIDIA)
def test_whatever_a_toolkit_requires_is_there_in_that_version(dist: str) -> None:
    """cuda-toolkit-13-0 wants its parts in 13.0.2 or newer."""
    for archive, found in every(dist).items():
        there: dict[str, list[tuple[int, ...]]] = {}
        for stub in found:
            there.setdefault(stub.name, []).append(numbers(stub.upstream))
        wanted = {word for stub in found if stub.name.startswith("cuda-") for word in stub.relations.get("depends", ())}
        for name, _, least in (word.split(" ") for word in wanted if " >= " in word):
            assert max(there[name]) >= numbers(least), (archive.folder, name, least)


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def test_a_stream_has_its_own_module_in_the_newest_version_alone() -> None:
    found = streams("el9")
    assert {"580", "580-dkms", "580-open", "570-open", "550-dkms", "latest-dkms", "open-dkms"} <= found.keys()
    modules = {name for name in found["580-open"] if name.startswith("kmod")}
    assert modules == {"kmod-nvidia-open-dkms-3:580.178.04-1.el9.noarch"}
    assert "nvidia-driver-cuda-3:580.95.05-1.el9.x86_64" in found["580-open"]
    assert not [name for name in found["580-open"] if "570." in name]
    assert all("dnf-plugin-nvidia-0:2.2-1.el9.noarch" in names for names in found.values())
    assert not any(stream.startswith("550") for stream in streams("amzn2023"))


def test_no_two_packages_of_a_spec_file_have_one_name_or_one_file() -> None:
    packages = [stub for found in every("el9").values() for stub in found]
    batches = rpmspec.batches((stub, rpmpayload.rpm_payload(stub)) for stub in packages)
    assert sum(len(batch.packages) for batch in batches) == len(packages)
    assert len(batches) < 12  # each is a process of seconds
    open_one, closed_one = (
        stubs.Stub(name, "3:580.178.04-1.el9", "noarch", {})
        for name in ("kmod-nvidia-open-dkms", "kmod-nvidia-latest-dkms")
    )
    both = rpmspec.batches((stub, rpmpayload.rpm_payload(stub)) for stub in (open_one, closed_one))
    assert len(both) == 2  # both are nvidia/580.178.04 for DKMS


@pytest.mark.parametrize(
    ("name", "version", "source"),
    [
        ("kmod-nvidia-open-dkms", "3:570.211.01-1.el9", "nvidia-open-570.211.01"),
        ("kmod-nvidia-open-dkms", "3:580.178.04-1.el9", "nvidia-580.178.04"),
        ("kmod-nvidia-latest-dkms", "3:570.211.01-1.el9", "nvidia-570.211.01"),
    ],
)
def test_dkms_knows_the_module_by_its_real_name(name: str, version: str, source: str) -> None:
    content = rpmpayload.rpm_payload(stubs.Stub(name, version, "noarch", {}))
    assert f"usr/src/{source}/dkms.conf" in content.texts
    lines = content.scripts["post"].splitlines()
    assert lines
    assert all(line.endswith("|| :") for line in lines)  # a failed build is no error, as in NVIDIA's


def test_names_and_versions() -> None:
    stub = stubs.Stub("nvidia-open", "3:580.95.05-1.el9", "noarch", {})
    assert stub.upstream == "580.95.05"
    assert rpmspec.nevra(stub) == "nvidia-open-3:580.95.05-1.el9.noarch"
    assert rpmspec.file_name(stub) == "nvidia-open-580.95.05-1.el9.noarch.rpm"
    assert rpmspec.evr("2.2-1.el9") == ("0", "2.2", "1.el9")


@pytest.mark.parametrize("os_name", systems.rpm_systems())
def test_a_system_says_what_it_is(os_name: str) -> None:
    system = systems.rpm_systems()[os_name]
    text = rpmpresented.os_release(system)
    assert f'ID="{system.os_release["ID"]}"' in text
    assert "(simulated)" in text
    ids = [name for entries in system.repositories.values() for name in entries]
    assert set(system.disabled) <= set(ids)
    folders = {archive.folder for archive in stubs.rpm_archives(system.dist, system.nvidia)}
    assert {folder for entries in system.repositories.values() for folder in entries.values()} <= folders
    assert base.release(os_name) == "bookworm"


def test_other_bases_are_the_ones_they_were() -> None:
    """A base of Debian's own machines is not made again because there are RPM systems."""
    assert "dnf" in rpmbase.packages(base.PACKAGES)
    assert "rpm" not in base._recipe("bookworm", base.PACKAGES)


def test_the_kernel_that_was_chosen_starts(tmp_path: Path) -> None:
    (tmp_path / "boot/grub2").mkdir(parents=True)
    for release in ("5.14.0-687.51.1.el9_8.x86_64", "5.14.0-687.54.1.el9_8.x86_64"):
        (tmp_path / f"boot/vmlinuz-{release}").touch()
    chosen = tmp_path / "boot/grub2/grubenv"
    for text, expected in {
        "saved_entry=5.14.0-687.51.1.el9_8.x86_64\n": "5.14.0-687.51.1.el9_8.x86_64",
        "saved_entry=gone\n": "",
        "saved_entry=../../etc/passwd\n": "",
        "": "",
    }.items():
        chosen.write_text(text)
        with within.Disk(tmp_path) as disk:
            assert boot.chosen_kernel(disk) == expected
            assert boot.newest_kernel(disk) == "5.14.0-687.54.1.el9_8.x86_64"


def test_a_program_comes_with_its_package_alone() -> None:
    paths = [path for found in rpmpayload.PROGRAMS.values() for path in found]
    assert len(paths) == len(set(paths))
    assert "usr/sbin/dkms" in rpmpayload.rpm_payload(stubs.Stub("dkms", "3.2.2-1.el9", "noarch", {})).links
    assert rpmpayload.rpm_payload(stubs.Stub("libvdpau", "1.0-1.el9", "x86_64", {})) == payload.Payload()


@pytest.fixture(scope="module")
def shop() -> Iterator[rpmrepository.Workshop]:
    """The archives of Enterprise Linux 9 in the build root, where dnf sees them."""
    with rpmrepository.Workshop() as found:
        shutil.copytree(rpmpresented.archives("rocky9"), found.folder / "archives")
        yield found


def dnf(shop: rpmrepository.Workshop, *words: str) -> list[str]:
    options = ["--setopt=module_platform_id=platform:el9", "--releasever=9", f"--setopt=cachedir={place(shop)}/cache"]
    options += [f"--setopt=persistdir={place(shop)}/state", "--setopt=reposdir=/nowhere", "--quiet"]
    for archive in EL9:
        options += [f"--repofrompath={archive.folder.replace('/', '-')},file://{place(shop)}/archives/{archive.folder}"]
    return shop.run("dnf", *options, *words).split()


def place(shop: rpmrepository.Workshop) -> str:
    return shop.inside(shop.folder)


@pytest.mark.e2e
def test_dnf_sees_every_package_of_the_archive(shop: rpmrepository.Workshop) -> None:
    form = "%{name}-%{epoch}:%{version}-%{release}.%{arch}"
    offered = dnf(shop, "--setopt=*.module_hotfixes=true", "repoquery", "--available", "--queryformat", form)
    wanted = {rpmspec.nevra(stub) for archive in EL9 for stub in stubs.stubs(archive)}
    assert set(offered) == wanted


@pytest.mark.e2e
def test_dnf_sees_the_packages_of_the_default_stream(shop: rpmrepository.Workshop) -> None:
    offered = dnf(shop, "repoquery", "--available", "--queryformat", "%{version}", "nvidia-driver-cuda")
    assert offered
    assert all(version.startswith("580.") for version in offered)  # of latest-dkms, not the newest there is


@pytest.mark.e2e
def test_the_packages_are_signed(shop: rpmrepository.Workshop) -> None:
    package = f"{place(shop)}/archives/baseos/kernel-core-5.14.0-687.51.1.el9_8.x86_64.rpm"
    database = ("--dbpath", f"{place(shop)}/rpmdb")
    shop.run("rpm", *database, "--import", f"{place(shop)}/archives/key.asc")
    said = shop.run("rpm", *database, "--checksig", "--verbose", package)
    assert re.search(r"Signature, key ID \w+: OK", said)


@pytest.mark.e2e
def test_what_a_machine_has_from_the_beginning() -> None:
    root = rpmpresented.system("rocky9")
    with rpmrepository.Workshop() as found:
        shutil.copytree(root, found.folder / "root", symlinks=True)
        names = found.run("rpm", "--root", f"{place(found)}/root", "--dbpath", "/var/lib/rpm", "-qa").split()
    assert "kernel-core-5.14.0-687.51.1.el9_8.x86_64" in names
    assert any(name.startswith("rocky-release-9.8") for name in names)
    assert not [name for name in names if name.startswith(("dkms", "gcc", "kernel-devel"))]
    assert [path.name for path in (root / "boot").glob("vmlinuz*")] == ["vmlinuz-5.14.0-687.51.1.el9_8.x86_64"]
    assert "enabled=0" in (root / "etc/yum.repos.d/rocky.repo").read_text().split("[crb]")[1]


@pytest.mark.e2e
def test_a_base_of_rpm_systems_shows_no_tools_of_debian() -> None:
    root = base.ensure("rocky9")
    shown = {path.name for folder in ("usr/bin", "usr/sbin") for path in (root / folder).iterdir()}
    assert not [name for name in shown if name.startswith(("apt", "dpkg"))]
    assert not {"dkms", "gcc", "make", "nasm", "clang"} & shown
    assert {"dnf", "yum", "rpm", "alternatives", "update-alternatives", "python3"} <= shown
    done = subprocess.run(["chroot", root, "alternatives", "--display", "awk"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.e2e
@pytest.mark.parametrize("name", ["rocky9", pytest.param("rocky8", marks=pytest.mark.only_all)])
def test_the_canary_finds_all_that_the_catalogue_says(name: str, tmp_path: Path) -> None:
    """In a repository that the real createrepo_c and modifyrepo_c made."""
    folder = rpmpresented.archives(name)
    address = (folder / f"nvidia/{systems.rpm_systems()[name].nvidia}/x86_64").as_uri()
    root = CANARY.RpmRoot(tmp_path, address, folder / "key.asc", "", "")
    assert root.update() == ""
    assert CANARY.lacking(root, catalogue.archives()[name[:-1] + "-" + name[-1]], "nvidia") == []
