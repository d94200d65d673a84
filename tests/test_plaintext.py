"""Unsafe characters are shown as escapes; everything else stays as it is."""

from __future__ import annotations

import unicodedata

import pytest

from gpuprep.untrusted.plaintext import one_line, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("a\ud800", "a\\ud800"),
        ("a\r\n\tb\u2028", "a\\x0d\n\tb\\u2028"),
        ("\U000e0041", "\\U000e0041"),
        ("Größe × 2, 漢字, ✅", "Größe × 2, 漢字, ✅"),
    ],
)
def test_unsafe_characters_become_escapes(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_no_control_or_surrogate_is_left() -> None:
    shown = visible("".join(map(chr, range(0x110000))))
    left = {unicodedata.category(character) for character in shown} & {"Cc", "Cs", "Zl", "Zp"}
    assert {character for character in shown if unicodedata.category(character) == "Cc"} == {"\n", "\t"}
    assert left == {"Cc"}
    shown.encode()


def test_one_line_is_one_short_line() -> None:
    assert one_line("a\n\tb\x85c") == "a b c"
    assert one_line("word " * 10**6, 20) == "word word word word…"
    assert len(one_line("x" * 10**6)) == 1000
