"""Xids from the journal and from the kernel's ring buffer; who may read neither learns that."""

from __future__ import annotations

import os
import stat
import tty
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuprep import records
from gpuprep.agent.facts import xids

JOURNAL = """\
1732112000.250000 gpu-box kernel: NVRM: Xid (PCI:0000:83:00): 79, pid=1234, name=python3, GPU has fallen off the bus.
1732112001.000000 gpu-box kernel: NVRM: GPU 0000:83:00.0: GPU has fallen off the bus.
1732112002.000000 gpu-box kernel: NVRM: Xid (PCI:0000:C1:00.0): 48
1732112003.000000 gpu-box kernel: NVRM: A GPU crash dump has been created. Xid (PCI:0000:83:00): 79
"""
FALLEN = "pid=1234, name=python3, GPU has fallen off the bus."


def test_the_journal_line_by_line() -> None:
    assert xids.from_journal(JOURNAL) == [
        records.Xid(79, "0000:83:00.0", FALLEN, "2024-11-20T14:13:20+00:00"),
        records.Xid(48, "0000:c1:00.0", "", "2024-11-20T14:13:22+00:00"),
    ]
    assert xids.from_journal("") == []
    instance = "1732112002.0 gpu-box kernel: NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: SM"
    assert [(xid.code, xid.pci_address) for xid in xids.from_journal(instance)] == [(94, "0000:01:00.0")]
    torn = xids.from_journal("NVRM: Xid (PCI:0000:83:00): 31, MMU fault")
    assert [(xid.code, xid.time) for xid in torn] == [(31, records.Missing("unparsable", "NVRM:"))]


def test_the_ring_buffer_record_by_record() -> None:
    lines = [
        "6,1,0,-;Linux version 6.12\n",
        f"3,1402,61500000,-;NVRM: Xid (PCI:0000:83:00): 79, {FALLEN}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:83:00.0\n",
        "4,1403,61500001,-;NVRM: GPU 0000:83:00.0 is lost\n",
        "garbage",
        "",
    ]
    assert xids.from_records(lines, 1732111938.5) == [
        records.Xid(79, "0000:83:00.0", FALLEN, "2024-11-20T14:13:20+00:00"),
    ]


def test_a_pipe_in_place_of_the_kernel_log_is_not_drained(tmp_path: Path) -> None:
    """In a container journald reads /dev/kmsg from a pipe: what we read there, it would never see."""
    pipe = tmp_path / "kmsg"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(pipe, os.O_WRONLY)
    os.write(writer, b"3,1,1,-;NVRM: Xid (PCI:0000:83:00): 79, gone\n")
    found = xids.from_ring_buffer(pipe)
    assert isinstance(found, records.Missing)
    assert found.reason == "command_failed"
    assert os.read(reader, 100).startswith(b"3,1,1")
    os.close(reader)
    os.close(writer)


def test_who_may_not_read_learns_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> int:
        raise PermissionError(13, "Operation not permitted")

    monkeypatch.setattr("os.open", refused)
    found = xids.from_ring_buffer(Path("/dev/null"))
    assert isinstance(found, records.Missing)
    assert found.reason == "no_permission"
    assert xids.from_ring_buffer(tmp_path / "none") == records.Missing(
        "command_failed", f"[Errno 2] No such file or directory: '{tmp_path}/none'"
    )


def test_a_journal_counts_when_it_may_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xids, "JOURNALS", (str(tmp_path),))
    assert not xids.journal_is_readable()
    (tmp_path / "0123").mkdir()
    (tmp_path / "0123" / "system.journal").touch()
    assert xids.journal_is_readable()
    monkeypatch.setattr("os.access", lambda *_: False)
    assert not xids.journal_is_readable()


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Plays a readable journal: what journalctl does when it searches, and when it is asked for one line."""
    program = tmp_path / "journalctl"
    (tmp_path / "0123").mkdir()
    (tmp_path / "0123" / "system.journal").touch()
    monkeypatch.setattr(xids, "JOURNALCTL", str(program))
    monkeypatch.setattr(xids, "KMSG", tmp_path / "none")
    monkeypatch.setattr(xids, "JOURNALS", (str(tmp_path),))

    def play(searches: str, one_line: str) -> None:
        program.write_text(
            f'#!/bin/sh\ncase "$*" in *"-k -b "*"-g NVRM: Xid") {searches};; *"-n 1") {one_line};; esac\n'
        )
        program.chmod(0o755)

    return play


KERNEL_LINE = "echo '1732112000.250000 gpu-box kernel: Linux version 6.12'"
XID_LINE = "echo '1732112002.000000 gpu-box kernel: NVRM: Xid (PCI:0000:C1:00.0): 48'"
XID = records.Xid(48, "0000:c1:00.0", "", "2024-11-20T14:13:22+00:00")
UNREADABLE = "echo 'Journal file system@1.journal is truncated, ignoring file.' >&2"


def test_the_journal_says_which_xids_there_were(journal: Callable[[str, str], None]) -> None:
    journal(XID_LINE, "exit 1")
    assert xids.xids() == (XID,)
    journal(f"{UNREADABLE}; {XID_LINE}", "exit 1")
    assert xids.xids() == (XID,)


def test_no_xid_counts_where_the_journal_has_this_kernel(journal: Callable[[str, str], None]) -> None:
    journal("exit 1", KERNEL_LINE)
    assert xids.xids() == ()


@pytest.mark.parametrize(
    ("searches", "one_line"),
    [
        ("exit 1", "true"),  # of another boot or machine, or without the kernel's lines
        ("exit 1", "exit 1"),
        ("exit 1", "echo 'Failed to get data: Bad message' >&2; exit 1"),
        ("echo 'Compiled without pattern matching support' >&2; exit 1", KERNEL_LINE),
        (f"{UNREADABLE}; exit 1", KERNEL_LINE),
        ("exit 2", KERNEL_LINE),
    ],
)
def test_no_xid_is_nothing_known_where_no_log_was_read(
    searches: str, one_line: str, journal: Callable[[str, str], None]
) -> None:
    journal(searches, one_line)
    found = xids.xids()
    assert isinstance(found, records.Missing)
    assert found.reason == "command_failed"


def test_the_ring_buffer_answers_for_a_journal_without_the_kernel(
    journal: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal is a character device, too, and gives what was written on its other side."""
    written, kernel_log = os.openpty()
    tty.setraw(kernel_log)
    monkeypatch.setattr(xids, "KMSG", Path(os.ttyname(kernel_log)))
    journal("exit 1", "true")
    try:
        os.write(written, b"3,1,1,-;NVRM: Xid (PCI:0000:C1:00.0): 48, said\n")
        found = xids.xids()
    finally:
        os.close(written)
        os.close(kernel_log)
    assert isinstance(found, tuple)
    assert [(one.code, one.pci_address) for one in found] == [(XID.code, XID.pci_address)]


def test_a_simulated_machine_has_no_kernel_log_but_what_was_played(journal: Callable[[str, str], None]) -> None:
    """As its journal is: without one line of a kernel, also after a fault was cleared by vacuuming it."""
    journal("exit 1", "true")
    assert xids.xids(simulated=True) == ()
    journal(XID_LINE, "true")
    assert xids.xids(simulated=True) == (XID,)
    journal("exit 2", "true")
    assert isinstance(xids.xids(simulated=True), records.Missing)


def test_the_real_kernel_log_of_this_machine() -> None:
    found = xids.from_ring_buffer()
    if isinstance(found, records.Missing):
        assert found.reason in ("no_permission", "command_failed")
        return
    assert stat.S_ISCHR(xids.KMSG.stat().st_mode)
    assert all(isinstance(xid, records.Xid) for xid in found)
