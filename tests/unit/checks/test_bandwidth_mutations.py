"""Real bandwidth records of H200 machines, one figure changed at a time: none keeps its PASS."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from bandwidths_for_tests import bad, judged
from places import TESTS

from gpuprep import records

RECORDS = TESTS / "cases" / "records"
GONE = object()
NO_NUMBERS = (GONE, None, "fast", math.nan, math.inf, -math.inf, {"missing": "command_failed"})
FACTORS = (-1.0, 0.0, 0.5, 0.7, 0.8, 0.85, 1.15, 1.5, 10.0, 1e6, 1e16)
SPEEDS = ("copy_gb_per_s", "read_gb_per_s", "triad_gb_per_s", "h2d_gb_per_s", "d2h_gb_per_s")
CLOCKS = {"memory_clock_mhz": FACTORS, "graphics_clock_mhz": (-1.0, 0.0, 1.15, 10.0, 1e16)}
LINK = {"generation": (0, 1, 3, 4, 6, 9), "width": (0, 1, 4, 8, 12, 32)}


def record(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDS / f"{name}.json").read_text())["values"]
    return found


def changed(values: dict[str, Any], path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    whole = copy.deepcopy(values)
    inner: Any = whole
    for part in path[:-1]:
        inner = inner[part]
    if value is GONE:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return whole


def changes(values: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], object]]:
    for index, gpu in enumerate(values["gpus"]):
        for name in SPEEDS:
            yield from ((("gpus", index, name), value) for value in (*NO_NUMBERS, *(gpu[name] * f for f in FACTORS)))
        for name, factors in CLOCKS.items():
            yield from ((("gpus", index, name), value) for value in (*NO_NUMBERS, *(gpu[name] * f for f in factors)))
        for name, several in LINK.items():
            yield from ((("gpus", index, "pcie", name), value) for value in (*NO_NUMBERS, *several))
        reasons = (*NO_NUMBERS, 8, 0x20, 0x40, 0x80, -1, 1e12)
        yield from ((("gpus", index, "event_reasons"), value) for value in reasons)
        users = (GONE, None, "nobody", {"missing": "no_permission"}, [{"pid": 7, "name": "python3"}], [3])
        yield from ((("gpus", index, "other_processes"), value) for value in users)
        yield from ((("gpus", index, "error"), value) for value in ("lost", "wrong", {"missing": "?"}))
    for index, pair in enumerate(values["peers"]):
        speeds = (pair["gb_per_s"] * factor for factor in FACTORS)
        yield from ((("peers", index, "gb_per_s"), value) for value in (*NO_NUMBERS, *speeds))
        yield from ((("peers", index, "nvlinks"), value) for value in (*NO_NUMBERS, -1, 0, 6, 9, 12, 17, 17.5, 19, 1e6))
        yield from ((("peers", index, "can_access"), value) for value in (GONE, None, False, "yes"))
        yield from ((("peers", index, name), value) for name in ("from", "to") for value in (GONE, 7, None))
        yield ("peers", index), GONE


@pytest.mark.parametrize(("name", "least"), [("h200-bandwidth", 140), ("h200x2-bandwidth", 350)])
def test_no_changed_figure_keeps_the_pass(name: str, least: int) -> None:
    values = record(name)
    assert bad(judged(values, "h200")) == {}
    every = list(changes(values))
    kept = [(path, value) for path, value in every if not bad(judged(changed(values, path, value), "h200"))]
    assert kept == []
    assert len(every) >= least


def test_what_is_no_number_is_never_a_fault_of_the_gpu() -> None:
    values = record("h200x2-bandwidth")
    for path, value in changes(values):
        if value is GONE or (isinstance(value, float) and not math.isfinite(value)):
            assert records.Status.FAIL not in bad(judged(changed(values, path, value), "h200")).values(), (path, value)
