"""gpuprep trace on the command line."""

from __future__ import annotations

import dataclasses
import gzip
import importlib.util
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import hostiletrace
import pytest
import traceserver
from commandline import own_folders
from records_for_tests import record as host_record
from traceserver import RECORDED

from gpuprep.cli import cli, run_command
from gpuprep.store import Store
from gpuprep.untrusted import plaintext

ONE = RECORDED / "sync-item.json.gz"
OTHER = RECORDED / "sync-none.json.gz"


class Answer(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def gpuprep(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Answer]:
    own_folders(monkeypatch, tmp_path)

    def run(*words: str | Path) -> Answer:
        code = run_command.run(cli, [str(word) for word in words])
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return run


@pytest.mark.parametrize("missing", ["msgspec", "numpy"])
def test_without_the_extra_one_line_says_how_to_get_it(
    gpuprep: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    found = importlib.util.find_spec

    def find(name: str, *more: Any) -> Any:
        return None if name == missing else found(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    answer = gpuprep("trace", "report", "x.json")
    assert answer.code == 2
    assert answer.err.splitlines() == [
        f"Error: `gpuprep trace` needs {missing}, which is not installed",
        "  what to do: pip install 'gpuprep[trace]'   (in gpuprep's own environment)",
    ]


def raw(name: str = "sync-item") -> bytes:
    return gzip.decompress((RECORDED / f"{name}.json.gz").read_bytes())


# ---------------------------------------------------------------- what is no profile, or only a part of one


REFUSED: dict[str, Callable[[Path], Any]] = {
    "nothing there": lambda _path: None,
    "an empty file": lambda path: path.touch(),
    "a folder without a profile": lambda path: path.mkdir(),
    "no JSON": lambda path: path.write_bytes(b"\x00\x01 not a trace \xff" * 100),
    "JSON that is no trace": lambda path: path.write_text(json.dumps({"a": [1, 2, 3]})),
    "a list of numbers": lambda path: path.write_text("[1, 2, 3]"),
    "a gzip that is none": lambda path: path.write_bytes(b"\x1f\x8b" + b"x" * 100),
    "a trace of another program": lambda path: path.write_text(
        json.dumps({"traceEvents": [{"ph": "X", "cat": "browser", "name": "paint", "ts": 1, "dur": 1, "pid": 1}]})
    ),
    "a pipe": lambda path: os.mkfifo(path),
    "another database": lambda path: sqlite3.connect(path).executescript(
        "CREATE TABLE t (x); INSERT INTO t VALUES (1)"
    ),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("command", ["report", "check"])
def test_what_is_no_profile_is_one_clear_line(
    gpuprep: Callable[..., Answer], tmp_path: Path, what: str, command: str
) -> None:
    path = tmp_path / ("x.sqlite" if what == "another database" else "x.json")
    made = REFUSED[what](path)
    if isinstance(made, sqlite3.Cursor):
        made.connection.close()
    answer = gpuprep("trace", command, "-q", path)
    assert (answer.code, answer.out) == (2, "")
    first, *rest = answer.err.splitlines()
    assert first.startswith("Error: ")
    assert "x." in first or "profile" in first
    assert len(rest) <= 1
    assert str(tmp_path) not in answer.err
    asked = json.loads(gpuprep("trace", command, "-q", "--json", path).out)
    assert asked["exit_code"] == 2


def changed(change: Callable[[dict[str, Any]], Any]) -> bytes:
    document = json.loads(raw())
    change(document)
    return json.dumps(document).encode()


def no_gpu(document: dict[str, Any]) -> None:
    gpu = ("kernel", "gpu_memcpy", "gpu_memset")
    document["traceEvents"] = [one for one in document["traceEvents"] if one.get("cat") not in gpu]


def no_steps(document: dict[str, Any]) -> None:
    document["traceEvents"] = [
        one for one in document["traceEvents"] if not str(one.get("name")).startswith("ProfilerStep")
    ]


def amd(document: dict[str, Any]) -> None:
    document.update(hip_driver_version=60342134, hip_runtime_version=60342134)
    for one in document["deviceProperties"]:
        one["name"] = "AMD Instinct MI300X"


def xpu(document: dict[str, Any]) -> None:
    document["deviceProperties"] = []
    for one in document["traceEvents"]:
        if one.get("cat") == "cuda_runtime":
            one["cat"] = "xpu_runtime"


# What is shown of it, and what is said of the rest.
PARTS: dict[str, tuple[bytes, str]] = {
    "torn": (raw()[: len(raw()) // 2], "torn"),
    "torn gzip": (gzip.compress(raw())[:60_000], "torn"),
    "no GPU events": (changed(no_gpu), "GPU"),
    "no steps": (changed(no_steps), "3 iterations (steps found by repetition of kernels)"),
    "an AMD GPU": (changed(amd), "AMD"),
    "XPU": (changed(xpu), ""),
    "control characters in a name": (raw().replace(b'"aten::mm"', b'"aten::mm\x01\x1b[31m"'), ""),
    "a quote in a name": (raw().replace(b'"aten::mm"', b'"aten::"mm"', 3), ""),
    "no UTF-8": (raw().replace(b'"aten::mm"', b'"aten::\xff\xfe"'), ""),
    "N/A": (raw().replace(b'"schemaVersion": 1', b'"schemaVersion": N/A'), ""),
}


@pytest.mark.parametrize("what", PARTS)
def test_what_can_be_read_is_shown_and_the_rest_is_said(
    gpuprep: Callable[..., Answer], tmp_path: Path, what: str
) -> None:
    data, said = PARTS[what]
    path = tmp_path / ("x.json.gz" if data[:2] == b"\x1f\x8b" else "x.json")
    path.write_bytes(data)
    answer = gpuprep("trace", "report", "-q", path, "--full")
    assert answer.code == 0, answer.err
    assert "GPU utilization" in answer.out
    assert said.casefold() in answer.out.casefold()
    assert plaintext.unsafe(answer.out) == ""
    document = json.loads(gpuprep("trace", "report", "-q", "--json", path).out)
    if what == "no GPU events":
        assert document["summary"]["gpu_utilization_percent"] in (None, 0.0)
        assert {"no-gpu"} <= {one["rule"] for one in document["advice"]}
        assert gpuprep("trace", "check", "-q", path).code == 3, "nothing is known, so nothing passes"
    if what.startswith("torn"):
        assert document["file"]["notes"]


def test_an_export_of_a_newer_schema_is_read_and_said(gpuprep: Callable[..., Answer], tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(
        f"""
        CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
        INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '9.0.0'), ('EXPORT_PRODUCT_VERSION', '2031.1');
        CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
        INSERT INTO StringIds VALUES (1, 'sgemm'), (2, 'cudaLaunchKernel_v7000');
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT, correlationId INT,
            globalPid INT, demangledName INT, shortName INT, gridX INT, gridY INT, gridZ INT, blockX INT, blockY INT,
            blockZ INT, somethingNew BLOB);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100, 200, 0, 7, 1, 16777216, 1, 1, 1, 1, 1, 32, 1, 1, x'00');
        CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INT, devStateName TEXT, name TEXT, nameEnum INT, value TEXT);
        INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (1, 'x', 'DeviceEnvironment', 610, 'API={hostiletrace.SECRET}');
        """
    )
    connection.close()
    answer = gpuprep("trace", "report", "-q", "--full", path)
    assert answer.code == 0, answer.err
    assert "sgemm" in answer.out
    assert "9.0.0" in answer.out
    for form in ("json", "markdown", "csv", "junit", "html"):
        assert hostiletrace.SECRET not in gpuprep("trace", "report", "-q", "--format", form, path).out


def test_folders_too_far_below_are_counted(gpuprep: Callable[..., Answer], tmp_path: Path) -> None:
    deep = tmp_path / "a/b/c/d"
    deep.mkdir(parents=True)
    shutil.copy(RECORDED / "ddp-gloo-rank0.json.gz", deep)
    answer = gpuprep("trace", "report", "-q", tmp_path)
    assert answer.code == 2
    assert "only 3 levels are searched" in answer.err
    shutil.copy(RECORDED / "ddp-gloo-rank0.json.gz", tmp_path)
    answer = gpuprep("trace", "report", "-q", tmp_path)
    assert answer.code == 0
    assert "1 folder was not searched: more than 3 levels below the given folder" in " ".join(answer.out.split())


def test_a_folder_of_mixed_files(gpuprep: Callable[..., Answer], tmp_path: Path) -> None:
    for rank in (0, 1):
        shutil.copy(RECORDED / f"ddp-gloo-rank{rank}.json.gz", tmp_path)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "torn.json").write_text('{"traceEvents": [')
    answer = gpuprep("trace", "report", "-q", tmp_path)
    assert answer.code == 0
    assert "2 of 2 ranks" in answer.out
    assert "torn.json" in answer.out
    assert "1 file of the folder is no profile: config.json" in answer.out
    assert "notes.txt" not in answer.out
    for name in ("ddp-gloo-rank1.json.gz", "torn.json"):
        (tmp_path / name).unlink()
    assert "no profile: config.json" in gpuprep("trace", "report", "-q", "--full", tmp_path).out


def test_no_secret_and_no_control_character_reaches_the_terminal(
    gpuprep: Callable[..., Answer], tmp_path: Path
) -> None:
    path = hostiletrace.write(tmp_path / "a.json")
    for words in (("report", "--full"), ("report",), ("check", "-v"), ("report", "--format", "csv")):
        answer = gpuprep("trace", *words, path)
        for said in (answer.out, answer.err):
            assert plaintext.unsafe(said) == "", words
            assert hostiletrace.SECRET not in said
            assert "alice" not in said
    answer = gpuprep("trace", "compare", path, path)
    assert plaintext.unsafe(answer.out + answer.err) == ""


# ---------------------------------------------------------------- report


def test_iterations_and_a_key_op(gpuprep: Callable[..., Answer]) -> None:
    def summary(*words: str) -> dict[str, Any]:
        answer = gpuprep("trace", "report", "-q", "--json", ONE, *words)
        assert answer.code == 0, answer.err
        found: dict[str, Any] = json.loads(answer.out)["summary"]
        return found

    whole, one = summary(), summary("--iter-start", "1", "--iter-stop", "1")
    assert (whole["iterations"], one["iterations"], one["total_iterations"]) == (3, 1, 3)
    assert one["kernels"] < whole["kernels"]
    keyed = summary("--key-op", "aten::item")
    assert "aten::item" in keyed["split_by"]
    for words in (("--iter-start", "3"), ("--iter-start", "2", "--iter-stop", "1"), ("--key-op", "aten::nowhere")):
        answer = gpuprep("trace", "report", "-q", ONE, *words)
        assert answer.code == 2, words
        assert answer.err.startswith("Error: ")


def test_the_name_of_the_profile_is_in_every_export(gpuprep: Callable[..., Answer]) -> None:
    for form in ("text", "json", "csv", "junit", "markdown", "html"):
        assert (
            "before AMP" in gpuprep("trace", "report", "-q", "--format", form, "--profile-name", "before AMP", ONE).out
        )


def test_results_go_to_stdout_or_a_file_and_progress_to_stderr(gpuprep: Callable[..., Answer], tmp_path: Path) -> None:
    answer = gpuprep("trace", "report", ONE)
    assert answer.out.startswith(ONE.name)
    assert "reading" in answer.err
    assert gpuprep("trace", "report", "-q", ONE).err == ""
    written = gpuprep("trace", "report", "-q", ONE, "--output", tmp_path / "a.txt")
    assert written.out == ""
    assert (tmp_path / "a.txt").read_text() == answer.out
    assert gpuprep("trace", "report", ONE, "--output", tmp_path / "no" / "a.txt").code == 2
    workbook = gpuprep("trace", "report", "-q", ONE, "--format", "xlsx", "--output", tmp_path / "a.xlsx")
    assert workbook.code == 0
    assert zipfile.is_zipfile(tmp_path / "a.xlsx")


def test_a_workbook_is_not_shown_on_a_terminal(gpuprep: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    answer = gpuprep("trace", "report", "-q", ONE, "--format", "xlsx")
    assert answer.code == 2
    assert "--output profile.xlsx" in answer.err


def test_a_table_that_there_is_not(gpuprep: Callable[..., Answer]) -> None:
    answer = gpuprep("trace", "report", "-q", ONE, "--format", "csv", "--table", "nonsense")
    assert answer.code == 2
    assert "kernels" in answer.err


def test_a_record_of_the_machine_joins_in(gpuprep: Callable[..., Answer]) -> None:
    made = dataclasses.replace(host_record(), run_id="20261120-100000-abcdef")
    store = Store.open(None)
    store.append(made)
    store.close()
    alone = json.loads(gpuprep("trace", "report", "-q", "--json", ONE).out)["file"]
    answer = gpuprep("trace", "report", "-q", "--json", "--record", "last", ONE)
    assert answer.code == 0, answer.err
    joined = json.loads(answer.out)["file"]
    assert alone["machine"]["GPU driver version"] == "not in the trace"
    assert joined["machine_source"] == f"the trace and the record {made.run_id}"
    snapshot = made.after or made.before
    if snapshot is not None and isinstance(snapshot.driver.loaded_version, str):
        assert joined["machine"]["GPU driver version"] == snapshot.driver.loaded_version
    assert gpuprep("trace", "report", "-q", "--record", "nowhere", ONE).code in (2, 3)


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" | head -1', "sh", *traceserver.GPUPREP, "trace", "report", "-q", "--json", str(ONE)],
        env=traceserver.environment(tmp_path), capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("{\n", "")


# ---------------------------------------------------------------- check and compare


def test_a_check_passes_fails_and_is_not_fooled(gpuprep: Callable[..., Answer]) -> None:
    same = gpuprep("trace", "check", "-q", "-v", ONE, "--baseline", ONE)
    assert "mem-high, mem-low: not judged: The profile has no memory events" in same.out
    assert (same.code, same.out.splitlines()[-1]) == (0, "PASS")
    failed = gpuprep("trace", "check", "-q", ONE)
    assert (failed.code, failed.out.splitlines()[-1]) == (1, "FAIL")
    slower = gpuprep("trace", "check", "-q", ONE, "--baseline", OTHER)
    assert slower.code == 1
    assert "step-time" in slower.out
    allowed = gpuprep("trace", "check", "-q", ONE, "--baseline", ONE, "--within", "0", "--rules", "sync")
    assert allowed.code == 0
    unknown = gpuprep("trace", "check", "-q", ONE, "--rules", "nonsense")
    assert unknown.code == 2
    assert "dataloader" in unknown.err


@pytest.mark.parametrize("rules", ["", " , "])
def test_a_check_of_no_rule_is_a_wrong_input(gpuprep: Callable[..., Answer], rules: str) -> None:
    answer = gpuprep("trace", "check", RECORDED / "sync-item.json.gz", "--rules", rules)
    assert (answer.code, answer.out) == (2, "")
    assert "Error: --rules is empty" in answer.err.splitlines()


def test_a_check_for_programs(gpuprep: Callable[..., Answer]) -> None:
    made = json.loads(gpuprep("trace", "check", "-q", "--json", ONE).out)
    assert (made["status"], made["exit_code"]) == ("FAIL", 1)
    assert gpuprep("trace", "check", "-q", "--format", "junit", ONE).out.count("<failure") >= 1


def test_compare_says_what_changed(gpuprep: Callable[..., Answer]) -> None:
    answer = gpuprep("trace", "compare", "-q", ONE, OTHER)
    assert answer.code == 0
    assert "step time (ms)" in answer.out
    made = json.loads(gpuprep("trace", "compare", "-q", "--json", ONE, OTHER).out)["comparison"]
    assert [one["name"] for one in made["figures"]][:2] == ["iterations", "step time"]
    assert "| step time" in gpuprep("trace", "compare", "-q", "--format", "markdown", ONE, OTHER).out


def test_an_interruption_ends_it_with_130(tmp_path: Path) -> None:
    big = tmp_path / "big.json"
    big.write_bytes(b'{"traceEvents": [' + raw() * 40)
    running = subprocess.Popen(
        [*traceserver.GPUPREP, "trace", "report", str(big)],
        env=traceserver.environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert running.stderr is not None
    assert "reading" in running.stderr.readline()
    os.kill(running.pid, signal.SIGINT)
    running.communicate(timeout=300)
    assert running.returncode == 130


def odd_trace(*, lost: int = 0, long_ns: int = 0, kernels: bool = True) -> dict[str, Any]:
    """Four steps of 100 products on a V100, as public reports describe them: each `lost`th kernel with a time of 0,
    one with a duration that is longer than the step, or no kernel."""
    events: list[dict[str, Any]] = []
    time, correlation = 1_615_207_264_505_000, 0
    for step in range(4):
        begun = time
        for place in range(100):
            correlation += 1
            ids = {"correlation": correlation, "External id": correlation}
            events.append({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 100, "tid": 100, "ts": time,
                           "dur": 40, "args": {"External id": correlation, "Input Dims": [[512, 512], [512, 512]],
                                    "Input type": ["float", "float"]}})  # fmt: skip
            events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 100, "tid": 100,
                           "ts": time + 5, "dur": 6, "args": {"cbid": 211, **ids}})  # fmt: skip
            start, lasts = (0, 0) if lost and place % lost == 0 else (time + 15, 60)
            lasts = long_ns if long_ns and place == 50 else lasts
            if kernels:
                events.append({"ph": "X", "cat": "kernel", "name": "volta_sgemm_64x64_nt", "pid": 0, "tid": 7,
                               "ts": start, "dur": lasts, "args": {"device": 0, "stream": 7, "grid": [8, 8, 1],
                               "block": [64, 1, 1], **ids}})  # fmt: skip
            time += 80
        events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 100, "tid": 100,
                       "ts": begun, "dur": time - begun - 1, "args": {"External id": 0}})  # fmt: skip
    device = {"id": 0, "name": "Tesla V100-SXM2-16GB", "totalGlobalMem": 16_945_512_448, "computeMajor": 7,
              "computeMinor": 0, "numSms": 80}  # fmt: skip
    return {"schemaVersion": 1, "deviceProperties": [device], "traceEvents": events}


# What is odd, the exit code of `trace check`, what `trace check` and `trace report` must say, and what they must not.
ODD: tuple[tuple[str, dict[str, Any], int, list[str], list[str], list[str]], ...] = (
    ("whole", {}, 0, ["gaps", "PASS"], ["GPU utilization 75.0 %"], ["no kernel in the profile"]),
    ("times of 0", {"lost": 3}, 3, ["136 of 400 (34 %) launches have no kernel in the profile"],
     ["136 events with corrupt times"], ["The GPU works in"]),
    ("no kernels", {"kernels": False}, 3, ["400 kernels were launched, and no kernel is in the profile"],
     ["the profiler dropped the GPU's records"], ["There is no GPU work"]),
    ("a duration that is too long", {"long_ns": 1_600_000}, 0, ["gaps", "PASS"],
     ["4 GPU events with corrupt durations"], ["no kernel in the profile"]),
)  # fmt: skip


@pytest.mark.parametrize(
    ("made", "code", "checked", "reported", "never"), [row[1:] for row in ODD], ids=[r[0] for r in ODD]
)
def test_odd_traces_of_public_reports(
    gpuprep: Callable[..., Answer],
    tmp_path: Path,
    made: dict[str, Any],
    code: int,
    checked: list[str],
    reported: list[str],
    never: list[str],
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(odd_trace(**made)), encoding="utf-8")
    ended, report = gpuprep("trace", "check", path), gpuprep("trace", "report", path, "--full")
    assert (ended.code, report.code) == (code, 0), ended.out
    said = " ".join(ended.out.split()), " ".join(report.out.split())
    assert [words for words in checked if words not in said[0]] == [], said[0]
    assert [words for words in reported if words not in said[1]] == [], said[1]
    assert [words for words in never if words in said[0] + said[1]] == []
