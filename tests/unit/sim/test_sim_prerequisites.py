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

UP = """
{before}
import sys
from gpuprep.cli import main
sys.argv = ["gpuprep", "sim", "up", "none-such"]
main()
"""


def refused(folder: Path, before: str = "", **environment: str) -> str:
    """What `gpuprep sim up` says on a computer that is as `before` makes it."""
    own = {f"XDG_{name}_HOME": str(folder / name) for name in ("STATE", "CACHE", "CONFIG")}
    done = subprocess.run(
        [sys.executable, "-c", UP.format(before=before)],
        env={**os.environ, **own, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    return " ".join(done.stderr.split())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become an ordinary user")
def test_an_ordinary_user_is_told_to_use_sudo(tmp_path: Path) -> None:
    said = refused(tmp_path, "import os; os.setuid(65534)")
    assert "need root" in said
    assert "sudo" in said


def test_another_system_is_named(tmp_path: Path) -> None:
    said = refused(tmp_path, "import psutil, sys; sys.platform = 'darwin'")
    assert "need Linux, this is darwin" in said


def test_every_missing_program_has_its_line_and_one_command_installs_them(tmp_path: Path) -> None:
    said = refused(tmp_path, PATH="/nonexistent")
    for program in ("mmdebstrap", "systemd-nspawn", "gcc"):
        assert f"{program} is missing: it " in said
    assert "apt-get install mmdebstrap systemd-container gcc libc6-dev" in said
    assert said.partition("apt-get install")[2].count("util-linux") == 1


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
