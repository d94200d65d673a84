"""What a text must be that is shown to a person."""

from __future__ import annotations

import unicodedata


def is_calm(text: str, most: int = 2000) -> None:
    """Short, and without a character that moves a cursor, colours, hides or turns what follows."""
    assert len(text) < most
    bad = {letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf", "Cs") and letter != "\n"}
    assert not bad, f"shown as they are: {bad!r}"


HOSTILE = "</script><b>x & \"q\" 'a' | `c` @all #1\n# HELP \\ \x1b[31m \x00"
