"""Published figures of memory, host links and copies between GPUs: no healthy one fails, no sick one passes.

The figures are those of cases/published/other.yml. Each is put into the form in which the bandwidth probe records it,
and judged as `gpuprep judge` does. What no such record can hold is left out, and NOT_MEASURED says which and why.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from functools import cache
from typing import Any

import pytest
from bandwidths_for_tests import links_behind_switches, profile_of
from builders import shipped
from publishedfigures import FOLDER, published

from gpuprep import catalogue, records
from gpuprep.workflows import record_file, rejudge

# Words of `what` ► why the bandwidth probe does not measure it.
NOT_MEASURED = {
    "unified memory": "pages that move over the link, not the GPU's memory",
    "PAGEABLE": "the probe copies from pinned memory",
    "memcpy_sm": "a copy by a kernel, not by the copy engine",
    "sum over": "several GPUs at once",
    "sendrecv busbw": "NCCL",
    "DeepEP": "a library's all-to-all",
    "as this guide reports it": "both directions or one: the guide does not say",
    "p2p, pair, patched driver": "more than one direction of the link carries: both together",
    "link width": "a width without a speed: its own test below",
}
BOTH_WAYS = ("bidirectional",)
COUNTS = FOLDER / "links.md"
HEAD = """# Published figures of memory and links

How the figures of `other.yml` that the bandwidth probe could have measured end (`test_published_links.py`), by
what they are of (memory, host link, peer), by what the source says of the machine, and by verdict.

"""
UNITS = {"GB/s": 1.0, "TB/s": 1000.0, "MB/s": 0.001}


def kind_of(what: str) -> str:
    """As the probe calls the access; DCGM's test reads and writes, as a triad does."""
    if "write" in what:
        return "write"
    if "(read)" in what or what.endswith("read"):
        return "read"
    if what.startswith(("copy", "babelstream copy", "babelstream mul", "stream scale")):
        return "copy"
    return "triad"


def why_not(figure: dict[str, Any]) -> str:
    if figure["kind"] not in ("memory", "host_link", "peer"):
        return "another probe's"
    if figure["unit"] not in UNITS:
        return NOT_MEASURED["link width"]
    return next((why for words, why in NOT_MEASURED.items() if words in figure["what"]), "")


def gpu_of(board: catalogue.Board, index: int = 0) -> dict[str, Any]:
    return {
        "index": index, "pci_device_id": board.pci_device_ids[0],
        "pci_subsystem_id": (*board.subsystem_ids, "")[0],
    }  # fmt: skip


def record(figure: dict[str, Any], board: catalogue.Board) -> dict[str, Any]:
    value = figure["value"] * UNITS[figure["unit"]]
    values: dict[str, Any] = {"published": figure["source"], "gpus": [gpu_of(board)]}
    if figure["kind"] == "memory":
        values["gpus"][0][f"{kind_of(figure['what'])}_gb_per_s"] = value
    elif figure["kind"] == "host_link":
        way = "d2h" if figure["what"].startswith("copy device to host") else "h2d"
        values["gpus"][0][f"{way}_gb_per_s"] = value
    else:
        one_way = value / 2 if any(word in figure["what"] for word in BOTH_WAYS) else value
        values["gpus"].append(gpu_of(board, 1))
        values["peers"] = [{"from": 0, "to": 1, "gb_per_s": one_way, **joined(figure, board)}]
    return {"measurements": [{"probe": "bandwidth", "source": "measured", "values": values}]}


def joined(figure: dict[str, Any], board: catalogue.Board) -> dict[str, Any]:
    """What the source says of the way between the two GPUs."""
    topology = figure.get("topology", "")
    if "no peer access" in f"{topology} {figure['what']}":
        return {"can_access": False, "nvlinks": 0}
    links = re.search(r"\bNV(\d+)\b", topology)
    if links:
        return {"can_access": True, "nvlinks": int(links.group(1))}
    return {"can_access": True, "nvlinks": links_behind_switches(board) if "NVSwitch" in topology else 0}


@cache
def verdicts() -> list[tuple[dict[str, Any], records.Status, str]]:
    found = []
    for figure in published("other"):
        board = catalogue.boards().get(figure.get("board", ""))
        if board is None or why_not(figure):
            continue
        judged = rejudge.judge(record_file.from_figures(record(figure, board)), shipped(profile_of(board)))
        assert judged.verdict is not None
        said = "; ".join(f"{one.key}: {one.reason}" for one in judged.findings if one.status is not records.Status.PASS)
        found.append((figure, judged.verdict.status, said))
    return found


def ended(state: str, verdict: records.Status) -> list[str]:
    return [
        f"{one['kind']} {one['board']} {one['what']} {one['value']} {one['unit']} ({said})"
        for one, status, said in verdicts()
        if one["state"] == state and status is verdict
    ]


def test_no_healthy_figure_fails() -> None:
    assert ended("healthy", records.Status.FAIL) == []
    unknown = [said for said in ended("healthy", records.Status.UNKNOWN) if "no bandwidth of this GPU" not in said]
    assert [said for said in unknown if "generation and width of the link are not known" not in said] == []


def test_no_sick_figure_passes() -> None:
    assert ended("sick", records.Status.PASS) == []
    assert ended("sick", records.Status.UNKNOWN) == []
    assert len(ended("sick", records.Status.FAIL)) >= 5


def test_most_healthy_figures_pass() -> None:
    counted = Counter((one["kind"], status) for one, status, _ in verdicts() if one["state"] == "healthy")
    for kind, least in (("memory", 0.85), ("host_link", 0.8), ("peer", 0.75)):
        several = sum(count for (name, _), count in counted.items() if name == kind)
        assert several >= 30
        assert counted[kind, records.Status.PASS] >= least * several, counted


def test_what_is_faster_than_the_memory_is_no_figure() -> None:
    beyond = [one["board"] for one, status, said in verdicts() if "more than memory delivers" in said]
    assert sorted(beyond) == ["a10", "rtx_4090", "rtx_6000_ada"]


def table() -> str:
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for one, status, _ in verdicts():
        rows[one["board"]][f"{one['kind']} {one['state']} {status.value}"] += 1
    heads = sorted({head for counts in rows.values() for head in counts})
    lines = [f"| board | {' | '.join(head.replace('_', ' ') for head in heads)} |", "|---" * (len(heads) + 1) + "|"]
    for board in (key for key in catalogue.boards() if key in rows):
        lines.append(f"| {board} | {' | '.join(str(rows[board][head] or '') for head in heads)} |")
    return "\n".join(lines) + "\n"


def test_the_counts_are_written_down() -> None:
    text = HEAD + table()
    if os.environ.get("GPUPREP_UPDATE_GOLDEN"):
        COUNTS.write_text(text, encoding="utf-8")
    written = COUNTS.read_text(encoding="utf-8")
    assert written == text, "run: GPUPREP_UPDATE_GOLDEN=1 pytest tests/unit/checks/test_published_links.py"


@pytest.mark.parametrize("words", NOT_MEASURED)
def test_what_is_left_out_is_there(words: str) -> None:
    assert any(words in figure["what"] for figure in published("other"))
