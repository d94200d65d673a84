"""Lines of a terminal: colours, headings, paragraphs and tables, for reports and for the lists of commands."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Container, Iterable, Sequence

COLORS = {
    "PASS": "green", "STEADY": "green", "DONE": "green", "WARN": "yellow", "STOPPED": "yellow", "FAIL": "red",
    "DOWN": "red", "REFUSED": "red", "FAILED": "red", "UNKNOWN": "magenta", "SKIP": "cyan", "PLAN": "cyan",
    "WAIVED": "blue",
}  # fmt: skip
CODES = {"bold": "1", "red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36"}
OUR_CODE = re.compile(r"\x1b\[\d+m")
UNBROKEN = "\x1f"  # stands for a non-breaking blank; no text that is shown contains this character


class Page:
    """Lines of at most `width` columns where words allow it."""

    def __init__(self, color: bool, width: int) -> None:
        self.color, self.width = color, width
        self.lines: list[str] = []

    def paint(self, text: str, key: str) -> str:
        """`text` in the colour of a word of COLORS, or bold."""
        return painted(text, COLORS.get(key, key)) if self.color else text

    def blank(self) -> None:
        if self.lines and self.lines[-1]:
            self.lines.append("")

    def heading(self, text: str) -> None:
        self.blank()
        self.lines.append(self.paint(text, "bold"))

    def text(self, text: str, indent: str = "", later: str | None = None) -> None:
        lines = textwrap.wrap(
            text,
            self.width + (len(text) - len(OUR_CODE.sub("", text))),
            initial_indent=indent,
            subsequent_indent=indent if later is None else later,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
        self.lines += [line.replace(UNBROKEN, " ") for line in lines]

    def field(self, name: str, value: str) -> None:
        self.text(value, indent=f"  {name:<16} ", later=" " * 19)

    def table(
        self, heads: Sequence[str], rows: Sequence[Sequence[str]], right: Container[int], notes: Sequence[str] = ()
    ) -> None:
        """The columns `right` are numbers. Cells that are too long for the page are cut; a note is placed below its
        row.
        """
        every = [[plain(cell) for cell in row] for row in (heads, *rows)]
        widths = [max(map(len, column)) for column in zip(*every, strict=True)]
        over = 2 * len(widths) + sum(widths) - self.width
        if over > 0:  # the widest text columns shrink, not the numbers
            widest = max((place for place in range(len(widths)) if place not in right), key=lambda place: widths[place])
            every = [[cut(cell, max(4, widths[widest] - over)) if place == widest else cell
                      for place, cell in enumerate(row)] for row in every]  # fmt: skip
        for number, cells in enumerate(aligned(every, right)):
            self.lines.append(f"  {'  '.join(cells)}".rstrip())
            # A note that several rows share is printed once, below the last of them.
            if number and notes and notes[number - 1] and notes[number - 1 : number] != notes[number : number + 1]:
                self.text(" ".join(plain(notes[number - 1]).split()), indent="      ")

    def done(self) -> str:
        return "\n".join(self.lines).rstrip() + "\n"


def painted(text: str, color: str) -> str:
    return f"\x1b[{CODES[color]}m{text}\x1b[0m" if color in CODES else text


def aligned(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[list[str]]:
    """The cells of each row, as wide as the widest of their column; those of the columns `right` end below each other.

    All rows have the same number of cells. Colours of painted() take no room.
    """
    sizes = [[len(OUR_CODE.sub("", cell)) for cell in row] for row in rows]
    widths = [max(column) for column in zip(*sizes, strict=True)]
    made = []
    for row, size in zip(rows, sizes, strict=True):
        blanks = [" " * (width - used) for width, used in zip(widths, size, strict=True)]
        pairs = zip(row, blanks, strict=True)
        made.append([blank + cell if place in right else cell + blank for place, (cell, blank) in enumerate(pairs)])
    return made


def named(rows: Iterable[tuple[str, str]], width: int, indent: str = "  ") -> list[str]:
    """A paragraph a row: the names in a column, the words beside them, lines of at most `width` columns."""
    every = [(name, words) for name, words in rows if words]
    column = max((len(name) for name, _ in every), default=0)
    lines: list[str] = []
    for name, words in every:
        head = f"{indent}{name:<{column}}  "
        lines += textwrap.wrap(
            words, max(width, len(head) + 20), initial_indent=head, subsequent_indent=" " * len(head),
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    return lines


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def plain(text: str) -> str:
    """The text without control characters that move the cursor or set colours."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
