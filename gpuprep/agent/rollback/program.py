"""The commands of the way back, as the role and the boot of the machine run them. Each answers with one JSON object.

save    < request  keep the driver of now
arm     < request  a change begins: from here on every boot looks whether the driver works
settle             a change ended: look once more, and forget it if the driver works as the one before it did
boot               the unit's: looks after the restart, and goes back where nothing works and the profile allows it
await              waits until the boot's look, or the way back, needs nothing but a restart or nothing at all
back --by WHO --cause TEXT    goes back now; says whether a restart is needed
show               what is kept, where the change is, and what going back would do
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Type, TypeVar

from gpuprep.agent import host_paths
from gpuprep.agent.programs import atomicfile
from gpuprep.agent.rollback import back as way
from gpuprep.agent.rollback import saved as kept
from gpuprep.agent.rollback import working
from gpuprep.agent.rollback.commands import HOUR, MINUTE, run, tell
from gpuprep.agent.rollback.packages import Failed, Manager, manager, of_drivers
from gpuprep.agent.rollback.save import Request, now, save
from gpuprep.agent.rollback.saved import Journal, Saved

MOST_REQUEST = 1 << 20
SETTLING = 60.0  # seconds in which a driver may still be starting after a boot
RESTART_AFTER = 45
MOST_WAIT = 2 * HOUR
MOST_BOOTS = 5  # in which a way back that was broken off is continued
UNIT = Path(host_paths.DRIVER_CHECK_UNIT)
LINK = Path(host_paths.DRIVER_CHECK_LINK)
UNIT_TEXT = f"""\
# Written by gpuprep while a change of the driver is not known to work; enabled only then.
[Unit]
Description=Does the driver that gpuprep installed work?
ConditionPathExists={host_paths.ROLLBACK_PROGRAM}
# It may install packages and restart the machine: after the boot, so that it keeps nobody out.
After=multi-user.target nvidia-persistenced.service

[Service]
ExecStart={{python}} -I {host_paths.ROLLBACK_PROGRAM} boot
# Killed, it goes on with the step that was broken off.
Restart=on-abnormal
# Building the module of before takes minutes, on a small machine many.
RuntimeMaxSec=3h
"""


@dataclasses.dataclass(frozen=True)
class Change:
    wanted: str  # the driver that comes
    rollback: str  # auto | ask | never


Kind = TypeVar("Kind", Change, Request)


def main(argv: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="gpuprep-rollback")
    parser.add_argument("verb", choices=["save", "arm", "settle", "boot", "await", "back", "show"])
    parser.add_argument("--by", choices=["run", "user"], default="user")
    parser.add_argument("--cause", default="")
    options = parser.parse_args(argv)
    os.umask(0o077)
    try:
        if options.verb == "await":
            answer = _await()
        else:
            with kept.alone():
                answer = _answer(options)
    except kept.Damaged as error:
        why = f"{error}, so there is no way back. `gpuprep provision` with driver.version installs a driver"
        answer = {"error": why}
    except (Failed, OSError) as error:
        answer = {"error": str(error)}
    json.dump(answer, sys.stdout)
    sys.stdout.write("\n")
    return 1 if answer.get("error") else 0


def _answer(options: argparse.Namespace) -> Dict[str, Any]:
    if options.verb == "save":
        return dataclasses.asdict(save(_asked(Request), manager()))
    if options.verb == "arm":
        return _arm(_asked(Change))
    if options.verb == "settle":
        return _settle()
    if options.verb == "boot":
        return _boot()
    if options.verb == "back":
        return _back_now(options.by, options.cause)
    return _show()


def _request() -> Dict[str, Any]:
    try:
        data = json.loads(sys.stdin.read(MOST_REQUEST))
    except (ValueError, RecursionError) as error:
        raise Failed(f"the request is no JSON: {error}") from error
    if not isinstance(data, dict):
        raise Failed("the request is no object")
    return data


def _asked(kind: Type[Kind]) -> Kind:
    try:
        return kind(**_request())
    except TypeError as error:
        raise Failed(f"the request is none: {error}") from error


def _boot_id() -> str:
    return Path(host_paths.BOOT_ID).read_text(encoding="utf-8").strip()


def _arm(change: Change) -> Dict[str, Any]:
    saved = kept.read_saved()
    if saved is None:
        return {"armed": False}
    kept.write_journal(Journal(kept.PENDING, change.wanted, change.rollback, _boot_id(), now()))
    if saved.worked:  # else nothing tells what a driver that works shows here
        _enable()
    return {"armed": saved.worked}


def _enable() -> None:
    """Without systemctl: systemd reads it at the next boot, and that is when it is needed."""
    atomicfile.write(UNIT, UNIT_TEXT.format(python=sys.executable or "/usr/bin/python3"), 0o644)
    LINK.parent.mkdir(parents=True, exist_ok=True)
    if not LINK.is_symlink():
        LINK.unlink(missing_ok=True)
        LINK.symlink_to(UNIT)
    os.sync()


def _disable() -> None:
    LINK.unlink(missing_ok=True)


def _faults(saved: Saved, driver: str) -> List[str]:
    return working.faults(working.look(), driver, saved.gpus, saved.cuda_devices)


def _settle() -> Dict[str, Any]:
    saved, journal = kept.read_saved(), kept.journal_if_any()
    if saved is None or journal is None:
        return {"status": ""}
    driver = journal.wanted if journal.status == kept.PENDING else working.loaded_version()
    faults = _faults(saved, driver) if saved.worked else []
    if not faults:
        _works()
    return {"status": journal.status, "faults": faults}


def _works() -> None:
    """The change is over: nothing of the driver of before comes back when the new one goes."""
    way.forget_replaced()
    kept.end_change()
    _disable()


def _boot() -> Dict[str, Any]:
    saved, journal = kept.read_saved(), kept.read_journal()
    if saved is None or journal is None or journal.status in kept.FINAL:
        _disable()
        return _shown(journal)
    if journal.status == kept.PENDING:
        if journal.boot == _boot_id() or not saved.worked:
            return _shown(journal)  # the change is still at work, or there is nothing to go back to
        faults = _wait_for(saved, journal.wanted) or unfinished(saved, journal.wanted, manager())
        if not faults:
            tell(f"driver {journal.wanted} works")
            _works()
            return {"status": "works"}
        if _never_began(saved, journal):
            tell(f"the change to driver {journal.wanted} had not begun")
            journal = dataclasses.replace(journal, status=kept.GOING_BACK, by="run", boot=_boot_id())
            kept.write_journal(journal)
            return _shown(_go(saved, journal))
        journal = dataclasses.replace(journal, cause="; ".join(faults))
        if journal.rollback != kept.AUTO:
            return _end(dataclasses.replace(journal, status=kept.FAILED))
        journal = dataclasses.replace(journal, status=kept.GOING_BACK, by="itself")
        kept.write_journal(journal)
    elif journal.status == kept.GOING_BACK:
        journal = dataclasses.replace(journal, boots=journal.boots + 1)
        kept.write_journal(journal)
        if journal.boots > MOST_BOOTS:
            error = f"it was broken off in {MOST_BOOTS} boots"
            return _end(dataclasses.replace(journal, status=kept.STUCK, error=error))
    elif journal.boot == _boot_id():
        return _shown(journal)  # the restart is still to come
    if journal.status == kept.GOING_BACK:
        journal = _go(saved, journal)
        if journal.status == kept.RESTARTING:
            _restart()
        return _shown(journal)
    return _look_back(saved, journal)


def unfinished(saved: Saved, driver: str, packages: Manager) -> List[str]:
    """Of a driver that works, what a power cut left: half of its packages, or no module for the next boot."""
    names = of_drivers(packages.present(["*"]), saved.names, saved.parts, [driver, saved.driver])
    half = packages.half(list(names))
    faults = [f"half installed: {', '.join(half[:8])}"] if half else []
    on_disk = way.module_version(way.running_kernel(), saved.modules)
    if on_disk != driver:
        faults.append(f"the module on the disk is {on_disk or 'none'}, not {driver}")
    return faults


def _never_began(saved: Saved, journal: Journal) -> bool:
    """A run that ended before its packages: all that is to be restored are settings and holds."""
    found = way.difference(saved, journal.wanted, manager())
    return not (found.lost or found.gone or _faults(saved, saved.driver))


def _restart() -> None:
    """Soon, so that a controller that waits learns why, and can restart the machine itself."""
    tell(f"restarting in {RESTART_AFTER} s, so that the driver of before is loaded")
    later = run(["systemd-run", "--quiet", f"--on-active={RESTART_AFTER}", "systemctl", "reboot"], limit=MINUTE)
    if later.code:
        run(["systemctl", "--no-block", "reboot"], limit=MINUTE)


def _await() -> Dict[str, Any]:
    """Without the lock, which the program that is waited for holds."""
    end = time.monotonic() + MOST_WAIT
    while time.monotonic() < end:
        journal = kept.read_journal()
        if journal is None or journal.status in kept.FINAL:
            return _shown(journal)
        if journal.status != kept.GOING_BACK and journal.boot == _boot_id():
            return _shown(journal)  # it goes on after a restart
        if not LINK.is_symlink():
            return _shown(journal)  # nobody goes on
        time.sleep(2)  # another process writes the journal, and it goes on after a restart: there is nothing to wait on
    return _shown(kept.read_journal())


def _wait_for(saved: Saved, driver: str) -> List[str]:
    """What is wrong with the driver, once it had time to start. Wrong files do not right themselves."""
    end = time.monotonic() + SETTLING
    while True:
        seen = working.look()
        faults = working.faults(seen, driver, saved.gpus, saved.cuda_devices)
        wrong = seen.loaded != driver or seen.libraries != [driver] or not seen.loads
        if not faults or wrong or time.monotonic() > end:
            return faults
        time.sleep(5)  # the driver tells nobody when it has started


def _go(saved: Saved, journal: Journal) -> Journal:
    """All steps; then the restart is next, or without one the last look."""
    try:
        journal = way.go(saved, journal, manager())
    except (Failed, OSError) as error:
        here = kept.read_journal() or journal  # with the steps that were done
        return _ended(dataclasses.replace(here, status=kept.STUCK, error=str(error)))
    if not saved.worked:
        return _ended(dataclasses.replace(journal, status=kept.BACK))
    # What this boot started while the driver was half there, such as nvidia-persistenced, has failed.
    if working.loaded_version() != saved.driver or journal.boot != _boot_id():
        journal = dataclasses.replace(journal, status=kept.RESTARTING, boot=_boot_id())
        kept.write_journal(journal)
        return journal
    faults = _faults(saved, saved.driver)
    return _ended(dataclasses.replace(journal, status=kept.STUCK if faults else kept.BACK, error="; ".join(faults)))


def _look_back(saved: Saved, journal: Journal) -> Dict[str, Any]:
    faults = _wait_for(saved, saved.driver)
    return _end(dataclasses.replace(journal, status=kept.STUCK if faults else kept.BACK, error="; ".join(faults)))


def _end(journal: Journal) -> Dict[str, Any]:
    return _shown(_ended(journal))


def _ended(journal: Journal) -> Journal:
    """Only what the host did by itself, or could not do, is left to be told: a run and a user are told now."""
    cause = "; ".join(filter(None, [journal.cause, *journal.warnings]))
    journal = dataclasses.replace(journal, ended=now(), cause=cause)
    kept.write_journal(journal)
    if journal.status == kept.BACK and journal.by != "itself":
        kept.end_change()
    _disable()
    tell(f"{journal.status}: {journal.error or journal.cause}")
    return journal


def _back_now(by: str, cause: str) -> Dict[str, Any]:
    saved = kept.read_saved()
    if saved is None:
        return {"error": "no driver is kept on this host, so there is none to go back to"}
    journal = kept.journal_if_any()
    wanted, rollback = (journal.wanted, journal.rollback) if journal else ("", kept.ASK)
    why = " ".join(cause.split())[:2000] or (journal.cause if journal else "")
    journal = Journal(kept.GOING_BACK, wanted or working.loaded_version(), rollback, _boot_id(), now(), why, by=by)
    kept.write_journal(journal)
    _enable()
    return _shown(_go(saved, journal))


def _shown(journal: Optional[Journal]) -> Dict[str, Any]:
    return {"status": ""} if journal is None else dataclasses.asdict(journal)


def _show() -> Dict[str, Any]:
    saved, journal = kept.read_saved(), kept.journal_if_any()
    if saved is None:
        return {"saved": None, "journal": _shown(journal)}
    found = way.difference(saved, journal.wanted if journal else "", manager())
    loaded = working.loaded_version()
    return {
        "saved": {
            "driver": saved.driver,
            "worked": saved.worked,
            "saved": saved.saved,
            "certified": saved.certified,
            "kernel": saved.kernel,
        },
        "journal": _shown(journal),
        "loaded": loaded,
        "install": found.lost,
        "remove": found.gone,
        "offline": not found.missing,
        "restart": loaded != saved.driver,
    }
