"""FFmpeg's names of pixel formats: their depth, their colours, and the surface of the GPU that is nearest. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Surfaces that NVDEC writes: of 8-bit 4:2:0 first, as nearly all videos are.
DECODED = ("nv12", "p010le", "p016le", "yuv444p", "yuv444p16le", "nv16", "p210le", "p216le", "yuv444p10msble")
NATIVE = {"p010": "p010le", "p016": "p016le", "p012": "p012le", "yuv420p10": "yuv420p10le", "yuv444p16": "yuv444p16le",
          "yuv422p10": "yuv422p10le", "yuv444p10": "yuv444p10le", "0rgb32": "bgr0", "0bgr32": "rgb0", "rgb32": "bgra",
          "bgr32": "rgba"}  # fmt: skip
RGB = re.compile(r"0?(?:rgb|bgr)|argb|abgr|x2rgb|x2bgr|rgba|bgra")


def pixel(name: str) -> str:
    """The name that FFmpeg prints for a pixel format: p010le for p010."""
    return NATIVE.get(name.strip(), name.strip())


def bits(name: str) -> int:
    """Bits of one sample: 10 of p010le."""
    if re.fullmatch(r"nv(?:12|16|21|24|42)|yuv4\d\d|.*\d{3}", name):
        return 8
    if re.match(r"(?:rgb|bgr)48|(?:rgba|bgra|ayuv)64", name):
        return 16
    match = re.search(r"(?<!\d)(?:p|nv|y|x2rgb|x2bgr|gray|ya|p\d|y2|xyz)?(9|10|12|14|16|20)(?:msb)?(?:le|be)?$", name)
    if name.startswith(("p0", "p2", "p4", "y2")):
        match = re.search(r"(10|12|16)(?:le|be)?$", name)
    return {20: 10}.get(int(match[1]), int(match[1])) if match else 8


def is_half_chroma(name: str) -> bool:
    """4:2:2."""
    return bool(re.match(r"yuvj?a?422|nv(?:16|20)|p2\d\d|y21|yuyv|uyvy|yvyu", name))


def is_full_chroma(name: str) -> bool:
    """Whether NVENC gets 4:4:4 of it: FFmpeg takes the format that loses nothing, so 4:2:2 becomes 4:4:4, too."""
    # As FFmpeg 7.1 chooses. Gray and planar RGB of 10 bits become x2rgb10, which NVENC makes 4:2:0 of.
    wide = r"yuvj?4(?:44|22|40|11)|nv(?:16|20|24|42)|p[24]1[026]|yuyv|uyvy|y21|(?:gbrp|gray)(?!10)"
    return bool(re.match(wide + "|(?:rgb|bgr)(?:24|48|5)|pal8|mono|xyz", name))


def has_alpha(name: str) -> bool:
    """Transparency: NVENC gets rgba of it, of 8 bits, and makes 4:2:0."""
    return name.startswith(("yuva", "gbrap", "ya"))


def surface_for(formats: Sequence[str]) -> str:
    """The surface format nearest to a pixel format."""
    wanted = formats[0] if formats else "nv12"
    if wanted in ("yuv420p", "nv12", "p010le", "yuv444p", "p016le", "yuv444p16le"):
        return wanted
    if bits(wanted) > 8:
        return "yuv444p16le" if is_full_chroma(wanted) else "p010le"
    return "yuv444p" if wanted.startswith("yuv444") else "yuv420p"


def named(formats: Sequence[str]) -> str:
    """A few of them, to be read."""
    if tuple(formats[:2]) == DECODED[:2]:
        return "nv12 (p010le of 10-bit video)"
    names = [name for name in formats if name]
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
