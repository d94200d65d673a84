"""The toolkit: what the compiled program says, who may read the counters, and how both are judged."""

from __future__ import annotations

import copy
import json
import os
import pwd
import sys
from pathlib import Path
from typing import Any

import agentreadings
import fakeprograms
import pytest
from agentreadings import counters_answer
from builders import finished_snapshot, resolved, with_parts
from places import TESTS
from probereportsfortests import judged, measure
from simulatedboot import Boot, booted, simulated_vm

from gpuprep import records

__all__ = ["booted", "simulated_vm"]
RECORDS = TESTS / "cases" / "records"
WANTED = with_parts(resolved("h200", gpus=["h200"]), cuda={"version": "13.0"})
COMPILER = "host compiler: gcc 14.2.0\n"


# ---------------------------------------------------------------- the program


def probed(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> dict[str, Any]:
    """The probe with an nvcc whose result is this script."""
    fakeprograms.program(folder / "program", program)
    copies = f'case "$1" in --version) echo "release 12.4, V12.4.131"; exit;; esac; cp {folder}/program "$2"'
    fakeprograms.program(folder / "nvcc", copies)
    fakeprograms.login(monkeypatch, folder / "home", f"{folder}:/usr/bin:/bin")
    found = measure("toolkit")
    assert isinstance(found, dict)
    assert found["compiles"], found
    return found


@pytest.mark.parametrize(
    ("said", "runs", "output"),
    [
        (COMPILER + "right\n", True, ""),
        (COMPILER + "cudaMalloc: cudaErrorNoDevice (no CUDA-capable device)\n", False,
         "cudaMalloc: cudaErrorNoDevice (no CUDA-capable device)"),
        (COMPILER + "element 7 is 7, and must be 14\n", False, "element 7 is 7, and must be 14"),
        (COMPILER, False, ""),
        ("", False, ""),
    ],
)  # fmt: skip
def test_what_the_program_says(
    said: str, runs: bool, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "said").write_text(said)
    found = probed(tmp_path, monkeypatch, f"cat {tmp_path}/said; exit {int(not runs)}")
    assert (found["runs"], found["run_output"]) == (runs, output)
    assert found["host_compiler"] == "gcc 14.2.0" if said else found["host_compiler"]["missing"] == "unparsable"


@pytest.mark.parametrize(("program", "says"), [("sleep 3600", "longer than"), ("kill -SEGV $$", "exit code -11")])
def test_a_program_that_hangs_or_dies_is_missing(
    program: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agentreadings.seconds_of_the_toolkits_program(monkeypatch, 0.3 if "sleep" in program else 300)
    found = probed(tmp_path, monkeypatch, program)
    assert found["runs"]["missing"] == "command_failed"
    assert says in found["runs"]["detail"]


@pytest.mark.parametrize(("fault", "runs"), [({}, True), ({"fault_gpu_lost": 1}, False)])
def test_in_a_simulated_vm_the_gpu_s_part_is_the_model_s(
    fault: dict[str, int], runs: bool, simulated_vm: Boot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated_vm("t4", **fault)
    program = "echo host compiler: gcc 12.2.0; echo cudaMalloc: cudaErrorNoDevice; exit 1"
    found = probed(tmp_path, monkeypatch, program)
    assert (found["runs"], found["host_compiler"]) == (runs, "gcc 12.2.0")


# ---------------------------------------------------------------- counters


# What stands for CUPTI's answer: a code for each user. Whether it may use the GPU is told, too.
SAYS = """
import json, os, sys
code = {codes}.get("root" if os.getuid() == 0 else "nobody")
print(json.dumps({{"version": 22, "stage": sys.argv[1] + " " + sys.argv[2], "name": "", "code": code}}))
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """CUPTI as the loader finds it."""
    path = tmp_path / "libcupti.so.12"
    path.touch()
    fakeprograms.ldconfig(monkeypatch, tmp_path / "bin", path)
    return path


def asked(monkeypatch: pytest.MonkeyPatch, *, simulated: bool = False, **codes: int) -> dict[str, Any]:
    """`codes`: what CUPTI answers by user."""
    found = counters_answer(monkeypatch, SAYS.format(codes=codes), simulated=simulated)
    assert isinstance(found, dict)
    json.dumps(found)
    return found


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")
def test_counters_for_everybody_for_root_and_for_nobody(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = asked(monkeypatch, nobody=0)
    assert (free["path"], free["counters"], free["as_user"], free["version"]) == (str(library), True, "nobody", 22)
    assert "counters_as_root" not in free
    restricted = asked(monkeypatch, nobody=35, root=0)
    assert restricted["detail"] == f"insufficient privileges ({library} gpu: )"
    assert (restricted["counters"], restricted["counters_as_root"]) == (False, True)
    broken = asked(monkeypatch, nobody=26, root=26)
    assert broken["counters"]["missing"] == broken["counters_as_root"]["missing"] == "command_failed"


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(("code", "refused"), [(35, True), (40, True), (26, False), (27, False), (-1, False)])
def test_refused_is_told_from_other_errors(code: int, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(monkeypatch, nobody=code, root=code)
    assert found["counters"] is False if refused else found["counters"]["missing"] == "command_failed"
    assert ("insufficient privileges" in found["detail"]) == refused
    assert " gpu: " in found["detail"]


def test_a_file_that_is_no_library_is_named(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = counters_answer(monkeypatch)
    assert found["counters"]["missing"] == "command_failed"
    assert found["detail"].startswith(f"dlopen: {library}")


@pytest.mark.usefixtures("library")
@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")
def test_root_asks_as_an_ordinary_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    who = "import json, os; print(json.dumps({'code': 0, 'stage': '', 'name': '', 'version': os.getresuid()}))"
    assert set(counters_answer(monkeypatch, who)["version"]) == {pwd.getpwnam("nobody").pw_uid}
    hidden = tmp_path / "python3"
    hidden.symlink_to("/root/no-such-python")
    monkeypatch.setattr(sys, "executable", str(hidden))
    assert counters_answer(monkeypatch, who)["counters"] is True  # the system's python3 answers then


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("said", ["", "Traceback\n", '["a list"]\n', '{"no": "code"}\n'])
def test_an_answer_that_is_none(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = counters_answer(monkeypatch, f"print({said!r}, end='')")
    assert found["counters"]["missing"] == found["version"]["missing"] == "unparsable"


def test_no_cupti(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakeprograms.ldconfig(monkeypatch, tmp_path)
    found = counters_answer(monkeypatch)
    assert isinstance(found, records.Missing)
    assert found.reason == "not_installed"


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("parameters", "readable"),
    [("RmProfilingAdminOnly: 1\n", False), ("RmProfilingAdminOnly: 0\n", True), (None, None)],
)
def test_a_simulated_gpu_s_counters_are_the_driver_s_parameter(
    parameters: str | None, readable: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agentreadings.driver_parameters(monkeypatch, tmp_path)
    if parameters:
        (tmp_path / "params").write_text(parameters)
    found = asked(monkeypatch, simulated=True, nobody=0, root=0)
    if readable is None:
        assert found["counters"]["missing"] == "driver_not_loaded"
    else:
        assert (found["counters"], found["version"]) == (readable, 22)


# ---------------------------------------------------------------- the judge


def real() -> dict[str, Any]:
    result = records.from_json(records.ProbeResult, (RECORDS / "h200-toolkit.json").read_text())
    assert isinstance(result.values, dict)
    return copy.deepcopy(result.values)


def bad(values: dict[str, Any] | records.Missing, **wanted: Any) -> dict[str, records.Finding]:
    findings = judged("toolkit", values, with_parts(WANTED, **wanted), finished_snapshot(WANTED))
    return {finding.key: finding for finding in findings if finding.status is not records.Status.PASS}


def test_a_real_toolkit_passes() -> None:
    assert bad(real()) == {}


REFUSED = {"path": "/usr/lib/libcupti.so.13", "version": 130001, "counters": False, "as_user": "nobody",
           "detail": "insufficient privileges (cuptiProfilerInitialize: …)"}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "key", "status", "says", "remedy"),
    [
        ({"cupti": REFUSED}, "cupti.counters", records.Status.FAIL, "nobody may not read", "NVreg_RestrictProfiling"),
        ({"cupti": {"missing": "not_installed"}},
         "cupti.counters", records.Status.UNKNOWN, "not installed", "measure again"),
        ({"cupti": {**REFUSED, "counters": {"missing": "command_failed", "detail": "CUPTI_ERROR_HARDWARE_BUSY"}}},
         "cupti.counters", records.Status.UNKNOWN, "HARDWARE_BUSY", "measure again"),
        ({"runs": False, "run_output": "cudaMalloc: cudaErrorInsufficientDriver (too old)"},
         "cuda.runs", records.Status.FAIL, "cudaErrorInsufficientDriver", "newer driver"),
        ({"runs": False, "run_output": "element 7 is 7, and must be 14"},
         "cuda.runs", records.Status.FAIL, "element 7", ""),
        ({"runs": {"missing": "command_failed", "detail": "60 s over"}},
         "cuda.runs", records.Status.UNKNOWN, "60 s", ""),
        ({"runs": None}, "cuda.runs", records.Status.UNKNOWN, "says nothing of runs", ""),
        ({"cupti": None}, "cupti.counters", records.Status.UNKNOWN, "says nothing of counters", ""),
        ({"version": "12.4"}, "cuda.compiler", records.Status.FAIL, "CUDA 12.4", ""),
    ],
)  # fmt: skip
def test_what_does_not_work_is_named(
    changed: dict[str, Any], key: str, status: records.Status, says: str, remedy: str
) -> None:
    found = bad({**real(), **changed})
    assert set(found) == {key}
    assert found[key].actual not in ("readable", "yes")
    assert (found[key].status, says in found[key].reason) == (status, True), found[key].reason
    assert found[key].remedy
    assert remedy in found[key].remedy


def test_what_does_not_compile_is_not_run() -> None:
    found = bad({**real(), "compiles": False, "output": "a\nnvcc fatal: x", "runs": {"missing": "not_supported"}})
    assert set(found) == {"cuda.compiles"}
    assert "nvcc fatal: x" in found["cuda.compiles"].reason


def test_restricted_counters_may_be_wished() -> None:
    found = bad({**real(), "cupti": REFUSED}, tuning={"profiling_counters": "restricted"})
    assert {key: finding.status for key, finding in found.items()} == {"cupti.counters": records.Status.SKIP}


def test_without_evidence_nothing_passes() -> None:
    assert {finding.status for finding in bad(records.Missing("command_failed", "no answer")).values()} == {
        records.Status.UNKNOWN
    }
    assert {finding.status for finding in bad({}).values()} == {records.Status.UNKNOWN}
