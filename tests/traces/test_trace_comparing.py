"""What changed between two profiles."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from programs import PRODUCT_BF16, PRODUCT_FP32, Kernel, Program

from gpuprep.trace import comparing, document, opening

FLOAT = {"shapes": [[4096, 4096], [4096, 4096]], "dtypes": ["float", "float"]}
HALF = {"shapes": [[4096, 4096], [4096, 4096]], "dtypes": ["c10::BFloat16", "c10::BFloat16"]}


def slow(steps: int = 3) -> Program:
    p = Program()
    for _ in p.steps(steps):
        for _ in range(5):
            p.op("aten::mm", Kernel(PRODUCT_FP32, 400_000), **FLOAT)  # type: ignore[arg-type]
        p.op("aten::relu", Kernel("relu_kernel", 50_000), shapes=[[4096]], dtypes=["float"])
        p.wait()
    return p


def fast(steps: int = 3) -> Program:
    p = Program()
    for _ in p.steps(steps):
        for _ in range(5):
            p.op("aten::mm", Kernel(PRODUCT_BF16, 100_000), **HALF)  # type: ignore[arg-type]
        p.op("aten::relu", Kernel("relu_kernel", 50_000), shapes=[[4096]], dtypes=["float"])
        p.wait()
    return p


def told(program: Program, folder: Path, name: str = "a") -> document.TraceDocument:
    return program.opened(folder, opening.Wish(profile_name=name)).document


def compared(one: Program, other: Program, folder: Path) -> comparing.Comparison:
    return comparing.compare(told(one, folder, "before"), told(other, folder, "after"))


def figure(found: comparing.Comparison, name: str) -> tuple[float | None, float | None]:
    return next((one.before, one.after) for one in found.figures if one.name == name)


def test_a_profile_and_itself_differ_in_nothing(tmp_path: Path) -> None:
    found = compared(slow(), slow(), tmp_path)
    assert not any((found.ops, found.kernels, found.rules_gone, found.rules_new, found.remarks))
    assert all(one.change_percent in (0.0, None) for one in found.figures)


def test_what_changed_is_named_with_its_times_a_step(tmp_path: Path) -> None:
    found = compared(slow(), fast(), tmp_path)
    assert (found.before, found.after) == ("before", "after")
    before, after = figure(found, "step time")
    assert before is not None
    assert after is not None
    assert before > 2.0 > after
    kernels = {one.name: one for one in found.kernels}
    assert kernels[PRODUCT_FP32].before_us == pytest.approx(2_000)
    assert kernels[PRODUCT_FP32].after_us is None
    assert kernels[PRODUCT_BF16].before_us is None
    assert kernels[PRODUCT_BF16].after_us == pytest.approx(500)
    assert kernels[PRODUCT_BF16].after_calls == 5
    assert "relu_kernel" not in kernels
    assert {one.rule for one in found.rules_gone} == {"amp", "tf32"}
    assert not {one.rule for one in found.rules_new} & {"amp", "tf32"}


def test_the_largest_change_stands_first(tmp_path: Path) -> None:
    found = compared(slow(), fast(), tmp_path)
    changes = [abs(one.difference_us) for one in found.kernels]
    assert changes == sorted(changes, reverse=True)


def test_times_are_those_of_a_step(tmp_path: Path) -> None:
    """Twice as many steps of the same work are no change."""
    found = compared(slow(2), slow(4), tmp_path)
    assert found.kernels == ()
    assert figure(found, "kernels a step") == (6, 6)


def test_an_op_is_matched_by_its_shapes(tmp_path: Path) -> None:
    p = Program()
    for _ in p.steps(3):
        for _ in range(5):
            p.op("aten::mm", Kernel(PRODUCT_FP32, 400_000), shapes=[[4096, 4090], [4090, 4096]], dtypes=["float"] * 2)
        p.op("aten::relu", Kernel("relu_kernel", 50_000), shapes=[[4096]], dtypes=["float"])
        p.wait()
    found = compared(slow(), p, tmp_path)
    assert len(found.ops) == 2  # one is gone, one has come
    assert found.kernels == ()


def test_what_may_mislead_is_said(tmp_path: Path) -> None:
    p = Program(deviceProperties=[{"id": 0, "name": "Tesla T4", "computeMajor": 7, "computeMinor": 5, "numSms": 40}])
    p.op("aten::mm", Kernel(PRODUCT_FP32, 400_000), **FLOAT)  # type: ignore[arg-type]
    words = " ".join(compared(slow(), p, tmp_path).remarks)
    assert "different GPUs" in words
    assert "Tesla T4" in words
    assert "without steps" in words


def test_a_figure_that_is_nowhere_has_no_change(tmp_path: Path) -> None:
    p = Program()
    for _ in p.steps(3):
        p.op("aten::relu", cpu=100_000)
    found = compared(p, slow(), tmp_path)
    for one in found.figures:
        assert one.change_percent is None or math.isfinite(one.change_percent)
    assert next(one for one in found.figures if one.name == "kernel time a step").change_percent is None
