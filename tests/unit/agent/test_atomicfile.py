"""Whole files only: writers that are killed at any moment, that have no room, that have no right."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import amount
import pytest
from places import ROOT

from gpuprep.agent.programs import atomicfile

# Writes documents with a number and a filling, one after the other, for ever; says each number when it is there.
WRITER = """
import json, sys
from pathlib import Path
from gpuprep.agent.programs import atomicfile
path, number = Path(sys.argv[1]), int(sys.argv[2])
while True:
    number += 1
    atomicfile.write(path, json.dumps({"number": number, "filling": "x" * (number * 7919 % 65536), "end": number}))
    print(number, flush=True)
"""


def test_content_and_mode(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    before = os.umask(0o077)
    try:
        atomicfile.write(path, "ä\n")
        atomicfile.write(tmp_path / "secret", "", mode=0o600)
    finally:
        os.umask(before)
    assert path.read_bytes() == "ä\n".encode()
    assert path.stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file.json", "secret"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    atomicfile.write(path, "old")
    with pytest.raises(UnicodeEncodeError):
        atomicfile.write(path, "new \ud800")
    assert [one.name for one in tmp_path.iterdir()] == ["file.json"]
    assert path.read_text() == "old"


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    """/dev/full has no folder to write into; a limit on the size of files acts at the same place, write(2)."""
    script = (
        "import resource, signal, sys; from pathlib import Path; from gpuprep.agent.programs import atomicfile\n"
        "path = Path(sys.argv[1]) / 'f'; atomicfile.write(path, 'old')\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: atomicfile.write(path, 'x' * 100_000)\n"
        "except OSError as error: print(error.errno, path.read_text(), len(list(path.parent.iterdir())))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True
    )
    assert done.stdout.split() == [b"27", b"old", b"1"], done.stderr


def test_a_folder_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        atomicfile.write(tmp_path / "no" / "file", "x")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_a_shared_folder_is_readable_whatever_the_umask_is_or_was(tmp_path: Path) -> None:
    new, narrowed, wider = (tmp_path / name for name in ("new", "narrowed", "wider"))
    before = os.umask(0o077)
    try:
        narrowed.mkdir()
        for folder in (new, narrowed):
            atomicfile.shared_folder(folder)
    finally:
        os.umask(before)
    assert (mode(new), mode(narrowed)) == (0o755, 0o755)
    wider.mkdir()
    wider.chmod(0o2770)
    atomicfile.shared_folder(wider)
    assert mode(wider) == 0o2775


def test_a_shared_folder_of_somebody_else_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    atomicfile.shared_folder(tmp_path)
    assert mode(tmp_path) == 0o700


def test_tidy_takes_leftovers_of_that_name_only(tmp_path: Path) -> None:
    for name in (".a.prom.0123.part", ".b.json.4567.part", "a.prom", ".hidden", "x.part"):
        (tmp_path / name).write_text("x")
    assert atomicfile.tidy(tmp_path, "a.prom") == 1
    assert atomicfile.tidy(tmp_path) == 1
    assert sorted(one.name for one in tmp_path.iterdir()) == [".hidden", "a.prom", "x.part"]


def test_a_writer_killed_at_any_moment_leaves_whole_files(tmp_path: Path) -> None:
    """kill -9, often: what is there parses, is the newest that was said to be there or newer, and tidy() tidies."""
    path = tmp_path / "file.json"
    chance = random.Random(4)
    number, leftovers = 0, 0
    for killed in range(600):
        if killed >= amount.examples(60) and leftovers:
            break
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(number)],
            env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE,
        ) as writer:  # fmt: skip
            assert writer.stdout is not None
            said = [int(writer.stdout.readline()) for _ in range(chance.randint(1, 4))]
            for _ in range(chance.randint(0, 3000)):  # somewhere inside of a later write
                writer.poll()
            writer.send_signal(signal.SIGKILL)
            said += [int(line) for line in writer.stdout.read().split()]
        document = json.loads(path.read_text())
        assert document["number"] == document["end"]
        assert len(document["filling"]) == document["number"] * 7919 % 65536
        assert document["number"] in (said[-1], said[-1] + 1)
        number = document["number"]
        leftovers += atomicfile.tidy(tmp_path)
        assert [one.name for one in tmp_path.iterdir()] == ["file.json"]
    assert leftovers > 0, "no writer was killed in the middle: the test saw nothing"
