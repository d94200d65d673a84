"""Figures that others published, of healthy and of sick boards: no healthy one fails, no sick one passes.

cases/published/README.md has the counts; GPUPREP_UPDATE_GOLDEN=1 writes it again.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from functools import cache
from typing import Any

import pytest
from builders import shipped
from publishedfigures import FOLDER, published

from gpuprep import catalogue, records
from gpuprep.workflows import record_file, rejudge

README = FOLDER / "README.md"
# A source that does not say the shape measured large squares: burn tools, tables of peaks.
LARGE = 8192
NOT_A_PRODUCT = "read only"
AGAIN = "run: GPUPREP_UPDATE_GOLDEN=1 pytest tests/unit/checks/test_published.py"


@pytest.mark.parametrize("name", ["gemm", "other"])
def test_each_figure_has_a_source_a_quote_and_a_board(name: str) -> None:
    for figure in published(name):
        assert figure["source"].strip()
        assert figure["quote"].strip()
        assert figure["state"] in ("healthy", "sick", "unknown")
        assert figure["state"] != "sick" or figure["why"].strip()
        assert figure["board"] in catalogue.boards() if "board" in figure else figure["name"].strip()
        assert isinstance(figure.get("tflops", figure.get("value")), (int, float))
    assert len(published(name)) > 400


def dtype_of(figure: dict[str, Any], board: catalogue.Board) -> str:
    """As the gemm probe calls it; "" for what the probe does not measure."""
    dtype = str(figure["dtype"])
    tensor = "tensor_fp64" in board.model.fma_per_clock_per_sm
    if figure.get("kind") == "pipe" or dtype == "fp16_cuda" or (dtype == "fp64" and tensor):
        return ""
    return "fp64" if dtype == "fp64_tensor" else dtype


def record(figure: dict[str, Any], board: catalogue.Board, dtype: str) -> dict[str, Any]:
    """As `gpuprep judge` reads published figures."""
    product = {
        "dtype": dtype, "accumulate": figure.get("accumulate", ""), "tflops": figure["tflops"],
        **{size: figure.get(size, LARGE) for size in "mnk"},
    }  # fmt: skip
    if "clock_mhz" in figure:
        product["graphics_clock_mhz"] = figure["clock_mhz"]
    gpu: dict[str, Any] = {
        "index": 0, "pci_device_id": board.pci_device_ids[0], "pci_subsystem_id": (*board.subsystem_ids, "")[0],
        "gemms": [product],
    }  # fmt: skip
    if "power_limit_watts" in figure:
        gpu["power_limit_watts"] = figure["power_limit_watts"]
    values = {"published": figure["source"], "gpus": [gpu]}
    return {"measurements": [{"probe": "gemm", "source": "measured", "values": values}]}


def verdict_of(figure: dict[str, Any]) -> str:
    board = catalogue.boards().get(figure.get("board", ""))
    dtype = dtype_of(figure, board) if board else ""
    if board is None or not dtype:
        return NOT_A_PRODUCT
    judged = rejudge.judge(record_file.from_figures(record(figure, board, dtype)), shipped(board.model.profile))
    assert judged.verdict is not None
    return judged.verdict.status.value


@cache
def verdicts() -> list[tuple[dict[str, Any], str]]:
    return [(figure, verdict_of(figure)) for figure in published("gemm")]


def of_state(state: str, verdict: records.Status) -> list[dict[str, Any]]:
    return [figure for figure, found in verdicts() if figure["state"] == state and found == verdict.value]


def test_no_healthy_figure_fails() -> None:
    assert of_state("healthy", records.Status.FAIL) == []
    assert len(of_state("healthy", records.Status.PASS)) >= 250


def test_half_of_a_healthy_figure_does_not_pass() -> None:
    passed = of_state("healthy", records.Status.PASS)[::4]
    half = [one for one in passed if verdict_of({**one, "tflops": one["tflops"] / 2}) == records.Status.PASS.value]
    assert len(passed) > 100
    # Sound T4s were published with a range as wide as that.
    assert [one for one in half if (one["board"], one["dtype"]) != ("t4", "fp16")] == []


def test_what_one_source_says_of_a_board_is_sound_together() -> None:
    of_source: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for figure, found in verdicts():
        if figure["state"] == "healthy" and found == records.Status.PASS.value:
            of_source[figure["board"], figure["source"]].append(figure)
    several = {place: every for place, every in of_source.items() if len({one["dtype"] for one in every}) > 1}
    slow = []
    for (key, _), every in several.items():
        board = catalogue.boards()[key]
        together = record(every[0], board, "")
        (gpu,) = together["measurements"][0]["values"]["gpus"]
        products = [record(one, board, dtype_of(one, board))["measurements"][0]["values"]["gpus"][0] for one in every]
        gpu["gemms"] = [product for each in products for product in each["gemms"]]
        judged = rejudge.judge(record_file.from_figures(together), shipped(board.model.profile))
        slow += [one for one in judged.findings if one.property == "gemm_together" and one.status.value != "PASS"]
    assert len(several) >= 50
    assert slow == []


def test_no_sick_figure_passes() -> None:
    assert of_state("sick", records.Status.PASS) == []
    assert len(of_state("sick", records.Status.FAIL)) >= 5


def table() -> str:
    rows: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for figure, found in verdicts():
        rows[figure.get("board", "not in the catalogue")][figure["state"], found] += 1
    states = [("healthy", v) for v in ("PASS", "WARN", "UNKNOWN", "FAIL")]
    states += [("sick", v) for v in ("FAIL", "WARN", "UNKNOWN", "PASS")]
    heads = [*(" ".join(one) for one in states), "state unknown", NOT_A_PRODUCT]
    lines = [f"| board | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    order = [*(key for key in catalogue.boards() if key in rows), "not in the catalogue"]
    for board in order:
        counts = rows[board]
        judged = [counts[one] for one in states]
        other = sum(n for (state, found), n in counts.items() if state == "unknown" and found != NOT_A_PRODUCT)
        read = sum(n for (_, found), n in counts.items() if found == NOT_A_PRODUCT)
        lines.append(f"| {board} | {' | '.join(str(n or '') for n in [*judged, other, read])} |")
    return "\n".join(lines) + "\n"


def test_the_counts_are_written_down() -> None:
    text = HEAD + table()
    if os.environ.get("GPUPREP_UPDATE_GOLDEN"):
        README.write_text(text, encoding="utf-8")
    assert README.read_text(encoding="utf-8") == text, AGAIN


HEAD = """# Published figures

What others measured on NVIDIA boards and published, with source, quoted line, and what is known of the machine:
`gemm.yml` has matrix products, `other.yml` memory, links, NCCL, video and health. `test_published.py` judges
each product as `gpuprep judge` does, by the shipped profile of its model; a shape that the source does not say counts
as a large square.

How the products of each board end, by what the source says of the machine. `read only`: the gemm probe does not
measure it (loops of instructions, FP16 and FP64 without Tensor Cores where there are some), or the catalogue lacks
the board.

"""
