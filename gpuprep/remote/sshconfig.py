"""~/.ssh/config and /etc/ssh/ssh_config for fabric, with Include, which paramiko's reader does not support."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import fabric
import paramiko

from gpuprep.errors import UsageError
from gpuprep.paths import home, user_name
from gpuprep.remote.limits import CONFIG_BYTES, CONFIG_FILES

USER_FILE = ".ssh/config"  # in the home folder
SYSTEM_FILE = Path("/etc/ssh/ssh_config")
DEEPEST_INCLUDE = 16  # as in OpenSSH


def read_ssh_config(where: str) -> fabric.Config:
    """Fabric's configuration, made only from the SSH configuration: no fabric.yml, no ~/.fabric.py.

    Raises UsageError for a user without a home folder or without a name: paramiko needs both.
    """
    user_name()
    ssh_config = paramiko.SSHConfig()
    for path in (home() / USER_FILE, SYSTEM_FILE):
        if path.is_file():
            add(ssh_config, path, where)
    return fabric.Config(lazy=True, ssh_config=ssh_config)


def add(ssh_config: paramiko.SSHConfig, path: Path, where: str) -> None:
    """Add the lines of one file. Raises UsageError for lines that paramiko refuses."""
    try:
        ssh_config.parse(io.StringIO("\n".join(_Reader(path.parent).lines(path))))
    # ValueError: a quote that is not closed in a Match line; paramiko lets shlex say so.
    except (paramiko.SSHException, OSError, UnicodeDecodeError, ValueError) as error:
        raise UsageError(f"{path}: {error}", f"`ssh -G {where}` reads the same file", where=where) from error


class _Reader:
    """The lines of one file and of all files that it includes. Limited, because two files may include each other."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._files = self._bytes = 0

    def lines(self, path: Path, depth: int = 0) -> Iterator[str]:
        for line in self._text(path, depth).splitlines():
            word, _, rest = line.strip().replace("=", " ", 1).partition(" ")
            if word.lower() != "include":
                yield line
                continue
            for pattern in rest.split():
                wanted = Path(pattern.strip('"')).expanduser()
                root, relative = (Path("/"), wanted.relative_to("/")) if wanted.is_absolute() else (self._base, wanted)
                for included in sorted(root.glob(str(relative))):
                    if included.is_file():
                        yield from self.lines(included, depth + 1)

    def _text(self, path: Path, depth: int) -> str:
        self._files += 1
        with path.open("rb") as file:
            data = file.read(CONFIG_BYTES - self._bytes + 1)
        self._bytes += len(data)
        if depth > DEEPEST_INCLUDE or self._files > CONFIG_FILES or self._bytes > CONFIG_BYTES:
            raise UsageError(
                f"{path}: too much is included: more than {DEEPEST_INCLUDE} files deep, {CONFIG_FILES} files"
                f" or {CONFIG_BYTES >> 20} MiB",
                "does a file of your SSH configuration include itself?",
            )
        return data.decode()
