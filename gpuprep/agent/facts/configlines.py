"""Finds settings that decide which program or library comes first, or that undo apt's list of held-back names.

Findings name the file and the line that is wrong.
"""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path
from typing import Dict, List, Optional, Pattern, Tuple

from gpuprep.agent import host_paths
from gpuprep.agent.facts.apt import BLACKLIST
from gpuprep.agent.programs.run import read_text
from gpuprep.records import ConfigLine

SHELL = re.compile(r"(?:^|[\s;=\"'])(?:PATH|LD_LIBRARY_PATH)\+?=")
# Files by their pattern below the root ─► what a line must have.
PLACES: Dict[str, Pattern[str]] = {
    "etc/profile": SHELL,
    "etc/profile.d/*.sh": SHELL,
    "etc/bash.bashrc": SHELL,
    "etc/bashrc": SHELL,
    host_paths.ENVIRONMENT.lstrip("/"): SHELL,
    "etc/ld.so.conf": re.compile(r"^/"),
    "etc/ld.so.conf.d/*.conf": re.compile(r"^/"),
    "etc/systemd/system.conf": SHELL,
    "etc/systemd/system.conf.d/*.conf": SHELL,
    "etc/apt/apt.conf": re.compile(re.escape(BLACKLIST)),
    "etc/apt/apt.conf.d/*": re.compile(re.escape(BLACKLIST)),
}
OF_A_USER = (".bash_profile", ".bash_login", ".profile", ".bashrc")
MOST_FILES, MOST_LINES, MOST_LETTERS = 200, 300, 400
COMMENT = re.compile(r"#(?!clear\b)|//")  # in apt's files #clear is a command, not a comment
FOLDER = re.compile(r"[=:\"'\s]|/+$")  # what stands between folders; PATH="/opt/a/bin:$PATH"


def lines(root: Path = Path("/"), home: Optional[Path] = None) -> Tuple[ConfigLine, ...]:
    """The lines, file by file. A file that may not be read counts as empty."""
    home = home or Path(pwd.getpwuid(os.getuid()).pw_dir)
    found: List[ConfigLine] = []
    for pattern, wanted in PLACES.items():
        for path in sorted(root.glob(pattern))[:MOST_FILES]:
            found += _of_file(path, wanted)
    for name in OF_A_USER:
        found += _of_file(home / name, SHELL)
    return tuple(found[:MOST_LINES])


def _of_file(path: Path, wanted: Pattern[str]) -> List[ConfigLine]:
    text = read_text(path)
    stripped = [line.strip() for line in (text if isinstance(text, str) else "").splitlines()]
    return [
        ConfigLine(str(path), line, _folders(line))
        for line in stripped
        if len(line) <= MOST_LETTERS and not COMMENT.match(line) and wanted.search(line)
    ]


def _folders(line: str) -> Tuple[str, ...]:
    named = [word for word in FOLDER.split(line) if word.startswith("/") and "$" not in word]
    return tuple(dict.fromkeys([*named, *map(os.path.realpath, named)]))
