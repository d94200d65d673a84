"""Unsafe characters are shown as escapes; everything else stays as it is."""

from __future__ import annotations

import unicodedata

import pytest

from gpuprep.untrusted import plaintext

# Char in section 2.2 of XML 1.0, as the standard writes it.
XML = (range(0x9, 0xB), range(0xD, 0xE), range(0x20, 0xD800), range(0xE000, 0xFFFE), range(0x10000, 0x110000))


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
    assert plaintext.visible(text) == shown


def test_no_control_or_surrogate_is_left() -> None:
    shown = plaintext.visible("".join(map(chr, range(0x110000))))
    left = {unicodedata.category(character) for character in shown} & {"Cc", "Cs", "Zl", "Zp"}
    assert {character for character in shown if unicodedata.category(character) == "Cc"} == {"\n", "\t"}
    assert left == {"Cc"}
    shown.encode()


def test_what_xml_may_hold_is_left_and_nothing_else() -> None:
    kept = plaintext.NOT_XML.sub("", "".join(map(chr, range(0x110000))))
    assert kept == "".join(chr(code) for codes in XML for code in codes)


def test_one_line_is_one_short_line() -> None:
    assert plaintext.one_line("a\n\tb\x85c") == "a b c"
    assert plaintext.one_line("word " * 10**6, 20) == "word word word word…"
    assert len(plaintext.one_line("x" * 10**6)) == 1000
