"""The board, not the chip: which board a GPU is, what it must reach, and what becomes of one that nobody knows."""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import bare_snapshot, finished_snapshot, load, resolved, shipped, with_parts
from judgedrecords import verdict

from gpuprep import catalogue, checks, errors, records
from gpuprep.agent.facts import osfacts
from gpuprep.catalogue import topologies
from gpuprep.desired import loading, probes, profile, state
from gpuprep.provisioning import plan
from gpuprep.records import evidence
from gpuprep.records.evidence import kinds
from gpuprep.workflows import record_file, rejudge

DOCUMENT = yaml.safe_load((Path(catalogue.__file__).parent / "gpus.yml").read_text(encoding="utf-8"))
A100_80, A100_80_500 = "a100_sxm4_80", "a100_sxm4_80_500w"

# ---------------------------------------------------------------- which board


@pytest.mark.parametrize(
    ("known", "key"),
    [
        ({"device_id": "20b2", "subsystem_id": "1463"}, A100_80),
        ({"device_id": "20B2", "subsystem_id": "147F"}, A100_80_500),
        ({"device_id": "20b2", "subsystem_id": "1622", "power_limit_watts": 500.0}, A100_80_500),
        ({"device_id": "20b2", "power_limit_watts": 400.0}, A100_80),
        ({"device_id": "20b2", "subsystem_id": "0000", "power_limit_watts": 400.0}, A100_80),
        ({"device_id": "20b2"}, f"{A100_80} or {A100_80_500}"),
        ({"device_id": "20b2", "power_limit_watts": 275.0}, None),  # neither
        ({"device_id": "20b2", "memory_mib": 40960}, None),
        ({"device_id": "25b6", "subsystem_id": "14a9"}, "a16"),
        ({"device_id": "25b6", "subsystem_id": "157e"}, "a2"),
        ({"device_id": "25b6", "power_limit_watts": 62.5}, "a16"),
        ({"device_id": "25b6", "power_limit_watts": 60.0}, "a2"),
        ({"device_id": "25b6"}, None),
        ({"device_id": "1e30", "subsystem_id": "12ba"}, "quadro_rtx_6000"),
        ({"device_id": "1e30", "subsystem_id": "129e"}, "quadro_rtx_8000"),
        ({"device_id": "1e30", "power_limit_watts": 260.0}, None),
        ({"device_id": "1e78", "subsystem_id": "13d8"}, "quadro_rtx_8000_passive"),
        ({"device_id": "1e78", "subsystem_id": "13d9"}, "quadro_rtx_6000_passive"),
        ({"device_id": "1e78"}, None),
        ({"device_id": "2330"}, "h100_sxm5_80"),
        ({"device_id": "2331"}, "h100_pcie_80"),
        ({"device_id": "2321"}, "h100_nvl_94"),
        ({"device_id": "26ba"}, "l20"),
        ({"device_id": "26b7"}, "l20_275w"),
        ({"device_id": "0000", "name": "NVIDIA A10G"}, "a10g"),
        ({"device_id": "", "name": "A100-SXM4-40GB"}, "a100_sxm4_40"),  # before R470
        ({"device_id": "0000", "name": "NVIDIA A100-SXM4-80GB", "power_limit_watts": 500}, A100_80_500),
        ({"device_id": "0000", "name": "NVIDIA H100 80GB HBM3", "memory_mib": 81559, "sms": 132}, "h100_sxm5_80"),
        ({"device_id": "0000", "name": "NVIDIA L20", "power_limit_watts": 275}, "l20_275w"),
        ({"device_id": "0000", "name": "Quadro RTX 8000", "power_limit_watts": 250}, "quadro_rtx_8000_passive"),
        ({"device_id": "0000"}, None),
        ({"device_id": "2782", "name": "NVIDIA A10G"}, None),  # a device id that is there counts
    ],
    ids=str,
)
def test_which_board(known: dict[str, Any], key: str | None) -> None:
    found = catalogue.board(**known)
    assert (found.key if found else None) == key


def test_what_two_boards_share_is_known_of_both() -> None:
    both = catalogue.board("20b2")
    one, other = catalogue.boards()[A100_80], catalogue.boards()[A100_80_500]
    assert both is not None
    assert (both.name, both.sms, both.boost_mhz, both.clocks) == ("A100 SXM4 80 GB", 108, 1410, one.clocks)
    assert (both.power_watts, both.nvlink) == (None, one.nvlink)
    for name, lowest in both.floors.items():
        assert lowest.percent == min(one.floors[name].percent, other.floors[name].percent)


@pytest.mark.parametrize(
    ("seen", "keys"),  # the name alone; or name, compute capability, MiB and SMs of a board that nobody knows
    [
        (("Quadro RTX 8000",), ("quadro_rtx_8000", "quadro_rtx_8000_passive")),
        (("NVIDIA P100-X", "6.0", 16384, 56), ("p100_pcie_16", "p100_sxm2_16")),
        (("NVIDIA A100-X", "8.0", 40960, 108), ("a100_sxm4_40", "a100_pcie_40")),
        (("NVIDIA A100-X", "8.0", 81920, 108), ("a100_sxm4_80", "a100_sxm4_80_500w", "a100_pcie_80")),
        # not all of these have a known floor
        (("NVIDIA L20",), ("l20", "l20_275w")),
        (("NVIDIA V100-X", "7.0", 16384, 80), ("v100_sxm2_16", "v100_pcie_16", "v100_fhhl_16", "v100_dgxs_16")),
    ],
    ids=str,
)
def test_a_board_that_may_be_several_is_held_to_the_slowest(seen: tuple[Any, ...], keys: tuple[str, ...]) -> None:
    found = catalogue.board_like(*seen) if len(seen) > 1 else catalogue.board("0000", name=seen[0])
    assert found is not None
    assert set(found.key.split(" or ")) == set(keys)
    every = [catalogue.boards()[key].floors for key in keys]
    known = set(every[0]).intersection(*every)
    assert {name: floor.percent for name, floor in found.floors.items()} == {
        name: min(floors[name].percent for floors in every) for name in known
    }
    assert any(floors != every[0] for floors in every), "else it shows nothing"


def published(board: catalogue.Board, subsystem: str, share: float, gpus: int) -> dict[str, Any]:
    """Products, memory, copies between GPUs and NCCL of such boards, each at this share, as somebody published them."""
    ids = {"pci_device_id": board.pci_device_ids[0], "pci_subsystem_id": subsystem, "name": (*board.nvml_names, "")[0]}
    peak = 2e-6 * (board.sms or 0) * (board.boost_mhz or 0) * (board.model.fma_per_clock_per_sm.get("tensor_fp16") or 0)
    product = {"dtype": "fp16", "m": 8192, "n": 8192, "k": 8192, "tflops": share * peak}
    listed = [{"index": index, **ids} for index in range(gpus)]
    family = topologies.family(board)
    links = share * (family.links or 0 if family else 0) * 25.0
    pairs = itertools.permutations(range(gpus), 2)
    values: dict[str, dict[str, Any]] = {
        "gemm": {"gpus": [{**gpu, "gemms": [product]} for gpu in listed]},
        "bandwidth": {
            "gpus": [{**gpu, "copy_gb_per_s": share * (board.memory_gb_per_s or 0.0)} for gpu in listed],
            "peers": [{"from": one, "to": other, "gb_per_s": links, "nvlinks": 12} for one, other in pairs],
        },
        "nccl": {
            "gpus": listed,
            "points": [{"operation": "all_reduce", "bytes": 8 << 30, "busbw_gb_per_s": links or 10.0 * share}],
        },
    }
    return {
        "measurements": [
            {"probe": probe, "source": "measured", "values": {"published": "a page", **value}}
            for probe, value in values.items()
        ]
    }


def statuses(document: dict[str, Any], profile: str) -> dict[str, str]:
    run = rejudge.judge(record_file.from_figures(document), shipped(profile))
    assert run.verdict is not None
    return {finding.key: finding.status.value for finding in run.verdict.findings}


@pytest.mark.parametrize("share", [0.9, 0.77, 0.7, 0.4])
def test_a_device_id_of_several_boards_is_judged_as_each_of_them_is(share: float) -> None:
    by_id: dict[str, list[catalogue.Board]] = {}
    for board in catalogue.boards().values():
        for device in board.pci_device_ids:
            by_id.setdefault(device, []).append(board)
    of_one_model = [boards for device, boards in by_id.items() if len(boards) > 1 and catalogue.board(device)]
    assert of_one_model
    for boards in of_one_model:
        profile = boards[0].model.profile
        unknown = statuses(published(boards[0], "", share, 8), profile)
        each = [statuses(published(board, board.subsystem_ids[0], share, 8), profile) for board in boards]
        assert {"PASS", "WARN", "FAIL"} & set(unknown.values())
        for key, status in unknown.items():
            assert status in {found.get(key) for found in each}, f"{share}: {key}: {status}"
        assert all(found == each[0] for found in each), share  # of the figures here, they differ in none


@pytest.mark.parametrize(("share", "gpus"), [(0.85, 8), (0.3, 8), (0.04, 4)])
def test_boards_that_are_joined_alike_are_judged_alike(share: float, gpus: int) -> None:
    kin: dict[tuple[Any, ...], dict[str, str | None]] = {}
    for board in catalogue.boards().values():
        family, subsystem = topologies.family(board), (*board.subsystem_ids, "")[0]
        if family and board.sms and board.boost_mhz and board.pcie_generation and board.pcie_width:
            alike = (family.key, board.model.compute_capability, board.pcie_generation, board.pcie_width)
            document = published(board, subsystem, share, gpus)
            document["measurements"] = document["measurements"][2:]
            kin.setdefault(alike, {})[board.key] = statuses(document, "base").get("nccl.all_reduce")
    assert len(kin) > 10
    assert {alike: found for alike, found in kin.items() if len(set(found.values())) > 1} == {}


def test_a_measurement_is_of_the_board_that_nvml_read() -> None:
    wanted = resolved("a100", gpus=["20b2"])
    host = finished_snapshot(wanted)
    assert not isinstance(host.gpus, records.Missing)
    limits = dataclasses.replace(host.gpus[0].power, default_watts=500.0)
    strong = dataclasses.replace(host, gpus=(dataclasses.replace(host.gpus[0], power=limits),))
    entry = {"index": 0, "uuid": "GPU-0", "name": "NVIDIA A100-SXM4-80GB", "pci_device_id": "20b2"}
    measured: Any = evidence.measured(kinds.OF_PROBE["gemm"], {"gpus": [entry]})
    (named,) = measured.gpus
    keys = [board.key for snapshot in (host, strong) if (board := catalogue.board_in(snapshot, named))]
    assert keys == [A100_80, A100_80_500]
    elsewhere = catalogue.board_in(strong, dataclasses.replace(named, uuid="GPU-9", pci_subsystem_id="1463"))
    assert elsewhere is not None
    assert elsewhere.key == A100_80


def test_ids_that_nvml_masks_are_taken_from_the_bus() -> None:
    host = finished_snapshot(resolved("a10g", gpus=["2237"]))
    assert not isinstance(host.gpus, records.Missing)
    masked = dataclasses.replace(host.gpus[0], pci_device_id="0000", pci_subsystem_id="0000", name="GPU")
    wanted = state.resolve(shipped("a10g"), dataclasses.replace(host, gpus=(masked,)))
    assert wanted.gpus[0].model == "a10g"
    hidden = dataclasses.replace(host.pci_gpus[0], device_id="0000")
    by_name = dataclasses.replace(masked, name="NVIDIA A10G")
    wanted = state.resolve(shipped("a10g"), dataclasses.replace(host, pci_gpus=(hidden,), gpus=(by_name,)))
    assert wanted.gpus[0].model == "a10g"


# ---------------------------------------------------------------- the catalogue itself


@pytest.mark.parametrize("board", catalogue.boards().values(), ids=lambda board: board.key)
def test_every_figure_of_a_board_has_a_source(board: catalogue.Board) -> None:
    entry = DOCUMENT["boards"][board.key]
    given = [field for fields in board.sources.values() for field in fields]
    assert sorted(given) == sorted(set(given)), "one source for each figure"
    assert set(given) == set(entry) - {"model", "name", "sources", "unverified"}
    assert set(board.sources) <= set(DOCUMENT["sources"])
    assert all(device == device.lower() for device in (*board.pci_device_ids, *board.subsystem_ids))


@pytest.mark.parametrize("board", catalogue.boards().values(), ids=lambda board: board.key)
def test_the_figures_of_a_board_fit_each_other(board: catalogue.Board) -> None:
    low, own, high = board.power_minimum_watts, board.power_watts, board.power_maximum_watts
    assert (low or 0) <= (own or 0) <= (high or own or 0)
    names = [name for name in board.floors if name != "memory"]
    assert not names or (board.sms and board.boost_mhz)
    assert all(10 < one.percent <= 90 and one.source for one in board.floors.values())
    if board.clocks and board.memory_mhz:
        assert board.clocks.memory_mhz == board.memory_mhz
    found = [catalogue.board(device, (*board.subsystem_ids, "")[0]) for device in board.pci_device_ids]
    assert all(one is board for one in found), "its own ids name it"


def test_every_source_is_used() -> None:
    assert set(DOCUMENT["sources"]) == {source for board in catalogue.boards().values() for source in board.sources}
    assert {board.model.key for board in catalogue.boards().values()} == set(catalogue.models())


@pytest.mark.parametrize(
    ("key", "unit", "tflops"),
    [
        ("a10", "tensor_fp16", 125), ("a10g", "tensor_fp16", 70), ("a40", "tensor_fp16", 150),
        ("rtx_3090", "tensor_fp16", 71), ("rtx_3090", "tensor_fp16_accumulate_fp16", 142),
        ("rtx_4090", "tensor_fp16", 165),
        ("l40s", "tensor_fp16", 367), ("l20", "tensor_fp16", 119), ("rtx_5090", "tensor_fp16", 210),
        ("h100_sxm5_80", "tensor_fp16", 1071), ("h100_pcie_80", "tensor_fp16", 819), ("p100_sxm2_16", "fp32", 10.6),
    ],
)  # fmt: skip
def test_peaks_at_the_boost_clock(key: str, unit: str, tflops: float) -> None:
    board = catalogue.boards()[key]
    rate = board.model.fma_per_clock_per_sm[unit]
    assert board.sms
    assert board.boost_mhz
    assert rate
    assert board.sms * rate * 2 * board.boost_mhz / 1e6 == pytest.approx(tflops, rel=0.01)


# ---------------------------------------------------------------- what it must reach


def floor(wish: profile.Profile, key: str) -> tuple[float, str]:
    """(the per cent of the peak that FP16 of this board must reach, who says so)."""
    board = catalogue.boards()[key]
    ids: dict[str, Any] = {"pci_subsystem_id": (*board.subsystem_ids, "")[0]}
    expected = one(judged(board.pci_device_ids[0], "fp16", 100, wish, **ids), "gpu 0.gemm_fp16").expected
    found = re.match(r"≥ ([\d.]+) % of \d+ TFLOPS.*? \((.*)\)$", expected)
    assert found, expected
    return float(found[1]), found[2]


def test_a_card_of_250_watts_is_not_held_to_what_400_reach() -> None:
    wish = shipped("a100")
    strong, weak = floor(wish, "a100_sxm4_40"), floor(wish, "a100_pcie_40")
    assert strong[0] >= 70
    assert weak[0] <= 60
    assert weak[1].startswith("A100 PCIe 40 GB, 2 machines, published 63 to 77 %")
    assert floor(shipped("base"), "a30") == (30, "profile base, gpuprep, no figure published")


def test_what_the_user_writes_counts_before_the_board(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yml"
    mine.write_text("extends: a100\nthresholds:\n  fp16_percent_of_peak: 91\n")
    wish = loading.load(str(mine))
    assert floor(wish, "a100_sxm4_40")[0] == 91
    assert not wish.thresholds["fp16_percent_of_peak"].shipped
    assert wish.thresholds["bf16_percent_of_peak"].shipped


def judged(
    device: str,
    dtype: str,
    tflops: float,
    wish: str | profile.Profile,
    shape: tuple[int, int, int] = 3 * (8192,),
    **gpu: Any,
) -> list[records.Finding]:
    product = {"dtype": dtype, **dict(zip("mnk", shape, strict=True)), "tflops": tflops}
    values = {"published": "somebody", "gpus": [{"index": 0, "pci_device_id": device, "gemms": [product], **gpu}]}
    host = dataclasses.replace(bare_snapshot(gpus=[device]), gpus=records.Missing("not_read"))
    by = shipped(wish) if isinstance(wish, str) else wish
    wanted = state.resolve(by, host, judging=True)
    result = records.ProbeResult("gemm", records.Source.MEASURED, values, 1.0)
    return list(checks.compare_figures(wanted, host, [result], asked=["gemm"], thresholds=by.thresholds))


def one(findings: list[records.Finding], key: str) -> records.Finding:
    return next(finding for finding in findings if finding.key == key)


@pytest.mark.parametrize(
    ("device", "dtype", "tflops", "wish", "status"),
    [
        ("20f1", "fp16", 200, "a100", records.Status.PASS),
        ("20b0", "fp16", 200, "a100", records.Status.WARN),  # an SXM4 card at a PCIe card's speed
        ("20b0", "fp16", 160, "a100", records.Status.FAIL),
        ("20b0", "bf16", 240, "a100", records.Status.PASS),
        ("20b0", "bf16", 205, "a100", records.Status.WARN),
        ("2331", "bf16", 470, "h100", records.Status.PASS),
        ("2330", "bf16", 470, "h100", records.Status.WARN),
        ("2330", "bf16", 440, "h100", records.Status.FAIL),
        ("1db4", "fp32", 10.5, "v100", records.Status.PASS),
        ("1db1", "fp32", 10.5, "v100", records.Status.WARN),
        ("1db1", "fp32", 8.5, "v100", records.Status.FAIL),
        ("2684", "fp16", 165, "base", records.Status.PASS),
    ],
)
def test_the_same_speed_of_two_boards(
    device: str, dtype: str, tflops: float, wish: str, status: records.Status
) -> None:
    finding = one(judged(device, dtype, tflops, wish), f"gpu 0.gemm_{dtype}")
    assert finding.status is status, finding


@pytest.mark.parametrize(
    ("device", "dtype", "shape", "tflops", "status", "says"),
    [
        # measured on a board of its kind: what `explain` says, less its stated error
        ("2330", "bf16", (16, 4864, 896), 18.0, "PASS", "explain of this shape: 20.1 TFLOPS ± 12 %"),
        ("2330", "bf16", (16, 4864, 896), 15.0, "UNKNOWN", "the layout of its matrices"),
        ("2330", "bf16", (16, 4864, 896), 5.0, "FAIL", "memory"),
        ("2330", "bf16", (5216, 3843, 2140), 94.0, "PASS", "explain of this shape"),
        ("2335", "fp16", (64, 4096, 4096), 150.0, "PASS", ""),
        ("2335", "fp16", (64, 4096, 4096), 30.0, "FAIL", "explain of this shape"),
        # a thousandth of the peak is a limit, too
        ("2335", "int8", (17, 656, 5384), 4.5, "PASS", "explain of this shape"),
        ("2335", "int8", (17, 656, 5384), 1.0, "FAIL", "explain of this shape"),
        ("2335", "fp8", (2100, 96, 32), 1.0, "FAIL", "explain of this shape"),
        # the first products of a benchmark run before the GPU has its clock
        ("20f1", "fp32", (2048, 2048, 2048), 9.69, "UNKNOWN", "it proves little"),
        ("20f1", "fp32", (4096, 4096, 4096), 9.0, "FAIL", "of 19.5 TFLOPS"),
        ("2235", "bf16", (1024, 1024, 1024), 30.0, "UNKNOWN", "it proves little"),
        # a large shape is no odd one: its board's floor, and how many machines that rests on
        ("2330", "tf32", (8448, 8192, 4096), 250.0, "WARN", "machines, published"),
        ("20b2", "bf16", (4096, 4096, 4096), 211.0, "WARN", "5 machines"),
        ("20b2", "bf16", (4096, 4096, 4096), 120.0, "FAIL", "5 machines"),
        # measured nowhere: within the wide range nothing is known, below it the GPU is slow
        ("20b2", "bf16", (1, 4096, 4096), 1.2, "UNKNOWN", "explain of this shape"),
        ("20b2", "bf16", (1, 4096, 4096), 0.1, "FAIL", "explain of this shape"),
        ("1eb8", "fp16", (8, 4096, 4096), 1.7, "UNKNOWN", "± 30 %"),
        ("2684", "bf16", (32, 4096, 4096), 20.0, "UNKNOWN", "± 30 %"),
    ],
)  # fmt: skip
def test_a_shape_is_judged_by_what_explain_says_of_it(
    device: str, dtype: str, shape: tuple[int, int, int], tflops: float, status: str, says: str
) -> None:
    found = one(judged(device, dtype, tflops, "base", shape=shape), f"gpu 0.gemm_{dtype}")
    assert (found.status.value, says in found.expected + found.reason) == (status, True), found


def test_a_percentage_says_at_which_clock_the_peak_is() -> None:
    found = one(judged("2330", "bf16", 780, "h100"), "gpu 0.gemm_bf16")
    assert found.expected.startswith("≥ 60 % of 1071 TFLOPS at 1980 MHz (H100 SXM5 80 GB, 8 machines, published")


def test_a_power_limit_below_the_boards_own_is_said() -> None:
    lowered = one(judged("2bb1", "tf32", 155, "base", power_limit_watts=550), "gpu 0.gemm_power_limit")
    assert (lowered.status, lowered.expected, lowered.actual) == (records.Status.WARN, "600 W", "550 W")
    full = judged("2bb1", "tf32", 155, "base", power_limit_watts=600)
    assert "gpu 0.gemm_power_limit" not in [finding.key for finding in full]


# ---------------------------------------------------------------- a GPU that nobody knows

STRANGER = records.PciDevice(
    "0000:00:1d.0", "10de", "2782", "030000", None, "1234", "NVIDIA Corporation AD104 [GeForce RTX 4070 Ti]"
)


def with_stranger(gpus: tuple[str, ...] = ("t4",)) -> records.Snapshot:
    bare = bare_snapshot(gpus=gpus)
    return dataclasses.replace(bare, pci_gpus=(*bare.pci_gpus, STRANGER))


def test_one_unknown_gpu_does_not_refuse_the_machine() -> None:
    host = with_stranger()
    wanted = state.resolve(shipped("t4"), host)
    assert [(gpu.model, gpu.name) for gpu in wanted.gpus] == [("t4", "T4"), ("", STRANGER.name)]
    assert plan.make("h", wanted, checks.compare(wanted, host)).steps
    assert probes.arguments(shipped("t4"), wanted, quick=False)["gpus"]["2782"] == {}
    assert len(probes.chosen(wanted)) == len(kinds.PROBES)


def test_its_verdict_is_unknown_and_says_its_name() -> None:
    host = with_stranger()
    wanted = state.resolve(shipped("t4"), host)
    findings = checks.compare(wanted, host)
    (finding,) = [finding for finding in findings if finding.property == "in_catalogue"]
    assert (finding.key, finding.status, finding.role) == ("gpu 1.in_catalogue", records.Status.UNKNOWN, "")
    assert finding.actual == "NVIDIA Corporation AD104 [GeForce RTX 4070 Ti] (10de:2782)"
    assert str(STRANGER.name) in finding.reason
    good = [dataclasses.replace(one, status=records.Status.PASS) for one in findings if one is not finding]
    assert verdict([*good, finding]).status is records.Status.UNKNOWN
    assert verdict(good).status is records.Status.PASS


@pytest.mark.parametrize(("name", "shown"), [(None, "GPU 10de:2782"), (records.Missing("not_read"), "GPU 10de:2782")])
def test_without_a_name_its_ids_are_said(name: Any, shown: str) -> None:
    host = dataclasses.replace(bare_snapshot(), pci_gpus=(dataclasses.replace(STRANGER, name=name),))
    wanted = state.resolve(shipped("base"), host)
    assert [gpu.name for gpu in wanted.gpus] == [shown]
    assert one(list(checks.compare(wanted, host)), "gpu 0.in_catalogue").actual == shown


def test_its_figures_are_kept_and_not_judged() -> None:
    found = judged("2782", "fp16", 150, "base", name="NVIDIA GeForce RTX 4070 Ti")
    speed = one(found, "gpu 0.gemm_fp16")
    assert speed.status is records.Status.UNKNOWN
    assert "NVIDIA GeForce RTX 4070 Ti (10de:2782)" in speed.reason
    assert one(found, "gpu 0.in_catalogue").status is records.Status.UNKNOWN
    assert not any("update gpuprep" in finding.remedy for finding in found)


def refused(wish: profile.Profile, snapshot: records.Snapshot) -> str:
    with pytest.raises(errors.PlanRefused) as error:
        state.resolve(wish, snapshot)
    return "\n".join(error.value.reasons)


def test_a_machine_without_an_nvidia_gpu_is_refused_and_says_what_it_has() -> None:
    bare = dataclasses.replace(bare_snapshot(), pci_gpus=())
    assert "no NVIDIA GPU on the PCI bus; works" in refused(shipped("t4"), bare)
    amd = records.PciDevice(
        "0000:05:00.0", "1002", "74a1", "120000", None, "74a1", "Advanced Micro Devices [Instinct MI300X]"
    )
    theirs = dataclasses.replace(bare, other_gpus=(amd,))
    assert "on the PCI bus, only Advanced Micro Devices [Instinct MI300X]; works" in refused(shipped("t4"), theirs)


def test_gpus_of_other_makers_are_named_and_left_alone() -> None:
    host = bare_snapshot()
    wanted = state.resolve(shipped("t4"), host)
    instinct = records.PciDevice("0000:05:00.0", "1002", "74a1", "120000", None, "74a1", "AMD [Instinct MI300X]")
    nameless = records.PciDevice("0000:06:00.0", "8086", "0bd5", "038000", None, "0", None)
    console = records.PciDevice("0000:07:00.0", "1a03", "2000", "030000", "ast", "2000", "ASPEED Technology, Inc.")
    found = checks.compare(wanted, dataclasses.replace(host, other_gpus=(instinct, nameless, console)))
    finding = one(list(found), "gpus.of_other_makers")
    assert (finding.status, finding.remedy) == (records.Status.SKIP, "")
    assert finding.actual == "AMD [Instinct MI300X] at 0000:05:00.0, GPU 8086:0bd5 at 0000:06:00.0"
    only_console = checks.compare(wanted, dataclasses.replace(host, other_gpus=(console,)))
    assert not [finding for finding in only_console if finding.property == "of_other_makers"]


def test_a_gpu_that_the_archive_cannot_serve_is_refused_with_the_reason_but_judged() -> None:
    host = bare_snapshot(gpus=["rtx_5090"])
    said = refused(shipped("base"), host)
    assert "cuda.version: the first CUDA for RTX 5090 (Blackwell) is 12.8" in said
    assert "the open kernel modules 550.163.01" in said
    assert state.resolve(shipped("base"), host, judging=True).gpus[0].model == "rtx_5090"


def test_gpus_that_need_different_kernel_modules_are_refused_together() -> None:
    said = refused(shipped("base"), bare_snapshot(gpus=["v100", "rtx_5090"]))
    assert "RTX 5090 (Blackwell) works only with open kernel modules" in said


def test_proprietary_modules_are_refused_where_only_open_ones_work() -> None:
    own = load("base", driver={"flavour": "proprietary"})
    assert "GH200 (Grace Hopper) works with the open kernel modules only" in refused(own, bare_snapshot(gpus=["gh200"]))
    assert "open kernel modules only" in "\n".join(state.check_profile(with_parts(own, gpus=("gh200",))))
    assert state.check_profile(own) == []  # its other GPUs can have them


def test_a_stranger_is_sent_to_a_profile_that_exists() -> None:
    said = refused(shipped("t4"), bare_snapshot(gpus=["2684"]))
    assert "the host's GPU is RTX 4090, and profile t4 is for T4; works: --profile base" in said


# ---------------------------------------------------------------- records and the bus


def test_older_records_have_no_subsystem() -> None:
    device = records.from_json_value(
        records.PciDevice, {"address": "a", "vendor_id": "10de", "device_id": "1eb8", "class_code": "0302"}
    )
    assert isinstance(device.subsystem_id, records.Missing)
    assert isinstance(device.name, records.Missing)


def test_the_bus_gives_subsystem_and_name(tmp_path: Path) -> None:
    names = tmp_path / "pci.ids"
    names.write_text(
        "# a comment\n\n1002  AMD\n\t2782  not this one\n10de  NVIDIA Corporation\n\t2204  GA102 [GeForce RTX 3090]\n"
        "\t2782  AD104 [GeForce RTX 4070 Ti]\n\t\t10de 1234  a board\n10df  Emulex\n\t2783  nor this\n"
    )
    bus = tmp_path / "devices"
    for address, vendor, kind in (("0000:01:00.0", "10de", "030000"), ("0000:02:00.0", "1002", "120000")):
        (bus / address).mkdir(parents=True)
        for name, value in (("vendor", vendor), ("device", "2782"), ("class", kind), ("subsystem_device", "1234")):
            (bus / address / name).write_text(f"0x{value}\n")
    gpus, _, others = osfacts.pci(bus, (tmp_path / "absent", names))
    assert [(gpu.subsystem_id, gpu.name) for gpu in gpus] == [
        ("1234", "NVIDIA Corporation AD104 [GeForce RTX 4070 Ti]")
    ]
    assert [(gpu.vendor_id, gpu.name) for gpu in others] == [("1002", "AMD not this one")]
    assert osfacts.pci_name("10de", "2783", (names,)) is None
    assert osfacts.pci_name("10de", "2782", ()) is None
