"""gpuprep judge: a recorded run judged anew, figures from elsewhere, and records that are damaged."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from builders import bare_snapshot, finished_snapshot, good_probes
from click.testing import CliRunner
from gemmrecords import gemm, gpu, values
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuprep import checks
from gpuprep.checks import verdict
from gpuprep.cli.judge import judge
from gpuprep.desired import loading, state
from gpuprep.desired import profile as wishes
from gpuprep.errors import PlanRefused, UsageError
from gpuprep.records import ProbeResult, RunRecord, Source, Status, from_json_value, to_json_value
from gpuprep.store import Store
from gpuprep.workflows import measurement_forms, rejudge

A100 = loading.load("a100")
WANTED = state.resolve(A100, bare_snapshot(gpus=("a100",)), judging=True)
FINISHED = dataclasses.replace(finished_snapshot(WANTED, bare_snapshot(gpus=("a100",))), source=Source.MEASURED)
UUID = FINISHED.gpus[0].uuid if isinstance(FINISHED.gpus, tuple) else ""
TYPES = {"fp64": 18.95, "fp32": 18.36, "tf32": 127.4, "fp16": 275.4, "bf16": 261.2, "int8": 466.6}


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def products(scale: float = 1.0) -> dict[str, Any]:
    return values(gpu("20b0", [gemm(d, t * scale) for d, t in TYPES.items()], uuid=UUID), quick=False)


def recorded(source: Source = Source.MEASURED, measured: dict[str, Any] | None = None) -> RunRecord:
    """A run of `validate` on an A100 that passed, as it is stored."""
    snapshot = dataclasses.replace(FINISHED, source=source)
    results = tuple(dataclasses.replace(result, source=source) for result in good_probes(WANTED))
    results = (*results, ProbeResult("gemm", source, measured or products(), 20.0))
    names = [result.probe for result in results]
    found = checks.compare(WANTED, snapshot, results, asked=names, thresholds=A100.thresholds)
    return RunRecord(
        run_id="20261120-100000-abc123",
        command="validate",
        host="gpu-1",
        started_at="2026-11-20T10:00:00+00:00",
        ended_at="2026-11-20T10:01:00+00:00",
        source=source,
        exit_code=0,
        gpuprep_version="0.1.0",
        before=snapshot,
        after=snapshot,
        measurements=results,
        verdict=verdict.judge(WANTED, found),
        findings=found,
    )


RECORDED = recorded()
WHOLE: dict[str, Any] = to_json_value(RECORDED)
FIGURES: dict[str, Any] = {"measurements": [{"probe": "gemm", "source": "measured", "values": products()}]}


def write(folder: Path, document: object) -> Path:
    path = folder / "record.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


def again(path: Path, by: wishes.Profile = A100) -> RunRecord:
    (made,) = rejudge.judge_file(path, by)
    return made


def test_a_record_judged_again_is_judged_the_same(tmp_path: Path) -> None:
    made = again(write(tmp_path, WHOLE))
    assert made.verdict == RECORDED.verdict
    assert made.verdict is not None
    assert (made.verdict.status, made.exit_code, made.command, made.host) == (Status.PASS, 0, "judge", "gpu-1")
    assert made.measurements == RECORDED.measurements
    assert made.options["judged"] == RECORDED.run_id
    assert made.run_id != RECORDED.run_id


def test_the_document_of_json_has_several(tmp_path: Path) -> None:
    slow = to_json_value(recorded(measured=products(0.3)))
    made = rejudge.judge_file(write(tmp_path, {"schema_version": 1, "runs": [WHOLE, slow], "exit_code": 1}), A100)
    assert [one.exit_code for one in made] == [0, 1]


def test_other_thresholds_make_another_verdict(tmp_path: Path) -> None:
    own = tmp_path / "strict.yml"
    own.write_text("extends: a100\nthresholds: {fp16_percent_of_peak: {percent: 95, source: our fleet}}\n")
    made = again(write(tmp_path, WHOLE), loading.load(str(own)))
    assert made.verdict is not None
    failed = [f for f in made.verdict.findings if f.status is Status.FAIL]
    assert [f.key for f in failed] == ["gpu 0.gemm_fp16"]
    assert failed[0].expected == "≥ 95 % of 312 TFLOPS at 1410 MHz (profile strict, our fleet)"


def test_simulated_stays_simulated(tmp_path: Path) -> None:
    assert again(write(tmp_path, to_json_value(recorded(Source.SIMULATED)))).source is Source.SIMULATED
    for place in ("source", "measurements"):
        document = copy.deepcopy(WHOLE)
        if place == "source":
            document["source"] = "simulated"
        else:
            document["measurements"][-1]["source"] = "simulated"
        assert again(write(tmp_path, document)).source is Source.SIMULATED


def test_a_profile_for_another_gpu_is_refused(tmp_path: Path) -> None:
    for document in (WHOLE, FIGURES):
        with pytest.raises(PlanRefused, match="has a A100, and profile t4 is for T4"):
            rejudge.judge_file(write(tmp_path, document), loading.load("t4"))


# ---------------------------------------------------------------- figures from elsewhere


def test_measurements_alone_are_enough(tmp_path: Path) -> None:
    made = again(write(tmp_path, FIGURES))
    assert made.verdict is not None
    assert made.verdict.status is Status.PASS
    assert (made.host, made.after) == ("elsewhere", None)
    assert all(f.subject in ("cuda", "gpu 0") for f in made.verdict.findings)


def test_published_figures_need_a_gpu_a_type_a_shape_and_a_speed(tmp_path: Path) -> None:
    product = {"dtype": "fp32", "m": 8192, "n": 8192, "k": 8192, "tflops": 18.36}
    published = {"published": "SuperBench", "gpus": [{"pci_device_id": "20b2", "gemms": [product]}]}
    document = {"host": "NDmv4", "measurements": [{"probe": "gemm", "source": "measured", "values": published}]}
    made = again(write(tmp_path, document))
    assert made.verdict is not None
    assert {f.key: f.status for f in made.verdict.findings} == {
        "gpu 0.gemm_fp32": Status.PASS,
        "gemm.host": Status.SKIP,
    }
    for key in ("dtype", "m", "tflops"):
        lacking = copy.deepcopy(document)
        found: dict[str, Any] = lacking["measurements"][0]["values"]["gpus"][0]["gemms"][0]  # type: ignore[index]
        del found[key]
        assert again(write(tmp_path, lacking)).exit_code == 3, key


def test_a_third_of_the_speed_fails(tmp_path: Path) -> None:
    document = {"measurements": [{"probe": "gemm", "source": "measured", "values": products(1 / 3)}]}
    assert again(write(tmp_path, document)).exit_code == 1


@pytest.mark.parametrize(("expires", "status"), [("2099-12-31", Status.WAIVED), ("2026-01-01", Status.FAIL)])
def test_waivers_hold_by_the_day_of_the_judging(tmp_path: Path, expires: str, status: Status) -> None:
    document = {"measurements": [{"probe": "gemm", "source": "measured", "values": products(0.3)}]}
    slow = write(tmp_path, document)
    failed = [one.key for one in again(slow).findings if one.status is Status.FAIL]
    assert failed
    given = tuple(wishes.Waiver(key, "*", "a known slow card", expires) for key in failed)
    made = {one.key: one.status for one in again(slow, dataclasses.replace(A100, waivers=given)).findings}
    assert {made[key] for key in failed} == {status}


def test_a_real_h200_passes(tmp_path: Path) -> None:
    folder = Path(__file__).parent / "cases/records"
    measured = [json.loads((folder / f"h200-{name}.json").read_text()) for name in ("gemm", "bandwidth", "toolkit")]
    made = again(write(tmp_path, {"measurements": measured}), loading.load("h200"))
    assert made.verdict is not None
    assert {f.key: f.reason for f in made.verdict.findings if f.status is not Status.PASS} == {}


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("document", "what"),
    [
        ("{", "is not JSON"),
        pytest.param("[" * 100000, "is not JSON", id="too-deep"),
        ([], "is no object but nothing"),
        ({}, "measurements: missing"),
        ({"runs": []}, "runs: want a list of records, got nothing"),
        ({"runs": [WHOLE, 3]}, "runs[1]: want a record, got 3"),
        ({"runs": [{"measurements": 3}]}, "runs[0].measurements: want a list, got 3"),
        ({**WHOLE, "measurements": 3}, "measurements: want a list, got 3"),
        ({k: v for k, v in WHOLE.items() if k != "run_id"}, "run_id: missing"),
        ({k: v for k, v in WHOLE.items() if k != "measurements"}, "measurements: missing"),
        ({**WHOLE, "before": None, "after": None}, "after: missing, and so is before"),
        ({**WHOLE, "after": {**WHOLE["after"], "os": 3}}, "after.os: want an object, got 3"),
        ({"measurements": [{"probe": "gemm", "values": {}}]}, "measurements[0].source: missing"),
        ({"measurements": [{"probe": "gemn", "source": "measured", "values": {}}]}, "measurements[0].probe: 'gemn' is"),
        (
            {"measurements": [{"probe": "throughput", "source": "measured", "values": {"series": [{"steps": 3}]}}]},
            "measurements[0].values.series[0].steps: want a list, got 3",
        ),
        ({"measurements": [], "after": {"os": []}}, "after.os: want an object, got []"),
        ({"measurements": [], "host": 7}, "host: want str, got 7"),
    ],
)
def test_mistakes_name_file_and_key(tmp_path: Path, document: object, what: str) -> None:
    path = write(tmp_path, document)
    with pytest.raises(UsageError) as caught:
        rejudge.judge_file(path, A100)
    assert caught.value.what.startswith(f"{path}: {what}")
    assert caught.value.exit_code == 2


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        rejudge.judge_file(tmp_path / "nope.json", A100)
    with pytest.raises(UsageError, match="cannot be read"):
        rejudge.judge_file(tmp_path, A100)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe{")
    with pytest.raises(UsageError, match="cannot be read"):
        rejudge.judge_file(tmp_path / "bytes", A100)


def test_a_run_without_measurements_is_unknown(tmp_path: Path) -> None:
    assert again(write(tmp_path, {**WHOLE, "measurements": []})).exit_code == 3


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, inner in items for found in ((*path, key), *places(inner, (*path, key)))]


GARBAGE = [None, True, -1, 1.5, "", "x", [], {}, [None], {"missing": "x", "detail": ""}, "dropped"]
DAMAGE = [(whole, path) for whole in (WHOLE, FIGURES) for path in places(whole)]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(0, len(DAMAGE) - 1), st.integers(0, len(GARBAGE) - 1))
def test_damage_is_exit_2_or_a_verdict_never_a_traceback(tmp_path: Path, where: int, what: int) -> None:
    whole, path = DAMAGE[where]
    document = copy.deepcopy(whole)
    at: Any = document
    for key in path[:-1]:
        at = at[key]
    if GARBAGE[what] == "dropped":
        del at[path[-1]]
    else:
        at[path[-1]] = GARBAGE[what]
    try:
        made = again(write(tmp_path, document))
    except (UsageError, PlanRefused):
        return
    assert made.verdict is not None
    assert from_json_value(RunRecord, json.loads(json.dumps(to_json_value(made)))).verdict == made.verdict


def without_telemetry(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_telemetry(inner) for key, inner in value.items() if key != "telemetry"}
    return [without_telemetry(inner) for inner in value] if isinstance(value, list) else value


REAL = {
    result["probe"]: without_telemetry(result)
    for path in sorted((Path(__file__).parent / "cases/records").glob("h200-*.json"))
    for result in [json.loads(path.read_text(encoding="utf-8"))]
}


@pytest.mark.parametrize("probe", sorted(REAL))
def test_real_measurements_have_the_form(probe: str) -> None:
    assert list(measurement_forms.problems(probe, REAL[probe]["values"])) == []


PLACES = {probe: places(result["values"]) for probe, result in REAL.items()}
H200 = bare_snapshot(gpus=("h200",))
WISH = state.resolve(loading.load("h200"), H200, judging=True)


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """`value` with `new` at a place; what is beside the path is not copied."""
    if not path:
        return new
    made = value.copy()
    made[path[0]] = changed(value[path[0]], path[1:], new)
    return made


@pytest.mark.parametrize("probe", sorted(REAL))
@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False))
def test_damaged_measurements_are_refused_or_judged(probe: str, random: Any) -> None:
    path, new = random.choice(PLACES[probe]), random.choice([*GARBAGE, math.nan, [3], [{}], {"x": {}}])
    damaged = changed(REAL[probe]["values"], path, new)
    if next(measurement_forms.problems(probe, damaged), None) is None:
        result = ProbeResult(probe, Source.MEASURED, damaged, 1.0)
        assert all(f.status for f in checks.compare_figures(WISH, H200, [result], asked=[probe]))


# ---------------------------------------------------------------- the command


def run(*arguments: str) -> Any:
    return CliRunner().invoke(judge, arguments, standalone_mode=False)


def test_the_command(tmp_path: Path) -> None:
    path = str(write(tmp_path, WHOLE))
    shown = run(path, "--profile", "a100")
    assert (shown.return_value, shown.exception) == (0, None)
    assert shown.output.splitlines()[-1].startswith("PASS  gpu-1, a100: ")
    assert not (tmp_path / "state").exists()
    slow = run(str(write(tmp_path, to_json_value(recorded(measured=products(0.3))))), "--profile", "a100", "--json")
    assert slow.return_value == 1
    document = json.loads(slow.output)
    assert (document["exit_code"], document["runs"][0]["verdict"]["status"]) == (1, "FAIL")
    assert "`gpuprep judge` needs --profile" in str(run(path).exception)


def test_the_new_verdict_is_kept_where_that_is_asked(tmp_path: Path) -> None:
    path = str(write(tmp_path, WHOLE))
    shown = run(path, "--profile", "a100", "--keep")
    store = Store.open(None)
    (kept,) = store.runs()
    store.close()
    assert (kept.command, kept.host) == ("judge", "gpu-1")
    assert f"gpuprep report {kept.run_id}" in shown.output


def test_history_judges_by_the_baseline(tmp_path: Path) -> None:
    store = Store.open(None)
    store.append(RECORDED, checks.comparable(FINISHED, RECORDED.measurements))
    store.close()
    path = str(write(tmp_path, to_json_value(recorded(measured=products(0.97)))))
    assert run(path, "--profile", "a100").return_value == 0
    assert "gemm history" in " ".join(run(path, "--profile", "a100", "--history", "-v").output.split())
    slower = str(write(tmp_path, to_json_value(recorded(measured=products(0.89)))))
    assert run(slower, "--profile", "a100", "--history").return_value == 1
    simulated = str(write(tmp_path, to_json_value(recorded(Source.SIMULATED, products(0.89)))))
    assert "history" not in run(simulated, "--profile", "a100", "--history", "-v").output


def test_a_measurement_that_is_gone_or_doubled_is_no_milder_verdict(tmp_path: Path) -> None:
    """What a validation was to measure and did not is UNKNOWN; two answers of one probe are refused."""
    named = {**WHOLE, "options": {"probes": [m["probe"] for m in WHOLE["measurements"]], "only": [], "skip": []}}
    assert run(str(write(tmp_path, named)), "--profile", "a100").return_value == 0
    without = {**named, "measurements": [m for m in WHOLE["measurements"] if m["probe"] != "gemm"]}
    judged = run(str(write(tmp_path, without)), "--profile", "a100")
    assert (judged.return_value, "gemm: measured" in judged.output) == (3, True)
    twice = {**WHOLE, "measurements": [*WHOLE["measurements"], WHOLE["measurements"][0]]}
    assert "is there twice" in str(run(str(write(tmp_path, twice)), "--profile", "a100").exception)


def test_a_run_that_ended_with_an_error_does_not_pass(tmp_path: Path) -> None:
    stopped = {**WHOLE, "error": "gpu-1: interrupted", "exit_code": 130}
    judged = run(str(write(tmp_path, stopped)), "--profile", "a100")
    assert (judged.return_value, "interrupted" in judged.output) == (3, True)
