"""Ends the processes of one run on a host. Sent as text and run there by root's python3: RUN [UNIT...].

Works without psutil, which a host may lack. RUN is the value of GPUPREP_RUN in the environment of the processes to end:
SIGTERM first, SIGKILL half a second later. A process that works on the package database is left alone, with its parents
and children. The last printed line names these: "left apt-get, dpkg".
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PROC = Path("/proc")
POLITE_SECONDS, LAST_SECONDS = 0.5, 0.7
STARTING_SECONDS = 0.3  # for programs to be started: while the kernel does that (execve), their environment is empty
# Whoever has a file of these open is a package manager at work, whatever it is called: dnf runs inside of Python.
DATABASES = (
    "/var/lib/dpkg/", "/var/lib/apt/", "/var/cache/apt/", "/var/lib/rpm/", "/usr/lib/sysimage/rpm/", "/var/lib/dnf/",
    "/var/cache/dnf/", "/run/dnf/",
)  # fmt: skip
NAMES = ("apt-get", "apt", "dpkg", "dnf", "dnf5", "yum", "rpm", "rpmkeys", "update-initramfs", "dracut")


def main(run: str, units: list[str]) -> int:
    if units:
        subprocess.run(["systemctl", "--no-block", "stop", *units], check=False, stderr=subprocess.DEVNULL)
    mark = f"GPUPREP_RUN={run}".encode()
    began = seen = time.monotonic()
    while True:
        marked, starting = _look(mark)
        kept = _kept(marked)
        ending = marked - kept - {os.getpid()}
        now = time.monotonic()
        waited = now - began
        if ending:
            seen = now
        starting = starting and now - seen < STARTING_SECONDS
        if not (ending or starting) or waited > POLITE_SECONDS + LAST_SECONDS:
            break
        for pid in ending:
            _send(pid, signal.SIGTERM if waited < POLITE_SECONDS else signal.SIGKILL)
        time.sleep(0.1)  # they are nobody's children here: no call waits for all of them, or for an execve
    names = ", ".join(sorted({_name(pid) for pid in kept if _is_manager(pid)}))
    sys.stdout.write(f"left {names}\n" if names else "nothing is left\n")
    return 0


def _pids() -> list[int]:
    return [int(path.name) for path in PROC.iterdir() if path.name.isdigit()]


def _look(mark: bytes) -> tuple[set[int], bool]:
    """(processes with the mark, whether a program that is just starting may also get the mark)."""
    environments = {pid: _environment(pid) for pid in _pids()}
    marked = {pid for pid, variables in environments.items() if mark in variables.split(b"\0") and _lives(pid)}
    return marked, any(not variables and _has_program(pid) for pid, variables in environments.items())


def _environment(pid: int) -> bytes:
    try:
        return (PROC / str(pid) / "environ").read_bytes()
    except OSError:  # gone meanwhile
        return b""


def _lives(pid: int) -> bool:
    try:
        return _stat(pid)[0] != "Z"
    except (OSError, IndexError):  # gone meanwhile
        return False


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name, which may contain any letter: state, parent and more."""
    return (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()


def _has_program(pid: int) -> bool:
    """Whether the process has a program: kernel processes and dying processes have none."""
    try:
        return bool(os.readlink(str(PROC / str(pid) / "exe")))  # noqa: PTH115
    except OSError:
        return False


def _kept(marked: set[int]) -> set[int]:
    """The marked processes that are package managers, and their marked children and parents."""
    parents: dict[int, int] = {}
    for pid in _pids():
        try:
            parents[pid] = int(_stat(pid)[1])
        except (OSError, ValueError, IndexError):
            continue
    managers = {pid for pid in marked if _is_manager(pid)}
    above = {ancestor for pid in managers for ancestor in _line(pid, parents)}
    return {pid for pid in marked if pid in above or managers & set(_line(pid, parents))}


def _line(pid: int, parents: dict[int, int]) -> list[int]:
    """The process and all its parents."""
    pids: list[int] = []
    while pid in parents and pid not in pids:
        pids.append(pid)
        pid = parents[pid]
    return pids


def _is_manager(pid: int) -> bool:
    if _name(pid) in NAMES:
        return True
    folder = PROC / str(pid) / "fd"
    try:
        return any(os.readlink(str(link)).startswith(DATABASES) for link in folder.iterdir())  # noqa: PTH115
    except OSError:
        return False


def _name(pid: int) -> str:
    try:
        return (PROC / str(pid) / "comm").read_text(errors="replace").strip()
    except OSError:
        return "?"


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
