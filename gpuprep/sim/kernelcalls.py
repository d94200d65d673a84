"""System calls that Python has no function for. Each raises OSError with the kernel's own reason."""

from __future__ import annotations

import ctypes
import errno
import os

# The numbers are the same on every architecture: these calls are younger than the common table.
OPEN_TREE, MOVE_MOUNT, OPENAT2, MOUNT_SETATTR = 428, 429, 437, 442
# Errors of a call that the kernel, or a seccomp filter, does not have
CANNOT = (errno.ENOSYS, errno.EPERM)
AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
OPEN_TREE_CLONE = 1
MOVE_MOUNT_F_EMPTY_PATH = 4
MOUNT_ATTR_IDMAP = 0x00100000
RESOLVE_NO_XDEV, RESOLVE_NO_MAGICLINKS, RESOLVE_IN_ROOT = 0x01, 0x02, 0x10

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("flags", "mode", "resolve")]


class _MountAttr(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]


def _call(number: int, what: str, *arguments: object) -> int:
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)
    return result


def open_below(root: int, path: str, flags: int) -> int:
    """Opens `path` as a process would whose root directory is the folder `root`: no link leads out of it."""
    how = _OpenHow(flags | os.O_CLOEXEC, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    return _call(OPENAT2, path, root, os.fsencode(path), ctypes.byref(how), size)


def detached_mount(folder: str) -> int:
    """A copy of the mount below `folder`, attached nowhere yet."""
    flags = ctypes.c_uint(OPEN_TREE_CLONE | os.O_CLOEXEC)
    return _call(OPEN_TREE, folder, AT_FDCWD, os.fsencode(folder), flags)


def map_ids(mount: int, user_namespace: int, what: str) -> None:
    """The owners of a detached mount's files are seen through the id map of a user namespace."""
    attributes = _MountAttr(MOUNT_ATTR_IDMAP, 0, 0, user_namespace)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    _call(MOUNT_SETATTR, what, mount, b"", ctypes.c_uint(AT_EMPTY_PATH), ctypes.byref(attributes), size)


def attach(mount: int, folder: str) -> None:
    _call(MOVE_MOUNT, folder, mount, b"", AT_FDCWD, os.fsencode(folder), ctypes.c_uint(MOVE_MOUNT_F_EMPTY_PATH))


def mount(kind: str, folder: str, options: str) -> None:
    """mount(2) of a file system without a device; the options may name folders relative to the working directory."""
    if _libc.mount(kind.encode(), os.fsencode(folder), kind.encode(), ctypes.c_ulong(0), os.fsencode(options)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), folder)
