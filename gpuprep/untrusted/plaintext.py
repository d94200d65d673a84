"""Makes text from a host, a file or a network safe to show. Stdlib only; also runs on the GPU VM.

    visible("\\x1b[2J")     a text of several lines: its control characters as escapes
    one_line("a\\nb")       the same on one line, of limited length
    unsafe("a\\u202eb")    the first unsafe character of a text, "" if there is none
    command("gpuprep", "report", about=x)   a command that is safe to paste into a shell, whatever x is

A control character can move the cursor, recolour or clear a terminal. A bidirectional or invisible character can make a
line look like another line. Half a surrogate pair cannot be written as UTF-8. All are shown as \\x1b, \\u202e ...
"""

from __future__ import annotations

import re
import shlex

# Of Unicode 16: control characters (Cc) but tab and newline, invisible and bidirectional format characters (Cf), line
# and paragraph separators (Zl, Zp), surrogates (Cs), tags.
_UNSAFE = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u061c\\u180e\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb"
    "\\ud800-\\udfff\\U000e0001-\\U000e007f]"
)
# XML 1.0, section 2.2: what no document may hold, however it is escaped. Written the other way round, "not what is
# allowed", Python takes ten times as long to compile it: a twentieth of the start of a command.
NOT_XML = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\ud800-\\udfff\\ufffe\\uffff]")
_MOST_LETTERS = 1000  # of one line


def visible(text: str) -> str:
    """`text` with its unsafe characters as escapes; newlines and tabs stay."""
    if text.isprintable():  # true for nearly all texts, and the fastest test
        return text
    return _UNSAFE.sub(_escape, text)


def unsafe(text: str) -> str:
    """The first character of `text` that visible() would not show as it is; "" if there is none."""
    match = None if text.isprintable() else _UNSAFE.search(text)
    return match[0] if match else ""


def one_line(text: str, most: int = _MOST_LETTERS) -> str:
    """`text` on one line of at most `most` characters, with single blanks, unsafe characters as escapes."""
    # Cut first: a text of many megabytes is not split into words only to be cut.
    line = visible(" ".join(text[: 2 * most].split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def command(*words: str, about: str | tuple[str, ...] = "") -> str:
    """A command line to paste into a shell. `about`, a host or a run or several, is each one word and never an option.

    They stand before the options; if one looks like an option, all stand after the options and "--".
    """
    ours = list(words)
    named = [about] if isinstance(about, str) else list(about)
    if any(name.startswith("-") for name in named):
        ours += ["--", *named]
    elif any(named):
        place = next((place for place, word in enumerate(ours) if word.startswith("-")), len(ours))
        ours[place:place] = named
    return shlex.join(map(one_line, ours))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
