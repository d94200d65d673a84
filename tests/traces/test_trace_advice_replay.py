"""The step replayed: with nothing changed it takes its time, and less work never takes longer."""

from __future__ import annotations

import tempfile
from pathlib import Path

import amount
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import PRODUCT_BF16, Kernel, Program

from gpuprep.trace.advice import gains, intervals, replay
from gpuprep.trace.advice import replay as replaying
from gpuprep.trace.advice.evidence import Evidence

# Of each piece: (CPU work before, kernel's length, stream, does the CPU wait behind it).
PIECES = st.lists(
    st.tuples(st.integers(0, 200_000), st.integers(1_000, 300_000), st.sampled_from([7, 20]), st.booleans()),
    min_size=3, max_size=20,
)  # fmt: skip


def replayed(p: Program) -> tuple[Evidence, replay.Replay]:
    with tempfile.TemporaryDirectory() as folder:
        opened = p.opened(Path(folder))
    evidence = Evidence(opened.profile, opened.document)
    return evidence, gains.replay(evidence)


def program(pieces: list[tuple[int, int, int, bool]], steps: int = 4) -> Program:
    p = Program()
    for _ in p.steps(steps):
        for cpu, ns, stream, wait in pieces:
            p.op("aten::mm", Kernel(PRODUCT_BF16, ns, stream), cpu=cpu)
            if wait:
                p.wait()
        p.wait()  # each step alone, so that its length is exact
    return p


@pytest.fixture(autouse=True)
def no_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """These programs have none, so nothing is to be taken off."""
    monkeypatch.setattr(replaying, "RECORDING_NS", 0.0)


@settings(deadline=None, max_examples=amount.examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PIECES)
def test_with_nothing_changed_it_takes_the_recorded_time(pieces: list[tuple[int, int, int, bool]]) -> None:
    p = program(pieces)
    _, found = replayed(p)
    assert found.ok, found.why_not
    assert found.unchanged_ns(1.0) == pytest.approx(p.step_ns, rel=0.03, abs=15_000)


@settings(deadline=None, max_examples=amount.examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PIECES, st.integers(0, 1000))
def test_less_work_never_takes_longer(pieces: list[tuple[int, int, int, bool]], seed: int) -> None:
    e, found = replayed(program(pieces))
    random = np.random.default_rng(seed)
    gone = random.random(len(e.trace.gpu.start)) < 0.4
    shorter = gains.durations(e) * random.random(len(gone))
    waits = random.random(len(e.trace.calls.start)) < 0.5
    for change in (
        replay.Change(without_gpu=gone),
        replay.Change(without_gpu=gone, without_calls=gains.calls_of(e, gone)),
        replay.Change(gpu_ns=shorter),
        replay.Change(no_waits=waits),
        replay.Change(cut=np.array([[1_000_000, 1_500_000], [2_000_000, 9_000_000]])),
    ):
        for cpu in (1.0, 0.6, 0.0):
            assert found.step(change, cpu) <= found.unchanged_ns(cpu) + 1
    assert found.unchanged_ns(0.0) <= found.unchanged_ns(0.6) + 1 <= found.unchanged_ns(1.0) + 2


def test_the_profilers_own_time_is_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [(20_000, 2_000, 7, False)] * 20
    _, plain = replayed(program(pieces))
    monkeypatch.setattr(replaying, "RECORDING_NS", 1_000.0)
    _, less = replayed(program(pieces))
    # Of each piece a range and a call; the step's own range, and a wait at its end.
    assert plain.unchanged_ns(1.0) - less.unchanged_ns(1.0) == pytest.approx(20 * 2_000, abs=4_000)


def test_a_wait_at_the_profilers_end_is_no_part_of_a_step() -> None:
    p = Program()
    for step in p.steps(4):
        for _ in range(10):
            p.op("aten::mm", Kernel(PRODUCT_BF16, 500_000))
        if step == 3:
            p.wait("cudaDeviceSynchronize")
    _, found = replayed(p)
    assert found.ok
    assert found.step_ns == pytest.approx(5_000_000, rel=0.01)


def test_a_step_that_cannot_be_replayed_gives_no_gain() -> None:
    p = Program()
    for _ in p.steps(3):
        p.op("aten::mm", cpu=1_000_000)
    p.trace.launch(None, PRODUCT_BF16, 2_000_000, 500_000)
    e, found = replayed(p)
    assert not found.ok
    assert found.why_not
    assert gains.gain(e, replay.Change(), "") is None


def test_a_huge_step_is_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "LARGEST_STEP", 10)
    e, found = replayed(program([(1_000, 5_000, 7, False)] * 20))
    assert not found.ok
    assert gains.gain(e, replay.Change(), "") is None


def test_of_many_iterations_some_are_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "MOST_PIECES", 50)
    p = program([(1_000, 50_000, 7, False)] * 20, steps=8)
    _, found = replayed(p)
    assert found.count == 2
    assert found.unchanged_ns(1.0) == pytest.approx(p.step_ns, rel=0.03)


def test_a_kernel_that_waits_for_room_beside_another_follows_it() -> None:
    """As cuDNN's transforms on several streams: each begins when the last blocks of the one before it run."""
    p = Program()
    for _ in p.steps(4):
        for _ in range(6):
            for stream in (7, 14):
                p.op("aten::mm")
                p.trace.launch(p.now, PRODUCT_BF16, max([p.now, *p.free.values()]) - 20_000, 1_000_000, stream=stream)
                p.free[(0, stream)] = max([p.now, *p.free.values()]) + 980_000
                p.now += 5_000
    e, found = replayed(p)
    assert found.ok, found.why_not
    assert (found.waits_for >= 0).sum() > 20
    half = gains.durations(e) * 0.5
    assert found.step(replay.Change(gpu_ns=half), 0.0) == pytest.approx(0.5 * found.unchanged_ns(0.0), rel=0.1)


def test_no_more_is_won_than_the_gpu_is_idle() -> None:
    """Where its work stays as it is; and no more than a rule knows that it can win."""
    e, found = replayed(program([(200_000, 50_000, 7, True)] * 6))
    change = replay.Change(no_waits=np.ones(len(e.trace.calls.start), bool))
    whole, bounded = gains.gain(e, change, "without waits"), gains.gain(e, change, "without waits", most_ns=2_000)
    assert whole is not None
    assert bounded is not None
    assert 2 < whole.us <= intervals.length(e.idle) / e.steps / 1e3
    assert (bounded.us, bounded.most_us) == (2, None)
    much = gains.of_steps(found, lambda _cpu: 0.0, "nothing is left", most_ns=5_000)
    assert much is not None
    assert much.us == 5
