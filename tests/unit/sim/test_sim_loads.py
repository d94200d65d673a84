"""What NVML's stand-in shows of work on a GPU, and of the faults that a validation has to name."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from nvmlbench import FAULTS, Bench, code_of_faults
from places import ROOT

pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="the stand-in is a Linux library"),
]


@pytest.fixture
def machine(tmp_path: Path) -> Bench:
    made = Bench.made(tmp_path / "nvml")
    made.boot("t4", "a100")
    return made


def test_each_key_of_a_fault_is_read_by_something() -> None:
    """A key with a typing error would be written into the state, and nothing would happen."""
    code = code_of_faults()
    written = {
        key
        for fault in FAULTS.values()
        for part in ("gpu", "system", "present")
        for key in fault.get(part, {})
        if not key.startswith("kept_")
    }
    assert len(written) > 30
    assert {key for key in written if f'"{key}"' not in code} == set()


READ = """print(n.nvmlDeviceGetClockInfo(h(), 0), n.nvmlDeviceGetClockInfo(h(), 2), n.nvmlDeviceGetPowerUsage(h()),
    n.nvmlDeviceGetUtilizationRates(h()).gpu, n.nvmlDeviceGetPerformanceState(h()),
    n.nvmlDeviceGetCurrPcieLinkGeneration(h()), n.nvmlDeviceGetCurrentClocksEventReasons(h()),
    n.nvmlDeviceGetMemoryInfo(h()).used >> 20)"""


def test_work_shows_and_is_gone_with_its_program(machine: Bench) -> None:
    idle = machine.ask(READ)
    assert idle == "300 405 9000 0 8 1 1 400"
    values = {
        "graphics": 955, "memory": 5001, "power_mw": 69900, "utilization": 60, "event_reasons": 4, "memory_mib": 1024,
    }  # fmt: skip
    with machine.load(**values), machine.load(**values):
        assert machine.ask(READ) == "955 5001 69900 100 0 3 4 2448"
        assert machine.ask("print(n.nvmlDeviceGetFieldValues(h(), [186])[0].value.uiVal)") == "69900"
        assert machine.ask(READ.replace("h()", "h(1)")).startswith("210 ")
    assert machine.ask(READ) == idle


def test_processes_are_those_that_work(machine: Bench) -> None:
    read = """for p in n.nvmlDeviceGetComputeRunningProcesses(h()):
    print(p.pid, p.usedGpuMemory >> 20, n.nvmlSystemGetProcessName(p.pid))"""
    assert machine.ask(read) == ""
    with machine.load(memory_mib=100), machine.load(memory_mib=50):
        pid, memory, name = machine.ask(read).split(" ", 2)
    assert (int(pid), int(memory)) == (os.getpid(), 150)
    assert name == Path("/proc/self/cmdline").read_bytes().split(b"\0")[0].decode()


def test_engines_and_encoder_sessions(machine: Bench) -> None:
    read = """print(n.nvmlDeviceGetEncoderUtilization(h())[0], n.nvmlDeviceGetDecoderUtilization(h())[0],
    list(n.nvmlDeviceGetEncoderStats(h())),
    [(s.pid, s.codecType, s.hResolution) for s in n.nvmlDeviceGetEncoderSessions(h())])"""
    assert machine.ask(read) == "0 0 [0, 0, 0] []"
    session = {"encoder": 70, "encoder_codec": 1, "encoder_width": 1280, "encoder_height": 720, "encoder_fps": 30}
    with machine.load(**session), machine.load(decoder=25):
        assert machine.ask(read) == f"70 25 [1, 30, 4000] [({os.getpid()}, 1, 1280)]"


@pytest.mark.parametrize(
    ("kind", "gpu", "read", "sound", "faulty"),
    [
        ("pcie_x4", 0, "n.nvmlDeviceGetCurrPcieLinkWidth(h())", "16", "4"),
        ("ecc_pending", 0, "n.nvmlDeviceGetEccMode(h())", "[1, 1]", "[1, 0]"),
        ("ecc_errors", 0, "n.nvmlDeviceGetTotalEccErrors(h(), 1, 0)", "0", "2"),
        ("remap_pending", 0, "n.nvmlDeviceGetRetiredPagesPendingStatus(h())", "0", "1"),
        ("remap_pending", 0, "len(n.nvmlDeviceGetRetiredPages(h(), 1))", "0", "1"),
        ("remap_pending", 1, "list(n.nvmlDeviceGetRemappedRows(h(1)))", "[0, 0, 0, 0]", "[0, 1, 1, 0]"),
        ("nvlink_down", 1, "sum(n.nvmlDeviceGetNvLinkState(h(1), i) for i in range(12))", "12", "1"),
        ("throttled", 0, "n.nvmlDeviceGetCurrentClocksEventReasons(h())", "1", str(0x88)),
        ("throttled", 0, "n.nvmlDeviceGetFieldValues(h(), [271])[0].value.ullVal > 0", "False", "True"),
        ("too_hot", 0, "n.nvmlDeviceGetTemperature(h(), 0) >= 93", "False", "True"),
    ],
)
def test_a_fault_is_seen_and_cleared(machine: Bench, kind: str, gpu: int, read: str, sound: str, faulty: str) -> None:
    assert machine.ask(f"print({read})") == sound
    machine.play(kind, gpu)
    assert machine.ask(f"print({read})") == faulty
    machine.play(kind, gpu, clear=True)
    assert machine.ask(f"print({read})") == sound


def test_what_a_model_has_not_is_not_supported(machine: Bench) -> None:
    assert machine.ask("n.nvmlDeviceGetRemappedRows(h(0))") == "error 3"
    assert machine.ask("n.nvmlDeviceGetRetiredPages(h(1), 1)") == "error 3"
    assert machine.ask("n.nvmlDeviceGetNvLinkState(h(0), 0)") == "error 3"
    machine.play("remap_pending", 1)
    assert machine.ask("n.nvmlDeviceGetRetiredPages(h(1), 1)") == "error 3"


@pytest.mark.parametrize("kind", list(FAULTS))
def test_every_fault_says_what_it_is_and_can_be_taken_away(kind: str) -> None:
    fault = FAULTS[kind]
    assert len(fault["help"]) > 20
    assert fault.keys() & {
        "gpu", "present", "system", "run", "kernel", "kernel_log", "loaded_differs", "nouveau", "away", "exchanged",
        "restart", "archive", "clock",
    }  # fmt: skip
    for does, undoes in (("gpu", "clear"), ("system", "clear"), ("present", "clear_present"), ("run", "clear_run")):
        assert does not in fault or undoes in fault
    for key in fault.get("gpu", {}):
        assert key in fault["clear"] or fault["gpu"][key] is None


def test_the_manual_lists_every_fault() -> None:
    page = (ROOT / "docs/simulated-machines.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", page, re.MULTILINE))
    assert rows == {kind: fault["help"] for kind, fault in FAULTS.items() if "met" not in fault}
