"""pynvml, the readings and the tuning against a real C library: the stand-in NVML of simulated VMs, on this machine."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from nvmlbench import READ, Bench

from gpuprep import records
from gpuprep.agent.gpu import simstate
from gpuprep.sim import native, nvmlstate

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux" or shutil.which("gcc") is None, reason="needs Linux and gcc"),
    pytest.mark.skipif(os.geteuid() != 0, reason="NVML lets only root change settings"),
]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libnvidia-ml.so.1").symlink_to(native.nvml())
    made = Bench(tmp_path)
    made.boot("t4", "a100")
    return made


def clocks(report: Any) -> list[tuple[str, str, bool]]:
    return [(row["after"], row["how"], row["as_wanted"]) for row in report["rows"] if row["property"] == "clocks"]


def test_facts_of_two_models(bench: Bench) -> None:
    t4, a100 = bench.gpus()
    assert (t4.name, t4.pci_device_id, t4.pci_address) == ("Tesla T4", "1eb8", "0000:00:04.0")
    assert t4.application_clocks == records.ClockPair(5001, 585)
    assert isinstance(t4.supported_clocks, tuple)
    assert records.ClockPair(5001, 1590) in t4.supported_clocks
    assert (t4.power.min_watts, t4.power.max_watts) == (60.0, 70.0)
    assert a100.index == 1
    assert a100.memory_total_mib != t4.memory_total_mib


def test_who_uses_a_gpu(bench: Bench) -> None:
    with simstate.load(0, {"memory_mib": 100}, bench.folder):
        t4, a100 = bench.gpus()
    assert a100.processes == ()
    assert isinstance(t4.processes, tuple)
    (mine,) = t4.processes
    assert (mine.pid, mine.memory_mib, mine.owner) == (os.getpid(), 100, psutil.Process().username())
    assert mine.name == Path("/proc/self/comm").read_text().strip()
    assert isinstance(mine.age_seconds, int)
    assert abs(mine.age_seconds - (time.time() - psutil.Process().create_time())) < 10


def test_no_driver_and_no_library_are_different(bench: Bench) -> None:
    nvmlstate.write_boot(bench.folder, None, [])
    assert bench.python(READ)[0]["missing"] == "driver_not_loaded"
    assert bench.tune("check")["exit_code"] == 1
    if not Path("/proc/driver/nvidia").exists():
        assert bench.python(READ, library=False)[0]["missing"] == "library_not_found"


def test_a_lost_gpu_does_not_hide_the_other(bench: Bench) -> None:
    bench.put("gpu.0", fault_gpu_lost="1")
    lost, a100 = bench.gpus()
    assert isinstance(lost.temperature_c, records.Missing)
    assert lost.temperature_c.reason == "gpu_is_lost"
    assert a100.name.startswith("NVIDIA A100")
    report = bench.tune("apply")
    assert report["exit_code"] == 1
    assert clocks(report) == [("1215,1410 MHz", "application", True)]


def test_tuning_is_applied_read_back_and_repeated(bench: Bench) -> None:
    assert bench.tune("check")["exit_code"] == 1
    first = bench.tune("apply")
    assert first["exit_code"] == 0
    assert clocks(first) == [("5001,1590 MHz", "application", True), ("1215,1410 MHz", "application", True)]
    assert bench.tune("check")["exit_code"] == 0
    assert not any(row["changed"] for row in bench.tune("apply")["rows"])
    assert [gpu.persistence_mode for gpu in bench.gpus()] == [True, True]
    bench.boot("t4", "a100")  # a reboot forgets all of it
    assert bench.tune("check")["exit_code"] == 1


def test_a_driver_without_application_clocks(bench: Bench) -> None:
    bench.put("system", application_clocks_removed="1")
    t4 = bench.gpus()[0]
    assert isinstance(t4.application_clocks, records.Missing)
    assert t4.application_clocks.reason == "deprecated"
    report = bench.tune("apply")
    assert clocks(report) == [("graphics 1590 MHz", "locked", True), ("1215,1410 MHz", "locked", True)]
    assert bench.tune("check")["exit_code"] == 0
    assert clocks(bench.tune("apply", clocks="default")) == [("not locked", "locked", True)] * 2


def test_clocks_that_do_not_stick(bench: Bench) -> None:
    bench.put("gpu.0", fault_clocks_stuck="1")
    report = bench.tune("apply")
    assert report["exit_code"] == 1
    assert clocks(report)[0] == ("5001,585 MHz", "application", False)


def test_power_ecc_and_compute_mode(bench: Bench) -> None:
    bench.boot("t4")
    report = bench.tune("apply", power_limit_watts=65, ecc="disabled", compute_mode="exclusive_process")
    assert report["exit_code"] == 0
    t4 = bench.gpus()[0]
    assert (t4.power.current_watts, t4.ecc_current, t4.ecc_pending, t4.compute_mode) == (
        65.0,
        True,
        False,
        "exclusive_process",
    )
    refused = bench.tune("apply", power_limit_watts=80)
    assert [row["error"] for row in refused["rows"] if row["property"] == "power_limit"] == [
        "80 W is outside of what this GPU allows: 60 to 70 W"
    ]
