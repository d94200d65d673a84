"""Fails where someone other than root could change what is in a folder, and names the place.

Looks at the folder, at those above it, and at where links lead. What does not exist yet is left out.
Argument: the folder. Changes nothing. Stdlib only, Python 3.9 or newer.
"""

import grp
import os
import pwd
import stat
import sys

MOST_LINKS = 40  # the kernel's own limit


def user(number):
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def group(number):
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return f"group {number}"


def places(path, links=0):
    """The folders on the way to `path`, from / on, links and what they lead to included."""
    if links > MOST_LINKS:
        sys.exit(f"{path}: too many links")
    place = "/"
    yield place
    for name in os.path.abspath(path).split("/"):
        place = os.path.join(place, name)
        yield place
        if os.path.islink(place):
            yield from places(os.path.join(os.path.dirname(place), os.readlink(place)), links + 1)


def fault(place):
    """What is wrong with the rights of `place`, or ""."""
    try:
        info = os.lstat(place)
    except FileNotFoundError:
        return ""
    if info.st_uid != 0:
        return f"{place} belongs to {user(info.st_uid)}"
    if stat.S_ISLNK(info.st_mode):
        return ""
    if not stat.S_ISDIR(info.st_mode):
        return f"{place} is no folder"
    if info.st_mode & stat.S_IWOTH:
        return f"anyone may write to {place}"
    # Debian's /usr/local is of the group staff, whose members may become root as Debian's policy says.
    if info.st_mode & stat.S_IWGRP and info.st_gid != 0 and group(info.st_gid) != "staff":
        return f"the group {group(info.st_gid)} may write to {place}"
    return ""


for place in places(sys.argv[1]):
    found = fault(place)
    if found:
        sys.exit(found)
