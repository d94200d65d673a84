"""What a night's record says of the speed beyond that night."""

from __future__ import annotations

import dataclasses

import pytest
from nightsfortests import facts, result

from gpuprep import records
from gpuprep.nightly import lastmeasured

MONDAY, TUESDAY, SUNDAY = (f"2026-11-{day}T02:30:00+00:00" for day in (16, 17, 22))
BEFORE = result(drift=records.DriftFacts(probe_asked_since=MONDAY, probe_measured_at=TUESDAY))


def test_a_first_night() -> None:
    assert lastmeasured.carried(None, facts(), SUNDAY, "") == (SUNDAY, "")
    assert lastmeasured.carried(None, None, SUNDAY, SUNDAY) == (SUNDAY, SUNDAY)
    assert lastmeasured.carried(result(), facts(), SUNDAY, "") == (SUNDAY, ""), "by an agent that did not note it"


def test_it_is_carried_on_until_the_next_that_measures() -> None:
    assert lastmeasured.carried(BEFORE, facts(), SUNDAY, "") == (MONDAY, TUESDAY)
    assert lastmeasured.carried(BEFORE, facts(), SUNDAY, SUNDAY) == (MONDAY, SUNDAY)


@pytest.mark.parametrize("spoiled", ["2999-01-01T00:00:00+00:00", "yesterday", ""])
def test_what_is_no_moment_or_of_a_time_to_come_is_forgotten(spoiled: str) -> None:
    """A clock that was wrong for one night must not hide for years that nothing is measured."""
    before = result(drift=records.DriftFacts(probe_asked_since=spoiled, probe_measured_at=spoiled))
    assert lastmeasured.carried(before, facts(), SUNDAY, "") == (SUNDAY, "")


def test_what_another_machine_measured_is_not_ours() -> None:
    here = facts()
    elsewhere = dataclasses.replace(
        here, hostname="another", kernel=dataclasses.replace(here.kernel, boot_id="another boot")
    )
    before = dataclasses.replace(BEFORE, after=elsewhere)
    assert lastmeasured.carried(before, here, SUNDAY, "") == (SUNDAY, "")
    assert lastmeasured.carried(before, None, SUNDAY, "") == (MONDAY, TUESDAY), "without facts nobody can tell"
    assert lastmeasured.carried(dataclasses.replace(BEFORE, after=here), here, SUNDAY, "") == (MONDAY, TUESDAY)
