"""What an op was called with: raw JSON of its `args` ► Arguments. Bounded, for a file may hold anything."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec

from gpuprep.trace.columns import NONE, Arguments
from gpuprep.trace.reading.events import OTHER, OpArgs
from gpuprep.trace.reading.growing import ArgumentsTable

_LONGEST = 4096  # characters of a text
_LONGEST_STACK = 1 << 16
_MOST_INPUTS = 4096  # foreach optimizers have hundreds
_DEEPEST = 3  # a list of tensors is a list of lists of sizes
_TITLES, _FIELDS = tuple(OTHER), tuple(OTHER.values())
_STACK = _FIELDS.index("call_stack")
_INPUTS = 4
# One call for all fields: this is done for every op.
_values = attrgetter("shapes", "dtypes", "strides", "concrete", *_FIELDS)
_NOTHING = _values(OpArgs())


def rows(args: Sequence[OpArgs], table: ArgumentsTable, stacks: bool) -> list[int]:
    """Indices of the arguments in `table`, NONE where an op has none."""
    return [NONE if values == _NOTHING else _row(values, table, stacks) for values in map(_values, args)]


def _row(values: tuple[Any, ...], table: ArgumentsTable, stacks: bool) -> int:
    key = tuple(map(bytes, values))
    if not stacks and key[_INPUTS + _STACK]:
        key = (*key[: _INPUTS + _STACK], b"", *key[_INPUTS + _STACK + 1 :])
    row = table.find(key)
    if row is not None:
        return row
    if not any(key):
        return NONE
    shapes, dtypes, strides, concrete = (_decoded(text) for text in key[:_INPUTS])
    return table.add(
        key,
        Arguments(
            shapes=_sizes(shapes),
            dtypes=_texts(dtypes),
            strides=_sizes(strides),
            concrete=_texts(concrete),
            other=tuple(
                (_TITLES[place], _text(_decoded(text), _LONGEST_STACK if place == _STACK else _LONGEST))
                for place, text in enumerate(key[_INPUTS:])
                if text
            ),
        ),
    )


def _decoded(text: bytes) -> Any:
    if not text:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text.decode("utf-8", "replace")


def _sizes(value: Any, depth: int = 0) -> tuple[Any, ...]:
    if not isinstance(value, list) or depth > _DEEPEST:
        return ()
    return tuple(_size(entry, depth) for entry in value[:_MOST_INPUTS])


def _size(entry: Any, depth: int) -> Any:
    if isinstance(entry, list):
        return _sizes(entry, depth + 1)
    return entry if isinstance(entry, int) else -1


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_text(entry, _LONGEST) for entry in value[:_MOST_INPUTS]) if isinstance(value, list) else ()


def _text(value: Any, most: int) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode("utf-8", "replace")
    return text if len(text) <= most else text[: most - 1] + "…"


def sizes_of(text: bytes) -> tuple[Any, ...]:
    """Sizes of all inputs, of JSON; () where it is none."""
    return _sizes(_decoded(text))
