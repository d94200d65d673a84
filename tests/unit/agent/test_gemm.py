"""The GEMM probe's parts that need no GPU: shapes, types, when a burst ends, what cuBLASLt's names say, refusals."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from gpuprep import records
from gpuprep.agent.compute import libraries
from gpuprep.agent.probes import gemm, gemmalgorithm, gemmshapes, gemmtypes, gemmvalues, simulated
from gpuprep.agent.probes.burst import FEWEST, Burst, Rule, best_burst, burst, rel_stdev

# ------------------------------------------------------------ shapes


@pytest.mark.parametrize(
    ("shapes", "dtype", "want"),
    [
        ([[1, 2, 3]], "bf16", [gemmshapes.Shape(1, 2, 3)]),
        ({"bf16": [{"m": 4, "n": 5, "k": 6}]}, "bf16", [gemmshapes.Shape(4, 5, 6)]),
        ({"bf16": [[1, 2, 3]]}, "fp64", []),
        (None, "bf16", []),
        ([], "bf16", []),
    ],
)
def test_asked_shapes(shapes: Any, dtype: str, want: list[gemmshapes.Shape]) -> None:
    assert gemmshapes.asked(shapes, dtype) == want


@pytest.mark.parametrize("row", [[1, 2], [1, 2, 0], [1, 2, 3.5], [1, 2, 3, 4], {"m": 1, "n": 2}, 8192, "888"])
def test_a_shape_that_is_none_is_named(row: Any) -> None:
    with pytest.raises(ValueError, match="three whole numbers m, n, k, not "):
        gemmshapes.asked([row], "bf16")
    found = gemm.measure({"shapes": {"fp8": [row]}})
    assert isinstance(found, records.Missing)
    assert (found.reason, repr(row) in found.detail) == ("bad_arguments", True)


@pytest.mark.parametrize(("tflops", "largest"), [(750.0, 8192), (50.0, 8192), (4.0, 4096), (0.25, 2048)])
def test_slow_types_get_smaller_shapes(tflops: float, largest: int) -> None:
    shapes = gemmshapes.default(tflops)
    assert len(shapes) == len(set(shapes)) == 4
    assert shapes[0] == gemmshapes.Shape(largest, largest, largest)
    assert all(size % 128 == 0 for shape in shapes for size in shape)
    assert max(shape.operations for shape in shapes) / (tflops * 1e12) < 0.1


@pytest.mark.parametrize(
    ("one_set", "l2", "want"), [(384 * 2**20, 60 * 2**20, 2), (24 * 2**20, 60 * 2**20, 8), (2**20, 4 * 2**20, 12)]
)
def test_sets_go_past_three_times_the_cache(one_set: int, l2: int, want: int) -> None:
    assert gemmshapes.sets(one_set, l2) == want
    assert want * one_set >= 3 * l2


def test_tiles_are_rounded_up() -> None:
    assert gemmshapes.tiles(gemmshapes.Shape(4096, 4096, 4096), (256, 128)) == 512
    assert gemmshapes.tiles(gemmshapes.Shape(257, 1, 8), (256, 128)) == 2


# ------------------------------------------------------------ types


@pytest.mark.parametrize(
    ("capability", "lacks"),
    [
        ((7, 0), {"bf16", "tf32", "int8", "fp8"}),
        ((7, 5), {"bf16", "tf32", "fp8"}),
        ((8, 0), {"fp8"}),
        ((8, 9), set()),
        ((9, 0), set()),
        ((12, 0), set()),
    ],
)
def test_types_are_those_that_the_gpu_has_units_for(capability: tuple[int, int], lacks: set[str]) -> None:
    every = {kind.dtype for kind in gemmtypes.TYPES}
    assert {kind.dtype for kind in gemmtypes.of_gpu(capability)} == every - lacks


def test_the_main_type_is_the_profiles_or_the_first_there_is() -> None:
    volta, hopper = gemmtypes.of_gpu((7, 0)), gemmtypes.of_gpu((9, 0))
    assert gemmtypes.main_type(hopper, "tf32").dtype == "tf32"
    assert gemmtypes.main_type(hopper, None).dtype == "bf16"
    assert gemmtypes.main_type(volta, "bf16").key == "fp16/fp32"


def test_sums_of_the_exact_check_fit() -> None:
    """The largest sum of the whole-numbered check is exact in every accumulator and output."""
    digits = {
        gemmtypes.COMPUTE_16F: 11, gemmtypes.COMPUTE_32F: 24, gemmtypes.COMPUTE_32F_FAST_TF32: 24,
        gemmtypes.COMPUTE_64F: 53, gemmtypes.COMPUTE_32I: 31,
    }  # fmt: skip
    for kind in gemmtypes.TYPES:
        largest = 16384 * kind.integers**2 if kind.integers > 1 else 8 * 24.0  # eight standard deviations of ±1
        assert largest <= 2 ** digits[kind.compute], kind.key
        if kind.output == gemmtypes.R_16BF:
            assert largest <= 2**8, kind.key


# ------------------------------------------------------------ burst


class Device:
    """Gives `durations` (ms) in turn, for ever; counts what was asked."""

    def __init__(self, *durations: float) -> None:
        self.durations = itertools.cycle(durations)
        self.batches: list[int] = []

    def __call__(self, count: int) -> list[float]:
        self.batches.append(count)
        return list(itertools.islice(self.durations, count))


def test_a_steady_burst_ends_with_the_least_samples() -> None:
    device = Device(1.0)
    found = burst(device, Rule(batch_seconds=0.01))
    assert found == Burst(1.0, 0.0, 31)
    assert device.batches == [1, 10, 10, 10]


def test_an_unsteady_burst_ends_before_the_power_cap_and_says_its_spread() -> None:
    found = burst(Device(0.1, 0.12), Rule(short_seconds=0.045))
    assert found.rel_stdev_percent == pytest.approx(9.1, abs=0.2)
    assert 0.045 <= found.iterations * 0.11 / 1000 < 0.065


def test_few_samples_are_enough_of_slow_work() -> None:
    assert burst(Device(20.0), Rule()).iterations == FEWEST
    assert burst(Device(20.0, 30.0), Rule()).iterations == FEWEST
    assert burst(Device(200.0), Rule(most_seconds=1.2)).iterations == 6


@pytest.mark.parametrize("capped_after", [12, 14, 16, 31])
def test_the_figure_is_that_before_the_power_cap_wherever_in_the_burst_it_acts(capped_after: int) -> None:
    """TF32 products of 3 ms on an H100: the cap acted after 10 to 17 of them, and thirty gave 410 or 365 TFLOPS.

    A burst in which it acts before the twelfth is repeated, as every unsteady one.
    """
    durations = [3.1] + [2.68] * (capped_after - 1) + [3.05] * 40
    assert burst(Device(*durations), Rule()).milliseconds == pytest.approx(2.68)


def test_steady_work_goes_on_for_the_least_seconds() -> None:
    found = burst(Device(1.0), Rule(least_seconds=0.12, short_seconds=0.12))
    assert found.rel_stdev_percent == 0.0
    assert 120 <= found.iterations < 140


def test_the_median_withstands_an_outlier() -> None:
    assert burst(Device(*[1.0] * 20, 30.0), Rule()).milliseconds == 1.0


class CappedDevice(Device):
    """Slower from the `after`th product on after each rest, as under a power cap; `lucky` rests last for ever."""

    def __init__(self, after: int, lucky: set[int]) -> None:
        super().__init__(1.0)
        self.after, self.lucky, self.rests, self.done = after, lucky, 0, 0

    def rest(self) -> None:
        self.rests, self.done = self.rests + 1, 0

    def __call__(self, count: int) -> list[float]:
        capped = [1.0 if self.rests in self.lucky or self.done + i < self.after else 1.2 for i in range(count)]
        self.done += count
        return capped


def test_a_burst_that_the_power_cap_hit_is_repeated() -> None:
    device = CappedDevice(20, lucky={2})
    found = best_burst(device.rest, device, Rule())
    assert device.rests == 2
    assert (found.milliseconds, found.rel_stdev_percent, found.number) == (1.0, 0.0, 1)


def test_when_every_burst_is_hit_the_fastest_is_given() -> None:
    device = CappedDevice(15, lucky=set())

    def rest() -> None:
        device.rest()
        device.after = {1: 5, 2: 29, 3: 14}[device.rests]

    found = best_burst(rest, device, Rule(tries=3))
    assert device.rests == 3
    assert found.milliseconds == 1.0
    assert found.rel_stdev_percent > 1


def test_a_wild_burst_is_repeated_once_though_the_rule_has_one_try() -> None:
    wild, calm = iter([1.0, 9.0] * 100), iter([1.2] * 300)
    rests: list[int] = []

    def some(count: int) -> list[float]:
        return [next(wild if len(rests) == 1 else calm) for _ in range(count)]

    found = best_burst(lambda: rests.append(0), some, Rule(tries=1))
    assert len(rests) == 2
    assert (found.milliseconds, found.number) == (1.2, 1)


def test_slow_work_is_not_repeated() -> None:
    device = CappedDevice(0, lucky=set())
    slow = best_burst(device.rest, Device(20.0, 30.0), Rule())
    assert device.rests == 1
    assert slow.rel_stdev_percent > 1


def test_the_spread_of_one_sample_is_unknown() -> None:
    assert rel_stdev([1.0]) == 100.0


# ------------------------------------------------------------ algorithm


@pytest.mark.parametrize(
    ("tile", "stages", "want"),
    [
        ("TILE_128x256", "STAGES_64x4", (128, 256, 64, 4)),
        ("TILE_256x128", "STAGES_64xAUTO", (256, 128, 64, None)),
        ("TILE_UNDEFINED", "STAGES_UNDEFINED", (None, None, None, None)),
        ("901", "77", (None, None, None, None)),  # newer than the bindings
    ],
)
def test_names_of_tile_and_stages(tile: str, stages: str, want: tuple[int | None, ...]) -> None:
    found = gemmalgorithm.described(tile, stages, 0, 3.879)
    assert (found["tile_m"], found["tile_n"], found["tile_k"], found["stages"]) == want
    assert (found["tile"], found["split_k"], found["waves"]) == (tile, 1, 3.879)


def test_waves_that_cublaslt_does_not_tell() -> None:
    assert gemmalgorithm.described("TILE_64x64", "STAGES_32x2", 2, float("nan"))["waves"] is None


def test_a_product_that_failed_has_no_figures() -> None:
    values = gemmvalues.product_values(gemmtypes.TYPES[0], gemmshapes.Shape(8, 8, 8), error="CUDA_ERROR_OUT_OF_MEMORY")
    assert values["error"] == "CUDA_ERROR_OUT_OF_MEMORY"
    for name in ("tflops", "exact", "graphics_clock_mhz", "algorithm"):
        assert values[name] == records.Missing("command_failed", "CUDA_ERROR_OUT_OF_MEMORY")


def test_a_products_tflops() -> None:
    values = gemmvalues.product_values(gemmtypes.TYPES[0], gemmshapes.Shape(8192, 8192, 8192), Burst(1.44, 0.7, 50), {})
    assert values["tflops"] == pytest.approx(763.5, abs=0.1)
    assert values["microseconds"] == 1440.0


# ------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("version", "reason", "remedy"),
    [
        ("10.2", "not_supported", "newer cuda.version"),
        ({"missing": "not_installed", "detail": "no nvcc on the PATH"}, "not_installed", "gpuprep provision"),
        (None, "not_installed", "gpuprep provision"),
    ],
)
def test_a_toolkit_that_cannot_be_measured(version: Any, reason: str, remedy: str) -> None:
    refused = gemm.unsuitable(version)
    assert refused is not None
    assert refused.reason == reason
    assert remedy in refused.detail


def test_toolkits_that_can() -> None:
    assert gemm.unsuitable("11.8") is gemm.unsuitable("12.4") is gemm.unsuitable("13.0") is None


def test_without_the_bindings_the_probe_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toolkit = {"nvcc": "/usr/bin/nvcc", "version": "12.4", "library_dirs": []}
    monkeypatch.setattr(libraries, "toolkit", lambda: toolkit)
    monkeypatch.setattr(simulated, "SIMULATION_MARK", tmp_path / "none")
    monkeypatch.setattr(gemm, "CALLERS", ("nvmath-python-of-nobody",))
    found = gemm.measure({})
    assert isinstance(found, records.Missing)
    assert found.reason == "not_installed"
    assert "nvmath-python is not in the agent" in found.detail
    assert "gpu_agent" in found.detail
