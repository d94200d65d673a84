"""The host against its own past: what becomes its baseline, what is compared, and where the borders are."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import bare_snapshot, load
from gemmrecords import gemm, gpu, values
from judgedrecords import nights_can_compare
from records_for_tests import record

from gpuprep import checks, records
from gpuprep.checks import drift
from gpuprep.desired import profile, state
from gpuprep.records import baseline
from gpuprep.store import Store

HOST = dataclasses.replace(bare_snapshot(gpus=("a100",)), source=records.Source.MEASURED)
WANTED = state.resolve(load("a100"), HOST, judging=True)
THEN = "2026-11-01T02:30:00+00:00"


def measured(
    *tflops: float, source: records.Source = records.Source.MEASURED, **changed: Any
) -> list[records.ProbeResult]:
    gemms = [gemm(dtype, value) for dtype, value in zip(("fp16", "bf16"), tflops, strict=False)]
    return [records.ProbeResult("gemm", source, values(gpu("20b0", gemms), **changed), 10.0)]


def past(of: baseline.Measured) -> baseline.Baseline:
    return {
        key: {name: baseline.BaselineFigure(value, "run-1", THEN) for name, value in figures.items()}
        for key, figures in of.items()
    }


def history(
    then: list[records.ProbeResult], now: list[records.ProbeResult], host: records.Snapshot = HOST
) -> list[records.Finding]:
    known = past(checks.comparable(HOST, then))
    thresholds = load("a100").thresholds
    found = checks.compare_figures(WANTED, host, now, asked=["gemm"], thresholds=thresholds, baseline=known)
    return [finding for finding in found if finding.property.endswith("_history")]


def test_what_a_run_can_be_compared_by() -> None:
    ((key, figures),) = checks.comparable(HOST, measured(280.0, 266.0)).items()
    assert key == baseline.BaselineKey("GPU-0", "gemm", f"gpuprep {HOST.agent_version}, cublasLt 12.4.5, quick")
    assert figures == {"fp16 8192x8192x8192 TN": 280.0, "bf16 8192x8192x8192 TN": 266.0}


@pytest.mark.parametrize(
    ("now", "status"),
    [
        (300.0, "PASS"), (280.0, "PASS"), (266.1, "PASS"), (266.0, "WARN"), (252.1, "WARN"), (252.0, "FAIL"),
        (100.0, "FAIL"),
    ],
)  # fmt: skip
def test_five_per_cent_warn_and_ten_fail(now: float, status: str) -> None:
    (finding,) = history(measured(280.0, 266.0), measured(now, 266.0))
    assert finding.status.value == status
    if status != "PASS":
        change = 100 * (now / 280 - 1)
        assert f"fp16 8192x8192x8192 TN {now:.0f}, was 280 ({change:+.1f} %)" in finding.reason
        assert "in run run-1 (2026-11-01)" in finding.reason
        assert "bf16" not in finding.reason
        assert finding.remedy


@pytest.mark.parametrize(
    ("now", "spread", "status"),
    [(262.0, 4.0, "WARN"), (262.0, 6.0, "PASS"), (240.0, 8.0, "WARN"), (200.0, 8.0, "FAIL")],
)
def test_a_figure_that_varied_is_slower_only_by_more_than_that(now: float, spread: float, status: str) -> None:
    """280 before; 262 is 6.4 % less, 240 is 14.3 % less, 200 is 28.6 % less."""
    gemms = [gemm("fp16", now, rel_stdev_percent=spread)]
    (finding,) = history(
        measured(280.0), [records.ProbeResult("gemm", records.Source.MEASURED, values(gpu("20b0", gemms)), 10.0)]
    )
    assert finding.status.value == status
    assert f"({100 * (now / 280 - 1):+.1f} %)" in finding.actual


def test_thresholds_are_the_profiles() -> None:
    known = past(checks.comparable(HOST, measured(280.0)))
    loose = {
        **load("a100").thresholds,
        "history_warn_percent": profile.Threshold(30),
        "history_fail_percent": profile.Threshold(40),
    }
    found = checks.compare_figures(WANTED, HOST, measured(220.0), asked=["gemm"], thresholds=loose, baseline=known)
    (finding,) = (f for f in found if f.property == "gemm_history")
    assert (finding.status, finding.expected) == (
        records.Status.PASS,
        "less than 30 % below its baseline (profile a100)",
    )


def test_a_simulated_run_is_no_baseline_and_has_none() -> None:
    assert checks.comparable(HOST, measured(280.0, source=records.Source.SIMULATED)) == {}
    assert checks.comparable(dataclasses.replace(HOST, source=records.Source.SIMULATED), measured(280.0)) == {}


def test_other_libraries_have_another_baseline() -> None:
    newer = measured(200.0, libraries=[{"name": "cublasLt", "path": "/x", "version": "13.1.0"}])
    assert set(checks.comparable(HOST, newer)) & set(checks.comparable(HOST, measured(280.0))) == set()
    assert (
        set(checks.comparable(HOST, measured(1.0, quick=False))) & set(checks.comparable(HOST, measured(1.0))) == set()
    )


def test_quick_full_and_unknown_depth_are_never_compared() -> None:
    runs: dict[bool | None, list[records.ProbeResult]] = {
        depth: measured(280.0, quick=depth) for depth in (True, False, None)
    }
    keys = {depth: next(iter(checks.comparable(HOST, probed))) for depth, probed in runs.items()}
    assert len(set(keys.values())) == 3
    for then in runs:
        for now in runs:
            slower = [dataclasses.replace(one, values=_slower(one.values)) for one in runs[now]]
            found = history(runs[then], slower)
            assert [one.status for one in found] == ([records.Status.FAIL] if then is now else [records.Status.SKIP]), (
                then,
                now,
            )


def _slower(values: Any) -> Any:
    changed = copy.deepcopy(values)
    changed["gpus"][0]["gemms"][0]["tflops"] = 140.0
    return changed


def test_a_version_that_a_host_made_up_is_no_depth() -> None:
    library = {"name": "cublasLt", "path": "/x", "version": "12.4.5, quick"}
    (key,) = checks.comparable(HOST, measured(280.0, quick=False, libraries=[library]))
    assert key.versions.split(", ")[1:] == ["cublasLt 12.4.5; quick"]


def test_figures_that_do_not_count_are_no_baseline() -> None:
    assert (
        checks.comparable(
            HOST, [records.ProbeResult("gemm", records.Source.MEASURED, records.Missing("command_failed"), 1.0)]
        )
        == {}
    )
    shared = values(gpu("20b0", [gemm("fp16", 280.0)], other_processes=[{"pid": 1}]))
    unsteady = values(gpu("20b0", [gemm("fp16", 280.0, rel_stdev_percent=40.0)]))
    for doubtful in (shared, unsteady, values(gpu("20b0", [gemm("fp16", 280.0)], uuid="")), {"gpus": 3}):
        assert checks.comparable(HOST, [records.ProbeResult("gemm", records.Source.MEASURED, doubtful, 1.0)]) == {}


def test_what_is_no_longer_measured_is_not_compared() -> None:
    (finding,) = history(
        measured(280.0), [records.ProbeResult("gemm", records.Source.MEASURED, records.Missing("gpu_is_lost"), 1.0)]
    )
    assert finding.status is records.Status.SKIP


def test_bandwidth_and_throughput_have_a_past_too() -> None:
    one = {"uuid": "GPU-0", "index": 0}
    bandwidth = {"gpus": [{**one, "copy_gb_per_s": 1371.0, "h2d_gb_per_s": 25.9, "read_gb_per_s": {"missing": "x"}}]}
    series = {
        "kind": "decode",
        "codec": "h264",
        "width": 1920,
        "height": 1080,
        "steps": [{"fps": 500.0}, {"fps": 900.0}],
    }
    throughput = {"gpu": one, "ffmpeg": {"version": "7.1.5"}, "series": [series]}
    results = [
        records.ProbeResult("bandwidth", records.Source.MEASURED, bandwidth, 1.0),
        records.ProbeResult("throughput", records.Source.MEASURED, throughput, 1.0),
    ]
    found = {key.probe: figures for key, figures in checks.comparable(HOST, results).items()}
    assert found == {
        "bandwidth": {"device copy": 1371.0, "host to device": 25.9},
        "throughput": {"decode h264 1920x1080": 900.0},
    }


# ---------------------------------------------------------------- what has no baseline


def uncompared(
    host: records.Snapshot, probed: list[records.ProbeResult], known: baseline.Baseline
) -> list[records.Finding]:
    found = drift.findings(WANTED, host, drift.Past(None, None), probed, baseline=known)
    return [one for one in found if one.property.endswith("history") and "no baseline" in f"{one.actual} {one.reason}"]


def test_figures_without_a_baseline_are_a_warning_a_gpu_and_probe() -> None:
    two = records.ProbeResult(
        "gemm",
        records.Source.MEASURED,
        values(gpu("20b0", [gemm("fp16", 250.0)]), gpu("20b0", [gemm("fp16", 251.0)], index=1)),
        10.0,
    )
    host = dataclasses.replace(bare_snapshot(gpus=("a100", "a100")), source=records.Source.MEASURED)
    full = past(checks.comparable(HOST, measured(280.0, quick=False)))
    older = past(checks.comparable(dataclasses.replace(HOST, agent_version="0.0.9"), measured(280.0)))
    found = uncompared(host, [two], {**full, **older})
    assert [(one.key, one.status.value) for one in found] == [
        ("GPU-0.gemm_history", "WARN"), ("GPU-1.gemm_history", "WARN"),
    ]  # fmt: skip
    assert found[0].actual == "fp16 8192x8192x8192 TN 250, no baseline"
    assert f"gpuprep {HOST.agent_version}, cublasLt 12.4.5, quick" in found[0].reason
    assert "gpuprep validate HOST --profile a100 --quick" in found[0].remedy
    known = past(checks.comparable(HOST, measured(280.0)))
    assert [one.key for one in uncompared(host, [two], known)] == ["GPU-1.gemm_history"]


def test_what_gave_no_figures_lacks_no_baseline() -> None:
    broken = records.ProbeResult("gemm", records.Source.MEASURED, records.Missing("command_failed"), 1.0)
    assert uncompared(HOST, [broken], {}) == []
    assert uncompared(HOST, [], {}) == []


def test_simulated_gpus_have_no_baseline_and_one_line_says_why() -> None:
    simulated = [
        *measured(1.0, source=records.Source.SIMULATED),
        records.ProbeResult("bandwidth", records.Source.SIMULATED, {}, 1.0),
    ]
    (found,) = uncompared(HOST, simulated, {})
    assert (found.key, found.status, "simulated" in found.reason) == ("speed.history", records.Status.SKIP, True)


def test_only_a_quick_measurement_by_the_same_gpuprep_is_one_for_the_nights() -> None:
    now = HOST.agent_version
    for quick, agent, expected in ((True, now, True), (False, now, False), (True, "0.0.9", False)):
        host = dataclasses.replace(HOST, agent_version=agent)
        known = past(checks.comparable(host, measured(280.0, quick=quick)))
        assert nights_can_compare(known, "GPU-0", "gemm", now) is expected
        assert not nights_can_compare(known, "GPU-1", "gemm", now)
        assert not nights_can_compare(known, "GPU-0", "bandwidth", now)


# ---------------------------------------------------------------- the store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path}/history.db")
    yield opened
    opened.close()


def test_the_first_figures_stay(store: Store) -> None:
    first, second = (checks.comparable(HOST, measured(*tflops)) for tflops in ((280.0,), (250.0, 266.0)))
    (key,) = first
    store.append(record("run-1", host="gpu-1", started_at=THEN), first)
    store.append(record("run-2", host="gpu-1", started_at="2026-11-02"), second)
    assert store.baseline("gpu-1", [key]) == {
        key: {
            "bf16 8192x8192x8192 TN": baseline.BaselineFigure(266.0, "run-2", "2026-11-02"),
            "fp16 8192x8192x8192 TN": baseline.BaselineFigure(280.0, "run-1", THEN),
        }
    }
    assert store.baseline("gpu-2", [key]) == {}
    assert store.baseline("gpu-1", [dataclasses.replace(key, gpu_uuid="GPU-9")]) == {}


def test_versions_longer_than_the_column_stay_apart(store: Store) -> None:
    keys = [baseline.BaselineKey("GPU-0", "gemm", "x" * 300 + end) for end in "ab"]
    store.append(record("run-1", host="h"), {keys[0]: {"fp16": 1.0}, keys[1]: {"fp16": 2.0}})
    known = store.baseline("h", keys)
    assert [known[key]["fp16"].value for key in keys] == [1.0, 2.0]
