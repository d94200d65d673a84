"""A machine's disk, mounted: its layers, each seen through the machine's range of ids, and an overlay of them.

Owners on disk are the machine's own ids, 0 to 65535, whatever range it has on this computer: ids are translated where a
layer is mounted (mount_setattr(2)), so nothing is ever chowned, and a base serves every machine.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpuprep.sim import ids, kernelcalls

# overlayfs takes layers with translated owners since this kernel
OVERLAY_SINCE = (5, 19)
# nspawn, root on this computer, makes mount points on the machine's disk, and so needs an id there: one that the
# machine itself has not.
NSPAWNS_ID = ids.COUNT


def why_no_ranges(folders: Iterable[Path]) -> str:
    """Why machines with disks in these folders cannot have ids of their own here; "" where they can."""
    numbers = re.match(r"(\d+)\.(\d+)", platform.release())
    if numbers is None or tuple(map(int, numbers.groups())) < OVERLAY_SINCE:
        return f"Linux {platform.release()} is older than {'.'.join(map(str, OVERLAY_SINCE))}"
    try:
        with _user_namespace(ids.FIRST) as namespace:
            for folder in folders:
                os.close(_layer(folder, namespace))
    except subprocess.CalledProcessError:
        return "this kernel makes no user namespaces (sysctl user.max_user_namespaces)"
    except OSError as error:
        return f"{error.filename}: owners cannot be translated on this file system ({error.strerror})"
    return ""


def mount_disk(folder: Path, layers: Iterable[str], first_id: int | None) -> None:
    """Mounts the disk of the machine in `folder` at its root/, above `layers` (newest first), for a range of ids."""
    points = folder / "mounts"
    with _user_namespace(first_id) as namespace:
        for number, layer in enumerate([str(folder), *layers]):
            (points / str(number)).mkdir(parents=True, exist_ok=True)
            mount = _layer(Path(layer), namespace)
            kernelcalls.attach(mount, str(points / str(number)))
            os.close(mount)
    count = number + 1
    os.chdir(points)  # short names: a mount's options are one page
    lower = ":".join(str(number) for number in range(1, count))
    # redirect_dir: a folder of a frozen disk can be renamed like any other (else rename(2) says EXDEV).
    layers_of_it = f"lowerdir={lower},upperdir=0/upper,workdir=0/work,redirect_dir=on"
    kernelcalls.mount("overlay", str(folder / "root"), layers_of_it)
    os.chdir("/")
    for number in range(count):  # the overlay holds them itself
        subprocess.run(["umount", "--lazy", str(points / str(number))], check=True)


def _layer(folder: Path, namespace: int | None) -> int:
    mount = kernelcalls.detached_mount(str(folder))
    if namespace is not None:
        try:
            kernelcalls.map_ids(mount, namespace, str(folder))
        except OSError:
            os.close(mount)
            raise
    return mount


@contextlib.contextmanager
def _user_namespace(first_id: int | None) -> Iterator[int | None]:
    """A user namespace with a machine's range, held by a process that does nothing; None for no range."""
    if first_id is None:
        yield None
        return
    holder = subprocess.Popen(
        ["unshare", "--user", "sh", "-c", "echo; read _"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        if not holder.stdout.readline():
            raise subprocess.CalledProcessError(holder.wait(), "unshare --user")
        for kind in ("uid_map", "gid_map"):
            text = f"0 {first_id} {ids.COUNT}\n{NSPAWNS_ID} 0 1\n"
            Path(f"/proc/{holder.pid}/{kind}").write_text(text)
        namespace = os.open(f"/proc/{holder.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield namespace
        finally:
            os.close(namespace)
            holder.stdin.close()
