"""A GPU that contradicts its board is UNKNOWN, in the snapshot and in each measurement; one that fits passes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from builders import finished_snapshot, resolved
from judgedbandwidth import any_host

from gpuprep import catalogue, checks, records
from gpuprep.desired import probes

WANTED = resolved("t4", "debian13")
FINISHED = finished_snapshot(WANTED)


def board(key: str) -> catalogue.Board:
    return catalogue.boards()[key]


def snapshot(**values: Any) -> records.Snapshot:
    assert not isinstance(FINISHED.gpus, records.Missing)
    return dataclasses.replace(FINISHED, gpus=(dataclasses.replace(FINISHED.gpus[0], **values),))


def identities(found: list[records.Finding] | tuple[records.Finding, ...]) -> dict[str, records.Finding]:
    return {one.key: one for one in found if one.property == "identity"}


def of_host(host: records.Snapshot, *results: records.ProbeResult) -> list[records.Finding]:
    return [one for one in checks.compare_figures(WANTED, host, results) if one.property == "identity"]


def contradictions(
    one: catalogue.Board, *, memory_mib: int | None = None, highest_mhz: int | None = None, **values: Any
) -> list[str]:
    """What a measurement of this board on any host contradicts, a sentence each."""
    gpu = {"index": 0, "pci_device_id": one.pci_device_ids[0], "pci_subsystem_id": (*one.subsystem_ids, "")[0]}
    named = {"name": values.get("name", "")}
    product = {**gpu, **values, "max_graphics_clock_mhz": highest_mhz, "gemms": []}
    stream = {**gpu, **named, "memory_total_mib": memory_mib}
    results = [
        records.ProbeResult(probe, records.Source.MEASURED, {"gpus": [entry]}, 1.0)
        for probe, entry in (("gemm", product), ("throughput", stream))
    ]
    return [sentence for found in of_host(any_host(), *results) for sentence in found.reason.split("; ")]


def test_what_nvml_tells_of_a_sound_board_fits() -> None:
    finding = identities(checks.compare(WANTED, snapshot(name="Tesla T4", cores=2560)))["gpu 0.identity"]
    assert (finding.status, finding.actual) == (records.Status.PASS, "T4")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"memory_total_mib": 7680}, "memory of 7680 MiB, and the T4 has 15360"),
        ({"memory_total_mib": 32768}, "memory of 32768 MiB"),
        ({"cores": 2304}, "36 multiprocessors, and the T4 has 40"),
        ({"cores": -1}, "multiprocessors"),
        ({"max_graphics_clock_mhz": 1000}, "a highest clock of 1000 MHz"),
        ({"max_graphics_clock_mhz": 1980}, "a highest clock of 1980 MHz"),
        ({"name": "NVIDIA A100-SXM4-80GB"}, "the name NVIDIA A100-SXM4-80GB, which is that of the A100 SXM4 80 GB"),
        ({"name": "Quadro P4000"}, "the PCI ids are those of the T4"),
        ({"name": "NVIDIA TITAN V"}, "the PCI ids are those of the T4"),  # a name without a number
        ({"name": "llvmpipe"}, "the PCI ids are those of the T4"),
        ({"name": "A100 PCIe 80 GB"}, "which is that of the A100 PCIe 80 GB"),  # as the catalogue calls another board
        ({"compute_capability": "8.0"}, "compute capability 8.0, and the T4 has 7.5"),
        ({"memory_total_mib": records.Missing("command_failed", "")}, "the size of its memory could not be read"),
        ({"max_graphics_clock_mhz": records.Missing("unparsable", "NaN")}, "its highest clock could not be read"),
        ({"cores": records.Missing("command_failed", "")}, "its number of cores could not be read"),
    ],
)
def test_each_contradiction_is_unknown_with_its_reason(values: dict[str, Any], words: str) -> None:
    finding = identities(checks.compare(WANTED, snapshot(**values)))["gpu 0.identity"]
    assert finding.status is records.Status.UNKNOWN
    assert words in finding.reason
    assert "nvidia-smi -q" in finding.remedy or "measure again" in finding.remedy


@pytest.mark.parametrize("name", ["memory_total_mib", "cores", "max_graphics_clock_mhz"])
def test_what_was_not_read_contradicts_nothing(name: str) -> None:
    found = identities(checks.compare(WANTED, snapshot(**{name: records.Missing("not_supported", "")})))
    assert found["gpu 0.identity"].status is records.Status.PASS


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("rtx_a6000", {"memory_mib": 49140}),  # ECC off
        ("l20", {"memory_mib": 49140}),
        ("v100_sxm2_32", {"memory_mib": 32510}),  # drivers before R510
        ("a16", {"memory_mib": 15105}),
        ("rtx_3090", {"highest_mhz": 2100}),  # a GeForce's highest clock is no figure of its datasheet
        ("rtx_4000_sff_ada", {"highest_mhz": 3105}),
        ("h100_sxm5_80", {"sms": 132, "highest_mhz": 1980, "memory_mib": 81559, "name": "NVIDIA H100 80GB HBM3"}),
        ("a100_sxm4_80", {"name": "NVIDIA A100-SXM-80GB"}),
        ("t4", {"name": "GRID T4-16Q", "highest_mhz": 1590}),
    ],
)
def test_what_real_boards_show_fits(key: str, values: dict[str, Any]) -> None:
    assert contradictions(board(key), **values) == []


@pytest.mark.parametrize("key", list(catalogue.boards()))
def test_every_board_fits_itself_and_half_of_it_does_not(key: str) -> None:
    one = board(key)
    name = one.nvml_names[0] if one.nvml_names else ""
    own: dict[str, Any] = {"memory_mib": one.memory_mib, "sms": one.sms, "highest_mhz": one.boost_mhz, "name": name}
    assert contradictions(one, **own) == []
    for figure in ("memory_mib", "sms", "highest_mhz"):
        if own[figure]:
            assert len(contradictions(one, **{**own, figure: own[figure] // 2})) == 1


@pytest.mark.parametrize(
    ("probe", "entry", "words"),
    [
        ("gemm", {"sms": 20, "gemms": []}, "20 multiprocessors, and the T4 has 40 (gemm)"),
        ("gemm", {"max_graphics_clock_mhz": 3000, "gemms": []}, "a highest clock of 3000 MHz"),
        ("gemm", {"name": "NVIDIA H200", "gemms": []}, "the name NVIDIA H200"),
        ("bandwidth", {"name": "NVIDIA L4"}, "the name NVIDIA L4, which is that of the L4 (bandwidth)"),
    ],
)
def test_measurements_are_held_to_it_too(probe: str, entry: dict[str, Any], words: str) -> None:
    gpu = {"index": 0, "uuid": "GPU-0", "name": "Tesla T4", "pci_device_id": "1eb8", **entry}
    result = records.ProbeResult(probe, records.Source.MEASURED, {"gpus": [gpu]}, 1.0)
    (finding,) = of_host(FINISHED, result)
    assert finding.status is records.Status.UNKNOWN
    assert words in finding.reason
    alone = dataclasses.replace(FINISHED, gpus=records.Missing("not_read", ""))
    assert identities(of_host(alone, result))["gpu 0.identity"].status is records.Status.UNKNOWN


@pytest.mark.parametrize("where", ["gpu", "gpus", "series"])
@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"name": "NVIDIA H200"}, "the name NVIDIA H200"),
        ({"pci_device_id": "1b80", "name": ""}, "the PCI device id 1b80, and the host has 1eb8"),
        ({"pci_device_id": "zzzz"}, "the PCI device id zzzz, and the host has 1eb8"),
    ],
)
def test_so_is_every_gpu_that_a_measurement_names(where: str, entry: dict[str, Any], words: str) -> None:
    gpu = {"index": 0, "uuid": "GPU-0", "name": "Tesla T4", "pci_device_id": "1eb8", **entry}
    places: dict[str, Any] = {"gpu": gpu, "gpus": [gpu], "series": [{"gpu": gpu}]}
    values = {where: places[where]}
    for probe in ("throughput",) if where == "series" else ("cudnn", "transcode", "throughput"):
        (finding,) = of_host(FINISHED, records.ProbeResult(probe, records.Source.MEASURED, values, 1.0))
        assert finding.status is records.Status.UNKNOWN
        assert words in finding.reason
        assert f"({probe})" in finding.reason


# The compiler and FFmpeg's list of parts name no GPU.
NAMELESS = {"toolkit", "codec"}


@pytest.mark.parametrize("probe", [name for name in probes.NAMES if name not in NAMELESS])
def test_no_probe_measures_a_gpu_that_the_host_lacks(probe: str) -> None:
    gpu = {"index": 0, "uuid": "GPU-0", "name": "NVIDIA H200", "pci_device_id": "2335"}
    for values in ({"gpu": gpu}, {"gpus": [gpu]}):
        result = records.ProbeResult(probe, records.Source.MEASURED, values, 1.0)
        found = [one for one in of_host(FINISHED, result) if one.status is not records.Status.PASS]
        if "gpu" in values and probe in ("gemm", "bandwidth", "nccl"):  # they list GPUs only
            continue
        assert {one.status for one in found} == {records.Status.UNKNOWN}, values
        assert all(f"({probe})" in one.reason for one in found)


def test_masked_ids_of_a_virtual_machine_are_no_other_device() -> None:
    gpu = {"index": 0, "uuid": "GPU-0", "name": "Tesla T4", "pci_device_id": "0000"}
    (finding,) = of_host(FINISHED, records.ProbeResult("cudnn", records.Source.MEASURED, {"gpu": gpu}, 1.0))
    assert finding.status is records.Status.PASS


@pytest.mark.parametrize("name", ["NVIDIA Graphics Device", "NVIDIA", "GRID", ""])
def test_a_name_that_names_no_model_contradicts_nothing(name: str) -> None:
    assert contradictions(board("t4"), name=name) == []


def test_a_measurement_that_fits_says_nothing_of_its_own() -> None:
    gpu = {"index": 0, "uuid": "GPU-0", "name": "Tesla T4", "pci_device_id": "1eb8", "sms": 40, "gemms": []}
    alone = dataclasses.replace(FINISHED, gpus=records.Missing("not_read", ""))
    assert of_host(alone, records.ProbeResult("gemm", records.Source.MEASURED, {"gpus": [gpu]}, 1.0)) == []


@pytest.mark.parametrize("values", [{"gpus": "none"}, {"gpus": [None, 3]}, {}, {"missing": "command_failed"}])
def test_a_measurement_that_cannot_be_read_is_nobodys_identity(values: dict[str, Any]) -> None:
    alone = dataclasses.replace(FINISHED, gpus=records.Missing("not_read", ""))
    assert of_host(alone, records.ProbeResult("gemm", records.Source.MEASURED, values, 1.0)) == []
