"""Mends the invalid JSON that PyTorch's profiler has written over the years, event by event. Counts what it mends.

Known faults: raw control characters and bytes that are no UTF-8 in names, quotes and backslashes without a backslash
(pytorch issues 113001, 130622; kineto issue 336), bare N/A, inf and nan as values.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
Decode = Callable[[bytes], "list[T] | None"]

# Hand-edited JSON may have no comma between two events, or two.
_BETWEEN = re.compile(rb'(?<=\})([\s,]*)(?=\{\s*"(?:ph|cat|name|pid|tid|ts|dur|args|id|s|bp)"\s*:)')
_END = re.compile(rb"\}[\s,]*\]")
_END_OF_ARGS = re.compile(rb"\}\s*\}[\s,]*\]")
_PHASE = re.compile(rb'"ph"\s*:')
_JOINED = 4  # parts that are put together again where a border stood inside an event
_BLANK = bytes(0x20 if code < 0x20 else code for code in range(256))
_BARE = re.compile(
    rb"([:\[,]\s*)(?:N/A|[-+]?inf(?:inity)?|[-+]?nan(?:\([^)]{0,20}\))?|[-+]?1\.#(?:INF|IND|QNAN|SNAN)\d{0,4}|None|undefined)"
    rb"(?=\s*[,\]}])",
    re.I,
)
_BACKSLASH = re.compile(
    rb'\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|["\\/bfnrt])|\\'
)
# A text ends at a quote that is followed by what may follow a text, and nowhere else.
_TEXT_END = re.compile(rb'"(?=\s*(?::|\}|\]|,\s*["{\[\-0-9tfnN]|$))')
_LONGEST_TEXT = 1 << 20
_ENDS = 64  # places that may be the end of the events


def each(buffer: bytes, decode: Decode[T], notes: Counter[str], last: bool) -> tuple[list[T], bytes]:
    """Events of `buffer`, mended where that helps, and its last parts that need what follows them.

    A border may stand in a list of objects inside an event, so some parts are kept; of the `last` buffer one.
    """
    parts = _BETWEEN.split(buffer)
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    events: list[T] = []
    place = 0
    while place < len(parts) - (1 if last else 2 * _JOINED):
        for joined in range(1, 2 * _JOINED, 2):
            decoded = decode(buffer[ends[place] : ends[min(place + joined, len(parts))]])
            if decoded is not None:
                break
        else:
            joined = 1
            decoded = mended(parts[place], decode, notes)
        events += decoded
        place += joined + 1
    return events, buffer[ends[min(place, len(parts))] :]


def mended(part: bytes, decode: Decode[T], notes: Counter[str]) -> list[T]:
    events = decode(whole(part))
    if events is None:
        events = decode(quotes(whole(part)))
    if events is None:
        notes["unreadable_events"] += max(1, len(_PHASE.findall(part)))
        return []
    notes["mended_events"] += len(events)
    return events


def whole(text: bytes) -> bytes:
    """`text` as UTF-8, control characters as blanks, bare words as null, lone backslashes doubled."""
    text = text.decode("utf-8", "replace").encode().translate(_BLANK)
    text = _BACKSLASH.sub(lambda found: found[0] if len(found[0]) > 1 else b"\\\\", text)
    return _BARE.sub(rb"\1null", text)


def quotes(text: bytes) -> bytes:
    """A backslash before each quote that stands inside a text."""
    parts: list[bytes] = []
    place = 0
    while (begin := text.find(b'"', place)) >= 0:
        end = _TEXT_END.search(text, begin + 1, begin + _LONGEST_TEXT)
        while end and _escaped(text, end.start()):
            end = _TEXT_END.search(text, end.end(), begin + _LONGEST_TEXT)
        if not end:
            break
        inside = re.sub(rb'(?<!\\)((?:\\\\)*)"', rb'\1\\"', text[begin + 1 : end.start()])
        parts += [text[place : begin + 1], inside, b'"']
        place = end.end()
    return b"".join([*parts, text[place:]])


def _escaped(text: bytes, place: int) -> bool:
    before = place
    while before and text[before - 1 : before] == b"\\":
        before -= 1
    return bool((place - before) % 2)


def last(buffer: bytes, decode: Decode[T], notes: Counter[str]) -> tuple[list[T], bytes, bool]:
    """The events of a buffer that is torn, or that does not decode, what follows them, and whether their end was seen.

    The array's end is looked for at each `}]` or `]` at the start, until the part before decodes, mended or not. Of a
    torn file the last event may be whole, although a comma or some letters of the next one follow.
    """
    events, buffer = each(buffer, decode, notes, last=True)
    if buffer.lstrip()[:1] == b"]":
        return events, buffer.lstrip()[1:], True
    for end in itertools.islice(_END.finditer(buffer[:_LONGEST_TEXT]), _ENDS):
        part = buffer[: end.start() + 1]
        for attempt in (part, whole(part), quotes(whole(part))):
            decoded = decode(attempt)
            if decoded is not None:
                if attempt is not part:
                    notes["mended_events"] += 1
                return events + decoded, buffer[end.end() :], True
    if b"{" not in buffer and b"]" in buffer:  # a list of something else
        return events, buffer[buffer.index(b"]") + 1 :], True
    decoded = decode(buffer[: buffer.rfind(b"}") + 1])
    if decoded is None and (end_of_args := _END_OF_ARGS.search(buffer[:_LONGEST_TEXT])):
        notes["unreadable_events"] += 1
        return events, buffer[end_of_args.end() :], True
    return events + (decoded or []), b"", False
