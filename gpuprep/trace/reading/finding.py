"""Which files of a folder are profiles?"""

from __future__ import annotations

from pathlib import Path

from gpuprep.errors import UsageError

ENDINGS = (".json", ".json.gz", ".sqlite", ".nsys-rep")


def find(path: Path) -> list[Path]:
    """`path` itself where it is a file, else the profiles in it, sorted by name. UsageError where there are none."""
    if not path.is_dir():
        return [path]
    found = sorted(entry for entry in path.iterdir() if entry.name.endswith(ENDINGS) and entry.is_file())
    if not found:
        raise UsageError(f"{path.name}: no profile in this folder", f"profiles end in {', '.join(ENDINGS)}")
    return found
