"""Commands that are cut off, and typed again: a few fixed rounds of `make chaos` (tests/support/chaos.py)."""

from __future__ import annotations

import chaos
import finished
import pytest
from machines import Finished

pytestmark = pytest.mark.e2e

SEED = 23


@pytest.fixture(scope="module")
def played(from_nothing: Finished) -> chaos.Chaos:
    assert from_nothing.machine
    return chaos.Chaos(SEED, finished.disk())


@pytest.mark.parametrize(("command", "kind"), [("tune", "power-unwritten"), ("fix", "kill")])
def test_the_same_command_ends_as_if_nothing_had_happened(played: chaos.Chaos, command: str, kind: str) -> None:
    result = played.play(chaos.planned(SEED, 1, command, "", kind))
    assert result.lost == [], chaos.told(result)
