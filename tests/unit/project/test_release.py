"""A release can be built again by anyone, byte for byte, with its bill of materials inside; what is pinned agrees."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from cyclonedxschema import mistakes
from places import COLLECTION, ROOT
from programfile import module_of

from gpuprep import __version__
from gpuprep.catalogue.agent import agent_libraries

SOURCES = ("gpuprep", "ansible_collections", "profiles", "docs", "man", ".ci", "Makefile",
           "README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", ".gitignore")  # fmt: skip
REQUIREMENTS = COLLECTION / "roles/gpu_agent/files/requirements"


LIBRARIES = sorted(REQUIREMENTS.glob("*.txt"))  # of the agent
release, hashes = module_of(ROOT / ".ci/release.py"), module_of(ROOT / ".ci/hashes.py")


def copy(target: Path, umask: int, time: int) -> None:
    """The sources as someone else has them: other rights, other times, and compiled files that lie around."""
    target.mkdir(parents=True)
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(ROOT / name, target / name)
    for path in target.rglob("*"):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)
        os.utime(path, (time, time))
    if umask:
        (target / "ansible_collections/__pycache__").mkdir()
        (target / "ansible_collections/__pycache__/x.cpython-313.pyc").write_text("compiled")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two folders with a wheel and an sdist each, of one commit's sources in two places."""
    scratch = tmp_path_factory.mktemp("release")
    made = []
    for number, (umask, environment, time) in enumerate(release.PLACES):
        source, target = scratch / ("copy" * (number + 1)), scratch / f"dist-{number}"
        copy(source, umask, time)
        release.build(source, target, umask, environment, "1790000000")
        made.append(target)
    return made


@pytest.mark.machines
def test_two_builds_are_the_same_byte_for_byte(built: list[Path]) -> None:
    first, second = map(release.digests, built)
    assert len(first) == 2
    assert first == second


@pytest.mark.machines
def test_nothing_that_lies_around_is_in_them_and_both_have_the_man_pages(built: list[Path]) -> None:
    [wheel], [sdist] = built[1].glob("*.whl"), built[1].glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive, tarfile.open(sdist) as source:
        for names in (archive.namelist(), source.getnames()):
            assert not [
                name for name in names if "__pycache__" in name or name.endswith((".pyc", ".orig", ".rej", ".retry"))
            ]
            assert {Path(name).name for name in names if re.search(r"/man/(man1/)?[^/]*\.1$", name)} == MAN_PAGES
        text = archive.read(f"gpuprep-{__version__}.dist-info/sboms/gpuprep.cdx.json")
    assert json.loads(text)["metadata"]["timestamp"] == "2026-09-21T14:13:20+00:00"


# ---------------------------------------------------------------- what is in the wheel that was installed for the tests

MAN_PAGES = {path.name for path in (ROOT / "man").glob("*.1")}


def installed() -> dict[str, metadata.PackagePath]:
    return {str(file): file for file in metadata.files("gpuprep") or ()}


def test_the_wheel_has_the_man_pages() -> None:
    assert {file.name for name, file in installed().items() if "share/man/man1/" in name} == MAN_PAGES
    assert "gpuprep.1" in MAN_PAGES


def bill() -> dict[str, Any]:
    (file,) = (file for name, file in installed().items() if name.endswith(".dist-info/sboms/gpuprep.cdx.json"))
    document: dict[str, Any] = json.loads(file.read_text())
    return document


def test_the_wheel_has_a_bill_of_materials() -> None:
    document = bill()
    assert mistakes(document) == []
    by_scope: dict[str, set[str]] = {}
    for part in document["components"]:
        by_scope.setdefault(part["scope"], set()).add(part["name"])
    assert {"click", "ansible-core", "sqlalchemy", "alembic"} <= by_scope["required"]
    assert by_scope["optional"] == {
        pin.partition("==")[0] for path in LIBRARIES for pin in hashes.pins(path.read_text())
    }
    assert "hatchling" in by_scope["excluded"]


def test_the_bill_names_the_javascript_that_pages_contain() -> None:
    files = installed()
    scripts = [file for name, file in files.items() if re.search(r"/vendor/.*\.js$", name)]
    named = {
        digest["content"]
        for part in bill()["components"]
        for digest in part.get("hashes", ())
        if "pkg:npm/" in part["purl"]
    }
    assert len(scripts) == 2
    assert named == {hashlib.sha256(file.read_binary()).hexdigest() for file in scripts}
    assert len([name for name in files if ".dist-info/licenses/" in name]) == 3


# ---------------------------------------------------------------- pins

FILES = [ROOT / ".ci/requirements-build.txt", *LIBRARIES]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_pin_has_hashes_and_the_file_names_no_index(path: Path) -> None:
    text = path.read_text()
    pins = hashes.pins(text)
    assert pins
    hashed = re.findall(r"^([a-z0-9-]+==[^\s\\]+)(?: \\\n    --hash=sha256:[0-9a-f]{64})+$", text, re.MULTILINE)
    assert hashed == pins
    assert "://" not in text
    others = [
        line for line in text.splitlines() if not re.match(r"#|[a-z0-9-]+==|    --hash=sha256:[0-9a-f]{64}", line)
    ]
    assert others == []


@pytest.mark.parametrize("major", ["11", "12", "13"])
def test_role_and_catalogue_read_the_same_pins(major: str) -> None:
    role = module_of(COLLECTION / "plugins/filter/agent.py")
    text = role.agent_requirements(str(COLLECTION / "roles/gpu_agent"), major)
    assert role.agent_pins(text) == [f"{name}=={version}" for name, version in agent_libraries(major).items()]


def test_hashes_are_written_anew_and_all_else_stays() -> None:
    text = "# why\nb==2 \\\n    --hash=sha256:old\na==1\n"
    known = {"b==2": {"22", "11"}, "a==1": {"33"}}
    new = "# why\nb==2 \\\n    --hash=sha256:11 \\\n    --hash=sha256:22\na==1 \\\n    --hash=sha256:33\n"
    assert hashes.written(text, known) == new
    assert hashes.written(new, known) == new
    assert hashes.pins(new) == ["b==2", "a==1"]


def test_the_build_is_pinned() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    (pin,) = (pin for pin in hashes.pins(FILES[0].read_text()) if pin.startswith("hatchling=="))
    assert project.count(f'"{pin}"') == 2
    assert "--require-hashes -r $<" in (ROOT / "Makefile").read_text()


def test_a_release_is_of_the_commit_and_not_of_the_folder(tmp_path: Path) -> None:
    """What was never committed, a key or a script that somebody left, is in no release."""
    git = shutil.which("git")
    if git is None:
        pytest.skip("no git here")
    place = tmp_path / "place"
    (place / "gpuprep").mkdir(parents=True)
    (place / "gpuprep/a.py").write_text("committed\n")
    named = [git, "-C", str(place), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x", "--no-verify"]):
        subprocess.run([*named, *words], check=True)
    (place / "gpuprep/a.py").write_text("changed\n")
    (place / "gpuprep/left.py").write_text("left\n")
    release.copied(place, tmp_path / "clean", 0o077, 1_600_000_000)
    assert [path.name for path in (tmp_path / "clean/gpuprep").iterdir()] == ["a.py"]
    assert (tmp_path / "clean/gpuprep/a.py").read_text() == "committed\n"
    assert (tmp_path / "clean/gpuprep/a.py").stat().st_mode & 0o777 == 0o600
