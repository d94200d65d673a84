"""A folder of gpg's with keys that a test made: to sign what only the owner of a key may sign.

with gpghome.made(tmp_path_factory, "archive", "stranger") as home:
    gpghome.gpg(home, "--local-user", "stranger", "--clearsign", stdin=b"text")
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def gpg(home: Path, *words: str | Path, stdin: bytes = b"") -> bytes:
    command = ["gpg", "--homedir", home, "--batch", "--yes", "--quiet", "--passphrase", "", *words]
    return subprocess.run(command, input=stdin, capture_output=True, check=True).stdout


@contextmanager
def made(factory: pytest.TempPathFactory, *names: str) -> Iterator[Path]:
    """A home with a key of each name. Its path is short: gpg's agent listens below it. The agent is ended."""
    home = factory.mktemp("k")
    home.chmod(0o700)
    try:
        for name in names:
            gpg(home, "--quick-generate-key", name, "ed25519", "sign", "never")
        yield home
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)
