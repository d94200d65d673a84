"""Becoming root in the same round trip as the command: as root, by a stand-in for sudo, and where sudo refuses."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuprep import errors, remote

HERE = remote.Target("here", local=True)
# A stand-in that does as sudo -n does: options away, then the command. It counts its calls.
SUDO = '#!/bin/sh\necho called >>"$0.calls"\nwhile [ "$1" != -- ]; do shift; done; shift\nexec "$@"\n'


@pytest.fixture
def bin_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The programs that were started here: each is a round trip."""
    seen: list[Any] = []

    class Counted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, argv: Any, **named: Any) -> None:
            seen.append(argv)
            super().__init__(argv, **named)

    monkeypatch.setattr(subprocess, "Popen", Counted)
    return seen


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def ordinary_user(folder: Path) -> None:
    program(folder, "id", "#!/bin/sh\ncase $1 in -u) echo 1000;; *) echo bob;; esac\n")


def test_root_is_one_round_trip(bin_dir: Path, executed: list[Any]) -> None:
    program(bin_dir, "id", "#!/bin/sh\necho 0\n")
    program(bin_dir, "sudo", "#!/bin/sh\nexit 1\n")
    result = remote.Host(HERE).run("cat; echo it\\'s >&2; exit 7", stdin=b"input", become=True)
    assert (result.exit_code, result.stdout, result.stderr) == (7, "input", "it's\n")
    assert len(executed) == 1


def test_sudo_without_a_password_is_one_round_trip_and_leaves_the_input_alone(
    bin_dir: Path, executed: list[Any]
) -> None:
    ordinary_user(bin_dir)
    sudo = program(bin_dir, "sudo", SUDO)
    data = bytes(range(256)) * 500
    host = remote.Host(HERE)
    host.put(data, str(bin_dir / "written"), become=True)
    assert (bin_dir / "written").read_bytes() == data
    assert len(executed) == 1
    assert len(Path(f"{sudo}.calls").read_text().split()) == 2


def test_a_sudo_that_reads_ahead_does_not_get_the_input(bin_dir: Path) -> None:
    """With use_pty sudo reads what is meant for its command, even where that command reads nothing."""
    ordinary_user(bin_dir)
    eats = '#!/bin/sh\ncase "$*" in *"-c :") cat >"$0.eaten";; esac\nwhile [ "$1" != -- ]; do shift; done; shift\n'
    sudo = program(bin_dir, "sudo", eats + 'exec "$@"\n')
    assert remote.Host(HERE).run("cat", stdin=b"whole", become=True).stdout == "whole"
    assert Path(f"{sudo}.eaten").read_text() == ""


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ("sudo: a password is required", "sudo wants a password for bob"),
        ("bob is not in the sudoers file.", "bob may not use sudo here"),
        ("sudo: sorry, you must have a tty to run sudo", "sudo insists on a terminal"),
        ("sudo: something new", "sudo refuses bob: sudo: something new"),
    ],
)
def test_a_refusal_has_its_words_and_the_command_never_began(bin_dir: Path, says: str, words: str) -> None:
    ordinary_user(bin_dir)
    program(bin_dir, "sudo", f"#!/bin/sh\necho '{says}' >&2\nexit 1\n")
    with pytest.raises(errors.NoPrivilege, match=words) as caught:
        remote.Host(HERE).run(f"touch {bin_dir}/began", become=True)
    assert caught.value.hint
    assert not (bin_dir / "began").exists()


def test_no_sudo_at_all(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ordinary_user(bin_dir)
    for name in ("sh", "timeout", "test"):
        (bin_dir / name).symlink_to(f"/usr/bin/{name}")
    monkeypatch.setenv("PATH", str(bin_dir))
    with pytest.raises(errors.NoPrivilege, match="bob is not root and sudo is not installed"):
        remote.Host(HERE).run("echo", become=True)


def test_a_command_that_ends_as_a_refusal_does_is_not_run_again(bin_dir: Path, executed: list[Any]) -> None:
    program(bin_dir, "id", "#!/bin/sh\necho 0\n")
    remote.Host(HERE).run("true", become=True)
    not_begun = int(re.findall(r"exit (\d+)", " ".join(executed[0]))[-1])  # what a refusal ends with
    command = f"echo x >>{bin_dir}/runs; exit {not_begun}"
    assert remote.Host(HERE).run(command, become=True).exit_code == not_begun
    assert (bin_dir / "runs").read_text() == "x\n"


def test_with_a_password_it_is_learnt_first(bin_dir: Path, executed: list[Any]) -> None:
    ordinary_user(bin_dir)
    asks = '#!/bin/sh\ncase "$*" in *-n*) echo "sudo: a password is required" >&2; exit 1;; esac\n'
    asks += 'read -r password; test "$password" = secret || exit 1\n'
    program(bin_dir, "sudo", asks + 'while [ "$1" != -- ]; do shift; done; shift\nexec "$@"\n')
    host = remote.Host(HERE, become_password="secret")
    assert host.run("cat", stdin=b"its own", become=True).stdout == "its own"
    assert len(executed) == 3
    assert not any("secret" in command for command in executed)


# Remembers a user who gave the password, as sudo does for some minutes, and asks for it where no -p says otherwise.
REMEMBERS = """#!/bin/sh
ask=yes prompt='[sudo] password for bob: ' first= list=
[ ! -e "$0.known" ] || ask=
while [ "$1" != -- ]; do
  case $1 in
    -k) ask=yes;;
    -n) first=no;;
    -p) prompt=$2; shift;;
  esac
  shift
done
shift
if [ -n "$ask" ]; then
  [ "$first" != no ] || { echo "sudo: a password is required" >&2; exit 1; }
  printf %s "$prompt" >&2
  read -r password
  [ "$password" = secret ] || { echo "sudo: 1 incorrect password attempt" >&2; exit 1; }
  : >"$0.known"
fi
exec "$@"
"""


def test_where_sudo_remembers_the_user_the_password_is_not_what_the_command_reads(bin_dir: Path) -> None:
    ordinary_user(bin_dir)
    program(bin_dir, "sudo", REMEMBERS)
    host = remote.Host(HERE, become_password="secret")
    for text in ("first", "second"):
        result = host.run("cat", stdin=text.encode(), become=True)
        assert (result.exit_code, result.stdout, result.stderr) == (0, text, "")
    host.put(b"a file", str(bin_dir / "written"), become=True)
    assert (bin_dir / "written").read_bytes() == b"a file"


RUST = '#!/bin/sh\ncase "$*" in *-n*) echo "sudo: interactive authentication is required" >&2; exit 1;; esac\nexit 9\n'


def test_beside_sudo_rs_the_password_goes_to_the_classic_sudo(bin_dir: Path) -> None:
    """Ubuntu 26.04: `sudo` is sudo-rs, whose question Ansible does not know, and `sudo.ws` is sudo."""
    ordinary_user(bin_dir)
    program(bin_dir, "sudo", RUST)
    classic = '#!/bin/sh\nread -r password; test "$password" = secret || exit 1\n'
    program(bin_dir, "sudo.ws", classic + SUDO.partition("\n")[2])
    host = remote.Host(HERE, become_password="secret")
    assert host.sudo == ""
    assert host.run("cat", stdin=b"input", become=True).stdout == "input"
    assert host.sudo == "sudo.ws"
    with pytest.raises(errors.NoPrivilege, match="sudo wants a password for bob"):
        remote.Host(HERE).run("true", become=True)


def test_sudo_rs_alone_takes_no_password_from_ansible(bin_dir: Path) -> None:
    ordinary_user(bin_dir)
    program(bin_dir, "sudo", RUST)
    with pytest.raises(errors.NoPrivilege, match="sudo is sudo-rs there") as caught:
        remote.Host(HERE, become_password="secret").run("true", become=True)
    assert "NOPASSWD" in caught.value.hint


def test_a_wrong_password_is_said_and_the_command_never_began(bin_dir: Path) -> None:
    ordinary_user(bin_dir)
    program(bin_dir, "sudo", REMEMBERS)
    with pytest.raises(errors.NoPrivilege, match="sudo does not accept this password for bob"):
        remote.Host(HERE, become_password="guessed").run(f"touch {bin_dir}/began", become=True)
    assert not (bin_dir / "began").exists()
