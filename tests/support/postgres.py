"""A real PostgreSQL of Debian's package, in a folder of its own and reached by a socket there alone.

The server refuses to run as root: root starts it as another user.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuprep.catalogue import versions

SUPERUSER = "gpuprep"
# Who runs the server where root starts it: Debian's package makes the first, every system has the second.
USERS = ("postgres", "nobody")


class NoPostgres(Exception):
    """It is not installed here; the message is one line."""


def programs() -> Path:
    """The folder of initdb and pg_ctl; Debian keeps them off the PATH. Raises NoPostgres."""
    made = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: versions.parse(path.parts[4]))
    found = str(made[-1]) if made else shutil.which("initdb")
    if found is None:
        raise NoPostgres("PostgreSQL is not installed (Debian: postgresql)")
    return Path(found).resolve().parent


@contextmanager
def server() -> Iterator[Server]:
    """A server with no databases of ours yet; stopped and removed at the end. Raises NoPostgres."""
    binaries = programs()
    # Short: the path of a socket has at most 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="gpuprep-pg-"))
    try:
        running = Server(folder, binaries)
        running.start()
        try:
            yield running
        finally:
            running.stop()
    finally:
        shutil.rmtree(folder)


class Server:
    def __init__(self, folder: Path, binaries: Path) -> None:
        self.folder, self._binaries, self._made = folder, binaries, 0
        self._as = []
        if os.geteuid() == 0:
            known = {user.pw_name for user in pwd.getpwall()}
            user = next(name for name in USERS if name in known)
            shutil.chown(folder, user)
            self._as = ["runuser", "-u", user, "--"]

    def start(self) -> None:
        self._run("initdb", "-D", "data", "-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
        options = f"-c listen_addresses='' -k {self.folder} -c fsync=off -c max_connections=40"
        self._run("pg_ctl", "-D", "data", "-w", "-l", "log", "-o", options, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", "data", "-w", "-m", "immediate", "stop")

    def new_database(self) -> str:
        """The URL of an empty database."""
        import psycopg

        self._made += 1
        name = f"test{self._made}"
        with psycopg.connect(host=str(self.folder), user=SUPERUSER, dbname="postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return f"postgresql://{SUPERUSER}@/{name}?host={self.folder}"

    def _run(self, *words: str) -> None:
        command = [*self._as, str(self._binaries / words[0]), *words[1:]]
        done = subprocess.run(
            command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            log = self.folder / "log"
            raise RuntimeError(f"{' '.join(command)}: {done.stdout}{log.read_text() if log.exists() else ''}")
