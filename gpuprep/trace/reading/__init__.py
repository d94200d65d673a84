"""What is in a file of a profiler? Readers for Kineto and Nsight Systems fill trace/columns.

read(Path("run.pt.trace.json.gz"))     one file ► Trace
find(Path("runs/"))                    the profiles of a folder, one a rank
"""

from __future__ import annotations

from pathlib import Path

from gpuprep.errors import UsageError
from gpuprep.trace.columns import Trace
from gpuprep.trace.reading.finding import find
from gpuprep.trace.reading.kineto import Reader

__all__ = ["find", "read"]


def read(path: Path, *, stacks: bool = True) -> Trace:
    """One profile as columns. `stacks=False` leaves out Python functions, most of a profile with stacks; counted.

    UsageError where the file cannot be opened, is empty, or is no profile. What of a profile cannot be read is counted
    in Trace.notes.
    """
    try:
        return Reader(path, stacks).read()
    except OSError as error:
        raise UsageError(f"{path.name}: cannot be read: {error.strerror or error}") from error
