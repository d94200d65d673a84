"""Downloaded packages, shared by the machines of a release, so that the second machine does not download CUDA again.

Not a shared folder: apt locks its archive folder, and two machines must be able to install at once. A machine gets
the packages in a layer below its own disk, so it cannot change what other machines get.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from pathlib import Path

from gpuprep.sim import base, paths, prerequisites, signedpackages
from gpuprep.sim.archive import systems
from gpuprep.sim.machinedisk import Disk

ARCHIVES = "var/cache/apt/archives"
NAME = re.compile(r"[a-z0-9][\w.+%~-]{1,200}\.deb")


def _pool(os_name: str) -> Path:
    """One pool for all systems that are the same Debian release."""
    return paths.cache_dir() / "packages" / base.release(os_name)


def seed(os_name: str, layer: Path) -> int:
    """Puts the pool's packages into a layer below a machine's own disk, before it boots; returns how many."""
    if os_name in systems.rpm_systems():
        return 0
    pool = _pool(os_name)
    archives = layer / ARCHIVES
    _make_folders(layer)
    count = 0
    for package in pool.glob("*.deb") if pool.is_dir() else ():
        count += _link(package, archives / package.name)
    return count


def harvest(os_name: str, upper: Path) -> int:
    """Copies those of a machine's packages to the pool that are Debian's; returns how many.

    They are copied, because the machine may still write to its own files. Exactly the verified bytes are written.
    """
    if os_name in systems.rpm_systems():
        return 0
    pool = _pool(os_name)
    pool.mkdir(parents=True, exist_ok=True)
    if not upper.is_dir():
        return 0
    keyring = prerequisites.keyring()
    with Disk(upper) as disk:
        new = [name for name in disk.files(ARCHIVES) if NAME.fullmatch(name) and not (pool / name).exists()]
        if not new or keyring is None:
            return 0
        verified = signedpackages.verified(disk, keyring, new)
        return sum(_copy(disk, name, pool, verified[name]) for name in new if name in verified)


def _copy(disk: Disk, name: str, pool: Path, verified: set[signedpackages.Content]) -> int:
    temporary = pool / f".{name}.{os.getpid()}"
    digest = hashlib.sha256()
    with disk.file(f"{ARCHIVES}/{name}") as source:
        size = 0 if source is None else os.fstat(source).st_size
        if source is None or str(size) not in {known for known, _ in verified}:
            return 0  # removed by apt-get clean meanwhile, or not the verified file
        left = size
        with temporary.open("wb") as copy:
            while left > 0 and (block := os.read(source, min(left, 1 << 20))):
                digest.update(block)
                copy.write(block)
                left -= len(block)
    if (str(size), digest.hexdigest()) not in verified:
        temporary.unlink()
        return 0
    temporary.rename(pool / name)
    return 1


def _make_folders(upper: Path) -> None:
    upper.mkdir(exist_ok=True)
    path = upper
    for part in Path(ARCHIVES).parts:
        path /= part
        path.mkdir(exist_ok=True)
        path.chmod(0o755)


def _link(source: Path, to: Path) -> int:
    if to.exists():
        return 0
    temporary = to.with_name(f".{to.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):  # the cache may be emptied at any time
        try:
            os.link(source, temporary)
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                raise
            shutil.copyfile(source, temporary)  # another file system
        temporary.rename(to)
        return 1
    return 0
