"""Rules that look at the same time: one of them claims it, none claims more than there is."""

from __future__ import annotations

from pathlib import Path

import pytest
from advicetraces import HTOD, LOADER, LOADER0, MM, NCCL, PINNED, allocating, copies, loading, product, said
from programs import PRODUCT_BF16, PRODUCT_FP32, Kernel, Program

from gpuprep import catalogue
from gpuprep.catalogue import boards
from gpuprep.trace import document


def test_without_workers_one_rule_speaks_of_the_loader(tmp_path: Path) -> None:
    assert {"dataloader", "workers0"} & set(said(loading(LOADER0, 3_000_000)(), tmp_path)) == {"workers0"}
    assert {"dataloader", "workers0"} & set(said(loading(LOADER, 3_000_000)(), tmp_path)) == {"dataloader"}


def test_a_copy_from_pageable_memory_cannot_be_hidden_before_it_is_pinned(tmp_path: Path) -> None:
    assert {"pageable", "h2d-exposed"} & set(said(copies(HTOD, True)(), tmp_path)) == {"pageable"}
    assert {"pageable", "h2d-exposed"} & set(said(copies(PINNED, False)(), tmp_path)) == {"h2d-exposed"}


def waiting(inside: str) -> Program:
    """The CPU waits for the GPU inside of a range, and the GPU is idle then."""
    p = Program()
    for _ in p.steps(3):
        for _ in range(5):
            product(p, many=2)
            with p.range(inside):
                p.wait()
            p.now += 100_000
    return p


@pytest.mark.parametrize(("inside", "speaks"), [("gloo:all_reduce", False), ("my own", True)])
def test_what_gloo_waits_for_is_no_item_of_the_program(inside: str, speaks: bool, tmp_path: Path) -> None:
    assert ("sync" in said(waiting(inside), tmp_path)) == speaks


def test_the_wait_behind_a_pageable_copy_is_no_item_of_the_program(tmp_path: Path) -> None:
    p = Program()
    for _ in p.steps(3):
        p.op("aten::copy_", Kernel(HTOD, 3_000_000, 7, "gpu_memcpy", size=2**25), shapes=[[8, 2**20]], dtypes=["float"])
        p.wait()
        p.now += 200_000
        product(p, many=5)
    assert {"sync", "pageable"} & set(said(p, tmp_path)) == {"pageable"}


def reduced(other_ns: int) -> document.Advice | None:
    """`comm-exposed` of steps with 10 collectives of 1 ms, and so much other work that none of them runs beside."""
    p = Program()
    for _ in p.steps(3):
        for _ in range(10):
            p.op("nccl:all_reduce", Kernel(NCCL, 1_000_000))
        p.op("aten::mm", Kernel(PRODUCT_BF16, other_ns))
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return said(p, Path(folder)).get("comm-exposed")


@pytest.mark.parametrize(("other_ns", "most_us"), [(2_000_000, 2_000), (50_000_000, 9_000)])
def test_communication_hides_behind_no_more_than_there_is(other_ns: int, most_us: float) -> None:
    found = reduced(other_ns)
    assert found is not None
    assert found.gain is not None
    assert found.gain.us == pytest.approx(most_us, rel=0.02)
    assert (found.gain.least_us, found.gain.most_us) == (0.0, found.gain.us)


def test_memory_that_a_program_asks_for_once_is_no_fault(tmp_path: Path) -> None:
    """A profile without steps may hold the program's start."""
    p = allocating(True)()
    p.trace.events = [one for one in p.trace.events if not str(one.get("name", "")).startswith("ProfilerStep")]
    found = said(p, tmp_path)
    assert "no-steps" in found
    assert "alloc" not in found


def test_half_precision_on_volta_needs_a_scaler_in_readable_words(tmp_path: Path) -> None:
    volta = {"id": 0, "name": "Tesla V100-SXM2-32GB", "totalGlobalMem": 34_000_000_000, "computeMajor": 7,
             "computeMinor": 0, "numSms": 80}  # fmt: skip
    p = Program(deviceProperties=[volta])
    for _ in p.steps(3):
        p.op("aten::mm", Kernel("volta_sgemm_128x128_nn", 20_000_000), **MM)
    assert "torch.float16 and torch.amp.GradScaler." in said(p, tmp_path)["amp"].recommendation


def test_a_convolution_is_all_of_its_kernels_but_those_of_the_layout(tmp_path: Path) -> None:
    """Through Fourier's transform, most of the time is not in kernels that are called a product."""
    p = Program()
    shapes, dtypes = [[32, 64, 56, 56], [64, 64, 3, 3], []], ["float", "float", ""]
    concrete = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    for _ in p.steps(3):
        kernels = [Kernel("void fft2d_r2c_32x32<float>", 4_000_000), Kernel(PRODUCT_FP32, 1_000_000),
                   Kernel("void pointwise_mult_and_sum_complex<float2, 8, 4>", 5_000_000)]  # fmt: skip
        p.op("aten::convolution", *kernels, shapes=shapes, dtypes=dtypes, args={"Concrete Inputs": concrete})
    gain = said(p, tmp_path)["tf32"].gain
    assert gain is not None
    assert gain.us > 0.7 * 10_000


# ---------------------------------------------------------------- boards that the catalogue lacks


def test_of_an_unknown_name_boards_like_it_tell(tmp_path: Path) -> None:
    sample = {"id": 0, "name": "NVIDIA A100-PG509-200", "totalGlobalMem": 42_297_524_224, "computeMajor": 8,
              "computeMinor": 0, "numSms": 108}  # fmt: skip
    p = Program(deviceProperties=[sample])
    for _ in p.steps(3):
        p.op("aten::mm", Kernel(PRODUCT_FP32, 8_000_000), **MM)
    told = p.opened(tmp_path).document
    notes = {one.id: one.text for one in told.file.notes}
    assert "does not know the NVIDIA A100-PG509-200" in notes["board_like"]
    assert "no_roofs" not in notes
    assert next(one.gain for one in told.advice if one.rule == "tf32") is not None


def test_boards_that_are_not_alike_give_nothing() -> None:
    like = catalogue.board_like("NVIDIA A100-PG509-200", "8.0", 40338, 108)
    assert like is not None
    assert (like.model.key, like.boost_mhz, like.memory_gb_per_s) == ("a100", 1410, 1555)
    assert catalogue.board_like("", "8.0", 40338, 108) is None, "an A100 or an A800"
    assert catalogue.board_like("A100", "8.0", 40338, 107) is None
    assert catalogue.board_like("A100", "8.0", None, 108) is None
    assert catalogue.board_like("A100", "1.0", 40338, 108) is None
    for one in boards().values():
        found = catalogue.board_like(one.name, one.model.compute_capability, one.memory_mib, one.sms)
        assert found is None or found.model == one.model
