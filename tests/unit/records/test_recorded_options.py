"""Options of recorded runs, of other versions and of files: what cannot be read never asks less of a run."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gpuprep.records import recorded_options
from gpuprep.workflows import runs


def test_the_options_of_a_run_are_read_as_they_were() -> None:
    asked = {"hosts": ["a", "b"], "inventory": "hosts.ini", "limit": "a*", "profile": "t4", "ask_become_pass": True}
    run = runs.Options(check=True, only=("driver",), probes=("gemm",), quick=True, probe="quick", fix=True, asked=asked)
    recorded = recorded_options.RecordedOptions.read(run.as_recorded())
    assert (recorded.check, recorded.deep, recorded.quick, recorded.fix) == (True, False, True, True)
    assert (recorded.only, recorded.skip, recorded.probes, recorded.probe) == (("driver",), (), ("gemm",), "quick")
    assert (recorded.whole, recorded.every_probe) == (run.whole, False) == (False, False)
    assert recorded.asked == recorded_options.Asked(("a", "b"), "hosts.ini", "a*", "t4", ask_become_pass=True)
    assert recorded_options.RecordedOptions.read(runs.Options().as_recorded()).probes == (), "recorded, and none chosen"


def test_an_older_record_has_none_of_them() -> None:
    recorded = recorded_options.RecordedOptions.read({})
    assert recorded.whole
    assert recorded.every_probe
    assert recorded.asked == recorded_options.Asked()
    none = {"probes", "check", "deep", "quick", "first_failure", "fix", "probe", "random_delay_minutes"}
    assert {name for name, value in dataclasses.asdict(recorded).items() if value is None} == none


@pytest.mark.parametrize("strange", ["driver", 1, {"a": 1}, [1], [None], True])
def test_what_cannot_be_read_asks_no_less(strange: Any) -> None:
    names = ("only", "skip", "probes", "check", "quick", "first_failure", "fix", "probe", "random_delay_minutes")
    recorded = recorded_options.RecordedOptions.read(dict.fromkeys((*names, "asked"), strange))
    assert not recorded.whole
    assert not recorded.every_probe
    assert recorded.probes == ()
    assert (recorded.only, recorded.skip, recorded.asked) == ((), (), recorded_options.Asked())
    assert recorded.random_delay_minutes in (None, 1)


@pytest.mark.parametrize("strange", [None, 1, "x", ["x"], {"hosts": "abc", "store": 1, "ask_become_pass": "yes"}])
def test_strange_words_of_the_user_are_none(strange: Any) -> None:
    assert recorded_options.RecordedOptions.read({"asked": strange}).asked == recorded_options.Asked()
