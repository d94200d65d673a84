"""The GEMM probe in a simulated VM: the model's figures in the measured form, from the NVML stand-in's state."""

from __future__ import annotations

import itertools

import pytest
from fakepynvml import install, refuse
from probereportsfortests import measure
from simulatedboot import TOOLKIT, Boot, booted, measured, other_toolkit

__all__ = ["booted"]


def test_a_t4_has_its_types_and_figures_near_the_published_ones(booted: Boot) -> None:
    booted("t4")
    values = measured()
    assert values["quick"] is False
    assert values["together"] is None
    assert values["toolkit"] == TOOLKIT
    (gpu,) = values["gpus"]
    assert (gpu["name"], gpu["sms"], gpu["pci_device_id"], gpu["error"]) == ("Tesla T4", 40, "1eb8", None)
    found = {(one["dtype"], one["accumulate"]): one for one in reversed(gpu["gemms"])}
    assert {dtype for dtype, _ in found} == {"fp16", "fp32", "fp64", "int8"}
    assert 20 <= found["fp16", "fp32"]["tflops"] <= 50
    assert 4 <= found["fp32", "fp32"]["tflops"] <= 5.6
    assert gpu["gemms"][0]["sustained"]["tflops"] == gpu["gemms"][0]["tflops"]
    assert [one["sustained"] for one in gpu["gemms"][1:]] == [None] * (len(gpu["gemms"]) - 1)


def test_a_product_is_whole(booted: Boot) -> None:
    booted("t4")
    one = measured(quick=True)["gpus"][0]["gemms"][0]
    assert one["tflops"] == pytest.approx(2 * one["m"] * one["n"] * one["k"] / one["microseconds"] / 1e6, rel=1e-3)
    algorithm = one["algorithm"]
    tiles = -(-one["m"] // algorithm["tile_m"]) * -(-one["n"] // algorithm["tile_n"])
    assert algorithm["waves"] == pytest.approx(tiles / 40, abs=0.001)
    assert one["iterations"] >= 8
    assert one["rel_stdev_percent"] <= 1
    assert len(one["telemetry"]["seconds"]) >= 4
    assert one["graphics_clock_mhz"] == 930  # NVML's own word, not the model's
    assert (one["exact"], one["error"]) == (True, None)
    assert one["max_relative_error"] <= one["error_tolerance"]


def test_quick_has_one_shape_a_type_and_nothing_sustained(booted: Boot) -> None:
    booted("a100")
    gemms = measured(quick=True)["gpus"][0]["gemms"]
    assert len(gemms) == len({(one["dtype"], one["accumulate"]) for one in gemms}) == 7
    assert not any(one["sustained"] for one in gemms)


def test_the_profiles_shapes_and_type(booted: Boot) -> None:
    booted("a100")
    values = measured(shapes={"tf32": [[8192, 128, 8192]]}, main_dtype="tf32", quick=True)
    gemms = values["gpus"][0]["gemms"]
    assert (gemms[0]["dtype"], gemms[0]["n"]) == ("tf32", 128)
    # 8192 x 128 x 8192 in FP32 is 61 operations a byte: the memory holds it back.
    assert gemms[0]["tflops"] < 61 * 1.6


def test_each_of_several_gpus_and_all_at_once(booted: Boot) -> None:
    booted("v100", "v100")
    one_shape = [[4096, 4096, 4096]]
    assert measured(quick=True, shapes=one_shape)["together"] is None
    values = measured(shapes=one_shape)
    assert [gpu["index"] for gpu in values["gpus"]] == [0, 1]
    assert len({gpu["uuid"] for gpu in values["gpus"]}) == 2
    assert [(row["index"], row["dtype"]) for row in values["together"]] == [(0, "fp16"), (1, "fp16")]
    assert all(80 < row["tflops"] < 110 for row in values["together"])


def test_a_lost_gpu_has_an_error_and_the_other_is_measured(booted: Boot) -> None:
    booted("v100", "v100", fault_gpu_lost=1)
    values = measured(quick=True)
    lost, well = values["gpus"]
    assert lost["error"]
    assert lost["gemms"] == []
    assert well["error"] is None
    assert well["gemms"]
    assert values["together"] is None


def test_a_library_that_does_not_load(booted: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    booted("t4")
    other_toolkit(monkeypatch, "99.0")
    found = measure("gemm")
    assert not isinstance(found, dict)
    assert found.reason == "library_not_found"
    assert "libcublasLt.so.99" in found.detail


def test_another_process_on_the_gpu_is_named(booted: Boot) -> None:
    booted("t4")
    found = measured(quick=True)["gpus"][0]["other_processes"]
    assert [one["name"] for one in found] == ["name4", "name9"]


def test_nvml_that_does_not_open(booted: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    booted("t4")
    install(monkeypatch, {"nvmlInit": refuse(9)})
    found = measure("gemm")
    assert not isinstance(found, dict)
    assert found.reason == "driver_not_loaded"


def test_figures_differ_a_little_from_sample_to_sample(booted: Boot) -> None:
    booted("t4")
    gemms = measured(quick=True)["gpus"][0]["gemms"]
    assert all(one["rel_stdev_percent"] > 0 for one in gemms)
    assert len({one["tflops"] for one in gemms}) == len(gemms)
    assert list(itertools.chain(*[one["telemetry"]["power_watts"] for one in gemms])).count(None) == 0
