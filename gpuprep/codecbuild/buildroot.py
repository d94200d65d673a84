"""The folder that a build sees as its root: a minimal Debian with the compilers, made once by mmdebstrap."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from gpuprep.codecbuild.target import Target
from gpuprep.sim import base, prerequisites

NOBODY = 65534


def ensure(target: Target, more: Sequence[str], progress: base.Progress) -> Path:
    """The root for builds for this target, with `more` packages. Raises SimError where it cannot be made here."""
    prerequisites.check()
    name = f"build-{target.name}{'-libraries' if more else ''}"
    root = base.root(name, target.codename, sorted({*target.packages, *more}), progress)
    (root / "build").mkdir(exist_ok=True)  # where nspawn mounts the sources
    return root


def command(root: Path, scratch: Path, words: Sequence[str]) -> list[str]:
    """`words` in the root as a user without rights: no network, and only `scratch`/work can be written."""
    return [
        "systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--as-pid2", "--volatile=no", "--read-only",
        "--directory", str(root), "--private-network", "--no-new-privileges=yes", "--tmpfs=/tmp:mode=1777",
        f"--bind-ro={scratch}:/build", f"--bind={scratch / 'work'}:/build/work", "--chdir=/build/work",
        "--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=pipe", "--",
        "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all",
        *words,
    ]  # fmt: skip


def run(root: Path, scratch: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(root, scratch, words), capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
        check=False,
    )  # fmt: skip
