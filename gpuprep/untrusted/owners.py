"""Who besides us can change what a path leads to? Stdlib only; Python 3.9 or newer, this also runs on the GPU VM.

    weakness("/opt/conda/bin/ffmpeg", {0})    why: "/opt/conda belongs to alice"; None: only root can change it

Each folder and each link on the way counts: a user who can write to one of them decides what the path leads to.
"""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path
from typing import AbstractSet, List, NamedTuple, Optional

ROOT = 0
LAST_SYSTEM_GROUP = 999  # as in Debian and RHEL: the groups of people, who may be one alone, come after it
MOST_LINKS = 40  # as in Linux
ACCESS_LIST = "system.posix_acl_access"


class Weakness(NamedTuple):
    why: str  # "/opt/conda belongs to alice"
    mend: str  # the command that ends it


def of_others(path: Path, *, team: bool = False) -> Optional[Weakness]:
    """How a user who is neither root nor this one can change what `path` leads to.

    A group may write: it shares what its members have there, and many systems give each user a group of his own.
    `team`: what a member of a group of this user shares with it may belong to him.
    """
    shared = frozenset(os.getgroups()) if team and os.geteuid() != ROOT else frozenset()
    return weakness(str(Path.cwd() / path), {ROOT, os.geteuid()}, groups=True, teams=shared)


def link_of_others(path: Path) -> Optional[Weakness]:
    """A link of another user on the way to a file that is to be written: he would choose the file."""
    return weakness(str(Path.cwd() / path), {ROOT, os.geteuid()}, only_links=True)


def weakness(
    path: str,
    owners: AbstractSet[int],
    *,
    groups: bool = False,
    teams: AbstractSet[int] = frozenset(),
    only_links: bool = False,
) -> Optional[Weakness]:
    """How a user who is none of `owners` can change what `path` (absolute) leads to; None if nobody can.

    A path that does not exist yet is as safe as its folder. `groups`: groups of people may write. `teams`: what these
    groups may write to may belong to anybody.
    """
    rest, here, links = _parts(path), "/", 0
    while rest:
        name = rest.pop()
        step = (here.rpartition("/")[0] or "/") if name == ".." else f"{here.rstrip('/')}/{name}"
        try:
            status = os.lstat(step)
        except OSError:
            return None
        if not stat.S_ISLNK(status.st_mode):
            found = None if only_links else _changed_by(step, status, owners, groups, teams)
            if found:
                return found
            here = step
            continue
        links += 1
        if status.st_uid not in owners:
            return Weakness(f"the link {step} belongs to {_user(status.st_uid)}", f"{_sudo()}rm {shlex.quote(step)}")
        if links > MOST_LINKS:
            return Weakness(f"{path} is a loop of links", f"rm {shlex.quote(step)}")
        target = str(Path(step).readlink())
        rest += _parts(target)
        here = "/" if target.startswith("/") else here
    return None


def _parts(path: str) -> List[str]:
    """The parts of the path in reverse order, so that pop() returns the first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _changed_by(
    path: str, status: os.stat_result, owners: AbstractSet[int], groups: bool, teams: AbstractSet[int]
) -> Optional[Weakness]:
    quoted = shlex.quote(path)
    if status.st_uid not in owners and not (status.st_mode & stat.S_IWGRP and status.st_gid in teams):
        owner = f"{_sudo()}chown {_user(os.geteuid())} {quoted}"
        return Weakness(f"{path} belongs to {_user(status.st_uid)}", owner)
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
        return None  # sticky, as /tmp: others cannot replace our files in it
    if status.st_mode & stat.S_IWOTH:
        return Weakness(f"everybody may write to {path}", f"{_sudo(status.st_uid)}chmod o-w {quoted}")
    people = status.st_mode & stat.S_IWGRP and not groups
    if people and (_has_people(status.st_gid) or ACCESS_LIST in os.listxattr(path)):
        return Weakness(
            f"{path} may be written to by the group {_group(status.st_gid)}",
            f"{_sudo(status.st_uid)}chmod g-w {quoted}",
        )
    return None


def _sudo(owner: int = ROOT) -> str:
    """Before a command that root or the owner may run."""
    return "" if os.geteuid() in (ROOT, owner) else "sudo "


def _has_people(gid: int) -> bool:
    """Whether a group has members besides root. Debian's /usr/local may belong to the group staff, which is empty."""
    import grp
    import pwd

    if gid > LAST_SYSTEM_GROUP:
        return True
    try:
        members = set(grp.getgrgid(gid).gr_mem)
    except KeyError:
        members = set()
    return bool(members - {"root"}) or any(user.pw_gid == gid and user.pw_uid != ROOT for user in pwd.getpwall())


def _user(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _group(gid: int) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return f"gid {gid}"
