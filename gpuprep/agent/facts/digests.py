"""sha256 of installed files, remembered by file identity: cuDNN and cuBLAS are gigabytes, hashing them takes seconds.

A file that was replaced or changed has another inode, size or time of change, which only a wrong clock could hide.
The cache is written only by root, and only on a host with an installed agent: a streamed agent leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Dict, Iterable, Union

from gpuprep.agent import host_paths
from gpuprep.agent.facts.managed import AGENT_HOME
from gpuprep.agent.facts.modulecache import file_identity
from gpuprep.agent.programs import atomicfile
from gpuprep.agent.programs.run import read_text
from gpuprep.records import Missing, Str
from gpuprep.untrusted.limits import open_regular

CACHE = Path(host_paths.DIGEST_CACHE)
CHUNK = 1 << 20


class Digests:
    """Returns digests of files; afterwards `keep` stores them for the next run."""

    def __init__(self, cache: Path = CACHE, agent: Path = AGENT_HOME) -> None:
        self._cache = cache
        self.keeps = agent.is_dir()
        self._known = _load(cache)
        self._used: Dict[str, str] = {}

    def of(self, path: Path, algorithm: str = "sha256") -> str:
        """The file's digest, remembered or calculated. Raises OSError if the file cannot be read."""
        key = file_identity(path)
        if key is not None and algorithm != "sha256":
            key = f"{algorithm} {key}"
        digest = self._known.get(key or "") or digest_of(path, algorithm)
        if key is not None:
            self._used[key] = digest
        return digest

    def of_all(self, paths: Iterable[str]) -> Union[Dict[str, Str], Missing]:
        """Path ► sha256 of many files; Missing("not_installed") without an installed agent: it would take seconds."""
        if not self.keeps:
            return Missing("not_installed", "digests are kept where the agent is installed")
        digests: Dict[str, Str] = {}
        for path in sorted(set(paths)):
            try:
                digests[path] = self.of(Path(path))
            except PermissionError as error:
                digests[path] = Missing("no_permission", str(error))
            except OSError as error:
                digests[path] = Missing("command_failed", str(error))
        return digests

    def keep(self) -> None:
        """Store the digests that were used in this run, and no others."""
        if os.geteuid() != 0 or not self.keeps:
            return
        with contextlib.suppress(OSError):  # the disk is full or read-only: the next run reads again, in seconds
            atomicfile.shared_folder(self._cache.parent)
            if self._used != self._known:
                atomicfile.write(self._cache, json.dumps(self._used))


def _load(cache: Path) -> Dict[str, str]:
    text = read_text(cache)
    try:
        document = json.loads(text) if isinstance(text, str) else {}
        return {str(key): str(digest) for key, digest in document.items()}
    except (ValueError, AttributeError):  # damaged, or of another format: treated as empty
        return {}


def sha256(path: Path) -> str:
    return digest_of(path, "sha256")


def digest_of(path: Path, algorithm: str) -> str:
    """The digest of a regular file (a device has no end). Raises OSError."""
    import hashlib  # late import: OpenSSL takes 3 MiB, and is not needed if all digests are cached

    digest = hashlib.new(algorithm)
    with open_regular(path) as file:
        while True:
            chunk = file.read(CHUNK)
            if not chunk:
                return digest.hexdigest()
            digest.update(chunk)
