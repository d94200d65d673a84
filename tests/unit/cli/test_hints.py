"""Every command that gpuprep tells people to type is one that it takes; those that need no host are run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import hints
import pytest

from gpuprep.cli import cli, run_command

WRITTEN = sorted(set(hints.written()))
# What stands in for a value in a text; a command with one of these can be parsed and not be run.
PLACEHOLDER = re.compile(r"\b[A-Z]{2,}\b|\.\.\.|…|\bx\b")
# Those that need no host, no run and no file.
ALONE = re.compile(r"(profiles (list|show \S+)|monitoring (rules|dashboard)|explain --.*|--help|\S+ --help|history)")
ON_HOSTS = re.compile(r"gpuprep (provision|plan|tune|validate|drift)\b(?! (last|unschedule))")


def test_there_are_commands_in_source_and_pages() -> None:
    files = {file for file, _ in WRITTEN}
    assert len(WRITTEN) > 150
    for place in ("README.md", "docs/cli.md", "gpuprep/checks/", "gpuprep/cli/"):
        assert any(file.startswith(place) for file in files), place


@pytest.mark.parametrize(("file", "line"), WRITTEN)
def test_the_command_line_takes_it(file: str, line: str) -> None:
    assert hints.problem(line) == "", file


@pytest.mark.parametrize(
    "line",
    [
        "gpuprep provison HOST", "gpuprep validate HOST --profil t4", "gpuprep drift HOST --probe slow",
        "gpuprep baseline set HOST last --why x", "gpuprep report a b", "gpuprep compare RUN",
    ],
)  # fmt: skip
def test_a_command_that_is_wrong_is_known(line: str) -> None:
    assert hints.problem(line)


@pytest.mark.parametrize(
    ("file", "line"), [one for one in WRITTEN if one[0].startswith("gpuprep/checks/") and ON_HOSTS.match(one[1])]
)
def test_a_remedy_names_the_host_and_the_profile(file: str, line: str) -> None:
    """Reports put the run's own in their place (checks/commands.py)."""
    assert re.match(r"gpuprep [a-z ]+ HOST --profile (PROFILE|x)\b", line), file


def alone() -> list[str]:
    rest = {line.partition(" ")[2].strip() for _, line in WRITTEN}
    return sorted(line for line in rest if ALONE.fullmatch(line) and not PLACEHOLDER.search(line))


def test_some_need_no_host() -> None:
    assert len(alone()) > 5


@pytest.mark.parametrize("line", alone())
def test_what_needs_no_host_runs(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("STATE", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path))
    monkeypatch.delenv("GPUPREP_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    assert run_command.run(cli, shlex.split(line)) == 0, capsys.readouterr().err
