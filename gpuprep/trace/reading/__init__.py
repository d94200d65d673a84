"""What is in a file of a profiler? Readers for Kineto and Nsight Systems fill trace/columns.

read(Path("run.pt.trace.json.gz"))     one file ► Trace
find(Path("runs/"))                    the profiles of a folder, one a rank
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gpuprep.errors import UsageError
from gpuprep.trace.columns import Trace
from gpuprep.trace.reading import files, nsys, parallel
from gpuprep.trace.reading.files import DEEPEST, Found, find, look, shown
from gpuprep.untrusted.databasefile import is_database

__all__ = ["DEEPEST", "Found", "find", "look", "read"]


def read(path: Path, *, stacks: bool = True) -> Trace:
    """One profile as columns. `stacks=False` leaves out Python functions, most of a profile with stacks; counted.

    UsageError where the file cannot be opened, is empty, or is no profile. What of a profile cannot be read is counted
    in Trace.notes, by the keys of notes.yml.
    """
    try:
        if not path.is_file():
            kind = "a folder, no file" if path.is_dir() else "no regular file" if path.exists() else "no such file"
            raise UsageError(f"{shown(path)}: {kind}")
        if path.name.endswith(files.REPORTS):
            with files.exported(path) as export:
                return replace(nsys.Reader(export, path.name).read(), size=path.stat().st_size)
        return nsys.Reader(path).read() if is_database(path) else parallel.read(path, stacks)
    except OSError as error:
        raise UsageError(f"{shown(path)}: cannot be read: {error.strerror or error}") from error
