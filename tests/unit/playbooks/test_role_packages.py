"""The packages that the roles install and hold are those that gpuprep checks and holds again: Ansible says which."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import bare_snapshot, finished_snapshot, load
from rolevalues import ROLES, played, printing, values

from gpuprep import catalogue, checks, records
from gpuprep.agent.facts import packages as agent_packages
from gpuprep.catalogue.roles import cuda_packages, driver_packages, fabric_packages, has_full_libraries
from gpuprep.checks.drift import certifiedsystem
from gpuprep.desired import state
from gpuprep.workflows import fixes

SYSTEMS = sorted(path.stem for path in (ROLES / "gpu_preflight" / "vars").glob("*.yml"))
DEBIANS = [system for system in SYSTEMS if system.startswith("Debian-")]
FLAVOURS = ("proprietary", "open")
# Red Hat's system and those built from its sources are one system to the roles.
RELEASES = {release.roles: release for release in reversed(list(catalogue.archives().values()))}
OFFERED = [(system, source) for system, release in RELEASES.items() for source in release.sources]
Case = tuple[str, str, str]  # system, source, flavour
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
    wish = f"gpu_cuda_sources['{source}'].versions | first"  # gpu_cuda's main.yml gives its tasks this
    cuda = {"gpu_cuda_data": f"{{{{ gpu_cuda_sources['{source}'] | gpu_cuda_of_version({wish}) }}}}"}
    names = ", ".join(f"'{role}': {role}_holds" for role in HOLDING)
    says = printing(f"{system}/{source}/{flavour}", f"{{{names}}}")
    return [*data, {"name": "Say what is held", "ansible.builtin.debug": says, "vars": {**known, **cuda, **templates}}]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Mapping[Case, dict[str, list[str]]]:
    """(system, source, flavour) ► role ► what it holds."""
    folder = tmp_path_factory.mktemp("held")
    cases = [(system, source, flavour) for system, source in OFFERED for flavour in FLAVOURS]
    facts = ("distribution", "distribution_version", "distribution_major_version", "kernel")
    variables = {
        "gpu_preflight_package_manager": "apt",
        "gpu_preflight_family": "Debian",
        "ansible_facts": dict.fromkeys(facts, ""),
    }
    found = values(folder, variables, [task for case in cases for task in tasks_for(*case)])
    return {case: found["/".join(case)] for case in cases}


def wanted(system: str, source: str = "distribution", flavour: str = "auto") -> state.Wanted:
    host = bare_snapshot(RELEASES[system].key.replace("-", "").replace(".", ""))
    return state.resolve(load("t4", driver={"source": source, "flavour": flavour}, cudnn={"version": "none"}), host)


def keys(findings: Sequence[records.Finding]) -> set[str]:
    return {finding.key for finding in findings if finding.status not in (records.Status.PASS, records.Status.SKIP)}


def test_the_catalogue_and_the_roles_serve_the_same_releases() -> None:
    assert sorted(RELEASES) == SYSTEMS


@pytest.mark.xdist_group("held")  # one run of the roles, by one worker
@pytest.mark.parametrize(("system", "source"), OFFERED)
def test_what_the_roles_hold_is_what_is_checked(
    system: str, source: str, held: Mapping[Case, dict[str, list[str]]]
) -> None:
    release = RELEASES[system]
    for flavour in FLAVOURS:
        roles = held[system, source, flavour]
        offer = release.sources[source]
        branch = offer.auto or offer.drivers[0].version
        assert roles["gpu_driver"] == list(driver_packages(release, source, flavour, branch))
        assert roles["gpu_cuda"] == list(wanted(system, source).cuda.packages)
    wish = wanted(system, source)
    assert held[system, source, wish.driver.flavour]["gpu_driver"] == list(wish.driver.packages)


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


def test_ubuntus_headers_follow_the_kernels_that_the_machine_follows(tmp_path: Path) -> None:
    data = str(ROLES / "gpu_preflight/vars/Ubuntu-24.04.yml")
    tasks: list[dict[str, Any]] = [{"ansible.builtin.include_vars": data}]
    for number, (kernel, meta) in enumerate(HEADERS):
        known = {"ansible_facts": {"kernel": kernel}, "gpu_preflight_kernel_metas": [meta] if meta else []}
        tasks.append({"ansible.builtin.debug": printing(str(number), "gpu_preflight_headers"), "vars": known})
    found = values(tmp_path, {}, tasks)
    assert {key: found[str(number)] for number, key in enumerate(HEADERS)} == HEADERS


def installed_by_roles() -> set[tuple[str, str]]:
    """(apt or dnf, name) of all that the roles install and hold of drivers and toolkits, whatever the profile asks."""
    names: set[tuple[str, str]] = set()
    for release in RELEASES.values():
        manager = "dnf" if release.rpm else "apt"
        for source, offer in release.sources.items():
            for version in (driver.version for driver in offer.drivers):
                for flavour, libraries in itertools.product(FLAVOURS, ("compute", "full")):
                    if libraries == "compute" or has_full_libraries(release, source, version):
                        packages = driver_packages(release, source, flavour, version, libraries=libraries)
                        names |= {(manager, name) for name in packages}
                names |= {(manager, name) for name in fabric_packages(release, source, version)}
            for toolkit in offer.cuda:
                names |= {(manager, name) for name in cuda_packages(release, source, toolkit)}
    return names


def test_what_the_roles_install_is_in_every_snapshot_and_is_known_as_theirs() -> None:
    """The libraries for displays on Debian were in none: a machine with all of them was said to lack some."""
    families = {"apt": agent_packages.DEBIAN_FAMILIES, "dnf": agent_packages.RPM_FAMILIES}
    names = installed_by_roles()
    assert {("apt", "libegl-nvidia0"), ("dnf", "nvidia-driver-libs"), ("apt", "cuda-toolkit-12-8")} <= names
    unread = [
        (manager, name)
        for manager, name in sorted(names)
        if not any(fnmatchcase(name, pattern) for pattern in families[manager])
    ]
    assert unread == []
    known = (certifiedsystem.DRIVER, certifiedsystem.TOOLKIT)
    assert [name for _, name in sorted(names) if not any(pattern.match(name) for pattern in known)] == []
