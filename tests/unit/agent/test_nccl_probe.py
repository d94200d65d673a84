"""The nccl probe: its formulas, its worker with stand-ins for CUDA and NCCL, hangs and crashes, and simulated VMs."""

from __future__ import annotations

import enum
import itertools
import types
from pathlib import Path
from typing import Any

import fakenccl
import pytest
from fakepynvml import install
from ncclrecords import judged
from probereportsfortests import measure, plain
from samplerows import loaded_answers
from simulatedboot import Boot, booted, simulated_vm

from gpuprep import records
from gpuprep.agent.compute import ncclplan
from gpuprep.checks import common
from gpuprep.sim import faults

__all__ = ["booted", "simulated_vm"]


# ---------------------------------------------------------------- formulas and sizes


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    """The example of its PERFORMANCE.md, and what it says of each collective."""
    assert ncclplan.bus_factor("all_reduce", 8) == 2 * 7 / 8
    assert ncclplan.bus_factor("all_gather", 8) == ncclplan.bus_factor("reduce_scatter", 8) == 7 / 8
    algbw, busbw = ncclplan.speeds("all_reduce", 2**30, 2, 0.003)
    assert algbw == busbw == pytest.approx(2**30 / 0.003 / 1e9)


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8, 16])
@pytest.mark.parametrize("operation", ncclplan.OPERATIONS)
def test_sizes_are_shared_evenly(operation: str, ranks: int) -> None:
    found = [ncclplan.fitted(operation, size, ranks) for size in ncclplan.SIZES]
    assert found == sorted(found)
    for size, fitted in zip(ncclplan.SIZES, found, strict=True):
        parts = 1 if operation == "all_reduce" else ranks
        assert fitted % (4 * parts) == 0
        assert fitted <= max(size, 4 * parts)
        assert fitted > 0.9 * size or size < 2048
    assert ncclplan.sizes(False, ncclplan.SIZES[-1])[0] == 8
    assert ncclplan.sizes(False, ncclplan.SIZES[-1])[-1] == 4 * 2**30
    assert set(ncclplan.QUICK_SIZES) <= set(ncclplan.SIZES)


LOG = """
vm:1:9 [0] NCCL INFO Channel 00/24 : 0 1
vm:1:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
vm:1:9 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM/read
vm:1:9 [0] NCCL INFO Channel 02/0 : 0[0] -> 1[1] via SHM/direct/direct
vm:1:9 [0] NCCL INFO 24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer
vm:1:9 [0] misc/socket.cc:5 NCCL WARN the first
vm:1:9 [0] misc/socket.cc:6 NCCL WARN {long}
"""


def test_what_the_log_tells() -> None:
    told = fakenccl.log_told(LOG.format(long="x" * 1000))
    transports = [{"name": "P2P/CUMEM", "count": 2}, {"name": "SHM/direct", "count": 1}]
    assert told["chosen"] == {"channels": 24, "nvls_channels": 16, "transports": transports}
    assert told["warnings"][0] == "the first"
    assert len(told["warnings"][1]) == 300
    assert fakenccl.log_told("") == fakenccl.log_told(records.Missing("no_permission")) == {}
    assert fakenccl.log_told("nothing of NCCL")["chosen"] == {"transports": []}


# ---------------------------------------------------------------- the worker, with stand-ins


def machine(monkeypatch: pytest.MonkeyPatch, gpus: int) -> Any:
    """GPUs that NVML shows; without NVLink, and nobody else on them."""
    answers: dict[str, Any] = {
        **loaded_answers(),
        "nvmlDeviceGetCount": gpus,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": fakenccl.uuid,
        "nvmlDeviceGetPciInfo": lambda index: types.SimpleNamespace(
            busId=f"00000000:0{index}:00.0", pciDeviceId=0x1EB810DE, pciSubSystemId=0x12A210DE
        ),
        **{f"nvmlDeviceGet{kind}RunningProcesses": [] for kind in ("Compute", "Graphics")},
    }
    return install(monkeypatch, answers)


def measured(**arguments: Any) -> dict[str, Any]:
    return plain("nccl", measure("nccl", **arguments))


@pytest.mark.parametrize("gpus", [2, 3, 8])
def test_every_collective_in_every_size_is_right(gpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakenccl.install(monkeypatch, tmp_path, gpus=gpus)
    machine(monkeypatch, gpus)
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.setenv("NCCL_VERSION", "2.28.3-1")
    values = measured()
    assert (values["error"], values["stopped"], values["version"]) == (None, None, "2.28.9")
    assert values["libraries"] == [{"name": "nccl", "path": str(tmp_path / "libnccl.so.2"), "version": "2.28.9"}]
    assert values["environment"] == [{"name": "NCCL_ALGO", "value": "Ring"}]
    assert values["most_bytes"] == fakenccl.MIB // 2
    sizes = ncclplan.sizes(False, fakenccl.MIB // 2)
    assert [(point["operation"], point["bytes"]) for point in values["points"]] == [
        (operation, ncclplan.fitted(operation, size, gpus))
        for operation, size in itertools.product(ncclplan.OPERATIONS, sizes)
    ]
    assert {point["wrong"] for point in values["points"]} == {0}
    assert all(point["checked"] == ncclplan.results(point["operation"], point["bytes"], gpus)
               for point in values["points"])  # fmt: skip
    assert all(point["microseconds"] > 0 for point in values["points"])
    assert [gpu["index"] for gpu in values["gpus"]] == list(range(gpus))
    assert all(gpu["other_processes"] == [] and "event_reasons" in gpu for gpu in values["gpus"])


@pytest.mark.parametrize(("fault", "operations"), [("wrong", set(ncclplan.OPERATIONS)), ("swaps", {"all_gather"})])
def test_wrong_results_are_counted(
    fault: str, operations: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakenccl.install(monkeypatch, tmp_path)
    machine(monkeypatch, 2)
    monkeypatch.setenv("FAKE_NCCL", fault)
    values = measured(quick=True)
    assert {point["operation"] for point in values["points"] if point["wrong"]} == operations
    assert {one.property: one.status for one in judged(values)}["results"] is records.Status.FAIL


def test_a_hang_ends_and_keeps_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakenccl.install(monkeypatch, tmp_path)
    machine(monkeypatch, 2)
    fakenccl.hangs(monkeypatch, tmp_path, "hangs later")
    values = measured(quick=True)
    assert values["stopped"]["doing"] == "all_gather of 8 B"
    assert 59 <= values["stopped"]["seconds"] <= 61
    assert {point["operation"] for point in values["points"]} == {"all_reduce"}
    found = {one.property: one for one in judged(values)}
    assert found["answers"].status is records.Status.UNKNOWN
    assert "no answer in 60 s while all_gather of 8 B" in found["answers"].reason


def test_a_hang_before_the_first_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakenccl.install(monkeypatch, tmp_path)
    machine(monkeypatch, 2)
    fakenccl.hangs(monkeypatch, tmp_path, "hangs")
    values = measured(quick=True)
    assert "ncclCommInitAll" in values["stopped"]["doing"]
    assert values["points"] == []


@pytest.mark.parametrize(("number", "words"), [(21805, "2.18.5"), (2708, "2.7.8"), (20903, "2.9.3")])
def test_versions(number: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakenccl.install(monkeypatch, tmp_path)
    machine(monkeypatch, 2)
    monkeypatch.setenv("FAKE_NCCL", "refuses")
    monkeypatch.setenv("FAKE_NCCL_VERSION", str(number))
    assert measured(quick=True)["version"] == words


def test_nccl_s_own_error_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakenccl.install(monkeypatch, tmp_path)
    machine(monkeypatch, 2)
    monkeypatch.setenv("FAKE_NCCL", "refuses")
    assert measured()["error"] == "ncclCommInitAll: unhandled system error (a link is down)"


def test_a_crash_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakenccl.install(monkeypatch, tmp_path)
    machine(monkeypatch, 2)
    monkeypatch.setenv("FAKE_NCCL", "dies")
    values = measured()
    assert values["error"].startswith("the process that calls NCCL ended with code -9 while making the communicators")


def test_the_worker_is_copied_before_nvml_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a later copy NCCL crashed on two real H100."""
    asked = machine(monkeypatch, 2).asked  # the worker has its own copy of this list
    fakenccl.install(monkeypatch, tmp_path, initialised=lambda: 1 if asked else 0)
    values = measured(quick=True)
    assert asked
    assert (values["error"], len(values["points"]) > 0) == (None, True)


def test_a_gpu_that_cuda_does_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakenccl.install(monkeypatch, tmp_path, gpus=2)
    machine(monkeypatch, 3)
    assert "CUDA shows no device" in measured()["error"]


def test_cuda_that_does_not_start_is_said_with_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = enum.IntEnum("started", {"CUDA_ERROR_NOT_INITIALIZED": 3})
    fakenccl.install(monkeypatch, tmp_path, initialised=lambda: started.CUDA_ERROR_NOT_INITIALIZED)
    machine(monkeypatch, 2)
    answer = measure("nccl")
    assert answer == records.Missing("cuda_not_started", "cuInit: CUDA_ERROR_NOT_INITIALIZED")
    finding = common.unknown("gpu 0", "gemm", answer, expected="measured")
    assert finding.status is records.Status.UNKNOWN
    assert "uvm_disable_hmm=1" in finding.remedy


def test_without_nccl_or_bindings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 2)
    nothing = measure("nccl")
    assert isinstance(nothing, records.Missing)
    assert "has no cuda" in nothing.detail
    fakenccl.install(monkeypatch, tmp_path)
    (tmp_path / "libnccl.so.2").unlink()
    nothing = measure("nccl")
    assert isinstance(nothing, records.Missing)
    assert (nothing.reason, "the loader finds no NCCL" in nothing.detail) == ("not_installed", True)


def test_one_gpu_needs_no_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 1)
    values = measured()
    assert (values["points"], len(values["gpus"])) == ([], 1)
    assert {one.status for one in judged(values)} == {records.Status.SKIP}


# ---------------------------------------------------------------- simulated


@pytest.mark.parametrize("key", ["t4", "v100", "a100", "h200"])
@pytest.mark.parametrize("quick", [True, False])
def test_simulated_machines_pass(key: str, quick: bool, simulated_vm: Boot) -> None:
    simulated_vm(key, key)
    values = measured(quick=quick)
    assert values["libraries"] == []
    assert {one.key: one.reason for one in judged(values, key) if one.status is not records.Status.PASS} == {}


def test_a_simulated_link_that_is_down_fails(simulated_vm: Boot) -> None:
    simulated_vm("h200", "h200", **faults.kinds()["nvlink_down"]["present"])
    found = {one.property: one.status for one in judged(measured())}
    assert found["all_reduce"] is records.Status.FAIL


def test_a_simulated_gpu_that_is_lost(simulated_vm: Boot) -> None:
    simulated_vm("a100", "a100", fault_gpu_lost=1)
    values = measured()
    assert "GPU 0 is lost" in values["error"]
    assert records.Status.PASS not in {one.status for one in judged(values, "a100")}
