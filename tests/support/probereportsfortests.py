"""A probe as a controller has it: what it answers, what it tells while it runs, and what its judge says of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from gpuprep.agent import probereports, probes
from gpuprep.checks import probes as judges
from gpuprep.checks.evidence import Evidence
from gpuprep.desired.state import Wanted
from gpuprep.records import Finding, Missing, ProbeResult, Snapshot, Source, from_json, to_json, to_json_value
from gpuprep.remote.probereports import SoFar


@contextmanager
def listening() -> Iterator[SoFar]:
    """Every piece that is told must have a place."""
    so_far = SoFar()

    def say(mark: str, words: Mapping[str, Any]) -> None:
        if mark == probereports.MEASURED:
            assert so_far.take(json.dumps(words).encode()), words

    with mock.patch.object(probereports, "_say", say), mock.patch.object(probereports._Teller, "wanted", True):
        yield so_far


def assert_same(told: SoFar, answered: Mapping[str, Any], *parts: str) -> None:
    """All that was told is what the probe answered in the end; of `parts` (lists) everything was told."""
    whole, values = to_json_value(answered), told.values()
    assert {key: whole[key] for key in values if key in whole} == {key: values[key] for key in values if key in whole}
    assert set(parts) <= set(values)


def plain(name: str, values: object) -> dict[str, Any]:
    """What the probe `name` answered: plain data already, which a record has as it is."""
    assert isinstance(values, dict)
    text = to_json(ProbeResult(name, Source.SIMULATED, values, 1.0))
    assert from_json(ProbeResult, text).values == values
    return values


def measure(name: str, **arguments: Any) -> dict[str, Any] | Missing:
    """What the probe `name` answers to these arguments."""
    values = probes.run_probe(name, arguments).values
    assert isinstance(values, (dict, Missing))
    return values


def judged(name: str, values: dict[str, Any] | Missing, wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """The findings of the probe's own judge."""
    found: list[Finding] = judges.judge(name).findings(Evidence(wanted, snapshot, {name: values}))
    return found
