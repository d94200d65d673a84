"""What a change would gain: the step replayed, how fast the CPU is without the profiler, and sets of times.

With nothing changed a step takes its time, and less work never takes longer.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import amount
import numpy as np
import pytest
import tracesteps
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import ADD, PRODUCT_BF16, PRODUCT_FP32, Kernel, Program
from tracesteps import Replayed, Times

from gpuprep.trace import document, formats, opening

# Of each piece: (CPU work before, kernel's length, stream, does the CPU wait behind it).
PIECES = st.lists(
    st.tuples(st.integers(0, 200_000), st.integers(1_000, 300_000), st.sampled_from([7, 20]), st.booleans()),
    min_size=3, max_size=20,
)  # fmt: skip


def replayed(p: Program) -> Replayed:
    with tempfile.TemporaryDirectory() as folder:
        opened = p.opened(Path(folder))
    return Replayed(opened.profile, opened.document)


def program(pieces: list[tuple[int, int, int, bool]], steps: int = 4) -> Program:
    p = Program()
    for _ in p.steps(steps):
        for cpu, ns, stream, wait in pieces:
            p.op("aten::mm", Kernel(PRODUCT_BF16, ns, stream), cpu=cpu)
            if wait:
                p.wait()
        p.wait()  # each step alone, so that its length is exact
    return p


@pytest.fixture
def no_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """These programs have none, so nothing is to be taken off."""
    tracesteps.no_profiler(monkeypatch)


replays = pytest.mark.usefixtures("no_profiler")


@replays
@settings(deadline=None, max_examples=amount.examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PIECES)
def test_with_nothing_changed_it_takes_the_recorded_time(pieces: list[tuple[int, int, int, bool]]) -> None:
    p = program(pieces)
    found = replayed(p)
    assert found.refusal == ""
    assert found.step_ns() == pytest.approx(p.step_ns, rel=0.03, abs=15_000)


@replays
@settings(deadline=None, max_examples=amount.examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PIECES, st.integers(0, 1000))
def test_less_work_never_takes_longer(pieces: list[tuple[int, int, int, bool]], seed: int) -> None:
    found = replayed(program(pieces))
    random = np.random.default_rng(seed)
    gone = random.random(found.kernels) < 0.4
    changes: list[dict[str, Any]] = [
        {"without_gpu": gone},
        {"without_gpu": gone, "without_calls": found.calls_of(gone)},
        {"gpu_ns": found.durations * random.random(found.kernels)},
        {"no_waits": random.random(found.calls) < 0.5},
        {"cut": np.array([[1_000_000, 1_500_000], [2_000_000, 9_000_000]])},
    ]
    for changed in changes:
        for cpu in (1.0, 0.6, 0.0):
            assert found.step_ns(cpu, **changed) <= found.step_ns(cpu) + 1
    assert found.step_ns(0.0) <= found.step_ns(0.6) + 1 <= found.step_ns(1.0) + 2


@replays
def test_the_profilers_own_time_is_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [(20_000, 2_000, 7, False)] * 20
    plain = replayed(program(pieces))
    tracesteps.no_profiler(monkeypatch, cost_ns=1_000.0)
    less = replayed(program(pieces))
    # Of each piece a range and a call; the step's own range, and a wait at its end.
    assert plain.step_ns() - less.step_ns() == pytest.approx(20 * 2_000, abs=4_000)


@replays
def test_a_wait_at_the_profilers_end_is_no_part_of_a_step() -> None:
    p = Program()
    for step in p.steps(4):
        for _ in range(10):
            p.op("aten::mm", Kernel(PRODUCT_BF16, 500_000))
        if step == 3:
            p.wait("cudaDeviceSynchronize")
    found = replayed(p)
    assert found.refusal == ""
    assert found.recorded_step_ns == pytest.approx(5_000_000, rel=0.01)


@replays
def test_a_step_that_cannot_be_replayed_gives_no_gain() -> None:
    p = Program()
    for _ in p.steps(3):
        p.op("aten::mm", cpu=1_000_000)
    p.trace.launch(None, PRODUCT_BF16, 2_000_000, 500_000)
    found = replayed(p)
    assert found.refusal
    assert found.gain() is None


@replays
def test_a_huge_step_is_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    tracesteps.largest_step(monkeypatch, 10)
    found = replayed(program([(1_000, 5_000, 7, False)] * 20))
    assert found.refusal
    assert found.gain() is None


@replays
def test_of_many_iterations_some_are_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    tracesteps.fewer_iterations(monkeypatch, 50)
    p = program([(1_000, 50_000, 7, False)] * 20, steps=8)
    found = replayed(p)
    assert found.iterations == 2
    assert found.step_ns() == pytest.approx(p.step_ns, rel=0.03)


@replays
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
    found = replayed(p)
    assert found.refusal == ""
    # Were they thought to run beside each other, the half of each would take a quarter of the step.
    assert found.step_ns(0.0, gpu_ns=found.durations * 0.5) == pytest.approx(0.5 * found.step_ns(0.0), rel=0.1)


@replays
def test_no_more_is_won_than_the_gpu_is_idle() -> None:
    """Where its work stays as it is; and no more than a rule knows that it can win."""
    found = replayed(program([(200_000, 50_000, 7, True)] * 6))
    none = np.ones(found.calls, bool)
    whole, bounded = found.gain(no_waits=none), found.gain(no_waits=none, most_ns=2_000)
    assert whole is not None
    assert bounded is not None
    assert 2 < whole.us <= found.idle_us
    assert (bounded.us, bounded.most_us) == (2, None)
    much = found.gain_of_all(most_ns=5_000)
    assert much is not None
    assert much.us == 5


# ---------------------------------------------------------------- how fast the CPU is without the profiler

GPU, CPU = 1_000_000.0, 4_000_000.0


def step(share: float) -> float:
    """The longer of both."""
    return max(GPU, CPU * share)


def shares(timed: float | None, cpu_ns: float = CPU, written: float = 1e9) -> tuple[float, tuple[float, ...], bool]:
    found = tracesteps.paced(step, timed, cpu_ns, written)
    return found.cpu, found.others, found.timed


def test_untimed_it_is_the_middle_of_what_is_possible() -> None:
    assert shares(None) == (0.75, (0.5, 1.0), False)


def test_a_profiler_that_wrote_little_down_has_slowed_little() -> None:
    few = tracesteps.paced(step, None, CPU, 10)
    assert few.others[0] == pytest.approx(1 - 10 * 3_400 / CPU)
    assert few.cpu == pytest.approx((1 + few.others[0]) / 2)
    assert shares(None, cpu_ns=0.0, written=0) == (1.0, (1.0, 1.0), False)


@pytest.mark.parametrize("timed", [1_500_000.0, 3_000_000.0, 6_000_000.0])
def test_the_cpu_is_scaled_until_the_step_takes_what_was_timed(timed: float) -> None:
    found = tracesteps.paced(step, timed, CPU, 1e9)
    assert found.timed
    assert found.others == ()
    assert step(found.cpu) == pytest.approx(timed, rel=0.005)


def test_where_the_gpu_is_the_limit_its_work_counts_and_the_cpu_may_be_close() -> None:
    found = tracesteps.paced(step, 1_010_000.0, CPU, 1e9)
    assert found.cpu == 0.0
    assert found.others[0] == pytest.approx(0.25, rel=0.08)
    assert found.timed


@pytest.mark.parametrize("timed", [0.0, -1.0, 500_000.0, 1e12])
def test_a_time_of_another_program_does_not_count(timed: float) -> None:
    assert shares(timed) == (0.75, (0.5, 1.0), False)


# ---------------------------------------------------------------- in recommendations


def half_bound(views: int) -> Program:
    """Products in FP32 of 100 µs, and between them so many ops of 3 µs that launch nothing."""
    p = Program()
    for _ in p.steps(4):
        for _ in range(20):
            for _ in range(views):
                p.op("aten::view")
            p.op("aten::mm", Kernel(PRODUCT_FP32, 100_000), shapes=[[1024, 1024]] * 2, dtypes=["float"] * 2)
    return p


def gain(p: Program, folder: Path, rule: str, timed_ms: float | None = None) -> document.Gain:
    if timed_ms is not None:
        path = folder / "program.json.gpuprep.json"
        path.write_text(f'{{"machine": {{}}, "step_ms_without_profiler": [{timed_ms}]}}')
    found = next(one.gain for one in p.opened(folder).document.advice if one.rule == rule)
    assert found is not None
    return found


def test_untimed_a_gain_that_hangs_on_the_cpu_has_a_range(tmp_path: Path) -> None:
    found = gain(half_bound(30), tmp_path, "tf32")
    assert found.least_us is not None
    assert found.most_us is not None
    assert found.least_us <= found.us <= found.most_us
    assert "trace record" in found.how


def test_timed_it_has_none(tmp_path: Path) -> None:
    found = gain(half_bound(30), tmp_path, "tf32", 20 * 0.11)
    assert (found.least_us, found.most_us) == (None, None)


def test_a_time_is_no_time_of_other_iterations(tmp_path: Path) -> None:
    """--key-op makes them something else than the steps that were timed."""
    path = half_bound(30).trace.write(tmp_path / "program.json")
    plain = opening.open_trace(path, opening.Wish(key_op="aten::mm")).document.advice
    path.with_name("program.json.gpuprep.json").write_text('{"step_ms_without_profiler": [0.001]}')
    assert opening.open_trace(path, opening.Wish(key_op="aten::mm")).document.advice == plain


@pytest.mark.parametrize(
    ("timed", "words"),
    [
        (None, "Without the profiler a step takes 2.00 to {step} ms (the GPU alone, as profiled)."),
        (1 / 1.25, "The profiler made a step 25 % longer: {timed} ms without it, {step} ms with it."),
        (1.0, "The profiler did not slow a step: {timed} ms without it, {step} ms with it."),
        (
            2.0,
            "A step took longer without the profiler ({timed} ms without it, {step} ms with it): the steps are not "
            "the same",
        ),
        (1e-3, "not known: {timed} ms were timed without it, and the GPU alone takes 2.00 ms."),
    ],
)
def test_it_says_how_much_the_profiler_slowed_a_step(timed: float | None, words: str, tmp_path: Path) -> None:
    """`timed`: times the profiled step."""
    p = half_bound(40)
    step_ms = p.opened(tmp_path).document.summary.average_iteration_us / 1e3
    if timed is not None:
        beside = tmp_path / "program.json.gpuprep.json"
        beside.write_text(f'{{"machine": {{}}, "step_ms_without_profiler": [{timed * step_ms}]}}')
    made = p.opened(tmp_path).document
    timed_ms = (timed or 0) * step_ms
    timed_words = f"{timed_ms:.2f}" if timed_ms >= 0.1 else f"{timed_ms:.4f}"
    assert words.format(step=f"{step_ms:.2f}", timed=timed_words) in made.slowdown.words
    assert made.slowdown.us == (pytest.approx(timed * step_ms * 1e3) if timed and timed > 0.1 else None)
    screen = " ".join(formats.text(made).split("GPU utilization")[0].split())
    assert made.slowdown.words in screen


def test_without_steps_or_with_others_nobody_knows_how_much(tmp_path: Path) -> None:
    path = half_bound(5).trace.write(tmp_path / "program.json")
    path.with_name("program.json.gpuprep.json").write_text('{"step_ms_without_profiler": [2.5]}')
    assert opening.open_trace(path, opening.Wish(key_op="aten::mm")).document.slowdown.us is None
    idle = Program()
    for _ in idle.steps(3):
        idle.op("aten::mm")
    (tmp_path / "idle").mkdir()
    made = idle.opened(tmp_path / "idle").document
    step = f"{made.summary.average_iteration_us / 1e3:.4f}"
    assert made.slowdown.words.startswith(f"Without the profiler a step takes {step} ms at most, as profiled.")
    alone = Program()
    alone.op("aten::mm", Kernel(PRODUCT_FP32, 100_000))
    assert alone.opened(tmp_path).document.slowdown.words.endswith("is not known: the profile has no steps.")


def test_of_a_loop_that_marks_no_steps_all_gains_of_the_cpu_are_shares(tmp_path: Path) -> None:
    loop = Program()
    for _ in range(6):
        for _ in range(60):
            loop.op("aten::mm", Kernel(PRODUCT_BF16, 2_000), cpu=20_000)
            loop.op("aten::add", Kernel(ADD, 3_000), Kernel(ADD, 3_000))
        loop.wait()
    made = loop.opened(tmp_path).document
    assert made.summary.split_by == "repetition of kernels"
    assert made.summary.total_iterations == 6
    gains = {one.rule: one.gain for one in made.advice if one.gain is not None and one.gain.saves}
    assert {"launch-bound", "elementwise"} <= set(gains)
    assert all(gain.share_percent is not None and 0 < gain.share_percent <= 100 for gain in gains.values())
    screen = formats.text(made)
    assert "6 iterations (steps found by repetition of kernels)" in screen
    assert "Without the profiler a step takes" in screen


def test_of_a_step_that_waits_for_the_gpu_alone_there_is_no_range(tmp_path: Path) -> None:
    p = Program()
    for _ in p.steps(4):
        for _ in range(20):
            p.op(
                "aten::mm",
                Kernel(PRODUCT_BF16, 1_000_000),
                shapes=[[4096, 4097], [4097, 4096]],
                dtypes=["c10::BFloat16"] * 2,
            )
    found = gain(p, tmp_path, "bad-shape")
    assert found.least_us is None
    assert "profiler" not in found.how


# ---------------------------------------------------------------- sets of times, against sets of whole numbers

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(-2, 12)), max_size=12)


def times(spans: list[tuple[int, int]]) -> Times:
    return Times([(start, start + length) for start, length in spans])


def moments(spans: list[tuple[int, int]]) -> set[int]:
    return {moment for start, end in spans for moment in range(start, end)}


def of(spans: list[tuple[int, int]]) -> set[int]:
    return {moment for start, length in spans for moment in range(start, start + length)}


@given(SPANS)
def test_union_is_each_moment_once_and_its_parts_are_apart(spans: list[tuple[int, int]]) -> None:
    found = times(spans)
    assert moments(found.spans) == of(spans)
    assert found.length == len(of(spans))
    assert all(second[0] > first[1] for first, second in itertools.pairwise(found.spans))


@given(SPANS, SPANS)
def test_both_and_without(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    assert moments(times(one).both(times(other))) == of(one) & of(other)
    assert moments(times(one).without(times(other))) == of(one) - of(other)


@given(SPANS, st.integers(-5, 70), st.integers(0, 40))
def test_gaps_and_what_is_inside_are_the_whole(spans: list[tuple[int, int]], start: int, length: int) -> None:
    end = start + length
    gaps, inside = times(spans).gaps(start, end), times(spans).inside(start, end)
    assert moments(gaps) | moments(inside) == set(range(start, end))
    assert not moments(gaps) & moments(inside)


@given(SPANS, st.integers(-5, 80), st.integers(0, 40))
def test_covered_between_two_moments(spans: list[tuple[int, int]], start: int, length: int) -> None:
    covered = times(spans).covered(start, start + length)
    assert covered == len(of(spans) & set(range(start, start + length)))
