"""The catalogue's topologies and bandwidths: each board once, each figure possible. NVLinks from NVML's readings."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import finished_snapshot, resolved

from gpuprep import catalogue, checks, records
from gpuprep.catalogue import topologies

FOLDER = Path(catalogue.__file__).parent
FAIL, WARN, PASS, SKIP = records.Status.FAIL, records.Status.WARN, records.Status.PASS, records.Status.SKIP


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yml").read_text(encoding="utf-8"))
    return found


def test_each_board_is_in_one_family() -> None:
    listed = Counter(key for family in topologies.families().values() for key in family.boards)
    assert set(listed) == set(catalogue.boards()), "each board is in a family of catalogue/topologies.yml"
    assert set(listed.values()) == {1}


@pytest.mark.parametrize("family", topologies.families().values(), ids=lambda family: family.key)
def test_the_figures_of_a_family_fit_each_other(family: topologies.Family) -> None:
    entry = document("topologies")["families"][family.key]
    assert set(entry["sources"]) <= set(document("topologies")["sources"])
    assert set(family.unverified) <= set(entry)
    if family.joined == "none":
        assert (family.links, family.gb_per_s, family.machines) == (0, None, ())
        return
    assert family.gb_per_s
    for machine in family.machines:
        assert family.links
        assert len(machine.row) in (1, machine.gpus - 1)
        assert sum(machine.row) <= family.links
        assert list(machine.row) == sorted(machine.row, reverse=True)
    assert not family.bridge_links or not family.links or family.links % family.bridge_links == 0


@pytest.mark.parametrize("key", document("bandwidths")["memory"])
def test_a_sound_memory_is_possible(key: str) -> None:
    board, entry = catalogue.boards()[key], document("bandwidths")["memory"][key]
    sound = topologies.healthy_memory_percents(board)
    assert sound is not None
    assert entry["source"].startswith(("published", "measured", "inferred", "copy published", "as "))
    assert all(40 <= percent <= 100 for percent in (*sound.percent.values(), *sound.without_ecc.values()))
    assert not sound.bus_gb_per_s or not board.memory_gb_per_s or sound.bus_gb_per_s > board.memory_gb_per_s
    least = board.floors.get("memory")
    assert least is None or all(least.percent <= 0.92 * sound.percent.get(kind, 100) for kind in ("read", "triad"))


def test_every_other_figure_is_of_something_that_is_there() -> None:
    bandwidths = document("bandwidths")
    assert set(bandwidths["peers"]) <= set(topologies.families())
    assert set(bandwidths["chip_to_chip"]) == set(document("topologies")["chip_to_chip"]) <= set(catalogue.boards())
    assert set(document("topologies")["wired_with"]) <= set(catalogue.boards())


def test_boards_that_cannot_be_told_apart_share_family_and_figures() -> None:
    board = catalogue.board("20b2")
    assert board is not None
    assert " or " in board.key
    family, memory = topologies.family(board), topologies.healthy_memory_percents(board)
    assert family is not None
    assert memory is not None
    assert (family.key, memory.percent["read"]) == ("hgx_a100", 86)
    assert topologies.family(None) is None
    assert topologies.healthy_memory_percents(None) is None


# ---------------------------------------------------------------- NVLinks as NVML shows them


def facts(key: str, *ups: str) -> list[records.GpuFacts]:
    """GPUs of a board; "111000" are six links of which three are up."""
    board = catalogue.boards()[key]
    (one,) = finished_snapshot(resolved("t4")).gpus  # type: ignore[misc]
    limits = dataclasses.replace(one.power, default_watts=board.power_watts or records.Missing("not_supported"))
    return [
        dataclasses.replace(
            one, index=index, uuid=f"GPU-{index}", name=board.name, pci_device_id=board.pci_device_ids[0],
            pci_subsystem_id=(*board.subsystem_ids, "")[0], power=limits,
            memory_total_mib=board.memory_mib or records.Missing("not_supported"),
            nvlinks=tuple(state == "1" for state in up),
        )
        for index, up in enumerate(ups)
    ]  # fmt: skip


def of_first(key: str, *ups: str, nvswitches: int = 0, what: str = "nvlinks") -> records.Finding | None:
    gpus = facts(key, *ups)
    host = dataclasses.replace(finished_snapshot(resolved("t4")), gpus=tuple(gpus), nvswitches=nvswitches)
    found = checks.compare(resolved("t4"), host)
    return next((one for one in found if one.key == f"gpu 0.{what}"), None)


ALL18, NONE18 = "1" * 18, "0" * 18


@pytest.mark.parametrize(
    ("key", "ups", "status", "says"),
    [
        ("h100_sxm5_80", [ALL18], PASS, ""),  # rented out of a board of eight
        ("gh200_96", [NONE18], PASS, "a GPU alone"),
        ("h100_sxm5_80", ["1" * 17 + "0"], FAIL, "1 of 18 NVLinks are down: 17"),
        ("h200_sxm", ["1" * 12, ALL18], FAIL, "6 of 18 NVLinks are down: 12, 13"),  # NVML lists no more
        ("h200_sxm", [ALL18, ALL18], PASS, ""),
        ("h200_sxm", [NONE18, ALL18], FAIL, "other GPUs of this machine have some"),
        ("h200_sxm", [NONE18, NONE18], WARN, "over PCIe only"),
        ("v100_sxm2_32", ["111010", *["111111"] * 3], FAIL, "another GPU of this machine has 6"),
        ("v100_sxm2_16", ["111100"] * 4, PASS, "half of a cube mesh"),
        ("v100_sxm2_16", ["111110"] * 8, FAIL, "1 of 6"),
        ("v100_sxm2_16", ["110000"], WARN, "a part of a machine"),
        ("rtx_a6000", ["0000", "0000"], SKIP, "no NVLink bridge"),
        ("rtx_a6000", ["1110", "1110"], FAIL, "no full contact"),
        ("a100_pcie_80", ["1" * 8 + "0" * 4] * 2, WARN, "fewer bridges"),
        ("a100_pcie_80", ["0" * 12, "1" * 12, "1" * 12], SKIP, "others in this machine are joined"),
    ],
)
def test_links_of_one_gpu(key: str, ups: list[str], status: records.Status, says: str) -> None:
    found = of_first(key, *ups)
    assert found is not None
    assert (found.status, says in found.reason) == (status, True), found
    assert found.remedy or found.status in (PASS, SKIP)


def test_switches_that_join_nothing_are_a_fault() -> None:
    found = of_first("a100_sxm4_40", "0" * 12, "0" * 12, nvswitches=6)
    assert found is not None
    assert (found.status, "6 NVSwitches" in found.reason, "nvidia-fabricmanager" in found.remedy) == (FAIL, True, True)


def test_a_single_end_of_a_bridge_is_told() -> None:
    found = of_first("rtx_3090", "1111", "0000", what="nvlink_end")
    assert found is not None
    assert found.status is WARN
    assert of_first("rtx_3090", "1111", "1111", "0000", what="nvlink_end") is None
    assert of_first("rtx_3090", "1111", what="nvlink_end") is None
