"""The steps of the way back. Each can be broken off at any moment and done again: what is right already stays.

A step is noted in the journal when it is done and on the disk, so after a power cut the next boot goes on with the
step that was broken off.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from pathlib import Path
from typing import Callable, Dict, List

from gpuprep.agent import host_paths
from gpuprep.agent.programs import atomicfile
from gpuprep.agent.rollback import commands
from gpuprep.agent.rollback import saved as kept
from gpuprep.agent.rollback.commands import HOUR, MINUTE, run, tell
from gpuprep.agent.rollback.packages import Failed, Manager, of_drivers
from gpuprep.agent.rollback.saved import Journal, Saved

MODULES = Path("/lib/modules")
SOURCES = Path("/usr/src")
DKMS = Path("/var/lib/dkms")
# The driver's block in the file of holds, as the role writes it.
BLOCK = re.compile(
    r"^// BEGIN gpuprep: the driver packages\n.*?^// END gpuprep: the driver packages\n?", re.MULTILINE | re.DOTALL
)


@dataclasses.dataclass(frozen=True)
class Difference:
    lost: Dict[str, str]  # name ► version
    files: Dict[str, Path]  # of these, what the host has
    gone: List[str]  # what came with the new driver

    @property
    def missing(self) -> Dict[str, str]:
        return {name: version for name, version in self.lost.items() if name not in self.files}


def difference(saved: Saved, wanted: str, manager: Manager, folder: Path = kept.FOLDER) -> Difference:
    files = kept.sound_files(saved, folder)
    versions = saved.versions
    now = manager.installed(list(versions))
    lost = {name: version for name, version in versions.items() if now.get(name) != version}
    there = of_drivers(manager.present(["*"]), saved.names, saved.parts, [wanted, saved.driver])
    return Difference(lost, {n: files[n] for n in lost if n in files}, sorted(there.keys() - versions.keys()))


def go(saved: Saved, journal: Journal, manager: Manager, folder: Path = kept.FOLDER) -> Journal:
    """Do the steps that are not done. Raises Failed. The journal that is returned is on the disk."""
    if "packages" not in journal.done and saved.driver:
        saved = _ready(saved, journal.wanted, manager, folder)
    steps: Dict[str, Callable[[], List[str]]] = {
        "settings": lambda: _settings(saved),
        "packages": lambda: _packages(saved, journal.wanted, manager, folder),
        "modules": lambda: _modules(saved),
        "initramfs": _initramfs,
        "holds": lambda: _holds(saved, manager),
    }
    for name, step in steps.items():
        if name in journal.done:
            continue
        tell(f"going back to driver {saved.driver}: {name}")
        warnings = step()
        os.sync()  # DKMS and the tools of the initramfs leave that to the system
        journal = dataclasses.replace(journal, done=[*journal.done, name], warnings=[*journal.warnings, *warnings])
        kept.write_journal(journal, folder)
    return journal


def _ready(saved: Saved, wanted: str, manager: Manager, folder: Path) -> Saved:
    """Before anything is changed: all is here that is needed, and nothing of somebody else would go. Raises Failed."""
    for path in ("/usr", "/var"):
        free = shutil.disk_usage(path).free
        if free < kept.SPARE_BYTES:
            raise Failed(f"{path} has only {free >> 20} MiB free. Nothing is changed; make room, then try again")
    found = difference(saved, wanted, manager, folder)
    if found.missing:
        saved = _fetch(saved, found.missing, manager, folder)
        found = difference(saved, wanted, manager, folder)
    ours = {*found.gone, *(row.name for row in saved.packages)}
    foreign = sorted(set(manager.removals(found.files, found.gone)) - ours)
    if foreign:
        raise Failed(
            f"{', '.join(foreign[:8])} would be removed: it needs the driver of now, and is no part of it. Nothing is"
            " changed; remove it, then try again"
        )
    return saved


def _fetch(saved: Saved, missing: Dict[str, str], manager: Manager, folder: Path) -> Saved:
    packages = folder / "packages"
    packages.mkdir(mode=0o700, exist_ok=True)
    for row in saved.packages:
        if row.name in missing and row.file:
            (packages / row.file).unlink(missing_ok=True)  # it is not what was kept
    manager.fetch(missing, packages)
    found = manager.files(packages, missing)
    rows = {row.name: row for row in saved.packages}
    rows.update({name: kept.package(name, missing[name], path) for name, path in found.items()})
    saved = dataclasses.replace(saved, packages=list(rows.values()))
    kept.write_saved(saved, folder)
    left = sorted(missing.keys() - found.keys())
    if left:
        raise Failed(
            f"the host has no sound file of {', '.join(left[:8])}{' and others' if left[8:] else ''}, and the archive"
            " gave none. Nothing is changed; once the archive can be reached, try again"
        )
    return saved


def _settings(saved: Saved) -> List[str]:
    for path, text in saved.files.items():
        now = _read(Path(path))
        if path == host_paths.HOLDS:
            text = with_block(now, text)
        elif path == kept.DNF_LOCKS:
            text = with_locks(now, text, saved)
        if text == now:
            continue
        if text is None:
            Path(path).unlink(missing_ok=True)
        elif Path(path).parent.is_dir():
            atomicfile.write(Path(path), text)
    return []


def _read(path: Path) -> "str | None":
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None


def with_block(now: "str | None", before: "str | None") -> "str | None":
    """The driver's block of before in the file of now: other roles have blocks of their own in it."""
    old = BLOCK.search(before or "")
    block = old[0] if old else ""
    if now is None:
        return block or None
    return BLOCK.sub(lambda _: block, now, count=1) if BLOCK.search(now) else now + block


def with_locks(now: "str | None", before: "str | None", saved: Saved) -> "str | None":
    """The driver's locks of before; those of everybody else stay as they are now."""
    if now is None and before is None:
        return None

    def is_drivers(line: str) -> bool:
        name = re.match(r"\s*!?([A-Za-z0-9.+_-]+)-\d+:", line)
        known = of_drivers({name[1]: line}, saved.names, saved.parts, [saved.driver]) if name else {}
        return bool(known)

    lines: List[str] = []
    for line in (now or "").splitlines():
        if not is_drivers(line):
            lines.append(line)
        elif lines and lines[-1].startswith("# Added lock"):  # dnf's own line above it
            lines.pop()
    lines += [line for line in (before or "").splitlines() if is_drivers(line)]
    return "".join(f"{line}\n" for line in lines)


def _packages(saved: Saved, wanted: str, manager: Manager, folder: Path) -> List[str]:
    if not saved.driver:
        return []  # without a module there was no driver that worked
    if any("dkms" in name for name in saved.versions):
        forget_replaced()  # a prebuilt module has no other copy where its package is still there
    found = difference(saved, wanted, manager, folder)
    if found.lost or found.gone:
        manager.restore(found.files, found.gone, saved.versions)
    return []


def _kernels() -> List[str]:
    """Installed kernels whose module can be built, and the one that runs."""
    found = {path.parent.name for path in MODULES.glob("*/build") if path.exists()}
    return sorted({*found, running_kernel()})


def running_kernel() -> str:
    return run(["uname", "-r"], limit=MINUTE).out.strip()


def module_version(kernel: str, names: List[str]) -> str:
    """Of the module on the disk that modprobe would take first; empty where there is none."""
    for name in names:
        said = run(["modinfo", "-k", kernel, "-F", "version", name], limit=MINUTE)
        if said.code == 0 and said.out.strip():
            return said.out.split()[0]
    return ""


def _modules(saved: Saved) -> List[str]:
    """The module of before for every kernel that can have it. Raises Failed where the kernel that runs lacks it."""
    if not saved.driver:
        return []
    warnings = []
    sources = sorted(SOURCES.glob(f"nvidia*-{saved.driver}/dkms.conf"))
    _forget_other_drivers(saved)
    for kernel in _kernels():
        run(["depmod", kernel], limit=10 * MINUTE)
        why = ""
        for conf in sources:
            name = conf.parent.name[: -len(saved.driver) - 1]
            known = DKMS / name / saved.driver  # a killed package leaves the module of one that DKMS does not know
            if (known / kernel).is_dir() and module_version(kernel, saved.modules) == saved.driver:
                continue
            if not (known / "source").exists():
                run(["dkms", "add", "-m", name, "-v", saved.driver], limit=10 * MINUTE)
            built = run(["dkms", "install", "--force", "-m", name, "-v", saved.driver, "-k", kernel], limit=HOUR)
            why = built.why if built.code else why
            run(["depmod", kernel], limit=10 * MINUTE)
        found = module_version(kernel, saved.modules)
        if found != saved.driver:
            text = f"the module for kernel {kernel} is {found or 'not there'}, not {saved.driver}: {why or 'no source'}"
            if kernel in (running_kernel(), saved.kernel):
                raise Failed(text)
            warnings.append(text)
    forget_replaced()
    return warnings


def forget_replaced() -> None:
    """DKMS keeps the module that another one replaced, and puts it back when that one goes: then a driver lies there of
    which no package is left. What another driver needs its own package brings, or DKMS builds.
    """
    for folder in DKMS.glob("nvidia*/original_module"):
        shutil.rmtree(folder)


def _forget_other_drivers(saved: Saved) -> None:
    """Of a step that was broken off DKMS can keep a module whose source is gone: it then refuses every command."""
    for folder in sorted(DKMS.glob("nvidia*/*")):
        name, version = folder.parent.name, folder.name
        if not kept.DRIVER.fullmatch(version) or version == saved.driver:
            continue
        run(["dkms", "remove", "-m", name, "-v", version, "--all"], limit=HOUR / 2)
        if folder.is_dir() and not (folder / "source").exists():
            shutil.rmtree(folder)
        if folder.parent.is_dir() and not any(kept.DRIVER.fullmatch(one.name) for one in folder.parent.iterdir()):
            shutil.rmtree(folder.parent)  # what it replaced, which would come back in its place


def _initramfs() -> List[str]:
    """One that could not be made again is as it was: its tools replace it at the end."""
    for words in (["update-initramfs", "-u", "-k", "all"], ["dracut", "-f", "--regenerate-all"]):
        if shutil.which(words[0], path=commands.PATH):
            made = run(words, limit=HOUR / 2)
            return [f"{words[0]}: {made.why}"] if made.code else []
    return []


def _holds(saved: Saved, manager: Manager) -> List[str]:
    names = of_drivers(manager.present(["*"]), saved.names, saved.parts, [saved.driver])
    manager.hold(saved.held, sorted({*names, *saved.held}))
    return []
