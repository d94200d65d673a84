"""Which files of a folder are profiles?"""

from __future__ import annotations

import os
import re
from pathlib import Path

from gpuprep.errors import UsageError
from gpuprep.trace.reading.source import Source

JSON = (".json", ".json.gz")
REPORTS = (".nsys-rep", ".qdrep")
ENDINGS = (*JSON, ".sqlite", *REPORTS)
_DEEPEST = 3
_MOST = 10_000  # files looked at
_PEEK = 4 << 20  # of a JSON file; a list of all ranks may stand before the events
_LIST = re.compile(rb'\s*\[\s*\{[^{}]{0,2000}"ph"\s*:')


def find(path: Path) -> list[Path]:
    """`path` itself where it is a file, else the profiles in it and below it, by name. UsageError without one.

    Other files are passed over: JSON without traceEvents, an .nsys-rep whose export stands beside it.
    """
    if not path.is_dir():
        if not path.exists():
            raise UsageError(f"{path.name}: no such file or folder")
        return [path]
    found, _ = _split(path)
    exports = {entry.with_suffix("") for entry in found if entry.suffix == ".sqlite"}
    found = [entry for entry in found if entry.suffix not in REPORTS or entry.with_suffix("") not in exports]
    if not found:
        raise UsageError(f"{path.name}: no profile in this folder", f"profiles end in {', '.join(ENDINGS)}")
    return found


def passed_over(path: Path) -> list[Path]:
    """Files of a folder that are called like profiles and are none: JSON of something else, empty files."""
    return _split(path)[1] if path.is_dir() else []


def _split(folder: Path) -> tuple[list[Path], list[Path]]:
    """(profiles, others)"""
    found: list[Path] = []
    others: list[Path] = []
    for entry in _files(folder):
        (found if _is_profile(entry) else others).append(entry)
    return found, others


def _files(folder: Path) -> list[Path]:
    """Files with an ending of profiles, at most _DEEPEST folders below; links to folders are not followed."""
    found: list[Path] = []
    for place, folders, files in os.walk(folder):
        here = Path(place)
        if len(here.relative_to(folder).parts) >= _DEEPEST:
            folders.clear()
        folders.sort()
        found += [here / name for name in sorted(files) if name.endswith(ENDINGS)]
        if len(found) > _MOST:
            raise UsageError(f"{folder.name}: more than {_MOST} files that could be profiles; give a folder of one run")
    return [entry for entry in found if entry.is_file()]


def _is_profile(path: Path) -> bool:
    if not path.name.endswith(JSON):
        return True  # said when it is opened
    try:
        with Source(path) as source:
            begin = source.read(_PEEK)
    except OSError:
        return True
    return b'"traceEvents"' in begin or bool(_LIST.match(begin))
