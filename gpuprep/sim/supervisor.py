"""The process behind one machine: mounts its disk, boots it, boots it again when it reboots.

Started by machine.py as `unshare --mount python -m gpuprep.sim.supervisor FOLDER`: the disk is mounted in a mount
namespace of its own, so when this process is gone, however it went, nothing stays mounted.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from gpuprep.errors import GpuprepError
from gpuprep.sim import boot, cgroup, debs, store, sysfs

# systemd-nspawn --keep-unit ends with this code when the machine asked for a reboot
REBOOT = 133
PR_SET_PDEATHSIG = 1


class Supervisor:
    """One machine from power-on to power-off."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name
        self.root = folder / "root"
        self.stopping = False
        self.child: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        signal.signal(signal.SIGTERM, self._stop)
        description = store.read(self.name)
        self._mount(description)
        while not self.stopping:
            description = store.read(self.name)
            boot.prepare(description, self.root, self.folder)
            code = self._boot(description)
            debs.harvest(description.os, self.folder / "upper")
            if code != REBOOT:
                return code
        return 0

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        self.stopping = True
        if self.child is not None:
            # The first SIGTERM asks the machine to shut down, a second one (machine.py sends it) ends it at once.
            self.child.send_signal(signal.SIGTERM)

    def _mount(self, description: store.Description) -> None:
        for name in ("root", "upper", "work"):
            (self.folder / name).mkdir(exist_ok=True)
        lower = ":".join((*description.layers, description.base))
        options = f"lowerdir={lower},upperdir={self.folder / 'upper'},workdir={self.folder / 'work'}"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, str(self.root)], check=True)

    def _boot(self, description: store.Description) -> int:
        group = cgroup.create(self.folder)
        with (self.folder / "console.log").open("ab") as console:
            self.child = subprocess.Popen(
                nspawn_command(description, self.folder),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env=_environment(),
                preexec_fn=lambda: _enter(group),
            )
        store.record_process(self.name, "nspawn", self.child.pid)
        if self.stopping:
            self.child.send_signal(signal.SIGTERM)
        return self.child.wait()


def nspawn_command(description: store.Description, folder: Path) -> list[str]:
    """The command that boots a machine once."""
    binds = [f"--bind={folder / 'run'}:/run/gpuprep-sim", f"--bind-ro=/sys/module:{sysfs.HOST_MODULES}"]
    binds += [
        f"--bind-ro={folder / 'sys' / target}:/sys/{target}"
        for target in ("module", "bus/pci/devices", "bus/pci/drivers")
        if Path("/sys", target).exists()
    ]
    # For a target below /proc, nspawn reads the source inside the machine.
    inside = {"driver": "/proc/driver", "modules": "/proc/modules", "osrelease": "/proc/sys/kernel/osrelease"}
    binds += [
        f"--bind-ro=/run/gpuprep-sim/proc/{source}:{target}"
        for source, target in inside.items()
        if Path(target).exists() and (folder / "run/proc" / source).exists()
    ]
    return [
        "systemd-nspawn", "--quiet", "--boot", f"--directory={folder / 'root'}", f"--machine={description.name}",
        "--register=no", "--keep-unit", "--resolv-conf=copy-host", "--link-journal=no", "--console=pipe", *binds,
    ]  # fmt: skip


def _environment() -> dict[str, str]:
    # Controller's own variables (proxies, certificates, locale) must not reach the machine's init.
    environment = {"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")}
    if cgroup.has_v2():
        environment["SYSTEMD_UNIFIED_CGROUP_HIERARCHY"] = "1"
    return environment


def _enter(group: list[Path]) -> None:
    """In the child before exec: its own cgroup, and no life without the supervisor."""
    for path in group:
        (path / "cgroup.procs").write_text(str(os.getpid()))
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0])
    store.record_process(folder.name, "supervisor", os.getpid())
    try:
        return Supervisor(folder).run()
    except (GpuprepError, OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"supervisor of {folder.name}: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
