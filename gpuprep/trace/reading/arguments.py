"""What an op was called with: raw JSON of its `args` ► Arguments. Bounded, for a file may hold anything."""

from __future__ import annotations

from typing import Any

import msgspec

from gpuprep.trace.columns import NONE, Arguments
from gpuprep.trace.reading.events import OTHER, Args
from gpuprep.trace.reading.growing import ArgumentsTable

_LONGEST = 4096  # characters of a text
_LONGEST_STACK = 1 << 16
_MOST_INPUTS = 4096  # foreach optimizers have hundreds
_DEEPEST = 3  # a list of tensors is a list of lists of sizes
_FIELDS = tuple(OTHER.values())
_TITLES = tuple(OTHER)
_STACKS = {"call_stack"}


def row(args: Args, table: ArgumentsTable, stacks: bool) -> int:
    """Index of the arguments in `table`, NONE where the profile has none."""
    others = tuple(
        (place, bytes(raw))
        for place, field in enumerate(_FIELDS)
        if (raw := getattr(args, field)) and (stacks or field not in _STACKS)
    )
    key = (bytes(args.shapes), bytes(args.dtypes), bytes(args.strides), bytes(args.concrete), others)
    found = table.find(key)
    if found is not None:
        return found
    if not any(key):
        return NONE
    shapes, dtypes, strides, concrete = (_decoded(text) for text in key[:4])
    return table.add(
        key,
        Arguments(
            shapes=_sizes(shapes),
            dtypes=_texts(dtypes),
            strides=_sizes(strides),
            concrete=_texts(concrete),
            other=tuple((_TITLES[place], _text(_decoded(text), _longest(place))) for place, text in others),
        ),
    )


def _longest(place: int) -> int:
    return _LONGEST_STACK if _FIELDS[place] in _STACKS else _LONGEST


def _decoded(text: bytes) -> Any:
    if not text:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text.decode("utf-8", "replace")


def _sizes(found: Any, depth: int = 0) -> tuple[Any, ...]:
    if not isinstance(found, list) or depth > _DEEPEST:
        return ()
    return tuple(_size(entry, depth) for entry in found[:_MOST_INPUTS])


def _size(entry: Any, depth: int) -> Any:
    if isinstance(entry, list):
        return _sizes(entry, depth + 1)
    return entry if isinstance(entry, int) else -1


def _texts(found: Any) -> tuple[str, ...]:
    return tuple(_text(entry, _LONGEST) for entry in found[:_MOST_INPUTS]) if isinstance(found, list) else ()


def _text(found: Any, most: int) -> str:
    text = found if isinstance(found, str) else msgspec.json.encode(found).decode("utf-8", "replace")
    return text if len(text) <= most else text[: most - 1] + "…"


def sizes_of(text: bytes) -> tuple[Any, ...]:
    """Sizes of all inputs, of JSON; () where it is none."""
    return _sizes(_decoded(text))
