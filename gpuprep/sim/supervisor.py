"""The process behind one machine: mounts its disk, boots it, boots it again when it reboots.

Started by machine.py as `unshare --mount python -m gpuprep.sim.supervisor FOLDER`: the disk is mounted in a mount
namespace of its own, so when this process is gone, however it went, nothing stays mounted.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import IO

from gpuprep.agent.host_paths import SIMULATED_GPUS
from gpuprep.errors import GpuprepError
from gpuprep.sim import boot, cgroup, ids, mounts, store, sysfs
from gpuprep.sim.archive import serving

# systemd-nspawn --keep-unit ends with this code when the machine asked for a reboot
REBOOT = 133
PR_SET_PDEATHSIG = 1
MOST_CONSOLE = 4 << 20  # bytes of a boot
LOG_SECONDS = 5.0
POLL_SECONDS = 0.2
SLOW_BOOT = "slow-boot"  # in the folder run/ of a machine
MOST_PROCESSES = 8192  # of each user of a machine


class Supervisor:
    """One machine from power-on to power-off."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name
        self.root = folder / "root"
        self.stopping = False
        self.asked_to_stop = threading.Event()
        self.first_id: int | None = None  # of the machine's range; None: it has none
        self.child: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        signal.signal(signal.SIGTERM, self._stop)
        self.first_id = _first_id(self.folder)
        self._mount(store.read(self.name))
        serving.begin()
        while not self.stopping:
            description = store.read(self.name)
            boot.prepare(description, self.root, self.folder, self.first_id or 0)
            code = self._boot(description)
            if code != REBOOT:
                return code
            self._power_off_time()
        return 0

    def _power_off_time(self) -> None:
        """A fault of the restart: seconds until the machine starts again; "never" waits until the fault is removed."""
        fault, began = self.folder / "run" / SLOW_BOOT, time.monotonic()
        while not self.stopping:
            try:
                text = fault.read_text().strip()
            except FileNotFoundError:
                return
            if text != "never" and time.monotonic() - began > float(text):
                return
            self.asked_to_stop.wait(POLL_SECONDS)

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        self.stopping = True
        self.asked_to_stop.set()
        if self.child is not None:
            # The first SIGTERM asks the machine to shut down, a second one (machine.py sends it) ends it at once.
            self.child.send_signal(signal.SIGTERM)

    def _mount(self, description: store.Description) -> None:
        for name in ("root", "upper", "work"):
            (self.folder / name).mkdir(exist_ok=True)
        layers = (*description.layers, str(self.folder / "given"), description.base)
        mounts.mount_disk(self.folder, layers, self.first_id)

    def _boot(self, description: store.Description) -> int:
        group = cgroup.create(self.folder)
        self.child = subprocess.Popen(
            nspawn_command(description, self.folder, self.first_id),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(),
            preexec_fn=lambda: _enter(group),
        )
        assert self.child.stdout is not None
        log = threading.Thread(target=_log, args=(self.child.stdout, self.folder / "console.log"), daemon=True)
        log.start()
        store.record_process(self.name, "nspawn", self.child.pid)
        if self.stopping:
            self.child.send_signal(signal.SIGTERM)
        code = self.child.wait()
        log.join(LOG_SECONDS)  # why it ended is in the last lines
        return code


def _log(console: IO[bytes], path: Path) -> None:
    """Keeps the beginning of a boot's console: what a machine goes on to say would fill this computer's disk."""
    room = MOST_CONSOLE
    with path.open("wb") as log:
        while block := os.read(console.fileno(), 65536):
            log.write(block[:room])
            log.flush()
            room = max(0, room - len(block))


def _first_id(folder: Path) -> int | None:
    """What `up` chose for this start."""
    first: int | None = json.loads((folder / "start.json").read_text())["first_id"]
    return first


def nspawn_command(description: store.Description, folder: Path, first_id: int | None) -> list[str]:
    """The command that boots a machine once; `first_id` of its range of ids on this computer, None for no range."""
    # Of gpuprep's files the machine can write only the state of its GPUs.
    binds = [
        f"--bind-ro={folder / 'run'}:/run/gpuprep-sim",
        f"--bind={folder / 'run/nvml'}:{SIMULATED_GPUS}",
        f"--bind-ro=/sys/module:{sysfs.HOST_MODULES}",
    ]
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
    # Without a range the limit would count this computer's own root.
    own = [f"--private-users={first_id}:{ids.COUNT}", f"--rlimit=NPROC={MOST_PROCESSES}"] if first_id else []
    return [
        "systemd-nspawn", "--quiet", "--boot", f"--directory={folder / 'root'}", f"--machine={description.name}",
        "--register=no", "--keep-unit", "--resolv-conf=copy-host", "--link-journal=no", "--console=pipe", *own, *binds,
    ]  # fmt: skip


def _environment() -> dict[str, str]:
    # Controller's own variables (proxies, certificates, locale) must not reach the machine's init.
    environment = {"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")}
    # dpkg syncs each file. A simulated disk need not survive a power loss of its computer.
    environment["SYSTEMD_SUPPRESS_SYNC"] = "1"
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
