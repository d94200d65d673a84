"""What a machine had before gpuprep changed it, and what it has now: both read in the same way.

    write()      keeps the state of now in BEFORE, unless it is there or gpuprep was here already
    state()      what was before, what is now, and what gpuprep's own steps installed

Without gpuprep's other modules and stdlib only, Python 3.9 or newer: the collection's modules use it by a link, and
`unprovision` sends it as text.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import json
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Set, Tuple
from urllib.parse import quote

SCHEMA_VERSION = 1
OWN_FOLDER = "/var/lib/gpuprep"
BEFORE = Path(OWN_FOLDER) / "before.json"
RED_HAT = Path("/etc/system-release")
# What gpuprep writes: the step that writes it, the folder, and the name there. "": of no step, goes with the last one.
# Of a folder with versions each version: what else somebody put there stays.
OWN = (
    ("driver", "/etc/modprobe.d", "gpuprep-*.conf"),
    ("driver", "/usr/share/dkms/modules_to_force_install", "gpuprep"),
    ("driver", "/etc/dkms/framework.conf.d", "gpuprep.conf"),
    ("driver", "/etc/apt/preferences.d", "gpuprep-nvidia"),
    ("driver", "/etc/apt/sources.list.d", "gpuprep.sources"),
    ("driver", "/etc/apt/sources.list.d", "gpuprep-nvidia.sources"),
    ("driver", "/usr/share/keyrings", "gpuprep-nvidia.asc"),
    ("driver", "/etc/yum.repos.d", "gpuprep-nvidia.repo"),
    ("driver", "/etc/pki/rpm-gpg", "RPM-GPG-KEY-gpuprep-nvidia"),
    ("driver", "/etc/pki/rpm-gpg", ".gpuprep-nvidia.new"),
    ("driver", "/etc/systemd/system", "gpuprep-driver*"),
    ("driver", "/etc/systemd/system/*.wants", "gpuprep-driver*"),
    ("driver", OWN_FOLDER, "driver-before"),
    ("agent", "/opt/gpuprep/agent", "*.*.*-*"),
    ("agent", "/opt/gpuprep/agent", "current"),
    ("agent", "/opt/gpuprep/agent", ".current.new"),
    ("agent", "/usr/local/bin", "gpuprep-agent"),
    ("agent", "/usr/local/bin", "gpuprep-drift"),
    ("agent", "/etc/systemd/system", "gpuprep-drift.*"),
    ("agent", "/etc/systemd/system/timers.target.wants", "gpuprep-drift.timer"),
    ("agent", "/var/lib/systemd/timers", "stamp-gpuprep-drift.timer"),
    ("agent", "/var/lib/prometheus/node-exporter", "gpuprep*.prom"),
    ("agent", "/etc/gpuprep", "drift.json"),
    ("tuning", "/etc/gpuprep", "tuning.json"),
    ("tuning", "/etc/systemd/system", "gpuprep-tune.service"),
    ("tuning", "/etc/systemd/system/*.wants", "gpuprep-tune.service"),
    ("tuning", "/etc/systemd/system/nvidia-persistenced.service.d", "gpuprep.conf"),
    ("tuning", "/etc/udev/rules.d", "60-gpuprep-tune.rules"),
    ("cuda", "/etc/apt/preferences.d", "gpuprep-cuda"),
    ("cuda", "/etc/ld.so.conf.d", "gpuprep-cuda.conf"),
    ("cuda", "/etc/profile.d", "gpuprep.sh"),
    ("cuda", "/etc/systemd/system.conf.d", "gpuprep.conf"),
    ("cudnn", "/etc/ld.so.conf.d", "gpuprep.conf"),
    ("cudnn", "/opt/gpuprep/cudnn", "*-cuda*"),
    ("cudnn", "/opt/gpuprep/cudnn", "current"),
    ("cudnn", "/opt/gpuprep/cudnn", ".current.new"),
    ("nccl", "/etc/ld.so.conf.d", "gpuprep-nccl.conf"),
    ("nccl", "/opt/gpuprep/nccl", "*-cuda*"),
    ("nccl", "/opt/gpuprep/nccl", "current"),
    ("nccl", "/opt/gpuprep/nccl", ".current.new"),
    ("codec", "/opt/gpuprep/ffmpeg", "*.*-*"),
    ("codec", "/opt/gpuprep/ffmpeg", "current"),
    ("codec", "/opt/gpuprep/ffmpeg", ".new-*"),
    ("codec", "/opt/gpuprep/ffmpeg", ".current.new"),
    ("codec", "/opt/gpuprep/nv-codec-headers", "*.*.*"),
    ("codec", "/opt/gpuprep/nv-codec-headers", ".new-*"),
    ("codec", "/usr/local/bin", "ffmpeg"),
    ("codec", "/usr/local/bin", "ffprobe"),
    ("codec", "/usr/local/lib/pkgconfig", "ffnvcodec.pc"),
    ("codec", OWN_FOLDER, "build"),
    ("codec", OWN_FOLDER, "codec"),
    ("containers", "/usr/share/keyrings", "gpuprep-container-toolkit.asc"),
    ("containers", "/etc/apt/sources.list.d", "gpuprep-container-toolkit.sources"),
    ("containers", "/etc/yum.repos.d", "gpuprep-container-toolkit.repo"),
    ("containers", "/etc/pki/rpm-gpg", "RPM-GPG-KEY-gpuprep-container-toolkit"),
    ("containers", "/etc/cdi", "nvidia.json"),
    ("containers", "/var/cache/dnf", "gpuprep-container-toolkit*"),
    ("driver", "/var/cache/dnf", "gpuprep-nvidia*"),
    ("extras", "/opt/gpuprep", "python"),
    ("", "/etc/apt/apt.conf.d", "52gpuprep-holds"),
    ("", "/etc/gpuprep", "provenance.json"),
    ("", "/var/cache", "gpuprep"),
)  # fmt: skip
# Files and folders of others that gpuprep or what it installs changes: each is put back where that is certain.
SHARED = (
    ("cuda", "/etc", "environment"),
    ("extras", "/etc", "fstab"),
    ("driver", "/etc/dnf/modules.d", "nvidia-driver.module"),
    ("driver", "/etc/dnf/plugins", "versionlock.list"),
    ("containers", "/etc/cdi", "nvidia.yaml"),
    ("containers", "/etc/docker", "daemon.json"),
    ("containers", "/etc/containerd", "config.toml"),
    ("containers", "/etc/containerd/conf.d", "99-nvidia.toml"),
    ("containers", "/etc/crio/crio.conf.d", "99-nvidia.toml"),
    ("containers", "/etc/crio/conf.d", "99-nvidia.toml"),
)  # fmt: skip
# What NVIDIA's packages and DKMS leave when they are removed.
LEFT = (
    ("driver", "/var/lib", "dkms"),
    ("driver", "/var/lib/dkms", "mok.*"),
    ("driver", "/var/lib/dnf/modulefailsafe", "nvidia-driver:*"),
    ("driver", "/etc/systemd/system/*.wants", "nvidia-persistenced.service"),
    ("driver", "/etc/systemd/system/*.wants", "nvidia-fabricmanager.service"),
    ("driver", "/etc/systemd/system/*.wants", "dkms.service"),
    ("driver", "/etc/dnf/plugins", "versionlock.list.rpmsave"),
    ("cuda", "/usr/local", "cuda"),
    ("cuda", "/etc/alternatives", "cuda"),
    ("cuda", "/var/lib/dpkg/alternatives", "cuda"),
    ("cuda", "/var/lib/alternatives", "cuda"),
)  # fmt: skip
# By these a folder of the user's with builds of gpuprep is found.
LINKS = ("/usr/local/bin/ffmpeg", "/usr/local/bin/ffprobe", "/usr/local/lib/pkgconfig/ffnvcodec.pc")
# Users and groups that gpuprep or the driver's packages make.
ACCOUNTS = {"gpuprep-build": "codec", "nvidia-persistenced": "driver", "nvpd": "driver"}
UNITS = ("nvidia-persistenced.service", "nvidia-fabricmanager.service", "docker.service", "containerd.service")
MARK, PART = "GPUprep::Step=1", "GPUprep::Part="
BEFORE_IT = "before"  # the part of a step that puts back what was there before
MOST_BYTES, MOST_TEXT, MOST_FILES, MOST_HISTORY = 16 << 20, 1 << 16, 500, 40
SECONDS = 120
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class Unreadable(Exception):
    """The machine does not say what it has."""


# ---------------------------------------------------------------- one state of the machine


def machine() -> Dict[str, Any]:
    """What gpuprep may change, as it is now."""
    rpm = RED_HAT.exists()
    return {
        "schema_version": SCHEMA_VERSION,
        "written_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "manager": "dnf" if rpm else "apt",
        "packages": _packages_rpm() if rpm else _packages_apt(),
        "residual": [] if rpm else _residual(),
        "auto": [] if rpm else sorted(_ask("apt-mark", "showauto").split()),
        "holds": [] if rpm else sorted(_ask("apt-mark", "showhold").split()),
        "keys": _keys() if rpm else {},
        "files": {path: _file(path) for _, path in paths()},
        "folders": sorted(folder for folder in _folders() if Path(folder).is_dir()),
        "units": _units(),
        "accounts": _accounts(),
        "gpus": _gpus(),
        "kernel": _words("/proc/cmdline"),
    }


def paths() -> Iterator[Tuple[str, str]]:
    """(step, path) of all that is there of OWN, SHARED and LEFT."""
    seen: Set[str] = set()
    for step, folder, name in (*OWN, *SHARED, *LEFT):
        for place in sorted(Path("/").glob(folder[1:])) if "*" in folder else [Path(folder)]:
            for path in sorted(place.glob(name)):
                if str(path) not in seen and len(seen) < MOST_FILES:
                    seen.add(str(path))
                    yield step, str(path)
            # Path.glob leaves out a link that leads nowhere.
            one = str(place / name)
            if "*" not in name and one not in seen and os.path.lexists(one):
                seen.add(one)
                yield step, one


def _folders() -> Set[str]:
    """Folders that may be made for what is in the tables, and those above them."""
    found: Set[str] = set()
    for _, folder, _ in (*OWN, *SHARED, *LEFT):
        if "*" not in folder:
            found |= {folder, *map(str, list(Path(folder).parents)[:-2])}
    return found


def _file(path: str) -> Dict[str, Any]:
    """One file, link or folder. The content of a small file; of a larger one, and of a folder, what tells it apart."""
    status = os.lstat(path)
    about: Dict[str, Any] = {"mode": stat.S_IMODE(status.st_mode), "uid": status.st_uid, "gid": status.st_gid}
    if stat.S_ISLNK(status.st_mode):
        return {"kind": "link", "target": str(Path(path).readlink()), **about}
    if stat.S_ISDIR(status.st_mode):
        return {"kind": "folder", **about, **_stranger(Path(path))}
    if not stat.S_ISREG(status.st_mode):
        return {"kind": "other", **about}
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        content = file.read(MOST_TEXT + 1)
        if len(content) <= MOST_TEXT:
            return {"kind": "file", "text": base64.b64encode(content).decode(), **about}
        digest = hashlib.sha256(content)
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return {"kind": "file", "sha256": digest.hexdigest(), **about}


def _manifest(folder: Path) -> Dict[str, Any]:
    """The manifest of a build of FFmpeg, of its headers or of a library that gpuprep installed; {} without one."""
    try:
        with os.fdopen(os.open(folder / "manifest.json", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            document = json.loads(file.read(MOST_BYTES))
        ours = document.get("name") in ("ffmpeg", "nv-codec-headers") or "wheel_sha256" in document
        return document if ours and isinstance(document["files"], dict) else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _stranger(folder: Path) -> Dict[str, str]:
    """{"stranger": the first file of a folder with a manifest that its manifest does not name}; {} without one."""
    named = {*_manifest(folder).get("files", ()), "manifest.json"}
    for here, folders, files in os.walk(str(folder)) if len(named) > 1 else ():
        within = Path(here).relative_to(folder)
        for name in sorted(files + [one for one in folders if Path(here, one).is_symlink()]):
            path = Path(here, name)
            # What `-lcudnn` looks for: libcudnn.so ─► libcudnn.so.9.
            beside = str(within / path.readlink()) if path.is_symlink() else ""
            if not named.intersection((str(within / name), beside)):
                return {"stranger": str(within / name)[:200]}
    return {}


DPKG = "${db:Status-Abbrev}\t${Package}\t${Architecture}\t${Version}\t${Pre-Depends}, ${Depends}\t${Provides}\n"


def _dpkg_rows() -> Iterator[Tuple[str, str, str, str, str]]:
    """(state, name, version, depends, provides). The name of a package of a foreign architecture is "libc6:i386"."""
    native = _ask("dpkg", "--print-architecture").strip()
    for line in _ask("dpkg-query", "-W", "-f", DPKG).splitlines():
        row = line.split("\t")
        if len(row) == 6:
            name = row[1] if row[2] in (native, "all") else f"{row[1]}:{row[2]}"
            yield row[0], name, row[3], row[4], row[5]


def _packages_apt() -> Dict[str, List[str]]:
    return {name: [version] for state, name, version, _, _ in _dpkg_rows() if state[1:2] not in ("n", "c")}


def _residual() -> List[str]:
    """Packages that are removed, and of which settings are left."""
    return sorted(name for state, name, _, _, _ in _dpkg_rows() if state[1:2] == "c")


def _packages_rpm() -> Dict[str, List[str]]:
    """NAME.ARCH ► versions: dnf installs several kernels, and their headers, beside each other."""
    found: Dict[str, List[str]] = {}
    for line in _ask("rpm", "-qa", "--qf", "%{NAME}.%{ARCH}\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\n").splitlines():
        name, _, version = line.partition("\t")
        if not name.startswith("gpg-pubkey."):
            found.setdefault(name, []).append(version)
    return {name: sorted(versions) for name, versions in sorted(found.items())}


def _keys() -> Dict[str, str]:
    """The keys that rpm trusts ► whose they are."""
    said = _ask("rpm", "-qa", "gpg-pubkey", "--qf", "%{NAME}-%{VERSION}-%{RELEASE}\t%{SUMMARY}\n")
    return {name: whose[:200] for name, _, whose in (line.partition("\t") for line in said.splitlines())}


def _units() -> Dict[str, str]:
    if shutil.which("systemctl", path=SYSTEM_PATH) is None:
        return {}
    said = _ask("systemctl", "list-unit-files", "--no-legend", "--no-pager", "--plain", *UNITS, "gpuprep*", accept=True)
    rows = (line.split() for line in said.splitlines())
    return {row[0]: row[1] for row in rows if len(row) > 1}


def _accounts() -> Dict[str, List[str]]:
    """Kind ► names of ACCOUNTS that are there."""
    return {
        kind: sorted(name for name in ACCOUNTS if any(line.startswith(f"{name}:") for line in _words(path).split("\n")))
        for kind, path in (("users", "/etc/passwd"), ("groups", "/etc/group"))
    }


def _members() -> Dict[str, List[str]]:
    """Group of ACCOUNTS ► the users in it who are not of ACCOUNTS."""
    groups = [row for row in (line.split(":") for line in _words("/etc/group").splitlines()) if len(row) == 4]
    users = [row for row in (line.split(":") for line in _words("/etc/passwd").splitlines()) if len(row) == 7]
    return {
        name: sorted({*some.split(","), *(user[0] for user in users if user[3] == number)} - {"", *ACCOUNTS})
        for name, _, number, some in groups
        if name in ACCOUNTS
    }


GPU_FIELDS = (
    "uuid", "persistence_mode", "power.limit", "power.default_limit", "compute_mode", "ecc.mode.pending",
    "mig.mode.pending",
)  # fmt: skip


def _gpus() -> Dict[str, Dict[str, str]]:
    """uuid ► its settings, by the driver that is there; empty without one."""
    program = shutil.which("nvidia-smi", path=SYSTEM_PATH)
    if program is None:
        return {}
    said = _ask(program, f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader,nounits", accept=True)
    rows = ([word.strip() for word in line.split(",")] for line in said.splitlines()[:64])
    return {
        row[0]: {name: row[place + 1] for place, name in enumerate(GPU_FIELDS[1:])}
        for row in rows
        if len(row) == len(GPU_FIELDS)
    }


def _words(path: str) -> str:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return file.read(MOST_TEXT).decode("utf-8", "replace")
    return ""


def _ask(*command: str, accept: bool = False) -> str:
    """What a program prints. Raises Unreadable if it fails; with `accept` what it printed counts all the same."""
    environment = {"PATH": SYSTEM_PATH, "LC_ALL": "C", "HOME": "/root"}
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", check=False, timeout=SECONDS,
            stdin=subprocess.DEVNULL, env=environment,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        if accept:
            return ""
        raise Unreadable(f"{command[0]} gives no answer: {error}") from error
    if done.returncode and not accept:
        raise Unreadable(f"{command[0]} failed: {(done.stderr.strip().splitlines() or ['no message'])[-1][:200]}")
    return done.stdout


# ---------------------------------------------------------------- the ledger


def write(path: Path = BEFORE) -> bool:
    """Keep the state of now. False: it is kept already, or gpuprep was here before and nobody knows what was before."""
    if path.exists() or any(os.path.lexists(there) for there in _marks()):
        return False
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    handle, new = tempfile.mkstemp(prefix=".before.", dir=path.parent)  # 0600
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(machine(), file)
        file.flush()
        os.fsync(file.fileno())
    Path(new).replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return True


def _marks() -> List[str]:
    """Files with gpuprep's name that a provision wrote. Not the night check's results, nor caches: they may stay."""
    return [
        path for step, path in paths()
        if "gpuprep" in Path(path).name and step in ("driver", "agent", "tuning") and not path.startswith("/var/cache/")
    ]  # fmt: skip


def read(path: Path = BEFORE) -> Optional[Dict[str, Any]]:
    """None: there is none, or it is no ledger."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW)) as file:
            status = os.fstat(file.fileno())
            if status.st_uid != 0 or status.st_mode & 0o022 or status.st_size > MOST_BYTES:
                return None
            document = json.loads(file.read(MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
        return None
    return document


# ---------------------------------------------------------------- what gpuprep's own steps did


class History:
    """Package by package, who did what last, from the package manager's own history."""

    def __init__(self) -> None:
        self.installed: Dict[str, Dict[str, Any]] = {}  # name ► {"ours", "step", "auto"}
        self.changed: Dict[str, str] = {}  # what gpuprep's steps up- or downgraded or removed ► the step
        self.since = ""

    def install(self, name: str, step: Optional[str], auto: bool) -> None:
        self.installed[name] = {"ours": step is not None, "step": step or "", "auto": auto}
        self.changed.pop(name, None)

    def change(self, name: str, step: Optional[str]) -> None:
        if step is None:
            self.changed.pop(name, None)
        else:
            self.changed[name] = step

    def broken_off(self, name: str) -> None:
        """A removal by gpuprep did not end. apt forgets first that the package came as a dependency."""
        if name in self.installed:
            self.installed[name]["auto"] = False


def history_apt(folder: Path = Path("/var/log/apt")) -> History:
    """Each step is a stanza of history.log; older ones are in history.log.N.gz."""
    history = History()
    files = sorted(folder.glob("history.log*"), key=_turn, reverse=True)[-MOST_HISTORY:]
    for path in files:
        try:
            with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
                text = file.read(MOST_BYTES).decode("utf-8", "replace")
        except (OSError, EOFError):
            continue
        for stanza in text.split("\n\n"):
            _stanza(history, stanza)
    return history


def _turn(path: Path) -> int:
    """history.log is 0, history.log.1.gz is 1."""
    number = path.name[len("history.log") :].replace(".gz", "").strip(".")
    return int(number) if number.isdigit() else 0


def _stanza(history: History, stanza: str) -> None:
    fields = dict(line.partition(": ")[::2] for line in stanza.splitlines() if ": " in line)
    step = _step(fields.get("Commandline", ""))
    history.since = history.since or fields.get("Start-Date", "")
    for action in ("Install", "Reinstall", "Upgrade", "Downgrade", "Remove", "Purge"):
        for name, arch, rest in re.findall(r"([a-z0-9][a-z0-9+.-]*):([a-z0-9]+) \(([^)]*)\)", fields.get(action, "")):
            full = name if arch in ("amd64", "arm64", "all") else f"{name}:{arch}"
            if action == "Install":
                history.install(full, step, rest.endswith(", automatic"))
            elif action != "Reinstall":
                history.change(full, step)
                if action in ("Remove", "Purge") and "End-Date" not in fields and step is not None:
                    history.broken_off(full)


def _step(words: str) -> Optional[str]:
    """The step of gpuprep's that a command or comment is of; "" where an older gpuprep did not say; None: another's."""
    if MARK not in words.split():
        return None
    parts = [word[len(PART) :] for word in words.split() if word.startswith(PART)]
    return re.sub(r"[^a-z]", "", parts[0])[:20] if parts else ""


# libdnf's TransactionItemAction and TransactionItemReason.
DNF_INSTALL, DNF_CHANGE, DNF_USER = (1,), (2, 3, 4, 5, 6, 7, 8), 2


def history_dnf(path: Path = Path("/var/lib/dnf/history.sqlite")) -> History:
    history = History()
    if not path.is_file():
        return history
    with contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as database:
        rows = database.execute(
            "SELECT trans.comment, trans.dt_begin, trans_item.action, trans_item.reason, rpm.name, rpm.arch FROM trans"
            " JOIN trans_item ON trans_item.trans_id = trans.id JOIN rpm USING (item_id)"
            " ORDER BY trans.id, trans_item.id LIMIT 200000"
        ).fetchall()
    for comment, began, action, reason, name, arch in rows:
        step, full = _step(str(comment or "")), f"{name}.{arch}"
        history.since = history.since or datetime.fromtimestamp(began, timezone.utc).isoformat(timespec="seconds")
        if action in DNF_INSTALL:
            history.install(full, step, reason != DNF_USER)
        elif action in DNF_CHANGE:
            history.change(full, step)
    return history


# ---------------------------------------------------------------- who needs what


def _needs_apt(ours: Set[str]) -> Dict[str, List[List[str]]]:
    """Installed package ► the choices among installed packages for each dependency that one of `ours` may meet."""
    rows = [row for row in _dpkg_rows() if row[0][1:2] not in ("n", "c")]
    providers: Dict[str, Set[str]] = {}
    for _, name, _, _, provides in rows:
        for given in (name.partition(":")[0], *_names(provides)):
            providers.setdefault(given, set()).add(name)
    found: Dict[str, List[List[str]]] = {}
    for _, name, _, depends, _ in rows:
        for need in depends.split(","):
            choices = sorted({there for one in _names(need.replace("|", ",")) for there in providers.get(one, ())})
            if ours.intersection(choices) and name not in choices:
                found.setdefault(name, []).append(choices)
    return found


def _names(relation: str) -> List[str]:
    words = (part.split() for part in relation.split(","))
    return [word[0].partition(":")[0].partition("(")[0] for word in words if word]


def _needs_rpm(ours: Set[str]) -> Dict[str, List[List[str]]]:
    providers: Dict[str, Set[str]] = {}
    form = "[%{=NAME}.%{=ARCH}\t%{PROVIDENAME}\n]"
    for line in _ask("rpm", "-qa", "--qf", form).splitlines():
        name, _, given = line.partition("\t")
        providers.setdefault(given, set()).add(name)
    needs = [
        line.partition("\t")[::2]
        for line in _ask("rpm", "-qa", "--qf", form.replace("PROVIDE", "REQUIRE")).splitlines()
    ]
    files = {need for _, need in needs if need.startswith("/") and need not in providers}
    for path in sorted(files)[:MOST_FILES]:
        owners = _ask("rpm", "-qf", "--qf", "%{NAME}.%{ARCH}\n", path, accept=True).splitlines()
        providers[path] = {owner for owner in owners if " " not in owner}
    found: Dict[str, List[List[str]]] = {}
    for name, need in needs:
        choices = sorted(providers.get(need, ()))
        if ours.intersection(choices) and name not in choices and choices not in found.get(name, []):
            found.setdefault(name, []).append(choices)
    return found


# ---------------------------------------------------------------- all of it


def state() -> Dict[str, Any]:
    """Before (or None), now, and what gpuprep's steps installed and changed; `trees`: folders with a manifest, of a
    prefix of the user's; `unrecorded`: packages that came since, of which the history says nothing.
    """
    rpm = RED_HAT.exists()
    now = machine()
    try:
        history = history_dnf() if rpm else history_apt()
    except (OSError, sqlite3.Error):
        history = History()
    there = {*now["packages"], *now["residual"]}
    before = read()
    ours = {name: about for name, about in history.installed.items() if about["ours"]}
    needs = (_needs_rpm if rpm else _needs_apt)(there.intersection(ours)) if ours else {}
    return {
        "before": before,
        "broken_ledger": BEFORE.exists() and before is None,
        "now": now,
        "installed": ours,
        "unrecorded": sorted({*now["packages"]} - {*history.installed, *before.get("packages", ())}) if before else [],
        "members": _members(),
        "changed": history.changed,
        "since": history.since,
        "needs": needs,
        "steps": dict(_steps()),
        "trees": _trees(),
        "driver_loaded": Path("/proc/driver/nvidia/version").exists(),
        "driver_on_disk": _on_disk(),
    }


def _on_disk() -> bool:
    """Whether NVIDIA's module is there for the running kernel, under one of the names that distributions give it."""
    try:
        text = Path(f"/lib/modules/{os.uname().release}/modules.dep").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return (
        re.search(r"(?m)^[^:\n]*/nvidia(-(current|open|srv|tesla|legacy)[a-z0-9-]*)?\.ko[.a-z0-9]*:", text) is not None
    )


def _steps() -> Iterator[Tuple[str, str]]:
    """Path ► the step that it belongs to."""
    for step, path in paths():
        yield path, step


def _trees() -> Dict[str, Dict[str, str]]:
    """What has a manifest of gpuprep's below a prefix of the user's, and what leads there ► its step, and the stranger
    in it.
    """
    found: Dict[str, Dict[str, str]] = {}
    real = [Path(os.path.realpath(link)) for link in LINKS]
    folders = [("codec", path.parents[min(3 if path.suffix == ".pc" else 2, len(path.parents) - 1)]) for path in real]
    for step, name in (("cudnn", "gpuprep.conf"), ("nccl", "gpuprep-nccl.conf")):
        lines = [line for line in _words(f"/etc/ld.so.conf.d/{name}").splitlines() if line.startswith("/")]
        folders += [(step, Path(line).parents[1]) for line in lines if line.endswith("/current/lib")]
    for step, folder in folders:
        if str(folder).startswith("/opt/gpuprep") or len(folder.parts) < 3:
            continue
        for place in sorted(folder.glob("*"))[:MOST_FILES]:
            if not place.is_symlink() and _manifest(place):
                found[str(place)] = {"step": step, **_stranger(place)}
        current = folder / "current"
        if current.is_symlink() and (os.path.realpath(current) in found or not current.exists()):
            found[str(current)] = {"step": step}
    # Of a run that was killed: they lead nowhere.
    for link in map(Path, LINKS):
        target = str(link.readlink()) if link.is_symlink() and not link.exists() else ""
        if target.endswith(f"/ffmpeg/current/bin/{link.name}") or "/nv-codec-headers/" in target:
            found[str(link)] = {"step": "codec"}
    return found


# ---------------------------------------------------------------- putting files back


def put(wanted: Iterable[Dict[str, Any]], folders: Iterable[str]) -> List[str]:
    """Make each {"path", "kind", ...} as it is described; kind "absent" takes it away, and then the folders above it
    that are empty and not among `folders`, which were there before. Returns what was changed.
    """
    kept, changed = set(folders), []
    for about in wanted:
        path = Path(about["path"])
        if about["kind"] == "absent":
            if not os.path.lexists(path):
                continue
            if path.is_dir() and not path.is_symlink():
                # The manifest last: without it a run that was killed would not know the folder again.
                for child in sorted(path.iterdir(), key=lambda one: one.name == "manifest.json"):
                    if child.is_dir() and not child.is_symlink():
                        shutil.rmtree(child)
                    else:
                        child.unlink()
                path.rmdir()
            else:
                path.unlink()
            aside = path.with_name(f"{path.name}.before-gpuprep")  # what gpu_codec found in its place
            if os.path.lexists(aside):
                aside.replace(path)
            else:
                _empty(path.parent, kept)
        else:
            if os.path.lexists(path) and _file(str(path)) == {key: about[key] for key in about if key != "path"}:
                continue
            _make(path, about)
        changed.append(str(path))
    return changed


def _empty(folder: Path, kept: Set[str]) -> None:
    """Remove a folder that is empty and was not there before, and those above it."""
    while str(folder) not in kept and len(folder.parts) > 2:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def _make(path: Path, about: Dict[str, Any]) -> None:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if about["kind"] == "link":
        new = path.with_name(f".{path.name}.before")
        with contextlib.suppress(FileNotFoundError):
            new.unlink()
        new.symlink_to(about["target"])
    else:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(base64.b64decode(about["text"]))
            os.fchown(file.fileno(), about["uid"], about["gid"])
            os.fchmod(file.fileno(), about["mode"])
            file.flush()
            os.fsync(file.fileno())
        new = Path(name)
    new.replace(path)


if __name__ == "__main__":
    try:
        json.dump(state(), sys.stdout)
    except Unreadable as error:
        sys.exit(str(error))
