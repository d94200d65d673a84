"""Lists NVIDIA's repositories of drivers and CUDA in the package manager's sources, and the files that have them."""

from __future__ import annotations

import configparser
import dataclasses
import re
from pathlib import Path
from typing import Iterator, List, Tuple

from gpuprep.agent.programs.run import read_text, run
from gpuprep.records import NvidiaRepository

APT = Path("/etc/apt")
DNF = Path("/etc/yum.repos.d")
MOST_FILES = 200
# .../compute/cuda/repos/ubuntu2404/x86_64, at NVIDIA or on a mirror that keeps its folders.
ADDRESS = re.compile(r"\b(?:https?|file):\S*/cuda/repos/([a-z]{2,12}[0-9]{1,4})/\S*")
OFF = ("0", "no", "false", "off")
# Turns off apt's check of signatures for one entry: an option in a line, or a field of a stanza.
UNVERIFIED = re.compile(
    r"(?im)(?:^|[\[\s])((?:trusted|allow-insecure|allow-weak|allow-downgrade-to-insecure)\s*[=:]\s*(?:yes|true|on|1))\b"
)
# The same for all entries, in apt's settings.
INSECURE = ("APT::Get::AllowUnauthenticated", "Acquire::AllowInsecureRepositories", "Acquire::AllowWeakRepositories")
DNF_SETTINGS = Path("/etc/dnf/dnf.conf")


def nvidia(apt: Path = APT, dnf: Path = DNF, dnf_settings: Path = DNF_SETTINGS) -> Tuple[NvidiaRepository, ...]:
    """(file, system) once each: "ubuntu2404" in /etc/apt/sources.list.d/cuda.list."""
    repositories: List[NvidiaRepository] = []
    for path in _files(apt / "sources.list", apt / "sources.list.d", dnf):
        text = read_text(path)
        for system, unverified in _entries(path.suffix, text if isinstance(text, str) else "", dnf_settings):
            entry = NvidiaRepository(str(path), system, unverified)
            if entry not in repositories:
                repositories.append(entry)
    of_all = _insecure() if any(not entry.file.endswith(".repo") for entry in repositories) else ""
    return tuple(
        dataclasses.replace(entry, unverified=entry.unverified or ("" if entry.file.endswith(".repo") else of_all))
        for entry in repositories
    )


def _insecure() -> str:
    """The setting of apt that turns off the check of signatures for all entries; "" if none does."""
    text = run(["apt-config", "dump", "--format", "%F %v%n", *INSECURE])
    lines = (line.split() for line in text.splitlines()) if isinstance(text, str) else iter(())
    return next((f'{words[0]} "{words[1]}"' for words in lines if len(words) == 2 and words[1].lower() not in OFF), "")


def _files(single: Path, *folders: Path) -> Iterator[Path]:
    yield single
    for folder in folders:
        if folder.is_dir():
            yield from sorted(path for path in folder.iterdir() if path.suffix in (".list", ".sources", ".repo"))[
                :MOST_FILES
            ]


def _entries(suffix: str, text: str, dnf_settings: Path) -> Iterator[Tuple[str, str]]:
    """(system, what turns the check of signatures off) of the active entries: without comments and those turned off."""
    if suffix == ".repo":
        yield from _of_dnf(text, dnf_settings)
        return
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    stanzas = re.split(r"\n\s*\n", "\n".join(lines)) if suffix == ".sources" else lines
    for stanza in stanzas:
        is_off = re.search(r"(?mi)^Enabled:\s*(no|false)\s*$", stanza)
        if not is_off:
            before, _, _ = stanza.partition("://")  # a line's options; of a stanza all fields count
            unverified = UNVERIFIED.search(stanza if suffix == ".sources" else before)
            for system in ADDRESS.findall(stanza):
                yield system, " ".join(unverified[1].split()) if unverified else ""


def _of_dnf(text: str, settings: Path) -> Iterator[Tuple[str, str]]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    general = configparser.ConfigParser(interpolation=None, strict=False)
    main = read_text(settings)
    try:
        parser.read_string(text)
        general.read_string(main if isinstance(main, str) else "")
    except configparser.Error:  # dnf does not read it either
        return
    default = general.get("main", "gpgcheck", fallback="0")
    for name in parser.sections():
        if parser.get(name, "enabled", fallback="1").strip().lower() not in OFF:
            checked = parser.get(name, "gpgcheck", fallback=default).strip().lower() not in OFF
            of_file = parser.has_option(name, "gpgcheck")
            unverified = "" if checked else "gpgcheck=0" if of_file else f"no gpgcheck=1, there or in {settings}"
            for system in ADDRESS.findall(parser.get(name, "baseurl", fallback="")):
                yield system, unverified
