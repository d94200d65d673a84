"""`make canary` and rpm packages: what a signed repository has, and lists that are not to be believed."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gpghome
import pytest
import yaml
from canaryprogram import CANARY

from gpuprep import catalogue
from gpuprep.catalogue import roles

ROCKY = catalogue.archives()["rocky-9"]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with gpghome.made(tmp_path_factory, "nvidia", "stranger") as home:
        for name in ("nvidia", "stranger"):
            (home / f"{name}.asc").write_bytes(gpghome.gpg(home, "--armor", "--export", name))
        yield home


def everything(release: catalogue.OsRelease) -> tuple[dict[str, set[str]], set[str]]:
    """(name ► versions, streams) of a repository that has what the catalogue says."""
    offer, packages, streams = release.sources["nvidia"], dict[str, set[str]](), set()
    for driver in offer.drivers:
        names = [*roles.fabric_packages(release, "nvidia", driver.version)]
        for flavour in driver.modules:
            names += roles.driver_packages(release, "nvidia", flavour, driver.version, libraries="full")
            streams.add(roles.driver_stream(release, "nvidia", flavour, driver.version))
        for name in names:
            packages.setdefault(name, set()).add(driver.version)
    for version in offer.cuda:
        packages |= {name: {f"{version}.1"} for name in roles.cuda_packages(release, "nvidia", version)}
    return packages, streams


def publish(folder: Path, packages: dict[str, set[str]], streams: set[str], home: Path, signer: str = "nvidia") -> str:
    """Writes a repository's lists; returns its address."""
    data = folder / "repodata"
    data.mkdir(parents=True)
    rows = "".join(
        f'<package type="rpm"><name>{name}</name><version epoch="3" ver="{version}" rel="1.el9"/></package>'
        for name, versions in packages.items()
        for version in versions
    )
    modules = [{"document": "modulemd", "data": {"name": "nvidia-driver", "stream": stream}} for stream in streams]
    lists = {
        "primary": f'<metadata xmlns="http://linux.duke.edu/metadata/common">{rows}</metadata>',
        "modules": yaml.safe_dump_all(modules),
    }
    entries = ""
    for kind, text in lists.items():
        content = gzip.compress(text.encode())
        (data / f"{kind}.gz").write_bytes(content)
        entries += f'<data type="{kind}"><checksum type="sha256">{hashlib.sha256(content).hexdigest()}</checksum>'
        entries += f'<location href="repodata/{kind}.gz"/></data>'
    text = f'<repomd xmlns="http://linux.duke.edu/metadata/repo">{entries}</repomd>'
    (data / "repomd.xml").write_text(text)
    gpghome.gpg(home, "--local-user", signer, "--armor", "--detach-sign", str(data / "repomd.xml"))
    return folder.as_uri()


def root(folder: Path, address: str, key: Path | None = None, fingerprint: str = "") -> Any:
    (folder / "root").mkdir()
    return CANARY.RpmRoot(folder / "root", address, key, fingerprint, "D42D0685.pub")


def test_what_a_repository_lacks_is_named(tmp_path: Path, keys: Path) -> None:
    packages, streams = everything(ROCKY)
    whole = root(tmp_path, publish(tmp_path / "whole", packages, streams, keys), keys / "nvidia.asc")
    assert whole.update() == ""
    assert CANARY.lacking(whole, ROCKY, "nvidia") == []
    packages["nvidia-persistenced"].discard("580.95.05")
    packages["nvidia-fabricmanager"].discard("580.82.07")
    del packages["cuda-toolkit-12-6"]
    (tmp_path / "second").mkdir()
    address = publish(tmp_path / "less", packages, streams - {"570-open"}, keys)
    less = root(tmp_path / "second", address, keys / "nvidia.asc")
    assert less.update() == ""
    said = CANARY.lacking(less, ROCKY, "nvidia")
    assert "driver 580.95.05 open: no nvidia-persistenced" in said
    assert "driver 580.82.07: no nvidia-fabricmanager of this version" in said
    assert "driver 570.211.01 open: no stream 570-open of the module nvidia-driver" in said
    assert "CUDA 12.6: no cuda-toolkit-12-6" in said


def test_a_key_of_the_repository_counts_by_its_fingerprint(tmp_path: Path, keys: Path) -> None:
    address = publish(tmp_path / "repository", {}, set(), keys)
    (tmp_path / "repository/D42D0685.pub").write_bytes((keys / "nvidia.asc").read_bytes())
    lines = gpghome.gpg(keys, "--with-colons", "--fingerprint", "nvidia").decode().splitlines()
    fingerprint = next(line.split(":")[9] for line in lines if line.startswith("fpr"))
    assert root(tmp_path, address, None, fingerprint).update() == ""
    (tmp_path / "other").mkdir()
    assert "not with 610C" in root(tmp_path / "other", address, None, "610C").update()


@pytest.mark.parametrize("right", [True, False])
def test_or_by_its_file_without_the_line_version(tmp_path: Path, keys: Path, *, right: bool) -> None:
    address = publish(tmp_path / "repository", {}, set(), keys)
    head, _, rest = (keys / "nvidia.asc").read_bytes().partition(b"\n")
    (tmp_path / "repository/D42D0685.pub").write_bytes(head + b"\nVersion: GnuPG v2.0.22 (GNU/Linux)\n" + rest)
    pin = hashlib.sha256((keys / "nvidia.asc").read_bytes()).hexdigest() if right else "0" * 64
    assert ("signed with" in root(tmp_path, address, None, pin).update()) != right


def test_version_10_has_a_key_of_its_own_and_no_streams(tmp_path: Path, keys: Path) -> None:
    release = catalogue.archives()["rocky-10"]
    found = CANARY.root_of(tmp_path, release, "nvidia", "https://mirror.example", None)
    assert (found.address, found.key_file) == ("https://mirror.example/rhel10/x86_64/", "CDF6BA43.pub")
    packages, streams = everything(release)
    assert streams == {""}
    whole = root(tmp_path, publish(tmp_path / "whole", packages, set(), keys), keys / "nvidia.asc")
    assert whole.update() == ""
    assert CANARY.lacking(whole, release, "nvidia") == []


@pytest.mark.parametrize("damage", ["signature", "list", "checksum", "absent", "xml"])
def test_lists_that_are_not_to_be_believed(damage: str, tmp_path: Path, keys: Path) -> None:
    signer = "stranger" if damage == "signature" else "nvidia"
    address = publish(tmp_path / "repository", *everything(ROCKY), keys, signer)
    data = tmp_path / "repository/repodata"
    if damage == "list":
        (data / "primary.gz").write_bytes(gzip.compress(b"<metadata/>"))
    elif damage == "checksum":
        (data / "repomd.xml").write_text((data / "repomd.xml").read_text().replace("sha256", "md5"))
    elif damage == "absent":
        (data / "primary.gz").unlink()
    elif damage == "xml":
        (data / "repomd.xml").write_text("<repomd")
        (data / "repomd.xml.asc").unlink()
        gpghome.gpg(keys, "--local-user", "nvidia", "--armor", "--detach-sign", str(data / "repomd.xml"))
    expected = {
        "signature": "not signed with the key",
        "list": "is not the file",
        "checksum": "not signed",
        "absent": "primary",
        "xml": "no element found|unclosed token",
    }
    with pytest.raises(AssertionError, match=expected[damage]):
        assert root(tmp_path, address, keys / "nvidia.asc").update() == ""


def test_amazons_own_repository_is_not_asked_as_nvidias(tmp_path: Path) -> None:
    found = CANARY.root_of(tmp_path, catalogue.archives()["amzn-2023"], "nvidia", "https://mirror.example", None)
    assert dataclasses.asdict(ROCKY)["rpm"]
    assert (found.address, found.key_file) == ("https://mirror.example/amzn2023/x86_64/", "D42D0685.pub")
