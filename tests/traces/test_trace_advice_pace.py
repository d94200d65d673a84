"""How fast the CPU is without the profiler: a range by itself, one figure where a step was timed."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import PRODUCT_BF16, PRODUCT_FP32, Kernel, Program

from gpuprep.trace import document
from gpuprep.trace.advice import pace

GPU, CPU = 1_000_000.0, 4_000_000.0


def step(share: float) -> float:
    """The longer of both."""
    return max(GPU, CPU * share)


def test_untimed_it_is_the_middle_of_what_is_possible() -> None:
    assert pace.paced(step, None, CPU, 1e9) == pace.Pace(0.75, (0.5, 1.0))


def test_a_profiler_that_wrote_little_down_has_slowed_little() -> None:
    few = pace.paced(step, None, CPU, 10)
    assert few.others[0] == pytest.approx(1 - 10 * 3_400 / CPU)
    assert few.cpu == pytest.approx((1 + few.others[0]) / 2)
    assert pace.paced(step, None, 0.0, 0) == pace.Pace(1.0, (1.0, 1.0))
    assert pace.RECORDING_NS == 1_600.0


@pytest.mark.parametrize("timed", [1_500_000.0, 3_000_000.0, 6_000_000.0])
def test_the_cpu_is_scaled_until_the_step_takes_what_was_timed(timed: float) -> None:
    found = pace.paced(step, timed, CPU, 1e9)
    assert found.timed
    assert found.others == ()
    assert step(found.cpu) == pytest.approx(timed, rel=0.005)


def test_where_the_gpu_is_the_limit_its_work_counts_and_the_cpu_may_be_close() -> None:
    found = pace.paced(step, 1_010_000.0, CPU, 1e9)
    assert found.cpu == 0.0
    assert found.others[0] == pytest.approx(0.25, rel=0.08)
    assert found.timed


@pytest.mark.parametrize("timed", [0.0, -1.0, 500_000.0, 1e12])
def test_a_time_of_another_program_does_not_count(timed: float) -> None:
    assert pace.paced(step, timed, CPU, 1e9) == pace.Pace(0.75, (0.5, 1.0))


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
    from gpuprep.trace.opening import Wish, open_trace

    path = half_bound(30).trace.write(tmp_path / "program.json")
    plain = open_trace(path, Wish(key_op="aten::mm")).document.advice
    path.with_name("program.json.gpuprep.json").write_text('{"step_ms_without_profiler": [0.001]}')
    assert open_trace(path, Wish(key_op="aten::mm")).document.advice == plain


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
