"""What is left of a run, by the times of earlier runs; and what a line of the live display makes of it."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records_for_tests import record

from gpuprep import records
from gpuprep.cli import running
from gpuprep.provisioning import ansible_events
from gpuprep.workflows import remaining

STEPS: tuple[ansible_events.ExpectedStep, ...] = (
    ("facts", 10.0), ("preflight", 5.0), ("driver", 100.0), ("codec", 60.0), ("gemm", 20.0),
)  # fmt: skip
NAMES = [step for step, _ in STEPS]


def ran(driver: float = 80.0, ended: str = "10:05:00", gemm: float = 20.0, whole: float = 200.0) -> records.RunRecord:
    tasks = (
        records.TaskResult("", "First", "ok", 4.0),
        records.TaskResult("gpu_preflight", "Look", "ok", 6.0),
        records.TaskResult("gpu_driver", "Build", "changed", driver),
        records.TaskResult("gpu_driver", "Load", "ok", 10.0),
    )
    return dataclasses.replace(
        record(),
        started_at="2026-11-20T10:00:00+00:00",
        ended_at=f"2026-11-20T{ended}+00:00",
        playbook=records.PlaybookResult("successful", 1, 3, 0, tasks, "", whole),
        measurements=(records.ProbeResult("gemm", records.Source.MEASURED, {}, gemm),),
    )


def test_the_steps_of_a_record_together_are_its_whole_time() -> None:
    took = remaining.durations(ran())
    assert took == {"preflight": 20.0, "driver": 180.0, "gemm": 20.0, "facts": 80.0}
    assert sum(took.values()) == 300


def test_a_run_without_ansible_has_facts_and_probes() -> None:
    assert remaining.durations(dataclasses.replace(ran(), playbook=None)) == {"gemm": 20.0, "facts": 280.0}


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1e308, 1e308])
def test_no_step_takes_longer_than_its_run_whatever_the_record_says(seconds: float) -> None:
    for made in (ran(driver=seconds), ran(gemm=seconds), ran(whole=seconds)):
        assert all(0 <= took <= 300 for took in remaining.durations(made).values())


@pytest.mark.parametrize("ended", ["", "yesterday", "10:05:61"])
def test_a_record_without_moments_tells_nothing(ended: str) -> None:
    assert remaining.durations(ran(ended=ended)) == {}


def test_the_median_of_this_host_and_of_others_only_where_it_never_had_the_step() -> None:
    ours = [ran(gemm=seconds) for seconds in (10.0, 30.0, 290.0)]
    others = [ran(gemm=1.0)]
    assert dict(remaining.expected(["gemm"], ours, others)) == {"gemm": 30.0}
    fresh = [dataclasses.replace(ran(), measurements=())]
    assert dict(remaining.expected(["gemm", "driver"], fresh, others)) == {"gemm": 1.0, "driver": 180.0}
    assert dict(remaining.expected(["codec"], ours, others)) == {"codec": None}


def test_runs_of_the_same_kind_have_the_options_that_take_time() -> None:
    made = dataclasses.replace(ran(), options={"deep": True, "reboot": False})
    assert remaining.same_kind(made, {"deep": True, "reboot": True})
    assert not remaining.same_kind(made, {"deep": True, "quick": True})
    assert not remaining.same_kind(made, {})


@pytest.mark.parametrize(
    ("spent", "at", "left"),
    [
        ({}, "facts", 195.0),
        ({"facts": 4.0}, "facts", 191.0),
        ({"facts": 40.0}, "preflight", 185.0),
        ({"facts": 4.0, "preflight": 5.0, "driver": 30.0}, "driver", 6 + 70 + 80.0),
        ({"facts": 4.0, "driver": 500.0}, "driver", 6 + 80.0),
        ({"facts": 4.0, "driver": 2.0}, "codec", 6 + 60 + 20.0),
        ({"facts": 5.0, "driver": 2.0, "codec": 3.0}, "facts", 5 + 20.0),
        ({"facts": 5.0, "driver": 2.0, "codec": 3.0, "gemm": 30.0}, "facts", 5.0),
        ({"facts": 50.0, "gemm": 30.0}, "gemm", 0.0),
    ],
)
def test_what_is_left(spent: dict[str, float], at: str, left: float) -> None:
    assert remaining.seconds_left(STEPS, spent, at) == pytest.approx(left)


def test_what_is_not_known_is_not_guessed() -> None:
    assert remaining.seconds_left((), {"facts": 3.0}, "facts") is None
    unknown: tuple[ansible_events.ExpectedStep, ...] = (("facts", 1.0), ("driver", None), ("codec", 60.0))
    assert remaining.seconds_left(unknown, {}, "facts") is None
    assert remaining.seconds_left(unknown, {"driver": 2.0}, "driver") is None
    assert remaining.seconds_left(unknown, {"facts": 1.0, "driver": 2.0}, "codec") == 60.0


@given(st.dictionaries(st.sampled_from([*NAMES, "other"]), st.floats(0, 1e6)), st.sampled_from([*NAMES, "other"]))
def test_it_is_never_negative_and_never_more_than_all(spent: dict[str, float], at: str) -> None:
    left = remaining.seconds_left(STEPS, spent, at)
    assert left is not None
    assert 0 <= left <= 195


# ---------------------------------------------------------------- a line of the display


def test_a_line_counts_down_and_says_when_it_takes_longer() -> None:
    host = running.Running("a")
    assert (host.at_work, host.time_left(0), host.what(0)) == (False, "", "")
    host.take(ansible_events.Progress("stage", "", "", "reading facts", 0.0), 100.0)
    assert (host.step, host.time_left(105.0), host.fraction(105.0)) == ("facts", "", 0.0)
    host.take(ansible_events.Progress("steps", "", "", "", 0.0, STEPS), 110.0)
    assert host.time_left(110.0) == "about 3:05 left"
    host.take(ansible_events.Progress("task_start", "", "First", "", 0.0), 110.0)
    assert host.step == "preflight"
    host.take(ansible_events.Progress("task_start", "gpu_driver", "Build", "", 0.0), 115.0)
    host.take(ansible_events.Progress("waiting", "gpu_driver", "Build", "412 of 980 files", 0.0), 120.0)
    assert host.what(130.0) == "Build 0:15: 412 of 980 files"
    assert host.time_left(130.0) == "about 2:45 left"
    assert host.fraction(130.0) == pytest.approx(30 / 195)
    assert host.what(4645.9) == "Build 75:30: 412 of 980 files"
    host.take(ansible_events.Progress("silent", "", "", "21:03:10", 0.0), 130.0)
    assert host.time_left(130.0) == "no answer since 21:03:10"
    assert host.line(130.0) == "Build, 412 of 980 files, 0:15, no answer since 21:03:10"
    host.take(ansible_events.Progress("silent", "", "", "", 0.0), 130.0)
    assert host.time_left(130.0) == "about 2:45 left"
    host.take(ansible_events.Progress("task_start", "gpu_driver", "Load", "", 0.0), 140.0)
    assert host.what(140.0) == "Load 0:00"
    host.take(ansible_events.Progress("stage", "", "gemm", "matrix products", 0.0), 300.0)
    assert host.time_left(330.0) == "longer than before"
    host.end(1, 400.0)
    assert (host.outcome, host.elapsed(900.0), host.fraction(900.0), host.time_left(900.0)) == (
        "failed",
        300.0,
        1.0,
        "",
    )


def test_without_earlier_runs_the_bar_goes_by_steps() -> None:
    host = running.Running("a")
    host.take(ansible_events.Progress("steps", "", "", "", 0.0, tuple((step, None) for step in NAMES)), 1.0)
    host.take(ansible_events.Progress("task_start", "gpu_driver", "Build", "", 0.0), 2.0)
    assert (host.fraction(3.0), host.time_left(3.0)) == (2 / 5, "")


@given(st.lists(st.sampled_from([0, 1, 2, 3, 4, 130, -9]), max_size=60), st.integers(0, 5))
def test_every_host_is_counted_once(codes: list[int], waiting: int) -> None:
    hosts = [running.Running(str(number)) for number in range(len(codes) + waiting)]
    for host, code in zip(hosts, codes, strict=False):
        host.end(code, 1.0)
    words = running.counted(hosts).split(", ")
    assert words[0] == f"{len(codes)}/{len(hosts)}"
    assert sum(int(word.split()[0]) for word in words[1:]) == len(codes)


def test_the_count_reads_as_documented() -> None:
    hosts = [running.Running(str(number)) for number in range(60)]
    for host, code in zip(hosts, [0] * 34 + [1, 4, 3], strict=False):
        host.end(code, 1.0)
    assert running.counted(hosts) == "37/60, 34 ok, 2 failed, 1 unknown"


@pytest.mark.parametrize(
    ("said", "shown"),
    [("gpu-01", "gpu-01"), ("größe", "größe"), ("显卡", "显卡"), ("a\u0301", "a?"), ("👩‍👧", "???"), ("\u1160", "?")],
)
def test_letters_of_an_uncertain_width_are_not_drawn(said: str, shown: str) -> None:
    assert running.steady(said) == shown
