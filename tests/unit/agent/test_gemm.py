"""The GEMM probe's parts that need no GPU: shapes, types, when a burst ends, what cuBLASLt's names say, refusals."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import gemmprobe
import numpy as np
import pytest
from probereportsfortests import measure

from gpuprep import records
from gpuprep.agent.probes import burst

# ------------------------------------------------------------ shapes


@pytest.mark.parametrize(
    ("shapes", "dtype", "want"),
    [
        ([[1, 2, 3]], "bf16", [(1, 2, 3)]),
        ({"bf16": [{"m": 4, "n": 5, "k": 6}]}, "bf16", [(4, 5, 6)]),
        ({"bf16": [[1, 2, 3]]}, "fp64", []),
        (None, "bf16", []),
        ([], "bf16", []),
    ],
)
def test_asked_shapes(shapes: Any, dtype: str, want: list[tuple[int, ...]]) -> None:
    assert gemmprobe.shapes_asked(shapes, dtype) == want


@pytest.mark.parametrize("row", [[1, 2], [1, 2, 0], [1, 2, 3.5], [1, 2, 3, 4], {"m": 1, "n": 2}, 8192, "888"])
def test_a_shape_that_is_none_is_named(row: Any) -> None:
    with pytest.raises(ValueError, match="three whole numbers m, n, k, not "):
        gemmprobe.shapes_asked([row], "bf16")
    found = measure("gemm", shapes={"fp8": [row]})
    assert isinstance(found, records.Missing)
    assert (found.reason, repr(row) in found.detail) == ("bad_arguments", True)


@pytest.mark.parametrize(("tflops", "largest"), [(750.0, 8192), (50.0, 8192), (4.0, 4096), (0.25, 2048)])
def test_slow_types_get_smaller_shapes(tflops: float, largest: int) -> None:
    shapes = gemmprobe.default_shapes(tflops)
    assert len(shapes) == len(set(shapes)) == 4
    assert shapes[0] == (largest, largest, largest)
    assert all(size % 128 == 0 for shape in shapes for size in shape)
    assert max(2 * m * n * k for m, n, k in shapes) / (tflops * 1e12) < 0.1


@pytest.mark.parametrize(
    ("one_set", "l2", "want"), [(384 * 2**20, 60 * 2**20, 2), (24 * 2**20, 60 * 2**20, 8), (2**20, 4 * 2**20, 12)]
)
def test_sets_go_past_three_times_the_cache(one_set: int, l2: int, want: int) -> None:
    assert gemmprobe.sets_past_the_cache(one_set, l2) == want
    assert want * one_set >= 3 * l2


def test_tiles_are_rounded_up() -> None:
    assert gemmprobe.tiles((4096, 4096, 4096), (256, 128)) == 512
    assert gemmprobe.tiles((257, 1, 8), (256, 128)) == 2


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
    every = {"bf16", "fp16", "tf32", "fp32", "fp64", "int8", "fp8"}
    assert {key.partition("/")[0] for key in gemmprobe.types_of(capability)} == every - lacks


def test_the_main_type_is_the_profiles_or_the_first_there_is() -> None:
    assert gemmprobe.main_type((9, 0), "tf32").startswith("tf32/")
    assert gemmprobe.main_type((9, 0), None).startswith("bf16/")
    assert gemmprobe.main_type((7, 0), "bf16") == "fp16/fp32"


def test_sums_of_the_exact_check_fit() -> None:
    """The largest sum of the whole-numbered check is exact in every accumulator and output."""
    for key, largest, digits, in_bf16 in gemmprobe.exact_sums():
        assert largest <= 2**digits, key
        assert largest <= 2**8 or not in_bf16, key


# ------------------------------------------------------------ is the product right?


@pytest.mark.parametrize("dtype", gemmprobe.STORED)
def test_a_right_product_has_no_error_and_one_wrong_element_is_seen(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error, exact, allowed = gemmprobe.checked(dtype, monkeypatch)
    assert (error <= allowed, exact) == (True, True)
    for place in ((0, 0), (-1, -1)):

        def one(d: Any, place: tuple[int, int] = place) -> None:
            d[place] += 16

        error, exact, allowed = gemmprobe.checked(dtype, monkeypatch, one)
        assert 0.1 < error < 1
        assert (error > allowed, exact) == (True, False)


@pytest.mark.parametrize("dtype", gemmprobe.STORED)
@pytest.mark.parametrize("where", [(-1, -1), (slice(None), slice(None))], ids=["one", "all"])
def test_elements_that_the_algorithm_did_not_write_are_an_error(
    dtype: str, where: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are no numbers then, and of whole numbers -1."""

    def unwritten(d: Any) -> None:
        d[where] = float("nan")

    error, exact, allowed = gemmprobe.checked(dtype, monkeypatch, unwritten)
    assert error == 1.0 or (dtype == "int8" and error > allowed)
    assert not exact


def test_a_product_of_nothing_but_zeros_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = {bits: 0.0 for bits in (0x0000, 0x8000)}
    monkeypatch.setitem(gemmprobe.STORED, "fp16", ("<u2", zeros))
    with np.errstate(invalid="ignore"):
        assert gemmprobe.checked("fp16", monkeypatch)[:2] == (1.0, False)


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
    found = burst.burst(device, burst.Rule(batch_seconds=0.01))
    assert found == burst.Burst(1.0, 0.0, 31)
    assert device.batches == [1, 10, 10, 10]


def test_an_unsteady_burst_ends_before_the_power_cap_and_says_its_spread() -> None:
    found = burst.burst(Device(0.1, 0.12), burst.Rule(short_seconds=0.045))
    assert found.rel_stdev_percent == pytest.approx(9.1, abs=0.2)
    assert 0.045 <= found.iterations * 0.11 / 1000 < 0.065


def test_few_samples_are_enough_of_slow_work() -> None:
    assert burst.burst(Device(20.0), burst.Rule()).iterations == burst.FEWEST
    assert burst.burst(Device(20.0, 30.0), burst.Rule()).iterations == burst.FEWEST
    assert burst.burst(Device(200.0), burst.Rule(most_seconds=1.2)).iterations == 6


@pytest.mark.parametrize("capped_after", [12, 14, 16, 31])
def test_the_figure_is_that_before_the_power_cap_wherever_in_the_burst_it_acts(capped_after: int) -> None:
    """TF32 products of 3 ms on an H100: the cap acted after 10 to 17 of them, and thirty gave 410 or 365 TFLOPS.

    A burst in which it acts before the twelfth is repeated, as every unsteady one.
    """
    durations = [3.1] + [2.68] * (capped_after - 1) + [3.05] * 40
    assert burst.burst(Device(*durations), burst.Rule()).milliseconds == pytest.approx(2.68)


def test_steady_work_goes_on_for_the_least_seconds() -> None:
    found = burst.burst(Device(1.0), burst.Rule(least_seconds=0.12, short_seconds=0.12))
    assert found.rel_stdev_percent == 0.0
    assert 120 <= found.iterations < 140


def test_the_median_withstands_an_outlier() -> None:
    assert burst.burst(Device(*[1.0] * 20, 30.0), burst.Rule()).milliseconds == 1.0


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
    found = burst.best_burst(device.rest, device, burst.Rule())
    assert device.rests == 2
    assert (found.milliseconds, found.rel_stdev_percent, found.number) == (1.0, 0.0, 1)


def test_when_every_burst_is_hit_the_fastest_is_given() -> None:
    device = CappedDevice(15, lucky=set())

    def rest() -> None:
        device.rest()
        device.after = {1: 5, 2: 29, 3: 14}[device.rests]

    found = burst.best_burst(rest, device, burst.Rule(tries=3))
    assert device.rests == 3
    assert found.milliseconds == 1.0
    assert found.rel_stdev_percent > 1


def test_a_wild_burst_is_repeated_once_though_the_rule_has_one_try() -> None:
    wild, calm = iter([1.0, 9.0] * 100), iter([1.2] * 300)
    rests: list[int] = []

    def some(count: int) -> list[float]:
        return [next(wild if len(rests) == 1 else calm) for _ in range(count)]

    found = burst.best_burst(lambda: rests.append(0), some, burst.Rule(tries=1))
    assert len(rests) == 2
    assert (found.milliseconds, found.number) == (1.2, 1)


def test_slow_work_is_not_repeated() -> None:
    device = CappedDevice(0, lucky=set())
    slow = burst.best_burst(device.rest, Device(20.0, 30.0), burst.Rule())
    assert device.rests == 1
    assert slow.rel_stdev_percent > 1


def test_the_spread_of_one_sample_is_unknown() -> None:
    assert burst.rel_stdev([1.0]) == 100.0


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
    found = gemmprobe.algorithm(tile, stages, 0, 3.879)
    assert (found["tile_m"], found["tile_n"], found["tile_k"], found["stages"]) == want
    assert (found["tile"], found["split_k"], found["waves"]) == (tile, 1, 3.879)


def test_waves_that_cublaslt_does_not_tell() -> None:
    assert gemmprobe.algorithm("TILE_64x64", "STAGES_32x2", 2, float("nan"))["waves"] is None


def test_a_product_that_failed_has_no_figures() -> None:
    values = gemmprobe.recorded(8, 8, 8, error="CUDA_ERROR_OUT_OF_MEMORY")
    assert values["error"] == "CUDA_ERROR_OUT_OF_MEMORY"
    for name in ("tflops", "exact", "graphics_clock_mhz", "algorithm"):
        assert values[name] == records.Missing("command_failed", "CUDA_ERROR_OUT_OF_MEMORY")


def test_a_products_tflops() -> None:
    values = gemmprobe.recorded(8192, 8192, 8192, milliseconds=1.44)
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
def test_a_toolkit_that_cannot_be_measured(
    version: Any, reason: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gemmprobe.toolkit(monkeypatch, version)
    refused = measure("gemm")
    assert isinstance(refused, records.Missing)
    assert refused.reason == reason
    assert remedy in refused.detail


@pytest.mark.parametrize("version", ["11.8", "12.4", "13.0"])
def test_without_the_bindings_the_probe_says_what_to_do(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gemmprobe.without_callers(monkeypatch, tmp_path)
    gemmprobe.toolkit(monkeypatch, version)
    found = measure("gemm")
    assert isinstance(found, records.Missing)
    assert found.reason == "not_installed"
    assert "nvmath-python is not in the agent" in found.detail
    assert "gpu_agent" in found.detail
