"""May root run or read the file at a path? Only if no other user can replace it.

    why_not("/opt/conda/bin/ffmpeg")    "/opt/conda belongs to alice"; "" where only root can change it
    folders("/opt/conda/bin:/usr/bin")  the folders of a PATH that only root can change

Each folder and each link on the way counts: a user who can write to one of them decides what the path leads to. For a
user other than root these questions have no meaning, because he has no more rights to lose: ask whether_root() first.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

ROOT = 0
LAST_SYSTEM_GROUP = 999  # as in Debian and RHEL: the groups of people, who may be one alone, come after it
MOST_LINKS = 40  # as in Linux
ACCESS_LIST = "system.posix_acl_access"


class NotTrusted(OSError):
    """Root does not start this program; the text names the user who could have replaced it."""


def whether_root() -> bool:
    return os.geteuid() == ROOT


def why_not(path: str) -> str:
    """Which user besides root can change the file at `path` (absolute), in words; "" if none, or without a file."""
    rest, here, links = _parts(path), "/", 0
    while rest:
        name = rest.pop()
        step = (here.rpartition("/")[0] or "/") if name == ".." else f"{here.rstrip('/')}/{name}"
        try:
            status = os.lstat(step)
        except OSError:
            return ""
        if not stat.S_ISLNK(status.st_mode):
            if why := _changed_by(step, status):
                return why
            here = step
            continue
        links += 1
        if status.st_uid != ROOT:
            return f"the link {step} belongs to {_user(status.st_uid)}"
        if links > MOST_LINKS:
            return f"{path} is a loop of links"
        target = str(Path(step).readlink())
        rest += _parts(target)
        here = "/" if target.startswith("/") else here
    return ""


def folders(path: str) -> str:
    """A PATH without folders that another user can write to, and without the working folder."""
    return ":".join(folder for folder in path.split(":") if folder.startswith("/") and _is_closed(folder))


def _is_closed(folder: str) -> bool:
    """Whether only root can change the folder or add files. In /tmp any user can add files."""
    try:
        shared = Path(folder).stat().st_mode & stat.S_IWOTH
    except OSError:
        shared = 0
    return not shared and not why_not(folder)


def _parts(path: str) -> "list[str]":
    """The parts of the path in reverse order, so that pop() returns the first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _changed_by(path: str, status: os.stat_result) -> str:
    if status.st_uid != ROOT:
        return f"{path} belongs to {_user(status.st_uid)}"
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
        return ""  # as /tmp: what is root's in it stays
    if status.st_mode & stat.S_IWOTH:
        return f"everybody may write to {path}"
    if status.st_mode & stat.S_IWGRP and (_has_people(status.st_gid) or ACCESS_LIST in os.listxattr(path)):
        return f"{path} may be written to by the group {_group(status.st_gid)}"
    return ""


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
