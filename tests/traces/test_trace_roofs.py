"""Products, convolutions and attention against the roof of their GPU: data type, reasons, better shapes, records."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import amount
import publictraces
import pytest
import tracesteps
from handmade import Op, launched, step, trace

from gpuprep import catalogue, records
from gpuprep.catalogue import boards
from gpuprep.performance import bettershape, operations, predict, roofline
from gpuprep.trace import columns, document, opening, profile

RECORDED = Path(__file__).parent / "recorded"
A100 = boards()["a100_sxm4_40"]
H100 = boards()["h100_sxm5_80"]
NVJET = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT"
ALIGN1 = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(Params)"
DEVICES = (columns.Device(0, "NVIDIA H100 80GB HBM3", "9.0", 132, 85_000_000_000),)


def product(m: int, n: int, k: int, dtype: str = "c10::BFloat16") -> columns.Arguments:
    """As a linear layer's forward pass: rows of both operands lie along k."""
    return columns.Arguments(((m, k), (k, n)), (dtype, dtype), ((k, 1), (1, k)), ("", ""))


def opened(
    name: str,
    given: columns.Arguments | None,
    kernels: list[tuple[str, int]],
    *,
    steps: int = 1,
    devices: Any = DEVICES,
) -> profile.Profile:
    """One op a step, which launches these kernels: name and nanoseconds."""
    rows: list[Any] = []
    length = 20 + sum(ns for _, ns in kernels)
    for number in range(steps):
        at = number * 2 * length
        rows += [step(number, at, at + length), Op(name, at + 1, at + 15, arguments=given)]
        ready = at + 10
        for place, (kernel, ns) in enumerate(kernels):
            rows += launched(kernel, at + 2 + place, ready, ready + ns, number * 10 + place + 1)
            ready += ns
    return tracesteps.linked(trace(*rows, devices=devices))


def lines(
    *args: Any, board: catalogue.Board = H100, record: records.RunRecord | None = None, **more: Any
) -> tuple[document.RoofLine, ...]:
    return tracesteps.roofed(opened(*args, **more), board, record).roofs


def line(*args: Any, **more: Any) -> document.RoofLine:
    (found,) = lines(*args, **more)
    return found


def peak(board: catalogue.Board, dtype: str) -> float:
    found = roofline.roof(board, dtype)
    assert isinstance(found, roofline.Roof)
    return found.tflops


def test_figures_of_a_product() -> None:
    found = line("aten::mm", product(4096, 4096, 4096), [(NVJET, 200_000)], steps=3)
    work = 2.0 * 4096**3
    assert found.shape == "m=4096 n=4096 k=4096"
    assert (found.calls, found.gpu_us) == (3, 600.0)
    assert found.tflops == pytest.approx(work / 200e-6 / 1e12)
    assert (found.dtype, found.roof_source) == ("bf16", "catalogue")
    assert found.roof_tflops == peak(H100, "bf16")
    assert found.percent == pytest.approx(100 * found.tflops / found.roof_tflops)
    assert found.words.startswith("687 of 1071 TFLOPS: ")


def test_a_crooked_product_names_the_better_shape_and_what_it_saves() -> None:
    """Its words and its figure say the same; k of 4097 has 2 bytes of alignment."""
    found = line("aten::mm", product(4096, 4096, 4097), [(ALIGN1, 1_000_000)], steps=2)
    assert "misalignment (k 4097:" in found.words
    told = re.fullmatch(r"(\d+\.\d+) times faster with K padded from 4097 to (\d+)", found.better)
    assert told is not None
    assert int(told[2]) % 8 == 0
    assert found.better_us == pytest.approx(1000 * (1 - 1 / float(told[1])), rel=0.02)


def test_the_estimate_is_the_ratio_of_two_predictions() -> None:
    found = line("aten::mm", product(4096, 4096, 4097), [(ALIGN1, 1_100_000)])
    asked = predict.predict(H100, operations.Operation("product", "", 4096, 4096, 4097), "bf16")
    assert not isinstance(asked, records.Missing)
    larger = next(one for one in bettershape.near(asked) if one.direction == "larger")
    assert found.better_us == pytest.approx(1100 * (1 - larger.time_ratio))


def test_tokens_may_be_any_number() -> None:
    """m is no size along which rows lie in a forward pass: 4097 tokens cost no alignment."""
    found = line("aten::mm", product(4097, 4096, 4096), [(NVJET, 250_000)])
    assert "misalignment" not in found.words
    assert "M padded" not in found.better


def test_a_product_that_is_as_fast_as_the_larger_shape_gets_no_advice() -> None:
    slow = line("aten::mm", product(4096, 4096, 4097), [(ALIGN1, 1_000_000)])
    fast = line("aten::mm", product(4096, 4096, 4097), [(NVJET, 180_000)])
    assert slow.better
    assert (fast.better, fast.better_us) == ("", None)


def test_no_estimate_goes_beyond_the_roof() -> None:
    """The padded product is not said to be done sooner than its operations at the peak."""
    seen = 0
    for k in (4097, 1023, 333):
        for ns in (10_000_000, 1_000_000, 300_000):
            found = line("aten::mm", product(8192, 8192, k), [(ALIGN1, ns)])
            if found.better_us is not None:
                seen += 1
                left = (ns / 1000 - found.better_us) * 1e-6
                assert 2.0 * 8192 * 8192 * k / left / 1e12 <= peak(H100, "bf16")
    assert seen


@pytest.mark.parametrize(
    ("kernel", "dtype", "said"),
    [
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_stage4_tensor16x8x8_cublas", "tf32", ""),
        ("ampere_sgemm_128x128_nn", "fp32", "as TF32 the roof is 156 TFLOPS"),
        ("my_matmul", "tf32", "do not tell whether this was TF32 or FP32"),
    ],
)
def test_fp32_by_the_names_of_the_kernels(kernel: str, dtype: str, said: str) -> None:
    found = line("aten::mm", product(4096, 4096, 4096, "float"), [(kernel, 10_000_000)], board=A100)
    assert found.dtype == dtype
    assert found.roof_tflops == peak(A100, dtype)
    assert said in found.words


def test_a_speed_that_cuda_cores_cannot_reach_is_tf32() -> None:
    found = line("aten::mm", product(4096, 4096, 4096, "float"), [("my_matmul", 1_500_000)], board=A100)
    assert found.tflops > peak(A100, "fp32")
    assert found.dtype == "tf32"
    assert "do not tell" not in found.words


def test_fp32_of_a_v100_is_fp32() -> None:
    v100 = next(one for one in boards().values() if one.model.key == "v100")
    found = line("aten::mm", product(4096, 4096, 4096, "float"), [("volta_sgemm_128x64_nn", 12_000_000)], board=v100)
    assert (found.dtype, found.roof_tflops) == ("fp32", peak(v100, "fp32"))
    assert "TF32" not in found.words


def test_sixteen_bits_on_cuda_cores_are_told() -> None:
    found = line("aten::mm", product(4096, 4096, 4096), [("maxwell_hgemm_256x128_nt", 10_000_000)])
    assert "its kernels use no Tensor Cores" in found.words


def test_impossible_figures_are_said_and_never_shown_as_good() -> None:
    found = line("aten::mm", product(8192, 8192, 8192), [(NVJET, 10_000)])
    assert found.percent is None
    assert found.words.startswith("not possible: ")
    assert (found.better, found.better_us) == ("", None)


def test_calls_whose_kernels_were_lost_do_not_count() -> None:
    """Two calls and one kernel: half of the work is in the profile."""
    given = product(4096, 4096, 4096)
    rows = [step(0, 0, 900_000), Op("aten::mm", 10, 20, arguments=given), Op("aten::mm", 30, 40, arguments=given)]
    made = tracesteps.linked(trace(*rows, *launched(NVJET, 31, 50, 200_050, 1), devices=DEVICES))
    (found,) = tracesteps.roofed(made, H100).roofs
    assert found.calls == 2
    assert found.tflops == pytest.approx(2.0 * 4096**3 / 200e-6 / 1e12)


def test_kernels_that_only_prepare_are_told() -> None:
    layout = "void cudnn::ops::nchwToNhwcKernel<float, float>(Params)"
    given = columns.Arguments(
        ((32, 64, 56, 56), (64, 64, 3, 3), ()), ("float", "float", ""), (),
        ("", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"),
    )  # fmt: skip
    kernel = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_cudnn"
    found = line("aten::convolution", given, [(kernel, 300_000), (layout, 200_000)], board=A100)
    assert (
        "40 % of its time is in kernels that prepare or end it, such as void cudnn::ops::nchwToNhwcKernel"
        in found.words
    )
    assert found.shape == "batch=32 points=56x56 channels=64 to 64 filter=3x3"


def test_a_convolution_that_calculates_less_may_pass_its_roof() -> None:
    """Winograd's algorithm on CUDA cores: no wrong figure, and no TF32."""
    concrete = ("", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1")
    given = columns.Arguments(((64, 128, 56, 56), (128, 128, 3, 3), ()), ("float", "float", ""), (), concrete)
    found = line("aten::convolution", given, [("ampere_scudnn_winograd_128x128_ldg1_ldg4_relu", 800_000)])
    assert found.dtype == "fp32"
    assert found.percent is None
    assert "Winograd or FFT: it needs fewer operations than are counted" in found.words
    other = line("aten::convolution", given, [("ampere_scudnn_128x64_relu_medium_nn_v1", 800_000)])
    assert other.words.startswith("not possible")


def test_channels_of_a_convolution_are_padded() -> None:
    concrete = ("", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1")
    given = columns.Arguments(((64, 129, 56, 56), (250, 129, 3, 3), ()), ("c10::BFloat16",) * 2 + ("",), (), concrete)
    found = line("aten::convolution", given, [("sm80_xmma_fprop_implicit_gemm_bf16bf16_x", 3_000_000)])
    assert "channels in 129 and channels out 250 are no multiples of 16 bytes" in found.words
    assert "channels in padded from 129 to 1" in found.better
    assert found.better_us is not None
    assert 0 < found.better_us < found.gpu_us
    first = columns.Arguments(((64, 3, 224, 224), (64, 3, 7, 7), ()), ("c10::BFloat16",) * 2 + ("",), (), concrete)
    assert "channels in" not in line("aten::convolution", first, [("x", 3_000_000)]).better


def test_causal_attention_counts_half() -> None:
    shapes = ((8, 16, 2048, 128),) * 3
    concrete = ("", "", "", "0.", "True", "False", "")
    causal = columns.Arguments(shapes, ("c10::BFloat16",) * 3, (), concrete)
    whole = replace(causal, concrete=(*concrete[:4], "False", *concrete[5:]))
    kernel = [("void pytorch_flash::flash_fwd_kernel<T>(P)", 1_000_000)]
    one = line("aten::_scaled_dot_product_flash_attention", causal, kernel)
    other = line("aten::_scaled_dot_product_flash_attention", whole, kernel)
    assert one.tflops == pytest.approx(other.tflops / 2, rel=1e-3)
    assert "50 % of the scores" in one.words
    assert "fused kernels reach about" in other.words


def test_batches_and_memory_bound_products() -> None:
    given = columns.Arguments(((64, 128, 64), (64, 64, 128)), ("c10::Half", "c10::Half"))
    found = line("aten::bmm", given, [(NVJET, 30_000)])
    assert "memory decides: " in found.words
    assert found.shape == "m=128 n=128 k=64 batch=64"


def record(
    *gemms: dict[str, Any], source: records.Source = records.Source.MEASURED, name: str = DEVICES[0].name
) -> records.RunRecord:
    values = {"gpus": [{"index": 0, "name": name, "pci_device_id": "2330", "gemms": list(gemms)}]}
    return records.RunRecord(
        "r-7", "validate", "host", "2026-01-01T00:00:00+00:00", "2026-01-01T00:01:00+00:00", source, 0, "1.0",
        measurements=(records.ProbeResult("gemm", source, values, 1.0),),
    )  # fmt: skip


def test_with_a_record_the_measured_roof_is_used_and_named() -> None:
    gemms = [{"dtype": "bf16", "m": 8192, "n": 8192, "k": 8192, "tflops": speed} for speed in (700.0, 750.0, 720.0)]
    asked: Any = ("aten::mm", product(4096, 4096, 4096), [(NVJET, 200_000)])
    found = line(*asked, record=record(*gemms))
    assert (found.roof_tflops, found.roof_source) == (750.0, "record r-7")
    assert found.percent == pytest.approx(100 * found.tflops / 750)
    assert line(*asked, record=record(*gemms, source=records.Source.SIMULATED)).roof_source == "record r-7 (simulated)"
    slow = line(*asked, record=record({"dtype": "bf16", "tflops": 500.0}))
    assert slow.percent is not None
    assert slow.percent > 100
    assert "faster than every product in the record" in slow.words


@pytest.mark.parametrize(
    "given",
    [
        record(),
        record({"dtype": "fp16", "tflops": 700.0}),
        record({"dtype": "bf16", "tflops": {"missing": "not_read", "detail": ""}}),
        record({"dtype": "bf16", "tflops": 700.0}, name="NVIDIA L4"),
        replace(
            record(),
            measurements=(records.ProbeResult("gemm", records.Source.MEASURED, records.Missing("timeout", ""), 1.0),),
        ),
        replace(record(), measurements=()),
    ],
)
def test_a_record_without_the_figure_leaves_the_catalogue(given: records.RunRecord) -> None:
    found = line("aten::mm", product(4096, 4096, 4096), [(NVJET, 200_000)], record=given)
    assert (found.roof_tflops, found.roof_source) == (peak(H100, "bf16"), "catalogue")


def test_what_is_missing_is_said() -> None:
    """In a note, where there is no line; the board is that of the profile's GPU, where the catalogue knows it."""

    def lacks(name: str, given: columns.Arguments | None, devices: Any = DEVICES) -> str:
        told = tracesteps.roofed(opened(name, given, [(NVJET, 5000)], devices=devices))
        notes = {note.id: note.text for note in told.file.notes}
        assert bool(told.roofs) != ("no_roofs" in notes)
        return notes.get("no_roofs", "")

    assert lacks("aten::mm", product(64, 64, 64)) == ""
    assert "record_shapes=True" in lacks("aten::mm", None)
    assert "no op whose shapes tell the work" in lacks("aten::add", product(8, 8, 8))
    assert "has no peak of the" in lacks("aten::mm", product(8, 8, 8, "long"))
    assert "does not know the NVIDIA X9" in lacks(
        "aten::mm", product(8, 8, 8), devices=(columns.Device(0, "NVIDIA X9"),)
    )
    assert "does not name its GPU" in lacks("aten::mm", product(8, 8, 8), devices=(columns.Device(0),))


def test_damaged_shapes_make_no_line() -> None:
    for shapes in (((0, 8), (8, 8)), ((2**40, 2**40), (2**40, 2**40)), ((1,) * 50, (1,) * 50)):
        given = columns.Arguments(shapes, ("c10::Half", "c10::Half"))
        assert all(one.words.startswith("not possible") for one in lines("aten::mm", given, [(NVJET, 1000)]))


@pytest.mark.parametrize(
    ("name", "tile"),
    [
        ("volta_sgemm_128x64_nn", "128x64"),
        ("ampere_fp16_s16816gemm_fp16_256x128_ldg8_f2f_stages_64x3_tn", "256x128"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x128_32x3_nt_align4>(P)", "64x128"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x192x64_warpgroupsize1x1x1", "128x192"),
        ("nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_TNT", "320x128"),
        ("nvjet_hsh_64x512_64x2_1x2_h_bz", "64x512"),
        ("cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_bf16_bf16_128x256x64_2x1x1", "128x256"),
        ("my_kernel", ""),
    ],
)
def test_tiles_in_names(name: str, tile: str) -> None:
    """Of a product that fills none of them. cuBLAS takes the columns of PyTorch's result for rows."""
    words = line("aten::mm", product(1032, 1032, 4096), [(name, 160_000)]).words
    assert re.findall(r"partly empty tiles of (\d+)x(\d+)", words) == ([tuple(tile.split("x")[::-1])] if tile else [])


def test_rows_decide_the_alignment_of_a_prediction() -> None:
    for rows, bytes_ in (("kkn", 16), ("kkm", 2), ("mkn", 2)):
        asked = operations.Operation("product", "", 4097, 4096, 4096, rows=rows)
        found = predict.predict(H100, asked, "fp16")
        assert not isinstance(found, records.Missing)
        assert found.alignment == bytes_


# ---------------------------------------------------------------- real profiles


def test_the_pair_that_was_measured_on_a_real_gpu() -> None:
    """A vocabulary of 50257, then of 50304: the estimate for each product beside what padding really gave."""
    crooked, padded = (
        opening.open_trace(RECORDED / f"shapes-{name}.json.gz").document.roofs for name in ("misaligned", "padded")
    )

    def at(found: tuple[document.RoofLine, ...], shape: str) -> document.RoofLine:
        (one,) = (each for each in found if each.shape == shape and each.type == "aten::mm")
        return one

    steps = 3
    for before, after in (
        ("m=4096 n=50257 k=1024", "m=4096 n=50304 k=1024"),
        ("m=4096 n=1024 k=50257", "m=4096 n=1024 k=50304"),
        ("m=50257 n=1024 k=4096", "m=50304 n=1024 k=4096"),
    ):
        slow, fast = at(crooked, before), at(padded, after)
        assert slow.better_us == pytest.approx((slow.gpu_us - fast.gpu_us) / steps, rel=0.3)
        assert fast.better == ""


@pytest.mark.parametrize("path", amount.third(sorted(RECORDED.glob("*.json.gz"))), ids=lambda path: path.name)
def test_no_line_of_our_own_traces_is_impossible(path: Path) -> None:
    roofs = opening.open_trace(path).document.roofs
    assert roofs or path.name == "launch-graph.json.gz"  # a graph's kernels belong to no op
    for found in roofs:
        assert not found.words.startswith("not possible"), found
        assert found.roof_source == "catalogue"
        assert "Winograd or FFT" in found.words if found.percent is None else 0 < found.percent <= 100


OLD: dict[str, Any] = {"dtypes": ("float",) * 3}  # without stride and padding, as formats before 2023
FORWARD = ("aten::cudnn_convolution", columns.Arguments(((32, 64, 56, 56), (128, 64, 3, 3)), **OLD))


def backward(output: tuple[int, ...], image: tuple[int, ...] = (32, 64, 56, 56)) -> tuple[str, columns.Arguments]:
    return "aten::cudnn_convolution_backward", columns.Arguments((image, output, (128, 64, 3, 3)), **OLD)


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ([backward((32, 128, 28, 28))], "28x28"),  # stride 2
        ([backward((32, 128, 56, 56))], "56x56"),
        ([("aten::convolution_backward", columns.Arguments(((32, 128, 54, 54), *FORWARD[1].shapes), **OLD))], "54x54"),
        ([], ""),  # inference
        ([backward((32, 128, 28, 28)), backward((32, 128, 56, 56))], ""),  # two layers alike but for their stride
        ([backward((32, 128, 28, 28), (32, 64, 112, 112))], ""),  # another layer's
        ([backward((32, 256, 28, 28))], ""),  # no output of this weight
        ([backward((32, -128, 28, 28))], ""),
    ],
)  # fmt: skip
def test_a_convolution_without_stride_has_the_roof_of_the_output_that_its_backward_op_tells(
    others: list[tuple[str, columns.Arguments]], told: str
) -> None:
    rows: list[Any] = [step(0, 0, 9_000_000)]
    for place, (name, given) in enumerate([FORWARD, *others]):
        at = 1_000_000 * place
        rows += [
            Op(name, at + 1, at + 15, arguments=given),
            *launched("sgemm", at + 2, at + 20, at + 900_000, place + 1),
        ]
    found = tracesteps.roofed(tracesteps.linked(trace(*rows, devices=DEVICES)), H100, None).roofs
    shapes = [line.shape for line in found if line.type == FORWARD[0]]
    assert shapes == ([f"batch=32 points={told} channels=64 to 128 filter=3x3"] if told else [])


@publictraces.needed
def test_every_forward_convolution_of_the_oldest_format_has_a_roof() -> None:
    for path in publictraces.named("v100-workers0.json.gz", "v100-workers4.json.gz"):
        told = opening.open_trace(path).document
        convolutions = {op.id for op in told.ops if op.type == FORWARD[0] and op.gpu_us > 0}
        assert convolutions
        assert convolutions <= {line.op for line in told.roofs}


@publictraces.needed
def test_public_traces() -> None:
    (bert,) = publictraces.named("h100-bert.json.gz")
    found = opening.open_trace(bert).document.roofs
    assert len(found) >= 20
    assert {one.dtype for one in found} == {"bf16"}
    (vocabulary,) = (one for one in found if "n=30522" in one.shape)
    assert "N padded from 30522 to 30528" in vocabulary.better
    assert all(one.percent is not None and 0 < one.percent <= 100 for one in found)
