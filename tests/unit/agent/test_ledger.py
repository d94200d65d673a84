"""What was there before gpuprep: how it is kept, read, told apart from what gpuprep's steps did, and put back."""

from __future__ import annotations

import base64
import gzip
import json
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from places import COLLECTION

from gpuprep.agent.facts import ledger


def test_the_collection_has_the_same_file() -> None:
    tree = COLLECTION.parents[2] / "gpuprep/agent/facts/ledger.py"
    assert (COLLECTION / "plugins/module_utils/ledger.py").resolve() == tree.resolve()


# ---------------------------------------------------------------- the package manager's history

OURS = "apt-get -y -o GPUprep::Step=1 -o GPUprep::Part=driver install nvidia-driver"
PURGE = "apt-get -y -o GPUprep::Step=1 -o GPUprep::Part=driver purge gcc"
OLD = "apt-get -y -o GPUprep::Step=1 install nvidia-driver"


def apt(*stanzas: tuple[str, str], folder: Path, name: str = "history.log") -> None:
    text = "\n".join(f"\nStart-Date: 2026-11-29  11:1{n}:00\nCommandline: {line}\n{rest}\nEnd-Date: x\n"
                     for n, (line, rest) in enumerate(stanzas))  # fmt: skip
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())


def test_apts_history_says_who_installed_what(tmp_path: Path) -> None:
    apt(
        (OURS, "Install: nvidia-driver:amd64 (550-1), gcc:amd64 (4:14, automatic)"),
        ("apt-get install vim", "Install: vim:amd64 (9)\nUpgrade: nvidia-driver:amd64 (550-1, 550-2)"),
        folder=tmp_path,
    )
    history = ledger.history_apt(tmp_path)
    assert history.installed["nvidia-driver"] == {"ours": True, "step": "driver", "auto": False}
    assert history.installed["gcc"]["auto"]
    assert not history.installed["vim"]["ours"]
    assert history.since == "2026-11-29  11:10:00"


@pytest.mark.parametrize(
    ("stanzas", "ours"),
    [
        ([(OURS, "Install: gcc:amd64 (1)"), ("apt remove gcc", "Remove: gcc:amd64 (1)"),
          ("apt install gcc", "Install: gcc:amd64 (1)")], False),
        ([("apt install gcc", "Install: gcc:amd64 (1)"), ("apt purge gcc", "Purge: gcc:amd64 (1)"),
          (OURS, "Install: gcc:amd64 (1)")], True),
        ([(OURS, "Install: gcc:amd64 (1)"), ("apt upgrade", "Upgrade: gcc:amd64 (1, 2)")], True),
        ([("apt install gcc -o GPUprep::Step=10", "Install: gcc:amd64 (1)")], False),
        ([(OLD, "Install: gcc:amd64 (1)")], True),
    ],
)  # fmt: skip
def test_the_last_who_installed_it_owns_it(tmp_path: Path, stanzas: list[tuple[str, str]], ours: bool) -> None:
    apt(*stanzas, folder=tmp_path)
    assert ledger.history_apt(tmp_path).installed["gcc"]["ours"] is ours


def test_older_histories_come_first_and_a_damaged_one_is_left_out(tmp_path: Path) -> None:
    apt((OURS, "Install: gcc:amd64 (1)"), folder=tmp_path, name="history.log.2.gz")
    apt(("apt install gcc", "Install: gcc:amd64 (1)"), folder=tmp_path, name="history.log.10.gz")
    (tmp_path / "history.log.1.gz").write_bytes(b"\x1f\x8bno")
    assert ledger.history_apt(tmp_path).installed["gcc"]["ours"]


@pytest.mark.parametrize(("line", "ended", "auto"), [
    (PURGE, False, False), (PURGE, True, True), ("apt-get purge gcc", False, True),
])  # fmt: skip
def test_a_removal_that_was_broken_off_had_apt_forget_what_is_a_dependency(
    tmp_path: Path, line: str, ended: bool, auto: bool
) -> None:
    """Otherwise it would look as if somebody had marked it as installed by hand."""
    apt((OURS, "Install: gcc:amd64 (1, automatic)"), (line, "Purge: gcc:amd64 (1)"), folder=tmp_path)
    path = tmp_path / "history.log"
    if not ended:
        path.write_text(path.read_text().rpartition("End-Date")[0])
    assert ledger.history_apt(tmp_path).installed["gcc"]["auto"] is auto


def test_what_gpuprep_changed_and_nobody_else_after_it(tmp_path: Path) -> None:
    apt(
        (OURS, "Upgrade: a:amd64 (1, 2), b:amd64 (1, 2)\nRemove: c:amd64 (1)"),
        ("apt upgrade", "Upgrade: b:amd64 (2, 3)"),
        folder=tmp_path,
    )
    assert ledger.history_apt(tmp_path).changed == {"a": "driver", "c": "driver"}


def test_dnfs_history_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    with sqlite3.connect(path) as database:
        database.executescript(
            "CREATE TABLE trans (id INTEGER, comment TEXT, dt_begin INTEGER);"
            "CREATE TABLE trans_item (id INTEGER, trans_id INTEGER, item_id INTEGER, action INTEGER, reason INTEGER);"
            "CREATE TABLE rpm (item_id INTEGER, name TEXT, arch TEXT);"
            "INSERT INTO rpm VALUES (1,'dkms','noarch'),(2,'gcc','x86_64'),(3,'vim','x86_64');"
            "INSERT INTO trans VALUES (1,'GPUprep::Step=1 GPUprep::Part=driver',0),(2,'',60);"
            "INSERT INTO trans_item VALUES (1,1,1,1,2),(2,1,2,1,1),(3,2,3,1,2);"
        )
    history = ledger.history_dnf(path)
    assert history.installed["dkms.noarch"] == {"ours": True, "step": "driver", "auto": False}
    assert history.installed["gcc.x86_64"]["auto"]
    assert not history.installed["vim.x86_64"]["ours"]


# ---------------------------------------------------------------- the ledger


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine whose tables are folders of the test; its programs are this computer's."""
    etc = tmp_path / "etc"
    etc.mkdir()
    monkeypatch.setattr(ledger, "OWN", (("driver", str(etc), "gpuprep-*"),))
    monkeypatch.setattr(ledger, "SHARED", (("cuda", str(etc), "environment"),))
    monkeypatch.setattr(ledger, "LEFT", ())
    return tmp_path


def test_it_is_written_once_for_root_alone(quiet: Path) -> None:
    path = quiet / "lib" / "before.json"
    (quiet / "etc/environment").write_text("LANG=C\n")
    assert ledger.write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    first = path.read_text()
    assert base64.b64decode(json.loads(first)["files"][f"{quiet}/etc/environment"]["text"]) == b"LANG=C\n"
    assert not ledger.write(path)
    assert path.read_text() == first
    assert [child.name for child in path.parent.iterdir()] == ["before.json"]


def test_it_is_not_written_where_gpuprep_was_before(quiet: Path) -> None:
    (quiet / "etc/gpuprep-nvidia.conf").touch()
    assert not ledger.write(quiet / "before.json")
    assert not (quiet / "before.json").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema_version": 99}', "[" * 100_000])
def test_what_is_no_ledger_is_not_believed(tmp_path: Path, text: str) -> None:
    path = tmp_path / "before.json"
    path.write_text(text)
    assert ledger.read(path) is None


def test_a_ledger_that_others_may_write_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "before.json"
    path.write_text('{"schema_version": 1}')
    assert ledger.read(path) == {"schema_version": 1}
    path.chmod(0o666)
    assert ledger.read(path) is None
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert ledger.read(path) is None


def build(folder: Path, name: str = "ffmpeg") -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/ffmpeg").touch()
    (folder / "bin/link").symlink_to("ffmpeg")
    (folder / "manifest.json").write_text(json.dumps({"name": name, "files": {"bin/ffmpeg": "0" * 64}}))
    return folder


@pytest.mark.parametrize("stranger", ["mine", "bin/.mine", "new/mine", "manifest.json.orig"])
def test_a_file_of_somebody_in_a_build_is_seen(quiet: Path, stranger: str) -> None:
    folder = build(quiet / "etc/gpuprep-7.1.5")
    assert "stranger" not in ledger.machine()["files"][str(folder)]
    (folder / stranger).parent.mkdir(exist_ok=True)
    (folder / stranger).touch()
    assert ledger.machine()["files"][str(folder)]["stranger"] == stranger


def test_a_link_of_somebody_in_a_build_is_seen(quiet: Path) -> None:
    folder = build(quiet / "etc/gpuprep-7.1.5")
    (folder / "mine").symlink_to("/")
    assert ledger.machine()["files"][str(folder)]["stranger"] == "mine"


def test_builds_below_a_prefix_are_gpupreps_by_their_manifest(quiet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, link = quiet / "data/ffmpeg", quiet / "ffmpeg"
    version, current = build(folder / "7.1.5-a"), folder / "current"
    build(folder / "site", name="my web site")
    current.symlink_to(version.name)
    link.symlink_to(current / "bin/ffmpeg")
    monkeypatch.setattr(ledger, "LINKS", (str(link),))
    found = {str(version): {"step": "codec"}, str(current): {"step": "codec"}}
    assert ledger.state()["trees"] == found
    (version / "mine").touch()
    assert ledger.state()["trees"] == {**found, str(version): {"step": "codec", "stranger": "mine"}}
    shutil.rmtree(version)  # a run was killed
    assert ledger.state()["trees"] == {str(current): {"step": "codec"}, str(link): {"step": "codec"}}
    current.unlink()
    assert ledger.state()["trees"] == {str(link): {"step": "codec"}}


def test_a_current_of_the_user_is_no_build(quiet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, link = quiet / "data/ffmpeg", quiet / "ffmpeg"
    (folder / "mine/bin").mkdir(parents=True)
    (folder / "mine/bin/ffmpeg").touch()
    (folder / "current").symlink_to("mine")
    link.symlink_to(folder / "current/bin/ffmpeg")
    monkeypatch.setattr(ledger, "LINKS", (str(link),))
    assert ledger.state()["trees"] == {}


# ---------------------------------------------------------------- putting back


def about(path: Path, **kind: Any) -> dict[str, Any]:
    return {"path": str(path), **kind}


def test_a_file_a_link_and_nothing_come_back(tmp_path: Path) -> None:
    there, new, link = tmp_path / "there", tmp_path / "new/file", tmp_path / "link"
    there.write_text("gpuprep")
    text = {
        "kind": "file",
        "text": base64.b64encode(b"before").decode(),
        "mode": 0o640,
        "uid": os.getuid(),
        "gid": os.getgid(),
    }
    wanted = [
        about(there, kind="absent"),
        about(new, **text),
        about(link, kind="link", target="/x", mode=0o777, uid=0, gid=0),
    ]
    assert ledger.put(wanted, [str(tmp_path)]) == [str(there), str(new), str(link)]
    assert not there.exists()
    assert (new.read_bytes(), new.stat().st_mode & 0o777) == (b"before", 0o640)
    assert str(link.readlink()) == "/x"
    assert str(there) not in ledger.put(wanted, [str(tmp_path)])


def test_folders_that_gpuprep_made_go_if_they_are_empty(tmp_path: Path) -> None:
    deep, mine = tmp_path / "a/b/gpuprep.conf", tmp_path / "a/mine"
    deep.parent.mkdir(parents=True)
    deep.touch()
    mine.touch()
    ledger.put([about(deep, kind="absent")], [str(tmp_path)])
    assert not deep.parent.exists()
    assert mine.exists()


def test_the_manifest_of_a_folder_goes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = build(tmp_path / "7.1.5-a")
    with monkeypatch.context() as killed:
        killed.setattr(shutil, "rmtree", lambda *_: (_ for _ in ()).throw(OSError("killed")))
        with pytest.raises(OSError, match="killed"):
            ledger.put([about(folder, kind="absent")], [str(tmp_path)])
    assert (folder / "manifest.json").exists()
    ledger.put([about(folder, kind="absent")], [str(tmp_path)])
    assert not folder.exists()


def test_what_stood_in_the_place_of_a_link_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "ffmpeg"
    path.symlink_to("/opt/gpuprep/ffmpeg/current/bin/ffmpeg")
    (tmp_path / "ffmpeg.before-gpuprep").write_text("mine")
    ledger.put([about(path, kind="absent")], [str(tmp_path)])
    assert path.read_text() == "mine"
