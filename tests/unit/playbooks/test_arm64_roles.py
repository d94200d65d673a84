"""What the roles make of a machine with an ARM processor: Ansible itself says it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from places import COLLECTION
from programfile import module_of
from rolevalues import played, printing

from gpuprep import catalogue
from gpuprep.catalogue import packagenames, roles

# System as the roles name it ─► (distribution, version) as Ansible names one of it, the catalogue's key.
SYSTEMS = {
    "Debian-12": ("Debian", "12", "debian-12"),
    "Debian-13": ("Debian", "13", "debian-13"),
    "Ubuntu-22.04": ("Ubuntu", "22.04", "ubuntu-22.04"),
    "Ubuntu-24.04": ("Ubuntu", "24.04", "ubuntu-24.04"),
    "Ubuntu-26.04": ("Ubuntu", "26.04", "ubuntu-26.04"),
    "EL-8": ("Rocky", "8", "rocky-8"),
    "EL-9": ("Rocky", "9", "rocky-9"),
    "EL-10": ("AlmaLinux", "10", "almalinux-10"),
}
ASKED = (
    "[gpu_driver_nvidia_uri, gpu_driver_versioned + gpu_driver_tools, gpu_preflight_vault | default(''),"
    " gpu_codec_building, gpu_driver_keyring_uri if gpu_driver_apt_keyring is defined else '']"
)
ARCHITECTURE = module_of(COLLECTION / "plugins" / "filter" / "architecture.py")


def variables(system: str, architecture: str) -> dict[str, Any]:
    distribution, version, key = SYSTEMS[system]
    sources = catalogue.archives(architecture)[key].sources
    return {
        "gpu_preflight_system": system,
        "gpu_preflight_package_manager": "dnf" if system.startswith("EL") else "apt",
        "gpu_preflight_family": "any",
        "gpu_preflight_vault_url": "https://rocky.example",
        "gpu_preflight_almalinux_vault_url": "https://alma.example",
        "gpu_driver_source": next(iter(sources)),
        "gpu_driver_flavour": "open",
        "ansible_facts": {
            "architecture": architecture, "distribution": distribution, "distribution_version": version,
            "distribution_major_version": version.split(".")[0], "kernel": "6.8.0-1-generic", "os_family": "any",
            "python": {"executable": "/usr/bin/python3"},
        },
    }  # fmt: skip


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """ "EL-9/aarch64" ─► what ASKED gives; in one run of Ansible, with a host for each."""
    folder = tmp_path_factory.mktemp("arm64")
    cells = {f"{system}/{name}": variables(system, name) for system in SYSTEMS for name in ("x86_64", "aarch64")}
    hosts = {f"h{number}": {"cell": cell, **values} for number, (cell, values) in enumerate(cells.items())}
    facts = {name: values.pop("ansible_facts") for name, values in hosts.items()}
    inventory = folder / "hosts.yml"
    inventory.write_text(yaml.safe_dump(json.loads(json.dumps({"all": {"hosts": hosts}}))), encoding="utf-8")
    load = [
        {"ansible.builtin.include_vars": f"{COLLECTION}/roles/gpu_preflight/vars/{{{{ gpu_preflight_system }}}}.yml"},
        {"ansible.builtin.include_role": {"name": "gpu_driver", "tasks_from": "data", "public": True}},
        {"ansible.builtin.include_vars": f"{COLLECTION}/roles/gpu_codec/vars/main.yml"},
        {
            "ansible.builtin.include_vars": f"{COLLECTION}/roles/gpu_codec/vars/"
            "{{ gpu_preflight_system.rpartition('-')[0] }}.yml"
        },
        {"ansible.builtin.debug": printing("{{ cell }}", ASKED)},
    ]
    told = {"ansible_facts": "{{ facts[inventory_hostname] }}", "facts": facts}
    done, found = played(folder, {"vars": told, "tasks": load}, str(inventory))
    assert done.returncode == 0, done.stdout + done.stderr
    return found


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_roles_take_what_the_catalogue_says(said: dict[str, list[Any]], system: str) -> None:
    for architecture in ("x86_64", "aarch64"):
        uri, packages, vault, building, keyring = said[f"{system}/{architecture}"]
        release = catalogue.archives(architecture)[SYSTEMS[system][2]]
        source = next(iter(release.sources))
        branch = release.sources[source].auto or release.sources[source].drivers[0].version
        assert uri == f"https://developer.download.nvidia.com/compute/cuda/repos/{catalogue.nvidia_path(release)}/"
        assert packages == list(roles.driver_packages(release, source, "open", branch))
        assert building == list(roles.codec_build_packages(release, (), npp=False))
        assert ("nasm" in building) == (architecture == "x86_64")
        assert vault.endswith(f"/{architecture}/os/") if vault else not release.rpm
        assert keyring == (f"{uri.partition('ubuntu2604')[0]}{roles.keyring(release)[0]}" if keyring else "")


def test_what_archives_call_an_architecture() -> None:
    assert ARCHITECTURE.archive_names("x86_64") == {"nvidia": "x86_64", "deb": "amd64", "rpm": "x86_64"}
    assert ARCHITECTURE.archive_names("aarch64") == {"nvidia": "sbsa", "deb": "arm64", "rpm": "aarch64"}
    for wrong in ("ppc64le", "", "../x86_64", "x86_64\n"):
        with pytest.raises(Exception, match="only for x86_64 and aarch64"):
            ARCHITECTURE.archive_names(wrong)


def test_names_that_a_source_lacks_for_an_architecture_are_in_no_list() -> None:
    source = {
        "libraries": ["a-{branch}", "b"],
        "kernel": {"open": ["a-{branch}"]},
        "absent": {"aarch64": ["a-{branch}"]},
    }
    assert packagenames.of_branch(source, "580.1", "aarch64") == {"libraries": ["b"], "kernel": {"open": []}}
    assert packagenames.of_branch(source, "580.1") == {"libraries": ["a-580", "b"], "kernel": {"open": ["a-580"]}}
    assert packagenames.needed_on(["nasm", "gcc"], {"nasm": "x86_64"}, "aarch64") == ["gcc"]
    assert packagenames.needed_on(["nasm", "gcc"], {"nasm": "x86_64"}, "x86_64") == ["nasm", "gcc"]
