"""Names with their explanations, as lines that fit the width of a page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable


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
