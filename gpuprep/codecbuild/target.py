"""A system that FFmpeg is built for: data of targets.yml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpuprep.catalogue import datafile


@dataclass(frozen=True)
class Target:
    name: str  # "windows"
    title: str
    codename: str  # of the Debian release that it is built in
    packages: tuple[str, ...]
    compiler: str  # "x86_64-w64-mingw32-gcc"
    flags: tuple[str, ...]
    without: Mapping[str, tuple[str, ...]]
    programs: tuple[str, ...]
    archive: str  # "zip" | "tar.xz"
    libraries: bool = False  # whether FFmpeg can be built with codec.libraries

    def parts(self, wished: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
        """The parts of a profile that this system can have."""
        return {
            kind: [name for name in names if name not in self.without.get(kind, ())] for kind, names in wished.items()
        }


@cache
def targets() -> Mapping[str, Target]:
    """The systems by name: "linux", "windows"."""
    data = datafile.read(Path(__file__).parent / "targets.yml")
    common = data.pop("common")
    return {
        name: Target(
            name=name,
            title=entry["title"],
            codename=common["codename"],
            packages=tuple(sorted({*common["packages"], *entry["packages"]})),
            compiler=entry["compiler"],
            flags=tuple(entry["flags"]),
            without={kind: tuple(names) for kind, names in entry["without"].items()},
            programs=tuple(entry["programs"]),
            archive=entry["archive"],
            libraries=entry["libraries"],
        )
        for name, entry in data.items()
    }
