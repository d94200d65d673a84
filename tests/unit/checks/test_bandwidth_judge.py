"""Judged bandwidth: what a real H200 said passes, published figures pass, and each fault is named."""

from __future__ import annotations

import copy
from typing import Any

import goodfigures
import pytest
from builders import finished_snapshot, resolved, shipped
from judgedbandwidth import figures, judged, own
from places import TESTS

from gpuprep import records

RECORDS = TESTS / "cases" / "records"
LINKS = {"t4": (3, 16), "v100": (3, 16), "a100": (4, 16), "h200": (5, 16)}


def real_h200() -> dict[str, Any]:
    result = records.from_json(records.ProbeResult, (RECORDS / "h200-bandwidth.json").read_text())
    assert isinstance(result.values, dict)
    return copy.deepcopy(result.values)


def bad(findings: list[records.Finding]) -> dict[str, records.Finding]:
    return {finding.key: finding for finding in findings if finding.status is not records.Status.PASS}


def gpu(device: str, profile: str, **figures: float) -> dict[str, Any]:
    generation, width = LINKS[profile]
    link = {"generation": generation, "width": width, "max_generation": generation, "max_width": width}
    return {"published": "a paper", "gpus": [{"index": 0, "pci_device_id": device, "pcie": link, **figures}]}


def test_a_real_h200_passes() -> None:
    assert bad(judged(real_h200())) == {}
    assert len(judged(real_h200())) == 8


def test_two_real_h200_pass() -> None:
    result = records.from_json(records.ProbeResult, (RECORDS / "h200x2-bandwidth.json").read_text())
    assert not isinstance(result.values, records.Missing)
    found = judged(result.values)
    assert bad(found) == {}
    assert {f.key for f in found} >= {"gpu 0 to gpu 1.nvlinks", "gpu 1 to gpu 0.peer_copy"}
    assert {f.key for f in found} >= {"gpu 1.memory_against_best", "gpu 0.host_against_best"}


@pytest.mark.parametrize(
    ("profile", "device", "figures"),
    [
        ("a100", "20b2", {"copy": 1371.0, "read": 1769.0, "triad": 1769.0, "h2d": 25.9, "d2h": 25.9}),
        ("a100", "20b0", {"copy": 1156.0, "read": 1380.0, "triad": 1380.0, "h2d": 25.9, "d2h": 25.9}),
        ("v100", "1db6", {"copy": 726.0, "read": 866.0, "triad": 814.0, "h2d": 12.4, "d2h": 13.0}),
        ("t4", "1eb8", {"copy": 240.0, "read": 244.0, "triad": 240.0, "h2d": 12.0, "d2h": 12.5}),
    ],
)
def test_published_figures_pass(profile: str, device: str, figures: dict[str, float]) -> None:
    values = gpu(device, profile, **{f"{name}_gb_per_s": figure for name, figure in figures.items()})
    assert {key: found.status for key, found in bad(judged(values, profile)).items()} == {
        "bandwidth.host": records.Status.SKIP
    }


@pytest.mark.parametrize("gpus", [["t4"], ["v100", "v100"], ["a100", "a100"], ["h200"] * 3])
def test_a_finished_host_passes(gpus: list[str]) -> None:
    wanted = resolved(gpus[0], gpus=gpus)
    thresholds = own({"memory_percent_of_peak": 78, "host_link_percent_of_peak": 75})
    found = figures("bandwidth", goodfigures.bandwidth(wanted), wanted, finished_snapshot(wanted), thresholds)
    assert bad(found) == {}
    pairs = len(gpus) * (len(gpus) - 1)
    neighbours = 1 if len(gpus) > 1 else 0  # no limits of peers are among these thresholds
    assert len(found) == (9 + neighbours) * len(gpus) + pairs * (1 if gpus[0] == "v100" else 2)


def changed(**gpu_values: Any) -> dict[str, records.Finding]:
    values = real_h200()
    values["gpus"][0].update(gpu_values)
    return bad(judged(values))


def test_slow_memory_at_full_clock_is_a_defect() -> None:
    found = changed(copy_gb_per_s=2100.0, read_gb_per_s=2300.0, triad_gb_per_s=2200.0)
    assert set(found) == {"gpu 0.memory_copy", "gpu 0.memory_read", "gpu 0.memory_triad"}
    triad = found["gpu 0.memory_triad"]
    assert triad.status is records.Status.FAIL
    assert triad.reason == (
        "the device triad reaches 2200 of 4800 GB/s (46 %) although the memory clock was full (3201 of 3201 MHz)"
    )
    assert "ROW_REMAPPER" in triad.remedy


def test_slow_memory_is_explained_by_its_clock() -> None:
    slow = {"copy_gb_per_s": 2100.0, "read_gb_per_s": 2250.0, "triad_gb_per_s": 2200.0}
    found = changed(**slow, memory_clock_mhz=1593)
    assert found["gpu 0.memory_clock"].status is records.Status.WARN
    assert found["gpu 0.memory_triad"].reason.endswith("because the memory clock was 1593 of 3201 MHz")
    assert "gpuprep tune" in found["gpu 0.memory_triad"].remedy


def test_a_link_with_a_quarter_of_its_lanes_fails_and_so_do_its_copies() -> None:
    link = {"generation": 5, "width": 4, "max_generation": 5, "max_width": 16}
    found = changed(pcie=link, h2d_gb_per_s=13.9, d2h_gb_per_s=13.8)
    assert set(found) == {"gpu 0.pcie_link", "gpu 0.host_to_device", "gpu 0.device_to_host"}
    assert {finding.status for finding in found.values()} == {records.Status.FAIL}
    assert "all that generation 5 x4 carries" in found["gpu 0.host_to_device"].reason
    assert "x4 of x16" in found["gpu 0.pcie_link"].reason


def test_slow_host_copies_over_a_good_link() -> None:
    found = changed(h2d_gb_per_s=20.0)
    assert set(found) == {"gpu 0.host_to_device"}
    assert "20.0 of the 63.0 GB/s" in found["gpu 0.host_to_device"].reason


def test_another_process_makes_figures_unknown() -> None:
    found = changed(other_processes=[{"pid": 7, "name": "python3", "memory_mib": 300}], triad_gb_per_s=100.0)
    assert len(found) == 5  # the link's form does not depend on who uses it
    assert {finding.status for finding in found.values()} == {records.Status.UNKNOWN}
    assert "python3 (pid 7)" in found["gpu 0.memory_copy"].reason


def test_what_is_missing_is_unknown() -> None:
    absent = {"missing": "not_installed", "detail": "the toolkit is CUDA 11.8"}
    found = changed(read_gb_per_s=absent, triad_gb_per_s=absent)
    assert {key: finding.status for key, finding in found.items()} == {
        "gpu 0.memory_read": records.Status.UNKNOWN,
        "gpu 0.memory_triad": records.Status.UNKNOWN,
    }
    assert "CUDA 11.8" in found["gpu 0.memory_read"].reason
    values = real_h200()
    for key in ("copy_gb_per_s", "pcie", "d2h_gb_per_s"):
        del values["gpus"][0][key]
    assert {finding.status for finding in bad(judged(values)).values()} == {records.Status.UNKNOWN}


@pytest.mark.parametrize(
    "values",
    [records.Missing("not_installed", "cuda-core"), {}, {"gpus": []}, {"gpus": {"missing": "driver_not_loaded"}}],
)
def test_no_measurement_is_unknown(values: dict[str, Any] | records.Missing) -> None:
    (finding,) = judged(values)
    assert (finding.status, bool(finding.reason), bool(finding.remedy)) == (records.Status.UNKNOWN, True, True)


def test_an_unknown_gpu_and_a_profile_without_floors_are_unknown() -> None:
    assert changed(pci_device_id="ffff")["gpu 0.memory_copy"].status is records.Status.UNKNOWN
    without = judged(real_h200(), memory_percent_of_peak=None, host_link_percent_of_peak=None)
    assert len(bad(without)) == 5
    assert {finding.status for finding in bad(without).values()} == {records.Status.UNKNOWN}


@pytest.mark.parametrize(
    ("error", "status", "remedy"),
    [
        ("the GPU is lost", records.Status.FAIL, "stop the machine"),
        ("the triad's result is wrong in 3 of 262144 values", records.Status.FAIL, "do not calculate"),
        ("cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY", records.Status.UNKNOWN, "measure again"),
        ("CUDA shows no device GPU-1, which NVML shows", records.Status.UNKNOWN, "measure again"),
    ],
)
def test_a_gpu_that_was_not_measured(error: str, status: records.Status, remedy: str) -> None:
    found = changed(error=error)
    assert set(found) == {"gpu 0.bandwidth"}
    finding = found["gpu 0.bandwidth"]
    assert (finding.status, error in finding.reason, remedy in finding.remedy) == (status, True, True)


# ---------------------------------------------------------------- several GPUs


def pair(**values: Any) -> dict[str, records.Finding]:
    gpus = real_h200()["gpus"] * 2
    gpus = [{**one, "index": index, "uuid": f"GPU-{index}"} for index, one in enumerate(gpus)]
    good = {"from": 0, "to": 1, "can_access": True, "gb_per_s": 390.0, "nvlinks": 18, "error": None}
    back = {**good, "from": 1, "to": 0}
    return bad(judged({"gpus": gpus, "peers": [{**good, **values}, back]}))


def test_a_pair_or_a_gpu_that_is_absent_is_unknown() -> None:
    both = [{**real_h200()["gpus"][0], "index": index, "uuid": f"GPU-{index}"} for index in (0, 1)]
    one_way = {"from": 0, "to": 1, "can_access": True, "gb_per_s": 390.0, "nvlinks": 18, "error": None}
    found = bad(judged({"gpus": both, "peers": [one_way]}))
    assert (found["gpus.peers"].status, "gpu 1 to gpu 0" in found["gpus.peers"].reason) == (
        records.Status.UNKNOWN,
        True,
    )
    wanted = resolved("t4")
    values = {**goodfigures.bandwidth(wanted), "gpus": [None]}
    found = bad(figures("bandwidth", values, wanted, finished_snapshot(wanted), shipped("t4").thresholds))
    assert {key: one.status for key, one in found.items()} == {"bandwidth.gpus": records.Status.UNKNOWN}


def test_more_than_the_memory_can_carry_is_no_figure() -> None:
    values = real_h200()
    values["gpus"][0]["read_gb_per_s"] = 4_600_000.0
    assert bad(judged(values))["gpu 0.memory_read"].status is records.Status.UNKNOWN


def test_good_peers_pass() -> None:
    assert pair() == {}


@pytest.mark.parametrize(
    ("values", "key", "status", "says"),
    [
        ({"nvlinks": 12, "gb_per_s": 260.0}, "nvlinks", records.Status.FAIL, "12 of 18 NVLinks are active"),
        ({"gb_per_s": 40.0}, "peer_copy", records.Status.FAIL, "40 of the 450 GB/s that 18 NVLinks carry"),
        ({"can_access": False, "gb_per_s": 20.0}, "peer_copy", records.Status.FAIL, "although 18 NVLinks are active"),
        ({"error": "cuMemcpyPeerAsync: X"}, "peer_copy", records.Status.FAIL, "cuMemcpyPeerAsync"),
        (
            {"gb_per_s": {"missing": "command_failed", "detail": "?"}},
            "peer_copy",
            records.Status.UNKNOWN,
            "could not be read",
        ),
        ({"nvlinks": {"missing": "gpu_is_lost"}, "gb_per_s": 55.0}, "nvlinks", records.Status.UNKNOWN, "fallen off"),
    ],
)
def test_peers_that_show_a_fault(values: dict[str, Any], key: str, status: records.Status, says: str) -> None:
    found = pair(**values)
    finding = found[f"gpu 0 to gpu 1.{key}"]
    assert (finding.status, says in finding.reason) == (status, True), finding.reason
    assert finding.remedy


def test_without_nvlink() -> None:
    gpus = [{**real_h200()["gpus"][0], "index": index, "uuid": f"GPU-{index}"} for index in (0, 1)]
    silent = {"can_access": True, "gb_per_s": 50.0, "nvlinks": 0}
    found = bad(judged({"gpus": gpus, "peers": [{"from": 0, "to": 1, **silent}, {"from": 1, "to": 0, **silent}]}))
    assert {key: finding.status for key, finding in found.items()} == {
        "gpu 0 to gpu 1.nvlinks": records.Status.WARN,
        "gpu 1 to gpu 0.nvlinks": records.Status.WARN,
    }
    slow = pair(nvlinks=0, gb_per_s=10.0)["gpu 0 to gpu 1.peer_copy"]
    assert (slow.status, "topo -m" in slow.remedy) == (records.Status.WARN, True)
    assert "gpu 0 to gpu 1.peer_copy" not in pair(nvlinks=0, can_access=False, gb_per_s=20.0), "through the host"
    staged = pair(nvlinks=0, can_access=False, gb_per_s=5.0)["gpu 0 to gpu 1.peer_copy"]
    assert (staged.status, "host's memory" in staged.reason) == (records.Status.WARN, True)
    one_way = pair(nvlinks=0, gb_per_s=50.0)["gpu 0 to gpu 1.nvlinks"]
    assert (one_way.status, "0 of 18" in one_way.reason) == (records.Status.FAIL, True)


def test_several_gpus_that_were_not_measured_against_each_other() -> None:
    gpus = [{**real_h200()["gpus"][0], "index": index, "uuid": f"GPU-{index}"} for index in (0, 1)]
    found = bad(judged({"gpus": gpus, "peers": []}))
    assert found["gpus.peers"].status is records.Status.UNKNOWN
