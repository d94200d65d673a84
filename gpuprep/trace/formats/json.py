"""JSON for programs: the whole document. Its schema: schemas/."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gpuprep.trace.document import plain

NOT_ASCII = re.compile("[^\x00-\x7e]")


def render(document: Any) -> str:
    """A dataclass of trace/document as pure ASCII: no name in it can act on a terminal. NaN is null."""
    text = msgspec.json.format(msgspec.json.encode(document, enc_hook=plain), indent=2).decode()
    return text if text.isascii() and "\x7f" not in text else NOT_ASCII.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    """As JSON writes a character: beyond 16 bits as two."""
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[place] << 8 | units[place + 1]:04x}" for place in range(0, len(units), 2))
