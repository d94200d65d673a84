"""apt's configuration as apt reads it: the blacklist of unattended upgrades, and pins, also malformed pins."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, Iterator, List, Tuple, Union

from gpuprep.agent.programs.run import read_text, run
from gpuprep.records import AptFacts, AptPin, Missing

BLACKLIST = "Unattended-Upgrade::Package-Blacklist"
PREFERENCES = Path("/etc/apt/preferences")
FOLDER = Path("/etc/apt/preferences.d")
# apt ignores files with other names silently (apt_preferences(5)); these endings say that it is intended.
NAME = re.compile(r"[A-Za-z0-9_.-]+")
LEFT_OVER = (".disabled", ".bak", ".save", ".orig", ".distUpgrade", ".dpkg-old", ".dpkg-new", ".dpkg-dist", ".ucf-old")
INTENDED = "intended"
FIELDS = ("package", "pin", "pin-priority")


def facts(preferences: Path = PREFERENCES, folder: Path = FOLDER) -> AptFacts:
    pins: List[AptPin] = []
    malformed: List[str] = []
    passed_over: List[str] = []
    for path in preference_files(preferences, folder):
        if path.parent == folder and (reason := _ignored_reason(path)):
            passed_over += [f"{path}: {reason}"] if reason != INTENDED else []
            continue
        text = read_text(path)
        if isinstance(text, Missing):
            malformed.append(f"{path}: {text.detail}")
            continue
        file_pins, wrong = stanzas(str(path), text or "")
        pins += file_pins
        malformed += wrong
    return AptFacts(
        blacklist(), tuple(pin for pin in pins if pin.packages != "*"), tuple(malformed), tuple(passed_over)
    )


def preference_files(preferences: Path = PREFERENCES, folder: Path = FOLDER) -> List[Path]:
    return [preferences, *(sorted(folder.iterdir()) if folder.is_dir() else ())]


def blacklist() -> Union[Tuple[str, ...], Missing]:
    """The Package-Blacklist from all files of apt's configuration together, as unattended-upgrades reads it."""
    text = run(["apt-config", "dump", "--no-empty", "--format", "%v%n", BLACKLIST])
    return text if isinstance(text, Missing) else tuple(line for line in text.splitlines() if line)


def _ignored_reason(path: Path) -> str:
    """Why apt ignores this file of preferences.d; "" if apt reads it."""
    if path.is_dir() or path.name.startswith(".") or path.name.endswith((*LEFT_OVER, "~")):
        return INTENDED
    if not NAME.fullmatch(path.name):
        return "apt ignores files with such a name"
    if "." in path.name and not path.name.endswith(".pref"):
        return "apt reads files that end in .pref or have no ending"
    return ""


def stanzas(file: str, text: str) -> Tuple[List[AptPin], List[str]]:
    """apt_preferences(5): (pins, "FILE: why" for each malformed stanza)."""
    pins, wrong = [], []
    for number, fields in _blocks(text):
        absent = [name for name in FIELDS if not fields.get(name)]
        priority = fields.get("pin-priority", "")
        if absent:
            wrong.append(f"{file}: the stanza at line {number} has no {', '.join(name.title() for name in absent)}")
        elif not re.fullmatch(r"[+-]?\d+", priority) or int(priority) == 0:
            wrong.append(f"{file}: the stanza at line {number} has the Pin-Priority {priority!r}, which is no number")
        elif not re.fullmatch(r"(version|release|origin)\s+\S.*", fields["pin"]):
            wrong.append(f"{file}: the stanza at line {number} has the Pin {fields['pin']!r}, which apt does not know")
        else:
            pins.append(AptPin(file, fields["package"], fields["pin"], priority))
    return pins, wrong


def _blocks(text: str) -> Iterator[Tuple[int, Dict[str, str]]]:
    """(number of the first line, lower-case field ─► value) of each stanza."""
    fields: Dict[str, str] = {}
    begins, last = 0, ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.startswith("#"):
            continue
        if not line.strip():
            if fields:
                yield begins, fields
            fields = {}
            continue
        begins = begins if fields else number
        name, colon, value = line.partition(":")
        if line[0] in " \t" and last:
            fields[last] += " " + line.strip()
        else:
            last = name.strip().lower()
            fields[last] = value.strip() if colon else ""
