"""Which driver version is the wished one, and which of an archive's is taken: the plan and the role decide alike."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jinja2.nativetypes import NativeEnvironment
from places import COLLECTION
from programfile import module_of
from systemprofiles import planned_driver

from gpuprep import catalogue
from gpuprep.catalogue import roles

VARS = COLLECTION / "roles/gpu_driver/vars"
FLAVOURS = ("proprietary", "open")
ROLE = module_of(COLLECTION / "plugins/filter/driver.py")

# ---------------------------------------------------------------- is this version the wished one?

numbers = st.sampled_from(["0", "1", "01", "5", "53", "163", "535", "550", "5501", "٥٥٠", "", "x", "99999999999"])
dotted = st.lists(numbers, min_size=1, max_size=4).map(".".join)
versions = st.one_of(dotted, st.text(alphabet="0159.:-+~ \n٥x", max_size=12))
revisions = st.sampled_from(["", "-1", "-0+deb12u1", "-0ubuntu0.22.04.1", "-1-2"])
epochs = st.sampled_from(["", "0:", "1:", "12:"])


@given(versions.filter(catalogue.is_version), dotted | versions, epochs, revisions)
def test_a_packages_epoch_and_revision_are_no_part_of_it(version: str, wish: str, epoch: str, revision: str) -> None:
    assert catalogue.upstream(f"{epoch}{version}{revision}") == version
    offered = ROLE.driver_offered([f"libcuda1 | {epoch}{version}{revision}"], ["libcuda1"], wish)
    assert bool(offered) == catalogue.matches(version, wish)


def test_a_version_that_is_none_is_no_offer() -> None:
    lines = ["libcuda1 | 550.163.01+really-1 | trixie/non-free", "libcuda1 | 550.90.07-1 | trixie/non-free"]
    assert ROLE.driver_offered(lines, ["libcuda1"], "550") == {"libcuda1": "550.90.07-1"}


# ---------------------------------------------------------------- which version of an archive is taken?

parts = st.sampled_from([0, 1, 3, 54, 90, 163, 261, 309])
upstreams = st.builds("{}.{}.{:02}".format, st.sampled_from([535, 550, 580]), parts, parts)
offers = st.lists(
    st.builds(catalogue.ArchiveDriver, upstreams, st.lists(st.sampled_from(FLAVOURS), unique=True).map(tuple)),
    min_size=1,
    max_size=6,
    unique_by=lambda driver: catalogue.parse(driver.version),
).map(lambda drivers: sorted(drivers, key=lambda driver: catalogue.parse(driver.version), reverse=True))


def release_of(drivers: Sequence[catalogue.ArchiveDriver]) -> catalogue.OsRelease:
    sources = {"distribution": catalogue.Archive(tuple(drivers), ("12.4",))}
    return catalogue.OsRelease("debian-13", "Debian 13", ("x86_64",), sources, "Debian-13")


def madison(drivers: Sequence[catalogue.ArchiveDriver], packages: Sequence[str], flavour: str) -> list[str]:
    """What `apt-cache madison` prints of that archive: libraries of each version, kernel modules where it has them."""
    return [
        f" {package} | {driver.version}-1 | trixie/non-free"
        for package in packages
        for driver in drivers
        if "kernel" not in package or flavour in driver.modules
    ]


def both_choose(release: catalogue.OsRelease, wish: str, flavour: str) -> tuple[str | None, str | None]:
    """(what the plan says, what the role installs); the role is told the branch that the plan chose for `auto`."""
    planned = planned_driver(release, wish, flavour)
    told = wish if wish != "auto" else str(catalogue.branch(planned)) if planned else "no branch"
    packages = [
        name for name in roles.driver_packages(release, "distribution", flavour, "550") if name not in OWN_VERSION
    ]
    lines = madison(release.sources["distribution"].drivers, packages, flavour)
    offered = ROLE.driver_offered(lines, packages, told)
    assert set(offered) in (set(), set(packages))
    return planned, next((catalogue.upstream(version) for version in offered.values()), None)


OWN_VERSION = ("nvidia-modprobe", "nvidia-persistenced")


@given(offers, st.one_of(st.just("auto"), upstreams, st.sampled_from(["535", "550", "580", "590"])), st.data())
def test_plan_and_role_take_the_same_version(
    drivers: list[catalogue.ArchiveDriver], wish: str, data: st.DataObject
) -> None:
    flavour = data.draw(st.sampled_from(FLAVOURS))
    exact = data.draw(st.sampled_from([wish, *(driver.version for driver in drivers)]))
    planned, installed = both_choose(release_of(drivers), exact, flavour)
    if exact in {driver.version for driver in drivers} or len(exact.split(".")) < 3:
        assert planned == installed
    else:  # what the catalogue lacks is taken at the word of the user; the role stops where it is not offered
        assert planned in (exact, None)
        assert installed is None


@pytest.mark.parametrize("key", sorted(key for key, r in catalogue.archives().items() if "distribution" in r.sources))
def test_plan_and_role_take_the_same_of_todays_archives(key: str) -> None:
    release = catalogue.archives()[key]
    drivers = release.sources["distribution"].drivers
    flavour = drivers[0].modules[0]  # AlmaLinux has open ones alone
    for wish in ("auto", str(catalogue.branch(drivers[0].version)), *(driver.version for driver in drivers)):
        planned, installed = both_choose(release, wish, flavour)
        assert planned == installed is not None


@pytest.mark.parametrize("key", sorted(catalogue.archives()))
def test_without_a_wish_plan_and_role_take_the_same_branch(key: str) -> None:
    release = catalogue.archives()[key]
    variables = yaml.safe_load((VARS / f"{release.roles}.yml").read_text(encoding="utf-8"))
    planned = {source: offer.auto or offer.drivers[0].version for source, offer in release.sources.items()}
    branches = variables["gpu_driver_branches"]
    assert {source: branches.get(source) for source in planned} == {
        source: str(catalogue.branch(version)) for source, version in planned.items()
    }
    kin = [one.sources for one in catalogue.archives().values() if one.roles == release.roles]
    assert branches.keys() == {source for sources in kin for source in sources}


# ---------------------------------------------------------------- which packages belong to a branch?


@pytest.mark.parametrize("key", sorted(catalogue.archives()))
def test_each_branch_has_its_own_names(key: str) -> None:
    release = catalogue.archives()[key]
    for source, offer in release.sources.items():
        for driver in offer.drivers:
            fabric = roles.fabric_packages(release, source, driver.version)
            for flavour in driver.modules:
                names = (*roles.driver_packages(release, source, flavour, driver.version), *fabric)
                assert len(names) > 5
                assert not [name for name in names if "{" in name]


def test_every_package_of_every_branch_is_known_as_a_drivers() -> None:
    variables = yaml.safe_load((VARS / "Ubuntu.yml").read_text(encoding="utf-8"))
    names = ROLE.driver_names(variables["gpu_driver_sources"])
    for name in ("nvidia-dkms-570-open", "nvidia-dkms-580-server", "nvidia-dkms-open", "libnvidia-compute-550"):
        assert name in names


def test_what_others_call_a_part_of_a_driver_is_known_as_one() -> None:
    """A change of the driver may remove it. What needs a driver and is none stays."""
    parts = yaml.safe_load((VARS / "main.yml").read_text(encoding="utf-8"))["gpu_driver_parts"]
    known = re.compile(NativeEnvironment().from_string(parts).render())
    for name in (
        "linux-modules-nvidia-580-server-open-6.8.0-1063-azure",
        "linux-modules-nvidia-580-server-azure",
        "linux-objects-nvidia-580-server-6.8.0-1063-azure",
        "linux-signatures-nvidia-6.8.0-1063-azure",
        "libcudadebugger1",
        "libgl1-nvidia-glvnd-glx",
        "libgles-nvidia2",
        "libegl-nvidia0",
        "kmod-nvidia-open-dkms",
        "nvidia-headless-no-dkms-580-server",
    ):
        assert known.match(name), name
    for name in (
        "linux-modules-6.8.0-1063-azure",
        "linux-image-azure",
        "own-renderer",
        "libgl1",
        "libcuda1-tools",
        "dkms",
    ):
        assert not known.match(name), name


def test_firmware_of_another_driver_is_left_over_and_its_own_is_not() -> None:
    """Ubuntu's firmware packages have the version in their names, and nothing conflicts with them."""
    there = {
        "nvidia-firmware-580-server-580.173.02": "580.173.02-0ubuntu0.24.04.1",
        "nvidia-firmware-580": "580.178.04-1ubuntu1",
        "nvidia-firmware-550-580.178.04": "580.178.04-0ubuntu1",
        "libnvidia-compute-580": "580.173.02-1",
    }
    left = ROLE.driver_old_firmware(there, ["nvidia-firmware-580"], "580.178.04")
    assert left == ["nvidia-firmware-580-server-580.173.02"]


def test_what_apt_would_remove_and_move_is_read_from_its_own_words() -> None:
    simulation = ["Remv nvidia-dkms-570 [570.211.01-0ubuntu1]", "Inst nvidia-dkms-580 (580.178.04-1ubuntu1 )", "Conf x"]
    assert ROLE.driver_removals(simulation) == ["nvidia-dkms-570"]
    policy = """\
libcuda1:
  Installed: 580.95.05-1
  Candidate: 615.71.09-1
  Version table:
nvidia-smi:
  Installed: 580.95.05-1
  Candidate: 580.95.05-1
absent:
  Installed: (none)
  Candidate: 1
""".splitlines()
    assert ROLE.driver_moves(policy) == ["libcuda1 from 580.95.05-1 to 615.71.09-1"]


def test_held_packages_that_apt_would_change_are_read() -> None:
    simulation = [
        "The following NEW packages will be installed:",
        "  nvidia-dkms-580-open",
        "The following held packages will be changed:",
        "  dkms",
        "  libc6-dev linux-libc-dev",
        "1 upgraded, 3 newly installed, 0 to remove and 2 not upgraded.",
        "Inst dkms (3.0.11 Ubuntu)",
    ]
    assert ROLE.driver_apt_held(simulation) == ["dkms", "libc6-dev", "linux-libc-dev"]
    assert ROLE.driver_apt_held(simulation[:2]) == []


TRANSACTION = """\
Dependencies resolved.
================================================================================
 Package                 Arch    Version              Repository           Size
================================================================================
Installing:
 kmod-nvidia-open-dkms   noarch  3:580.178.04-1.el9   gpuprep-nvidia       10 M
     replacing  kmod-nvidia-latest-dkms.noarch 3:580.95.05-1.el9
Upgrading:
 a-package-with-a-name-that-is-long-enough
                         x86_64  2.0-1.el9            baseos               10 k
Installing dependencies:
 dkms                    noarch  3.2.1-1.el9          epel                 80 k
Removing unused dependencies:
 libnvidia-gpucomp       x86_64  3:570.211.01-1.el9   @gpuprep-nvidia      10 M

Transaction Summary
================================================================================
Install  2 Packages
"""


@pytest.mark.parametrize(
    ("lock", "in_the_way"),
    [
        ("dkms-0:3.0.13-1.el9.*", True),
        ("dkms-0:3.2.1-1.el9.*", False),
        ("dkms-3.0.13-1.el9", True),
        ("dkms", False),  # any version
        ("dkms-extras-0:1-1.*", False),
        ("!dkms-0:3.2.1-1.el9.*", True),
        ("!dkms-0:3.0.13-1.el9.*", False),
        ("dk*-0:3.0.13-*.*", True),
        ("a-package-with-a-name-that-is-long-enough-0:1.0-1.el9.*", True),
        ("kmod-nvidia-open-dkms-3:580.178.04-1.el9.*", False),
        ("libnvidia-gpucomp-3:570.211.01-1.el9.*", True),  # it would be removed
        ("kernel-0:5.14.0-570.el9.*", False),
    ],
)
def test_locks_that_a_transaction_of_dnf_does_not_keep_to(lock: str, in_the_way: bool) -> None:
    assert ROLE.driver_locks_in_the_way(TRANSACTION.splitlines(), [lock]) == [lock] * in_the_way


def test_what_dnf_would_remove_is_read() -> None:
    assert ROLE.driver_dnf_removals(TRANSACTION.splitlines()) == ["libnvidia-gpucomp"]
