"""Memory: every kind of access, beside healthy boards and neighbours; what cannot be; what disturbed it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from bandwidths_for_tests import bad, has_healthy_memory, judged, machine, profile_of, snapshot
from builders import finished_snapshot, resolved

from gpuprep import catalogue, records

FAIL, WARN, UNKNOWN, PASS = records.Status.FAIL, records.Status.WARN, records.Status.UNKNOWN, records.Status.PASS
KINDS = ("copy", "read", "triad")
WITH_FIGURES = [key for key, one in catalogue.boards().items() if has_healthy_memory(one)]


def changed(key: str = "a100_sxm4_40", **figures: Any) -> dict[str, records.Finding]:
    values = machine(key)
    values["gpus"][0].update(figures)
    return judged(values, profile_of(catalogue.boards()[key]))


def slower(key: str, share: float) -> dict[str, records.Finding]:
    values = machine(key)
    for kind in KINDS:
        values["gpus"][0][f"{kind}_gb_per_s"] *= share
    return judged(values, profile_of(catalogue.boards()[key]))


@pytest.mark.parametrize("key", WITH_FIGURES)
def test_a_sound_board_passes_and_one_that_is_15_percent_slow_does_not(key: str) -> None:
    assert bad(slower(key, 1.0)) == {}
    memory = {name for name in bad(slower(key, 0.85)) if name.startswith("gpu 0.memory_")}
    assert memory, "nothing said that it is slow"
    assert FAIL in bad(slower(key, 0.5)).values()


def test_each_kind_of_access_is_judged_and_not_the_fastest() -> None:
    for kind in KINDS:
        sound = machine("a100_sxm4_40")["gpus"][0][f"{kind}_gb_per_s"]
        assert set(bad(changed(**{f"{kind}_gb_per_s": 0.7 * sound}))) == {f"gpu 0.memory_{kind}"}
    assert bad(changed(write_gb_per_s=300.0)) == {"gpu 0.memory_write": FAIL}
    assert bad(changed(write_gb_per_s=1400.0)) == {}


def test_a_quarter_less_is_no_pass_and_half_is_a_fault() -> None:
    figures = machine("h200_sxm")["gpus"][0]
    slow = {f"{kind}_gb_per_s": 0.74 * figures[f"{kind}_gb_per_s"] for kind in KINDS}
    found = changed("h200_sxm", **slow)
    assert set(bad(found).values()) == {WARN}
    assert "; healthy machines differ: below 55" in found["gpu 0.memory_triad"].reason
    assert set(bad(changed("h200_sxm", **{kind: 0.8 * speed for kind, speed in slow.items()})).values()) == {FAIL}
    without = changed("h200_sxm", **slow, memory_clock_mhz={"missing": "not_supported"})
    assert without["gpu 0.memory_triad"].status is WARN
    assert without["gpu 0.memory_clock"].status is UNKNOWN
    assert "its clock is not known" in without["gpu 0.memory_triad"].reason


def test_a_low_memory_clock_is_said_even_where_the_speed_passes() -> None:
    found = changed(memory_clock_mhz=1185)
    assert bad(found) == {"gpu 0.memory_clock": WARN}
    assert "1185 of 1215 MHz" in found["gpu 0.memory_clock"].reason
    geforce = changed("rtx_3090", memory_clock_mhz=9501)
    assert bad(geforce) == {}
    assert "GeForce" in geforce["gpu 0.memory_clock"].reason


@pytest.mark.parametrize(
    ("figures", "keys", "says"),
    [
        ({"triad_gb_per_s": 1600.0}, ["memory_triad"], "its bus carries 1555"),
        ({"copy_gb_per_s": 4.6e6}, ["memory_copy"], "more than memory delivers"),
        ({"read_gb_per_s": 0.0}, ["memory_read"], "not a possible speed"),
        ({"read_gb_per_s": -1400.0}, ["memory_read"], "not a possible speed"),
        ({"read_gb_per_s": math.nan}, ["memory_read"], "NaN"),
        ({"read_gb_per_s": math.inf}, ["memory_read"], "Infinity"),
        ({"read_gb_per_s": 1e15}, ["memory_read"], "10^15"),
        ({"memory_clock_mhz": 405}, ["memory_copy", "memory_read", "memory_triad"], "the recorded memory clock of 405"),
        ({"memory_clock_mhz": 2619}, ["memory_clock"], "1215 MHz is the highest of this board"),
        ({"graphics_clock_mhz": 150}, ["memory_read", "memory_triad"], "108 SMs at 150 MHz load at most 1037 GB/s"),
        ({"graphics_clock_mhz": 1980}, ["graphics_clock"], "the highest clock of this board is 1410"),
        ({"graphics_clock_mhz": -1410}, ["graphics_clock"], "-1410 MHz"),
        ({"graphics_clock_mhz": math.nan}, ["graphics_clock"], "NaN"),
        ({"h2d_gb_per_s": 40.0}, ["host_to_device"], "carries 31.5 GB/s"),
        ({"h2d_gb_per_s": 31.0}, ["host_to_device"], "carries 31.5 GB/s"),
        ({"d2h_gb_per_s": 0.0}, ["device_to_host"], "not a possible speed"),
        ({"buffer_mib": 20480}, ["memory_size"], "do not fit into 40960 MiB"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_unknown_with_the_reason(figures: dict[str, Any], keys: list[str], says: str) -> None:
    found = changed(**figures)
    told = {key: one for key, one in found.items() if says in one.reason}
    assert {f"gpu 0.{key}" for key in keys} <= set(told)
    assert {told[f"gpu 0.{key}"].status for key in keys} == {UNKNOWN}
    assert FAIL not in bad(found).values()


def test_a_memory_of_another_size_is_another_board() -> None:
    wanted = resolved("a100", gpus=["a100"])
    host = finished_snapshot(wanted)
    assert not isinstance(host.gpus, type(host.virtualization))
    values = machine("a100_sxm4_40")
    (facts,) = host.gpus  # type: ignore[misc]
    for mib, status in ((40960, None), (40536, None), (20480, UNKNOWN), (81920, UNKNOWN)):
        seen = dataclasses.replace(facts, uuid="GPU-0", memory_total_mib=mib)
        found = bad(judged(values, "a100", dataclasses.replace(snapshot(), gpus=(seen,))))
        assert found.get("gpu 0.memory_size") is status


# ---------------------------------------------------------------- neighbours


def test_the_slowest_of_four_is_named() -> None:
    values = machine("a100_sxm4_80", 4)
    for kind in KINDS:
        values["gpus"][2][f"{kind}_gb_per_s"] *= 0.885  # published: GPU 4 of 8, and every floor is kept
    found = judged(values, "a100")
    assert bad(found) == {"gpu 2.memory_against_best": FAIL}
    assert "11.5 % slower" in found["gpu 2.memory_against_best"].reason
    values["gpus"][2]["other_processes"] = [{"pid": 1, "name": "python3", "memory_mib": 5}]
    assert "gpu 2.memory_against_best" not in judged(values, "a100")


# ---------------------------------------------------------------- trust


@pytest.mark.parametrize(
    ("reasons", "samples", "status"),
    [
        (0, [], PASS), (4, [4, 4], PASS), (0x20, [], WARN), (8, [], FAIL), (0x40, [], FAIL), (0x80, [0] * 5, FAIL),
        (0x88, [0] * 30 + [0x88], WARN), (0, [0] * 30 + [8, 8], FAIL), ({"missing": "not_supported"}, [], UNKNOWN),
        (0x10, [], WARN), (8, [0] * 30, WARN), (0, [0, -1], UNKNOWN), (-1, [], UNKNOWN),
        (1e12, [], UNKNOWN), (0.5, [], UNKNOWN),
    ],
)  # fmt: skip
def test_event_reasons_are_judged_as_those_of_matrix_products(
    reasons: Any, samples: list[int], status: records.Status
) -> None:
    telemetry = {"hz": 20.0, "seconds": list(range(len(samples))), "event_reasons": samples}
    found = changed(event_reasons=reasons, telemetry=telemetry)
    assert found["gpu 0.bandwidth_slowdowns"].status is status
    assert set(bad(found)) <= {"gpu 0.bandwidth_slowdowns"}


def test_who_used_the_gpu_must_be_known() -> None:
    values = machine("a100_sxm4_40", 2)
    del values["gpus"][0]["other_processes"]
    found = bad(judged(values, "a100"))
    figures = ["memory_copy", "memory_read", "memory_triad", "host_to_device", "device_to_host"]
    pairs = ["gpu 0 to gpu 1.peer_copy", "gpu 1 to gpu 0.peer_copy"]
    assert found == dict.fromkeys([*(f"gpu 0.{name}" for name in figures), *pairs], UNKNOWN)


def test_two_entries_of_one_gpu_are_unknown() -> None:
    values = machine("a100_sxm4_40", 2)
    values["gpus"][1]["uuid"] = values["gpus"][0]["uuid"]
    assert bad(judged(values, "a100")) == {"bandwidth.entries": UNKNOWN}


def test_published_excuses_what_is_absent_and_nothing_else() -> None:
    gpu = {"index": 0, "pci_device_id": "20b0", "read_gb_per_s": 1490.0}
    found = judged({"published": "a paper", "gpus": [gpu]}, "a100")
    assert {key: one.status for key, one in found.items()} == {
        "bandwidth.host": records.Status.SKIP,
        "gpu 0.memory_read": PASS,
    }
    slow = judged({"published": "a paper", "gpus": [{**gpu, "read_gb_per_s": 700.0}]}, "a100")
    assert bad(slow) == {"gpu 0.memory_read": FAIL}
    hot = judged({"published": "a paper", "gpus": [{**gpu, "event_reasons": 8}]}, "a100")
    assert bad(hot) == {"gpu 0.bandwidth_slowdowns": FAIL}
    narrow = {**gpu, "pcie": {"generation": 4, "width": 4, "max_generation": 4, "max_width": 16}}
    assert bad(judged({"published": "a paper", "gpus": [narrow]}, "a100")) == {"gpu 0.pcie_link": FAIL}
    nothing = judged({"published": "a paper", "gpus": [{**gpu, "read_gb_per_s": math.nan}]}, "a100")
    assert bad(nothing) == {"gpu 0.memory_read": UNKNOWN}
