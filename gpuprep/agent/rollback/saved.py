"""What a host keeps of the driver that worked, and the journal of a change of the driver. Both are files of root alone.

    state.json    Saved: written once, after its packages are complete and synced
    packages/     the files of its packages
    journal.json  Journal: where the change is; a power cut leaves the entry of before or of after a step

They are read with limits and checked for their form, although only root can write them: a full disk or a hand leaves
anything.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Type, TypeVar

from gpuprep.agent import host_paths
from gpuprep.agent.programs import atomicfile

FOLDER = Path(host_paths.DRIVER_BEFORE)
MOST_BYTES = 4 << 20
SPARE_BYTES = 256 << 20  # that a change of the driver needs beside its packages: it unpacks one, and builds the module
DNF_LOCKS = "/etc/dnf/plugins/versionlock.list"  # everybody's
# What the role gpu_driver writes, or has dnf write, for a driver.
SETTINGS = (
    host_paths.PIN,
    host_paths.HOLDS,
    host_paths.DRIVER_STREAM,
    DNF_LOCKS,
    host_paths.MODULE_OPTIONS,
    host_paths.NOUVEAU_BLACKLIST,
    host_paths.SIGNING_SETTINGS,
)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,199}")
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~:^_-]{0,199}")
FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~_%:^-]{0,250}\.(deb|rpm)")
DRIVER = re.compile(r"\d{3}(\.\d{1,4}){1,2}")
KERNEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~_-]{0,150}")

# The journal's status.
PENDING = "pending"  # the driver is being changed, or was, and nobody has seen it work yet
FAILED = "failed"  # the new driver does not work; the profile wants to be asked
GOING_BACK = "going-back"
RESTARTING = "restarting"  # the packages are those of before; the restart loads them
BACK = "back"  # the driver of before works again
STUCK = "stuck"  # the way back failed, too
FINAL = (FAILED, BACK, STUCK)

AUTO, ASK, NEVER = "auto", "ask", "never"


class Damaged(Exception):
    """A file of ours is not what we write; the text says how."""


@dataclass(frozen=True)
class Package:
    name: str
    version: str
    file: str = ""  # in packages/; empty where it could not be had
    sha256: str = ""


@dataclass(frozen=True)
class Saved:
    """The driver of one moment."""

    driver: str  # "595.71.05": of the loaded module, else of the one on the disk; empty where there was none
    worked: bool  # module, libraries, nvidia-smi and CUDA agreed
    kernel: str
    gpus: int
    cuda_devices: int  # fewer or more than gpus with MIG
    saved: str  # when, UTC
    certified: str = ""  # the run that certified it; empty where the controller named none
    packages: List[Package] = field(default_factory=list)
    names: List[str] = field(default_factory=list)  # every package of any driver that gpuprep knows here; patterns, too
    parts: str = "$^"  # a regular expression: how names of a driver's parts begin
    held: List[str] = field(default_factory=list)
    files: Dict[str, Optional[str]] = field(default_factory=dict)  # path ► text, None where there was none
    modules: List[str] = field(default_factory=list)  # names of the kernel module, to be tried in this order

    @property
    def versions(self) -> Dict[str, str]:
        """Name ► version of its packages."""
        return {one.name: one.version for one in self.packages}


@dataclass(frozen=True)
class Journal:
    status: str
    wanted: str  # the driver of the change
    rollback: str  # auto | ask | never
    boot: str  # the boot in which the change began
    began: str
    cause: str = ""
    ended: str = ""
    by: str = ""  # who went back: "itself", "run" or "user"
    done: List[str] = field(default_factory=list)  # steps of the way back
    boots: int = 0  # in which the way back was continued
    warnings: List[str] = field(default_factory=list)
    error: str = ""


Kind = TypeVar("Kind", Saved, Journal)


def read_saved(folder: Path = FOLDER) -> Optional[Saved]:
    """None where nothing was kept. Raises Damaged."""
    data = _read(folder / "state.json")
    if data is None:
        return None
    rows = data.pop("packages", None)
    if not isinstance(rows, list) or len(rows) > 500 or not all(isinstance(row, dict) for row in rows):
        raise Damaged(f"{folder}/state.json: packages is no list of packages")
    saved = _as(Saved, data, folder / "state.json")
    try:
        found = dataclasses.replace(saved, packages=[Package(**row) for row in rows])
    except TypeError as error:
        raise Damaged(f"{folder}/state.json: {error}") from error
    _check(found, folder)
    return found


def _check(saved: Saved, folder: Path) -> None:
    """These become words of apt, dnf, dkms and modinfo, and paths."""
    for package in saved.packages:
        texts = (package.name, package.version, package.file)
        if not all(isinstance(text, str) for text in texts) or not NAME.fullmatch(package.name):
            raise Damaged(f"{folder}/state.json: a package's name is none")
        if not VERSION.fullmatch(package.version) or (package.file and not FILE.fullmatch(package.file)):
            raise Damaged(f"{folder}/state.json: version or file of {package.name} is none")
    if (saved.driver and not DRIVER.fullmatch(saved.driver)) or not KERNEL.fullmatch(saved.kernel):
        raise Damaged(f"{folder}/state.json: driver or kernel is no version")
    if not all(isinstance(name, str) and NAME.fullmatch(name) for name in (*saved.held, *saved.modules)):
        raise Damaged(f"{folder}/state.json: a name is none")
    try:
        re.compile(saved.parts)
    except re.error as error:
        raise Damaged(f"{folder}/state.json: parts is no expression") from error
    if not all(path in SETTINGS for path in saved.files):
        raise Damaged(f"{folder}/state.json: a file that is no setting of the driver")


def read_journal(folder: Path = FOLDER) -> Optional[Journal]:
    """None where no change is in progress and none was undone. Raises Damaged."""
    data = _read(folder / "journal.json")
    return None if data is None else _as(Journal, data, folder / "journal.json")


def journal_if_any(folder: Path = FOLDER) -> Optional[Journal]:
    """As read_journal; a damaged one is a change of which nothing is known: it keeps nobody from going back."""
    try:
        return read_journal(folder)
    except Damaged as error:
        return Journal(STUCK, "", ASK, "", "", error=str(error))


def _read(path: Path) -> Optional[Dict[str, Any]]:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(content) > MOST_BYTES:
        raise Damaged(f"{path} is longer than {MOST_BYTES} bytes")
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{path} is damaged ({error})") from error
    if not isinstance(data, dict):
        raise Damaged(f"{path} holds no object")
    return data


PLAIN = {"str": str, "int": int, "bool": bool}


def _as(kind: Type[Kind], data: Dict[str, Any], path: Path) -> Kind:
    types = {one.name: one.type for one in dataclasses.fields(kind)}
    if set(data) - set(types):
        raise Damaged(f"{path}: unknown key {sorted(set(data) - set(types))[0][:60]!r}")
    for name, value in data.items():
        said = str(types[name])
        if said in PLAIN:
            sound = type(value) is PLAIN[said]
        elif said == "List[str]":
            sound = isinstance(value, list) and all(isinstance(one, str) for one in value)
        elif said.startswith("Dict"):
            sound = isinstance(value, dict) and all(one is None or isinstance(one, str) for one in value.values())
        else:
            sound = isinstance(value, list)
        if not sound:
            raise Damaged(f"{path}: {name} is not what gpuprep writes")
    try:
        return kind(**data)
    except TypeError as error:
        raise Damaged(f"{path}: {error}") from error


def write_journal(journal: Journal, folder: Path = FOLDER) -> None:
    _write(folder / "journal.json", journal)


def write_saved(saved: Saved, folder: Path = FOLDER) -> None:
    _write(folder / "state.json", saved)


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomicfile.write(path, json.dumps(dataclasses.asdict(value), indent=1) + "\n", 0o600)


def end_change(folder: Path = FOLDER) -> None:
    """Nothing is pending any more, and nothing was undone."""
    (folder / "journal.json").unlink(missing_ok=True)


def sound_files(saved: Saved, folder: Path = FOLDER) -> Dict[str, Path]:
    """Name ► file of each package whose file has the content that was kept."""
    found = {}
    for package in saved.packages:
        path = folder / "packages" / package.file
        if package.file and path.is_file() and sha256(path) == package.sha256:
            found[package.name] = path
    return found


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def package(name: str, version: str, file: Optional[Path]) -> Package:
    return Package(name, version, file.name, sha256(file)) if file else Package(name, version)


def replace_packages(new: Path, saved: Saved, folder: Path = FOLDER) -> None:
    """Keep `saved` with the packages in `new`, which take the place of those kept so far.

    state.json goes first and comes last: at any moment it is complete, or there is none. What can fill the disk is
    done before.
    """
    for path in new.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    write_saved(saved, new)
    (folder / "state.json").unlink(missing_ok=True)
    shutil.rmtree(folder / "packages", ignore_errors=True)
    new.rename(folder / "packages")
    (folder / "packages/state.json").rename(folder / "state.json")
    os.sync()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Only one program works on the way back at a time; it waits for the other one."""
    path = Path(host_paths.ROLLBACK_LOCK)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
