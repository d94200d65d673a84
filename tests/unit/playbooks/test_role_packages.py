"""The packages that the roles install and hold are those that gpuprep checks and holds again: Ansible says which."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import bare_snapshot, finished_snapshot, load
from rolevalues import ROLES, not_in_every_snapshot, played, printing, values

from gpuprep import catalogue, checks, records
from gpuprep.catalogue import roles
from gpuprep.checks import drift
from gpuprep.desired import state
from gpuprep.workflows import fixes

SYSTEMS = sorted(path.stem for path in (ROLES / "gpu_preflight" / "vars").glob("*.yml"))
DEBIANS = [system for system in SYSTEMS if system.startswith("Debian-")]
FLAVOURS = ("proprietary", "open")
# Red Hat's system and those built from its sources are one system to the roles.
RELEASES = {release.roles: release for release in reversed(list(catalogue.archives().values()))}
OFFERED = [(system, source) for system, release in RELEASES.items() for source in release.sources]
# Role ► the file of its tasks that holds its packages.
HOLDING = {"gpu_driver": "hold.yml", "gpu_cuda": "toolkit.yml"}
# Held by the role from the first day; checks, drift and --fix had a list of their own without them.
NOT_SEEN_ONCE = ("libnvidia-pkcs11-openssl3", "nvidia-alternative", "nvidia-legacy-check")


def holds_of(role: str) -> str:
    """The template of what a role holds, from its own tasks."""
    tasks = yaml.safe_load((ROLES / role / "tasks" / HOLDING[role]).read_text(encoding="utf-8"))
    (hold,) = [task["vars"]["gpu_preflight_hold"] for task in tasks if "gpu_preflight_hold" in task.get("vars", {})]
    return str(hold)


def tasks_for(system: str, source: str, flavour: str) -> list[dict[str, Any]]:
    known = {"gpu_preflight_system": system, "gpu_driver_flavour": flavour, "gpu_driver_source": source}
    data = [
        {
            "name": f"Load {role}",
            "ansible.builtin.include_role": {"name": role, "tasks_from": "data", "public": True},
            "vars": known,
        }
        for role in HOLDING
    ]
    templates = {f"{role}_holds": holds_of(role) for role in HOLDING}
    names = ", ".join(f"'{role}': {role}_holds" for role in HOLDING)
    says = printing(f"{system}/{source}/{flavour}", f"{{{names}}}")
    return [*data, {"name": "Say what is held", "ansible.builtin.debug": says, "vars": {**known, **templates}}]


def held(folder: Path, offered: Sequence[tuple[str, str]], more: list[dict[str, Any]]) -> dict[str, Any]:
    """SYSTEM/SOURCE/FLAVOUR ► role ► what it holds; and what the other tasks print."""
    cases = [(system, source, flavour) for system, source in offered for flavour in FLAVOURS]
    facts = ("distribution", "distribution_version", "distribution_major_version", "kernel")
    variables = {
        "gpu_preflight_package_manager": "apt",
        "gpu_preflight_family": "Debian",
        "ansible_facts": dict.fromkeys(facts, ""),
    }
    return values(folder, variables, [*(task for case in cases for task in tasks_for(*case)), *more])


# A system of apt's and one of dnf's, for each run of the tests.
DAILY = [("Debian-13", "distribution"), ("EL-9", "nvidia")]


@pytest.fixture(scope="module")
def daily(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one run of Ansible says: of the holds of DAILY, of those of GIVEN, and of the headers of HEADERS."""
    return held(tmp_path_factory.mktemp("daily"), DAILY, [*given(), *headers()])


GIVEN = {
    "gpu_driver_version": "999",
    "gpu_driver_packages": ["cuda-drivers-999", "libcuda-999"],
    "gpu_driver_tool_packages": ["tool"],
    "gpu_cuda_packages": ["toolkit"],
}


def given() -> list[dict[str, Any]]:
    """What is held where somebody gives the packages by hand; before the others, whose data stays."""
    *data, says = tasks_for(*DAILY[0], "open")
    says["ansible.builtin.debug"] = printing("given", "{'gpu_driver': gpu_driver_holds, 'gpu_cuda': gpu_cuda_holds}")
    also = printing("others", "(gpu_driver_others + gpu_driver_replaced)")
    tasks = [*data, says, {**says, "ansible.builtin.debug": also}]
    return [{**task, "vars": {**task["vars"], **GIVEN}} for task in tasks]


def wanted(system: str, source: str = "distribution", flavour: str = "auto") -> state.Wanted:
    host = bare_snapshot(RELEASES[system].key.replace("-", "").replace(".", ""))
    return state.resolve(load("t4", driver={"source": source, "flavour": flavour}, cudnn={"version": "none"}), host)


def keys(findings: Sequence[records.Finding]) -> set[str]:
    return {finding.key for finding in findings if finding.status not in (records.Status.PASS, records.Status.SKIP)}


def test_the_catalogue_and_the_roles_serve_the_same_releases() -> None:
    assert sorted(RELEASES) == SYSTEMS


def holds_what_is_checked(system: str, source: str, said: dict[str, Any]) -> None:
    release = RELEASES[system]
    for flavour in FLAVOURS:
        by_role = said[f"{system}/{source}/{flavour}"]
        offer = release.sources[source]
        branch = offer.auto or offer.drivers[0].version
        assert by_role["gpu_driver"] == list(roles.driver_packages(release, source, flavour, branch))
        assert by_role["gpu_cuda"] == list(wanted(system, source).cuda.packages)
    wish = wanted(system, source)
    assert said[f"{system}/{source}/{wish.driver.flavour}"]["gpu_driver"] == list(wish.driver.packages)


@pytest.mark.parametrize(("system", "source"), DAILY)
def test_what_the_roles_hold_is_what_is_checked(system: str, source: str, daily: dict[str, Any]) -> None:
    holds_what_is_checked(system, source, daily)


def test_packages_that_are_given_are_those_that_are_held(daily: dict[str, Any]) -> None:
    assert daily["given"]["gpu_driver"] == ["cuda-drivers-999", "libcuda-999", "tool"]
    assert daily["given"]["gpu_cuda"] == ["toolkit"]
    assert {"nvidia-open-kernel-dkms", "nvidia-kernel-dkms"} <= set(daily["others"]), "which go"


@pytest.mark.machines
def test_what_the_roles_hold_is_what_is_checked_everywhere(tmp_path: Path) -> None:
    said = held(tmp_path, OFFERED, [])
    for system, source in OFFERED:
        holds_what_is_checked(system, source, said)


def test_what_debians_archive_has_is_named_in_full() -> None:
    for system in DEBIANS:
        wish = wanted(system)
        assert set(wish.driver.packages) >= {*NOT_SEEN_ONCE, "libcuda1"}
        assert len(wish.driver.packages) == 15


@pytest.mark.parametrize("system", DEBIANS)
@pytest.mark.parametrize("name", NOT_SEEN_ONCE)
def test_a_hold_that_only_the_role_knew_of_is_missed_and_put_back(system: str, name: str) -> None:
    wish = wanted(system)
    good = finished_snapshot(wish)
    assert keys(checks.compare(wish, good)) == set()
    free = dataclasses.replace(
        good, packages={**good.packages, name: dataclasses.replace(good.packages[name], held=False)}
    )
    (finding,) = [finding for finding in checks.compare(wish, free) if finding.status is records.Status.FAIL]
    assert (finding.key, finding.actual) == ("driver.held", f"not held: {name}")
    (planned,) = fixes.plan(wish, free, [finding])
    assert planned.command == f"apt-mark hold {name}"
    without = dataclasses.replace(good, packages={key: one for key, one in good.packages.items() if key != name})
    assert "driver.packages" in keys(checks.compare(wish, without))


@pytest.mark.only_all
def test_a_release_without_a_file_of_its_own_builds_ffmpeg_with_what_its_distribution_shares(tmp_path: Path) -> None:
    debians = [system for system, release in RELEASES.items() if not release.rpm]
    others = {"EL-9": "Rocky-9", "EL-8": "RedHat-8", "Amazon-2023": "Amazon-2023"}  # as Ansible names one of each
    assert sorted([*debians, *others]) == sorted(RELEASES)
    served, unknown = [*debians, "Debian-99", *others.values()], ["Plan9-4", "Fedora-42"]
    told = {
        "architecture": "x86_64",
        "distribution": "{{ inventory_hostname.split('-')[0] }}",
        "distribution_major_version": "{{ inventory_hostname.split('-')[1] }}",
        "distribution_version": "{{ inventory_hostname.split('-')[1] }}",
        "os_family": "any",
        "kernel": "6.8.0-1-generic",
        "python": {"executable": sys.executable},
    }
    play = {
        "vars": {"ansible_facts": told},
        "tasks": [
            {"ansible.builtin.include_role": {"name": "gpu_codec", "tasks_from": "facts"}},
            {"ansible.builtin.debug": printing(
                "{{ inventory_hostname }}", "[gpu_codec_build_packages, gpu_codec_packages, gpu_codec_npp_packages]"
            )},
        ],
    }  # fmt: skip
    done, found = played(tmp_path, play, ",".join([*served, *unknown]))
    assert sorted(found) == sorted(served), done.stdout
    assert all(found[system] == found["Debian-12"] for system in debians), done.stdout
    assert all("nasm" in packages and "clang" in packages for packages, _, _ in found.values()), done.stdout
    assert all(
        f"FFmpeg cannot be built on {system.replace('-', ' ')}: gpu_codec has no" in done.stdout for system in unknown
    )


# Kernel that runs, installed metas ► header packages: of this kernel, and of every kernel to come.
HEADERS = {
    ("6.8.0-1021-aws", "linux-image-aws"): ["linux-headers-6.8.0-1021-aws", "linux-headers-aws"],
    ("6.17.0-35-generic", "linux-image-generic-hwe-24.04"): [
        "linux-headers-6.17.0-35-generic", "linux-headers-generic-hwe-24.04",
    ],
    ("6.8.0-136-generic", "linux-image-virtual"): ["linux-headers-6.8.0-136-generic", "linux-headers-virtual"],
    ("6.8.0-1030-gcp", ""): ["linux-headers-6.8.0-1030-gcp", "linux-headers-gcp"],
    ("6.8.0-1031-azure", "linux-image-azure-lts-24.04"): [
        "linux-headers-6.8.0-1031-azure", "linux-headers-azure-lts-24.04",
    ],
}  # fmt: skip


def headers() -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = [{"ansible.builtin.include_vars": str(ROLES / "gpu_preflight/vars/Ubuntu-24.04.yml")}]
    for number, (kernel, meta) in enumerate(HEADERS):
        known = {"ansible_facts": {"kernel": kernel}, "gpu_preflight_kernel_metas": [meta] if meta else []}
        tasks.append({"ansible.builtin.debug": printing(f"headers/{number}", "gpu_preflight_headers"), "vars": known})
    return tasks


def test_ubuntus_headers_follow_the_kernels_that_the_machine_follows(daily: dict[str, Any]) -> None:
    assert {key: daily[f"headers/{number}"] for number, key in enumerate(HEADERS)} == HEADERS


def installed_by_roles() -> set[tuple[str, str]]:
    """(apt or dnf, name) of all that the roles install and hold of drivers and toolkits, whatever the profile asks."""
    names: set[tuple[str, str]] = set()
    for release in RELEASES.values():
        manager = "dnf" if release.rpm else "apt"
        for source, offer in release.sources.items():
            for version in (driver.version for driver in offer.drivers):
                for flavour, libraries in itertools.product(FLAVOURS, ("compute", "full")):
                    if libraries == "compute" or roles.has_full_libraries(release, source, version):
                        packages = roles.driver_packages(release, source, flavour, version, libraries=libraries)
                        names |= {(manager, name) for name in packages}
                names |= {(manager, name) for name in roles.fabric_packages(release, source, version)}
            for toolkit in offer.cuda:
                names |= {(manager, name) for name in roles.cuda_packages(release, source, toolkit)}
    return names


def test_what_the_roles_install_is_in_every_snapshot_and_is_known_as_theirs() -> None:
    """The libraries for displays on Debian were in none: a machine with all of them was said to lack some."""
    names = installed_by_roles()
    assert {("apt", "libegl-nvidia0"), ("dnf", "nvidia-driver-libs"), ("apt", "cuda-toolkit-12-8")} <= names
    for manager in ("apt", "dnf"):
        assert not_in_every_snapshot(manager, [name for one, name in names if one == manager]) == []
    assert compared({name for _, name in names}) == len({name for _, name in names})
    assert compared({"tmux", "linux-image-amd64"}) == 0


def compared(names: set[str]) -> int:
    """How many of these packages drift compares with the certified run, as the driver's or the toolkit's."""
    wish = wanted("Debian-13")
    facts = dataclasses.replace(finished_snapshot(wish), packages=dict.fromkeys(names, records.Package("1", False)))
    at, measured = "2026-11-20T10:00:00+00:00", records.Source.MEASURED
    certified = records.RunRecord("c", "validate", "here", at, at, measured, 0, "0.1.0", after=facts)
    found = drift.compared_with_past(wish, facts, certified, None)
    actual = [one.actual for one in found if one.property == "package_versions"]
    return sum(int(words.split()[0]) for words in actual)
