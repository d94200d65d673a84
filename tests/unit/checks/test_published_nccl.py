"""NCCL figures that others published: no healthy machine fails, no sick one passes."""

from __future__ import annotations

import re
from typing import Any

from builders import shipped
from publishedfigures import published

from gpuprep import catalogue, records
from gpuprep.workflows import record_file, rejudge

WHAT = re.compile(r"(all_reduce|all_gather|reduce_scatter) busbw (?:\d+ to )?(\d+) GPUs(?:.*?([\d.]+) (GiB|GB|MiB))?")
UNITS = {"GiB": 2**30, "GB": 10**9, "MiB": 2**20}
LARGE = 8 * 2**30  # a source that does not say the size measured large messages


def figures() -> list[dict[str, Any]]:
    return [one for one in published("other") if one["kind"] == "nccl" and one.get("board") in catalogue.boards()]


def record(figure: dict[str, Any]) -> dict[str, Any]:
    """As `gpuprep judge` reads published figures."""
    found = WHAT.match(figure["what"])
    assert found, figure["what"]
    size = int(float(found[3]) * UNITS[found[4]]) if found[3] else LARGE
    board = catalogue.boards()[figure["board"]]
    ids = {"pci_device_id": board.pci_device_ids[0], "pci_subsystem_id": (*board.subsystem_ids, "")[0]}
    values = {
        "published": figure["source"],
        "gpus": [{"index": index, **ids} for index in range(int(found[2]))],
        "points": [{"operation": found[1], "bytes": size, "busbw_gb_per_s": figure["value"]}],
    }
    return {"measurements": [{"probe": "nccl", "source": "measured", "values": values}]}


def verdicts() -> list[tuple[dict[str, Any], records.Status]]:
    found = []
    for figure in figures():
        judged = rejudge.judge(
            record_file.from_figures(record(figure)), shipped(catalogue.boards()[figure["board"]].model.profile)
        )
        assert judged.verdict is not None
        found.append((figure, judged.verdict.status))
    return found


def test_no_healthy_figure_fails_and_no_sick_one_passes() -> None:
    found = verdicts()
    assert len(found) >= 40
    assert [figure for figure, status in found if figure["state"] == "healthy" and status is records.Status.FAIL] == []
    assert [figure for figure, status in found if figure["state"] == "sick" and status is records.Status.PASS] == []
    assert sum(status is records.Status.PASS for figure, status in found if figure["state"] == "healthy") >= 25


def test_half_of_what_was_published_over_nvlink_fails() -> None:
    sound = [
        figure for figure, status in verdicts() if status is records.Status.PASS and "NVSwitch" in figure["topology"]
    ]
    assert len(sound) > 20
    for figure in sound:
        halved = record({**figure, "value": figure["value"] / 2})
        judged = rejudge.judge(
            record_file.from_figures(halved), shipped(catalogue.boards()[figure["board"]].model.profile)
        )
        assert judged.verdict is not None
        assert judged.verdict.status is not records.Status.PASS, figure
