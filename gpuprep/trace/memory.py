"""Memory that glibc's malloc would keep. Other C libraries have no such calls, and keep it."""

from __future__ import annotations

import contextlib
import ctypes


def own_memory_for_arrays(least: int = 1 << 20) -> None:
    """From now on each array of `least` bytes or more gets memory of its own, which goes back to the system with it.

    glibc raises that limit up to 32 MiB by itself, and keeps what is smaller. Of a profile of 5 GB, with columns of
    tens of MB that come and go, that was 1 GB. mallopt(3): M_MMAP_THRESHOLD is -3.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(-3, least)


def give_back() -> None:
    """Memory of freed arrays to the system. Between the steps of linking a profile of 5 GB that is 0.6 GB.

    Arrays of less than own_memory_for_arrays() tells of lie between others, and larger ones may be put into their gaps.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
