"""The real apt in a folder of its own, with the stub archives: what it would install, with our pin and without."""

from __future__ import annotations

import dataclasses
import io
import os
import queue
import re
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import amount
import pytest
from canaryprogram import CANARY

from gpuprep import catalogue
from gpuprep.catalogue import roles
from gpuprep.sim.archive import debfile, repository, serving, stubs, systems

RELEASES = {
    "debian12": "debian-12",
    "debian13": "debian-13",
    "ubuntu2204": "ubuntu-22.04",
    "ubuntu2404": "ubuntu-24.04",
    "ubuntu2604": "ubuntu-26.04",
}
DAILY = ("debian12", "ubuntu2204", "ubuntu2404")
BRANCHES = {"debian-13": {595, 610}, "ubuntu-26.04": {595, 610}}  # their repositories begin at 590 and 595
pytestmark = pytest.mark.xdist_group("archives")  # built once


def test_each_release_with_deb_packages_is_here() -> None:
    assert set(RELEASES) == {name for name, system in systems.systems().items() if not system.rpm}
    presenting = {name for name, system in systems.systems().items() if system.presents}
    assert presenting == {name for name in RELEASES if not name.startswith("debian")}
    assert set(RELEASES.values()) == {key for key, release in catalogue.archives().items() if not release.rpm}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        environment.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        environment.setattr(repository, "AGENT_ENDS_SECONDS", 300.0)  # other tests have the processors
        yield


@pytest.fixture(scope="module", params=amount.few([*DAILY, "debian13"], 1))
def nvidia(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[catalogue.OsRelease, Any]]:
    """A release, and apt with NVIDIA's repository for it, by HTTP as machines have it."""
    folder = repository.folder(request.param)
    assert folder is not None
    serving.offer(request.param, folder)
    server = serving.begin()
    assert server is not None
    release = catalogue.archives()[RELEASES[request.param]]
    address = f"http://{serving.HOST}:{server.server_port}/{request.param}/compute/cuda/repos"
    sources = CANARY.sources_of(release, "nvidia", address, folder / "key.asc")
    root = CANARY.AptRoot(tmp_path_factory.mktemp("root") / "apt", sources)
    assert root.update() == ""
    yield release, root
    server.shutdown()
    server.server_close()


def test_a_package_is_what_dpkg_deb_makes_of_the_same_files(tmp_path: Path) -> None:
    files = {
        "DEBIAN/control": "Package: a\nVersion: 1:2-3\nArchitecture: all\nMaintainer: me <me@here>\nDescription: b\n",
        "DEBIAN/postinst": "#!/bin/sh\n",
        "DEBIAN/triggers": "activate-noawait ldconfig\n",
        "usr/bin/tool": "#!/bin/sh\n",
        f"usr/share/{'long/' * 30}name": "x" * 99_999,
    }
    tree = tmp_path / "tree"
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
        (tree / name).chmod(0o755 if text.startswith("#!") else 0o644)
    (tree / "usr/bin/link").symlink_to("tool")
    debian("--root-owner-group", "--build", str(tree), str(tmp_path / "theirs.deb"))
    (tree / "DEBIAN").rename(tmp_path / "control")
    debfile.write(tmp_path / "ours.deb", tmp_path / "control", tree)
    for part in ("--ctrl-tarfile", "--fsys-tarfile"):
        ours, theirs = (members(debian(part, str(tmp_path / name))) for name in ("ours.deb", "theirs.deb"))
        assert ours == theirs
        assert ours


def debian(*words: str) -> bytes:
    return subprocess.run(["dpkg-deb", *words], capture_output=True, check=True).stdout


def members(archive: bytes) -> dict[str, tuple[Any, ...]]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {found.name: (*about(found), content(opened, found)) for found in opened}


def about(found: tarfile.TarInfo) -> tuple[Any, ...]:
    return found.type, found.mode, found.uid, found.gid, found.uname, found.gname, found.linkname


def content(opened: tarfile.TarFile, found: tarfile.TarInfo) -> bytes:
    file = opened.extractfile(found) if found.isfile() else None
    return file.read() if file else b""


SIGNS = """
import sys
from pathlib import Path
from gpuprep.sim.archive import repository
file = Path(sys.argv[1])
repository.AGENT_ENDS_SECONDS = 300.0  # other tests have the processors
for _ in range(2):
    repository.sign(file)
    repository.end_agent()
"""


def test_processes_that_sign_at_one_time_do_not_end_each_other_s_agent(tmp_path: Path) -> None:
    """As workers of `make test` on a new computer: they also make the key, once."""
    running = []
    with tempfile.TemporaryDirectory() as cache:  # the path of an agent's socket may not be longer than about 100 bytes
        environment = {**os.environ, "XDG_CACHE_HOME": cache, "PYTHONPATH": os.pathsep.join(sys.path)}
        for number in range(4):
            (tmp_path / str(number)).write_text("x")
            command = [sys.executable, "-c", SIGNS, str(tmp_path / str(number))]
            running.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
        assert [(process.communicate()[1], process.returncode) for process in running] == [("", 0)] * 4
    assert len(list(tmp_path.glob("*.asc"))) == 4


def test_an_archive_that_another_key_signed_is_not_believed(
    nvidia: tuple[catalogue.OsRelease, Any], tmp_path: Path
) -> None:
    release, _ = nvidia
    folder = repository.folder(release.key.replace("-", "").replace(".", ""))
    assert folder is not None
    sources = CANARY.sources_of(release, "nvidia", (folder / "nvidia").as_uri(), roles.repository_key(release))
    assert "is not signed" in CANARY.AptRoot(tmp_path / "apt", sources).update()


@pytest.mark.parametrize(
    ("release", "fingerprint"),
    [
        ("debian-12", "EB693B3035CD5710E231E123A4B469963BF863CC"),
        ("debian-13", "02182E60104FCDC26EAE1B8597A5D4CB8793F200"),
        ("ubuntu-24.04", "EB693B3035CD5710E231E123A4B469963BF863CC"),
    ],
)
def test_nvidias_key_of_each_release_is_the_one_that_nvidia_names(
    release: str, fingerprint: str, tmp_path: Path
) -> None:
    key = roles.repository_key(catalogue.archives()[release])
    command = ["gpg", "--homedir", str(tmp_path), "--batch", "--no-options", "--with-colons", "--show-keys", str(key)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^fpr:+([0-9A-F]{40}):", said, re.MULTILINE) == [fingerprint]


def older(release: catalogue.OsRelease) -> str:
    """A version that is not of the newest branch, and that all parts have."""
    return "595.71.05" if release.key in BRANCHES else "580.178.04"


def some_of_each_branch(release: catalogue.OsRelease) -> list[str]:
    """The newest version and the oldest one: apt is asked often for each."""
    branches: dict[int, list[str]] = {}
    for driver in release.sources["nvidia"].drivers:
        branches.setdefault(catalogue.branch(driver.version), []).append(driver.version)
    return [version for found in branches.values() for version in dict.fromkeys((found[0], found[-1]))]


def test_the_pin_holds_every_part_of_every_version_and_flavour(nvidia: tuple[catalogue.OsRelease, Any]) -> None:
    release, root = nvidia
    versions = some_of_each_branch(release)
    assert {catalogue.branch(version) for version in versions} >= BRANCHES.get(release.key, {570, 580})
    for version in versions:
        root.pin(version)
        for flavour in ("open", "proprietary"):
            names = roles.driver_packages(release, "nvidia", flavour, version, libraries="full")
            candidates = root.candidates(names)
            assert {name: CANARY.upstream(to) for name, to in candidates.items()} == dict.fromkeys(names, version)


def test_without_the_pin_parts_of_the_newest_branch_would_come(nvidia: tuple[catalogue.OsRelease, Any]) -> None:
    release, root = nvidia
    shared = ("nvidia-modprobe", "nvidia-persistenced")
    (root.folder / "etc/preferences.d/gpuprep-nvidia").unlink(missing_ok=True)
    assert {CANARY.upstream(to) for to in root.candidates(shared).values()} == {"615.71.09"}
    root.pin(older(release))
    pin = root.folder / "etc/preferences.d/gpuprep-nvidia"
    pin.write_text(pin.read_text().replace("-*", ""))  # as people write it: apt says nothing
    assert {CANARY.upstream(to) for to in root.candidates(shared).values()} == {"615.71.09"}


def test_the_canary_names_what_an_archive_lacks(nvidia: tuple[catalogue.OsRelease, Any]) -> None:
    release, root = nvidia
    offer = release.sources["nvidia"]
    here = some_of_each_branch(release)
    stubbed = dataclasses.replace(
        offer,
        drivers=tuple(driver for driver in offer.drivers if driver.version in here),
    )
    assert CANARY.lacking(root, dataclasses.replace(release, sources={"nvidia": stubbed}), "nvidia") == []
    more = dataclasses.replace(offer, cuda=(*offer.cuda, "12.7"))
    said = CANARY.lacking(root, dataclasses.replace(release, sources={"nvidia": more}), "nvidia")
    assert any(line.startswith("CUDA 12.7: no cuda-toolkit-12-7") for line in said)


def test_apt_can_install_each_toolkit_that_a_plan_can_choose(nvidia: tuple[catalogue.OsRelease, Any]) -> None:
    """With all that it depends on, in the versions that it asks for."""
    release, root = nvidia
    for version in release.sources["nvidia"].cuda:
        done = root.run("apt-get", "--simulate", "install", *roles.cuda_packages(release, "nvidia", version))
        assert done.returncode == 0, (version, done.stderr)


def test_fabric_manager_is_there_in_the_drivers_version(nvidia: tuple[catalogue.OsRelease, Any]) -> None:
    release, root = nvidia
    names = roles.fabric_packages(release, "nvidia", older(release))
    assert all(older(release) in map(CANARY.upstream, versions) for versions in root.offers(names).values())


@pytest.mark.parametrize("name", RELEASES)
def test_a_machine_has_each_driver_that_its_plan_can_choose(name: str) -> None:
    """In one version with Fabric Manager, where the catalogue does not say that the source has none."""
    release = catalogue.archives()[RELEASES[name]]
    for source, offer in release.sources.items():
        if (release.key.partition("-")[0], source) == ("debian", "distribution"):
            continue  # Debian's own archive is the real one
        there = {
            (stub.name, stub.upstream)
            for archive in systems.systems()[name].archives
            if archive.folder.startswith("nvidia/") == (source == "nvidia")
            for stub in stubs.stubs(archive)
        }
        for driver in offer.drivers:
            fabric = {(part, driver.version) for part in roles.fabric_packages(release, source, driver.version)}
            assert (fabric <= there) == driver.fabric_manager
            for flavour in driver.modules:
                parts = roles.driver_packages(release, source, flavour, driver.version, libraries="full")
                assert {(part, driver.version) for part in parts} <= there
                if str(catalogue.branch(driver.version)) in offer.prebuilt:
                    ready = roles.prebuilt_packages(release, source, flavour, driver.version, CANARY.KERNELS)
                    assert set(ready) <= {name for name, _ in there}
        if source == "nvidia":  # of the systems' own toolkits Debian's is the real one, and Ubuntu's has no stub
            for version in offer.cuda:
                assert set(roles.cuda_packages(release, source, version)) <= {name for name, _ in there}, version


def test_every_stub_is_of_a_known_kind() -> None:
    for name in RELEASES:
        for archive in systems.systems()[name].archives:
            found = list(stubs.stubs(archive))
            assert found
            assert not [
                stub for stub in found if "{" in stub.name + stub.version + " ".join(sum(stub.relations.values(), ()))
            ]


def test_machines_that_start_at_once_make_the_packages_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waits, and says so: for packages of rpm that is a minute of both processors."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    began, end, filled = threading.Event(), threading.Event(), []
    told: queue.SimpleQueue[str] = queue.SimpleQueue()

    def fill(making: Path) -> None:
        filled.append(making)
        began.set()
        assert end.wait(300)
        (making / "Packages").write_text("all of them")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(repository.made, "debian13-0", "the packages", fill)
        assert began.wait(300)
        second = pool.submit(repository.made, "debian13-0", "the packages", fill, told.put)
        assert told.get(timeout=300) == "waiting for another command, which makes the packages"
        assert not second.done()
        end.set()
        assert (first.result(300) / "Packages").read_text() == "all of them"
        assert second.result(300) == first.result()
    assert len(filled) == 1
    assert not [path for path in first.result().parent.iterdir() if path.name.startswith(".making")]


def test_what_a_killed_command_left_half_made_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = repository.made("debian13-0", "the packages", lambda making: (making / "Packages").touch())
    left, of_another = (made.parent / f".making-debian13-{which}~abandoned" for which in ("1", "1-rpm"))
    for folder in (left, of_another):
        folder.mkdir()
        (folder / "half").write_text("of it")
    repository.made("debian13-1", "the packages", lambda making: (making / "Packages").touch())
    assert not left.exists()
    assert of_another.exists()  # another command may be making it
    assert made.stat().st_mode & 0o777 == 0o755  # another user of the machine reads it
