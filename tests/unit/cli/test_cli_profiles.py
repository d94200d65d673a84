"""gpuprep profiles: list, show, check."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuprep import errors
from gpuprep.cli import cli
from gpuprep.desired import loading


@pytest.fixture(autouse=True)
def _own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["profiles", *arguments], obj=None)


def test_list() -> None:
    rows = run("list").output.splitlines()
    names = ["NAME", "a100", "a10g", "base", "h100", "h200", "l4", "t4", "v100", "video"]
    assert [row.split()[0] for row in rows] == names
    assert rows[7].split(maxsplit=2) == ["t4", "t4", loading.load("t4").description]
    assert rows[3].split()[1] == "any"


def test_list_json() -> None:
    rows = json.loads(run("list", "--json").output)["profiles"]
    assert {row["name"]: row["gpus"] for row in rows}["v100"] == ["v100"]
    assert all(Path(row["path"]).is_file() for row in rows)


def test_list_keeps_going_over_a_broken_profile(tmp_path: Path) -> None:
    folder = tmp_path / "config/gpuprep/profiles"
    folder.mkdir(parents=True)
    (folder / "lab.yml").write_text("extends: t4\ndrift: {}\ncuda: {x: 1}\n")
    (folder / "many.yml").write_text("extends: base\ngpus: [t4, v100, a100, h100, h200, l4]\n")
    result = run("list")
    assert result.exit_code == 0
    assert "has 1 problem: see gpuprep profiles check lab" in result.output
    assert "t4, v100, a100, h100 and 2 more" in result.output


def test_show_is_a_whole_profile(tmp_path: Path) -> None:
    path = tmp_path / "whole.yml"
    path.write_text(run("show", "t4").output)
    assert loading.document(str(path)) == loading.document("t4")
    assert "extends" not in loading.document("t4")


def test_show_json() -> None:
    assert json.loads(run("show", "a100", "--json").output) == loading.document("a100")


def test_show_of_an_unknown_profile() -> None:
    result = run("show", "t5")
    assert isinstance(result.exception, errors.UsageError)  # the edge of the command line makes it exit 2
    assert "profiles: a100, a10g, base, h100, h200, l4, t4, v100" in str(result.exception)


def test_check_of_sound_profiles() -> None:
    result = run("check", "base", "t4", "v100", "a100")
    assert (result.exit_code, result.output) == (0, "base: ok\nt4: ok\nv100: ok\na100: ok\n")


def test_a_waiver_that_expired_is_a_note_and_one_that_holds_is_none(tmp_path: Path) -> None:
    path = tmp_path / "waived.yml"
    waivers = "\n".join(
        f"  - {{finding: {finding}, hosts: '*', justification: known, expires: '{expires}'}}"
        for finding, expires in (("gpu 0.ecc", "2020-01-31"), ("gpu 1.ecc", "2099-01-31"))
    )
    path.write_text(f"extends: t4\nwaivers:\n{waivers}\n")
    result = run("check", str(path))
    assert result.exit_code == 0, result.output
    ok, note = result.output.splitlines()
    assert ok == f"{path}: ok"
    assert note.startswith(f"note: {path}:3: waivers[0]: the waiver of gpu 0.ecc expired on 2020-01-31")


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
    place = f"{path}:{line}: " if line else f"{Path(loading.load('base').path)}:"
    told = [row for row in result.output.splitlines() if f" {key}: " in row]
    assert len(told) == 1
    assert told[0].startswith(place)
    assert "; works: " in told[0]


def test_help_imports_no_validator() -> None:
    code = "import sys, gpuprep.cli.profiles as p; print([m for m in ('jsonschema', 'yaml') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# ---------------------------------------------------------------- new


def test_a_new_profile_is_found_by_its_name_and_passes_the_check(tmp_path: Path) -> None:
    made = run("new", "lab", "--gpu", "t4")
    assert made.exit_code == 0, made.output
    assert made.output.endswith("gpuprep plan HOST --profile lab\n")
    assert (tmp_path / "config/gpuprep/profiles/lab.yml").is_file()
    assert (loading.load("lab").gpus, run("check", "lab").output) == (("t4",), "lab: ok\n")
    assert (
        loading.load("lab").thresholds["fp16_percent_of_peak"] == loading.load("t4").thresholds["fp16_percent_of_peak"]
    )
    assert "there already, just like this" in run("new", "lab", "--gpu", "t4").output


@pytest.mark.parametrize("name", ["lab.yml", "lab.yaml"])
def test_a_new_profile_is_not_named_as_a_file(tmp_path: Path, name: str) -> None:
    made = run("new", name, "--gpu", "t4")
    assert isinstance(made.exception, errors.UsageError)
    assert "`gpuprep profiles new lab`" in made.exception.hint
    assert not list(tmp_path.rglob(name))


@pytest.mark.parametrize(
    ("words", "extends", "gpus"),
    [
        (["--gpu", "NVIDIA A100-PCIE-40GB"], "a100", ("a100",)),
        (["--gpu", "l40s"], "base", ("l40s",)),
        (["--gpu", "t4", "--gpu", "v100"], "base", ("t4", "v100")),
        (["--from", "v100"], "v100", ("v100",)),
        (["--from", "base", "--gpu", "t4"], "base", ("t4",)),
    ],
)
def test_what_a_new_profile_extends(tmp_path: Path, words: list[str], extends: str, gpus: tuple[str, ...]) -> None:
    path = tmp_path / "own.yml"
    made = run("new", "own", *words, "--output", str(path))
    assert made.exit_code == 0, made.output
    assert f'extends: "{extends}"' in path.read_text()
    assert loading.load(str(path)).gpus == gpus
    assert run("check", str(path)).exit_code == 0


def test_a_profile_may_extend_a_file_of_the_user(tmp_path: Path) -> None:
    site = tmp_path / "site.yml"
    site.write_text("extends: t4\ntuning: {power_limit_watts: 62}\n")
    assert run("new", "own", "--from", str(site), "--output", str(tmp_path / "other" / "own.yml")).exit_code == 0
    assert loading.load(str(tmp_path / "other/own.yml")).tuning.power_limit_watts == 62


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["own"], "needs --gpu or --from"),
        (["own", "--gpu", "t5"], "the catalogue has no such GPU (did you mean"),
        (["own", "--gpu", "rtx"], "no such GPU"),
        (["own", "--from", "t5"], "there is no profile 't5'"),
        (["own", "--from", "./nowhere.yml"], "there is no such file"),
        (["own", "--from", "t4", "--gpu", "v100"], "this profile and its limits are for T4, not for V100"),
        (["own", "--from", "t4", "--gpu", "t4", "--gpu", "v100"], "are for T4, not for V100"),
        (["t4", "--gpu", "t4"], "is a profile of gpuprep's own"),
        (["../own", "--gpu", "t4"], "is no name of a profile"),
        (["-own", "--gpu", "t4"], "No such option"),
    ],
)
def test_a_profile_that_cannot_be_made(tmp_path: Path, words: list[str], said: str) -> None:
    made = run("new", *words)
    assert made.exit_code
    assert said in f"{made.exception}{made.output}"
    assert not (tmp_path / "config").exists()


def test_another_file_of_the_name_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "own.yml"
    path.write_text("extends: v100\n")
    made = run("new", "own", "--gpu", "t4", "--output", str(path))
    assert isinstance(made.exception, errors.UsageError)
    assert "--force" in made.exception.hint
    assert path.read_text() == "extends: v100\n"
    assert run("new", "own", "--gpu", "t4", "--output", str(path), "--force").exit_code == 0
    assert loading.load(str(path)).gpus == ("t4",)
    assert [one.name for one in tmp_path.glob("*")] == ["own.yml"]


def test_a_profile_that_does_not_pass_the_check_is_not_written(tmp_path: Path) -> None:
    site = tmp_path / "site.yml"
    site.write_text("extends: t4\ndriver: {flavour: open, version: '470'}\n")
    made = run("new", "own", "--from", str(site), "--output", str(tmp_path / "own.yml"))
    assert made.exit_code
    assert [one.name for one in tmp_path.glob("*")] == ["site.yml"]
