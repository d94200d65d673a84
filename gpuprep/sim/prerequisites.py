"""Checks what simulated VMs need on this computer, and reports everything that is missing at once."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from gpuprep.errors import SimError

# command -> (Debian package, what it is for)
COMMANDS = {
    "mmdebstrap": ("mmdebstrap", "makes the machine's disk"),
    "systemd-nspawn": ("systemd-container", "boots the machine"),
    "gcc": ("gcc libc6-dev", "compiles the stand-ins for NVML and uname"),
    "unshare": ("util-linux", "keeps the machine's mounts to itself"),
    "nsenter": ("util-linux", "runs commands inside"),
    "ssh-keygen": ("openssh-client", "makes the machine's keys"),
    "gpg": ("gnupg", "signs the stub archives of Ubuntu and NVIDIA"),
}
# A booted machine's systemd has about five; 26 machines filled Debian's 128, and the next one ended while it booted.
WATCHERS = Path("/proc/sys/fs/inotify/max_user_instances")
WATCHERS_A_MACHINE, WATCHERS_OF_OTHERS = 8, 64
KEYRINGS = ("/usr/share/keyrings/debian-archive-keyring.gpg", "/usr/share/keyrings/debian-archive-keyring.pgp")


def keyring() -> Path | None:
    """Debian's archive keys on this computer."""
    return next((path for path in map(Path, KEYRINGS) if path.exists()), None)


def missing() -> list[tuple[str, str]]:
    """What is not there, as (command or file, Debian packages)."""
    lacking = [(command, package) for command, (package, _) in COMMANDS.items() if shutil.which(command) is None]
    if keyring() is None:
        lacking.append(("Debian's archive keys", "debian-archive-keyring"))
    return lacking


def check() -> None:
    """Raises SimError with one line for each thing that is missing."""
    if sys.platform != "linux":
        raise SimError(
            f"simulated VMs need Linux, this is {sys.platform}",
            "run gpuprep sim on a Linux computer (or in a Linux VM) as root",
        )
    lines = []
    packages: list[str] = []
    if os.geteuid() != 0:
        lines.append("simulated VMs need root (they mount disks and boot systemd); this is an ordinary user")
    for what, package in missing():
        purpose = COMMANDS[what][1] if what in COMMANDS else "proves that packages are Debian's"
        lines.append(f"{what} is missing: it {purpose}")
        packages += [name for name in package.split() if name not in packages]
    if not lines:
        return
    hints = []
    if packages:
        hints.append(f"apt-get install {' '.join(packages)}")
    if os.geteuid() != 0:
        hints.append("run it again with sudo")
    raise SimError("\n".join(lines), "; then ".join(hints))


def allow(machines: int, say: Callable[[str], None]) -> None:
    """Room for so many machines in a limit of the kernel that most computers have low. Until the next boot."""
    needed = machines * WATCHERS_A_MACHINE + WATCHERS_OF_OTHERS
    try:
        if int(WATCHERS.read_text()) < needed:
            WATCHERS.write_text(str(2 * needed))  # so that not every machine raises it
            say(f"allowing {2 * needed} watchers of files: sysctl fs.inotify.max_user_instances={2 * needed}")
    except OSError as error:  # a container's /proc may be read-only
        say(f"cannot raise fs.inotify.max_user_instances to {needed}, which {machines} machines need: {error}")
