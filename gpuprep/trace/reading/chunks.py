"""Cuts the array `traceEvents` of a large JSON file into pieces, each of whole events, and decodes them.

A piece ends where one event ends and the next begins: `},{"ph"`, with any key of an event and any blanks. In valid JSON
these bytes never stand inside a text, for there a quote has a backslash. They may stand in a list of objects inside an
event; such a piece does not decode, and an earlier border is taken. What still does not decode goes event by event
through trace/reading/repair, which mends or counts. Nothing is dropped without a note.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from typing import Any, cast

import msgspec

from gpuprep.errors import UsageError
from gpuprep.trace.reading import files, repair
from gpuprep.trace.reading.events import (
    FAULTS,
    AnyEvent,
    decode_events,
    decode_exact,
    decode_one,
    decode_one_exact,
    decode_raw,
    lenient,
)
from gpuprep.trace.reading.files import Source

PIECE = 4 << 20  # bytes decoded at once
MOST_EVENT = 64 << 20  # bytes of one event, and of what stands before and after the events
MOST_BRACKETS = 1 << 22  # of what is decoded at once and longer than PIECE: each is an object in memory
EXACT_BELOW = 2**43  # µs, 101 days: up to here a double keeps three decimals, for half its last bit is below 0.5 ns
_NO_TIME = 2**52  # µs, 140 years since 1970: beyond that it is garbage, and other times are kept
_BORDER = re.compile(rb'\}\s*,\s*\{\s*"(?:ph|cat|name|pid|tid|ts|dur|args|id|s|bp)"\s*:')
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # half a character: msgspec treats it as the end of the data
_ARRAYS = 64  # places that may begin the events
_MENDED = 8 << 20  # bytes of what stands outside of the events, where it is mended
_SAMPLE = 16
_FEW = 4096  # events that are all looked at: names of threads, without decimals, may come first
_EARLIER = 16  # borders tried backwards before a piece is read slowly, event by event


class Part(Enum):
    WHOLE = "whole"
    FIRST = "first"  # up to a guessed border
    SECOND = "second"  # from there


class NoBorder(Exception):
    """The place where a file was cut is not between two events."""


class Pieces:
    """Reads `source` once. `header` has the rest of the file's object after the last batch.

    Of the FIRST part NoBorder is raised where it does not end between two events.
    """

    def __init__(self, source: Source, notes: Counter[str], name: str, part: Part = Part.WHOLE) -> None:
        self.source = source
        self.part = part
        self.notes = notes
        self.name = name
        self.header: dict[str, Any] = {}
        self.bare_list = False
        self.exact = False  # times are decimals of µs since 1970: read as text
        self.bytes = 0
        self._head = b""
        self._tail = bytearray()
        self._ended = False  # the array's end was seen

    def batches(self) -> Iterator[list[AnyEvent]]:
        buffer = self._begin()
        while True:
            last = not (more := self._read(PIECE))
            buffer += more
            if last:
                break
            batch, buffer = self._decode(buffer)
            yield batch
            if self._ended:
                break
            if len(buffer) > MOST_EVENT:
                batch, buffer = self._long(buffer)
                yield batch
                break
        if self.part is Part.FIRST:
            yield self._until_border(buffer)
        elif self._ended:
            self._rest(buffer)
        else:
            yield from self._last(buffer)
        self._read_header()

    def _long(self, buffer: bytes) -> tuple[list[AnyEvent], bytes]:
        """Accept long data after all events; raise UsageError for a single long event."""
        batch, buffer = self._closing(buffer)
        if not self._ended:
            raise UsageError(
                f"{self.name}: no event ends within {MOST_EVENT >> 20} MiB; this is no trace of PyTorch's profiler"
            )
        return batch, buffer

    def _read(self, most: int) -> bytes:
        got = self.source.read(most)
        self.bytes += len(got)
        return got

    def _begin(self) -> bytes:
        """Up to the first event; what stands before is kept as the head."""
        buffer = self._read(PIECE)
        if self.part is Part.SECOND:
            return buffer
        buffer = buffer.removeprefix(b"\xef\xbb\xbf").lstrip()
        if not buffer:
            raise UsageError(f"{self.name}: the file is empty", "give the .json or .json.gz of a PyTorch profiler")
        if buffer[:1] == b"[":
            self.bare_list = True
            return buffer[1:]
        if buffer[:1] != b"{":
            raise files.refusal(self.name, buffer[: files.ENOUGH])
        searched = tried = 0
        while True:
            for match in _ARRAY.finditer(buffer, searched):
                tried += 1
                if tried > _ARRAYS:
                    raise files.refusal(self.name, buffer[: files.ENOUGH])
                # Inside a text or a deeper object the part before would not be an object when closed here.
                if _object(buffer[: match.end()] + b"]}") is not None:
                    self._head = buffer[: match.end()] + b"]}"
                    return buffer[match.end() :]
            searched = max(0, len(buffer) - 64)
            more = self._read(PIECE)
            if not more or len(buffer) > MOST_EVENT:
                raise files.refusal(self.name, buffer[: files.ENOUGH])
            buffer += more

    @staticmethod
    def _border(buffer: bytes, before: int) -> int:
        """Where the last event before `before` begins, or 0. Looked for backwards in windows that grow."""
        window = 1 << 14
        while True:
            start = max(0, before - window)
            match = None
            for match in _BORDER.finditer(buffer, start, before):  # noqa: B007  the last one is wanted
                pass
            if match:
                return buffer.index(b"{", match.start())
            if not start:
                return 0
            window *= 8

    def _decode(self, buffer: bytes, last: bool = False) -> tuple[list[AnyEvent], bytes]:
        """Events of `buffer`, which begins with an event, and what remains, which begins with one, too.

        None are found where no event ends in it; then more must be read.
        """
        border = len(buffer)
        for _ in range(_EARLIER):
            border = self._border(buffer, border)
            if not border:
                return [], buffer
            piece = memoryview(buffer)[: buffer.rindex(b",", 0, border)]
            events, error = self._typed(piece)
            if events is not None:
                return events, buffer[border:]
            if end := _TRAILING.search(error):
                return self._end(buffer, int(end[1]))
            if "truncated" not in error or _SURROGATE.search(piece):
                return self._slowly(buffer, last)
        return self._slowly(buffer, last) if last or len(buffer) > MOST_EVENT // 2 else ([], buffer)

    def _end(self, buffer: bytes, trailing: int) -> tuple[list[AnyEvent], bytes]:
        """The array ended inside the piece. `trailing` counts the bracket that is put before it."""
        end = trailing - 1  # what follows the closing bracket; blanks may have been skipped
        closing = buffer.rindex(b"]", 0, end)
        self._ended = True
        events, _ = self._typed(buffer[:closing])
        if events is None:
            events, rest = self._slowly(buffer[:closing], last=True)
            events += repair.mended(rest, self._whole_events, self.notes) if rest else []
        return events, buffer[closing + 1 :]

    def _until_border(self, buffer: bytes) -> list[AnyEvent]:
        """All events of the end of the first part. Valid JSON up to here is the proof that it ends between two."""
        events = None if self._ended else self._typed(buffer.rstrip().removesuffix(b","))[0]
        if events is None:
            raise NoBorder
        return events

    def _last(self, buffer: bytes) -> Iterator[list[AnyEvent]]:
        """The file's last part: events, the end of the array, and what stands behind it."""
        before = len(buffer) + 1
        while not self._ended and len(buffer) < before:
            before = len(buffer)
            batch, buffer = self._decode(buffer, last=True)
            yield batch
        if not self._ended:
            batch, buffer = self._closing(buffer)
            yield batch
        self._rest(buffer)

    def _closing(self, buffer: bytes) -> tuple[list[AnyEvent], bytes]:
        """Raises UsageError where a small file (gzip) would become gigabytes of empty objects."""
        if buffer.count(b"{") + buffer.count(b"[") > MOST_BRACKETS:
            raise UsageError(f"{self.name}: millions of lists or objects that are no events", files.READABLE)
        try:
            # The array is complete and nothing follows: a bare list.
            text = b"[" + buffer
            kept = self._kept((decode_exact if self.exact else decode_events)(text), text)
            self._ended = True
            return kept, b""
        except FAULTS as error:
            if end := _TRAILING.search(str(error)):
                return self._end(buffer, int(end[1]))
        events, rest, ended = repair.last(buffer, self._whole_events, self.notes)
        self._ended = ended
        if not ended:
            self.notes["torn"] += 1
        return events, rest

    def _typed(self, piece: bytes | memoryview) -> tuple[list[AnyEvent] | None, str]:
        """Decoded, or why not."""
        text = b"".join((b"[", piece, b"]"))
        try:
            return self._kept((decode_exact if self.exact else decode_events)(text), text), ""
        except msgspec.ValidationError:
            try:
                raw = decode_raw(text)
            except FAULTS:
                return None, "malformed"
            return self._leniently(raw), ""
        except FAULTS as error:
            return None, str(error)

    def _kept(self, events: Any, text: bytes) -> list[AnyEvent]:
        """`events` of `text`; read again, with times as text, where those are finer than a double.

        A profiler that writes decimals writes them for all times, so of many events some are looked at.
        """
        if self._finer(events):
            self.exact = True
            return cast("list[AnyEvent]", decode_exact(text))
        return cast("list[AnyEvent]", events)

    def _finer(self, events: list[AnyEvent]) -> bool:
        some = events if len(events) < _FEW else events[::_SAMPLE]
        return not self.exact and any(type(event.ts) is float and EXACT_BELOW < event.ts < _NO_TIME for event in some)

    def _leniently(self, raw: list[msgspec.Raw]) -> list[AnyEvent]:
        """Events of which some have odd types. The others are read as always: because of one odd event, all other times
        must not lose their decimals."""
        decode = decode_one_exact if self.exact else decode_one
        kept: list[AnyEvent] = []
        for raw_event in raw:
            try:
                kept.append(decode(raw_event))
            except FAULTS:
                event = lenient(raw_event, self.exact)
                if event is not None:
                    kept.append(event)
        if self._finer(kept):
            self.exact = True
            return self._leniently(raw)
        self._count("unreadable_events", len(raw) - len(kept))
        return kept

    def _count(self, note: str, count: int) -> None:
        if count:
            self.notes[note] += count

    def _slowly(self, buffer: bytes, last: bool) -> tuple[list[AnyEvent], bytes]:
        self.notes["slow_pieces"] += 1
        return repair.each(buffer, self._whole_events, self.notes, last)

    def _whole_events(self, text: bytes) -> list[AnyEvent] | None:
        """Whole events, with commas between; None where they do not decode."""
        return self._typed(text)[0]

    def _rest(self, buffer: bytes) -> None:
        self._tail += buffer
        while more := self._read(PIECE):
            if len(self._tail) > MOST_EVENT:
                self.notes["long_tail"] += 1
                return
            self._tail += more

    def _read_header(self) -> None:
        if self.source.torn and not self.notes["torn"]:
            self.notes["torn"] += 1
        if self.source.garbage:
            self.notes["damaged_gzip"] += 1
        if self.bare_list:
            self.notes["bare_list"] += 1
            return
        self.header = _object(self._head) or {}
        tail = bytes(self._tail).strip()
        if tail and tail != b"}":
            trailer = _object(b'{"":0' + tail) if tail[:1] == b"," else None
            if trailer is None:
                self._count("unreadable_end", int(self._ended))
            else:
                self.header.update(trailer)


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        decoded = msgspec.json.decode(text)
    except FAULTS:
        try:
            decoded = msgspec.json.decode(repair.whole(text)) if len(text) <= _MENDED else None
        except FAULTS:
            return None
    return decoded if isinstance(decoded, dict) else None
