"""gpuprep profiles: list, show, check."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuprep.cli.profiles import profiles
from gpuprep.desired.loading import document, load
from gpuprep.errors import UsageError


@pytest.fixture(autouse=True)
def _own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(profiles, arguments)


def test_list() -> None:
    rows = run("list").output.splitlines()
    names = ["NAME", "a100", "a10g", "base", "h100", "h200", "l4", "t4", "v100", "video"]
    assert [row.split()[0] for row in rows] == names
    assert rows[7].split(maxsplit=2) == ["t4", "t4", load("t4").description]


def test_list_json() -> None:
    rows = json.loads(run("list", "--json").output)
    assert {row["name"]: row["gpus"] for row in rows}["v100"] == ["v100"]
    assert all(Path(row["path"]).is_file() for row in rows)


def test_list_keeps_going_over_a_broken_profile(tmp_path: Path) -> None:
    folder = tmp_path / "config/gpuprep/profiles"
    folder.mkdir(parents=True)
    (folder / "lab.yml").write_text("extends: t4\ndrift: {}\ncuda: {x: 1}\n")
    result = run("list")
    assert result.exit_code == 0
    assert "has 1 problem: see gpuprep profiles check lab" in result.output


def test_show_is_a_whole_profile(tmp_path: Path) -> None:
    path = tmp_path / "whole.yml"
    path.write_text(run("show", "t4").output)
    assert document(str(path)) == document("t4")
    assert "extends" not in document("t4")


def test_show_json() -> None:
    assert json.loads(run("show", "a100", "--json").output) == document("a100")


def test_show_of_an_unknown_profile() -> None:
    result = run("show", "t5")
    assert isinstance(result.exception, UsageError)  # the edge of the command line makes it exit 2
    assert "profiles: a100, a10g, base, h100, h200, l4, t4, v100" in str(result.exception)


def test_check_of_sound_profiles() -> None:
    result = run("check", "base", "t4", "v100", "a100")
    assert (result.exit_code, result.output) == (0, "base: ok\nt4: ok\nv100: ok\na100: ok\n")


def test_check_goes_on_after_a_bad_one(tmp_path: Path) -> None:
    path = tmp_path / "bad.yml"
    path.write_text("extends: t4\ncuda: {version: 12.10}\n")
    result = run("check", str(path), "t9", "t4")
    assert result.exit_code == 2
    bad, unknown, good = result.output.splitlines()
    assert bad.startswith(f"{path}:2: cuda.version: is the number 12.10, not text; write it in quotes: '12.10'")
    assert unknown.startswith("there is no profile 't9'")
    assert good == "t4: ok"


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("extends: v100\n\ndriver:\n  flavour: open\n", 4, "driver.flavour"),
        ("extends: v100\ndriver:\n  version: '590'\n", 3, "driver.version"),
        ("extends: v100\ncuda:\n  version: '13.0'\n", 3, "cuda.version"),
        ("extends: v100\ncudnn:\n  version: 9.11.0.98\n", 3, "cudnn.version"),
        ("extends: a100\ncodec:\n  nvenc: required\n", 3, "codec.nvenc"),
        ("extends: t4\ndriver:\n  version: '525'\n", None, "codec.headers"),
    ],
)
def test_check_refuses_what_no_machine_could_be(tmp_path: Path, text: str, line: int | None, key: str) -> None:
    path = tmp_path / "impossible.yml"
    path.write_text(text)
    result = run("check", str(path))
    assert result.exit_code == 2
    # A wish that was inherited is named where it was written.
    place = f"{path}:{line}: " if line else f"{Path(load('base').path)}:"
    told = [row for row in result.output.splitlines() if f" {key}: " in row]
    assert len(told) == 1
    assert told[0].startswith(place)
    assert "; works: " in told[0]


def test_help_imports_no_validator() -> None:
    code = "import sys, gpuprep.cli.profiles as p; print([m for m in ('jsonschema', 'yaml') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
