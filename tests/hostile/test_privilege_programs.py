"""Root runs nothing that another user can change: the files, folders and links that lead to a program.

Who owns what is really set where the test runs as root; the agent is a real process that asks real programs.
"""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import gpuprep
from gpuprep import records
from gpuprep.agent.facts import shells
from gpuprep.agent.probes import codec, throughput
from gpuprep.agent.programs import children, trusted
from gpuprep.agent.programs.run import run
from gpuprep.agent.video import clips

NOBODY = pwd.getpwnam("nobody").pw_uid
ROOT_OF_SOURCES = str(Path(gpuprep.__file__).parent.parent)
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")


def program(path: Path, text: str = "echo ffmpeg version 7.1.5 Copyright") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def given(path: Path, *, follow: bool = True) -> None:
    os.chown(path, NOBODY, -1, follow_symlinks=follow)


def of_a_user(place: Path) -> Path:
    path = program(place / "bin/ffmpeg")
    given(path)
    return path


def in_a_users_folder(place: Path) -> Path:
    path = program(place / "bin/ffmpeg")
    given(path.parent)
    return path


def below_a_users_folder(place: Path) -> Path:
    path = program(place / "conda/envs/x/bin/ffmpeg")
    given(place / "conda")
    return path


def for_everybody_to_write(place: Path) -> Path:
    path = program(place / "bin/ffmpeg")
    path.chmod(0o777)
    return path


def in_a_folder_for_everybody(place: Path) -> Path:
    path = program(place / "bin/ffmpeg")
    path.parent.chmod(0o777)
    return path


def in_a_folder_of_a_group(place: Path) -> Path:
    path = program(place / "bin/ffmpeg")
    os.chown(path.parent, 0, 54321)
    path.parent.chmod(0o775)
    return path


def of_a_group(place: Path) -> Path:
    path = program(place / "bin/ffmpeg")
    os.chown(path, 0, pwd.getpwuid(NOBODY).pw_gid)
    path.chmod(0o775)
    return path


def behind_a_link_into_a_users_folder(place: Path) -> Path:
    real = program(place / "home/ffmpeg")
    given(real.parent)
    link = place / "bin/ffmpeg"
    link.parent.mkdir()
    link.symlink_to(real)
    return link


def behind_a_users_link(place: Path) -> Path:
    real = program(place / "real/ffmpeg")
    link = place / "bin/ffmpeg"
    link.parent.mkdir()
    link.symlink_to(real)
    given(link, follow=False)
    return link


def behind_a_linked_folder(place: Path) -> Path:
    program(place / "home/bin/ffmpeg")
    given(place / "home")
    (place / "opt").symlink_to("home")
    return place / "opt/bin/ffmpeg"


def behind_dots(place: Path) -> Path:
    program(place / "bin/ffmpeg")
    (place / "home/x").mkdir(parents=True)
    given(place / "home")
    return place / "home/x/../../bin/ffmpeg"


WAYS: list[Callable[[Path], Path]] = [
    of_a_user, in_a_users_folder, below_a_users_folder, for_everybody_to_write, in_a_folder_for_everybody,
    in_a_folder_of_a_group, of_a_group, behind_a_link_into_a_users_folder, behind_a_users_link,
    behind_a_linked_folder, behind_dots,
]  # fmt: skip
by_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


@root_only
@by_way
def test_root_does_not_run_it(tmp_path: Path, way: Callable[[Path], Path]) -> None:
    path = way(tmp_path)
    answer = run([str(path), "-version"])
    assert isinstance(answer, records.Missing)
    assert answer.reason == "not_trusted"
    assert answer.detail.startswith(f"root does not run {path}: "), answer.detail


@root_only
@by_way
def test_nor_by_its_name_on_a_path(tmp_path: Path, way: Callable[[Path], Path]) -> None:
    path = way(tmp_path)
    answer = run(["ffmpeg"], env={"PATH": f"{path.parent}:/nowhere"})
    assert isinstance(answer, records.Missing)
    assert answer.reason in ("not_trusted", "command_not_found")


@root_only
def test_a_compiler_finds_no_program_in_a_users_folder(tmp_path: Path) -> None:
    """nvcc starts the gcc of the PATH it is given."""
    of_user, nvcc = program(tmp_path / "conda/gcc", "echo a user"), program(tmp_path / "cuda/nvcc", "gcc || echo $PATH")
    given(of_user.parent)
    said = run([str(nvcc)], env={"PATH": f"{of_user.parent}::.:relative:{nvcc.parent}:/bin"})
    assert isinstance(said, str)
    assert "a user" not in said
    assert str(of_user.parent) not in said


@pytest.mark.parametrize("module", ["json", "importlib/metadata", "asked_for"])
def test_the_folder_it_was_started_in_gives_no_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    """`python3 -c` looks into it first, and who calls the agent by sudo chooses it."""
    proof = tmp_path / "ran"
    planted = tmp_path / f"{module}.py"
    planted.parent.mkdir(exist_ok=True)
    planted.write_text(f"open({str(proof)!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    found = shells.python_modules(["asked_for"], "/usr/bin:/bin")
    assert found == {"asked_for": None}
    assert not proof.exists()


def agent(*words: str, stdin: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpuprep.agent", *words],
        input=stdin, capture_output=True, text=True, check=False, cwd=cwd,
        env={"PYTHONPATH": ROOT_OF_SOURCES, "PATH": "/usr/bin:/bin", "HOME": str(cwd)},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("packages", "--pipe=touch /tmp/x"), ("packages", "-l"), ("packages", "a b"), ("packages", "$(id)"),
        ("packages", "a" * 101), ("commands", "../../bin/sh"), ("commands", "/bin/sh"), ("commands", ""),
        ("python_modules", "-c"), ("python_modules", "a\nb"), ("python_modules", "\u202eab"),
    ],
)  # fmt: skip
def test_a_name_that_is_an_option_or_none(tmp_path: Path, key: str, name: str) -> None:
    """What is asked for comes from who may call the agent by sudo, and ends as an argument of dpkg-query or rpm."""
    done = agent("facts", stdin=json.dumps({key: [name]}), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "is no name of a command, module or package" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("measure", [codec.measure, throughput.measure], ids=["codec", "throughput"])
@pytest.mark.parametrize("path", ["/usr/bin/true", "/bin/sh", "/usr/bin/env", "/bin/ffmpeg/../sh"])
def test_a_probe_starts_no_program_but_ffmpeg(measure: Callable[[dict[str, str]], object], path: str) -> None:
    assert measure({"path": path}) == records.Missing("not_supported", f"{path} is no ffmpeg")


@root_only
def test_root_writes_no_clip_into_a_users_folder(tmp_path: Path) -> None:
    given(tmp_path)
    made = clips.clip("h264-540p", within=tmp_path)
    assert isinstance(made, records.Missing)
    assert made.reason == "not_trusted"
    assert not list(tmp_path.iterdir())


@root_only
def test_what_only_root_can_change_is_run(tmp_path: Path) -> None:
    real = program(tmp_path / "builds/7/bin/ffmpeg")
    (tmp_path / "builds/current").symlink_to("7")
    (tmp_path / "ffmpeg").symlink_to("builds/current/bin/ffmpeg")
    os.chown(real.parent, 0, 0)
    real.parent.chmod(0o775)
    assert run([str(tmp_path / "ffmpeg")]) == "ffmpeg version 7.1.5 Copyright\n"
    for path in ("/usr/bin/env", "/bin/sh", sys.executable, "/tmp", "/no/such"):
        assert trusted.untrusted_reason(path) == ""


def test_what_is_not_there_is_not_found() -> None:
    with pytest.raises(FileNotFoundError):
        children.run(["/no/such/program"], timeout=5)
    with pytest.raises(FileNotFoundError):
        children.run(["no-such-program"], timeout=5)
