"""Where does a pattern of a rule stand in a long text? In a time that no text can make long.

There are more than a thousand patterns, and a text may have a million characters and be made to slow them down. So a
pattern is searched only in the lines around a word that it must have, and it is cut at `[^\\n]*` ("later on the line"):
its parts are searched one after the other, never going back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

SPACE = re.compile(r"(\[(?:\\.|[^\]])*\])|\\s\+| (?![?*+{])")  # of a pattern, outside of [...]
# The kernel wraps its sentences; each line then begins with a time stamp and NVRM.
GAP = r"(?:\s|\n[^\n]{0,60}?NVRM:){1,100}"
LATER = "[^\n]*"
SHORTEST_WORD = 3
FEW_LINES, MANY_LINES = 6, 32  # that a wrapped sentence, and a pattern with line ends of its own, may have
LONGEST_PART = 300  # characters of a wrapped sentence that begins on a line, beyond its end
MOST_SEARCHED = 1 << 18  # characters for one pattern: half of them at the beginning, half at the end
LOWER = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}  # str.lower may change a text's length


@dataclass(frozen=True)
class Found:
    """Where a pattern stands in a text, and what its groups are."""

    pattern: Pattern
    start: int
    end: int
    groups: dict[str, str]


@dataclass(frozen=True)
class Text:
    """A text to search in, and its small letters."""

    text: str
    small: str

    @classmethod
    def of(cls, text: str) -> Text:
        return cls(text, text.translate(LOWER))


@dataclass(frozen=True, eq=False)
class Pattern:
    source: str
    words: tuple[str, ...]  # one of them is in each text that the pattern finds; (): not known
    lines: int

    @cached_property
    def parts(self) -> tuple[re.Pattern[str], ...]:
        """Compiled when a text has one of the words: to compile all takes longer than to examine a machine."""
        return tuple(re.compile(SPACE.sub(lambda part: part[1] or GAP, part), re.I) for part in _parts(self.source))

    def search(self, text: Text) -> Found | None:
        if self.words and not any(word in text.small for word in self.words):
            return None
        for start, end in _windows(self, text):
            if found := self._search(text.text, start, end):
                return found
        return None

    def _search(self, text: str, start: int, end: int) -> Found | None:
        first, *others = self.parts
        while match := first.search(text, start, end):
            groups, last = _groups(match), match
            for part in others:
                line_end = _line_end(text, last.end(), end)
                following = part.search(text, last.end(), min(end, line_end + LONGEST_PART))
                if following is None or following.start() > line_end:
                    break
                groups, last = groups | _groups(following), following
            else:
                return Found(self, match.start(), last.end(), groups)
            # What does not follow the first match of this line does not follow a later one.
            start = max(_line_end(text, match.start(), end) + 1, match.end())
            if start >= end:
                return None
        return None


def pattern(text: str) -> Pattern:
    """`text`: a regular expression; a space in it is any white space, also the end of a line."""
    return Pattern(text, _words(text), MANY_LINES if _has_line_ends(text) else FEW_LINES)


def _has_line_ends(text: str) -> bool:
    return r"\n" in text.replace(r"[^\n]", "") or r"[\s\S]" in text


def _groups(match: re.Match[str]) -> dict[str, str]:
    return {name: value for name, value in match.groupdict().items() if value}


def _line_end(text: str, start: int, end: int) -> int:
    found = text.find("\n", start, end)
    return end if found < 0 else found


def _windows(wanted: Pattern, text: Text) -> Iterator[tuple[int, int]]:
    """The places to look at: lines around the words, at most MOST_SEARCHED characters."""
    whole = len(text.text)
    places = [(0, whole)] if not wanted.words else list(_around(wanted, text))
    if sum(end - start for start, end in places) <= MOST_SEARCHED:
        yield from places
        return
    half = MOST_SEARCHED // 2
    yield from _first(places, half)
    yield from _first([(-end, -start) for start, end in reversed(places)], half, mirrored=True)


def _first(places: Sequence[tuple[int, int]], most: int, *, mirrored: bool = False) -> Iterator[tuple[int, int]]:
    for start, end in places:
        if most <= 0:
            return
        end = min(end, start + most)
        most -= end - start
        yield (-end, -start) if mirrored else (start, end)


def _around(wanted: Pattern, text: Text) -> Iterator[tuple[int, int]]:
    small = text.small
    start = end = 0
    for at in _places(wanted.words, small):
        if at < end:
            continue
        before, after = at, at
        for _ in range(wanted.lines):
            before = small.rfind("\n", 0, max(before, 0))
            if before < 0:
                break
        for _ in range(wanted.lines):
            after = small.find("\n", after + 1)
            if after < 0:
                after = len(small)
                break
        if max(before, 0) <= end and end:
            end = after
            continue
        if end:
            yield start, end
        start, end = max(before, 0), after
    if end:
        yield start, end


def _places(words: Sequence[str], small: str) -> Iterator[int]:
    found = [(small.find(word), word) for word in words]
    while found := [each for each in found if each[0] >= 0]:
        at, word = min(found)
        yield at
        found.remove((at, word))
        found.append((small.find(word, at + 1), word))


# ---------------------------------------------------------------- reading a regular expression

TOKEN = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?(?:P<\w+>|P=\w+|[:=!]|<[=!]))?|[)|.^$ ]|[*+?]\??|\{[\d,]+\}\??|.", re.S
)


def _parts(text: str) -> list[str]:
    """`text` cut at `[^\\n]*` outside of groups; whole if it has alternatives, line ends or a reference."""
    parts, depth, last = [""], 0, ""
    for token in TOKEN.findall(text):
        depth += token.startswith("(") - (token == ")")
        if depth == 0 and token == "|":
            return [text]
        if depth == 0 and token in ("*", "*?") and last == r"[^\n]":
            parts[-1] = parts[-1].removesuffix(last)
            parts.append("")
        else:
            parts[-1] += token
        last = token
    parts = [part for number, part in enumerate(parts) if part or number == 0]
    if "(?P=" in text or _has_line_ends(text) or not parts[0]:
        return [text]
    return parts


def _words(text: str) -> tuple[str, ...]:
    """The best words of which each text that `text` finds has one; () if there are none."""
    tokens = TOKEN.findall(text)
    return _of_alternatives(tokens, 0)[0]


def _of_alternatives(tokens: Sequence[str], at: int) -> tuple[tuple[str, ...], int]:
    """The words of alternatives that begin at `at`, and where they end."""
    branches: list[tuple[str, ...]] = []
    best: tuple[str, ...] = ()
    run = ""
    while True:
        token = tokens[at] if at < len(tokens) else ")"
        after = tokens[at + 1] if at + 1 < len(tokens) else ""
        optional = after[:1] in ("*", "?") or after.startswith(("{0", "{,"))
        letter = _letter(token)
        if letter and not optional:
            run += letter
        if not letter or optional or after[:1] in ("+", "{"):
            best, run = _better(best, (run,)), ""
        if token.startswith("("):
            inner, at = _of_alternatives(tokens, at + 1)
            after = tokens[at + 1] if at + 1 < len(tokens) else ""
            may_lack = after[:1] in ("*", "?") or after.startswith(("{0", "{,"))
            if not may_lack and (token in ("(", "(?:", "(?=") or token.startswith("(?P<")):
                best = _better(best, inner)
        elif token in ("|", ")"):
            branches.append(best)
            best = ()
            if token == ")":
                break
        at += 1
    return (tuple(word for branch in branches for word in branch) if all(branches) else ()), at


def _letter(token: str) -> str:
    """The letter that a token stands for; "" if it stands for several, or none."""
    if len(token) == 2 and token[0] == "\\":
        return "" if token[1].isalnum() else token[1]
    return token.lower() if len(token) == 1 and token not in "().^$| *+?" else ""


def _better(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """That of two sets of words whose shortest word is longer."""
    if min(map(len, other), default=0) < SHORTEST_WORD:
        return one
    return other if min(map(len, other)) > min(map(len, one), default=0) else one
