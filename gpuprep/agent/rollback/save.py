"""Keeps the driver that works now: its packages, holds, pin, stream, locks, settings, and what it shows of the GPUs.

Nothing that is kept already goes before the new set is complete. A certified driver's set gives way only to another
certified one, and one that worked to none that does not. That is kept where there is nothing better: a run may fail.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Dict, List, Optional

from gpuprep.agent.rollback import saved as kept
from gpuprep.agent.rollback import working
from gpuprep.agent.rollback.back import module_version, running_kernel
from gpuprep.agent.rollback.packages import Manager, of_drivers
from gpuprep.agent.rollback.saved import Package, Saved

MOST_TEXT = 256 << 10


@dataclass(frozen=True)
class Request:
    names: List[str]
    parts: str
    modules: List[str]
    fetch: bool = True  # False: the profile wants no way back by itself, so no disk is used
    certified_run: str = ""
    certified_driver: str = ""


@dataclass(frozen=True)
class Answer:
    driver: str  # the driver that is kept; empty where there was none
    worked: bool = True
    offline: bool = False  # all of its packages are here
    missing: List[str] = field(default_factory=list)
    why: str = ""  # where none is kept, or another one than that of now, or not whole


def now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def save(request: Request, manager: Manager, folder: Path = kept.FOLDER) -> Answer:
    old = _readable(folder)
    change = kept.journal_if_any(folder)
    if old is not None and change is not None and change.status != kept.BACK:
        return _answer(
            old, folder, f"a change to driver {change.wanted} is not finished, so what it began with is kept"
        )
    seen = working.look()
    faults = working.faults(seen, seen.loaded, max(seen.gpus, 1), seen.cuda_devices)
    if faults:
        why = f"the driver of now does not work: {'; '.join(faults)}"
        if old is None or not old.worked:
            return _keep(seen, request, manager, "", folder, why)
        found = of_drivers(manager.installed(["*"]), request.names, request.parts, [old.driver])
        if old.versions == found:  # installed, and without a module in this boot: what was set since is its own
            old = dataclasses.replace(old, held=manager.held(list(found)), files=_settings())
            kept.write_saved(old, folder)
        return _answer(old, folder, why)
    certified = request.certified_run if request.certified_driver == seen.loaded else ""
    if old is not None and old.certified and not certified and old.driver != seen.loaded:
        return _answer(
            old, folder, f"driver {seen.loaded} was never certified, so {old.driver} of run {old.certified} is kept"
        )
    found = of_drivers(manager.installed(["*"]), request.names, request.parts, [seen.loaded])
    if old is not None and old.driver == seen.loaded and _whole(old, found, folder):
        held, certified = manager.held(list(found)), certified or old.certified
        updated = _saved(seen, request, old.packages, held, certified)
        kept.write_saved(updated, folder)
        return _answer(updated, folder, "")
    return _keep(seen, request, manager, certified, folder)


def _readable(folder: Path) -> Optional[Saved]:
    try:
        return kept.read_saved(folder)
    except kept.Damaged:
        return None  # of no use for going back, and replaced


def _whole(old: Saved, found: Dict[str, str], folder: Path) -> bool:
    return old.versions == found and len(kept.sound_files(old, folder)) == len(found)


def _answer(saved: Saved, folder: Path, why: str) -> Answer:
    missing = sorted({one.name for one in saved.packages} - kept.sound_files(saved, folder).keys())
    return Answer(saved.driver, saved.worked, not missing, missing, why)


def _keep(
    seen: working.Seen, request: Request, manager: Manager, certified: str, folder: Path, broken: str = ""
) -> Answer:
    driver = seen.loaded or module_version(running_kernel(), request.modules)
    found = of_drivers(manager.installed(["*"]), request.names, request.parts, [driver])
    new = folder / "packages.new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700, parents=True)
    why = "" if request.fetch else "driver.rollback is never, so no packages are kept"
    if request.fetch:
        space = os.statvfs(folder)
        free, needed = space.f_bavail * space.f_frsize, manager.bytes_needed(found) + kept.SPARE_BYTES
        if free < needed:
            why = f"{folder} has {free >> 20} MiB free, and the packages of the driver need up to {needed >> 20} MiB"
        else:
            manager.fetch(found, new)
    files = manager.files(new, found)
    for path in set(new.iterdir()) - set(files.values()):
        path.unlink()
    rows = [kept.package(name, version, files.get(name)) for name, version in sorted(found.items())]
    saved = _saved(seen, request, rows, manager.held(list(found)), certified)
    saved = dataclasses.replace(saved, driver=driver, worked=not broken)
    kept.replace_packages(new, saved, folder)
    missing = sorted(found.keys() - files.keys())
    if missing and not why:
        why = "neither the cache of the package manager nor the archive has its packages any more"
    return Answer(saved.driver, saved.worked, not missing, missing, broken or why)


def _saved(seen: working.Seen, request: Request, packages: List[Package], held: List[str], certified: str) -> Saved:
    return Saved(
        driver=seen.loaded,
        worked=True,
        kernel=running_kernel(),
        gpus=seen.gpus,
        cuda_devices=seen.cuda_devices,
        saved=now(),
        certified=certified,
        packages=packages,
        names=request.names,
        parts=request.parts,
        held=held,
        files=_settings(),
        modules=request.modules,
    )


def _settings() -> Dict[str, Optional[str]]:
    return {path: _text(Path(path)) for path in kept.SETTINGS}


def _text(path: Path) -> Optional[str]:
    try:
        with path.open(encoding="utf-8", errors="surrogateescape") as file:
            return file.read(MOST_TEXT)
    except OSError:
        return None
