"""Where the speed of a matrix product went: the factors multiply to it, and the words say it."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from places import TESTS

from gpuprep import catalogue, records
from gpuprep.performance import attribution, roofline
from gpuprep.records import evidence
from gpuprep.records.evidence import kinds


def known(device: str) -> catalogue.Board:
    found = catalogue.board(device)
    assert found is not None
    return found


T4, V100, A100, H200, A10G = (known(device) for device in ("1eb8", "1db1", "20b2", "2335", "2237"))
# A T4 under its power cap, of which a test changes what it is about.
CAPPED: dict[str, Any] = {
    "dtype": "fp16", "accumulate": "fp32", "m": 4096, "n": 4096, "k": 4096, "tflops": 38.0, "graphics_clock_mhz": 1027,
    "memory_clock_mhz": 5001, "event_reasons": 4, "temperature_c": 70,
    "algorithm": {"tile": "TILE_128x128", "tile_m": 128, "tile_n": 128, "split_k": 1, "waves": 7 + 1 / 3},
}  # fmt: skip


def measured(around: dict[str, Any] | None = None, **changed: Any) -> tuple[Any, Any]:
    """(the product, the GPU) as a record has them."""
    entry = {**(around or {}), "gemms": [{**CAPPED, **changed}]}
    values: Any = evidence.measured(kinds.OF_PROBE["gemm"], {"gpus": [entry]})
    (gpu,) = values.gpus
    return gpu.gemms[0], gpu


def product(**changed: Any) -> Any:
    return measured(**changed)[0]


def explain(gpu: catalogue.Board = T4, around: dict[str, Any] | None = None, **changed: Any) -> attribution.Attribution:
    made, entry = measured(around, **changed)
    found = attribution.explain(made, gpu, entry)
    assert isinstance(found, attribution.Attribution), found
    return found


def value(found: attribution.Attribution, name: str) -> float:
    return found.factor(name).value


def test_the_sentence() -> None:
    assert explain().words == (
        "38 of 65 TFLOPS: 23 lost to the 70 W power cap (SM 1027 of 1590 MHz), "
        "3 to a last wave one third full, 1 in the kernel"
    )


SIZES = st.integers(1, 20000)


@given(
    gpu=st.sampled_from([T4, V100, A100, H200]),
    dtype=st.sampled_from(["fp64", "fp32", "fp16"]),
    shape=st.tuples(SIZES, SIZES, SIZES),
    tflops=st.floats(1e-3, 5000),
    clock=st.one_of(st.none(), st.floats(100, 3000)),
    waves=st.one_of(st.none(), st.floats(0.01, 500)),
    tile=st.one_of(st.none(), st.sampled_from([64, 128, 256])),
)
def test_the_factors_multiply_to_the_measured_figure(
    gpu: catalogue.Board, dtype: str, shape: tuple[int, int, int], tflops: float, clock: float | None,
    waves: float | None, tile: int | None,
) -> None:  # fmt: skip
    m, n, k = shape
    algorithm = {"tile_m": tile, "tile_n": tile, "waves": waves}
    found = explain(
        gpu, dtype=dtype, m=m, n=n, k=k, tflops=tflops, graphics_clock_mhz=clock, algorithm=algorithm, accumulate="fp32"
    )
    product = math.prod(factor.value for factor in found.factors)
    assert found.peak_tflops * product == pytest.approx(tflops, rel=1e-9)
    lost = sum(factor.lost_tflops for factor in found.factors)
    assert found.peak_tflops - lost == pytest.approx(tflops, rel=1e-6, abs=1e-6)
    assert [factor.name for factor in found.factors] == ["clock", "bound", "tile", "wave", "alignment", "kernel"]
    for name in ("bound", "tile", "wave"):
        assert 0 < value(found, name) <= 1
    if value(found, "kernel") > 1.03:
        assert "kernel efficiency" in " ".join(found.notes)
    if found.better_shape is not None:
        assert "x".join(map(str, found.better_shape)) in " ".join(found.advice)


@given(
    st.dictionaries(
        st.sampled_from([*CAPPED, "sustained"]),
        st.one_of(st.none(), st.text(max_size=2), st.floats(), st.integers(), st.just([]), st.just({"missing": "x"})),
    )
)
@example({"memory_clock_mhz": 2.2250738585072014e-308})
@example({"graphics_clock_mhz": 2.2250738585072014e-308})
def test_damage_is_missing_or_explained_never_a_traceback(changes: dict[str, Any]) -> None:
    made, around = measured(changes, **changes)
    found = attribution.explain(made, T4, around)
    assert isinstance(found, (attribution.Attribution, records.Missing))
    long = attribution.sustained(made)
    assert long is None or isinstance(attribution.explain(long, T4), (attribution.Attribution, records.Missing))
    roofline.points([made], T4)


@given(
    gpu=st.sampled_from([T4, V100, A100, H200]),
    dtype=st.sampled_from(["fp64", "fp32", "fp16"]),
    share=st.floats(0.05, 1.2),
    clock=st.floats(600, 1590),
    waves=st.floats(0.3, 40),
)
def test_the_words_add_up(gpu: catalogue.Board, dtype: str, share: float, clock: float, waves: float) -> None:
    """What the sentence says was reached and lost is the peak."""
    roof = roofline.roof(gpu, dtype)
    assert isinstance(roof, roofline.Roof)
    algorithm = {"tile_m": 128, "tile_n": 128, "waves": waves}
    words = explain(
        gpu, dtype=dtype, accumulate="", tflops=share * roof.tflops, graphics_clock_mhz=clock, algorithm=algorithm
    ).words
    head, _, rest = words.partition(": ")
    reached, peak = re.findall(r"[\d.]+", head)
    parts = re.findall(r"(?:^|, )([\d.]+) (lost|to|in|more) ", rest)
    lost = sum(-float(part) if verb == "more" else float(part) for part, verb in parts)
    assert float(reached) + lost == pytest.approx(float(peak)), words


# ---------------------------------------------------------------- clock


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (0x00, "a lower clock that NVML gives no reason for"),
        (0x01, "an idle GPU (it was not loaded while the clock was read)"),
        (0x02, "application clocks that are set low"),
        (0x04, "the 70 W power cap"),
        (0x06, "the 70 W power cap"),
        (0x08, "a hardware slowdown (heat or power)"),
        (0x20, "heat at 70 °C"),
        (0x48, "the hardware's thermal slowdown at 70 °C"),
        (0x88, "the power brake (the machine's power supply asks for less)"),
    ],
)
def test_what_held_the_clock_down(mask: int, words: str) -> None:
    assert explain(event_reasons=mask).factor("clock").words == f"{words} (SM 1027 of 1590 MHz)"


def test_a_power_limit_that_was_lowered_is_told() -> None:
    lowered = explain(around={"power_limit_watts": 60}).factor("clock").words
    assert lowered.startswith("the 60 W power cap, which is set below the card's 70 W")
    assert explain(around={"power_limit_watts": 70}).factor("clock").words.startswith("the 70 W power cap (")


def test_a_clock_that_was_not_read_is_not_guessed() -> None:
    found = explain(graphics_clock_mhz={"missing": "not_supported", "detail": ""})
    assert found.clock_adjusted_percent is None
    assert "the clock was not recorded" in found.notes[0]


def test_clock_adjusted_percent() -> None:
    found = explain()
    assert found.percent_of_peak == pytest.approx(58.35, abs=0.01)
    assert found.clock_adjusted_percent == pytest.approx(90.33, abs=0.01)


def test_more_than_the_roof_is_told_not_clamped() -> None:
    found = explain(tflops=50.0)
    assert value(found, "kernel") > 1.2
    assert "more than the roof allows" in found.notes[0]
    assert "more than the model has" in found.words


# ---------------------------------------------------------------- roofs


@pytest.mark.parametrize(
    ("gpu", "dtype", "accumulate", "tflops"),
    [
        (T4, "fp16", "fp32", 65.1), (T4, "fp16", "fp16", 65.1), (T4, "fp32", "fp32", 8.1), (T4, "int8", "int32", 130.3),
        (V100, "fp16", "fp32", 125.3), (V100, "fp64", "fp64", 7.8), (V100, "fp32", "fp32", 15.7),
        (A100, "fp16", "fp32", 311.9), (A100, "tf32", "fp32", 155.9), (A100, "fp64", "fp64", 19.5),
        (A100, "fp32", "fp32", 19.5), (A100, "int8", "int32", 623.7), (H200, "fp8", "fp32", 2141.1),
        (A10G, "fp16", "fp32", 70.0), (A10G, "fp16", "fp16", 140.1),
    ],
)  # fmt: skip
def test_peaks(gpu: catalogue.Board, dtype: str, accumulate: str, tflops: float) -> None:
    roof = roofline.roof(gpu, dtype, accumulate)
    assert isinstance(roof, roofline.Roof)
    assert roof.tflops == pytest.approx(tflops, abs=0.06)


def test_h200_at_the_clock_of_its_datasheet() -> None:
    roof = roofline.roof(H200, "bf16", clock_mhz=1830)
    assert isinstance(roof, roofline.Roof)
    assert roof.tflops == pytest.approx(989.4, abs=0.1)


def test_units_that_are_not_there() -> None:
    assert roofline.roof(T4, "bf16") == records.Missing("no_such_units", "T4 has no units for bf16: it is emulated")
    assert [roof.dtype for roof in roofline.roofs(V100)] == ["fp16", "int8", "fp32", "fp64"]


def test_a_v100s_ridge_and_intensities() -> None:
    # NVIDIA's guide: 138.9 operations a byte; 8192x128x8192 has 124.1, 8192 cubed 2730.
    assert roofline.ridge(125.0, 900.0) == pytest.approx(138.9, abs=0.05)
    assert roofline.intensity("fp16", 8192, 128, 8192) == pytest.approx(124.1, abs=0.05)
    assert roofline.intensity("fp16", 8192, 8192, 8192) == pytest.approx(2730, abs=1)


def test_points_for_a_plot() -> None:
    thin = product(n=128, m=8192, k=8192, graphics_clock_mhz=1530, memory_clock_mhz=877)
    first, second = roofline.points([thin, product(graphics_clock_mhz=None), product(tflops=None)], V100)
    assert first.memory_bound
    assert first.attainable_tflops == pytest.approx(124.12 * 0.898, abs=0.05)
    assert not second.memory_bound
    assert second.attainable_tflops == pytest.approx(125.3, abs=0.1)


# ---------------------------------------------------------------- memory


def test_a_memory_bound_shape_is_recognised_and_a_better_one_named() -> None:
    found = explain(V100, m=8192, n=128, k=8192, tflops=80.0, graphics_clock_mhz=1530, memory_clock_mhz=877)
    assert found.memory_bound
    assert value(found, "bound") == pytest.approx(124.12 / 139.57, rel=1e-3)
    assert "lost to memory (124 operations a byte, the roof needs 140)" in found.words
    assert found.better_shape == (8192, 256, 8192)
    assert roofline.intensity("fp16", 8192, 256, 8192) > found.ridge


def test_slow_memory_lowers_the_roof() -> None:
    slow = explain(memory_clock_mhz=2500, m=4096, n=256, k=4096)
    full = explain(m=4096, n=256, k=4096)
    assert slow.ridge == pytest.approx(full.ridge * 5001 / 2500)


def test_idle_sms_behind_a_memory_bound_cost_only_what_exceeds_it() -> None:
    found = explain(V100, m=8192, n=16, k=8192, tflops=12.0, graphics_clock_mhz=1530, memory_clock_mhz=877,
                    algorithm={"tile_m": 128, "tile_n": 16, "waves": 0.8})  # fmt: skip
    assert value(found, "bound") == pytest.approx(0.115, abs=0.002)
    assert (value(found, "tile"), value(found, "wave")) == (1.0, 1.0)
    assert value(found, "kernel") == pytest.approx(0.83, abs=0.01)


def test_out_of_the_cache_is_told() -> None:
    found = explain(V100, m=64, n=64, k=64, tflops=30.0, graphics_clock_mhz=1530, algorithm=None)
    assert any("L2 cache" in note for note in found.notes)


# ---------------------------------------------------------------- tiles, waves, alignment


def test_tile_quantization() -> None:
    # NVIDIA's guide: 128x128 tiles, one more column begins a whole new row of tiles.
    found = explain(m=4096, n=385, k=65536, algorithm={"tile_m": 128, "tile_n": 128, "waves": 3.2})
    assert value(found, "tile") == pytest.approx(385 / 512)
    assert found.factor("tile").words == "partly empty tiles of 128x128"


@pytest.mark.parametrize(
    ("waves", "factor", "words"),
    [
        (1.5, 0.75, "a last wave half full"), (7 + 1 / 3, 22 / 24, "a last wave one third full"),
        (4.0001, 1.0, ""), (4.0, 1.0, ""), (3.879, 3.879 / 4, "a last wave 88 % full"),
        (0.4, 0.4, "SMs without a tile (16 of 40 at work)"),
    ],
)  # fmt: skip
def test_wave_quantization(waves: float, factor: float, words: str) -> None:
    found = explain(algorithm={"tile_m": 128, "tile_n": 128, "waves": waves})
    assert value(found, "wave") == pytest.approx(factor, rel=1e-4)
    assert not words or found.factor("wave").words == words


@pytest.mark.parametrize(
    ("gpu", "n", "tile_n", "waves", "factor", "words"),
    [
        # as cuBLASLt counted on a real H200: six blocks an SM; 132 blocks that stay; 120 that stay
        (H200, 4096, 128, 1.293, 7.758 / 8, "a last wave three quarters full"),
        (H200, 4096, 256, 1.0, 3.879 / 4, "a last wave 88 % full"),
        (H200, 16384, 256, 0.909, 120 / 132, "SMs without a tile (120 of 132 at work)"),
        (T4, 512, 512, 0.8, 0.8, "SMs without a tile (one wave 80 % full)"),
    ],
)
def test_blocks_that_share_an_sm_or_stay(
    gpu: catalogue.Board, n: int, tile_n: int, waves: float, factor: float, words: str
) -> None:
    found = explain(gpu, n=n, algorithm={"tile_m": 128, "tile_n": tile_n, "waves": waves})
    assert value(found, "wave") == pytest.approx(factor, rel=1e-3)
    assert found.factor("wave").words == words


def test_a_real_h200_is_explained() -> None:
    path = TESTS / "cases/records/h200-gemm.json"
    values: Any = evidence.measured(kinds.OF_PROBE["gemm"], json.loads(path.read_text(encoding="utf-8"))["values"])
    (gpu,) = values.gpus
    products = gpu.gemms
    assert len(products) > 20
    long = [made for gemm in products if (made := attribution.sustained(gemm)) is not None]
    assert long
    for gemm in [*products, *long]:
        found = attribution.explain(gemm, H200, gpu)
        assert isinstance(found, attribution.Attribution)
        assert math.prod(f.value for f in found.factors) * found.peak_tflops == pytest.approx(gemm.tflops)
        assert 0.75 < value(found, "kernel") < 1.0, found.words
        assert found.notes == ()
        assert "lost to the 700 W power cap" in found.words or value(found, "clock") > 0.99


def test_waves_are_counted_where_they_are_not_told() -> None:
    # 4096 cubed in tiles of 256x128 on 132 SMs: 512 tiles, 3.879 waves, as cuBLASLt says on a real H200.
    found = explain(H200, algorithm={"tile_m": 256, "tile_n": 128, "split_k": 1}, tflops=600.0)
    assert value(found, "wave") == pytest.approx(512 / 132 / 4)
    assert "512 on 132 SMs" in " ".join(found.notes)


def test_without_an_algorithm_the_cause_is_not_recorded() -> None:
    found = explain(algorithm={"missing": "not_supported", "detail": ""})
    assert (value(found, "tile"), value(found, "wave")) == (1.0, 1.0)
    assert "the algorithm was not recorded" in found.notes[0]
    assert "to a cause that was not recorded" in found.words
    assert "in the kernel" not in found.words


def test_a_fuller_last_wave_is_named() -> None:
    found = explain(m=1024, n=1024, algorithm={"tile_m": 128, "tile_n": 128, "waves": 64 / 40})
    assert found.better_shape is not None
    m, n, _ = found.better_shape
    tiles = math.ceil(m / 128) * math.ceil(n / 128)
    assert tiles / 40 > 0.98 * math.ceil(tiles / 40)


@pytest.mark.parametrize(
    ("gpu", "dtype", "shape", "better", "words"),
    [
        (T4, "fp16", (4096, 4096, 4101), (4096, 4096, 4104), "k 4101 is no multiple of 16 bytes (8 elements of fp16)"),
        (
            A100,
            "fp16",
            (4096, 4096, 4099),
            (4096, 4096, 4096),
            "k 4099 is no multiple of 16 bytes (8 elements of fp16)",
        ),
        (A100, "fp16", (4096, 4104, 4096), (4096, 4096, 4096), "multiples of 128 bytes (64 elements of fp16)"),
        (A100, "fp16", (4104, 4096, 4096), None, ""),
        (A100, "tf32", (4096, 4097, 4098), (4096, 4096, 4096), "n 4097 and k 4098 are no multiples of 16 bytes (4 "),
        (
            A100,
            "int8",
            (4096, 4096, 4100),
            (4096, 4096, 4096),
            "k 4100 is no multiple of 16 bytes (16 elements of int8)",
        ),
        (
            A100,
            "fp64",
            (4096, 4097, 4096),
            (4096, 4096, 4096),
            "n 4097 is no multiple of 16 bytes (2 elements of fp64)",
        ),
        (T4, "fp16", (4104, 4096, 4096), None, ""),
    ],
)
def test_misaligned_shapes(
    gpu: catalogue.Board, dtype: str, shape: tuple[int, int, int], better: tuple[int, int, int] | None, words: str
) -> None:
    m, n, k = shape
    full = {"tile_m": 64, "tile_n": 64, "waves": 40.0}
    found = explain(gpu, dtype=dtype, m=m, n=n, k=k, algorithm=full, tflops=5.0)
    assert found.better_shape == better
    assert words in " ".join(found.advice)


@pytest.mark.parametrize(("layout", "counts"), [("TN", "mk"), ("", "nk"), ("row", "nk"), ("nt", "mn"), ("NN", "mk")])
def test_a_product_is_judged_by_the_layout_that_it_was_measured_with(layout: str, counts: str) -> None:
    """gpuprep's own probe writes TN; without a layout that of PyTorch counts."""
    for place, name in enumerate("mnk"):
        shape: dict[str, Any] = dict(zip("mnk", [4097 if i == place else 4096 for i in range(3)], strict=True))
        found = explain(A100, dtype="bf16", layout=layout, tflops=60.0, **shape)
        assert found.aligned == (name not in counts)
        assert (f"{name} 4097 is no multiple of 16 bytes" in " ".join(found.advice)) == (name in counts)
