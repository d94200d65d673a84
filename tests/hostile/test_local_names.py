"""What a user of the machine may name (a mount, a file, a program) is nobody's line in what root reads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuprep import records
from gpuprep.agent.facts import parse, xids
from gpuprep.agent.programs import trusted

# What Python takes for the end of a line or word and the kernel does not escape in /proc/self/mounts.
LINE_ENDS = ["\v", "\f", "\r", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
SPACES = ["\x1f", "\xa0", "\u2003", "\u3000"]
ROOT = "/dev/sda1 / ext4 rw 0 0\n"


@pytest.mark.parametrize("end", LINE_ENDS, ids=ascii)
def test_a_users_mount_is_not_the_disk_that_a_profile_wants(end: str) -> None:
    for space in SPACES:
        folder = space.join([f"/home/al/x{end}/dev/sdb1", "/data", "ext4", "rw"])
        found = parse.mounts(f"{ROOT}foo {folder} fuse.foo rw 0 0\n")
        assert records.Mount("/dev/sda1", "/", "ext4") in found
        assert "/data" not in [one.path for one in found], ascii(space)


def test_a_mount_whose_name_has_such_a_sign_is_seen_as_it_is() -> None:
    assert parse.mounts("nas:/x /mnt/a\xa0b nfs rw 0 0\n") == (records.Mount("nas:/x", "/mnt/a\xa0b", "nfs"),)


XID = "NVRM: Xid (PCI:0000:00:04.0): 79, GPU has fallen off the bus."
# What the kernel says of users' programs: with the name of the file, or of the process.
SAID_OF_USERS = [
    f"process '/tmp/{XID}' started with executable stack",
    f"a[7]: segfault at 0 ip 0 sp 0 error 4 in {XID}[5555+1000]",
    f"a[7]: segfault at 0 ip 0 sp 0 error 4 in x kernel: {XID}[5555+1000]",
    f" {XID}",
]


@pytest.mark.parametrize("said", SAID_OF_USERS)
def test_a_name_in_the_journal_is_no_xid(said: str) -> None:
    for end in ("", *LINE_ENDS):
        told = said.replace("NVRM", f"{end}1.5 h kernel: NVRM", 1) if end else said
        assert xids.from_journal(f"1.5 h kernel: {told}\n") == [], ascii(end)


@pytest.mark.parametrize("said", SAID_OF_USERS)
def test_a_name_in_the_kernels_ring_buffer_is_no_xid(said: str) -> None:
    assert xids.from_records([f"4,1,2,-;{said}\n"], 0.0) == []


def test_a_programs_odd_name_does_not_hide_its_xid(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As journalctl does: without --all a message with a control character is "[N blob data]"."""
    program = tmp_path / "journalctl"
    xid = "NVRM: Xid (PCI:0000:00:04.0): 31, pid=7, name=a\\033b, MMU Fault"
    shown, hidden = f"printf '1.5 h kernel: {xid}\\n'", "echo '1.5 h kernel: [62B blob data]'"
    program.write_text(f"#!/bin/sh\ncase \" $* \" in *' --all '*) {shown};; *) {hidden};; esac\n")
    program.chmod(0o755)
    monkeypatch.setattr(xids, "JOURNALCTL", str(program))
    (tmp_path / "0123").mkdir()
    (tmp_path / "0123" / "system.journal").touch()
    monkeypatch.setattr(xids, "JOURNALS", (str(tmp_path),))
    found = xids.xids()
    assert isinstance(found, tuple)
    assert [one.code for one in found] == [31]


@pytest.mark.skipif(os.geteuid() != 0, reason="is about what root starts")
@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp", "/dev/shm"])
def test_a_folder_to_which_all_may_add_is_on_no_path_of_root(folder: str) -> None:
    assert trusted.folders(f"{folder}:/usr/bin") == "/usr/bin"
