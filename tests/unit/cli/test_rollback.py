"""rollback on the command line: over several hosts each one's failure is its own."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from commandline import Shell
from fakehost import Script, playbooks_of_the_test
from scriptedhosts import gpuprep as run
from scriptedhosts import script

from gpuprep import errors
from gpuprep.agent import host_paths
from gpuprep.remote import CommandResult

__all__ = ["run", "script"]  # fixtures
PROGRAM = shlex.quote(host_paths.ROLLBACK_PROGRAM)
SHOW = f"[ ! -e {PROGRAM} ] || exec python3 -I {PROGRAM} show"
KEPT = {
    "saved": {"driver": "595.71.05", "saved": "2026-11-29T10:00:00Z", "certified": "20261129-1", "kernel": "6.12"},
    "loaded": "610.43.02", "install": {"libcuda1": "595.71.05-1"}, "offline": True, "restart": True,
}  # fmt: skip
BOOK = """
- hosts: all
  gather_facts: false
  tasks:
    - name: Go back
      ansible.builtin.command: touch {folder}/{{{{ inventory_hostname }}}}
      tags: [driver]
"""
HOSTS = "".join(f"gpu-{number} ansible_connection=local\n" for number in (1, 2, 3))


@pytest.fixture
def went(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file for each host that went back; the second does not answer."""
    folder = tmp_path / "went"
    folder.mkdir()
    playbooks_of_the_test(tmp_path, monkeypatch, rollback=BOOK.format(folder=folder))
    (tmp_path / "hosts").write_text(HOSTS)
    script.commands[SHOW] = CommandResult(0, json.dumps(KEPT), "")
    script.connecting["gpu-2"] = errors.HostUnreachable("gpu-2: 10.0.0.2 refuses connections on port 22")
    return folder


def words(went: Path, *more: str) -> tuple[str, ...]:
    return ("rollback", "-i", str(went.parent / "hosts"), *more)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_host_that_does_not_answer_keeps_no_other_from_going_back(run: Shell, went: Path) -> None:
    code, out, err = run(*words(went, "--yes", "--json"))
    runs = json.loads(out)["runs"]
    assert code == 3, err
    assert [(one["host"], one["exit_code"]) for one in runs] == [("gpu-1", 0), ("gpu-2", 3), ("gpu-3", 0)]
    assert names(went) == ["gpu-1", "gpu-3"]
    assert "Error: gpu-2: 10.0.0.2 refuses connections on port 22" in err
    assert err.count("Go back to driver 595.71.05") == 2
    assert len({one["batch_id"] for one in runs}) == 1
    # And the one that failed can be asked again, alone.
    again = json.loads(run(*words(went, "--batch", "last", "--failed", "--yes", "--json"))[1])["runs"]
    assert [one["host"] for one in again] == ["gpu-2"]


def test_check_shows_what_each_would_do_and_stores_nothing(run: Shell, went: Path) -> None:
    code, out, _ = run(*words(went, "--check", "--json"))
    assert code == 3
    one, lost, other = json.loads(out)["runs"]
    assert (
        "installs: libcuda1 595.71.05-1" in one["plan"]["steps"][0]["reasons"] == other["plan"]["steps"][0]["reasons"]
    )
    assert "refuses connections" in lost["error"]
    assert names(went) == []
    page = run(*words(went, "--check"))[1]
    assert [line.split()[:2] for line in page.splitlines() if line.startswith("gpu-")] == [
        ["gpu-2", "UNKNOWN"], ["gpu-1", "PLAN"], ["gpu-3", "PLAN"],
    ]  # fmt: skip
    assert f"To do it: gpuprep rollback -i {went.parent}/hosts gpu-1 gpu-3" in page
    assert run("history", "--json")[1].count('"rollback"') == 0


def test_where_no_host_can_go_back_nobody_is_asked(run: Shell, went: Path, script: Script) -> None:
    script.commands[SHOW] = CommandResult(0, "", "")
    code, out, err = run(*words(went, "--yes", "--json"))
    assert code == 3
    assert [one["exit_code"] for one in json.loads(out)["runs"]] == [2, 3, 2]
    assert "the host kept no driver" in err
    assert names(went) == []


def test_without_a_terminal_it_needs_yes(run: Shell) -> None:
    code, out, err = run("rollback", "gpu-1")
    assert (code, out) == (2, "")
    assert "run the same command with --yes" in err
