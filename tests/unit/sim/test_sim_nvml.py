"""The real nvidia-ml-py against the compiled NVML stand-in: every call in a process of its own, as on a machine."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from nvmlbench import PRELUDE, Bench, public_functions

pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="the stand-in is a Linux library"),
]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="NVML's setters are for root")


MODELS = ("t4", "a100")


@pytest.fixture
def machine(tmp_path: Path) -> Bench:
    made = Bench.made(tmp_path / "nvml")
    made.boot(*MODELS)
    return made


def test_every_function_of_nvidia_ml_py_exists(machine: Bench) -> None:
    names = public_functions()
    assert len(names) > 300
    assert machine.ask(f"print([name for name in {names} if not hasattr(n.nvmlLib, name)])") == "[]"


def test_gpus_are_those_of_the_data(machine: Bench) -> None:
    assert machine.ask("print(n.nvmlDeviceGetCount())") == "2"
    assert machine.ask("print(n.nvmlDeviceGetName(h()), '|', n.nvmlDeviceGetName(h(1)))") == (
        "Tesla T4 | NVIDIA A100-SXM4-40GB"
    )
    assert machine.ask(
        "p = n.nvmlDeviceGetPciInfo(h()); print(p.busId, p.busIdLegacy, hex(p.pciDeviceId), p.device)"
    ) == ("00000000:00:04.0 0000:00:04.0 0x1eb810de 4")
    uuids = [machine.ask(f"print(n.nvmlDeviceGetUUID(h({gpu})))") for gpu in (0, 1)]
    assert [bool(re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid)) for uuid in uuids] == [True] * 2
    assert uuids[0] != uuids[1]
    assert machine.ask("print(n.nvmlDeviceGetMemoryInfo(h()).total >> 20)") == "15360"
    assert machine.ask("print(n.nvmlDeviceGetCudaComputeCapability(h(1)))") == "(8, 0)"
    assert (
        machine.ask("print(n.nvmlSystemGetDriverVersion(), n.nvmlSystemGetCudaDriverVersion())") == "550.163.01 12040"
    )


def test_found_by_uuid_serial_and_bus_id(machine: Bench) -> None:
    uuid, serial = machine.ask("print(n.nvmlDeviceGetUUID(h(1)), n.nvmlDeviceGetSerial(h(1)))").split()
    assert machine.ask(f"print(n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(b'{uuid}')))") == "1"
    assert machine.ask(f"print(n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleBySerial(b'{serial}')))") == "1"
    assert machine.ask("print(n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId(b'0000:00:05.0')))") == "1"
    assert machine.ask("n.nvmlDeviceGetHandleByUUID(b'GPU-nobody')") == "error 6"
    assert machine.ask("h(2)") == "error 2"


@pytest.mark.parametrize("call", ["n.nvmlDeviceGetCount()", "n.nvmlSystemGetDriverVersion()"])
def test_uninitialised_is_its_own_error(machine: Bench, call: str) -> None:
    assert machine.ask(f"n.nvmlInit(); n.nvmlShutdown(); {call}") == "error 1"


def test_no_driver_no_nvml(machine: Bench) -> None:
    machine.boot(*MODELS, loads=False)
    assert machine.ask("n.nvmlInit()") == "error 9"


def test_library_of_another_version_is_refused(machine: Bench) -> None:
    assert machine.ask("n.nvmlInit()", GPUPREP_SIM_LIBRARY="550.163.01") == ""
    assert machine.ask("n.nvmlInit()", GPUPREP_SIM_LIBRARY="535.261.03") == "error 18"


@needs_root
def test_application_clocks_are_set_read_back_and_reset(machine: Bench) -> None:
    read = "print([n.nvmlDeviceGetApplicationsClock(h(), k) for k in (n.NVML_CLOCK_MEM, n.NVML_CLOCK_GRAPHICS)])"
    assert machine.ask(read) == "[5001, 585]"
    assert (
        machine.ask("n.nvmlDeviceSetPersistenceMode(h(), 1); n.nvmlDeviceSetApplicationsClocks(h(), 5001, 1590)") == ""
    )
    assert machine.ask(read) == "[5001, 1590]"
    assert machine.ask("n.nvmlDeviceSetApplicationsClocks(h(), 5001, 1591)") == "error 2"
    assert machine.ask("n.nvmlDeviceSetApplicationsClocks(h(), 405, 1590)") == "error 2"
    assert machine.ask(read) == "[5001, 1590]"
    assert machine.ask("n.nvmlDeviceResetApplicationsClocks(h())") == ""
    assert machine.ask(read) == "[5001, 585]"


@needs_root
def test_without_persistence_the_last_client_takes_the_clocks_along(machine: Bench) -> None:
    read = "print(n.nvmlDeviceGetApplicationsClock(h(), n.NVML_CLOCK_GRAPHICS))"
    assert machine.ask(f"n.nvmlDeviceSetApplicationsClocks(h(), 5001, 1590)\n{read}") == "1590"
    assert machine.ask(read) == "585"


@needs_root
def test_a_reboot_loses_what_is_volatile_and_applies_ecc(machine: Bench) -> None:
    machine.ask(
        "n.nvmlDeviceSetPersistenceMode(h(), 1); n.nvmlDeviceSetApplicationsClocks(h(), 5001, 1590)\n"
        "n.nvmlDeviceSetPowerManagementLimit(h(), 65000); n.nvmlDeviceSetComputeMode(h(), 3)\n"
        "n.nvmlDeviceSetEccMode(h(), 0)"
    )
    read = (
        "print(n.nvmlDeviceGetPersistenceMode(h()), n.nvmlDeviceGetApplicationsClock(h(), 0),"
        " n.nvmlDeviceGetPowerManagementLimit(h()), n.nvmlDeviceGetComputeMode(h()), n.nvmlDeviceGetEccMode(h()))"
    )
    assert machine.ask(read) == "1 1590 65000 3 [1, 0]"
    machine.boot(*MODELS)
    assert machine.ask(read) == "0 585 70000 0 [0, 0]"


@needs_root
def test_locked_clocks_of_memory_need_ampere(machine: Bench) -> None:
    assert machine.ask("n.nvmlDeviceSetGpuLockedClocks(h(), 1590, 1590)") == ""
    assert machine.ask("n.nvmlDeviceSetMemoryLockedClocks(h(0), 5001, 5001)") == "error 3"
    assert machine.ask("n.nvmlDeviceSetMemoryLockedClocks(h(1), 1215, 1215)") == ""
    assert machine.ask("n.nvmlDeviceResetMemoryLockedClocks(h(0))") == "error 3"


@needs_root
def test_a_locked_clock_is_the_clock(machine: Bench) -> None:
    set_and_read = (
        "n.nvmlDeviceSetGpuLockedClocks(h(), 1500, 1590); print(n.nvmlDeviceGetClockInfo(h(), n.NVML_CLOCK_SM))"
    )
    assert machine.ask(set_and_read) == "1500"


@needs_root
def test_power_limit_stays_within_the_board(machine: Bench) -> None:
    assert machine.ask("print(n.nvmlDeviceGetPowerManagementLimitConstraints(h()))") == "[60000, 70000]"
    assert machine.ask("n.nvmlDeviceSetPowerManagementLimit(h(), 71000)") == "error 2"


POWER_VALUE = """
import ctypes
lib = n.nvmlLib
value = (ctypes.c_ubyte * 12).from_buffer_copy(struct.pack("=IB3sI", 12 | 2 << 24, {scope}, b"\\xa5\\x5a\\x7f", 62000))
print(lib.nvmlDeviceSetPowerManagementLimit_v2(h(), value), n.nvmlDeviceGetPowerManagementLimit(h()))
"""


@needs_root
@pytest.mark.parametrize(("scope", "says"), [(0, "0 62000"), (1, "3 70000")])
def test_the_scope_of_a_power_limit_is_a_byte(machine: Bench, scope: int, says: str) -> None:
    """As in nvml.h. nvidia-smi leaves the three bytes behind it unset, so they may hold anything."""
    assert machine.ask("import struct\n" + POWER_VALUE.format(scope=scope)) == says


# As `nvidia-smi -r -i GPU` resets: the GPU's handle, and room for its own answer, in a table that has no header.
RESET = """
table, handles, answers = ctypes.POINTER(ctypes.c_void_p)(), (ctypes.c_void_p * 1)(), (ctypes.c_int * 1)()
handles[0] = ctypes.cast(h({gpu}), ctypes.c_void_p)
n.nvmlLib.nvmlInternalGetExportTable(ctypes.byref(table), bytes.fromhex("c4fe3e6cc98f6c4ea327ee696e12f7c4"))
reset = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)(table[168])
print(reset(1, handles, answers), answers[0])
"""


@needs_root
@pytest.mark.parametrize("call", ["PersistenceMode(h(), 1)", "ApplicationsClocks(h(), 5001, 1590)", "EccMode(h(), 0)"])
def test_setters_are_for_root(call: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # pytest's own folders are closed to others than root
        Path(folder).chmod(0o755)
        machine = Bench.made(Path(folder) / "nvml")
        machine.boot("t4")
        ordinary = "import os; os.setuid(65534)\n"
        assert machine.ask(f"{ordinary}n.nvmlDeviceSet{call}") == "error 4"
        assert machine.ask(ordinary + RESET.format(gpu=0)) == "4 4"
        assert machine.ask(f"{ordinary}print(n.nvmlDeviceGetName(h()))") == "Tesla T4"


@needs_root
def test_a_reset_repairs_what_waits_for_it_on_that_gpu_alone(machine: Bench) -> None:
    for gpu in (0, 1):
        machine.play("remap_pending", gpu)
    machine.ask("n.nvmlDeviceSetEccMode(h(), 0)")
    assert machine.ask(RESET.format(gpu=0)) == "0 0"
    rows = "print(n.nvmlDeviceGetRemappedRows(h(1)))"
    pages = "print(n.nvmlDeviceGetRetiredPagesPendingStatus(h()), len(n.nvmlDeviceGetRetiredPages(h(), 1)))"
    assert machine.ask(pages) == "0 1"
    assert machine.ask("print(n.nvmlDeviceGetEccMode(h()), n.nvmlDeviceGetEccMode(h(1)))") == "[0, 0] [1, 1]"
    assert machine.ask(rows).split(", ")[2] == "1"
    assert machine.ask(RESET.format(gpu=1)) == "0 0"
    repaired = machine.ask(rows)
    assert repaired.split(", ")[2] == "0"
    machine.boot(*MODELS)
    assert (machine.ask(pages), machine.ask(rows)) == ("0 1", repaired)


@needs_root
def test_a_reset_is_refused_while_somebody_uses_the_gpu_and_brings_no_lost_gpu_back(machine: Bench) -> None:
    machine.play("remap_pending")
    with machine.load(utilization=50):
        assert machine.ask(RESET.format(gpu=0)) == "999 19"
    with (machine.folder / "clients").open() as client:  # as nvidia-persistenced has it
        fcntl.flock(client, fcntl.LOCK_SH)
        assert machine.ask(RESET.format(gpu=0)) == "999 19"
    machine.play("gpu_lost", 1)
    assert machine.ask(RESET.format(gpu=1)) == "error 15"
    assert machine.ask("print(n.nvmlDeviceGetRetiredPagesPendingStatus(h()))") == "1"


def test_supported_clocks_are_highest_first_and_known_by_memory_clock(machine: Bench) -> None:
    assert machine.ask("print(n.nvmlDeviceGetSupportedMemoryClocks(h()))") == "[5001, 405]"
    graphics = machine.ask("print(n.nvmlDeviceGetSupportedGraphicsClocks(h(), 5001))")
    assert graphics.startswith("[1590, 1575,")
    assert graphics.endswith("300]")
    assert machine.ask("print(n.nvmlDeviceGetSupportedGraphicsClocks(h(), 405))").startswith("[645, 630,")
    assert machine.ask("n.nvmlDeviceGetSupportedGraphicsClocks(h(), 5000)") == "error 2"


def test_a_function_newer_than_the_driver_is_not_there(machine: Bench) -> None:
    assert machine.ask("n.nvmlDeviceGetTemperatureV(h(), 0)") == "error 13"
    machine.boot(*MODELS, version="580.95.05")
    assert machine.ask("print(n.nvmlDeviceGetTemperatureV(h(), 0))") == "34"


def test_a_lost_gpu_is_lost_and_the_other_is_not(machine: Bench) -> None:
    machine.play("gpu_lost")
    assert machine.ask("h(0)") == "error 15"
    assert machine.ask("print(n.nvmlDeviceGetName(h(1)))") == "NVIDIA A100-SXM4-40GB"
    machine.boot(*MODELS)
    assert machine.ask("print(n.nvmlDeviceGetName(h(0)))") == "Tesla T4"


@needs_root
def test_stuck_clocks_say_yes_and_stay(machine: Bench) -> None:
    machine.play("clocks_stuck")
    read = "print(n.nvmlDeviceGetApplicationsClock(h(), 0))"
    assert machine.ask(f"n.nvmlDeviceSetApplicationsClocks(h(), 5001, 1590)\n{read}") == "585"


def test_removed_application_clocks_answer_deprecated(machine: Bench) -> None:
    machine.play("application_clocks_removed")
    assert machine.ask("n.nvmlDeviceGetApplicationsClock(h(), 0)") == "error 26"
    machine.boot(*MODELS)
    assert machine.ask("n.nvmlDeviceGetApplicationsClock(h(), 0)") == "error 26"


def test_a_capped_board_shows_it(machine: Bench) -> None:
    machine.play("power_capped")
    read = "print(n.nvmlDeviceGetEnforcedPowerLimit(h()), n.nvmlDeviceGetCurrentClocksEventReasons(h()))"
    assert machine.ask(read) == "60000 140"


@needs_root
def test_many_processes_change_the_state_at_once(machine: Bench) -> None:
    """The lock holds: twenty writers of two GPUs lose no setting of each other."""
    machine.ask("n.nvmlDeviceSetPersistenceMode(h(0), 1); n.nvmlDeviceSetPersistenceMode(h(1), 1)")
    program = PRELUDE + "[n.nvmlDeviceSetApplicationsClocks(h(0), 5001, m) for m in (585, 600, 1590)]\n"
    other = PRELUDE + "[n.nvmlDeviceSetPowerManagementLimit(h(1), w) for w in (150000, 250000)]\n"
    running = [
        subprocess.Popen([sys.executable, "-c", text], env=machine.environment()) for text in (program, other) * 5
    ]
    assert [process.wait() for process in running] == [0] * 10
    assert machine.ask(
        "print(n.nvmlDeviceGetApplicationsClock(h(0), 0), n.nvmlDeviceGetPowerManagementLimit(h(1)))"
    ) == ("1590 250000")
    assert machine.ask("print(n.nvmlDeviceGetCount())") == "2"
