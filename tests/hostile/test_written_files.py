"""Files that gpuprep writes where other users write, too: it follows none of their links and files."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest
from commandline import Shell, own_folders
from records_for_tests import record

from gpuprep import paths
from gpuprep.store import Store

NOBODY = pwd.getpwnam("nobody").pw_uid
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
PRECIOUS = "precious\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As /tmp, with something of the user's beside it."""
    own_folders(monkeypatch, tmp_path)
    with Store.open(f"sqlite:///{tmp_path}/runs.db") as store:
        store.append(record("20260101-000001-aaaaa"))
    (tmp_path / "precious").write_text(PRECIOUS)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    return tmp_path / "tmp"


def link(path: Path, target: str) -> None:
    path.symlink_to(target)
    os.lchown(path, NOBODY, -1)


def a_link(place: Path) -> Path:
    link(place / "out.json", "../precious")
    return place / "out.json"


def a_link_to_nothing(place: Path) -> Path:
    link(place / "out.json", "../new")
    return place / "out.json"


def a_linked_folder(place: Path) -> Path:
    link(place / "folder", "..")
    return place / "folder" / "precious"


def ones_own_link_to_a_link(place: Path) -> Path:
    link(place / "theirs", "../precious")
    (place / "out.json").symlink_to("theirs")
    return place / "out.json"


def a_file(place: Path) -> Path:
    made = place / "out.json"
    made.touch()
    made.chmod(0o666)
    os.chown(made, NOBODY, -1)
    return made


def a_second_name(place: Path) -> Path:
    (place / "out.json").hardlink_to(place.parent / "precious")
    return place / "out.json"


ATTACKS = [a_link, a_link_to_nothing, a_linked_folder, ones_own_link_to_a_link, a_file, a_second_name]
COMMANDS = {
    "a page": ("report", "last", "--format", "html"),
    "JSON": ("history", "list", "--json"),
    "a table": ("judge", "--template", "csv"),
    "rows": ("history", "export", "--format", "csv"),
}


@root_only
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("name", COMMANDS)
def test_what_another_user_put_there_is_not_written_to(
    place: Path, capsys: pytest.CaptureFixture[str], attack: Callable[[Path], Path], name: str
) -> None:
    target, words = attack(place), COMMANDS[name]
    before = {path: path.read_bytes() for path in place.parent.rglob("*") if path.is_file()}
    store = () if name == "a table" else ("--store", f"sqlite:///{place.parent}/runs.db")
    code, _, err = Shell(capsys)(*words, *store, "--output", str(target))
    assert code == 2, err
    assert err.startswith(f"Error: --output {target}: ")
    assert "what to do: name another file" in err
    after = {path: path.read_bytes() for path in place.parent.rglob("*") if path.is_file()}
    assert {path: text for path, text in after.items() if path.name[:8] != "runs.db-"} == {
        path: text for path, text in before.items() if path.name[:8] != "runs.db-"
    }


@root_only
def test_nor_a_part_of_a_file(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link(place / ".out.csv.part", "../precious")
    words = ("history", "export", "--store", f"sqlite:///{place.parent}/runs.db", "--output", f"{place}/out.csv")
    code, _, _ = Shell(capsys)(*words)
    assert code == 2
    assert (place.parent / "precious").read_text() == PRECIOUS


def test_no_private_file_is_written_through_a_link(place: Path) -> None:
    (place.parent / "record.json").symlink_to("precious")
    with pytest.raises(OSError, match="record"):
        paths.private_text(place.parent / "record.json", "{}")
    assert (place.parent / "precious").read_text() == PRECIOUS


def test_ones_own_link_and_a_pipe_are_written_to(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place.parent / "latest").symlink_to("precious")
    assert Shell(capsys)("judge", "--template", "csv", "--output", f"{place.parent}/latest")[0] == 0
    assert "gpu" in (place.parent / "precious").read_text()
    assert (place.parent / "latest").is_symlink()
    reading, writing = os.pipe()
    assert Shell(capsys)("judge", "--template", "csv", "--output", f"/dev/fd/{writing}")[0] == 0
    os.close(writing)
    with open(reading, encoding="utf-8") as file:
        assert "gpu" in file.read()
