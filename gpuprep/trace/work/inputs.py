"""The recorded inputs of one op, by the names of ops.yml. What does not fit is None, never a guess. Pure."""

from __future__ import annotations

import re

from gpuprep.trace.columns import Arguments
from gpuprep.trace.work.optypes import OpType

Sizes = tuple[int, ...]
LARGEST = 2**40  # of a size: beyond it a file is damaged, or lies
MOST_DIMENSIONS = 16


class Inputs:
    def __init__(self, known: OpType, arguments: Arguments) -> None:
        self.at, self.arguments = known.at, arguments

    def sizes(self, name: str) -> Sizes | None:
        """Sizes of a tensor; None where there is none."""
        return self._whole(name, self.arguments.shapes)

    def strides(self, name: str) -> Sizes | None:
        return self._whole(name, self.arguments.strides)

    def _whole(self, name: str, every: tuple[object, ...]) -> Sizes | None:
        at = self.at.get(name)
        if at is None or at >= len(every):
            return None
        sizes = every[at]
        if not isinstance(sizes, (tuple, list)) or not 0 < len(sizes) <= MOST_DIMENSIONS:
            return None
        good = all(isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= LARGEST for size in sizes)
        return tuple(sizes) if good else None

    def has(self, name: str) -> bool:
        """Whether a tensor was given for an input that may be left out."""
        return self.sizes(name) is not None

    def text(self, name: str) -> str:
        at, concrete = self.at.get(name), self.arguments.concrete
        return "" if at is None or at >= len(concrete) else concrete[at]

    def numbers(self, name: str, many: int, default: int | None = None) -> Sizes | None:
        """ "[1, 2]" as (1, 2), and "1" as (1, 1): one number stands for all. `default`: the op has no such input."""
        if name not in self.at:
            return None if default is None else (default,) * many
        numerals = re.findall(r"-?\d{1,9}", self.text(name)[:200])
        if len(numerals) == 1:
            numerals = numerals * many
        return tuple(map(int, numerals)) if len(numerals) == many else None

    def flag(self, name: str, default: bool) -> bool | None:
        if name not in self.at:
            return default
        return {"true": True, "1": True, "false": False, "0": False}.get(self.text(name).strip().lower())

    def flags(self, name: str) -> tuple[bool, ...]:
        return tuple(word in ("true", "1") for word in re.findall(r"true|false|[01]", self.text(name)[:200].lower()))
