"""Lists NVIDIA's repositories of drivers and CUDA in the package manager's sources, and the files that have them."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Iterator, List, Tuple

from gpuprep.agent.programs.run import read_text
from gpuprep.records import NvidiaRepository

APT = Path("/etc/apt")
DNF = Path("/etc/yum.repos.d")
MOST_FILES = 200
# .../compute/cuda/repos/ubuntu2404/x86_64, at NVIDIA or on a mirror that keeps its folders.
ADDRESS = re.compile(r"\b(?:https?|file):\S*/cuda/repos/([a-z]{2,12}[0-9]{1,4})/\S*")
OFF = ("0", "no", "false", "off")


def nvidia(apt: Path = APT, dnf: Path = DNF) -> Tuple[NvidiaRepository, ...]:
    """(file, system) once each: "ubuntu2404" in /etc/apt/sources.list.d/cuda.list."""
    repositories: List[NvidiaRepository] = []
    for path in _files(apt / "sources.list", apt / "sources.list.d", dnf):
        text = read_text(path)
        for system in _systems(path.suffix, text if isinstance(text, str) else ""):
            entry = NvidiaRepository(str(path), system)
            if entry not in repositories:
                repositories.append(entry)
    return tuple(repositories)


def _files(single: Path, *folders: Path) -> Iterator[Path]:
    yield single
    for folder in folders:
        if folder.is_dir():
            yield from sorted(path for path in folder.iterdir() if path.suffix in (".list", ".sources", ".repo"))[
                :MOST_FILES
            ]


def _systems(suffix: str, text: str) -> Iterator[str]:
    """Systems of the active entries: without comments and entries that are turned off."""
    if suffix == ".repo":
        yield from _of_dnf(text)
        return
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    stanzas = re.split(r"\n\s*\n", "\n".join(lines)) if suffix == ".sources" else lines
    for stanza in stanzas:
        is_off = re.search(r"(?mi)^Enabled:\s*(no|false)\s*$", stanza)
        if not is_off:
            yield from ADDRESS.findall(stanza)


def _of_dnf(text: str) -> Iterator[str]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:  # dnf does not read it either
        return
    for name in parser.sections():
        if parser.get(name, "enabled", fallback="1").strip().lower() not in OFF:
            yield from ADDRESS.findall(parser.get(name, "baseurl", fallback=""))
