"""Looks up libraries by name in the dynamic loader's own list; no path is assumed."""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path
from typing import Dict, List, Sequence, Tuple, Union

from gpuprep.agent.facts import parse
from gpuprep.agent.programs.run import run
from gpuprep.records import ConfigLine, Missing, OptStr, Str

# Where the loader looks after its list, which may not have been renewed yet.
DEFAULT_FOLDERS = ("/lib/{triplet}", "/usr/lib/{triplet}", "/lib64", "/usr/lib64", "/lib", "/usr/lib")


class Loader:
    """Searches LD_LIBRARY_PATH of a login shell, then `ldconfig -p` (run once), then the default folders."""

    first: Tuple[Path, ...] = ()

    def __init__(self, library_path: Str = "") -> None:
        if isinstance(library_path, str):
            self.first = tuple(Path(folder or ".") for folder in library_path.split(":") if library_path)
        text = run(["ldconfig", "-p"])
        self.paths: Union[Dict[str, str], Missing] = (
            text if isinstance(text, Missing) else parse.ldconfig(text, platform.machine())
        )

    def find(self, soname: str) -> OptStr:
        """The file that a program gets for `soname`, links resolved; None if the loader does not find it."""
        place = self.place(soname)
        return os.path.realpath(place) if isinstance(place, str) else place

    def place(self, soname: str) -> OptStr:
        """As `find`, but without resolving links: the path in the loader's folder."""
        if isinstance(self.paths, Missing):
            return self.paths
        triplet = f"{platform.machine()}-linux-gnu"
        folders = [Path(folder.format(triplet=triplet)) for folder in DEFAULT_FOLDERS]
        listed = self.paths.get(soname)
        for path in [folder / soname for folder in self.first]:
            if _is_of_this_machine(path):  # the loader ignores libraries of another architecture
                return str(path)
        for path in ([Path(listed)] if listed else []) + [folder / soname for folder in folders]:
            if path.exists():
                return str(path)
        return None

    def find_newest(self, stem: str) -> OptStr:
        """As `find`, for the highest version of `stem`: libcudnn.so ─► .9, libcupti.so ─► .12 or Debian 12's .11.8."""
        if isinstance(self.paths, Missing):
            return self.paths
        # Sonames have plain numbers, so `packaging`, which the agent lacks, is not needed.
        versions = [tuple(int(part) for part in name[len(stem) + 1 :].split(".")) for name in self.sonames(stem)]
        return self.find(".".join([stem, *map(str, max(versions))])) if versions else None

    def sonames(self, stem: str) -> List[str]:
        """libcublasLt.so ─► libcublasLt.so.11, libcublasLt.so.12: programs need exactly one of them."""
        if isinstance(self.paths, Missing):
            return []
        pattern = re.compile(re.escape(stem) + r"(\.\d+)+$")
        extra = [path.name for folder in self.first for path in folder.glob(f"{stem}.*") if path.is_symlink()]
        return sorted({name for name in [*self.paths, *extra] if pattern.match(name)})

    def libraries(self, names: Sequence[str], stems: Sequence[str]) -> Dict[str, OptStr]:
        """Soname ─► the file that a program gets (None: no file), for `names` and for every version of `stems`."""
        wanted = [*names, *(name for stem in stems for name in self.sonames(stem) or [stem])]
        return {name: self.find(name) for name in dict.fromkeys(wanted)}


def unlisted(found: Dict[str, OptStr], config_lines: Sequence[ConfigLine]) -> Tuple[str, ...]:
    """Libraries in a folder of the loader that it does not find: ldconfig did not run after they came."""
    folders = [folder for line in config_lines if line.file.startswith("/etc/ld.so.conf") for folder in line.folders]
    absent = [name for name, path in found.items() if path is None]
    return tuple(name for name in absent if any(any(Path(folder).glob(f"{name}*")) for folder in folders))


def _is_of_this_machine(path: Path) -> bool:
    """Whether an ELF file is for this machine, by bytes 4 (word size) and 18-19 (machine)."""
    headers = []
    for file in (path, Path(sys.executable)):
        try:
            with file.open("rb") as opened:
                headers.append(opened.read(20))
        except OSError:
            return False
    ours, theirs = headers
    return len(ours) == 20 and (ours[:5], ours[18:]) == (theirs[:5], theirs[18:])
