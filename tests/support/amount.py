"""How much the tests try: `make test` takes minutes, `make test-all` (GPUPREP_TEST_ALL=1) hours."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

ALL = os.environ.get("GPUPREP_TEST_ALL") == "1"


def examples(number: int) -> int:
    """So many examples of a property in `make test-all`; a third of them in `make test`, and at least ten."""
    return number if ALL else max(10, number // 3)


def few(cases: Iterable[Any], number: int) -> list[Any]:
    """Cases of one parameter: the first `number` of them in `make test`, all in `make test-all`."""
    return list(cases) if ALL else list(cases)[:number]


def third(cases: Iterable[Any]) -> list[Any]:
    """Cases of one kind, such as recorded files: every third of them in `make test`, all in `make test-all`."""
    return list(cases) if ALL else list(cases)[::3]


def case(values: Any, daily: bool) -> Any:
    """A case of parametrize(), in `make test` too if `daily`. A tuple has a value for each of several parameters."""
    each = values if isinstance(values, tuple) else (values,)
    return pytest.param(*each, marks=() if daily else pytest.mark.only_all)
