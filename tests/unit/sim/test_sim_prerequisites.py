"""What `sim` says on a computer that cannot run machines: each case is played for real in a process of its own.

And which of the computer's package archives has FFmpeg's sources.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

from gpuprep import errors
from gpuprep.sim import mirror, prerequisites

CHECK = """
from gpuprep.errors import SimError
from gpuprep.sim import prerequisites
{before}
try:
    prerequisites.check()
except SimError as error:
    print(error.what); print("hint:", error.hint)
"""


def check(before: str = "", **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", CHECK.format(before=before)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become an ordinary user")
def test_an_ordinary_user_is_told_to_use_sudo() -> None:
    said = check("import os; os.setuid(65534)")
    assert "need root" in said
    assert "sudo" in said


def test_another_system_is_named() -> None:
    said = check("import sys; sys.platform = 'darwin'")
    assert "need Linux, this is darwin" in said


def test_every_missing_program_has_its_line_and_one_command_installs_them() -> None:
    said = check(PATH="/nonexistent")
    for program in ("mmdebstrap", "systemd-nspawn", "gcc"):
        assert f"{program} is missing: it " in said
    hint = next(line for line in said.splitlines() if line.startswith("hint:"))
    assert "apt-get install mmdebstrap systemd-container gcc libc6-dev" in hint
    assert hint.count("util-linux") == 1


@pytest.mark.parametrize(
    ("limit", "machines", "now"),
    [(128, 1, 128), (128, 8, 128), (128, 9, 272), (8192, 50, 8192)],
)
def test_the_kernel_allows_as_many_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, machines: int, now: int
) -> None:
    """Fifty machines must boot where the kernel's limit is for twenty-six."""
    file = tmp_path / "max_user_instances"
    file.write_text(f"{limit}\n")
    monkeypatch.setattr(prerequisites, "WATCHERS", file)
    said: list[str] = []
    prerequisites.allow(machines, said.append)
    assert int(file.read_text()) == now
    assert bool(said) == (now != limit)


def test_a_limit_that_cannot_be_raised_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prerequisites, "WATCHERS", tmp_path / "none")
    said: list[str] = []
    prerequisites.allow(50, said.append)
    assert said[0].startswith("cannot raise fs.inotify.max_user_instances to 464, which 50 machines need: ")


def test_the_debian_archive_is_found_among_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mirror, "KEYRING", tmp_path / "keyring")
    (tmp_path / "keyring").touch()
    listed = "https://other.invalid/apt/\nhttp://archive.invalid/debian-security/\nhttp://archive.invalid/debian/\n"
    assert mirror.debian_archive(listed) == "http://archive.invalid/debian"


def test_without_a_debian_archive_the_error_says_what_to_do() -> None:
    with pytest.raises(errors.SimError) as caught:
        mirror.debian_archive("http://archive.invalid/ubuntu/\n")
    assert "Debian archive" in caught.value.what
    assert "mirror directory" in caught.value.hint
