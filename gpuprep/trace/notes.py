"""The notes of a profile in words: sentences by key, in notes.yml."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from gpuprep.catalogue import datafile


def sentence(key: str, count: int) -> str:
    """ "12 events with corrupt times or durations left out". KeyError for a key without a sentence."""
    words = _sentences()[key]
    if "text" in words:
        return words["text"]
    return words["one"] if count == 1 else words["many"].format(count=count)


def keys() -> frozenset[str]:
    return frozenset(_sentences())


@cache
def _sentences() -> dict[str, dict[str, str]]:
    return datafile.read(Path(__file__).with_name("notes.yml"))
