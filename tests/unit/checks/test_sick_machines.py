"""Machines of many boards, each with one thing wrong: none of them passes, and a healthy one does.

The figures are what healthy boards reach by the catalogue (capabilities.yml, bandwidths.yml), with one fault. They are
made, not measured; cases/published has what others measured.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import bandwidths_for_tests
import pytest
import verdict_table_gemm
from builders import shipped
from gemmrecords import gemm

from gpuprep import catalogue, records
from gpuprep.workflows import record_file, rejudge

Gpu = dict[str, Any]
Fault = Callable[[Gpu, catalogue.Board], None]
BOARDS = (
    "t4", "v100_sxm2_16", "v100s_pcie_32", "a100_sxm4_40", "a100_pcie_80", "h100_sxm5_80", "h200_sxm", "l4", "a10g",
    *(
        pytest.param(key, marks=pytest.mark.only_all)
        for key in (
            "v100_pcie_32", "v100_sxm3_32", "a100_sxm4_80", "a100_pcie_40", "h100_pcie_80", "h100_nvl_94", "gh200_96",
            "l40", "l40s", "a10", "a16", "a30", "a40", "rtx_a4000", "rtx_a5000", "rtx_a6000", "rtx_4090",
        )
    ),
)  # fmt: skip
MEMORY = ("copy_gb_per_s", "read_gb_per_s", "triad_gb_per_s")
HOST = ("h2d_gb_per_s", "d2h_gb_per_s")


def judged(board: catalogue.Board, document: dict[str, Any]) -> records.RunRecord:
    return rejudge.judge(record_file.from_figures(document), shipped(board.model.profile))


def status(board: catalogue.Board, document: dict[str, Any]) -> str:
    verdict = judged(board, document).verdict
    assert verdict is not None
    return verdict.status.value


@cache
def healthy(key: str) -> dict[str, Any]:
    board = catalogue.boards()[key]
    speeds = {(dtype, accumulate): tflops for dtype, accumulate, tflops in verdict_table_gemm.kinds(board)}
    return verdict_table_gemm.record(board, speeds)


def products(key: str, fault: Fault) -> dict[str, Any]:
    document = copy.deepcopy(healthy(key))
    fault(document["measurements"][0]["values"]["gpus"][0], catalogue.boards()[key])
    return document


def bandwidths(key: str, fault: Fault) -> dict[str, Any]:
    values = bandwidths_for_tests.machine(key)
    fault(values["gpus"][0], catalogue.boards()[key])
    return {"measurements": [{"probe": "bandwidth", "source": "measured", "values": values}]}


def slower(share: float, dtype: str = "", **changes: Any) -> Fault:
    """Products at `share` of their speed; clocks are what `changes` says."""

    def fault(gpu: Gpu, _board: catalogue.Board) -> None:
        for one in gpu["gemms"]:
            if not dtype or one["dtype"] == dtype:
                one["tflops"] *= share
                one["microseconds"] /= share
            one.update(changes)

    return fault


def held(share: float, reasons: int, watts: float) -> Fault:
    """Clock and speed at `share`, with NVML's reasons, at `watts` of the limit."""

    def fault(gpu: Gpu, board: catalogue.Board) -> None:
        slower(share)(gpu, board)
        for one in gpu["gemms"]:
            one["graphics_clock_mhz"] *= share
            one.update(event_reasons=reasons, power_watts=watts * gpu["power_limit_watts"])

    return fault


def put(**changes: Any) -> Fault:
    return lambda gpu, _board: gpu.update(changes)


def each(**changes: Any) -> Fault:
    return slower(1.0, **changes)


def times(by: float, *keys: str) -> Fault:
    """Of the GPU, or of each of its products."""

    def fault(gpu: Gpu, _board: catalogue.Board) -> None:
        for one in (gpu, *gpu.get("gemms", ())):
            one.update({key: one[key] * by for key in keys if key in one})

    return fault


def pcie(**changes: Any) -> Fault:
    return lambda gpu, _board: gpu["pcie"].update(changes)


def both(*faults: Fault) -> Fault:
    def fault(gpu: Gpu, board: catalogue.Board) -> None:
        for one in faults:
            one(gpu, board)

    return fault


def _narrow(gpu: Gpu, _board: catalogue.Board) -> None:
    gpu["pcie"]["width"] //= 2
    gpu.update({key: gpu[key] * 0.48 for key in HOST})


def _old_link(gpu: Gpu, _board: catalogue.Board) -> None:
    gpu["pcie"]["generation"] -= 2
    gpu.update({key: gpu[key] * 0.25 for key in HOST})


def _tiles(**changes: Any) -> Fault:
    """Slow, and the algorithm says that its tiles are to blame."""
    made = {**gemm("fp16", 1.0)["algorithm"], **changes}
    return slower(0.7, algorithm=made)


NEIGHBOUR = [{"pid": 4711, "name": "python3", "memory_mib": 300, "owner": "alice", "age_seconds": 60}]
BY_MEMORY_CLOCK = {"a memory clock in kHz", "half of the memory clock"}  # where the catalogue has that clock
BY_POWER = {"a limit in milliwatts", "kilowatts"}  # where the catalogue has the board's limit
NOT_PASS = {"WARN", "FAIL", "UNKNOWN"}
PRODUCTS: Mapping[str, tuple[Fault, set[str]]] = {
    "too hot": (held(0.7, 0x40, 0.6), {"FAIL"}),
    "hot": (held(0.7, 0x20, 0.6), {"FAIL", "WARN"}),
    "power brake": (held(0.7, 0x80, 0.6), {"FAIL"}),
    "hardware slowdown": (held(0.5, 0x8, 0.5), {"FAIL"}),
    "a low clock without a reason": (held(0.7, 0, 0.5), {"FAIL", "WARN"}),
    "held at half of its watts": (held(0.7, 0x4, 0.5), {"FAIL", "WARN"}),
    "held at half of its watts, and idle before": (held(0.7, 0x5, 0.5), {"FAIL", "WARN"}),
    "the watts of an idle GPU under its power cap": (held(0.7, 0x4, 0.1), NOT_PASS),
    "clocks that were set low": (held(0.7, 0x2, 0.5), {"FAIL", "WARN"}),
    "a low clock that NVML calls idle": (held(0.7, 0x1, 0.5), NOT_PASS),
    "a low clock for a display": (held(0.7, 0x100, 0.5), {"FAIL", "WARN"}),
    "a low clock for a reason without a name": (held(0.7, 0x8000, 0.5), {"FAIL", "WARN"}),
    "reasons that are no mask": (each(event_reasons=2**40), {"UNKNOWN"}),
    "half of a reason": (each(event_reasons=4.5), {"UNKNOWN"}),
    "no watts under load": (each(power_watts=0.0), {"UNKNOWN"}),
    "never repeated": (each(iterations=0), {"UNKNOWN"}),
    "a name without a number": (put(name="NVIDIA TITAN V"), {"UNKNOWN"}),
    "15 % slow in all at its best clock": (slower(0.85), {"FAIL", "WARN"}),
    "30 % slow in all at its best clock": (slower(0.7), {"FAIL", "WARN"}),
    "half of its speed": (slower(0.5), {"FAIL"}),
    "15 % slow and no clock": (slower(0.85, graphics_clock_mhz=None), {"FAIL", "UNKNOWN"}),
    "30 % slow and a clock that is text": (slower(0.7, graphics_clock_mhz="fast"), {"FAIL", "UNKNOWN"}),
    "30 % slow and tiles of 12800": (_tiles(tile_m=12800), {"FAIL", "UNKNOWN", "WARN"}),
    "a neighbour": (put(other_processes=NEIGHBOUR), {"UNKNOWN"}),
    "nobody looked for neighbours": (put(other_processes={"missing": "not_read"}), {"UNKNOWN"}),
    "wrong results": (each(exact=False), {"FAIL"}),
    "errors": (each(exact=None, max_relative_error=0.4), {"FAIL"}),
    "an error of 1e15": (each(exact=None, max_relative_error=1e15), {"FAIL", "UNKNOWN"}),
    "an error that is no number": (each(max_relative_error=math.nan), {"FAIL", "UNKNOWN"}),
    "above the roof": (slower(2.0), {"UNKNOWN"}),
    "full speed at idle clocks": (each(graphics_clock_mhz=300, event_reasons=1), {"UNKNOWN"}),
    "half of the SMs": (times(0.5, "sms"), {"UNKNOWN"}),
    "a fraction of an SM": (times(0.001, "sms"), {"UNKNOWN"}),
    "a highest clock of another board": (times(0.5, "max_graphics_clock_mhz"), {"UNKNOWN"}),
    "another name": (put(name="NVIDIA GeForce GTX 1060 6GB"), {"UNKNOWN"}),
    "milliwatts": (times(1000, "power_watts"), {"UNKNOWN"}),
    "kilowatts": (times(0.001, "power_watts"), {"UNKNOWN"}),
    "a limit in milliwatts": (times(1000, "power_limit_watts"), {"UNKNOWN"}),
    "a memory clock in kHz": (times(1000, "memory_clock_mhz"), {"UNKNOWN"}),
    "watts that are text": (each(power_watts="a lot"), {"UNKNOWN"}),
    "negative iterations of a product": (each(iterations=-50), {"UNKNOWN"}),
    "a long run of no time": (each(sustained={"seconds": 0.02, "tflops": 1.0}), NOT_PASS),
    "no event reasons": (each(event_reasons=None), {"UNKNOWN"}),
    "a spread of 60 %": (each(rel_stdev_percent=60.0), {"UNKNOWN"}),
    "times in ms": (times(0.001, "microseconds"), {"UNKNOWN"}),
    "speeds in GFLOPS": (times(1000, "tflops"), {"UNKNOWN"}),
    "no products": (put(gemms=[]), {"UNKNOWN"}),
    "lost": (put(gemms=[], error="GPU is lost"), {"FAIL"}),
}
BANDWIDTHS: Mapping[str, tuple[Fault, set[str]]] = {
    "half of its lanes": (_narrow, {"FAIL", "WARN"}),
    "two generations back": (_old_link, {"FAIL"}),
    "slow memory": (times(0.8, *MEMORY), {"FAIL", "WARN"}),
    "one way of memory is slow": (times(0.75, "triad_gb_per_s"), {"FAIL", "WARN"}),
    "slow copies from the host": (times(0.8, "h2d_gb_per_s"), {"FAIL", "WARN"}),
    "memory above its bus": (times(1.4, *MEMORY), {"UNKNOWN"}),
    "a link above its lanes": (times(1.6, *HOST), {"UNKNOWN"}),
    "half of the memory clock": (times(0.5, "memory_clock_mhz"), NOT_PASS),
    "no memory clock": (put(memory_clock_mhz=None), {"UNKNOWN"}),
    "a memory clock of 0": (put(memory_clock_mhz=0), {"UNKNOWN"}),
    "SMs at 5 GHz": (put(graphics_clock_mhz=5000), {"UNKNOWN"}),
    "buffers of no size": (put(buffer_mib=0), {"UNKNOWN"}),
    "buffers larger than any memory": (put(buffer_mib=10**6), {"UNKNOWN"}),
    "a width that is no number": (pcie(width=math.nan), {"UNKNOWN"}),
    "reasons that are no mask": (put(event_reasons=2**40), {"UNKNOWN"}),
    "a memory clock in kHz": (times(1000, "memory_clock_mhz"), {"UNKNOWN"}),
    "a neighbour": (put(other_processes=NEIGHBOUR), {"UNKNOWN"}),
    "too hot": (put(event_reasons=0x40), {"FAIL", "WARN"}),
    "no event reasons": (put(event_reasons=None), {"UNKNOWN"}),
    "no link": (put(pcie={"missing": "not_read"}), {"UNKNOWN"}),
    "a link of -3": (put(pcie={"generation": -3, "width": 16}), {"UNKNOWN", "FAIL"}),
    "a link in words": (put(pcie="16x"), {"UNKNOWN"}),
    "MB/s": (times(1000, *MEMORY, *HOST), {"UNKNOWN"}),
    "a figure that is text": (put(triad_gb_per_s="300"), {"UNKNOWN"}),
    "no copies from the host": (put(h2d_gb_per_s=None), {"UNKNOWN"}),
    "another name": (put(name="NVIDIA GeForce GTX 1060 6GB"), {"UNKNOWN"}),
}


def wrong(
    board: catalogue.Board, faults: Mapping[str, tuple[Fault, set[str]]], made: Callable[[Fault], dict[str, Any]]
) -> dict[str, str]:
    """Fault ─► the status, where it is not what is wanted."""
    chip_to_chip = {"no link", "a link of -3"} if bandwidths_for_tests.is_chip_to_chip(board) else set()
    left_out = (
        chip_to_chip | (set() if board.memory_mhz else BY_MEMORY_CLOCK) | (set() if board.power_watts else BY_POWER)
    )
    found = {name: status(board, made(fault)) for name, (fault, _) in faults.items() if name not in left_out}
    return {name: got for name, got in found.items() if got not in faults[name][1]}


@pytest.mark.parametrize("key", BOARDS)
def test_healthy_products_pass_and_sick_ones_do_not(key: str) -> None:
    board = catalogue.boards()[key]
    assert status(board, products(key, lambda _gpu, _board: None)) == "PASS"
    assert wrong(board, PRODUCTS, partial(products, key)) == {}


@pytest.mark.parametrize("key", BOARDS)
def test_a_data_type_that_is_30_percent_slow_never_passes(key: str) -> None:
    board = catalogue.boards()[key]
    every = {one["dtype"] for one in healthy(key)["measurements"][0]["values"]["gpus"][0]["gemms"]}
    assert {dtype for dtype in every if status(board, products(key, slower(0.7, dtype))) == "PASS"} == set()


@pytest.mark.parametrize("key", BOARDS)
def test_healthy_bandwidths_pass_and_sick_ones_do_not(key: str) -> None:
    board = catalogue.boards()[key]
    assert status(board, bandwidths(key, lambda _gpu, _board: None)) == "PASS"
    assert wrong(board, BANDWIDTHS, partial(bandwidths, key)) == {}


@pytest.mark.parametrize("key", BOARDS)
@pytest.mark.parametrize(("change", "want"), [
    ({}, {"PASS"}), ({"index": 0}, {"UNKNOWN"}), ({"uuid": "GPU-0"}, {"UNKNOWN"}), ({"slow": 0.88}, NOT_PASS),
    ({"pci_device_id": "ffff", "pci_subsystem_id": "", "name": "NVIDIA Something"}, {"UNKNOWN"}),
])  # fmt: skip
def test_two_gpus(key: str, change: dict[str, Any], want: set[str]) -> None:
    board, document = catalogue.boards()[key], copy.deepcopy(healthy(key))
    values = document["measurements"][0]["values"]
    second = {**copy.deepcopy(values["gpus"][0]), "index": 1, "uuid": "GPU-1"}
    slower(change.get("slow", 1.0))(second, board)
    values["gpus"].append({**second, **{name: one for name, one in change.items() if name != "slow"}})
    assert status(board, document) in want
