"""~/.ssh/config and /etc/ssh/ssh_config for fabric, with the Include that paramiko's reader does not know."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import fabric
import paramiko

from gpuprep.errors import UsageError

USER_FILE = Path("~/.ssh/config")
SYSTEM_FILE = Path("/etc/ssh/ssh_config")
DEEPEST_INCLUDE = 16  # as in OpenSSH


def read_ssh_config(where: str) -> fabric.Config:
    """Fabric's configuration made of the SSH configuration alone: no fabric.yml, no ~/.fabric.py."""
    ssh_config = paramiko.SSHConfig()
    for path in (USER_FILE.expanduser(), SYSTEM_FILE):
        if path.is_file():
            try:
                ssh_config.parse(io.StringIO("\n".join(_lines(path, path.parent))))
            except (paramiko.SSHException, OSError, UnicodeDecodeError) as error:
                raise UsageError(f"{path}: {error}", f"`ssh -G {where}` reads the same file", where=where) from error
    return fabric.Config(lazy=True, ssh_config=ssh_config)


def _lines(path: Path, base: Path, depth: int = 0) -> Iterator[str]:
    for line in path.read_text().splitlines():
        word, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        if word.lower() != "include" or depth >= DEEPEST_INCLUDE:
            yield line
            continue
        for pattern in rest.split():
            wanted = Path(pattern.strip('"')).expanduser()
            root, relative = (Path("/"), wanted.relative_to("/")) if wanted.is_absolute() else (base, wanted)
            for included in sorted(root.glob(str(relative))):
                if included.is_file():
                    yield from _lines(included, base, depth + 1)
