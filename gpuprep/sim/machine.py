"""Simulated GPU VMs: up, down, list, and how to reach one."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprep.errors import SimError
from gpuprep.sim import base, cgroup, debs, disk, gpus, ids, mounts, paths, prerequisites, presented, store
from gpuprep.sim.archive import systems
from gpuprep.sim.paths import Progress
from gpuprep.untrusted.plaintext import one_line

if TYPE_CHECKING:
    from gpuprep.remote import Target

BOOT_SECONDS = 120.0
SHUTDOWN_SECONDS = 30.0


@dataclass(frozen=True)
class Machine:
    """A simulated VM. `address` and `port` are where its sshd listens."""

    name: str
    os: str
    gpus: tuple[str, ...]
    port: int
    running: bool
    folder: Path
    booted: bool = False  # by the call that returned it
    address: str = "127.0.0.1"
    user: str = base.USER

    @property
    def identity_file(self) -> str:
        return str(self.folder / "ssh/id_ed25519")

    @property
    def known_hosts(self) -> str:
        return str(self.folder / "ssh/known_hosts")


def up(
    name: str,
    *,
    os: str = "debian13",
    gpus: Sequence[str] = ("t4",),
    progress: Progress | None = None,
    clone_of: str | None = None,
    nouveau: bool = True,
) -> Machine:
    """Boots a machine, making it first if there is none of that name; returns when its sshd answers.

    A running machine is returned as it is. `clone_of` starts a new machine on the disk of another one.
    Raises SimError when this computer cannot run machines, when a name, OS or GPU is unknown, or when the boot fails.
    """
    say = progress or (lambda _: None)
    prerequisites.check()
    _check(os, gpus)
    with store.locked_machine(name, say):
        made = (store.folder(name) / "machine.json").exists()
        running = made and store.process(name, "supervisor") is not None
        if not running:
            _fill_mirror(say)
            if not made:
                _create(name, os, gpus, clone_of, nouveau, say)
            with store.locked():
                prerequisites.allow(len(store.names()), say)
            _start(name, say)
        _wait_for_ssh(name, say)
        return _machine(name, booted=not running)


def down(name: str, *, keep: bool = False, progress: Progress | None = None) -> None:
    """Ends a machine and, unless `keep`, deletes its disk. Raises SimError when there is no such machine."""
    say = progress or (lambda _: None)
    with store.locked_machine(name, say):
        description = store.read(name)
        say(f"stopping {name}")
        _end_processes(name, graceful=keep)
        debs.harvest(description.os, store.folder(name) / "upper")
        if keep:
            return
        with store.locked():
            disk.remove(store.folder(name))
            disk.drop_unused_layers()


def machines() -> list[Machine]:
    """Every machine, running or stopped."""
    with store.locked():  # so that none is deleted while it is looked at
        return [_machine(name) for name in store.names()]


def target(name: str) -> Target:
    """How Host reaches a machine. Raises SimError when there is none of that name or it does not run."""
    from gpuprep.remote import Target

    description = store.read(name)
    if store.process(name, "supervisor") is None:
        raise SimError(f"the simulated VM {name!r} is not running", f"gpuprep sim up {name}")
    folder = store.folder(name)
    return Target(
        name=f"sim:{name}",
        address="127.0.0.1",
        port=description.port,
        user=base.USER,
        identity_file=str(folder / "ssh/id_ed25519"),
        known_hosts=str(folder / "ssh/known_hosts"),
        simulated=True,
        mirrors={**_mirrors(), **presented.mirrors(description.os)},
    )


def _fill_mirror(say: Progress) -> None:
    """Upstream's tarballs, fetched once, for machines that cannot reach upstream; a machine boots without them too."""
    from gpuprep.sim import mirror

    try:
        prefixes = mirror.ensure(say)
    except SimError as error:
        say(f"no local mirror of source tarballs: {error.what}")
        prefixes = {}
    with store.locked():
        store.write_json(paths.state_dir() / "mirrors.json", prefixes)


def _mirrors() -> dict[str, str]:
    try:
        data = json.loads((paths.state_dir() / "mirrors.json").read_text())
    except FileNotFoundError:
        return {}
    return {str(key): str(value) for key, value in data.items()}


def _machine(name: str, *, booted: bool = False) -> Machine:
    description = store.read(name)
    running = store.process(name, "supervisor") is not None
    return Machine(name, description.os, description.gpus, description.port, running, store.folder(name), booted)


def _check(os_name: str, gpu_keys: Sequence[str]) -> None:
    """Raises SimError for names that there are not, before anything is fetched."""
    base.release(os_name)
    gpus.check(gpu_keys)


def _create(
    name: str, os_name: str, gpu_keys: Sequence[str], clone_of: str | None, nouveau: bool, say: Progress
) -> None:
    keys = gpus.check(gpu_keys)
    layers: tuple[str, ...] = ()
    user_id: int | None = None
    if clone_of is not None:
        origin = store.read(clone_of)
        os_name, base_path, user_id = origin.os, origin.base, origin.options.get("user_id")
        say(f"copying the disk of {clone_of}")
        layers = disk.freeze(clone_of)
    else:
        base_path = str(base.ensure(os_name, say))
    with store.locked():
        folder = store.folder(name)
        if folder.exists():  # left by an `up` that was killed before it wrote machine.json
            disk.remove(folder)
        folder.mkdir(parents=True)
        port = _free_port()
        fresh = clone_of is None  # a clone's user has the id that its disk says
        if fresh and _why_no_range(base_path, layers):
            user_id = ids.spare()
        disk.prepare(folder, name, port, user_id or disk.USER_ID)
        if fresh and user_id is not None:
            disk.renumber_user(folder, Path(base_path), user_id)
        for other in map(store.read, store.names()):  # what running machines have downloaded so far
            debs.harvest(other.os, store.folder(other.name) / "upper")
        options = {} if user_id is None else {"user_id": user_id}
        store.write(store.Description(name, os_name, base_path, keys, port, layers, nouveau, name, options))


def _free_port() -> int:
    """A port that neither a socket nor another machine has, a stopped one included."""
    taken = {store.read(name).port for name in store.names()}
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port not in taken:
            return port


def _start(name: str, say: Progress) -> None:
    description = store.read(name)
    folder = store.folder(name)
    if not Path(description.base).is_dir():
        raise SimError(
            f"the base disk of {name} is gone: {description.base}", f"gpuprep sim down {name}, then up again"
        )
    _end_processes(name, graceful=False)  # what a crashed supervisor may have left
    _choose_ids(description, say)
    disk.give(folder, description.os, say)
    lacks = systems.systems()[description.os].lacks
    say(f"not rehearsed on {description.os}: CUDA programs, Secure Boot, {lacks} (docs/systems.md)")
    say(f"booting {name} ({description.os}; GPUs: {', '.join(description.gpus) or 'none'})")
    package = Path(__file__).resolve().parents[2]
    search = os.pathsep.join([str(package), *filter(None, [os.environ.get("PYTHONPATH")])])
    with (folder / "supervisor.log").open("ab") as log:
        subprocess.Popen(
            ["unshare", "--mount", "--propagation=private",
             sys.executable, "-m", "gpuprep.sim.supervisor", str(folder)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True,
            env={**os.environ, "PYTHONPATH": search},
        )  # fmt: skip


def _choose_ids(description: store.Description, say: Progress) -> None:
    """Choose the machine's user ids on this computer; says so if it cannot have a range of its own."""
    folder = store.folder(description.name)
    first: int | None = None
    why = _why_no_range(description.base, description.layers)
    user_id = description.options.get("user_id")
    if why and user_id is None:
        raise SimError(
            f"{description.name} would share its users with this computer: {why}",
            f"gpuprep sim down {description.name}, then up again: its user then gets an unused id",
        )
    with store.locked():
        if why:
            say(
                f"{description.name} is not shut off from this computer: {why}. Its root is root of this computer; "
                f"its user debian has the unused id {user_id}. See docs/simulated-machines.md"
            )
        else:
            first = ids.of_machine(description.name)
        store.write_json(folder / "start.json", {"first_id": first})


def _why_no_range(base_path: str, layers: Sequence[str]) -> str:
    return mounts.why_no_ranges([store.machines_dir(), Path(base_path), *map(Path, layers)])


def _wait_for_ssh(name: str, say: Progress) -> None:
    """Until sshd greets, or the supervisor is gone."""
    port = store.read(name).port
    begun = time.monotonic()
    seen_supervisor = False
    while time.monotonic() - begun < BOOT_SECONDS:
        if _greets(port):
            say(f"{name} answers on port {port} after {time.monotonic() - begun:.1f} s")
            return
        alive = store.process(name, "supervisor") is not None
        seen_supervisor = seen_supervisor or alive
        if (seen_supervisor or time.monotonic() - begun > 10) and not alive:
            raise SimError(f"{name} ended while it booted:\n{_last_lines(name)}", f"gpuprep sim down {name}")
        time.sleep(0.1)  # no event tells when the port of another machine opens
    raise SimError(f"{name} did not answer on its SSH port within {BOOT_SECONDS:.0f} s:\n{_last_lines(name)}")


def _greets(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _last_lines(name: str, count: int = 6) -> str:
    lines: list[str] = []
    for log in ("console.log", "supervisor.log"):
        path = store.folder(name) / log
        if path.exists():
            text = path.read_text(errors="replace")  # a console has at most 4 MiB, perhaps in one line
            lines += [one_line(line) for line in text.splitlines()[-count:]]
    return "\n".join(lines)


def _end_processes(name: str, *, graceful: bool) -> None:
    """Ends the supervisor and with it the machine; returns when no process of it is left."""
    folder = store.folder(name)
    supervisor = store.process(name, "supervisor")
    if supervisor:
        os.kill(supervisor, signal.SIGTERM)
        if graceful:
            _wait_until_gone(name, SHUTDOWN_SECONDS)
    nspawn = store.process(name, "nspawn")
    if nspawn:
        os.kill(nspawn, signal.SIGKILL)
    cgroup.kill(folder)
    if not _wait_until_gone(name, SHUTDOWN_SECONDS):
        raise SimError(f"processes of {name} do not end: {sorted(cgroup.processes(folder))}", "look at them with ps")
    cgroup.remove(folder)


def _wait_until_gone(name: str, seconds: float) -> bool:
    """Waits for the machine's processes to end; they are not our children, so nothing tells."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        living = [role for role in ("supervisor", "nspawn") if store.process(name, role)]
        if not living and not cgroup.processes(store.folder(name)):
            return True
        time.sleep(0.05)
    return False
