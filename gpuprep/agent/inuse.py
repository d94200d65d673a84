"""Who uses this machine now: programs on its GPUs, Slurm's jobs, users who are logged in. Changes nothing.

    state(run, on_gpus, own)        what was found, as sentences, and what could not be read
    hindering(state, restart=...)   which of it speaks against a change

Stdlib only and without gpuprep's other modules, Python 3.9 or newer: the collection's module in_use has it by a link,
and asks it before each restart; the agent, where a snapshot shall have it.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import socket
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

PROC = Path("/proc")
MOST = 20  # sentences of a kind
MOST_SESSIONS = 200
# They watch, and do no work that a restart would lose. 15 letters, as the kernel cuts names.
MONITORS = ("nv-hostengine", "dcgm-exporter", "nvidia-persiste", "nv-fabricmanage")
# What CUDA and graphics open, and programs that only watch (nvidia-smi, exporters) do not.
DEVICES = ("/dev/nvidia-uvm", "/dev/nvidia-modeset")
# slurmd gives no PATH; these are where Slurm's packages and its own `make install` put its programs.
SLURM_FOLDERS = ("/usr/bin", "/usr/local/bin", "/opt/slurm/bin", "/usr/local/slurm/bin")
SLURM_PROCESSES = ("slurmd", "slurmstepd")
JOB_STATES = "CONFIGURING,RUNNING,SUSPENDED,STOPPED,COMPLETING"  # of jobs that have nodes
SESSION = ("Id", "Name", "TTY", "Timestamp", "Remote", "RemoteHost", "Class", "State")
SSHD = ("sshd", "sshd-session")  # the latter from OpenSSH 9.8 on
TERMINALS = range(136, 144)  # major numbers of /dev/pts
ASKED = {
    "programs": "whether a program uses a GPU",
    "jobs": "whether Slurm runs a job here",
    "users": "who is logged in",
}

Run = Callable[..., Optional[str]]  # what a command printed; None if it failed
OnGpus = Mapping[int, Tuple[str, Sequence[int]]]  # process ► its name, the GPUs that it is on


class Unknown(Exception):
    """It cannot be known; the text says why."""


def state(run: Run, on_gpus: Optional[OnGpus] = None, own: Iterable[int] = ()) -> Dict[str, Any]:
    """{"programs", "jobs", "users": sentences; "unknown": which of these could not be read ► why}.

    `on_gpus`: what NVML says; None where it does not answer: then the open device files are looked at. `own`:
    processes of gpuprep itself.
    """
    found: Dict[str, Any] = {"programs": [], "jobs": [], "users": [], "unknown": {}}
    readers: Dict[str, Callable[[], List[str]]] = {
        "programs": lambda: _programs(on_gpus, {*own, os.getpid()}),
        "jobs": lambda: _jobs(run),
        "users": lambda: _users(run),
    }
    for kind, read in readers.items():
        try:
            every = read()
        except Unknown as error:
            found["unknown"][kind] = str(error)
        else:
            found[kind] = [*every[:MOST], *([f"{len(every) - MOST} more"] if len(every) > MOST else [])]
    return found


def hindering(found: Mapping[str, Any], *, restart: bool) -> Tuple[List[str], List[str]]:
    """(who uses the machine, what is not known of it), as far as it speaks against a change.

    Programs and jobs hinder a change of the GPUs and a restart, users a restart alone.
    """
    kinds = [kind for kind in ASKED if restart or kind != "users"]
    unknown = [f"{ASKED[kind]} is not known: {found['unknown'][kind]}" for kind in kinds if kind in found["unknown"]]
    return [sentence for kind in kinds for sentence in found[kind]], unknown


def noted(text: bytes) -> List[int]:
    """Processes in the file of turns (agent/turn.py) that still run, checked by their start: ids are reused."""
    pids = []
    for line in text.split(b"\n"):
        number, _, began = line.decode("ascii", errors="replace").partition(" ")
        if number.isdigit() and int(number) != os.getpid() and began and began == start(number):
            pids.append(int(number))
    return pids


def start(pid: str) -> str:
    """When a process began, in the kernel's ticks; "" if it does not exist.

    Without psutil, which an agent that is sent along lacks and whose create_time() follows the computer's clock.
    """
    try:
        return (PROC / pid / "stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


# ---------------------------------------------------------------- programs


def _programs(on_gpus: Optional[OnGpus], own: Set[int]) -> List[str]:
    at_work = _holders() if on_gpus is None else on_gpus
    sentences = []
    for pid, (told, gpus) in sorted(at_work.items()):
        name = _comm(pid) or told
        if pid in own or name[:15] in MONITORS:
            continue
        where = f" on gpu {', '.join(map(str, gpus))}" if gpus else ""
        about = ", ".join(filter(None, [f"process {pid}", _owner(pid)]))
        sentences.append(f"{_plain(name) or 'a program'} ({about}){where}")
    return sentences


def _holders() -> Dict[int, Tuple[str, Sequence[int]]]:
    """Programs that have opened what only a program at work opens. Without a driver there is nothing to open."""
    if not any(Path(device).exists() for device in DEVICES):
        return {}
    return {pid: ("", ()) for pid in _processes() if not _opened(pid).isdisjoint(DEVICES)}


def _opened(pid: int) -> Set[str]:
    found = set()
    try:
        for link in (PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.add(str(link.readlink()))
    except PermissionError:
        raise Unknown(f"the open files of process {pid} may not be read") from None
    except OSError:  # it has ended
        pass
    return found


def _processes() -> Iterator[int]:
    return (int(folder.name) for folder in PROC.iterdir() if folder.name.isdigit())


def _comm(pid: int) -> str:
    try:
        return (PROC / str(pid) / "comm").read_bytes()[:40].decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _owner(pid: int) -> str:
    try:
        number = (PROC / str(pid)).stat().st_uid
        return _plain(pwd.getpwuid(number).pw_name)
    except KeyError:
        return f"user {number}"
    except OSError:
        return ""


def _plain(text: str, most: int = 40) -> str:
    return re.sub(r"[^A-Za-z0-9_.+:@/ -]+", "?", text).strip()[:most]


# ---------------------------------------------------------------- Slurm


def slurm_program(name: str) -> Optional[str]:
    """The path of a program of Slurm's."""
    folders = os.pathsep.join(filter(None, (os.environ.get("PATH", ""), *SLURM_FOLDERS)))
    return shutil.which(name, path=folders)


def slurm_node() -> str:
    """This node's name in Slurm."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]


def _jobs(run: Run) -> List[str]:
    """Jobs that have this node. None without slurmd: nothing else starts them."""
    if not any(_comm(pid) in SLURM_PROCESSES for pid in _processes()):
        return []
    program, node = slurm_program("squeue"), slurm_node()
    if program is None:
        raise Unknown("slurmd runs, and squeue is not found")
    told = run(program, "--noheader", f"--nodelist={node}", f"--states={JOB_STATES}", "--format=%A %u")
    if told is None:
        raise Unknown(f"squeue gives no answer about node {_plain(node)}")
    rows = [line.strip().partition(" ") for line in told.splitlines() if line.strip()]
    return [f"Slurm's job {_plain(number)} of {_plain(user)}" for number, _, user in rows]


# ---------------------------------------------------------------- users


def _users(run: Run) -> List[str]:
    """Sessions with an open terminal or a screen, less the one that this runs in."""
    for _ in range(2):  # a session may end between the two questions
        listed = run("loginctl", "list-sessions", "--no-legend")
        if listed is None:  # no logind
            return _by_who(run)
        ids = [line.split()[0] for line in listed.splitlines() if line.strip()]
        ids = [one for one in ids if one.isalnum() and one != _own_session()][:MOST_SESSIONS]
        shown = run("loginctl", "show-session", *(f"--property={name}" for name in SESSION), *ids) if ids else ""
        if shown is not None:
            inside = _in_sessions()
            return [sentence for block in shown.split("\n\n") for sentence in _session(block, inside)]
    raise Unknown("loginctl does not show the sessions that it lists")


def _session(block: str, inside: Mapping[str, Sequence[Tuple[str, str]]]) -> Iterator[str]:
    about = dict(line.partition("=")[::2] for line in block.splitlines())
    at_work = inside.get(about.get("Id", ""), [])
    # logind has the terminal of an SSH session from utmp: without utmp (Debian 13) it has none, and of a connection
    # that commands share (ControlPersist, as Ansible has it) it has the last one, also when that is closed. A session
    # whose user has logged out is `closing` as long as a program goes on, such as the gpg-agent that dnf leaves.
    open_one = next((terminal for _, terminal in at_work if terminal), "")
    left = about.get("State") == "closing" or all(name in SSHD for name, _ in at_work)
    idle = at_work and not open_one and left
    terminal = "" if idle else about.get("TTY") or open_one
    # systemd 256 and newer: root's sessions are of class user-early.
    if about.get("Class", "").startswith("user") and terminal:
        origin = f" from {_plain(about.get('RemoteHost', ''))}" if about.get("Remote") == "yes" else ""
        name, since = _plain(about.get("Name", "")), _plain(about.get("Timestamp", ""))
        yield f"{name} on {_plain(terminal)} since {since}{origin}"


def _in_sessions() -> Dict[str, List[Tuple[str, str]]]:
    """Session of logind's ► the name and the terminal of each of its processes that may be read."""
    found: Dict[str, List[Tuple[str, str]]] = {}
    for pid in _processes():
        if session := _session_of(str(pid)):
            found.setdefault(session, []).append((_comm(pid), _terminal(pid)))
    return found


def _terminal(pid: int) -> str:
    """The terminal that a process belongs to; "" for none. proc_pid_stat(5): tty_nr."""
    try:
        device = int((PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[4])
    except (OSError, IndexError, ValueError):
        return ""
    major, minor = os.major(device), os.minor(device)
    return f"pts/{(major - TERMINALS[0]) * 256 + minor}" if major in TERMINALS else "a terminal" if device else ""


def _own_session() -> str:
    return _session_of("self")


def _session_of(pid: str) -> str:
    """The session of logind's that a process belongs to; "" for none."""
    try:
        found = re.search(r"/session-([A-Za-z0-9]+)\.scope", (PROC / pid / "cgroup").read_text(errors="replace"))
    except OSError:
        return ""
    return found[1] if found else ""


def _by_who(run: Run) -> List[str]:
    told = run("who")
    if told is None:
        raise Unknown("neither loginctl nor who answers")
    return [_plain(" ".join(line.split()), 80) for line in told.splitlines() if line.strip()]
