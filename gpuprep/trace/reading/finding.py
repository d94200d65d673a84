"""Which files of a folder are profiles?"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from gpuprep.errors import UsageError
from gpuprep.trace.reading.source import Source
from gpuprep.untrusted.plaintext import one_line

JSON = (".json", ".json.gz")
REPORTS = (".nsys-rep", ".qdrep")
ENDINGS = (*JSON, ".sqlite", *REPORTS)
DEEPEST = 3
_MOST = 10_000  # files looked at
_PEEK = 4 << 20  # of a JSON file; a list of all ranks may stand before the events
_LIST = re.compile(rb'\s*\[\s*\{[^{}]{0,2000}"ph"\s*:')


class Found(NamedTuple):
    profiles: list[Path]
    others: list[Path]  # of a folder: called like profiles and none: JSON of something else, empty files
    too_deep: int = 0  # folders that were not opened, because they are more than DEEPEST folders below


def shown(path: Path) -> str:
    """The file's name as errors say it: a name may have line breaks in it."""
    return one_line(path.name, 200)


def look(path: Path) -> Found:
    """`path` itself where it is a file, else the profiles in it and below it, by name. UsageError without one.

    It opens each JSON file of a folder: look once. An .nsys-rep whose export stands beside it is passed over.
    """
    if not path.is_dir():
        if not path.exists():
            raise UsageError(f"{shown(path)}: no such file or folder")
        return Found([path], [])
    made = Found([], [])
    files, too_deep = _files(path)
    for entry in files:
        (made.profiles if is_profile(entry) else made.others).append(entry)
    exports = {entry.with_suffix("") for entry in made.profiles if entry.suffix == ".sqlite"}
    profiles = [entry for entry in made.profiles if entry.suffix not in REPORTS or entry.with_suffix("") not in exports]
    if not profiles:
        hint = f"profiles end in {', '.join(ENDINGS)}"
        if too_deep:
            hint += f"; of folders inside folders, only {DEEPEST} levels are searched: name the folder of one run"
        raise UsageError(f"{shown(path)}: no profile in this folder", hint)
    return Found(profiles, made.others, too_deep)


def find(path: Path) -> list[Path]:
    """The profiles of look()."""
    return look(path).profiles


def _files(folder: Path) -> tuple[list[Path], int]:
    """Files with an ending of profiles, at most DEEPEST folders below, and how many folders are deeper.

    Links to folders are not followed.
    """
    paths: list[Path] = []
    too_deep = 0
    for place, folders, files in os.walk(folder):
        here = Path(place)
        if len(here.relative_to(folder).parts) >= DEEPEST:
            too_deep += len(folders)
            folders.clear()
        folders.sort()
        paths += [here / name for name in sorted(files) if name.endswith(ENDINGS)]
        if len(paths) > _MOST:
            raise UsageError(
                f"{shown(folder)}: more than {_MOST} files that could be profiles; give a folder of one run"
            )
    return [entry for entry in paths if entry.is_file()], too_deep


def is_profile(path: Path) -> bool:
    """Whether it looks like one by its begin; what is no JSON, or cannot be read, is reported when it is opened."""
    if not path.name.endswith(JSON):
        return True
    try:
        with Source(path) as source:
            begin = source.read(_PEEK)
    except OSError:
        return True
    return b'"traceEvents"' in begin or bool(_LIST.match(begin))
