"""Reads unfinished package states, and which program works with the packages now. Changes nothing.

Without gpuprep's other modules and stdlib only, Python 3.9 or newer: the agent imports it, and so does the collection's
module package_state, by a link.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import sqlite3
import struct
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple
from urllib.parse import quote

NO_ANSWER = "the package manager does not answer"  # the error of the agent; its caller adds what to do
MOST = 50  # of packages and of files that are named
RED_HAT = Path("/etc/system-release")  # Red Hat's system, those built from its sources, and Amazon Linux
# How each manager is asked for all packages. dpkg's states are letters: wanted, is, error.
DPKG_FIELDS = (
    "${db:Status-Abbrev}\\t${Package}\\t${Provides}\\t${Pre-Depends}, ${Depends}\\t${Version}\\t${Config-Version}\\n"
)
DPKG_QUERY = ("dpkg-query", "-W", "-f", DPKG_FIELDS)
RPM_QUERY = ("rpm", "-qa", "--qf", "%{NAME}.%{ARCH}\\n")
# States of dpkg(1) for an unfinished step, as in `dpkg --audit`. Waiting triggers are no fault: apt runs them.
UNFINISHED = {"H": "half-installed", "U": "unpacked", "F": "half-configured"}
BROKEN = "reinst-required"
# Half-configured in the version that was configured before: only its reaction to other packages' files was broken off.
TRIGGERED = "half-configured by a trigger"
# Packages that provision installs again: then apt's dependencies are met.
OWN = re.compile(r"(lib)?(nvidia|nv|cuda|cudnn|cublas|cufft|cufile|cuinj|cupti|curand|cusolver|cusparse|npp)|dkms$")
WITHOUT = "installed without "  # and a package that it needs
# rpm has no half-installed state: an interrupted transaction leaves the old package beside the new one.
TWICE = "installed twice"
SIDE_BY_SIDE = ("kernel", "kmod-", "gpg-pubkey")  # dnf installs several versions of these beside each other
JOURNAL = Path("/var/lib/dpkg/updates")  # what dpkg had not yet written into its database; apt then refuses all work
# Locks as apt, dpkg and rpm take them (fcntl), and files in which dnf writes its process id.
LOCKS = (
    "/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock",
    "/var/lib/rpm/.rpm.lock", "/usr/lib/sysimage/rpm/.rpm.lock",
)  # fmt: skip
PROCESS_FILES = (
    "/var/cache/dnf/metadata_lock.pid", "/var/cache/dnf/download_lock.pid", "/var/lib/dnf/rpmdb_lock.pid",
)  # fmt: skip
# How a step of gpuprep is known in the history of the package manager: by a setting that apt has not, by dnf's comment.
MARK = "GPUprep::Step=1"
APT_HISTORY = Path("/var/log/apt/history.log")
DNF_HISTORY = Path("/var/lib/dnf/history.sqlite")
DNF_DONE = 1  # libdnf's TransactionState; 0: it did not end, 2: it failed
HISTORY_BYTES = 1 << 18  # the last of them: one step names some hundred packages
FLOCK = "hhqqi"  # struct flock: type, whence, start, length, process


def unfinished(answer: str, *, rpm: bool) -> Dict[str, str]:
    """The answer to DPKG_QUERY or RPM_QUERY ─► package ► what is wrong with it."""
    if rpm:
        times = Counter(line for line in answer.splitlines() if not line.startswith(SIDE_BY_SIDE))
        found = {name: TWICE for name, count in times.items() if count > 1 and _is_name(name)}
    else:
        rows = [(line.split("\t") + [""] * 6)[:6] for line in answer.splitlines()]
        there = {name for state, name, *_ in rows if state[1:2] not in "nc"}
        there |= {name for state, _, provides, *_ in rows if state[1:2] not in "nc" for name in _names(provides)}
        found = {}
        for state, name, _, depends, version, configured in rows:
            wrong = BROKEN if state[2:3] == "R" else UNFINISHED.get(state[1:2], "")
            if state[1:3].rstrip() == "F" and version == configured != "":
                wrong = TRIGGERED
            if not wrong and state[1:2] == "i":
                wrong = _unmet(depends, there)
            if wrong and _is_name(name):
                found[name] = wrong
    return dict(sorted(found.items())[:MOST])


def _unmet(depends: str, there: Set[str]) -> str:
    """A dependency that an installed package lacks: apt then refuses to work. Only names are compared, not versions."""
    for need in depends.split(","):
        names = _names(need.replace("|", ","))
        if names and not there.intersection(names) and not any(map(OWN.match, names)):
            return WITHOUT + (names[0] if _is_name(names[0]) else "a package")
    return ""


def _names(relation: str) -> List[str]:
    """ "libc6 (>= 2.38), python3:any" ─► ["libc6", "python3"]."""
    words = (part.split() for part in relation.split(","))
    return [word[0].partition(":")[0].partition("(")[0] for word in words if word]


def journal(folder: Path = JOURNAL) -> List[str]:
    """Files of an interrupted run of dpkg, as apt looks for them: their names are digits."""
    try:
        return sorted(str(path) for path in folder.iterdir() if path.name.isdigit())[:MOST]
    except (FileNotFoundError, NotADirectoryError):
        return []


def ours(*, rpm: bool, apt: Path = APT_HISTORY, dnf: Path = DNF_HISTORY) -> List[str]:
    """Packages of gpuprep's own step, if the last step of the package manager was that and did not end."""
    try:
        return _of_dnf(dnf) if rpm else _of_apt(apt)
    except (OSError, sqlite3.Error):
        return []


def _of_apt(history: Path) -> List[str]:
    """apt writes what it will do before it begins, End-Date when it has ended, and Error where dpkg failed."""
    with history.open("rb") as file:
        file.seek(max(0, history.stat().st_size - HISTORY_BYTES))
        text = file.read(HISTORY_BYTES).decode("utf-8", "replace")
    stanzas = [stanza for stanza in text.split("\n\n") if stanza.strip()]
    last = stanzas[-1] if stanzas else ""
    ended = re.search(r"(?m)^End-Date:", last) and not re.search(r"(?m)^Error:", last)
    if ended or not re.search(rf"(?m)^Commandline: .* {re.escape(MARK)}( |$)", last):
        return []
    steps = re.findall(r"(?m)^(?:Install|Reinstall|Upgrade|Downgrade|Remove|Purge): (.*)$", last)
    return sorted({name for step in steps for name in re.findall(r"(?:^|, )([a-z0-9][a-z0-9+.-]*):\w+ \(", step)})


def _of_dnf(history: Path) -> List[str]:
    """As rpm names them: NAME.ARCH. dnf notes what it will do before it begins, and how it ended."""
    if not history.is_file():
        return []
    with contextlib.closing(sqlite3.connect(f"file:{quote(str(history))}?mode=ro", uri=True)) as database:
        last = database.execute("SELECT id, state, comment FROM trans ORDER BY id DESC LIMIT 1").fetchone()
        if last is None or last[1] == DNF_DONE or MARK not in str(last[2] or "").split():
            return []
        rows = database.execute(
            "SELECT DISTINCT rpm.name, rpm.arch FROM trans_item JOIN rpm USING (item_id) WHERE trans_id = ? LIMIT 5000",
            (last[0],),
        ).fetchall()
    return sorted(f"{name}.{arch}" for name, arch in rows)


def of_others(unfinished_packages: Dict[str, str], own: Sequence[str]) -> Dict[str, str]:
    """Half-done packages that are no part of gpuprep's own step, which also triggers packages that it does not name."""
    part = (TRIGGERED,) if own else ()
    return {name: wrong for name, wrong in unfinished_packages.items() if name not in own and wrong not in part}


def holders(locks: Tuple[str, ...] = LOCKS, process_files: Tuple[str, ...] = PROCESS_FILES) -> Dict[str, str]:
    """Lock ► who holds it now: "unattended-upgr (process 812)". Raises PermissionError where only root may look."""
    found = {path: who for path in locks if (who := _holder(path))}
    return {**found, **{path: who for path in process_files if (who := _writer(path))}}


def sentence(held: Dict[str, str]) -> str:
    """ "unattended-upgr (process 812) works with the packages and holds /var/lib/dpkg/lock"; "" where nobody does."""
    return next((f"{who} works with the packages and holds {path}" for path, who in held.items()), "")


def _holder(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    try:
        asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, process = struct.unpack(FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    finally:
        os.close(descriptor)
    return "" if kind == fcntl.F_UNLCK else _who(process)


def _writer(path: str) -> str:
    """The running process that wrote this lock file of dnf; a stale file is ignored."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            text = file.read(20).strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    process = int(text) if text.isdigit() and len(text) < 10 else 0
    return _who(process) if process and Path(f"/proc/{process}").exists() else ""


def _who(process: int) -> str:
    # By hand: the role's hosts have no psutil.
    try:
        name = Path(f"/proc/{process}/comm").read_bytes()[:40].decode("ascii", "replace")
    except OSError:
        name = ""
    plain = re.sub(r"[^A-Za-z0-9_.+:@/-]+", " ", name).strip()
    return f"{plain or 'another program'} (process {process})"


def _is_name(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,199}", text) is not None


def _answer(query: Tuple[str, ...]) -> Optional[str]:
    done = subprocess.run(query, capture_output=True, text=True, errors="replace", timeout=120, check=False)
    return done.stdout if done.returncode == 0 else None


class Unreadable(Exception):
    """The package manager does not say which packages there are."""


def state() -> Dict[str, Any]:
    """All of it: unfinished, journal, holders, others and ours."""
    rpm = RED_HAT.exists()
    query = RPM_QUERY if rpm else DPKG_QUERY
    held = holders()
    answer = _answer(query)
    if answer is None:
        raise Unreadable(f"{query[0]} cannot read which packages are installed")
    half, own = unfinished(answer, rpm=rpm), ours(rpm=rpm)
    journals = [] if rpm else journal()
    return {"unfinished": half, "journal": journals, "holders": held, "others": of_others(half, own), "ours": own}
