"""A simulated GPU, read by the agent: a healthy GPU passes every check of health, and each fault is found."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from pathlib import Path

import pytest
from builders import finished_snapshot, resolved
from nvmlbench import FAULTS, Bench

from gpuprep import checks, records

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux" or shutil.which("gcc") is None, reason="needs Linux and gcc"),
    pytest.mark.skipif(os.geteuid() != 0, reason="as on a machine: root reads"),
]
SETTINGS = {"clocks", "compute_mode", "ecc", "persistence_mode", "power_limit"}  # nobody made them here
WANTED = resolved("t4")
HOST = finished_snapshot(WANTED)
MODELS = ("t4", "v100", "v100-sxm2-32", "v100-pcie", "v100s", "a100", "a100-pcie", "a100-80", "a100-pcie-80", "h200")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench.made(tmp_path)


def judged(bench: Bench) -> dict[str, records.Finding]:
    gpus = tuple(bench.gpus())
    uptime = dataclasses.replace(HOST.kernel, uptime_seconds=float(Path("/proc/uptime").read_text().split()[0]))
    snapshot: records.Snapshot = dataclasses.replace(HOST, gpus=gpus, pci_gpus=(), kernel=uptime)
    found = [one for one in checks.compare(WANTED, snapshot) if one.subject.startswith("gpu ")]
    return {one.key: one for one in found if one.property not in SETTINGS}


@pytest.mark.parametrize("version", ["550.163.01", "580.95.05"])
def test_every_sound_model_passes_and_says_what_it_does_not_have(bench: Bench, version: str) -> None:
    bench.boot(*MODELS, version=version)
    found = judged(bench)
    assert {
        key: one for key, one in found.items() if one.status not in (records.Status.PASS, records.Status.SKIP)
    } == {}
    skipped = {key for key, one in found.items() if one.status is records.Status.SKIP}
    assert skipped == {
        f"gpu {index}.{'retired_pages' if model.startswith(('a', 'h')) else 'remapped_rows'}"
        for index, model in enumerate(MODELS)
    }
    last = len(MODELS) - 1
    assert f"gpu {last}.spare_rows" in found
    assert f"gpu {last}.memory_temperature" in found


def test_an_h200_tells_its_margin(bench: Bench) -> None:
    bench.boot("h200", version="580.95.05")
    (gpu,) = bench.gpus()
    told = gpu.temperatures
    assert isinstance(told, records.Temperatures)
    assert (told.margin, told.slowdown_margin, told.shutdown_margin) == (58, -2, -8)


@pytest.mark.parametrize(
    ("kind", "model", "prop", "status", "words"),
    [
        ("remap_failure", "a100", "remapped_rows", records.Status.FAIL, "could not be replaced"),
        ("remap_failure", "h200", "spare_rows", records.Status.WARN, "1 bank of the memory without a spare row"),
        ("no_spare_rows", "a100", "spare_rows", records.Status.WARN, "without a spare row"),
        ("remap_pending", "a100", "remapped_rows", records.Status.WARN, "until then nothing uses it"),
        ("remap_pending", "t4", "retired_pages", records.Status.FAIL, "still in use"),
        ("pages_retired", "t4", "retired_pages", records.Status.FAIL, "63 pages"),
        ("pages_retired", "v100", "retired_pages", records.Status.FAIL, "63 pages"),
        ("sram_threshold", "a100", "ecc_errors", records.Status.FAIL, "SRAM threshold exceeded"),
        ("ecc_errors", "t4", "ecc_errors", records.Status.FAIL, "2 memory errors could not be corrected"),
        ("pcie_replays", "t4", "pcie_errors", records.Status.WARN, "a minute"),
        ("hot", "t4", "temperature", records.Status.WARN, "2 degrees more"),
        ("hot", "h200", "temperature", records.Status.WARN, "degrees more"),
        ("too_hot", "t4", "slowdown_now", records.Status.FAIL, "thermal slowdown at 93"),
        ("power_capped", "t4", "slowdown_now", records.Status.FAIL, "power brake"),
    ],
)
def test_each_fault_is_what_it_says(
    bench: Bench, kind: str, model: str, prop: str, status: records.Status, words: str
) -> None:
    bench.boot(model)
    bench.play(kind, 0)
    finding = judged(bench)[f"gpu 0.{prop}"]
    assert finding.status is status
    assert words in finding.reason
    assert finding.remedy


@pytest.mark.parametrize(
    ("kind", "version", "action"),
    [("asks_reboot", "580.95.05", "reboot"), ("asks_reset", "570.86.15", "reset"), ("asks_reboot", "550.163.01", None)],
)
def test_the_drivers_own_wish_is_read_where_the_driver_has_it(
    bench: Bench, kind: str, version: str, action: str | None
) -> None:
    """An older driver asks for nothing that we could know: that is not "none"."""
    bench.boot("h200", version=version)
    bench.play(kind, 0)
    (gpu,) = bench.gpus()
    found = judged(bench).get("gpu 0.recovery_action")
    if action is None:
        assert gpu.recovery_action == records.Missing("not_supported", "nvmlDeviceGetFieldValues(230): Not Supported")
        assert found is None
        return
    assert found is not None
    assert (gpu.recovery_action, found.status, found.reboot) == (action, records.Status.FAIL, action == "reboot")
    bench.boot("h200", version=version)  # a restart of the machine
    assert judged(bench)["gpu 0.recovery_action"].status is records.Status.PASS


@pytest.mark.parametrize(
    "kind", ["memory_repaired", "ecc_corrected", "was_too_hot", "was_warm", "was_braked", "was_capped"]
)
def test_history_is_no_fault_of_today(bench: Bench, kind: str) -> None:
    bench.boot("t4", "a100")
    bench.play(kind, 0)
    bench.play(kind, 1)
    assert [
        one.key for one in judged(bench).values() if one.status not in (records.Status.PASS, records.Status.SKIP)
    ] == []


# Not ecc_pending: its mode is the board's after a boot.
REMOVED = [kind for kind, fault in FAULTS.items() if fault.keys() & {"gpu", "present"} and kind != "ecc_pending"]


@pytest.mark.parametrize("kind", REMOVED)
def test_a_fault_that_is_removed_leaves_nothing_also_where_a_boot_ended_it(bench: Bench, kind: str) -> None:
    bench.boot("t4")
    before = bench.state("gpu.0")
    bench.play(kind)
    bench.play(kind, clear=True)
    assert bench.state("gpu.0") == before
    bench.play(kind)
    bench.boot("t4")
    bench.play(kind, clear=True)
    assert bench.state("gpu.0") == before


@pytest.mark.parametrize(("kind", "model"), [("remap_failure", "a100"), ("sram_threshold", "h200")])
def test_a_lasting_defect_outlives_a_boot(bench: Bench, kind: str, model: str) -> None:
    bench.boot(model)
    bench.play(kind, 0)
    bench.boot(model)
    assert records.Status.FAIL in {one.status for one in judged(bench).values()}
