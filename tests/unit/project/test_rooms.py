"""The order of gpuprep's modules, beside the import contracts in pyproject.toml, and the map of them in docs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import grimp  # what import-linter reads the imports with
import pytest
from places import COLLECTION, ROOT
from validations_for_tests import t4

from gpuprep import records

MAP = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
FILE = re.compile(r"`(?:python )?([\w./*-]+(?:/|\.(?:py|yml|json|md|toml)))`")


def rows(heading: str) -> list[str]:
    """The rows of the table below a heading, without its head."""
    section = MAP.partition(f"\n### {heading}\n")[2].partition("\n#")[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


MAP_ROWS = [*rows("To change X, go to Y"), *rows("To change something else")]


def files(row: str) -> Iterator[str]:
    """File names in a row; a name without a folder is in the folder of the name before it."""
    folder = ""
    for name in FILE.findall(row):
        whole = name if "/" in name or not folder else f"{folder}/{name}"
        folder = whole.rpartition("/")[0]
        yield whole


@cache
def imports_of_gpuprep() -> grimp.ImportGraph:
    return grimp.build_graph("gpuprep", cache_dir=None)


def test_no_module_imports_itself_through_others() -> None:
    """Imports inside functions count, too. A circle ends in CycleError, which names its modules."""
    graph = imports_of_gpuprep()
    TopologicalSorter({name: graph.find_modules_directly_imported_by(name) for name in graph.modules}).prepare()


def test_no_package_imports_its_neighbour_in_a_circle() -> None:
    """Of the modules and packages in one folder, each with all that is in it."""
    graph = imports_of_gpuprep()
    for package in sorted(graph.modules):
        members = {module: child for child in graph.find_children(package) for module in _below(graph, child)}
        imports: dict[str, set[str]] = {child: set() for child in members.values()}
        for module, child in members.items():
            imported = {members[name] for name in graph.find_modules_directly_imported_by(module) if name in members}
            imports[child] |= imported - {child}
        TopologicalSorter(imports).prepare()


def _below(graph: grimp.ImportGraph, module: str) -> set[str]:
    return {module, *graph.find_descendants(module)}


def test_the_judges_load_neither_nvml_nor_the_readers_of_a_machine() -> None:
    """They take tables from the agent. Every command on the controller waits for what is loaded with them."""
    code = "import sys, gpuprep.checks.probes; print({'pynvml', 'gpuprep.agent.facts.system'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("words", [["--help"], ["judge", "record.json", "--profile", "t4"]])
def test_all_other_commands_run_without_trace(tmp_path: Path, words: list[str]) -> None:
    shutil.copytree(ROOT / "gpuprep", tmp_path / "gpuprep", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(tmp_path / "gpuprep" / "trace")
    for folder in ("ansible_collections", "playbooks", "profiles"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    (tmp_path / "record.json").write_text(records.to_json(t4()))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    command = [sys.executable, "-m", "gpuprep.cli", *words]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode in (0, 1), done.stderr) == (True, "")
    assert ("Usage: " if words == ["--help"] else "UNKNOWN") in done.stdout


@pytest.mark.only_all
def test_the_picture_of_the_rooms_is_the_contract() -> None:
    contract = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("\nlayers = [\n")[2].partition("]")[0]
    layers = [re.findall(r"\w+", line) for line in contract.splitlines()]
    picture = MAP.partition("(`tests/unit/project/test_rooms.py`).\n\n")[2].partition("\n\n")[0]
    drawn = [line.strip().split(" · ") for line in picture.splitlines()]
    assert drawn == layers


@pytest.mark.only_all
@pytest.mark.parametrize("row", MAP_ROWS, ids=lambda row: row.split(" | ")[0].strip("| "))
def test_the_map_names_files_that_there_are(row: str) -> None:
    named = list(files(row))
    assert named
    for name in named:
        places = [ROOT / "gpuprep", ROOT, ROOT / "docs", COLLECTION]
        assert any(any(place.glob(name)) for place in places), name
