"""The stub archives of RPM systems, as the real rpm, dnf, createrepo_c and modifyrepo_c make and read them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import rpmarchives
from canaryprogram import CANARY

from gpuprep import catalogue

pytestmark = pytest.mark.e2e


class Shop:
    """The archives of Enterprise Linux 9 in the build root, where dnf sees them."""

    def __init__(self, workshop: rpmarchives.Workshop) -> None:
        self.run, self.place = workshop.run, workshop.inside(workshop.folder)

    def dnf(self, *words: str) -> list[str]:
        options = [
            "--setopt=module_platform_id=platform:el9", "--releasever=9", "--setopt=reposdir=/nowhere", "--quiet",
            f"--setopt=cachedir={self.place}/cache", f"--setopt=persistdir={self.place}/state",
        ]  # fmt: skip
        for folder in rpmarchives.archives("rocky9"):
            options.append(f"--repofrompath={folder.replace('/', '-')},file://{self.place}/archives/{folder}")
        return self.run("dnf", *options, *words).split()


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    with rpmarchives.workshop(rpmarchives.built("rocky9"), "archives") as found:
        yield Shop(found)


def test_dnf_sees_every_package_of_the_archive(shop: Shop) -> None:
    form = "%{name}-%{epoch}:%{version}-%{release}.%{arch}"
    offered = shop.dnf("--setopt=*.module_hotfixes=true", "repoquery", "--available", "--queryformat", form)
    assert set(offered) == {package.nevra for package in rpmarchives.packages("rocky9")}


def test_dnf_sees_the_packages_of_the_default_stream(shop: Shop) -> None:
    offered = shop.dnf("repoquery", "--available", "--queryformat", "%{version}", "nvidia-driver-cuda")
    assert offered
    assert all(version.startswith("580.") for version in offered)  # of latest-dkms, not the newest there is


def test_the_packages_are_signed(shop: Shop) -> None:
    package = f"{shop.place}/archives/baseos/kernel-core-5.14.0-687.51.1.el9_8.x86_64.rpm"
    database = ("--dbpath", f"{shop.place}/rpmdb")
    shop.run("rpm", *database, "--import", f"{shop.place}/archives/key.asc")
    said = shop.run("rpm", *database, "--checksig", "--verbose", package)
    assert re.search(r"Signature, key ID \w+: OK", said)


def test_what_a_machine_has_from_the_beginning() -> None:
    root = rpmarchives.root("rocky9")
    with rpmarchives.workshop(root, "root") as found:
        inside = f"{found.inside(found.folder)}/root"
        names = found.run("rpm", "--root", inside, "--dbpath", "/var/lib/rpm", "-qa").split()
    assert "kernel-core-5.14.0-687.51.1.el9_8.x86_64" in names
    assert any(name.startswith("rocky-release-9.8") for name in names)
    assert not [name for name in names if name.startswith(("dkms", "gcc", "kernel-devel"))]
    assert [path.name for path in (root / "boot").glob("vmlinuz*")] == ["vmlinuz-5.14.0-687.51.1.el9_8.x86_64"]
    assert "enabled=0" in (root / "etc/yum.repos.d/rocky.repo").read_text().split("[crb]")[1]


def test_a_base_of_rpm_systems_shows_no_tools_of_debian() -> None:
    root = rpmarchives.machines_base("rocky9")
    shown = {path.name for folder in ("usr/bin", "usr/sbin") for path in (root / folder).iterdir()}
    assert not [name for name in shown if name.startswith(("apt", "dpkg"))]
    assert not {"dkms", "gcc", "make", "nasm", "clang"} & shown
    assert {"dnf", "yum", "rpm", "alternatives", "update-alternatives", "python3"} <= shown
    done = subprocess.run(["chroot", root, "alternatives", "--display", "awk"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "release"), [("rocky9", "rocky-9"), pytest.param("rocky8", "rocky-8", marks=pytest.mark.only_all)]
)
def test_the_canary_finds_all_that_the_catalogue_says(name: str, release: str, tmp_path: Path) -> None:
    folder = rpmarchives.built(name)
    address = (folder / rpmarchives.nvidias(name)).as_uri()
    root = CANARY.RpmRoot(tmp_path, address, folder / "key.asc", "", "")
    assert root.update() == ""
    assert CANARY.lacking(root, catalogue.archives()[release], "nvidia") == []
