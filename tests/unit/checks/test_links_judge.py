"""PCIe links: what the device can, what the slot can, what is there. NVLinks by what is wired. Copies between GPUs."""

from __future__ import annotations

from typing import Any

import pytest
from bandwidths_for_tests import (
    bad,
    judged,
    links_behind_switches,
    machine,
    nvlink_percent,
    peers,
    profile_of,
    snapshot,
    sound_gpu,
)
from builders import resolved
from judgedbandwidth import figures as findings_of
from judgedbandwidth import own

from gpuprep import catalogue, records

FAIL, WARN, UNKNOWN, PASS, SKIP = (
    records.Status.FAIL,
    records.Status.WARN,
    records.Status.UNKNOWN,
    records.Status.PASS,
    records.Status.SKIP,
)


def with_link(key: str, count: int = 1, **link: Any) -> dict[str, Any]:
    """A machine whose first GPU has another link; its copies are as fast as that link."""
    values = machine(key, count)
    gpu = values["gpus"][0]
    before = gpu["pcie"]
    gpu["pcie"] = {**before, **link}
    share = gpu["pcie"]["width"] / before["width"] * 2.0 ** (gpu["pcie"]["generation"] - before["generation"])
    for way in ("h2d_gb_per_s", "d2h_gb_per_s"):
        gpu[way] = gpu[way] * share * 0.98
    return values


@pytest.mark.parametrize("key", catalogue.boards())
def test_three_quarters_is_no_pass_and_half_is_a_fault_on_every_board(key: str) -> None:
    """Half of the memory's clock or stacks, of the lanes, of the NVLinks' speed; the limit names its machines."""
    board = catalogue.boards()[key]
    for share, status in ((0.75, WARN), (0.5, FAIL)):
        values = machine(key, 2 if links_behind_switches(board) else 1)
        for figures in (*values["gpus"], *values["peers"]):
            figures |= {name: share * speed for name, speed in figures.items() if name.endswith("gb_per_s")}
        told = [one for one in judged(values, profile_of(board)).values() if "healthy boards" in one.expected]
        assert len(told) >= 2
        assert {one.status for one in told} == {status}, [one for one in told if one.status is not status]
        assert all(" machine" in one.expected for one in told)
        for one in told:
            assert ("no machine of this kind was measured" in one.expected) == ("boards like it" in one.expected)


LINKS: list[tuple[str, str, dict[str, int], records.Status, str]] = [
    # the board, the machine, the link; status and words of gpu 0.pcie_link
    ("a100_sxm4_40", "none", {}, PASS, ""),
    ("a100_sxm4_40", "none", {"width": 8}, FAIL, "x8 of x16"),
    ("a100_sxm4_40", "none", {"width": 4}, FAIL, "x4 of x16"),
    ("a100_sxm4_40", "none", {"generation": 3}, FAIL, "generation 3 of 4"),
    ("a100_sxm4_40", "none", {"generation": 1}, FAIL, "generation 1 of 4"),
    ("h100_sxm5_80", "none", {"generation": 4}, FAIL, "generation 4 of 5"),
    ("rtx_4090", "none", {"width": 12}, WARN, "x12 of x16"),
    # the slot alone forbids more
    ("rtx_3090", "none", {"width": 8, "slot_width": 8, "slot_generation": 4}, WARN, "the slot allows x8 of x16"),
    ("rtx_3090", "none", {"width": 8, "max_width": 8}, WARN, "the slot allows x8 of x16"),
    ("rtx_3090", "none", {"generation": 3, "slot_width": 16, "slot_generation": 3}, WARN, "generation 3 of 4"),
    ("rtx_3090", "none", {"width": 4, "slot_width": 4, "slot_generation": 3, "generation": 3}, WARN, "the slot allows"),
    # less than half of what a narrow slot could do
    ("rtx_3090", "none", {"width": 4, "slot_width": 8, "slot_generation": 4}, FAIL, "x4 of x8"),
    ("rtx_3090", "none", {"width": 8, "slot_width": 16, "slot_generation": 4}, FAIL, "x8 of x16"),
    # NVML says x16 of an A16's GPUs, which have four lanes
    ("a16", "none", {"max_width": 16}, PASS, ""),
    ("a16", "none", {"width": 2, "max_width": 16}, FAIL, "x2 of x4"),
    ("a2", "none", {"max_width": 16}, PASS, ""),
    # clouds with half of the lanes; a virtual machine that hides the slot
    ("t4", "kvm", {"width": 8}, WARN, "AWS g4dn wires this board so"),
    ("t4", "", {"width": 8}, WARN, "AWS g4dn"),
    ("t4", "none", {"width": 8, "slot_width": 16, "slot_generation": 3}, FAIL, "x8 of x16"),
    ("t4", "kvm", {"width": 4}, FAIL, "x4 of x16"),
    ("l4", "amazon", {"width": 8}, WARN, "AWS g6"),
    ("a10g", "amazon", {"width": 8}, WARN, "AWS g5"),
    ("a100_sxm4_40", "kvm", {"width": 8}, WARN, "hides the slot"),
    ("a100_sxm4_40", "kvm", {"generation": 2}, FAIL, "generation 2 of 4"),
    # a port that a hypervisor makes up
    ("a100_sxm4_40", "kvm", {"slot_width": 1, "slot_generation": 1}, PASS, ""),
    ("a100_sxm4_40", "kvm", {"width": 4, "slot_width": 1, "slot_generation": 1}, FAIL, "x4 of x16"),
    # what cannot be
    ("t4", "none", {"generation": 4}, UNKNOWN, "a PCIe link of generation 4"),
    ("a16", "none", {"width": 16, "max_width": 16}, UNKNOWN, "a PCIe link with 16 lanes"),
    ("h200_sxm", "none", {"max_width": 8}, UNKNOWN, "with 16 lanes now and 8 at most"),
    ("h200_sxm", "none", {"device_generation": 4}, UNKNOWN, "5 now and 4 at most"),
    ("h200_sxm", "none", {"max_width": 160}, UNKNOWN, "160 at most"),
]


@pytest.mark.parametrize(("key", "virtualization", "link", "status", "says"), LINKS)
def test_a_link_is_judged_by_device_slot_and_what_is_there(
    key: str, virtualization: str, link: dict[str, int], status: records.Status, says: str
) -> None:
    found = judged(with_link(key, **link), profile_of(catalogue.boards()[key]), snapshot(virtualization))
    finding = found["gpu 0.pcie_link"]
    assert (finding.status, says in finding.reason) == (status, True), finding
    copies = {found[f"gpu 0.{way}"].status for way in ("host_to_device", "device_to_host")}
    if status is PASS:
        assert bad(found) == {}
    elif status is not UNKNOWN:
        assert PASS not in copies, "a narrow link is no excuse"
        assert FAIL not in copies or status is FAIL


def test_beside_a_neighbour_of_the_same_board_half_a_hidden_link_is_a_fault() -> None:
    found = judged(with_link("a100_sxm4_40", 2, width=8), "a100", snapshot("kvm"))
    assert found["gpu 0.pcie_link"].status is FAIL
    assert "another GPU of the same board in this machine has 31.5 GB/s" in found["gpu 0.pcie_link"].reason
    assert found["gpu 0.host_against_best"].status is FAIL
    cloud = judged(with_link("t4", 2, width=8), "t4", snapshot("amazon"))
    assert cloud["gpu 0.pcie_link"].status is FAIL, "its neighbour has all lanes"
    alike = with_link("a100_sxm4_40", 2, width=8)
    alike["gpus"][1] = {**alike["gpus"][0], "index": 1, "uuid": "GPU-1"}
    both = judged(alike, "a100", snapshot("kvm"))
    assert both["gpu 0.pcie_link"].status is WARN
    assert "all GPUs of this board are wired so" in both["gpu 0.pcie_link"].reason


@pytest.mark.parametrize(("share", "status"), [(0.9, PASS), (0.8, WARN), (0.5, FAIL)])
@pytest.mark.parametrize("way", ["h2d", "d2h"])
def test_the_slower_direction_is_compared_with_the_neighbours(way: str, share: float, status: records.Status) -> None:
    values = machine("a100_sxm4_40", 3)
    for slow in (0, 2):
        values["gpus"][slow][f"{way}_gb_per_s"] *= share
    found = judged(values, "a100")
    assert found["gpu 0.host_against_best"].status is found["gpu 2.host_against_best"].status is status
    assert {"h2d": "host to device", "d2h": "device to host"}[way] in found["gpu 0.host_against_best"].actual
    assert found["gpu 1.host_against_best"].status is PASS


def test_a_figure_that_no_link_gives_makes_no_neighbour_slow() -> None:
    values = machine("a100_sxm4_40", 2)
    values["gpus"][1]["h2d_gb_per_s"] = 250.0
    found = judged(values, "a100")
    assert found["gpu 0.host_against_best"].status is PASS
    assert found["gpu 1.host_to_device"].status is UNKNOWN


def test_an_idle_reading_of_the_generation_is_no_fault_and_no_pass() -> None:
    values = machine("a100_sxm4_40")
    values["gpus"][0]["pcie"]["generation"] = 1
    found = judged(values, "a100")
    assert bad(found) == dict.fromkeys(["gpu 0.pcie_link", "gpu 0.host_to_device", "gpu 0.device_to_host"], UNKNOWN)
    assert "read while it was idle" in found["gpu 0.pcie_link"].reason


@pytest.mark.parametrize("key", ["gh200_96", "gh200_144", "gb200"])
def test_chips_joined_by_c2c_have_no_pcie_floor(key: str) -> None:
    values = machine(key)
    values["gpus"][0]["pcie"] = {"generation": 4, "width": 1, "max_generation": 5, "max_width": 16}
    found = judged(values)
    assert bad(found) == {}
    assert found["gpu 0.pcie_link"].status is SKIP
    values["gpus"][0]["h2d_gb_per_s"] *= 0.8
    assert bad(judged(values)) == {"gpu 0.host_to_device": WARN}
    values["gpus"][0]["h2d_gb_per_s"] = 40.0
    assert bad(judged(values)) == {"gpu 0.host_to_device": FAIL}
    values["gpus"][0]["h2d_gb_per_s"] = 500.0
    assert bad(judged(values)) == {"gpu 0.host_to_device": UNKNOWN}


@pytest.mark.parametrize(("share", "status"), [(0.55, PASS), (0.45, FAIL)])
def test_the_users_own_figure_is_the_only_limit_of_c2c(share: float, status: records.Status) -> None:
    values = machine("gh200_96")
    values["gpus"][0]["h2d_gb_per_s"] *= share
    mine = own({"host_link_percent_of_peak": 50})
    found = {one.key: one for one in findings_of("bandwidth", values, resolved("t4", gpus=["t4"]), snapshot(), mine)}
    assert found["gpu 0.host_to_device"].status is status
    assert "50 % of what healthy boards reach" in found["gpu 0.host_to_device"].expected


def test_one_direction_that_is_slow_is_said_to_be_no_matter_of_the_link() -> None:
    values = machine("a100_sxm4_80")
    values["gpus"][0]["d2h_gb_per_s"] = 6.27  # published of an Azure machine
    found = judged(values, "a100")
    assert bad(found) == {"gpu 0.device_to_host": FAIL}
    assert "the other direction" in found["gpu 0.device_to_host"].reason
    assert "NUMA" in found["gpu 0.device_to_host"].remedy


def test_copies_from_pageable_memory_say_nothing_of_the_link() -> None:
    values = machine("a100_sxm4_80")
    values["gpus"][0].update(pinned=False, h2d_gb_per_s=10.0)
    assert bad(judged(values, "a100")) == {"gpu 0.host_to_device": UNKNOWN, "gpu 0.device_to_host": UNKNOWN}


# ---------------------------------------------------------------- NVLinks between pairs


def links_of(key: str, rows: list[list[int]], **changes: Any) -> dict[str, records.Finding]:
    """`rows[i][j]`: links from GPU i to GPU j; copies are as fast as these links."""
    board = catalogue.boards()[key]
    percent, each = nvlink_percent(board)
    values = machine(key, len(rows))
    for pair in values["peers"]:
        links = rows[pair["from"]][pair["to"]]
        speed = percent / 100 * links * each if each and links else pair["gb_per_s"]
        pair.update(nvlinks=links, gb_per_s=min(speed, pair["gb_per_s"]) if not links else speed)
        if not links:
            pair["gb_per_s"] = machine(key, 2, 0)["peers"][0]["gb_per_s"]
    return judged(values, profile_of(board), snapshot("none", **changes))


def all_of(count: int, links: int) -> list[list[int]]:
    return [[0 if i == j else links for j in range(count)] for i in range(count)]


CUBE = [  # DGX-1: two quads, one link more to two of four neighbours
    [0, 1, 1, 2, 2, 0, 0, 0], [1, 0, 2, 1, 0, 2, 0, 0], [1, 2, 0, 2, 0, 0, 1, 0], [2, 1, 2, 0, 0, 0, 0, 1],
    [2, 0, 0, 0, 0, 1, 1, 2], [0, 2, 0, 0, 1, 0, 2, 1], [0, 0, 1, 0, 1, 2, 0, 2], [0, 0, 0, 1, 2, 1, 2, 0],
]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "rows"),
    [
        ("a100_sxm4_40", all_of(8, 12)), ("a100_sxm4_80", all_of(4, 12)), ("a100_sxm_64", all_of(4, 4)),
        ("a100_sxm4_40", all_of(4, 4)), ("h100_sxm5_80", all_of(4, 6)), ("h100_sxm5_80", all_of(8, 18)),
        ("h200_sxm", all_of(2, 18)), ("b200", all_of(8, 18)), ("v100_sxm2_16", all_of(4, 2)), ("v100_sxm2_32", CUBE),
        ("a100_pcie_80", [[0, 12, 0, 0], [12, 0, 0, 0], [0, 0, 0, 12], [0, 0, 12, 0]]),
        ("a100_pcie_40", all_of(2, 0)), ("rtx_a6000", all_of(2, 4)), ("rtx_3090", [[0, 4, 0], [4, 0, 0], [0, 0, 0]]),
        ("h200_nvl", all_of(4, 6)), ("h200_nvl", all_of(2, 18)), ("t4", all_of(4, 0)), ("l40s", all_of(2, 0)),
        ("v100_pcie_16", all_of(2, 0)),
    ],
)  # fmt: skip
def test_sound_machines_of_each_topology(key: str, rows: list[list[int]]) -> None:
    found = {name: status for name, status in bad(links_of(key, rows)).items() if not name.endswith("memory_copy")}
    found = {name: one for name, one in found.items() if " to " in name or "nvlink" in name}
    assert found == {}


def test_a_missing_bridge_is_said_and_no_fault() -> None:
    finding = links_of("a100_pcie_80", all_of(2, 0))["gpu 0 to gpu 1.nvlinks"]
    assert (finding.status, "no bridge joins these two cards" in finding.reason) == (SKIP, True)


@pytest.mark.parametrize(
    ("key", "rows", "links", "status", "says"),
    [
        ("a100_sxm4_40", all_of(8, 12), 11, FAIL, "11 of 12 NVLinks are active (eight GPUs behind switches)"),
        ("a100_sxm4_40", all_of(4, 4), 3, FAIL, "3 of 4 NVLinks are active (four GPUs and four links a pair)"),
        ("h100_sxm5_80", all_of(4, 6), 5, FAIL, "5 of 6"),
        ("h100_sxm5_80", all_of(8, 18), 6, FAIL, "6 of 18"),
        ("h200_sxm", all_of(2, 18), 6, FAIL, "6 of 18"),
        ("h200_sxm", all_of(8, 18), 0, FAIL, "0 of 18"),
        ("h200_sxm", all_of(2, 18), 36, UNKNOWN, "36 NVLinks are recorded"),
        ("h200_sxm", all_of(2, 18), -1, UNKNOWN, "-1 NVLinks are recorded"),
        ("t4", all_of(2, 0), 18, UNKNOWN, "the board has no NVLink"),
        ("rtx_a6000", all_of(2, 4), 3, FAIL, "no full contact"),
        ("a100_pcie_80", all_of(2, 12), 8, FAIL, "8 NVLinks are active in this direction and 12 in the other"),
        ("v100_sxm2_16", all_of(4, 2), 1, FAIL, "1 of 2"),
    ],
)
def test_links_that_are_down(key: str, rows: list[list[int]], links: int, status: records.Status, says: str) -> None:
    rows = [list(row) for row in rows]
    rows[0][1] = links
    finding = links_of(key, rows)["gpu 0 to gpu 1.nvlinks"]
    assert (finding.status, says in finding.reason) == (status, True), finding


def test_one_bridge_less_is_a_warning() -> None:
    finding = links_of("a100_pcie_80", all_of(2, 8))["gpu 0 to gpu 1.nvlinks"]
    assert (finding.status, "fewer bridges" in finding.reason) == (WARN, True)


def test_a_link_that_is_down_in_a_cube_mesh() -> None:
    rows = [list(row) for row in CUBE]
    rows[0][3] = rows[3][0] = 1
    found = bad(links_of("v100_sxm2_16", rows))
    assert found["gpu 0.nvlink_row"] is found["gpu 3.nvlink_row"] is FAIL
    rows[0] = [0] * 8
    assert links_of("v100_sxm2_16", rows)["gpu 0.nvlink_row"].status is FAIL


def test_all_links_down_behind_switches() -> None:
    quiet = links_of("a100_sxm4_80", all_of(8, 0))["gpu 0 to gpu 1.nvlinks"]
    assert (quiet.status, "communicate over PCIe" in quiet.reason) == (WARN, True)
    broken = links_of("a100_sxm4_80", all_of(8, 0), nvswitches=6)["gpu 0 to gpu 1.nvlinks"]
    assert (broken.status, "0 of 12" in broken.reason) == (FAIL, True)


# ---------------------------------------------------------------- copies between GPUs


def pairs_of(key: str, count: int = 2, links: int | None = None, **first: Any) -> dict[str, records.Finding]:
    values = machine(key, count, links)
    values["peers"][0].update(first)
    return judged(values, profile_of(catalogue.boards()[key]))


@pytest.mark.parametrize(
    ("key", "first", "status", "says"),
    [
        ("h200_sxm", {"gb_per_s": 340.0}, WARN, "340 of the 450 GB/s"),
        ("h200_sxm", {"gb_per_s": 200.0}, FAIL, "200 of the 450 GB/s"),
        ("h200_sxm", {"gb_per_s": 600.0}, UNKNOWN, "carry 450 GB/s in one direction"),
        ("h200_sxm", {"nvlinks": 12}, UNKNOWN, "12 NVLinks carry 300 GB/s"),
        ("h200_sxm", {"gb_per_s": 0.0}, UNKNOWN, "not a possible speed"),
        ("h200_sxm", {"gb_per_s": -393.0}, UNKNOWN, "not a possible speed"),
        ("h200_sxm", {"gb_per_s": float("nan")}, UNKNOWN, "NaN"),
        ("h200_sxm", {"gb_per_s": 1e16}, UNKNOWN, "10^15"),
        ("h200_sxm", {"can_access": None}, UNKNOWN, "not recorded"),
        ("h200_sxm", {"can_access": False, "gb_per_s": 20.0}, FAIL, "although 18 NVLinks are active"),
        ("rtx_4090", {"can_access": False, "gb_per_s": 22.0}, PASS, "through the host's memory"),
        ("rtx_4090", {"can_access": False, "gb_per_s": 3.0}, WARN, "through the host's memory"),
        ("rtx_4090", {"gb_per_s": 6.34}, WARN, "6 of the 32 GB/s"),
        ("rtx_4090", {"gb_per_s": 20.0, "topology": "PIX"}, WARN, "20 of the 32 GB/s"),
        ("rtx_4090", {"gb_per_s": 20.0, "topology": "SYS"}, PASS, ""),
    ],
)
def test_a_copy_between_two_gpus(key: str, first: dict[str, Any], status: records.Status, says: str) -> None:
    finding = pairs_of(key, **first)["gpu 0 to gpu 1.peer_copy"]
    assert (finding.status, says in finding.reason) == (status, True), finding


def test_pair_beside_pair() -> None:
    found = pairs_of("a100_sxm4_40", 4, gb_per_s=200.0)
    assert bad(found) == {"gpu 0 to gpu 1.peer_copy": WARN, "gpu 0 to gpu 1.peer_against_best": WARN}
    assert found["gpu 0 to gpu 1.peer_against_best"].actual.startswith("200 of 276 GB/s")
    lame = pairs_of("rtx_a6000", 4, links=0, gb_per_s=10.0, topology="SYS")
    assert "gpu 0 to gpu 1.peer_against_best" not in lame, "the only pair of its kind"
    values = machine("rtx_a6000", 4, 0)
    for pair in values["peers"]:
        pair["topology"] = "PIX"
    values["peers"][0]["gb_per_s"] = 10.0
    assert bad(judged(values))["gpu 0 to gpu 1.peer_against_best"] is FAIL


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda peers: peers[0].update({"to": 7}), "gpu 0 to gpu 7"),
        (lambda peers: peers[0].update({"to": 0}), "gpu 0 to gpu 0"),
        (lambda peers: peers.append(dict(peers[0])), "(twice)"),
    ],
)
def test_pairs_that_cannot_be(change: Any, says: str) -> None:
    values = machine("h200_sxm", 3)
    change(values["peers"])
    finding = judged(values, "h200")["gpus.pairs"]
    assert (finding.status, says in finding.reason) == (UNKNOWN, True)


def test_a_job_that_sees_some_gpus_of_a_mesh_is_warned_and_does_not_fail() -> None:
    """Two of four A100 with four links a pair; the same links behind switches would be eight links down."""
    found = bad(judged(machine("a100_sxm4_80", 2, links=4)))
    assert found == {"gpu 0 to gpu 1.nvlinks": WARN, "gpu 1 to gpu 0.nvlinks": WARN}
    switched = bad(judged(machine("a100_sxm4_80", 2, links=4), host=snapshot(nvswitches=6)))
    assert FAIL in switched.values()
    assert FAIL in bad(judged(machine("a100_sxm4_80", 2, links=3))).values()


def test_nvlinks_between_boards_that_nobody_joins_are_unknown() -> None:
    values = machine("a100_pcie_80", 1)
    values["gpus"].append(sound_gpu(catalogue.boards()["t4"], 1))
    values["peers"] = peers(values["gpus"], 12, 250.0)
    found = judged(values)
    assert bad(found) == {"gpu 0 to gpu 1.nvlinks": UNKNOWN, "gpu 1 to gpu 0.nvlinks": UNKNOWN}
    assert "NVLink cannot join such boards" in found["gpu 0 to gpu 1.nvlinks"].reason


@pytest.mark.parametrize(("key", "link"), [("l4", {"generation": 5}), ("a16", {"width": 16}), ("t4", {"width": 32})])
def test_a_link_that_the_board_cannot_have_condemns_no_healthy_copy(key: str, link: dict[str, int]) -> None:
    values = machine(key, 1)
    values["gpus"][0]["pcie"].update(link)
    assert bad(judged(values)) == {"gpu 0.pcie_link": UNKNOWN}


def test_a_pair_of_one_gpu_is_told() -> None:
    values = machine("h200_sxm", 1)
    values["peers"] = [{"from": 0, "to": 1, "can_access": True, "gb_per_s": 390.0, "nvlinks": 18}]
    assert bad(judged(values, "h200")) == {"gpus.pairs": UNKNOWN}
