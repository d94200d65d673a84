"""The licence of an FFmpeg, from configure's options."""

from __future__ import annotations

from typing import Sequence

NONFREE = "nonfree: it may be used, and not be given to others"


def licence(options: Sequence[str]) -> str:
    """The licence by the rules of FFmpeg's configure: "GPL version 2 or later"."""
    if "--enable-nonfree" in options:
        return NONFREE
    gpl, third = "--enable-gpl" in options, "--enable-version3" in options
    if gpl:
        return "GPL version 3 or later" if third else "GPL version 2 or later"
    return "LGPL version 3 or later" if third else "LGPL version 2.1 or later"
