"""Downloaded packages shared by the machines of a release, so that the second one does not download CUDA again.

Hard links, not a shared folder: apt locks its archive folder, and two machines must be able to install at once.
apt itself checks size and hash of what it finds there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from gpuprep.sim import paths

ARCHIVES = "var/cache/apt/archives"


def _pool(os_name: str) -> Path:
    return paths.cache_dir() / "debs" / os_name


def seed(os_name: str, upper: Path) -> int:
    """Puts the pool's packages into a machine's archive folder before it boots; returns how many."""
    pool = _pool(os_name)
    archives = upper / ARCHIVES
    _make_folders(upper)
    count = 0
    for package in pool.glob("*.deb") if pool.is_dir() else ():
        count += _link(package, archives / package.name)
    return count


def harvest(os_name: str, upper: Path) -> int:
    """Takes a machine's whole packages (apt renames them into place when complete) into the pool; returns how many."""
    pool = _pool(os_name)
    pool.mkdir(parents=True, exist_ok=True)
    archives = upper / ARCHIVES
    return sum(_link(package, pool / package.name) for package in archives.glob("*.deb")) if archives.is_dir() else 0


def _make_folders(upper: Path) -> None:
    path = upper
    for part in Path(ARCHIVES).parts:
        path /= part
        path.mkdir(exist_ok=True)
        path.chmod(0o755)


def _link(source: Path, to: Path) -> int:
    if to.exists():
        return 0
    temporary = to.with_name(f".{to.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):  # apt-get clean may take it away meanwhile
        try:
            os.link(source, temporary)
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                raise
            shutil.copyfile(source, temporary)  # another file system
        temporary.rename(to)
        return 1
    return 0
