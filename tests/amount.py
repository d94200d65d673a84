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
    return [
        case if place < number else pytest.param(case, marks=pytest.mark.only_all) for place, case in enumerate(cases)
    ]
