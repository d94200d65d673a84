"""Version, flavour and kernel of modules, remembered by file identity.

Debian's DKMS leaves nvidia-current.ko.xz at 40 MB compressed, and modinfo unpacks all of it: seconds of CPU for each
snapshot. A module that was replaced is another file (inode, size, time), so the cache cannot be stale.
The cache is written only by root, and only on a host with an installed agent: a streamed agent leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Callable, Dict, Optional, Tuple, Union

from gpuprep.agent import host_paths
from gpuprep.agent.facts.managed import AGENT_HOME
from gpuprep.agent.programs import atomicfile
from gpuprep.agent.programs.run import read_text
from gpuprep.records import Missing

CACHE = Path(host_paths.MODULE_CACHE)
Reading = Union[Tuple[str, str, str], Missing]


def remembered(path: Path, read: Callable[[Path], Reading], cache: Path = CACHE, agent: Path = AGENT_HOME) -> Reading:
    """The cached result for this file, else `read(path)`. A failed reading is not cached."""
    key = file_identity(path)
    known = _load(cache)
    if key is not None and key in known:
        return known[key]
    reading = read(path)
    if key is not None and isinstance(reading, tuple) and os.geteuid() == 0 and agent.is_dir():
        _save(cache, {**{old: value for old, value in known.items() if not old.startswith(f"{path}:")}, key: reading})
    return reading


def file_identity(path: Path) -> Optional[str]:
    """A text that changes whenever the file is replaced or written; None if stat fails."""
    try:
        status = path.stat()
    except OSError:
        return None
    return f"{path}:{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"


def _load(cache: Path) -> Dict[str, Tuple[str, str, str]]:
    text = read_text(cache)
    try:
        document = json.loads(text) if isinstance(text, str) else {}
        return {str(key): (str(one), str(two), str(three)) for key, (one, two, three) in document.items()}
    except (ValueError, TypeError, AttributeError):  # damaged, or of another format: treated as empty
        return {}


def _save(cache: Path, known: Dict[str, Tuple[str, str, str]]) -> None:
    with contextlib.suppress(OSError):  # the disk is full or read-only: the next run reads again, in seconds
        atomicfile.shared_folder(cache.parent)
        atomicfile.write(cache, json.dumps(known))
