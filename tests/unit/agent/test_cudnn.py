"""Convolutions through cuDNN: the reference, which library is loaded, and the judge."""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import math
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agentreadings
import fakeprograms
import goodfigures
import pytest
from builders import finished_snapshot, resolved, with_parts
from places import TESTS
from probereportsfortests import judged as judge
from probereportsfortests import measure
from simulatedboot import Boot, booted, simulated_vm

from gpuprep import checks, records
from gpuprep.agent.compute import convolution

__all__ = ["booted", "simulated_vm"]
RECORDS = TESTS / "cases" / "records"
WANTED = resolved()
HOME = f"{WANTED.cudnn_directory}/lib/libcudnn.so.9.10.2"


# ---------------------------------------------------------------- the reference

SMALL = convolution.Shape(images=2, channels=3, height=4, width=5, filters=2, kernel=3)


def picture(n: int, c: int, y: int, x: int) -> float:
    return n + 2 * c - 3 * y + 0.5 * x


def channels(value: Callable[[int, int, int, int], float]) -> convolution.Channels:
    return lambda number, row, column: [value(number, c, row, column) for c in range(SMALL.channels)]


def weight(k: int, c: int, row: int, column: int) -> float:
    return (k + 1) * (c - 1) + row - 0.25 * column


def by_hand(n: int, k: int, y: int, x: int) -> float:
    total = 0.0
    for c in range(3):
        for row in range(3):
            for column in range(3):
                if 0 <= y + row - 1 < 4 and 0 <= x + column - 1 < 5:
                    total += picture(n, c, y + row - 1, x + column - 1) * weight(k, c, row, column)
    return total


def test_the_reference_is_a_convolution() -> None:
    assert convolution.sampled_error(SMALL, channels(picture), channels(weight), by_hand) < 1e-12


@pytest.mark.parametrize(
    "wrong",
    [
        lambda n, k, y, x: by_hand(n, k, y, x) + (5.0 if (y, x) == (3, 4) else 0.0),  # one corner
        lambda n, k, y, x: by_hand(n, 1 - k, y, x),  # filters in another order
        lambda n, k, y, x: by_hand(n, k, min(y + 1, 3), x),
        lambda n, k, y, x: 0.0,  # noqa: ARG005
    ],
)
def test_wrong_results_are_seen(wrong: Callable[[int, int, int, int], float]) -> None:
    assert convolution.sampled_error(SMALL, channels(picture), channels(weight), wrong) > 0.01


def test_results_that_are_no_numbers_are_infinitely_wrong() -> None:
    assert convolution.sampled_error(SMALL, channels(picture), channels(weight), lambda *_: math.nan) == math.inf


def test_strides_and_size() -> None:
    assert convolution.strides((2, 3, 4, 5), "NCHW") == [60, 20, 5, 1]
    assert convolution.strides((2, 3, 4, 5), "NHWC") == [60, 1, 15, 3]
    assert convolution.SHAPE.operations == 2 * 32 * 64 * 56 * 56 * 64 * 9
    assert str(convolution.SHAPE) == "32x64x56x56 * 64x64x3x3"


# ---------------------------------------------------------------- the library


def test_the_library_is_asked_for_by_its_name() -> None:
    assert agentreadings.cudnn_name("/opt/x/lib/libcudnn.so.9.10.2") == "libcudnn.so.9"
    none = agentreadings.cudnn_name(None)
    assert isinstance(none, records.Missing)
    assert none.reason == "not_installed"
    failed = records.Missing("command_not_found", "ldconfig")
    assert agentreadings.cudnn_name(failed) == failed


@pytest.mark.parametrize(
    ("code", "version", "says"),
    [
        ("unsigned long cudnnGetVersion(void) { return 91002; }", "9.10.2", ""),
        ("unsigned long cudnnGetVersion(void) { return 90100; }", "9.1.0", ""),
        ("unsigned long cudnnGetVersion(void) { return 8907; }", "8.9.7", ""),
        ("unsigned long cudnnGetVersion(void) { return 91400; }", "9.14.0", ""),
        ("#include <stdlib.h>\nunsigned long cudnnGetVersion(void) { abort(); }", None, "command_failed"),
        ("int other;", None, "undefined symbol: cudnnGetVersion"),
    ],
)
def test_the_version_is_the_library_s_own(code: str, version: str | None, says: str, tmp_path: Path) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc here")
    (tmp_path / "cudnn.c").write_text(code + "\n")
    path = tmp_path / "libcudnn.so.9"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(path), str(tmp_path / "cudnn.c")], check=True)
    found = agentreadings.cudnn_version(path)
    if version is None:
        assert isinstance(found, records.Missing)
        assert says in f"{found.reason} {found.detail}"
    else:
        assert found == version


def test_no_file_of_that_name() -> None:
    found = agentreadings.cudnn_version("libcudnn.so.77")
    assert isinstance(found, records.Missing)
    assert "libcudnn.so.77" in found.detail


def test_in_a_simulated_vm_the_library_is_real_and_the_figures_are_the_model_s(
    simulated_vm: Boot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc here")
    simulated_vm("t4")
    (tmp_path / "cudnn.c").write_text("unsigned long cudnnGetVersion(void) { return 91002; }\n")
    path = tmp_path / "libcudnn.so.9"
    made = [compiler, "-shared", "-fPIC", "-Wl,-soname,libcudnn.so.9", "-o", str(path), str(tmp_path / "cudnn.c")]
    subprocess.run(made, check=True)
    fakeprograms.ldconfig(monkeypatch, tmp_path / "bin", path)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))  # of the processes to come
    ctypes.CDLL(str(path))  # this process's own was read at its start; what is loaded is found by its name
    values = measure("cudnn")
    assert isinstance(values, dict)
    assert {"name": "cudnn", "path": str(path), "version": "9.10.2"} in values["libraries"]
    assert [(case["dtype"], case["layout"]) for case in values["convolutions"]] == [
        ("fp16", "NHWC"), ("fp16", "NCHW"), ("fp32", "NHWC"), ("fp32", "NCHW"),
    ]  # fmt: skip
    half, single = values["convolutions"][0], values["convolutions"][2]
    assert half["tflops"] > single["tflops"] > 0
    assert half["tflops"] == pytest.approx(convolution.SHAPE.operations / half["microseconds"] / 1e6, rel=0.01)


@pytest.mark.parametrize(("there", "reason"), [(False, "not_installed"), (True, "command_failed")])
def test_without_a_library_nothing_is_measured(
    there: bool, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = tmp_path / "libcudnn.so.77"
    damaged.touch()
    fakeprograms.ldconfig(monkeypatch, tmp_path / "bin", *([damaged] if there else []))
    found = measure("cudnn")
    assert isinstance(found, records.Missing)
    assert (found.reason, "libcudnn" in found.detail) == (reason, True)


# ---------------------------------------------------------------- the judge


def good() -> dict[str, Any]:
    """A real H200's convolutions, as if through the library that this profile wants."""
    result = records.from_json(records.ProbeResult, (RECORDS / "h200-cudnn.json").read_text())
    assert isinstance(result.values, dict)
    values = copy.deepcopy(result.values)
    values["libraries"] = [{"name": "cudnn", "path": HOME, "version": "9.10.2"}]
    return values


def judged(values: dict[str, Any] | records.Missing) -> list[records.Finding]:
    return judge("cudnn", values, WANTED, finished_snapshot(WANTED))


def bad(values: dict[str, Any] | records.Missing) -> dict[str, records.Finding]:
    return {finding.key: finding for finding in judged(values) if finding.status is not records.Status.PASS}


def test_real_convolutions_pass() -> None:
    assert bad(good()) == {}
    assert [finding.key for finding in judged(good())] == [
        "cudnn.loaded", "cudnn.loaded_version", "cudnn.convolution_fp16_nhwc", "cudnn.convolution_fp16_nchw",
        "cudnn.convolution_fp32_nhwc", "cudnn.convolution_fp32_nchw",
    ]  # fmt: skip


def test_a_finished_host_passes() -> None:
    assert bad(goodfigures.cudnn(WANTED)) == {}


def test_another_library_first() -> None:
    values = {**good(), "libraries": [{"name": "cudnn", "path": "/usr/lib/libcudnn.so.9.14.0", "version": "9.14.0"}]}
    found = bad(values)
    assert set(found) == {"cudnn.loaded", "cudnn.loaded_version"}
    assert found["cudnn.loaded"].status is records.Status.FAIL
    assert "/usr/lib/libcudnn.so.9.14.0 comes first" in found["cudnn.loaded"].reason
    assert "LD_LIBRARY_PATH" in found["cudnn.loaded"].remedy
    assert "loads is 9.14.0, and 9.10.2 is wanted" in found["cudnn.loaded_version"].reason
    del values["libraries"][0]["version"]
    unread = bad(values)["cudnn.loaded_version"]
    assert (unread.status, "no version of the loaded cudnn" in unread.reason) == (records.Status.UNKNOWN, True)


def test_a_second_library_beside_the_right_one() -> None:
    values = good()
    values["libraries"].append({"name": "cudnn", "path": "/opt/x/libcudnn.so.9.1.0", "version": "9.1.0"})
    assert set(bad(values)) == {"cudnn.loaded"}


def test_a_library_as_it_was_found_is_compared_with_the_facts() -> None:
    path = "/usr/lib/x86_64-linux-gnu/libcudnn.so.9.14.0"
    wanted = dataclasses.replace(WANTED, installs=False)
    facts = records.CudnnFacts(path, "9.14.0", "/usr/include/cudnn_version.h", None, None)
    snapshot = dataclasses.replace(finished_snapshot(WANTED), cudnn=facts)
    values = records.from_json(records.ProbeResult, (RECORDS / "h200-cudnn.json").read_text()).values
    assert {f.status for f in judge("cudnn", values, wanted, snapshot)} == {records.Status.PASS}

    def loaded(**changes: Any) -> list[tuple[records.Status, str]]:
        host = dataclasses.replace(snapshot, cudnn=dataclasses.replace(facts, **changes))
        return [(one.status, one.reason) for one in judge("cudnn", values, wanted, host)[:2]]

    (other, why), (version, _) = loaded(library_path="/usr/local/lib/libcudnn.so.9.10.2")
    assert (other, version) == (records.Status.FAIL, records.Status.PASS)
    assert f"{path} comes first" in why
    unread = records.Missing("command_failed", "ldconfig: no")
    (other, why), (version, _) = loaded(library_path=unread)
    assert (other, version) == (records.Status.UNKNOWN, records.Status.PASS)
    assert "ldconfig: no" in why
    assert [status for status, _ in loaded(version=None)] == [records.Status.PASS, records.Status.UNKNOWN]
    assert [status for status, _ in loaded(version="9.10.2")] == [records.Status.PASS, records.Status.FAIL]


def test_of_its_own_library_gpuprep_knows_the_folder_without_the_facts() -> None:
    host = finished_snapshot(WANTED)
    unread = dataclasses.replace(host.cudnn, library_path=records.Missing("command_failed", "no"))
    found = judge("cudnn", good(), WANTED, dataclasses.replace(host, cudnn=unread))
    assert {one.status for one in found} == {records.Status.PASS}


def test_wrong_results_and_failures_are_named() -> None:
    values = good()
    values["convolutions"][0]["max_relative_error"] = 0.2
    values["convolutions"][1]["error"] = "No valid execution plans built."
    values["convolutions"][2]["max_relative_error"] = {"missing": "command_failed", "detail": "?"}
    found = bad(values)
    assert found["cudnn.convolution_fp16_nhwc"].status is records.Status.FAIL
    assert "off by 0.2 of its largest value" in found["cudnn.convolution_fp16_nhwc"].reason
    assert found["cudnn.convolution_fp16_nchw"].status is records.Status.FAIL
    assert "No valid execution plans" in found["cudnn.convolution_fp16_nchw"].reason
    assert found["cudnn.convolution_fp32_nhwc"].status is records.Status.UNKNOWN
    assert all(finding.remedy for finding in found.values())


@pytest.mark.parametrize(
    "values",
    [records.Missing("not_installed", "cudnn"), {}, {"libraries": [], "convolutions": []}],
)
def test_no_evidence_is_unknown(values: dict[str, Any] | records.Missing) -> None:
    found = judged(values)
    assert {finding.status for finding in found} == {records.Status.UNKNOWN}
    assert all(finding.reason and finding.remedy for finding in found)


def test_a_profile_without_cudnn_is_not_judged() -> None:
    without = with_parts(WANTED, cudnn={"version": "none"})
    assert judge("cudnn", good(), without, finished_snapshot(WANTED)) == []


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"tflops": 18220.0, "microseconds": 0.4061}, "more than the peak"),
        ({"tflops": 18.2}, "µs are 182 TFLOPS, and 18.2"),
        ({"microseconds": 4.061}, "TFLOPS, and 182"),
        ({"microseconds": None}, "not recorded"),
        ({"shape": "1x1x1x1 * 1x1x1x1"}, "the probe's is 32x64x56x56"),
        ({"max_relative_error": 0.0}, "always round"),
        ({"layout": "NCDHW"}, "no convolution in fp16 NCDHW"),
    ],
)
def test_figures_of_a_convolution_that_cannot_be(values: dict[str, Any], words: str) -> None:
    record = good()
    record["convolutions"][0].update(values)
    found = bad(record)
    assert {finding.status for finding in found.values()} == {records.Status.UNKNOWN}
    assert any(words in finding.reason for finding in found.values()), found


def assert_named_as_impossible(record: dict[str, Any]) -> None:
    result = records.ProbeResult("cudnn", records.Source.MEASURED, record, 1.0)
    findings = checks.compare_figures(WANTED, finished_snapshot(WANTED), [result], asked=["cudnn"])
    assert [one.status for one in findings if one.key == "cudnn.figures"] == [records.Status.UNKNOWN]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e15, 10**400, -1.0])
@pytest.mark.parametrize("figure", ["max_relative_error", "tflops", "microseconds"])
def test_figures_of_a_convolution_that_are_none(figure: str, value: float) -> None:
    record = good()
    record["convolutions"][0][figure] = value
    found = bad(record)
    if isinstance(value, float):
        assert_named_as_impossible(record)
    # An error that is no number is a wrong result, as of matrix products.
    wrong = records.Status.FAIL if figure == "max_relative_error" else records.Status.UNKNOWN
    assert found["cudnn.convolution_fp16_nhwc"].status is wrong


def test_a_record_s_own_tolerance_is_not_believed() -> None:
    record = good()
    record["convolutions"][0].update(max_relative_error=0.2, error_tolerance=0.5)
    assert bad(record)["cudnn.convolution_fp16_nhwc"].status is records.Status.FAIL
    record["convolutions"][0].update(max_relative_error=0.0003, error_tolerance={"missing": "not_read"})
    assert bad(record) == {}


def test_a_convolution_that_is_recorded_twice() -> None:
    record = good()
    record["convolutions"].append({**record["convolutions"][0], "max_relative_error": 0.5})
    assert {key: finding.status for key, finding in bad(record).items()} == {"cudnn.entries": records.Status.UNKNOWN}
