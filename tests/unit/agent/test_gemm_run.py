"""Measuring on a GPU, with a device and a library that do as they are told: failures, choices, several GPUs."""

# ruff: noqa: ARG001  (fixtures are the machine)

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator

import pytest
from gemmprobe import (
    SHAPES,
    TOOLKIT,
    Candidate,
    CUDAError,
    Rule,
    World,
    algorithm,
    all_at_once,
    machine,
    measured,
    one_product,
    product,
    session,
    shapes_of_a_type,
    shorter,
    types_of,
    world,
)
from probereportsfortests import measure

from gpuprep import records

__all__ = ["machine", "world"]


def test_every_type_and_shape_is_measured(world: World) -> None:
    gemms, why = measured(session(world))
    assert why is None
    assert [(one["dtype"], one["m"]) for one in gemms[:2]] == [("bf16", 256), ("bf16", 512)]
    assert len(gemms) == 2 * len(types_of((8, 0)))
    assert {one["graphics_clock_mhz"] for one in gemms} == {1410.0}
    assert {one["event_reasons"] for one in gemms} == {4}
    assert world.open_products == 0


def test_the_clock_is_that_of_the_burst_that_counts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three bursts, none steady, the second the fastest: the clock is counted while it runs, and not in the others."""
    tested = session(world, rule=Rule(tries=3))
    bursts = itertools.chain([[1.4, 1.6], [0.9, 1.1], [1.2, 1.4]], itertools.repeat([1.0]))
    durations: list[Iterator[float]] = [itertools.repeat(1.0)]
    rests: list[int] = []

    def rest(_: float) -> None:
        durations.append(itertools.cycle(next(bursts)))
        rests.append(world.readings)

    monkeypatch.setattr("time.sleep", rest)
    world.clock = lambda: 1000.0 * len(rests)
    world.milliseconds = lambda works: list(itertools.islice(durations[-1], len(works)))
    tested_product = product(world)
    found = tested.burst(tested_product, Candidate(1.0))
    assert len(rests) == 3
    assert found["microseconds"] == pytest.approx(1000, abs=101)
    assert found["graphics_clock_mhz"] == 2000.0


def test_a_short_product_is_measured_in_groups_that_the_host_prepared(world: World) -> None:
    """Alone each takes 0.02 ms, because the host starts no faster; the GPU needs 0.005."""
    world.milliseconds = lambda works: [0.02 for work in works if work() >= 0]
    tested = session(world)
    tested_product = product(world)
    best, milliseconds = tested.best(tested_product, [Candidate(0.005), Candidate(0.004), Candidate(0.006)])
    assert milliseconds == pytest.approx(0.004)
    assert best.milliseconds == 0.004
    world.events.clear()
    found = tested.burst(tested_product, best)
    assert (found["microseconds"], found["rel_stdev_percent"]) == (pytest.approx(4.0), pytest.approx(0.0))
    assert found["iterations"] >= 30
    first = world.events.index("hold 800000")
    assert world.events[first + 1] == "20 together"


def test_a_quick_burst_of_a_short_product_has_several_pulses(world: World) -> None:
    """One pulse would have no spread, whatever the GPU does."""
    world.milliseconds = lambda works: [0.02 for work in works]
    rule = Rule(batch_seconds=0.002, least_samples=16, least_seconds=0.02, tries=1)
    tested = session(world, pause_seconds=1e-9, rule=rule)
    found = tested.burst(product(world), Candidate(0.004))
    assert found["microseconds"] == pytest.approx(4.0)
    assert world.events.count("ticks") >= 2 * 8


def test_a_product_that_outlasts_the_host_is_timed_alone(world: World) -> None:
    tested = session(world)
    tested.burst(product(world), Candidate(0.05))
    assert not [event for event in world.events if event.startswith("hold")]


def test_the_main_type_is_also_measured_at_length(world: World) -> None:
    gemms, _ = measured(session(world, main_dtype="tf32", sustained_seconds=0.02))
    sustained = [(one["dtype"], one["m"]) for one in gemms if one["sustained"]]
    assert sustained == [("tf32", 256)]
    assert gemms[0]["sustained"]["tflops"] == pytest.approx(2 * 256**3 / 1e9, abs=0.01)


def test_no_memory_for_one_product_leaves_the_others(world: World) -> None:
    world.refuse["fp64/fp64", 512] = CUDAError("CUDA_ERROR_OUT_OF_MEMORY")
    gemms, why = measured(session(world))
    assert why is None
    failed = [one for one in gemms if one["error"]]
    assert [(one["dtype"], one["m"], one["error"]) for one in failed] == [
        ("fp64", 512, "CUDAError: CUDA_ERROR_OUT_OF_MEMORY")
    ]
    assert isinstance(failed[0]["tflops"], records.Missing)
    assert len(gemms) == 2 * len(types_of((8, 0)))
    assert world.open_products == 0


def test_a_gpu_that_is_gone_ends_its_measurements(world: World) -> None:
    world.gone_after = 3
    gemms, why = measured(session(world))
    assert (len(gemms), why) == (3, "CUDAError: CUDA_ERROR_DEVICE_UNAVAILABLE")


def test_a_type_that_cublaslt_has_nothing_for(world: World) -> None:
    world.candidates = list
    one = one_product(session(world), 256, 256, 256)
    assert one["error"] == "cuBLASLt has no algorithm for it on this GPU"


def test_the_fastest_candidate_is_taken_and_one_that_fails_is_left_out(world: World) -> None:
    candidates = [Candidate(1.2), Candidate(0.5, works=False), Candidate(0.9), Candidate(1.0)]
    tested_product = product(world)
    best, _ = session(world).best(tested_product, candidates)
    assert best is candidates[2]


def test_a_finalist_that_met_a_bad_moment_has_a_second_round(world: World) -> None:
    """The power cap acts more in one trial than in another: with one round the slower algorithm won."""
    good, slower = Candidate(1.0), Candidate(1.05)
    unlucky = iter([1.0] * 3 + [1.1] * 60)  # its glance, then the whole of its first trial

    def times(works: list[Callable[[], float]]) -> list[float]:
        return [next(unlucky, 1.0) if (time := work()) == 1.0 else time for work in works]

    world.milliseconds = times
    tested_product = product(world)
    assert session(world).best(tested_product, [good, slower])[0] is good
    unlucky = iter([1.0] * 3 + [1.1] * 60)
    assert session(world, final_rounds=1).best(tested_product, [good, slower])[0] is slower
    ran = [good.ran]
    for rounds in (1, 2):  # cuBLASLt's own choice wins at once: no second round
        assert session(world, final_rounds=rounds).best(tested_product, [good, slower])[0] is good
        ran.append(good.ran)
    assert ran[1] - ran[0] == ran[2] - ran[1]


def test_of_a_product_and_its_transpose_the_faster_counts(world: World) -> None:
    """FP64 of 8192x16384x4096 was 6 % faster as its transpose on an H100: PyTorch, with rows in memory, got that."""
    turned = Candidate(0.5, description={"tile": "TILE_64x128"})
    world.turned_candidates = lambda: [turned, Candidate(2.0)]
    found = one_product(session(world), 512, 256, 256, dtype="fp64")
    assert (found["m"], found["n"], found["microseconds"]) == (512, 256, 500.0)
    assert found["algorithm"] == {"tile": "TILE_64x128", "candidates": 3}
    world.turned_candidates = list
    found = one_product(session(world), 512, 256, 256, dtype="fp64")
    assert (found["microseconds"], found["algorithm"]["candidates"], world.open_products) == (1000.0, 1, 0)
    one_product(session(world), 256, 256, 256, dtype="fp64")  # a square product is its own
    one_product(session(world), 512, 256, 256)
    assert world.turned == 2


def test_the_tile_of_a_transpose_is_in_rows_and_columns_of_d() -> None:
    as_called = algorithm("TILE_128x64", "STAGES_16x3", 1, 2.0)
    turned = algorithm("TILE_128x64", "STAGES_16x3", 1, 2.0, transposed=True)
    assert turned == {
        **as_called,
        "tile": "TILE_64x128",
        "tile_m": 64,
        "tile_n": 128,
    }
    unknown = algorithm("TILE_UNDEFINED", "STAGES_16x3", 1, 2.0)
    assert algorithm("TILE_UNDEFINED", "STAGES_16x3", 1, 2.0, transposed=True) == unknown


def test_cublaslts_own_choice_is_tried_at_length_though_it_looks_slow(world: World) -> None:
    """Under the power cap the one that looked fast is slower in the end."""
    candidates = [Candidate(1.3, steady=1.0), *[Candidate(0.9 + i / 100, steady=1.2) for i in range(4)]]
    tested_product = product(world)
    best, _ = session(world).best(tested_product, candidates)
    assert best is candidates[0]


def test_of_pulses_each_counts_with_its_median_and_the_pauses_do_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a power cap the clock falls within each pulse, in all of them alike: that is no spread."""
    rule = Rule(batch_seconds=0.004, least_samples=16, least_seconds=0.02, tries=1)
    tested = session(world, pause_seconds=0.012, rule=rule)
    events = world.events
    monkeypatch.setattr("time.sleep", lambda seconds: events.append(f"pause {seconds}"))
    world.milliseconds = lambda works: [9.0, 0.8, 1.0, 1.2, 1.0][: len(works)] if len(works) > 2 else [9.0, 1.0]
    tested_product = product(world)
    found = tested.burst(tested_product, Candidate(1.0))
    assert (found["microseconds"], found["rel_stdev_percent"], found["iterations"]) == (1000.0, 0.0, 21)
    begun = events.index("pause 0.012")
    assert events[begun : begun + 8] == ["pause 0.012", "ticks", "work", "ticks"] * 2


def test_when_no_candidate_runs_the_product_says_so(world: World) -> None:
    world.candidates = lambda: [Candidate(1.0, works=False)]
    one = one_product(session(world), 256, 256, 256)
    assert one["error"] == "RuntimeError: none of cuBLASLt's proposals runs"
    assert world.open_products == 0


# ------------------------------------------------------------ the whole probe


def test_one_gpu_whole(machine: Callable[[int], None]) -> None:
    values = measure("gemm", shapes=SHAPES[:1], quick=True)
    assert isinstance(values, dict)
    assert (values["quick"], values["toolkit"], values["together"]) == (True, TOOLKIT, None)
    assert values["bindings"] == dict.fromkeys(("nvmath-python", "cuda-bindings", "cuda-core"), "1.0.0")
    (gpu,) = values["gpus"]
    assert (gpu["sms"], gpu["l2_mib"], gpu["error"], gpu["other_processes"]) == (40, 4, None, [])
    assert len(gpu["gemms"]) == 7


def test_all_at_once_after_each_alone(machine: Callable[[int], None]) -> None:
    machine(3)
    values = measure("gemm", shapes=SHAPES[:1], quick=True, main_dtype="fp16")
    assert isinstance(values, dict)
    assert [gpu["error"] for gpu in values["gpus"]] == [None, None, None]
    assert [(one["index"], one["dtype"]) for one in values["together"]] == [(0, "fp16"), (1, "fp16"), (2, "fp16")]
    assert all(one["tflops"] > 0 for one in values["together"])


def test_of_many_gpus_all_are_measured_rested_and_the_first_in_more_shapes(
    machine: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are compared with each other: a figure from before the power cap and one from under it cannot be."""
    machine(3)
    at_once = {"warm_seconds": 0.0, "rest_seconds": 0.0, "load_seconds": 0.0}
    shorter(monkeypatch, Rule(least_samples=2), full={}, brief=at_once)
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    values = measure("gemm")
    assert isinstance(values, dict)
    assert [shapes_of_a_type(gpu) for gpu in values["gpus"]] == [4, 1, 1]
    assert set(pauses) == {0.0}  # bursts of pulses are another figure
    assert {one["iterations"] >= Rule().least_samples for gpu in values["gpus"] for one in gpu["gemms"]} == {True}


def test_a_full_measurement_of_another_length_has_all_its_shapes(
    machine: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    shorter(monkeypatch, Rule(), full={"sustained_seconds": 600.0}, brief={})
    values = measure("gemm", sustained_seconds=0)
    assert isinstance(values, dict)
    (gpu,) = values["gpus"]
    assert shapes_of_a_type(gpu) == 4
    assert {one["sustained"] for one in gpu["gemms"]} == {None}


def test_a_gpu_that_cuda_does_not_see_leaves_the_others(world: World, machine: Callable[[int], None]) -> None:
    machine(2)
    world.invisible.add("0000:00:04.0")
    values = measure("gemm", shapes=SHAPES[:1], quick=True)
    assert isinstance(values, dict)
    hidden, seen = values["gpus"]
    assert hidden["error"] == "LookupError: CUDA does not see the GPU at 0000:00:04.0, NVML does"
    assert hidden["gemms"] == []
    assert hidden["sms"] == {"missing": "not_measured", "detail": "the GPU was not opened"}
    assert (seen["error"], len(seen["gemms"])) == (None, 7)
    assert values["together"] is None


def test_one_that_fails_when_all_run_does_not_hold_up_the_others(world: World) -> None:
    world.refuse["fp16/fp32", 256] = CUDAError("CUDA_ERROR_ECC_UNCORRECTABLE")
    well, ill = session(world, together_seconds=0.01), session(world, main_dtype="fp16")
    ill.gpu.index = 1
    rows = all_at_once(well, ill, seconds=0.01)
    assert rows[0]["tflops"] > 0
    assert rows[1]["tflops"] == records.Missing("command_failed", "CUDAError: CUDA_ERROR_ECC_UNCORRECTABLE")


def test_a_library_that_is_not_found(world: World, machine: Callable[[int], None]) -> None:
    def version() -> str:
        raise RuntimeError("libcublasLt.so.13 was not found")

    sys.modules["gpuprep.agent.probes.cublaslt"].version = version  # type: ignore[attr-defined]
    found = measure("gemm")
    assert found == records.Missing("library_not_found", "RuntimeError: libcublasLt.so.13 was not found")
