"""Judged NCCL: healthy machines of each topology pass, and each fault is named."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import ncclrecords
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncclrecords import Values, judged
from places import TESTS

from gpuprep import records
from gpuprep.agent.compute import ncclplan

RECORDS = TESTS / "cases" / "records"


def real_h200() -> Values:
    """Two H200 through NVSwitch, multicast off, NCCL 2.28.9 of torch's."""
    result = records.from_json(records.ProbeResult, (RECORDS / "h200x2-nccl.json").read_text())
    assert isinstance(result.values, dict)
    return copy.deepcopy(result.values)


def bad(values: Values | records.Missing) -> dict[str, records.Status]:
    """What did not pass; which NCCL it was is test_nccl_installed.py's."""
    found = {one.key: one.status for one in judged(values) if one.status is not records.Status.PASS}
    return {key: status for key, status in found.items() if key != "nccl.loaded"}


def finding(values: Values, prop: str) -> records.Finding:
    (found,) = [one for one in judged(values) if one.property == prop]
    return found


def slower(values: Values, share: float, operation: str = "", least: int = 0) -> Values:
    """The points of an operation ("": of all) from a size on, at a share of their speed."""
    for point in values["points"]:
        if operation in ("", point["operation"]) and point["bytes"] >= least:
            point["microseconds"] /= share
            for name in ("algbw_gb_per_s", "busbw_gb_per_s"):
                point[name] *= share
    return values


def test_two_real_h200_pass() -> None:
    values = real_h200()
    assert bad(values) == {}
    assert len(values["points"]) == 3 * len(ncclplan.SIZES)


@pytest.mark.parametrize("operation", ncclplan.OPERATIONS)
def test_real_figures_at_less_do_not_pass(operation: str) -> None:
    assert bad(slower(real_h200(), 0.85, operation)) == {f"nccl.{operation}": records.Status.WARN}
    assert bad(slower(real_h200(), 0.5, operation))[f"nccl.{operation}"] is records.Status.FAIL


SOUND: list[tuple[str, int, int, float]] = [
    ("h200", 2, 18, 365), ("h200", 4, 18, 363.3), ("h200", 8, 18, 365.6), ("h100", 8, 18, 365), ("a100", 8, 12, 231),
    ("a100", 4, 4, 232), ("v100", 2, 2, 46), ("b200", 4, 18, 673), ("t4", 2, 0, 13.1), ("t4", 4, 0, 10),
]  # fmt: skip


@pytest.mark.parametrize(("model", "gpus", "nvlinks", "busbw"), SOUND)
@pytest.mark.parametrize("quick", [True, False])
def test_sound_machines_pass(model: str, gpus: int, nvlinks: int, busbw: float, quick: bool) -> None:
    values = ncclrecords.machine(model, gpus, nvlinks=nvlinks, busbw=busbw, quick=quick)
    assert bad(values) == {}
    assert {one.property for one in judged(values)} == {*ncclplan.OPERATIONS, "results", "latency", "loaded"}


@pytest.mark.parametrize(("model", "gpus", "nvlinks", "busbw"), [one for one in SOUND if one[2]])
def test_half_the_speed_fails(model: str, gpus: int, nvlinks: int, busbw: float) -> None:
    values = slower(ncclrecords.machine(model, gpus, nvlinks=nvlinks, busbw=busbw), 0.5)
    assert bad(values)["nccl.all_reduce"] is records.Status.FAIL
    assert all(f"nccl.{operation}" in bad(values) for operation in ncclplan.OPERATIONS)  # of two GPUs others reach less
    found = finding(values, "all_reduce")
    assert "GB/s of bus bandwidth" in found.reason
    assert "Xid 74" in found.remedy


@pytest.mark.parametrize(
    ("model", "gpus", "operation", "busbw", "status"),
    [
        ("h200", 2, "all_gather", 276, records.Status.WARN),  # a sound pair: 63 % of 450 GB/s rest on few machines
        ("h200", 2, "all_gather", 190, records.Status.FAIL),
        ("h100", 8, "reduce_scatter", 300, records.Status.WARN),
        ("a100", 8, "all_reduce", 160, records.Status.WARN),
        ("a100", 8, "all_reduce", 115, records.Status.FAIL),  # six of twelve NVLinks
        ("v100", 2, "all_reduce", 7.2, records.Status.FAIL),  # over PCIe instead of NVLinks
    ],
)
def test_fail_begins_at_a_share_of_the_floor(
    model: str, gpus: int, operation: str, busbw: float, status: records.Status
) -> None:
    links, sound = {"a100": (12, 231), "v100": (2, 46)}.get(model, (18, 365))
    values = ncclrecords.machine(model, gpus, nvlinks=links, busbw=sound)
    for point in values["points"]:
        if point["operation"] == operation and point["bytes"] >= 2**30:
            point.update(ncclrecords.point(operation, point["bytes"], gpus, busbw))
    assert finding(values, operation).status is status
    assert " machine" in finding(values, operation).expected


@pytest.mark.parametrize("operation", ncclplan.OPERATIONS)
def test_one_slow_collective_is_named(operation: str) -> None:
    values = slower(ncclrecords.machine(), 0.45, operation)
    assert bad(values)[f"nccl.{operation}"] is records.Status.FAIL
    assert all(f"nccl.{other}" not in bad(values) for other in ncclplan.OPERATIONS if other != operation)


@pytest.mark.parametrize("size", [size for size in ncclplan.SIZES if size >= 128 * ncclplan.MIB])
def test_every_large_size_is_judged(size: int) -> None:
    values = ncclrecords.machine()
    for point in values["points"]:
        if (point["operation"], point["bytes"]) == ("all_reduce", size):
            slower({"points": [point]}, 0.4)
    assert bad(values)["nccl.all_reduce"] is records.Status.FAIL
    assert ncclplan.words(size) in finding(values, "all_reduce").reason


def test_fifteen_per_cent_slow_is_said() -> None:
    values = slower(ncclrecords.machine("h200", 8, busbw=365.6), 0.85)
    assert {bad(values)[f"nccl.{operation}"] for operation in ncclplan.OPERATIONS} == {records.Status.WARN}


def test_links_that_are_down_do_not_lower_the_floor() -> None:
    values = ncclrecords.machine(nvlinks=9, busbw=180)
    assert bad(values)["nccl.all_reduce"] is records.Status.FAIL
    assert "18 NVLinks" in finding(values, "all_reduce").expected


@pytest.mark.parametrize("up", [17, 10, 1])
def test_a_link_that_is_down_is_named(up: int) -> None:
    values = ncclrecords.machine(nvlinks=18)
    values["links"][1]["nvlinks"] = up
    found = bad(values)
    assert found["nccl.nvlinks"] is records.Status.FAIL
    assert f"{up} of 18" in finding(values, "nvlinks").reason
    # 362 GB/s are more than ten links carry.
    assert found.get("nccl.all_reduce") is (None if up == 17 else records.Status.UNKNOWN)


@pytest.mark.parametrize("key", ["uuid", "index"])
def test_a_gpu_that_stands_twice(key: str) -> None:
    values = ncclrecords.machine()
    values["gpus"][1][key] = values["gpus"][0][key]
    assert bad(values)["nccl.entries"] is records.Status.UNKNOWN
    assert "name the same GPU" in finding(values, "entries").reason


def test_no_link_is_up_although_the_board_has_some() -> None:
    found = finding(ncclrecords.machine(nvlinks=0, busbw=22), "all_reduce")
    assert found.status is records.Status.WARN
    assert "none of the 18 NVLinks is up" in found.reason


def test_the_way_that_nccl_takes_is_said_where_it_is_slow() -> None:
    values = {**ncclrecords.machine(busbw=40), "environment": [{"name": "NCCL_P2P_DISABLE", "value": "1"}]}
    values["chosen"]["transports"] = [{"name": "SHM/direct", "count": 16}]
    why = finding(values, "all_reduce").reason
    assert "SHM/direct" in why
    assert "NCCL_P2P_DISABLE is set to 1" in why


def test_bridged_pairs_are_judged_by_pcie() -> None:
    """Four A100 PCIe in two pairs: no ring goes over the bridges alone."""
    values = ncclrecords.machine("a100", 4, nvlinks=0, busbw=20)
    for gpu in values["gpus"]:
        gpu["pci_device_id"] = "20b5"
    for link in values["links"]:
        if {link["from"], link["to"]} in ({0, 1}, {2, 3}):
            link["nvlinks"] = 12
    assert bad(values) == {}
    assert "PCIe" in finding(values, "all_reduce").expected
    assert bad(slower(values, 0.4))["nccl.all_reduce"] is records.Status.WARN


def test_pcie_at_a_twentieth_is_a_fault() -> None:
    assert bad(ncclrecords.machine("t4", 2, nvlinks=0, busbw=1.0))["nccl.all_reduce"] is records.Status.FAIL


def test_multicast_has_a_floor_of_its_own() -> None:
    values = ncclrecords.machine("h200", 8, busbw=362)
    values["chosen"]["nvls_channels"] = 16
    assert bad(values)["nccl.all_reduce"] is records.Status.WARN
    assert "7 machines, azurehpc-health-checks" in finding(values, "all_reduce").expected
    for point in values["points"]:
        if point["operation"] == "all_reduce":
            point.update(ncclrecords.point("all_reduce", point["bytes"], 8, 478.0))
    assert bad(values) == {}
    assert bad(slower(values, 0.6))["nccl.all_reduce"] is records.Status.FAIL


# ---------------------------------------------------------------- results


@pytest.mark.parametrize("place", [0, 20, -1])
def test_a_wrong_result_fails(place: int) -> None:
    values = ncclrecords.machine()
    values["points"][place]["wrong"] = 3
    assert bad(values) == {"nccl.results": records.Status.FAIL}
    found = finding(values, "results")
    assert values["points"][place]["operation"] in found.reason
    assert "do not calculate" in found.remedy


@pytest.mark.parametrize(
    "change", [{"wrong": None}, {"checked": 0}, {"checked": 1}, {"checked": 10**9}, {"wrong": -1}, {"wrong": math.nan}]
)
def test_a_result_that_was_not_compared_is_unknown(change: Values) -> None:
    values = ncclrecords.machine()
    values["points"][5].update(change)
    assert bad(values) == {"nccl.results": records.Status.UNKNOWN}


# ---------------------------------------------------------------- what is absent


def test_one_gpu_is_skipped() -> None:
    values = {**ncclrecords.machine(gpus=2), "gpus": [ncclrecords.gpu(0, "2335")], "links": [], "points": []}
    assert bad(values) == {"nccl.measured": records.Status.SKIP}
    assert "two GPUs" in finding(values, "measured").reason


def test_no_answer_at_all() -> None:
    assert bad(records.Missing("command_failed", "cuInit")) == {"nccl.measured": records.Status.UNKNOWN}
    assert bad({}) == {"nccl.measured": records.Status.UNKNOWN}


def test_a_hang_is_unknown_and_keeps_what_was_measured() -> None:
    values = ncclrecords.machine()
    values["points"] = [point for point in values["points"] if point["operation"] == "all_reduce"]
    values["stopped"] = {"doing": "all_gather of 8 B", "seconds": 60.0}
    assert bad(values) == {"nccl.answers": records.Status.UNKNOWN, "nccl.sizes": records.Status.UNKNOWN}
    found = finding(values, "answers")
    assert "no answer in 60 s while all_gather of 8 B" in found.reason
    assert "Fabric Manager" in found.remedy
    assert finding(values, "all_reduce").status is records.Status.PASS


def test_an_error_says_what_nccl_warned_of() -> None:
    values = {**ncclrecords.machine(), "points": [], "error": "ncclCommInitAll: unhandled system error"}
    values["warnings"] = ["Cuda failure 'out of memory'"]
    why = finding(values, "answers").reason
    assert "ncclCommInitAll" in why
    assert "out of memory" in why
    assert records.Status.PASS not in {one.status for one in judged(values)}


@pytest.mark.parametrize("place", range(3 * len(ncclplan.SIZES)))
def test_a_vanished_size_is_unknown(place: int) -> None:
    values = ncclrecords.machine()
    gone = values["points"].pop(place)
    assert bad(values)["nccl.sizes"] is records.Status.UNKNOWN
    assert f"{gone['operation']} of {ncclplan.words(gone['bytes'])}" in finding(values, "sizes").reason


def test_less_memory_gives_fewer_sizes_and_no_excuse_for_less() -> None:
    assert bad(ncclrecords.machine("t4", 2, nvlinks=0, busbw=13.1, most=4 * ncclplan.GIB)) == {}
    small = ncclrecords.machine(most=512 * ncclplan.MIB)  # an H200 has 141 GB
    assert bad(small)["nccl.sizes"] is records.Status.UNKNOWN


# ---------------------------------------------------------------- what cannot be


def test_more_than_the_links_carry_is_unknown() -> None:
    values = ncclrecords.machine(busbw=600)
    assert {bad(values)[f"nccl.{operation}"] for operation in ncclplan.OPERATIONS} == {records.Status.UNKNOWN}
    assert "more than 18 NVLinks carry" in finding(values, "all_gather").reason


Change = Callable[[Values], None]
IMPOSSIBLE: dict[str, Change] = {
    "speed": lambda point: point.update(busbw_gb_per_s=point["busbw_gb_per_s"] * 1.2),
    "duration": lambda point: point.update(microseconds=point["microseconds"] / 2),
    "algorithm": lambda point: point.update(algbw_gb_per_s=point["algbw_gb_per_s"] * 2),
    "nan": lambda point: point.update(busbw_gb_per_s=math.nan),
    "negative": lambda point: point.update(microseconds=-5.0),
    "zero": lambda point: point.update(busbw_gb_per_s=0.0),
    "infinite": lambda point: point.update(microseconds=math.inf),
}


@pytest.mark.parametrize("change", IMPOSSIBLE)
@pytest.mark.parametrize("place", [0, 10, 16])
def test_contradictions_are_unknown(change: str, place: int) -> None:
    values = ncclrecords.machine()
    IMPOSSIBLE[change](values["points"][place])
    assert bad(values)["nccl.all_reduce"] is records.Status.UNKNOWN
    assert "all_reduce of" in finding(values, "all_reduce").reason


@pytest.mark.parametrize("links", [19, 999, -1, 0.5, {"missing": "no_permission"}, None])
def test_impossible_numbers_of_links_are_unknown(links: object) -> None:
    values = ncclrecords.machine()
    values["links"][0]["nvlinks"] = links
    assert bad(values)["nccl.all_reduce"] is records.Status.UNKNOWN


def test_a_gpu_that_the_catalogue_lacks_has_no_floor() -> None:
    values = ncclrecords.machine()
    values["gpus"][1]["pci_device_id"] = "ffff"
    assert bad(values)["nccl.all_reduce"] is records.Status.UNKNOWN
    assert "results" in {one.property for one in judged(values) if one.status is records.Status.PASS}


# ---------------------------------------------------------------- neighbours, disturbers, clocks


@pytest.mark.parametrize("others", [[{"pid": 7, "name": "python3"}], {"missing": "no_permission"}, None, [None]])
def test_another_program_on_one_gpu_makes_speeds_unknown(others: object) -> None:
    values = ncclrecords.machine()
    values["gpus"][1]["other_processes"] = others
    found = bad(values)
    assert {found[f"nccl.{prop}"] for prop in (*ncclplan.OPERATIONS, "latency")} == {records.Status.UNKNOWN}
    assert "nccl.results" not in found


def test_a_size_that_takes_longer_than_the_next() -> None:
    values = ncclrecords.machine()
    place = ncclplan.SIZES.index(2 * ncclplan.MIB)
    values["points"][place].update(ncclrecords.point("all_reduce", 2 * ncclplan.MIB, 2, 10.0))
    assert bad(values) == {"nccl.all_reduce_sizes": records.Status.WARN}
    assert "2 MiB takes" in finding(values, "all_reduce_sizes").reason


def test_slow_small_messages_are_said() -> None:
    values = ncclrecords.machine()
    for point in values["points"]:
        if point["bytes"] <= 8 * 1024:
            point.update(ncclplan.point(point["operation"], point["bytes"], 2, 400e-6, wrong=0))
    assert bad(values)["nccl.latency"] is records.Status.WARN


@pytest.mark.parametrize(
    ("mask", "status"), [(0x40, "WARN"), (0x80, "WARN"), (0x20, "WARN"), (None, "UNKNOWN"), (-1, "UNKNOWN")]
)
def test_clocks_that_are_held_down(mask: object, status: str) -> None:
    values = ncclrecords.machine()
    values["gpus"][1]["event_reasons"] = mask
    assert bad(values) == {"gpu 1.nccl_clocks": status}


def test_the_usual_reasons_are_no_fault() -> None:
    values = ncclrecords.machine()
    for gpu in values["gpus"]:
        gpu["event_reasons"] = 0x1 | 0x4
    assert bad(values) == {}


# ---------------------------------------------------------------- hostile values

HOSTILE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from([*ncclrecords.machine()]), HOSTILE)
def test_no_value_breaks_the_judge(key: str, value: object) -> None:
    assert judged({**ncclrecords.machine(quick=True), key: value})


@given(st.sampled_from(["points", "gpus", "links"]), st.integers(0, 1), st.text(max_size=12), HOSTILE)
def test_no_entry_breaks_the_judge(key: str, place: int, name: str, value: object) -> None:
    values = ncclrecords.machine(quick=True)
    own = list(values[key][place])
    values[key][place][own[len(name) % len(own)]] = value
    assert judged(values)


@given(st.integers(0, 11), st.sampled_from(["microseconds", "busbw_gb_per_s", "algbw_gb_per_s", "bytes"]),
       st.floats(0.02, 0.85) | st.floats(1.2, 50))  # fmt: skip
def test_one_changed_figure_never_passes(place: int, name: str, factor: float) -> None:
    values = ncclrecords.machine(quick=True)
    values["points"][place][name] *= factor
    if name == "bytes":
        values["points"][place][name] = int(values["points"][place][name])
    assert bad(values) != {}


def test_no_changed_figure_of_two_real_h200_passes() -> None:
    """612 records, each with one figure changed: alone it contradicts the others of its point."""
    changed = 0
    for place in range(3 * len(ncclplan.SIZES)):
        for name in ("busbw_gb_per_s", "algbw_gb_per_s", "microseconds"):
            for factor in (0.5, 0.8, 1.3, 2):
                values = real_h200()
                values["points"][place][name] *= factor
                assert bad(values) != {}, (place, name, factor)
                changed += 1
    assert changed == 612


def test_no_point_of_two_real_h200_may_be_much_slower() -> None:
    """A whole point at a third of its speed, its figures fitting together. Below 8 MiB 40 µs more may be chance."""
    for place, point in enumerate(real_h200()["points"]):
        if point["bytes"] >= 8 * ncclplan.MIB:
            values = real_h200()
            slower({"points": [values["points"][place]]}, 0.3)
            assert bad(values) != {}, point


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda v: v["gpus"][0].update(graphics_clock_mhz=0), "gpu 0.nccl_readings"),
        (lambda v: v["gpus"][1].update(graphics_clock_mhz=9000), "gpu 1.nccl_readings"),
        (lambda v: v["gpus"][0].update(temperature_c=200), "gpu 0.nccl_readings"),
        (lambda v: v["gpus"][0].update(power_watts=9000.0), "gpu 0.nccl_readings"),
        (lambda v: v["gpus"][0].update(power_watts=0.0), "gpu 0.nccl_readings"),
        (lambda v: v["gpus"][0]["pcie"].update(generation=105), "gpu 0.nccl_readings"),
        (lambda v: v["gpus"][0]["pcie"].update(max_width=1), "gpu 0.nccl_readings"),
        (lambda v: v["gpus"][0].update(graphics_clock_mhz=210, event_reasons=1), "gpu 0.nccl_readings"),
        (lambda v: v["gpus"][0].update(graphics_clock_mhz=210), "gpu 0.nccl_readings"),
        (lambda v: v["gpus"][0].update(event_reasons=4.5), "gpu 0.nccl_clocks"),
        (lambda v: v["chosen"].update(transports=[{"name": "SHM/direct", "count": 48}]), "nccl.transports"),
        (lambda v: v["chosen"].update(transports=[{"name": "NET/Socket", "count": 48}]), "nccl.transports"),
    ],
)
@pytest.mark.parametrize("gpus", [2, 8])
def test_what_cannot_be_beside_a_speed_is_unknown(gpus: int, change: Change, key: str) -> None:
    values = ncclrecords.machine("h200", gpus)
    change(values)
    assert bad(values) == {key: records.Status.UNKNOWN}


def test_pcie_is_judged_by_what_the_board_can() -> None:
    """NCCL alone: nobody else looked at the link."""
    sound = ncclrecords.machine("t4", 2, nvlinks=0, busbw=11)
    assert bad(sound) == {}
    faster = ncclrecords.machine("t4", 2, nvlinks=0, busbw=11)
    faster["gpus"][0]["pcie"].update(generation=4, max_generation=4)
    assert bad(faster) == {"gpu 0.nccl_readings": records.Status.UNKNOWN}
    quarter = ncclrecords.machine("t4", 2, nvlinks=0, busbw=1.6)
    for gpu in quarter["gpus"]:
        gpu["pcie"].update(width=4)
    assert bad(quarter) == {"gpu 0.nccl_pcie_link": records.Status.FAIL, "gpu 1.nccl_pcie_link": records.Status.FAIL}
    none = ncclrecords.machine("t4", 2, nvlinks=0, busbw=11)
    none["gpus"][0]["pcie"].update(width=0)
    assert set(bad(none).values()) == {records.Status.UNKNOWN}


def test_two_gpus_of_a_mesh_of_four_are_sound_at_their_links() -> None:
    assert bad(ncclrecords.machine("a100", 2, nvlinks=4, busbw=77)) == {}
    assert bad(ncclrecords.machine("a100", 2, nvlinks=4, busbw=30)) != {}
    assert records.Status.FAIL in bad(ncclrecords.machine("a100", 2, nvlinks=3, busbw=57)).values()


def test_links_of_one_pair_among_eight_gpus_count() -> None:
    values = ncclrecords.machine("h200", 8)
    assert bad(values) == {}
    values["links"][0]["nvlinks"] = 17  # the others of both GPUs show all eighteen
    assert bad(values)["nccl.nvlinks"] is records.Status.FAIL
