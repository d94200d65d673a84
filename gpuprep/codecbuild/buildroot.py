"""The folder that a build sees as its root: a minimal Debian with the compilers, made once by mmdebstrap."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from gpuprep.codecbuild.target import Target
from gpuprep.sim import base, prerequisites
from gpuprep.sim.paths import Progress

NOBODY = 65534
EVERY_SECONDS = 3.0
LAST_SECONDS = 2.0


def ensure(target: Target, more: Sequence[str], progress: Progress) -> Path:
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


def run(
    root: Path, scratch: Path, words: Sequence[str], meanwhile: Callable[[], None] = lambda: None
) -> subprocess.CompletedProcess[str]:
    """`meanwhile` is called every few seconds. However this call ends, the build ends with it, with its pid 1."""
    asked = command(root, scratch, words)
    process = subprocess.Popen(
        asked, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    try:
        while True:
            try:
                output, complained = process.communicate(timeout=EVERY_SECONDS)
                return subprocess.CompletedProcess(asked, process.returncode, output, complained)
            except subprocess.TimeoutExpired:
                meanwhile()
    except BaseException:
        _end(process)
        raise


def _end(process: subprocess.Popen[str]) -> None:
    """TERM, on which nspawn ends what runs in the root; KILL, with which its container ends, too."""
    process.terminate()
    try:
        process.communicate(timeout=LAST_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
