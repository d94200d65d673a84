"""Reads DKMS's own tree, as `dkms status` does; but that command also unpacks every module, which takes seconds.

<module>/<version>/source                          added
<module>/<version>/<kernel>/<arch>/module/         built
<module>/kernel-<kernel>-<arch> ─► that folder     installed
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator, Tuple

from gpuprep.records import DkmsModule

TREE = Path("/var/lib/dkms")


def dkms_modules(tree: Path = TREE) -> Tuple[DkmsModule, ...]:
    """Every module version with its state for each kernel.

    "installed" is what DKMS recorded. Whether the file still exists shows in DriverFacts.module_version: the
    installed file may have another name than the built file (nvidia.ko becomes nvidia-current.ko on Debian).
    """
    return tuple(_walk(tree))


def _walk(tree: Path) -> Iterator[DkmsModule]:
    for version in sorted(path for path in tree.glob("*/*") if path.is_dir() and not path.is_symlink()):
        name = version.parent.name
        builds = sorted(path.parent for path in version.glob("*/*/module") if path.is_dir())
        for build in builds:
            state = "installed" if _is_installed(build) else "built"
            yield DkmsModule(name, version.name, build.parent.name, state)
        if not builds and (version / "source").is_dir():
            yield DkmsModule(name, version.name, None, "added")


def _is_installed(build: Path) -> bool:
    link = build.parents[2] / f"kernel-{build.parent.name}-{build.name}"
    return link.is_symlink() and os.path.realpath(str(link)) == os.path.realpath(str(build))
