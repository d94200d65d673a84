"""Products judged at their clock, and figures that cannot be: on boards and with figures that no catalogue names."""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import Any

import pytest
import verdict_table_gemm as table
from gemmrecords import gemm, gpu, judge, one, values
from places import TESTS

from gpuprep import catalogue, records

RECORDS = TESTS / "cases/records"
BOARDS = ("t4", "v100_sxm2_16", "v100_pcie_32", "a100_sxm4_40", "a100_pcie_80", "a10g", "l4", "l40s", "h100_pcie_80",
          "h100_sxm5_80", "h200_sxm")  # fmt: skip


@cache
def h200() -> str:
    return json.dumps(json.loads((RECORDS / "h200-gemm.json").read_text(encoding="utf-8"))["values"])


def changed(**figures: Any) -> dict[str, Any]:
    """The real H200's record, each product of it with these figures; a function makes one of the recorded figure."""
    made: dict[str, Any] = json.loads(h200())
    for row in made["gpus"]:
        for product in row["gemms"]:
            for name, value in figures.items():
                product[name] = value(product) if callable(value) else value
    return made


def bad(found: list[records.Finding]) -> dict[str, str]:
    return {f.key: f.status.value for f in found if f.status not in (records.Status.PASS, records.Status.SKIP)}


def test_a_real_h200_is_sound_at_its_clock() -> None:
    found = judge("h200", json.loads(h200()), absent=True)
    assert bad(found) == {}
    assert one(found, "gpu 0.gemm_at_its_clock").status is records.Status.PASS


@pytest.mark.parametrize("key", BOARDS)
@pytest.mark.parametrize("percent", [85, 70])
def test_a_board_that_is_slow_in_everything_never_passes(key: str, percent: int) -> None:
    board = catalogue.boards()[key]
    sound = {(dtype, added): tflops for dtype, added, tflops in table.kinds(board)}
    assert table.judged(board, sound)[0] is records.Status.PASS
    assert table.judged(board, table.slowed(sound, set(sound), percent))[0] in (
        records.Status.WARN,
        records.Status.FAIL,
    )


@pytest.mark.parametrize("key", BOARDS)
def test_a_board_that_is_slow_in_one_data_type_never_passes(key: str) -> None:
    board = catalogue.boards()[key]
    sound = {(dtype, added): tflops for dtype, added, tflops in table.kinds(board)}
    for kind in sound:
        status, reason = table.judged(board, table.slowed(sound, {kind}, 70))
        assert status in (records.Status.WARN, records.Status.FAIL), kind
        assert kind[0] in reason


def slower(share: float) -> dict[str, Any]:
    """Speeds and durations; the sustained load too."""

    def lasting(product: dict[str, Any]) -> Any:
        read = copy.deepcopy(product["sustained"])
        if isinstance(read, dict) and "tflops" in read:
            read["tflops"] *= share
        return read

    return {
        "microseconds": lambda product: product["microseconds"] / share,
        "tflops": lambda product: product["tflops"] * share,
        "sustained": lasting,
    }


def test_a_real_h200_that_is_15_percent_slower_is_no_pass() -> None:
    found = judge("h200", changed(**slower(0.85)), absent=True)
    assert records.Status.WARN.value in bad(found).values()
    slow = one(found, "gpu 0.gemm_at_its_clock")
    assert (slow.status, slow.reason) == (
        records.Status.WARN,
        "the GPU is slow in all its data types, and its clock does not explain it",
    )


def test_one_slow_shape_is_told_though_another_is_fast() -> None:
    made = json.loads(h200())
    product = next(p for p in made["gpus"][0]["gemms"] if p["dtype"] == "tf32" and p["n"] == 4096)
    product["tflops"] *= 0.6
    product["microseconds"] /= 0.6
    found = judge("h200", made)
    assert bad(found) == {"gpu 0.gemm_tf32_shapes": "WARN"}


def test_a_product_without_a_figure_is_unknown_though_others_have_one() -> None:
    for damaged in ({"tflops": None}, {"tflops": 0.0}, {"m": None}, {"rel_stdev_percent": -1.0}, {"tflops": 1e16}):
        made = json.loads(h200())
        made["gpus"][0]["gemms"][2].update(damaged)
        assert bad(judge("h200", made)).get("gpu 0.gemm_bf16_products") == "UNKNOWN", damaged


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"graphics_clock_mhz": 700.0}, "is more than the peak at 700 MHz"),
        ({"microseconds": 1.0}, "1 µs are"),
        ({"graphics_clock_mhz": 2600.0}, "is above the GPU's highest, 1980 MHz"),
        ({"graphics_clock_mhz": 0.0}, "a clock of 0 MHz under load"),
        ({"temperature_c": 400}, "a temperature of 400 °C"),
        ({"temperature_c": -60}, "a temperature of -60 °C"),
        ({"power_watts": -5.0}, "a power of -5 W"),
        ({"power_watts": 5000.0}, "5000 W is far above the power limit of 700 W"),
        ({"memory_clock_mhz": -1.0}, "a memory clock of -1 MHz under load"),
    ],
)
def test_what_cannot_be_is_unknown(figures: dict[str, Any], words: str) -> None:
    found = judge("h200", changed(**figures))
    speeds = [f for f in found if f.key in ("gpu 0.gemm_bf16", "gpu 0.gemm_fp64", "gpu 0.gemm_int8")]
    assert {f.status for f in speeds} == {records.Status.UNKNOWN}
    assert all(words in f.reason for f in speeds)


def test_an_idle_gpu_does_not_calculate() -> None:
    idle = gemm("fp16", 5.0, graphics_clock_mhz=300, event_reasons=1)
    found = one(judge("t4", values(gpu("1eb8", [idle], max_graphics_clock_mhz=1590))), "gpu 0.gemm_fp16")
    assert found.status is records.Status.UNKNOWN
    assert "NVML reported an idle GPU at 300 MHz" in found.reason


@pytest.mark.parametrize(
    ("bit", "status"), [(0x8, "FAIL"), (0x40, "FAIL"), (0x80, "FAIL"), (0x20, "WARN"), (0x10, "WARN")]
)
def test_every_event_reason_counts_wherever_it_was_recorded(bit: int, status: str) -> None:
    in_burst = changed(event_reasons=lambda product: int(product["event_reasons"]) | bit)
    assert bad(judge("h200", in_burst)) == {"gpu 0.slowdowns": status}
    sampled = json.loads(h200())
    for product in sampled["gpus"][0]["gemms"]:
        product["telemetry"]["event_reasons"] = [bit] * len(product["telemetry"]["event_reasons"])
    assert bad(judge("h200", sampled)) == {"gpu 0.slowdowns": status}
    lasting = json.loads(h200())
    lasting["gpus"][0]["gemms"][0]["sustained"]["event_reasons"] = bit
    # Once, and in none of the samples: a passing moment.
    assert bad(judge("h200", lasting)) == {"gpu 0.slowdowns": "WARN"}


def test_a_power_cap_is_blamed_only_near_the_limit() -> None:
    telemetry = {"seconds": [0.0, 0.1, 0.2], "power_watts": [150.0, 148.0, 149.0], "event_reasons": [4, 4, 4]}
    held = gemm("fp16", 85.0, graphics_clock_mhz=1200, power_watts=150.0, event_reasons=4, telemetry=telemetry)
    made = values(gpu("1db1", [held], power_limit_watts=300, max_graphics_clock_mhz=1530))
    found = one(judge("v100", made), "gpu 0.gemm_fp16")
    assert found.status is records.Status.WARN
    assert "something outside the GPU that holds it at 150 of 300 W" in found.reason
    telemetry["power_watts"] = [298.0, 299.0, 301.0]
    near = one(judge("v100", made | {}), "gpu 0.gemm_fp16")
    assert near.status is records.Status.PASS


def test_a_lower_clock_without_a_reason_is_told() -> None:
    low = gemm("fp16", 85.0, graphics_clock_mhz=1200, event_reasons=0)
    found = one(judge("v100", values(gpu("1db1", [low], max_graphics_clock_mhz=1530))), "gpu 0.gemm_fp16")
    assert found.status is records.Status.WARN
    assert "NVML does not say what" in found.reason


def test_watts_at_the_limit_name_the_power_cap_where_nvml_had_no_time_to() -> None:
    """As a quick run of a healthy H100 had it: ten readings without a reason, the clock lowered, 861 of 700 W drawn."""
    telemetry = {"seconds": [0.0, 0.2, 0.42], "power_watts": [150.0, 256.0, 301.0], "event_reasons": [0, 0, 0]}
    short = gemm("fp16", 85.0, graphics_clock_mhz=1200, power_watts=294.0, event_reasons=0, telemetry=telemetry)
    made = values(gpu("1db1", [short], power_limit_watts=300, max_graphics_clock_mhz=1530))
    found = one(judge("v100", made), "gpu 0.gemm_fp16")
    assert found.status is records.Status.PASS
    # In a load of seconds NVML has time, and below the limit the cap is not what holds the clock.
    telemetry["seconds"] = [0.0, 2.0, 4.0]
    assert "NVML does not say what" in one(judge("v100", made), "gpu 0.gemm_fp16").reason
    telemetry.update(seconds=[0.0, 0.2, 0.42], power_watts=[150.0, 256.0, 280.0])
    short["power_watts"] = 270.0
    assert "NVML does not say what" in one(judge("v100", made), "gpu 0.gemm_fp16").reason


def test_the_boards_own_power_limit_is_no_fault_and_nobody_is_told_to_raise_it() -> None:
    capped = gemm("fp16", 70.0, graphics_clock_mhz=880, power_watts=249.0, event_reasons=4)
    made = values(gpu("1db4", [capped], power_limit_watts=250, max_graphics_clock_mhz=1380))
    found = judge("v100", made)
    assert "gpu 0.gemm_fp16" in {one.key for one in found}
    assert not [one for one in found if "tuning.power_limit_watts" in one.remedy]


def test_a_record_cannot_allow_itself_errors() -> None:
    wide = changed(error_tolerance=10.0, max_relative_error=0.5, exact=None)
    assert bad(judge("h200", wide)).get("gpu 0.gemm_results") == "FAIL"
    beyond = changed(max_relative_error=1e17)
    assert bad(judge("h200", beyond)).get("gpu 0.gemm_results") == "FAIL"
    negative = changed(max_relative_error=-0.5, exact=None)
    assert bad(judge("h200", negative)).get("gpu 0.gemm_results") == "FAIL"


def test_published_excuses_what_is_absent_and_nothing_that_is_there() -> None:
    for damaged, key in (
        (changed(exact=False), "gpu 0.gemm_results"),
        (changed(event_reasons=8), "gpu 0.slowdowns"),
        (changed(graphics_clock_mhz=400.0), "gpu 0.gemm_bf16"),
    ):
        damaged["published"] = "by others"
        assert key in bad(judge("h200", damaged))
    crowded = json.loads(h200())
    crowded["published"] = "by others"
    crowded["gpus"][0]["other_processes"] = [{"pid": 7, "name": "train", "memory_mib": 1000}]
    assert bad(judge("h200", crowded)).get("gpu 0.alone") == "UNKNOWN"


def test_what_misalignment_costs_is_no_fault_of_the_kernel() -> None:
    """A real H100: BF16 13141³ at 125 TFLOPS and 1853 MHz, an eighth of the Tensor Cores' rate."""
    crooked = gemm("bf16", 125.4, m=13141, n=13141, k=13141, graphics_clock_mhz=1853, event_reasons=0)
    found = one(judge("h100", values(gpu("2330", [crooked]))), "gpu 0.gemm_bf16")
    assert found.status is records.Status.PASS
    assert "explain of this shape" in found.expected


def test_the_catalogue_names_the_kernels_of_every_chip_that_clouds_rent() -> None:
    for key in BOARDS:
        board = catalogue.boards()[key]
        known = {dtype for dtype, _, tflops in table.kinds(board) if tflops > 0}
        assert known >= ({"fp16", "fp32"} if key != "t4" else {"fp16"}), (key, known)


def test_matrices_that_do_not_fit_were_not_multiplied() -> None:
    made = values(gpu("20b0", [gemm("fp16", 270.0, m=131072, n=131072, k=131072)]))
    found = one(judge("a100", made), "gpu 0.gemm_fp16")
    assert found.status is records.Status.UNKNOWN
    assert "its matrices take 96 GiB, and the board has 40" in found.reason


def test_heat_that_nvml_does_not_name_is_told_and_above_the_shutdown_nothing_measures() -> None:
    def at(degrees: float, reasons: int = 0) -> list[records.Finding]:
        return judge("a100", values(gpu("20b0", [gemm("fp16", 270.0, temperature_c=degrees, event_reasons=reasons)])))

    board = catalogue.board("20b0")
    assert board
    assert board.temperatures_c
    slowdown, shutdown = board.temperatures_c["slowdown"], board.temperatures_c["shutdown"]
    assert bad(at(slowdown - 1)) == {}
    assert bad(at(slowdown)) == {"gpu 0.gemm_temperature": "WARN"}
    assert "gpu 0.gemm_temperature" not in bad(at(slowdown, 0x20))  # then the slowdown has its own finding
    assert bad(at(shutdown + 10))["gpu 0.gemm_fp16"] == "UNKNOWN"


def test_memory_far_below_its_clock_is_told() -> None:
    slow = values(gpu("20b0", [gemm("fp16", 270.0, memory_clock_mhz=405)]))
    assert bad(judge("a100", slow)) == {"gpu 0.gemm_memory_clock": "WARN"}


def without_clock(*speeds: float, **sizes: int) -> dict[str, Any]:
    products = [{"dtype": "fp16", "m": 8192, "n": 8192, "k": 8192, "tflops": speed} for speed in speeds]
    products[-1].update(sizes)
    return {"published": "by others", "gpus": [{"pci_device_id": "20b0", "gemms": products}]}


def test_a_second_figure_is_judged_without_a_clock_too() -> None:
    assert bad(judge("a100", without_clock(275.4, 270.0))) == {}
    assert bad(judge("a100", without_clock(275.4, 150.0))) == {"gpu 0.gemm_fp16_twice": "UNKNOWN"}
    assert bad(judge("a100", without_clock(270.0, 240.0, m=4096, n=4096, k=4096))) == {}
    assert bad(judge("a100", without_clock(270.0, 120.0, m=4096, n=4096, k=4096))) == {"gpu 0.gemm_fp16_shapes": "WARN"}
