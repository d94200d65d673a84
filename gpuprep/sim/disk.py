"""A machine's own disk: what is put on it before its first boot, and frozen disks that clones share."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from gpuprep.errors import SimError
from gpuprep.sim import debs, native, paths, presented, store
from gpuprep.sim.layer import write

LIBRARY_FOLDER = "usr/lib/gpuprep-sim"
USER_ID = 1000
GUEST_MODULES = ("agent/host_paths.py", "agent/gpu/simstate.py", "agent/gpu/simgpu.py")
# Isolated: the caller's PYTHONPATH is not for it.
FFMPEG = f"""\
#!/usr/bin/python3 -IS
import sys
sys.path.insert(0, "/{LIBRARY_FOLDER}/python")
from gpuprep.sim.guest.ffmpeg import main
sys.exit(main(sys.argv[1:]))
"""


def prepare(folder: Path, name: str, port: int, user_id: int = USER_ID) -> None:
    """Host name, keys and SSH port of a new machine, whose user `debian` has this id."""
    upper = folder / "upper"
    ssh = folder / "ssh"
    for path in (upper, ssh, folder / "run"):
        path.mkdir(parents=True, exist_ok=True)
    ssh.chmod(0o700)
    write(upper, "etc/hostname", f"{name}\n")
    # Without an id systemd takes this for a first boot and enables every unit, ssh.socket on port 22 among them.
    write(upper, "etc/machine-id", f"{uuid.uuid4().hex}\n", 0o444)
    write(upper, "etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 {name}\n::1 localhost ip6-localhost ip6-loopback\n")
    write(upper, "etc/ssh/sshd_config.d/gpuprep-sim-port.conf", f"Port {port}\nListenAddress 127.0.0.1\n")
    _key(ssh / "id_ed25519", "gpuprep-sim")
    _key(ssh / "host", f"root@{name}")
    write(upper, "etc/ssh/ssh_host_ed25519_key", (ssh / "host").read_text(), 0o600)
    public = (ssh / "host.pub").read_text()
    write(upper, "etc/ssh/ssh_host_ed25519_key.pub", public)
    (ssh / "known_hosts").write_text(f"[127.0.0.1]:{port} {' '.join(public.split()[:2])}\n")
    write(upper, "home/debian/.ssh/authorized_keys", (ssh / "id_ed25519.pub").read_text(), 0o600)
    for owned in ("home/debian", "home/debian/.ssh", "home/debian/.ssh/authorized_keys"):
        os.chown(upper / owned, user_id, user_id)
    (upper / "home/debian/.ssh").chmod(0o700)


def renumber_user(folder: Path, base: Path, user_id: int) -> None:
    """Gives the user of a new machine an id that no account of this computer uses, unlike the id in the base."""
    for name, column in (("etc/passwd", 2), ("etc/group", 2)):
        lines = [line.split(":") for line in (base / name).read_text().splitlines()]
        for line in lines:
            if line[column] == str(USER_ID):
                line[column] = str(user_id)
            if name == "etc/passwd" and line[3] == str(USER_ID):
                line[3] = str(user_id)
        write(folder / "upper", name, "".join(":".join(line) + "\n" for line in lines))
    for path in (base / "home/debian").iterdir():
        copy = folder / "upper/home/debian" / path.name
        shutil.copyfile(path, copy)
        os.chown(copy, user_id, user_id)


def give(folder: Path, os_name: str, progress: Callable[[str], None] = lambda _: None) -> None:
    """Makes the layer below the machine's own disk: the compiled stand-ins and packages that others downloaded.

    It is made again at every start, so a newer gpuprep replaces it, and from outside: whatever the machine did to
    its own disk cannot change where root of this computer writes.
    """
    given = folder / "given"
    remove(given)
    given.mkdir()
    given.chmod(0o755)
    write(given, f"{LIBRARY_FOLDER}/README", "Stand-ins of a simulated VM (gpuprep sim).\n")
    built = {
        "preload.so": native.preload(),
        "libnvidia-ml.so.1": native.nvml(),
        "nvidia-persistenced": native.persistenced(),
    }
    for name, library in built.items():
        shutil.copyfile(library, given / LIBRARY_FOLDER / name)
        (given / LIBRARY_FOLDER / name).chmod(0o755)
    install_guest(given)
    write(given, "etc/ld.so.preload", f"/{LIBRARY_FOLDER}/preload.so\n")
    debs.seed(os_name, given)
    presented.give(os_name, given, progress)


def remove(folder: Path) -> None:
    """Deletes a folder that a machine filled: rm goes down any depth, and Python's own does not."""
    done = subprocess.run(["rm", "-rf", "--one-file-system", "--", str(folder)], capture_output=True, check=False)
    if done.returncode != 0:
        raise SimError(f"{folder} cannot be deleted: {done.stderr.decode(errors='replace').strip()}", "look at it")


def install_guest(upper: Path) -> None:
    """The programs of guest/ with the modules of the agent that they use, and ffmpeg's stand-in that starts them."""
    package = resources.files("gpuprep")
    names = [f"sim/guest/{item.name}" for item in (package / "sim/guest").iterdir() if item.name.endswith(".py")]
    for name in (*GUEST_MODULES, *names):
        write(upper, f"{LIBRARY_FOLDER}/python/gpuprep/{name}", (package / name).read_text(encoding="utf-8"))
    # Without what these import: the rest of gpuprep is not there.
    for name in ("__init__.py", "agent/__init__.py", "sim/__init__.py"):
        write(upper, f"{LIBRARY_FOLDER}/python/gpuprep/{name}", "")
    write(upper, f"{LIBRARY_FOLDER}/ffmpeg", FFMPEG, 0o755)


def _key(path: Path, comment: str) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)], check=True)


def freeze(name: str) -> tuple[str, ...]:
    """Frozen disks, newest first, that hold what a stopped machine has now; the machine itself gets a new layer."""
    if store.process(name, "supervisor"):
        raise SimError(f"{name} runs, its disk changes", f"gpuprep sim down --keep {name}, then clone it")
    folder = store.folder(name)
    with store.locked():  # several clones may be made at a time
        description = store.read(name)
        if not any((folder / "upper").iterdir()):
            return description.layers  # nothing changed since: a mount has no room for a layer a clone
        layer = paths.state_dir() / "layers" / uuid.uuid4().hex[:12]
        layer.parent.mkdir(parents=True, exist_ok=True)
        (folder / "upper").rename(layer)
        (folder / "upper").mkdir()
        remove(folder / "work")
        layers = (str(layer), *description.layers)
        store.write(store.Description(**{**description.__dict__, "layers": layers}))
        return layers


def drop_unused_layers() -> None:
    """Deletes frozen disks that no machine stands on any more. Call with the store locked."""
    used = {layer for name in store.names() for layer in store.read(name).layers}
    for path in (paths.state_dir() / "layers").glob("*"):
        if str(path) not in used:
            remove(path)
