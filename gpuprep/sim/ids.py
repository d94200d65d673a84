"""The range of 65536 user ids of a machine on this computer; nothing else uses these ids.

In the machine and on its disk the ids are 0 to 65535. On this computer they are far above any account, so root of a
machine has no rights here, and no user of this computer is a user of a machine.
"""

from __future__ import annotations

import contextlib
import grp
import hashlib
import json
import pwd
from collections.abc import Iterator
from pathlib import Path

import psutil

from gpuprep.errors import SimError
from gpuprep.sim import store

COUNT = 65536
# systemd's range for containers: user managers of other kinds keep away from it (systemd.io/UIDS-GIDS).
FIRST, LAST = 0x80000, 0x6FFF0000
# Between systemd's homes and its dynamic users: nothing takes ids there of its own accord.
SPARE = range(60578, 61184)
SUBORDINATE = ("/etc/subuid", "/etc/subgid")

Range = tuple[int, int]  # first id, how many


def of_machine(name: str) -> int:
    """The first id of a machine's range, chosen now or as before. Call with the store locked."""
    kept = store.folder(name) / "ids.json"
    taken = [*_accounts(), *_subordinate(), *_mapped(), *_other_machines(name)]
    before = _kept(kept)
    for first in [*before, *_candidates(str(store.folder(name)))]:
        if not any(_overlap((first, COUNT), other) for other in taken) and not _known(first):
            store.write_json(kept, {"first": first})
            return first
    raise SimError("no 65536 user ids are free on this computer", "see /etc/subuid and /etc/subgid for who has them")


def spare() -> int:
    """One unused id below 65536, for the user of a machine that has no range of its own."""
    used = {number for number, _ in _accounts()} | _running()
    used |= {int(store.read(name).options.get("user_id", 0)) for name in store.names()}
    for number in SPARE:
        if number not in used and not _known(number):
            return number
    raise SimError(f"the user ids {SPARE[0]} to {SPARE[-1]} are all in use", "remove accounts that nobody needs")


def _candidates(seed: str) -> Iterator[int]:
    """Ranges in an order of the machine's own, so that two computers or two users seldom choose the same."""
    places = (LAST - FIRST) // COUNT
    start = int(hashlib.sha256(seed.encode()).hexdigest(), 16) % places
    for step in range(min(places, 4096)):
        yield FIRST + (start + step) % places * COUNT


def _overlap(one: Range, other: Range) -> bool:
    return one[0] < other[0] + other[1] and other[0] < one[0] + one[1]


def _kept(path: Path) -> list[int]:
    try:
        return [int(json.loads(path.read_text())["first"])]
    except (FileNotFoundError, ValueError, KeyError):
        return []


def _accounts() -> list[Range]:
    users = ((user.pw_uid, user.pw_gid) for user in pwd.getpwall())
    return [(number, 1) for pair in users for number in pair] + [(group.gr_gid, 1) for group in grp.getgrall()]


def _known(first: int) -> bool:
    """Does a directory of accounts that cannot be listed (LDAP) know an id?"""
    for look in (pwd.getpwuid, grp.getgrgid):
        with contextlib.suppress(KeyError):
            look(first)
            return True
    return False


def _subordinate() -> list[Range]:
    """Ranges that accounts may use for containers of their own."""
    ranges = []
    for file in SUBORDINATE:
        with contextlib.suppress(FileNotFoundError):
            for line in Path(file).read_text(errors="replace").splitlines():
                parts = line.split(":")
                if len(parts) == 3 and parts[1].isdecimal() and parts[2].isdecimal():
                    ranges.append((int(parts[1]), int(parts[2])))
    return ranges


def _mapped() -> set[Range]:
    """Ranges of the user namespaces of every process; a machine of our own that was killed has none left."""
    ranges = set()
    for pid in psutil.pids():
        for name in ("uid_map", "gid_map"):  # by hand: psutil knows no user namespaces
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/{name}").read_text().splitlines():
                    _, outside, count = map(int, line.split())
                    if count < 2**32 - 1:  # the whole of them: no user namespace at all
                        ranges.add((outside, count))
    return ranges | {(number, 1) for number in _running()}


def _running() -> set[int]:
    """The user ids of every process: real, effective and saved."""
    return {number for process in psutil.process_iter(["uids"]) for number in process.info["uids"] or ()}


def _other_machines(name: str) -> list[Range]:
    files = (path for path in store.machines_dir().glob("*/ids.json") if path.parent.name != name)
    return [(first, COUNT) for path in files for first in _kept(path)]
