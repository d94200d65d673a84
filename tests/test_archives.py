"""The real apt in a folder of its own, with the stub archives: what it would install, with our pin and without."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gpuprep import catalogue
from gpuprep.catalogue import OsRelease
from gpuprep.catalogue.roles import driver_packages, fabric_packages
from gpuprep.sim.archive import repository, stubs

ROOT = Path(__file__).parents[1]
RELEASES = {"debian12": "debian-12", "ubuntu2204": "ubuntu-22.04", "ubuntu2404": "ubuntu-24.04"}
pytestmark = pytest.mark.xdist_group("archives")  # built once


def canary() -> ModuleType:
    spec = importlib.util.spec_from_file_location("canary", ROOT / ".ci/canary.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules["canary"] = loaded  # where its dataclasses look for their names
    spec.loader.exec_module(loaded)
    return loaded


CANARY = canary()


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module", params=RELEASES)
def nvidia(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[OsRelease, Any]:
    """A release, and apt with NVIDIA's repository for it."""
    folder = repository.folder(request.param)
    assert folder is not None
    release = catalogue.archives()[RELEASES[request.param]]
    sources = CANARY.sources_of(release, "nvidia", (folder / "nvidia").as_uri(), folder / "key.asc")
    root = CANARY.AptRoot(tmp_path_factory.mktemp("root") / "apt", sources)
    assert root.update() == ""
    return release, root


def test_an_archive_that_another_key_signed_is_not_believed(nvidia: tuple[OsRelease, Any], tmp_path: Path) -> None:
    release, _ = nvidia
    folder = repository.folder(release.key.replace("-", "").replace(".", ""))
    assert folder is not None
    sources = CANARY.sources_of(release, "nvidia", (folder / "nvidia").as_uri(), CANARY.NVIDIA_KEY)
    assert "is not signed" in CANARY.AptRoot(tmp_path / "apt", sources).update()


def in_the_archive(release: OsRelease, root: Any) -> list[str]:
    name = "libcuda1" if release.key.startswith("debian") else "nvidia-modprobe"
    there = set(map(CANARY.upstream, root.offers([name])[name]))
    return [driver.version for driver in release.sources["nvidia"].drivers if driver.version in there]


def test_the_pin_holds_every_part_of_every_version_and_flavour(nvidia: tuple[OsRelease, Any]) -> None:
    release, root = nvidia
    versions = in_the_archive(release, root)
    assert {catalogue.branch(version) for version in versions} >= {570, 580}
    for version in versions:
        root.pin(version)
        for flavour in ("open", "proprietary"):
            names = driver_packages(release, "nvidia", flavour, version)
            candidates = root.candidates(names)
            assert {name: CANARY.upstream(to) for name, to in candidates.items()} == dict.fromkeys(names, version)


def test_without_the_pin_parts_of_the_newest_branch_would_come(nvidia: tuple[OsRelease, Any]) -> None:
    _, root = nvidia
    shared = ("nvidia-modprobe", "nvidia-persistenced")
    (root.folder / "etc/preferences.d/gpuprep-nvidia").unlink(missing_ok=True)
    assert {CANARY.upstream(to) for to in root.candidates(shared).values()} == {"615.71.09"}
    root.pin("580.178.04")
    pin = root.folder / "etc/preferences.d/gpuprep-nvidia"
    pin.write_text(pin.read_text().replace("-*", ""))  # as people write it: apt says nothing
    assert {CANARY.upstream(to) for to in root.candidates(shared).values()} == {"615.71.09"}


def test_the_canary_names_what_an_archive_lacks(nvidia: tuple[OsRelease, Any]) -> None:
    release, root = nvidia
    offer = release.sources["nvidia"]
    here = in_the_archive(release, root)
    stubbed = dataclasses.replace(
        offer, drivers=tuple(driver for driver in offer.drivers if driver.version in here), cuda=("12.8", "13.0")
    )
    assert CANARY.lacking(root, dataclasses.replace(release, sources={"nvidia": stubbed}), "nvidia") == []
    said = CANARY.lacking(root, release, "nvidia")
    assert any(line.startswith("CUDA 12.2: no cuda-toolkit-12-2") for line in said)


def test_fabric_manager_is_there_in_the_drivers_version(nvidia: tuple[OsRelease, Any]) -> None:
    release, root = nvidia
    names = fabric_packages(release, "nvidia", "580.178.04")
    assert all("580.178.04" in map(CANARY.upstream, versions) for versions in root.offers(names).values())


def test_every_stub_is_of_a_known_kind() -> None:
    for archives in stubs.ARCHIVES.values():
        for archive in archives:
            found = list(stubs.stubs(archive))
            assert found
            assert not [
                stub for stub in found if "{" in stub.name + stub.version + " ".join(sum(stub.relations.values(), ()))
            ]
