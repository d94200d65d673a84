"""Values with their file and line. reader.py makes them; profiles are merged and checked in this form."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Any, Union


@dataclass(frozen=True, order=True)
class Place:
    file: str
    line: int  # from 1


@dataclass(frozen=True)
class Problem:
    """One thing wrong, as a line for the user: `file:line: key: what, allowed`."""

    place: Place
    key: str
    what: str

    def __str__(self) -> str:
        return f"{self.place.file}:{self.place.line}: {self.key}: {self.what}"


@dataclass(frozen=True)
class Node:
    """A value and its place. The place of a member of a mapping is the place of its key."""

    place: Place
    value: Union[bool, int, float, str, dict[str, Node], list[Node], None]
    text: str = ""  # a scalar as it was written
    sound: bool = True  # False: a problem was already reported for it, and the value is a stand-in


def join(parent: str, name: str) -> str:
    """The dotted path of a member; a name that is no plain word is quoted, so the path stays on one line."""
    shown = name if re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name) else repr(shorten(name))
    return f"{parent}.{shown}" if parent else shown


def printable(text: str) -> str:
    """`text` on one line and safe to print: a file name may contain anything, even bytes that are no text."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def shorten(text: str, limit: int = 60) -> str:
    """`text` on one line, printable, and no longer than `limit`."""
    safe = printable(" ".join(text[: limit + 1].splitlines()))
    return safe if len(text) <= limit else safe[: limit - 1] + "…"


def oneline(text: str) -> str:
    return shorten(" ".join(text.split()), 200)


def describe(node: Node) -> str:
    """A value in words, for messages: "the number 12.10", "a list", "nothing"."""
    value = node.value
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return shorten(node.text)
    if isinstance(value, (int, float)):
        return f"the number {shorten(node.text)}"
    if isinstance(value, str):
        return f"the text {shorten(value)!r}" if value else "an empty text"
    return "a mapping" if isinstance(value, dict) else "a list"


def plain(node: Node) -> Any:
    """The plain value, without places."""
    if isinstance(node.value, dict):
        return {name: plain(child) for name, child in node.value.items()}
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    return node.value


def merge(parent: Node, child: Node, whole: Container[str] = ()) -> Node:
    """`child` over `parent`: mappings are merged member by member, everything else replaces, and so do the mappings
    with a name of `whole`."""
    if not (isinstance(parent.value, dict) and isinstance(child.value, dict)):
        return child
    members = dict(parent.value)
    for name, node in child.value.items():
        members[name] = merge(members[name], node, whole) if name in members and name not in whole else node
    return Node(child.place, members, child.text, child.sound)
