"""A large Kineto trace in two halves at the same time: the second one by a process of its own.

The cut is a guess, since only a reading from the start can tell where an event begins. The first half proves it: it
must be valid JSON up to the cut. If it is not, or if the other process fails, the file is read as a whole from the
start.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

from gpuprep.errors import UsageError
from gpuprep.trace.columns import Trace, own_memory_for_arrays
from gpuprep.trace.reading.chunks import NoBorder, Part
from gpuprep.trace.reading.files import GZIP, Source
from gpuprep.trace.reading.kineto import Content, Reader

SMALLEST = 96 << 20  # bytes of a file: below this the start of a process costs more than it saves
LARGEST = 2 << 30  # above this memory is what matters: the columns of one half would be there twice
PARTS = 1 << 16  # bytes of an array, of parts of columns that linking works on
TIMES_SMALLER = 10  # of a profile: gzip makes it so
_SEARCHED = 4 << 20
_CUT = re.compile(rb'\}\s*,\s*(\{\s*"ph"\s*:\s*"[A-Za-z]"\s*,)')
# Isolated, so that a folder it is started in cannot bring modules of its own; the path is that of this process.
START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from gpuprep.trace.reading import parallel; parallel.second(*sys.argv[2:])"
)


def read(path: Path, stacks: bool) -> Trace:
    """A Kineto trace as columns. UsageError where it is none."""
    large = path.stat().st_size > (LARGEST // TIMES_SMALLER if _is_gzip(path) else LARGEST)
    if large:
        own_memory_for_arrays()
    cut = _cut(path)
    if cut and (joined := _together(path, stacks, cut)):
        return joined.finished()
    reader = Reader(path, stacks)
    reader.take(Source(path))
    made = reader.finished()
    if large:
        own_memory_for_arrays(PARTS)  # the many small arrays of reading are gone: there are 65,530 such places
    return made


def second(path: str, cut: str, stacks: str) -> None:
    """What the other process does."""
    reader = Reader(Path(path), stacks == "stacks")
    reader.take(Source(Path(path), int(cut)), Part.SECOND)
    pickle.dump(reader.content(), sys.stdout.buffer, protocol=5)


def _cut(path: Path) -> int:
    """A place near the middle where an event seems to begin; 0 where the file is to be read in one."""
    size = path.stat().st_size
    if not SMALLEST <= size <= LARGEST or not sys.executable or _processors() < 2:
        return 0
    if _is_gzip(path):
        return 0
    with path.open("rb") as file:
        file.seek(size // 2)
        match = _CUT.search(file.read(_SEARCHED))
    return size // 2 + match.start(1) if match else 0


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(GZIP)) == GZIP


def _processors() -> int:
    """Those that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _together(path: Path, stacks: bool, cut: int) -> Reader | None:
    """Both halves; None where that did not work."""
    words = [str(path.resolve()), str(cut), "stacks" if stacks else "none"]
    command = [sys.executable, "-I", "-c", START, json.dumps(sys.path), *words]
    try:
        other = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return None
    try:
        assert other.stdout is not None
        reader = Reader(path, stacks)
        reader.take(Source(path, end=cut), Part.FIRST)
        content = pickle.load(other.stdout)  # written by second() below this very process, and by nothing else
        if not isinstance(content, Content):
            return None
        reader.join(content)
    except (NoBorder, UsageError, EOFError, ValueError, pickle.UnpicklingError, OSError):
        return None
    else:
        return reader
    finally:
        other.kill()
        with other:
            pass
