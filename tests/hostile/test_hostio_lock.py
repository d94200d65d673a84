"""An unprivileged user of a GPU host against the lock: really, by processes of another user id."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
import sshserver
from hostiletexts import is_calm

from gpuprep import errors, remote
from gpuprep.nightly import run as night

NOBODY = 65534
BOX = remote.Target("box", local=True)
ALICE = remote.LockOwner("alice", "laptop", "20250601-1a2b", "2025-06-01T12:00:00+00:00")
BOB = remote.LockOwner("bob", "desk", "20250601-3c4d", "2025-06-01T12:05:00+00:00")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs two users, so root")


def a_run() -> Iterator[Path]:
    """Stands for /run: root's, and all may enter."""
    folder = Path(tempfile.mkdtemp(prefix="gpuprep-run-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


run = pytest.fixture(a_run)


def nobody(script: str, cwd: Path) -> subprocess.Popen[str]:
    """`script` for sh by a user without any right; it says so where it holds something, and holds it till it ends."""
    return subprocess.Popen(
        ["sh", "-c", script],
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
    )


def attack(script: str, cwd: Path) -> str:
    """What it said. It has ended."""
    out, _ = nobody(script, cwd).communicate()
    return str(out)


HOLD = (
    'exec python3 -ISc "import fcntl, os, sys; f = os.open(sys.argv[1], {ways}); fcntl.flock(f, 2);'
    " print('mine', flush=True); sys.stdin.read()\" {path}"
)


def holder(path: str, cwd: Path, ways: str = "os.O_RDONLY") -> Iterator[str]:
    """The first line of a process of nobody's that tries to hold a flock, and does while the generator lives."""
    process = nobody(HOLD.format(ways=ways, path=path), cwd)
    assert process.stdout is not None
    try:
        yield process.stdout.readline()
    finally:
        process.communicate()


def lock_of(run: Path, owner: remote.LockOwner) -> remote.HostLock:
    return remote.HostLock("box", owner, remote.Host(BOX).start, lock_file=str(run / "gpuprep" / "lock"))


def is_held(run: Path) -> bool:
    with (run / "gpuprep" / "lock").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def can_be_locked(run: Path) -> None:
    with lock_of(run, ALICE):
        folder = run / "gpuprep"
        assert (folder.stat().st_uid, folder.stat().st_mode & 0o777) == (os.geteuid(), 0o700)
        assert (folder / "lock").stat().st_mode & 0o777 == 0o600
        assert is_held(run)
    assert not is_held(run)


# ---------------------------------------------------------------- what a user does to the lock

FOREVER = {
    "mkdir": "mkdir gpuprep",
    "mkdir-lock": "mkdir -p gpuprep/lock",
    "mkfifo": "mkfifo gpuprep",
    "touch": "touch gpuprep",
    "symlink-to-etc": "ln -s /etc gpuprep",
    "symlink-to-own": "ln -s /tmp gpuprep",
    "symlink-dangling": "ln -s /nowhere gpuprep",
    "mkfifo-lock": "mkdir gpuprep; mkfifo gpuprep/lock",
    "symlink-lock": "mkdir gpuprep; ln -s /etc/passwd gpuprep/lock",
    "socket": "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"gpuprep\")'",
}


@as_root
@pytest.mark.parametrize("how", FOREVER)
def test_nothing_can_be_put_where_the_lock_will_be(run: Path, how: str) -> None:
    attack(FOREVER[how], run)
    assert list(run.iterdir()) == []
    can_be_locked(run)


WHILE_HELD = {
    "remove": "rm -rf gpuprep gpuprep/lock",
    "move": "mv gpuprep gone",
    "move-file": "mv gpuprep/lock gone",
    "chmod": "chmod 777 gpuprep gpuprep/lock",
    "chown": "chown 65534 gpuprep gpuprep/lock",
    "hardlink": "ln gpuprep/lock /tmp/gpuprep-attack-link && rm /tmp/gpuprep-attack-link && echo linked",
    "truncate": ": >gpuprep/lock && echo truncated",
    "read": "cat gpuprep/lock | grep alice",
    "list": "ls gpuprep | grep lock",
    "enter": "cd gpuprep && echo entered",
    "new-file": "touch gpuprep/other && echo made",
    "bind": "mount -t tmpfs none gpuprep 2>/dev/null && echo mounted",
    "flock-read": HOLD.format(ways="os.O_RDONLY", path="gpuprep/lock") + " </dev/null",
    "flock-path": HOLD.format(ways="os.O_PATH", path="gpuprep/lock") + " </dev/null",
    "flock-folder": HOLD.format(ways="os.O_RDONLY", path="gpuprep") + " </dev/null",
    "by-proc": 'for f in /proc/[0-9]*/fd/*; do test "$(readlink $f)" = "$PWD/gpuprep/lock" && echo reached; done',
    "kill-holder": "pkill -u 0 -f gpuprep/lock && echo killed",
}


@pytest.fixture(scope="module")
def held() -> Iterator[Path]:
    """A /run in which alice holds the lock."""
    for folder in a_run():
        with lock_of(folder, ALICE):
            yield folder


@pytest.fixture(scope="module")
def released() -> Iterator[Path]:
    """A /run in which alice held the lock."""
    for folder in a_run():
        with lock_of(folder, ALICE):
            pass
        yield folder


@as_root
@pytest.mark.parametrize("when", ["held", "released"])
@pytest.mark.parametrize("how", WHILE_HELD)
def test_nothing_can_be_done_to_a_lock_that_is_there(request: pytest.FixtureRequest, how: str, when: str) -> None:
    run: Path = request.getfixturevalue(when)
    before = [(run / name).stat() for name in ("gpuprep", "gpuprep/lock")]
    said = attack(WHILE_HELD[how], run)
    for word in ("linked", "truncated", "alice", "entered", "made", "mounted", "mine", "reached", "killed"):
        assert word not in said, said
    after = [(run / name).stat() for name in ("gpuprep", "gpuprep/lock")]
    assert [(one.st_ino, one.st_mode, one.st_uid, one.st_nlink) for one in before] == [
        (one.st_ino, one.st_mode, one.st_uid, one.st_nlink) for one in after
    ]
    assert is_held(run) == (when == "held")
    assert ("alice" in (run / "gpuprep" / "lock").read_text()) == (when == "held")


@as_root
def test_a_user_who_holds_the_old_place_is_in_nobodys_way(run: Path) -> None:
    """/run/lock is everybody's: nothing of gpuprep is there any more."""
    told: list[str] = []

    def start(command: str) -> NoReturn:
        told.append(command)
        raise errors.HostUnreachable("it is away", "", where="box")

    with pytest.raises(errors.HostUnreachable), remote.HostLock("box", ALICE, start):
        pass
    assert "/run/gpuprep/lock" == str(night.CONTROLLERS_LOCK) in told[0]
    old = run / "lock"
    old.mkdir(mode=0o1777)
    old.chmod(0o1777)
    attack("touch lock/gpuprep.lock", run)
    for said in holder("lock/gpuprep.lock", run):
        assert said == "mine\n"
        can_be_locked(run)


# ---------------------------------------------------------------- what root itself left open: refused, and soon


def folder_of_nobody(run: Path) -> None:
    (run / "gpuprep").mkdir()
    os.chown(run / "gpuprep", NOBODY, NOBODY)


def link_to_folder(run: Path) -> None:
    (run / "own").mkdir()
    (run / "gpuprep").symlink_to("own")


def fifo(run: Path) -> None:
    os.mkfifo(run / "gpuprep")


def file(run: Path) -> None:
    (run / "gpuprep").touch()


def within(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def act(run: Path) -> None:
        (run / "gpuprep").mkdir()
        (run / "gpuprep").chmod(0o777)
        make(run / "gpuprep" / "lock")

    return act


def file_of_nobody(path: Path) -> None:
    path.touch()
    os.chown(path, NOBODY, NOBODY)


def link_to_precious(path: Path) -> None:
    (path.parent.parent / "precious").write_text("precious")
    path.symlink_to("../precious")


def hardlink_to_precious(path: Path) -> None:
    (path.parent.parent / "precious").write_text("precious")
    path.hardlink_to(path.parent.parent / "precious")


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


LEFT = {
    "folder-of-another": folder_of_nobody,
    "folder-is-a-link": link_to_folder,
    "folder-is-a-fifo": fifo,
    "folder-is-a-file": file,
    "lock-of-another": within(file_of_nobody),
    "lock-is-a-folder": within(Path.mkdir),
    "lock-is-a-fifo": within(os.mkfifo),
    "lock-is-a-link": within(link_to_precious),
    "lock-is-a-dangling-link": within(lambda path: path.symlink_to("../nothing")),
    "lock-is-a-hard-link": within(hardlink_to_precious),
    "lock-is-a-socket": within(a_socket),
    "lock-is-a-device": within(lambda path: os.mknod(path, 0o20600, os.makedev(1, 5))),
}


@as_root
@pytest.mark.parametrize("how", LEFT)
def test_what_is_not_roots_alone_is_refused_and_not_touched(run: Path, how: str) -> None:
    LEFT[how](run)
    with pytest.raises(errors.HostError, match=r"cannot lock box: .*gpuprep.*remove it") as caught, lock_of(run, ALICE):
        pass
    is_calm(caught.value.explain())
    assert not (run / "nothing").exists()
    if (run / "precious").exists():
        assert (run / "precious").read_text() == "precious"


@as_root
@pytest.mark.parametrize("mode", [0o755, 0o777, 0o1777, 0o500])
def test_a_folder_of_another_mode_is_closed(run: Path, mode: int) -> None:
    """As an older gpuprep left it, for the clocks that it locked."""
    (run / "gpuprep").mkdir()
    (run / "gpuprep").chmod(mode)
    (run / "gpuprep" / "locked-clocks.json").write_text("{}")
    can_be_locked(run)
    assert (run / "gpuprep" / "locked-clocks.json").read_text() == "{}"


# ---------------------------------------------------------------- the night


@as_root
@pytest.mark.parametrize("how", LEFT)
def test_the_night_is_not_blinded_by_what_is_no_lock_of_roots(
    run: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(night, "CONTROLLERS_LOCK", run / "gpuprep" / "lock")
    LEFT[how](run)
    night._not_while_gpuprep_works(0)


@as_root
@pytest.mark.parametrize(
    ("folder", "mode", "owner"), [(0o777, 0o644, NOBODY), (0o755, 0o644, 0), (0o755, 0o666, 0), (0o777, 0o600, NOBODY)]
)
def test_the_night_is_not_blinded_by_a_user_who_holds_a_file(
    run: Path, monkeypatch: pytest.MonkeyPatch, folder: int, mode: int, owner: int
) -> None:
    path = run / "gpuprep" / "lock"
    monkeypatch.setattr(night, "CONTROLLERS_LOCK", path)
    path.parent.mkdir()
    path.touch()
    path.parent.chmod(folder)
    path.chmod(mode)
    os.chown(path, owner, owner)
    for said in holder(str(path), run):
        assert said == "mine\n"
        night._not_while_gpuprep_works(0)


def test_the_night_waits_for_a_provisioning(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(night, "CONTROLLERS_LOCK", run / "gpuprep" / "lock")
    night._not_while_gpuprep_works(0)
    with lock_of(run, ALICE), pytest.raises(errors.HostLocked, match="gpuprep changes this machine now"):
        night._not_while_gpuprep_works(0)
    night._not_while_gpuprep_works(0)


# ---------------------------------------------------------------- the words of a lock, and the program that holds it

WORDS = {
    "nothing": "",
    "no-json": "\x1b[2Jhello",
    "a-list": "[1, 2, 3]",
    "a-number": "7",
    "null": "null",
    "numbers": json.dumps({"user": 1, "controller": 2.5, "run_id": None, "since": []}),
    "escapes": json.dumps(dict.fromkeys(("user", "controller", "run_id", "since"), "\x1b]0;owned\x07\u202e\n\r\x9b")),
    "long": json.dumps({"user": "u" * 3000, "controller": "c", "run_id": "r", "since": "s"}),
    "too-long": json.dumps(dict.fromkeys(("user", "controller", "run_id", "since"), "x" * 100_000)),
    "more-keys": json.dumps({"user": "a", "controller": "b", "run_id": "c", "since": "d", "more": "e"}),
    "fewer-keys": json.dumps({"user": "a"}),
    "deep": "[" * 4000,
    "surrogate": '{"user": "\\ud800", "controller": "\\udfff", "run_id": "", "since": ""}',
    "not-utf8": "\udcff\udcfe",
    "nul": "\0" * 4000,
    "nul-run": json.dumps(dict.fromkeys(("user", "controller", "run_id", "since"), "\0")),
    "newlines": "\n" * 4000 + '{"user"',
}


@pytest.mark.parametrize("case", WORDS)
def test_the_words_of_a_lock_are_only_words(run: Path, case: str) -> None:
    (run / "gpuprep").mkdir(mode=0o700)
    path = run / "gpuprep" / "lock"
    path.write_bytes(WORDS[case].encode(errors="surrogateescape"))
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(errors.HostLocked, match="box is in use by ") as caught, lock_of(run, BOB):
            pass
    is_calm(caught.value.explain(), 800)
    assert "\n" not in caught.value.what
    with lock_of(run, BOB):
        assert "bob" in path.read_text()


@pytest.mark.parametrize("module", ["json", "select", "fcntl", "os", "sitecustomize", "usercustomize"])
def test_modules_of_the_folder_or_of_the_environment_are_not_loaded(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    (tmp_path / f"{module}.py").write_text(f"open({str(tmp_path / 'loaded')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with lock_of(run, ALICE):
        pass
    assert not (tmp_path / "loaded").exists()


def test_without_python_it_is_said_plainly(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(errors.HostError, match="cannot lock box: there is no python3") as caught, lock_of(run, ALICE):
        pass
    assert "install it there" in caught.value.hint


def test_a_controller_that_says_nothing_more_loses_the_lock(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = sshserver.lock_command(monkeypatch, ALICE, run / "gpuprep" / "lock", silence=1)
    process = remote.Host(BOX).start(command)
    assert process.read_line(300) == b"held"
    assert process.ended(300)
    process.close()
    with lock_of(run, BOB):
        pass


def test_a_heartbeat_keeps_it(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For longer than a controller may be silent, by far shorter pauses."""
    process = remote.Host(BOX).start(sshserver.lock_command(monkeypatch, ALICE, run / "gpuprep" / "lock", silence=4))
    assert process.read_line(300) == b"held"
    for _ in range(25):
        process.send(b".")
        assert not process.ended(0.2)
    process.close()


def test_of_many_who_come_at_once_one_has_it(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the folder is made by one of them, while others look at it."""
    command = sshserver.lock_command(monkeypatch, ALICE, run / "gpuprep" / "lock")
    processes = [remote.Host(BOX).start(command) for _ in range(8)]
    answers = sorted(process.read_line(300).partition(b" ")[0] for process in processes)
    assert answers == [b"busy"] * 7 + [b"held"]
    for process in processes:
        process.close()


OLD = """\
#!{python}
import os, sys
at = sys.argv.index("-c") + 1
code = "import sys\\nsys.version_info = (3, 6, 8)\\nsys.version = '3.6.8 (default)'\\n" + sys.argv[at]
os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", code, *sys.argv[at + 1:]])
"""


def test_a_python_that_is_too_old_is_named(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enterprise Linux 8 has 3.6, which ends at `from __future__ import annotations` before it reads anything else."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").write_text(OLD.format(python=sys.executable))
    (tmp_path / "bin/python3").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    words = "cannot lock box: python3 there is 3.6.8, and gpuprep needs 3.9"
    with pytest.raises(errors.HostError, match=words) as caught, lock_of(run, ALICE):
        pass
    assert "sudo alternatives --set python3 /usr/bin/python3.12" in caught.value.hint
    assert not (run / "gpuprep").exists()
