"""A machine's own disk: what is put on it before its first boot, and frozen disks that clones share."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from importlib import resources
from pathlib import Path

from gpuprep.errors import SimError
from gpuprep.sim import native, paths, store

LIBRARY_FOLDER = "usr/lib/gpuprep-sim"
USER_ID = 1000
GUEST_MODULES = ("onhost/simstate.py", "onhost/simgpu.py")
# Isolated: the caller's PYTHONPATH is not for it.
FFMPEG = f"""\
#!/usr/bin/python3 -IS
import sys
sys.path.insert(0, "/{LIBRARY_FOLDER}/python")
from gpuprep.sim.guest.ffmpeg import main
sys.exit(main(sys.argv[1:]))
"""


def prepare(folder: Path, name: str, port: int) -> None:
    """Host name, keys and SSH port of a new machine."""
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
        os.chown(upper / owned, USER_ID, USER_ID)
    (upper / "home/debian/.ssh").chmod(0o700)


def install_stand_ins(folder: Path) -> None:
    """Puts the compiled stand-ins on the machine's disk; done at every start, so a newer gpuprep replaces them."""
    upper = folder / "upper"
    write(upper, f"{LIBRARY_FOLDER}/README", "Stand-ins of a simulated VM (gpuprep sim).\n")
    built = {
        "preload.so": native.preload(),
        "libnvidia-ml.so.1": native.nvml(),
        "nvidia-persistenced": native.persistenced(),
    }
    for name, library in built.items():
        target = upper / LIBRARY_FOLDER / name
        target.unlink(missing_ok=True)
        shutil.copyfile(library, target)
        target.chmod(0o755)
    install_guest(upper)
    write(upper, "etc/ld.so.preload", f"/{LIBRARY_FOLDER}/preload.so\n")


def install_guest(upper: Path) -> None:
    """The programs of guest/ with the modules of the agent that they use, and ffmpeg's stand-in that starts them."""
    package = resources.files("gpuprep")
    names = [f"sim/guest/{item.name}" for item in (package / "sim/guest").iterdir() if item.name.endswith(".py")]
    for name in (*GUEST_MODULES, *names):
        write(upper, f"{LIBRARY_FOLDER}/python/gpuprep/{name}", (package / name).read_text(encoding="utf-8"))
    # Without what these import: the rest of gpuprep is not there.
    for name in ("__init__.py", "onhost/__init__.py", "sim/__init__.py"):
        write(upper, f"{LIBRARY_FOLDER}/python/gpuprep/{name}", "")
    write(upper, f"{LIBRARY_FOLDER}/ffmpeg", FFMPEG, 0o755)


def write(upper: Path, name: str, text: str, mode: int = 0o644) -> None:
    """Writes a file of the disk with folders that have a system's usual mode, whatever this process's umask is."""
    folder = upper
    for part in Path(name).parent.parts:
        folder /= part
        if not folder.is_dir():
            folder.mkdir()
            folder.chmod(0o755)
    path = folder / Path(name).name
    path.write_text(text)
    path.chmod(mode)


def _key(path: Path, comment: str) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)], check=True)


def freeze(name: str) -> tuple[str, ...]:
    """Frozen disks, newest first, that hold what a stopped machine has now; the machine goes on above them itself."""
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
        shutil.rmtree(folder / "work", ignore_errors=True)
        layers = (str(layer), *description.layers)
        store.write(store.Description(**{**description.__dict__, "layers": layers}))
        return layers


def drop_unused_layers() -> None:
    """Deletes frozen disks that no machine stands on any more. Call with the store locked."""
    used = {layer for name in store.names() for layer in store.read(name).layers}
    for path in (paths.state_dir() / "layers").glob("*"):
        if str(path) not in used:
            shutil.rmtree(path)
