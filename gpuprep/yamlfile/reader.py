"""A small, strict YAML reader that keeps the place of every value, so that an error can name file and line.

It reads events, not composed nodes: it checks everything before it builds anything. So aliases are never expanded and
depth is limited. It refuses, each with its own message: aliases and anchors, tags, merge keys, several documents,
duplicate keys, and every plain scalar that YAML 1.1 and 1.2 read differently (`yes`, `0755`, `12:30`), because an
editor and this reader would then read different values. A day (`2026-12-31`) is text, as in YAML 1.2. ruamel.yaml would
not do: it reads them as YAML 1.2 and says nothing.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gpuprep.untrusted.plaintext import unsafe
from gpuprep.yamlfile.nodes import Node, Place, Problem, describe, join, oneline, printable, shorten

MAX_BYTES = 64 * 1024  # ten times a profile that states everything
MAX_DEPTH = 20
MAX_DIGITS = 15  # beyond that a double, which JSON readers use, is no longer exact

_NULL = {"", "~", "null", "Null", "NULL"}
_TRUE = {"true", "True", "TRUE"}
_FALSE = {"false", "False", "FALSE"}
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)", re.ASCII)
_OCTAL = re.compile(r"[-+]?0o[0-7]+")  # a number in YAML 1.2, a text in 1.1
_FLOAT = re.compile(r"[-+]?[0-9]+\.[0-9]+([eE][-+]?[0-9]{1,2})?", re.ASCII)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_BEYOND_UNICODE = re.compile(r"\\U(?!0010|000[0-9A-Fa-f])[0-9A-Fa-f]{8}")


@dataclass(frozen=True)
class Kind:
    """The kind of file, for the words of a refusal."""

    noun: str
    instead: str = ""  # of writing a value out, where it was a reference to another
    optional: bool = False  # without a file, and of an empty one, the root is a mapping without members


PROFILE = Kind("profile", "use extends")


@dataclass
class Source:
    """The result of reading: the top node (None if nothing could be built) and all problems."""

    root: Node | None
    problems: list[Problem] = field(default_factory=list)


class _Stop(Exception):
    """Stop reading; the problem is already recorded."""


def read(path: Path, shown: str | None = None, kind: Kind = PROFILE) -> Source:
    """Read the YAML mapping in the file at `path`; problems name it as `shown`. Never raises for bad contents."""
    name = printable(shown if shown is not None else str(path))
    top = Place(name, 1)
    try:
        if path.is_dir():
            return Source(None, [Problem(top, "file", "is a directory; name a .yml file in it")])
        if not path.exists():
            if kind.optional:
                return Source(Node(top, {}))
            return Source(None, [Problem(top, "file", "does not exist")])
        if not path.is_file():
            return Source(None, [Problem(top, "file", "is not a regular file")])
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        return Source(None, [Problem(top, "file", f"cannot be read: {error.strerror or error}")])
    except ValueError as error:  # a NUL in the path
        return Source(None, [Problem(top, "file", f"cannot be read: {error}")])
    return parse(data, name, kind)


def parse(data: bytes, name: str, kind: Kind = PROFILE) -> Source:
    """Read YAML from `data`, which problems call `name`."""
    if len(data) > MAX_BYTES:
        what = f"is larger than {MAX_BYTES // 1024} KiB, the most a {kind.noun} may have"
        return Source(None, [Problem(Place(name, 1), "file", what)])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = f"is not UTF-8 text: byte 0x{data[error.start]:02x} cannot be read; save the file as UTF-8"
        return Source(None, [Problem(Place(name, line), "file", what)])
    return _Reader(text, name, kind).source()


class _Reader:
    def __init__(self, text: str, name: str, kind: Kind) -> None:
        self.text = text
        self.name = name
        self.kind = kind
        self.newlines = [i for i, character in enumerate(text) if character == "\n"]
        self.last_line = max(1, len(self.newlines) + (not text.endswith("\n")))
        self.problems: list[Problem] = []
        self.events: Iterator[Any] = iter(())
        self.resolver = yaml.resolver.Resolver()

    def source(self) -> Source:
        root = None
        try:
            # The pure Python parser, not libyaml's: one set of messages everywhere. Its state machine does not recurse.
            self.events = yaml.parse(self.text, Loader=yaml.SafeLoader)
            root = self._document()
        except _Stop:
            pass
        except yaml.reader.ReaderError as error:
            line = self._line_at(error.position)
            self._report(line, "file", f"is not text: it holds the character {_code(error.character)}")
        except yaml.MarkedYAMLError as error:
            self._syntax(error)
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            self._beyond(error)
        if not self.problems:
            self._outside_of_values()
        return Source(root, self.problems)

    def _outside_of_values(self) -> None:
        """Check comments too: a character that changes the writing direction can make a value look different."""
        for number, line in enumerate(self.text.replace("\r", "").split("\n"), 1):
            if bad := unsafe(line):
                self._report(number, "file", f"holds the character {_code(bad)}, which is not text")
                return

    def _line_at(self, index: int) -> int:
        # Not the mark's own line: PyYAML also ends lines at U+0085, U+2028 and U+2029, and no editor does.
        return bisect_left(self.newlines, index) + 1

    def _line(self, mark: Any) -> int:
        """The line of a mark, from 1; 0 where there is no mark."""
        return min(self._line_at(mark.index), self.last_line) if mark else 0

    def _report(self, line: int, key: str, what: str) -> None:
        self.problems.append(Problem(Place(self.name, max(1, min(line, self.last_line))), key, what))

    def _syntax(self, error: yaml.MarkedYAMLError) -> None:
        line = self._line(error.problem_mark) or self._line(error.context_mark) or 1
        what = oneline(error.problem or error.context or "cannot be read")
        if "'\\t'" in what:
            what = "a tab; indent with spaces"
        elif error.context and (begun := self._line(error.context_mark)) and begun != line:
            what += f" ({oneline(error.context)} that began on line {begun})"
        self._report(line, "file", f"is not valid YAML: {what}")

    def _beyond(self, error: Exception) -> None:
        """Python's errors that PyYAML cannot place: a \\U escape beyond Unicode, a number of thousands of digits."""
        if escape := _BEYOND_UNICODE.search(self.text):
            self._report(
                self._line_at(escape.start()), "file", f"is not valid YAML: {escape.group()} is beyond Unicode"
            )
        else:
            self._report(1, "file", f"is not valid YAML: {oneline(str(error))}")

    def _document(self) -> Node | None:
        event = next(self.events)
        while not isinstance(event, (yaml.DocumentStartEvent, yaml.StreamEndEvent)):
            event = next(self.events)
        if isinstance(event, yaml.StreamEndEvent):
            return self._nothing(Place(self.name, 1))
        root = self._node(next(self.events), "", 0)
        next(self.events)  # the end of this document
        event = next(self.events)
        if isinstance(event, yaml.DocumentStartEvent):
            self._report(
                self._line(event.start_mark),
                "file",
                f"holds a second YAML document; a {self.kind.noun} is one document",
            )
        if not isinstance(root.value, dict):
            if root.sound and root.value is None:
                return self._nothing(root.place)
            if root.sound:
                self._report(root.place.line, "file", f"holds {describe(root)}; {self._mapping_wanted()}")
            return None
        return root

    def _nothing(self, place: Place) -> Node | None:
        if self.kind.optional:
            return Node(place, {})
        self._report(place.line, "file", f"is empty; {self._mapping_wanted()}")
        return None

    def _mapping_wanted(self) -> str:
        return f"a {self.kind.noun} is a mapping of keys to values"

    def _node(self, event: Any, key: str, depth: int, place: Place | None = None) -> Node:
        line = self._line(event.start_mark)
        place = place or Place(self.name, line)
        key = key or "file"
        valid = True
        if anchor := getattr(event, "anchor", None):  # an alias has the name of its anchor
            noun = "alias *" if isinstance(event, yaml.AliasEvent) else "anchor &"
            instead = f", or {self.kind.instead}" if self.kind.instead else ""
            self._report(line, key, f"the {noun}{shorten(anchor)} is not supported; write the value out{instead}")
            valid = False
        if isinstance(event, yaml.AliasEvent):
            return Node(place, None, sound=False)
        if event.tag is not None and event.tag != "!":
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._report(line, key, f"the tag {shorten(tag)} is not supported; write the plain value")
            valid = False
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, key, place, valid)
        if depth >= MAX_DEPTH:
            self._report(line, "file", f"is nested deeper than {MAX_DEPTH} levels, which no {self.kind.noun} needs")
            raise _Stop
        if isinstance(event, yaml.SequenceStartEvent):
            return Node(place, self._sequence(key, depth), sound=valid)
        return Node(place, self._mapping("" if key == "file" else key, depth), sound=valid)

    def _sequence(self, key: str, depth: int) -> list[Node]:
        items: list[Node] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self._node(event, f"{key}[{len(items)}]", depth + 1))
        return items

    def _mapping(self, key: str, depth: int) -> dict[str, Node]:
        members: dict[str, Node] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            place = Place(self.name, self._line(event.start_mark))
            name = self._key(event, key, depth)
            child = self._node(next(self.events), join(key, name), depth + 1, place)
            if name in members:
                what = f"is given twice; the first is on line {members[name].place.line}"
                self._report(place.line, join(key, name), what)
            elif name:
                members[name] = child
        return members

    def _key(self, event: Any, parent: str, depth: int) -> str:
        """The name of a member, or "" if it was refused."""
        where = parent or "file"
        line = self._line(event.start_mark)
        node = self._node(event, where, depth + 1)
        if not node.sound:
            return ""
        if not isinstance(node.value, str) or not node.value:
            self._report(line, where, f"{describe(node)} cannot be a key; keys are plain words")
            return ""
        if node.value == "<<" and event.style is None:
            instead = self.kind.instead or "write the keys out"
            self._report(line, where, f"the merge key << is not supported; {instead}")
            return ""
        return node.value

    def _scalar(self, event: Any, key: str, place: Place, valid: bool) -> Node:
        text = event.value
        line = self._line(event.start_mark)
        if not valid:
            return Node(place, None, text, sound=False)
        if bad := unsafe(text):
            self._report(line, key, f"holds the character {_code(bad)}, which is not text")
            return Node(place, None, text, sound=False)
        if event.style is not None or event.tag == "!":
            return Node(place, text, text)
        value, trouble = self._plain(text)
        if trouble:
            self._report(line, key, trouble)
        return Node(place, value, text, sound=not trouble)

    def _plain(self, text: str) -> tuple[Any, str]:
        """The value of an unquoted scalar, and a problem if YAML readers would disagree about it."""
        if text in _NULL:
            return None, ""
        if text in _TRUE or text in _FALSE:
            return text in _TRUE, ""
        shown = shorten(text)
        if _INT.fullmatch(text) or _FLOAT.fullmatch(text):
            if len(text) > MAX_DIGITS:
                return None, f"{shown} is too long for a number; if it is text, write it in quotes"
            return (int(text) if _INT.fullmatch(text) else float(text)), ""
        if _DAY.fullmatch(text):
            return text, ""
        tag = self.resolver.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
        kind = tag.rpartition(":")[2]
        if kind == "bool":
            return (
                None,
                f"{shown} means true or false to some YAML readers; write true or false, or, for text, '{shown}'",
            )
        if kind == "float" and text.lower().lstrip("+-") in (".nan", ".inf"):
            return None, f"{shown} is not a usable number; write a finite one"
        if kind in ("int", "float", "timestamp") or _OCTAL.fullmatch(text):
            noun = "a date" if kind == "timestamp" else "a number"
            return None, f"{shown} is {noun} to some YAML readers; write it in quotes: '{shown}'"
        return text, ""


def _code(character: int | str) -> str:
    code = character if isinstance(character, int) else ord(character[0])
    return f"U+{code:04X}"
