"""gpuprep judge: a recorded run judged anew, figures from elsewhere, and records that are damaged."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import amount
import commandline
import pytest
from builders import bare_snapshot, finished_snapshot, good_probes
from click.testing import CliRunner
from gemmrecords import gemm, gpu, values
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from places import ROOT, TESTS

from gpuprep import checks, errors, records
from gpuprep.checks import judgement
from gpuprep.cli import cli
from gpuprep.desired import loading, profile, state
from gpuprep.store import Store
from gpuprep.untrusted import limits
from gpuprep.workflows import record_file, rejudge

A100 = loading.load("a100")
WANTED = state.resolve(A100, bare_snapshot(gpus=("a100",)), judging=True)
FINISHED = dataclasses.replace(finished_snapshot(WANTED, bare_snapshot(gpus=("a100",))), source=records.Source.MEASURED)
UUID = FINISHED.gpus[0].uuid if isinstance(FINISHED.gpus, tuple) else ""
TYPES = {"fp64": 18.95, "fp32": 18.36, "tf32": 127.4, "fp16": 275.4, "bf16": 261.2, "int8": 466.6}


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def products(scale: float = 1.0) -> dict[str, Any]:
    return values(gpu("20b0", [gemm(d, t * scale) for d, t in TYPES.items()], uuid=UUID), quick=False)


def recorded(
    source: records.Source = records.Source.MEASURED, measured: dict[str, Any] | None = None
) -> records.RunRecord:
    """A run of `validate` on an A100 that passed, as it is stored."""
    snapshot = dataclasses.replace(FINISHED, source=source)
    results = tuple(dataclasses.replace(result, source=source) for result in good_probes(WANTED))
    results = (*results, records.ProbeResult("gemm", source, measured or products(), 20.0))
    names = [result.probe for result in results]
    found = checks.compare(WANTED, snapshot, results, asked=names, thresholds=A100.thresholds)
    return records.RunRecord(
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
        verdict=judgement.verdict_of(WANTED, found),
        findings=found,
    )


RECORDED = recorded()
WHOLE: dict[str, Any] = records.to_json_value(RECORDED)
FIGURES: dict[str, Any] = {"measurements": [{"probe": "gemm", "source": "measured", "values": products()}]}


def write(folder: Path, document: object) -> Path:
    path = folder / "record.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


def again(path: Path, by: profile.Profile = A100) -> records.RunRecord:
    (made,) = rejudge.judge_file(path, by)
    return made


def test_a_record_judged_again_is_judged_the_same(tmp_path: Path) -> None:
    made = again(write(tmp_path, WHOLE))
    assert made.verdict == RECORDED.verdict
    assert made.verdict is not None
    assert (made.verdict.status, made.exit_code, made.command, made.host) == (records.Status.PASS, 0, "judge", "gpu-1")
    assert made.measurements == RECORDED.measurements
    assert made.options["judged"] == RECORDED.run_id
    assert made.run_id != RECORDED.run_id


def test_a_kernel_that_waits_is_in_the_record(tmp_path: Path) -> None:
    document = records.to_json_value(recorded())
    assert not again(write(tmp_path, document)).reboot_needed
    document["after"]["kernel"]["next_boot"] = "6.12.99+deb13-amd64"
    assert again(write(tmp_path, document)).reboot_needed


def test_the_document_of_json_has_several(tmp_path: Path) -> None:
    slow = records.to_json_value(recorded(measured=products(0.3)))
    made = rejudge.judge_file(write(tmp_path, {"schema_version": 1, "runs": [WHOLE, slow], "exit_code": 1}), A100)
    assert [one.exit_code for one in made] == [0, 1]


def test_other_thresholds_make_another_verdict(tmp_path: Path) -> None:
    own = tmp_path / "strict.yml"
    own.write_text("extends: a100\nthresholds: {fp16_percent_of_peak: {percent: 95, source: our fleet}}\n")
    made = again(write(tmp_path, WHOLE), loading.load(str(own)))
    assert made.verdict is not None
    failed = [f for f in made.verdict.findings if f.status is records.Status.FAIL]
    assert [f.key for f in failed] == ["gpu 0.gemm_fp16"]
    assert failed[0].expected == "≥ 95 % of 312 TFLOPS at 1410 MHz (profile strict, our fleet)"


def test_simulated_stays_simulated(tmp_path: Path) -> None:
    assert (
        again(write(tmp_path, records.to_json_value(recorded(records.Source.SIMULATED)))).source
        is records.Source.SIMULATED
    )
    for place in ("source", "measurements"):
        document = copy.deepcopy(WHOLE)
        if place == "source":
            document["source"] = "simulated"
        else:
            document["measurements"][-1]["source"] = "simulated"
        assert again(write(tmp_path, document)).source is records.Source.SIMULATED


def test_a_profile_for_another_gpu_is_refused(tmp_path: Path) -> None:
    for document in (WHOLE, FIGURES):
        with pytest.raises(errors.PlanRefused, match="GPU is A100, and profile t4 is for T4"):
            rejudge.judge_file(write(tmp_path, document), loading.load("t4"))


# ---------------------------------------------------------------- figures from elsewhere


def test_measurements_alone_are_enough(tmp_path: Path) -> None:
    made = again(write(tmp_path, FIGURES))
    assert made.verdict is not None
    assert made.verdict.status is records.Status.PASS
    assert (made.host, made.after) == ("elsewhere", None)
    assert all(f.subject in ("cuda", "gpu 0") for f in made.verdict.findings)


def test_published_figures_need_a_gpu_a_type_a_shape_and_a_speed(tmp_path: Path) -> None:
    product = {"dtype": "fp32", "m": 8192, "n": 8192, "k": 8192, "tflops": 18.36}
    published = {"published": "SuperBench", "gpus": [{"pci_device_id": "20b2", "gemms": [product]}]}
    document = {"host": "NDmv4", "measurements": [{"probe": "gemm", "source": "measured", "values": published}]}
    made = again(write(tmp_path, document))
    assert made.verdict is not None
    assert {f.key: f.status for f in made.verdict.findings} == {
        "gpu 0.gemm_fp32": records.Status.PASS,
        "gemm.host": records.Status.SKIP,
    }
    for key in ("dtype", "m", "tflops"):
        lacking = copy.deepcopy(document)
        found: dict[str, Any] = lacking["measurements"][0]["values"]["gpus"][0]["gemms"][0]  # type: ignore[index]
        del found[key]
        assert again(write(tmp_path, lacking)).exit_code == 3, key


def test_a_third_of_the_speed_fails(tmp_path: Path) -> None:
    document = {"measurements": [{"probe": "gemm", "source": "measured", "values": products(1 / 3)}]}
    assert again(write(tmp_path, document)).exit_code == 1


@pytest.mark.parametrize(
    ("expires", "status"), [("2099-12-31", records.Status.WAIVED), ("2026-01-01", records.Status.FAIL)]
)
def test_waivers_hold_by_the_day_of_the_judging(tmp_path: Path, expires: str, status: records.Status) -> None:
    document = {"measurements": [{"probe": "gemm", "source": "measured", "values": products(0.3)}]}
    slow = write(tmp_path, document)
    failed = [one.key for one in again(slow).findings if one.status is records.Status.FAIL]
    assert failed
    given = tuple(profile.Waiver(key, "*", "a known slow card", expires) for key in failed)
    made = {one.key: one.status for one in again(slow, dataclasses.replace(A100, waivers=given)).findings}
    assert {made[key] for key in failed} == {status}


def test_a_real_h200_passes(tmp_path: Path) -> None:
    folder = TESTS / "cases/records"
    measured = [json.loads((folder / f"h200-{name}.json").read_text()) for name in ("gemm", "bandwidth", "toolkit")]
    made = again(write(tmp_path, {"measurements": measured}), loading.load("h200"))
    assert made.verdict is not None
    assert {f.key: f.reason for f in made.verdict.findings if f.status is not records.Status.PASS} == {}


@pytest.mark.parametrize(
    ("after", "measurements", "status"),
    [
        (WHOLE["after"], WHOLE["measurements"], None),
        (None, WHOLE["measurements"], "UNKNOWN"),
        # nothing that loads a GPU ran between the two: the facts from before are those of now
        (None, [{"probe": "toolkit", "source": "measured", "seconds": 1.0, "values": {}}], None),
    ],
    ids=["both", "lost", "no-load"],
)
def test_facts_from_before_the_load_do_not_stand_for_those_after_it(
    tmp_path: Path, after: object, measurements: object, status: str | None
) -> None:
    path = write(tmp_path, {**WHOLE, "after": after, "measurements": measurements})
    (judged,) = rejudge.judge_file(path, A100)
    found = {finding.key: finding.status.value for finding in judged.findings}
    assert found.get("record.after") == status
    if status:
        assert judged.verdict is not None
        assert judged.verdict.status is not records.Status.PASS


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("document", "what"),
    [
        ("{", "is not JSON"),
        pytest.param("[" * 100000, "is not JSON", id="too-deep"),
        ([], "want an object, got an empty list"),
        ({}, "measurements: missing"),
        ({"runs": []}, "runs: want a list of records, got an empty list"),
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
        ({"measurements": [], "host": 7}, "host: want text, got 7"),
        ({"measurements": []}, "measurements: an empty list; there is nothing to judge"),
        ('{"measurements": [], "host": "a", "host": "b"}', "is not JSON: the key 'host' stands twice in one object"),
    ],
)
def test_mistakes_name_file_and_key(tmp_path: Path, document: object, what: str) -> None:
    path = write(tmp_path, document)
    with pytest.raises(errors.UsageError) as caught:
        rejudge.judge_file(path, A100)
    assert caught.value.what.startswith(f"{path}: {what}")
    assert caught.value.exit_code == 2


MISSING = {"missing": "command_failed", "detail": "no"}


@pytest.mark.parametrize(
    ("name", "key", "damage", "says"),
    [
        ("bandwidth", "peers", MISSING, "peers: want a list, got {'detail'"),  # a probe always has this list
        ("bandwidth", "peers", 3, "peers: want a list, got 3"),
        ("bandwidth", "peers", [3], "peers[0]: want an object, got 3"),
        ("cudnn", "libraries", [{"name": 7}], "libraries[0].name: want a"),
        ("gemm", "together", [3, 3, 3, 3, 3], " and 2 more: no probe writes that"),
    ],
)
def test_a_value_of_a_kind_that_no_probe_writes_is_no_evidence(
    name: str, key: str, damage: object, says: str, tmp_path: Path
) -> None:
    result = json.loads((TESTS / f"cases/records/h200-{name}.json").read_text())
    result["values"][key] = damage
    made = again(write(tmp_path, {"measurements": [result]}), loading.load("h200"))
    (found,) = [one for one in made.findings if one.key == f"{name}.forms"]
    assert (found.status, says in found.reason) == (records.Status.UNKNOWN, True), found.reason
    assert made.exit_code in (1, 3)


def test_a_list_that_a_probe_could_not_read_is_of_the_right_kind(tmp_path: Path) -> None:
    result = json.loads((TESTS / "cases/records/h200-bandwidth.json").read_text())
    result["values"]["gpus"][0]["other_processes"] = MISSING
    made = again(write(tmp_path, {"measurements": [result]}), loading.load("h200"))
    assert "bandwidth.forms" not in {one.key for one in made.findings}
    assert "another process used the GPU is not known" in " ".join(one.reason for one in made.findings)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="cannot be read"):
        rejudge.judge_file(tmp_path / "nope.json", A100)
    with pytest.raises(errors.UsageError, match="cannot be read"):
        rejudge.judge_file(tmp_path, A100)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe{")
    with pytest.raises(errors.UsageError, match="cannot be read"):
        rejudge.judge_file(tmp_path / "bytes", A100)


def test_a_run_without_measurements_is_unknown(tmp_path: Path) -> None:
    assert again(write(tmp_path, {**WHOLE, "measurements": []})).exit_code == 3


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, inner in items for found in ((*path, key), *places(inner, (*path, key)))]


GARBAGE = [None, True, -1, 1.5, "", "x", [], {}, [None], {"missing": "x", "detail": ""}, "dropped"]
DAMAGE = [(whole, path) for whole in (WHOLE, FIGURES) for path in places(whole)]


@settings(max_examples=amount.examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
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
    except (errors.UsageError, errors.PlanRefused):
        return
    assert made.verdict is not None
    assert (
        records.from_json_value(records.RunRecord, json.loads(json.dumps(records.to_json_value(made)))).verdict
        == made.verdict
    )


def without_keys(value: Any, keys: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {key: without_keys(inner, keys) for key, inner in value.items() if key not in keys}
    return [without_keys(inner, keys) for inner in value] if isinstance(value, list) else value


REAL = {
    path.stem: without_keys(json.loads(path.read_text(encoding="utf-8")), ("telemetry",))
    for path in sorted((TESTS / "cases/records").glob("h200*.json"))
}


H200 = loading.load("h200")


def with_a_gpu(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Beside one that names no GPU, matrix products, which do."""
    return [result] if result["values"].get("gpus") else [REAL["h200-gemm"], result]


@pytest.mark.parametrize("name", REAL)
def test_real_measurements_have_the_form(tmp_path: Path, name: str) -> None:
    made = again(write(tmp_path, {"measurements": with_a_gpu(REAL[name])}), H200)
    assert [one for one in made.findings if one.property == "forms"] == []


PLACES = {name: places(result["values"]) for name, result in REAL.items()}


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """`value` with `new` at a place; what is beside the path is not copied."""
    if not path:
        return new
    made = value.copy()
    made[path[0]] = changed(value[path[0]], path[1:], new)
    return made


@pytest.mark.parametrize("name", REAL)
@settings(max_examples=amount.examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.randoms(use_true_random=False))
def test_damaged_measurements_are_refused_or_judged(tmp_path: Path, name: str, random: Any) -> None:
    path, new = random.choice(PLACES[name]), random.choice([*GARBAGE, math.nan, [3], [{}], {"x": {}}])
    damaged = {**REAL[name], "values": changed(REAL[name]["values"], path, new)}
    try:
        made = again(write(tmp_path, {"measurements": with_a_gpu(damaged)}), H200)
    except (errors.UsageError, errors.PlanRefused):
        return
    assert made.verdict
    assert all(one.status for one in made.findings)


# ---------------------------------------------------------------- the command


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli, ["judge", *arguments], standalone_mode=False)


def test_the_command(tmp_path: Path) -> None:
    path = str(write(tmp_path, WHOLE))
    shown = run(path, "--profile", "a100")
    assert (shown.return_value, shown.exception) == (0, None)
    assert shown.output.splitlines()[-1].startswith("PASS  gpu-1, a100: ")
    assert ", run " not in shown.output.splitlines()[-1]  # nothing has it: it was not kept
    assert not (tmp_path / "state").exists()
    slow = run(
        str(write(tmp_path, records.to_json_value(recorded(measured=products(0.3))))), "--profile", "a100", "--json"
    )
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


def test_the_report_of_a_kept_verdict_is_looked_for_in_its_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    shown = run(str(write(tmp_path, WHOLE)), "--profile", "a100", "--keep", "--store", url)
    store = Store.open_existing(url)
    (kept,) = store.runs()
    store.close()
    assert f"gpuprep report {kept.run_id} --store {url}" in shown.output


def test_a_template_is_asked_for_without_a_file(tmp_path: Path) -> None:
    for other in ([str(write(tmp_path, WHOLE))], ["--json"], ["--keep"], ["--history"]):
        assert "does not go with" in str(run("--template", "csv", *other).exception)


def test_a_verdict_about_figures_is_judged_again(tmp_path: Path) -> None:
    first = run(str(write(tmp_path, FIGURES)), "--profile", "a100", "--json")
    (tmp_path / "judged.json").write_text(first.output)
    again = run(str(tmp_path / "judged.json"), "--profile", "a100", "--json")
    verdicts = [json.loads(one.output)["runs"][0] for one in (first, again)]
    assert verdicts[0]["verdict"] == verdicts[1]["verdict"]
    assert verdicts[0]["findings"] == verdicts[1]["findings"]
    shown = run(str(tmp_path / "judged.json"), "--profile", "a100").output
    assert "gpuprep validate elsewhere" not in shown


def test_history_judges_by_the_baseline(tmp_path: Path) -> None:
    store = Store.open(None)
    store.append(RECORDED, checks.comparable(FINISHED, RECORDED.measurements))
    store.close()
    path = str(write(tmp_path, records.to_json_value(recorded(measured=products(0.97)))))
    assert run(path, "--profile", "a100").return_value == 0
    assert "gemm history" in " ".join(run(path, "--profile", "a100", "--history", "-v").output.split())
    slower = str(write(tmp_path, records.to_json_value(recorded(measured=products(0.89)))))
    assert run(slower, "--profile", "a100", "--history").return_value == 1
    simulated = str(write(tmp_path, records.to_json_value(recorded(records.Source.SIMULATED, products(0.89)))))
    assert "history" not in run(simulated, "--profile", "a100", "--history", "-v").output


def test_a_measurement_that_is_gone_or_doubled_is_no_milder_verdict(tmp_path: Path) -> None:
    """What a validation was to measure and did not is UNKNOWN; two answers of one probe are refused."""
    named = {**WHOLE, "options": {"probes": [m["probe"] for m in WHOLE["measurements"]], "only": [], "skip": []}}
    assert run(str(write(tmp_path, named)), "--profile", "a100").return_value == 0
    without = {**named, "measurements": [m for m in WHOLE["measurements"] if m["probe"] != "gemm"]}
    judged = run(str(write(tmp_path, without)), "--profile", "a100")
    assert (judged.return_value, "gemm: measured" in judged.output) == (3, True)
    twice = {**WHOLE, "measurements": [*WHOLE["measurements"], WHOLE["measurements"][0]]}
    assert "appears twice" in str(run(str(write(tmp_path, twice)), "--profile", "a100").exception)


def test_a_run_that_ended_with_an_error_does_not_pass(tmp_path: Path) -> None:
    stopped = {**WHOLE, "error": "gpu-1: interrupted", "exit_code": 130}
    judged = run(str(write(tmp_path, stopped)), "--profile", "a100")
    assert (judged.return_value, "interrupted" in judged.output) == (3, True)


def test_the_runs_of_a_fleet_are_judged_though_one_document_could_not_be_as_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty hosts have more values than a document may: each run is within the limits by itself."""
    monkeypatch.setattr(limits, "DOCUMENT_NODES", 20_000)
    monkeypatch.setattr(record_file, "OWN_DOCUMENT", 1000)
    tricky = 'a"b\\] } [ {'  # texts do not end a run
    hosts = [{**WHOLE, "host": f"gpu-{number}", "gpuprep_version": tricky} for number in range(12)]
    file = write(tmp_path, {"schema_version": 1, "runs": hosts, "exit_code": 0})
    text = file.read_text()
    assert text.count(",") > limits.DOCUMENT_NODES
    judged = run(str(file), "--profile", "a100", "--format", "junit")
    assert (judged.exception, judged.return_value) == (None, 0), judged.output
    assert judged.output.count("<testsuite ") == 12
    for damaged, said in {
        text.replace(', {"run_id"', ', 5, {"run_id"', 1): "more than 20000 values",
        text.replace(', {"run_id"', ' {"run_id"', 1): "more than 20000 values",
        text[: len(text) // 2]: "more than 20000 values",
        text.replace('"host": "gpu-7"', '"host": 7'): "runs[7].host",
        text.replace('"host": "gpu-7"', '"host": "gpu-7", "x": ' + "[" * 80 + "]" * 80): "runs[7]: is not JSON",
    }.items():
        assert damaged != text
        file.write_text(damaged)
        refused = run(str(file), "--profile", "a100")
        assert said in str(refused.exception), refused.output


# ---------------------------------------------------------------- by hand: tables, templates, names, missing keys


TABLE = """gpu,dtype,m,n,k,tflops,copy_gb_per_s,h2d_gb_per_s,d2h_gb_per_s,source
NVIDIA A100-SXM4-40GB,fp16,8192,8192,8192,275.4,,,,SuperBench
NVIDIA A100-SXM4-40GB,fp32,8192,8192,8192,18.36,,,,
NVIDIA A100-SXM4-40GB,,,,,,1370,25.1,25.3,
"""


def table(folder: Path, text: str) -> Path:
    path = folder / "figures.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_flat_table_is_judged_as_the_same_figures_in_json_are(tmp_path: Path) -> None:
    gpu_of_it = {"index": 0, "name": "NVIDIA A100-SXM4-40GB", "pci_device_id": "20b0"}
    square = {"m": 8192, "n": 8192, "k": 8192}
    gemms = [{"dtype": "fp16", **square, "tflops": 275.4}, {"dtype": "fp32", **square, "tflops": 18.36}]
    memory = {"copy_gb_per_s": 1370.0, "h2d_gb_per_s": 25.1, "d2h_gb_per_s": 25.3}
    document = {
        "measurements": [
            {
                "probe": probe,
                "source": "measured",
                "values": {"published": "SuperBench", "gpus": [{**gpu_of_it, **more}]},
            }
            for probe, more in (("gemm", {"gemms": gemms}), ("bandwidth", memory))
        ]
    }
    by_table, by_json = again(table(tmp_path, TABLE)), again(write(tmp_path, document))
    assert by_table.findings == by_json.findings
    assert (by_table.exit_code, by_table.host) == (0, "elsewhere")
    keys = {finding.key for finding in by_table.findings}
    assert {"gpu 0.gemm_fp16", "gpu 0.gemm_fp32"} < keys
    assert any("memory" in key for key in keys)
    slow = again(table(tmp_path, TABLE.replace("275.4", "91")))
    assert [one.key for one in slow.findings if one.status is records.Status.FAIL] == ["gpu 0.gemm_fp16"]


def test_misaligned_rows_excuse_a_product_only_in_the_layout_that_it_was_measured_with(tmp_path: Path) -> None:
    lines = ["host,gpu,dtype,m,n,k,layout,tflops"]
    shapes = {"n": "5216,3843,4096", "m": "3843,5216,4096"}
    lines += [f"{size}-{layout},2330,bf16,{shape},{layout},94"
              for size, shape in shapes.items() for layout in ("row", "TN", "nn", "")]  # fmt: skip
    made = rejudge.judge_file(table(tmp_path, "\n".join(lines)), loading.load("h100"))
    told = {run.host: next(one for one in run.findings if one.key == "gpu 0.gemm_bf16") for run in made}
    failed = {host for host, finding in told.items() if finding.status is records.Status.FAIL}
    assert failed == {"n-TN", "n-nn", "m-row"}
    passed = {host for host, finding in told.items() if finding.status is records.Status.PASS}
    assert passed == {"n-row", "m-TN", "n-"}  # as `explain` says of them on an H100
    assert told["m-"].status is told["m-nn"].status is records.Status.UNKNOWN
    assert "the layout of its matrices is not recorded" in told["m-"].reason
    assert "layout" in told["m-"].remedy


@pytest.mark.parametrize("form", ["\ufeff{}", "{}\r\n"])
def test_tables_as_spreadsheets_write_them(tmp_path: Path, form: str) -> None:
    excel = form.format(TABLE.replace(",", ";")).replace("\n", "\r\n")
    assert again(table(tmp_path, excel)).findings == again(table(tmp_path, TABLE)).findings


def test_a_table_of_several_hosts_and_gpus(tmp_path: Path) -> None:
    lines = ["host,gpu,index,dtype,m,n,k,tflops"]
    lines += [f"{host},20b0,{index},fp16,8192,8192,8192,{tflops}"
              for host, index, tflops in (("a", 0, 275), ("a", 1, 274), ("b", 0, 90))]  # fmt: skip
    made = rejudge.judge_file(table(tmp_path, "\n".join(lines)), A100)
    assert [(one.host, one.exit_code) for one in made] == [("a", 0), ("b", 1)]
    assert {"gpu 0.gemm_fp16", "gpu 1.gemm_fp16"} <= {finding.key for finding in made[0].findings}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", ": has no line of figures"),
        ("gpu,dtype,m,n,k,tflops\n", ": has no line of figures"),
        ("dtype,tflops\nfp16,3\n", ":1: gpu: missing"),
        ("gpu,speed\nT4,3\n", ":1: 'speed': no such column, allowed: host, gpu"),
        ("gpu,gpu\nT4,T4\n", ":1: gpu: appears twice"),
        ("gpu,dtype,m,n,k,tflops\n,fp16,1,1,1,3\n", ":2: gpu: is empty"),
        ("gpu,dtype,m,n,k,tflops\n\nA100,fp16,1,1,1,3\n", ":3: gpu: 'A100' is several boards: give one of A100 SXM4"),
        ("gpu,dtype,m,n,k,tflops\nT4,fp17,1,1,1,3\n", ":2: dtype: 'fp17', want one of fp64"),
        ("gpu,dtype,m,n,k,tflops\nT4,fp16,1,1,,3\n", ":2: k: is empty"),
        ("gpu,dtype,m,n,k,layout,tflops\nT4,fp16,1,1,1,kn,3\n", ":2: layout: 'kn', want one of row, nn, nt, tn, tt"),
        ("gpu,dtype,m,n,k,tflops\nT4,fp16,1.5,1,1,3\n", ":2: m: '1.5', want a whole number"),
        ("gpu,dtype,m,n,k,tflops\nT4,fp16,1,1,1,\n", ":2: tflops: the line has no figure"),
        ("gpu,dtype,m,n,k,tflops,copy_gb_per_s\nT4,fp16,1,1,1,,5\n", ":2: tflops: is empty"),
        ('gpu,dtype,m,n,k,tflops\nT4,fp16,1,1,1,"3,5"\n', ":2: tflops: '3,5' is no number"),
        ("gpu,dtype,m,n,k,tflops\nT4,fp16,1,1,1,nan\n", ":2: tflops: 'nan' is no number"),
        ("gpu,dtype,m,n,k,tflops\nT4,fp16,1,1,1,2_5\n", ":2: tflops: '2_5' is no number"),
        ("gpu,dtype,m,n,k,tflops\nT4,fp16,1,1,1,٢٥\n", ":2: tflops: '٢٥' is no number"),
        ("gpu,dtype,m,n,k,tflops\nT4,,,,,\n", ":2: tflops: the line has no figure: write one"),
        (
            "gpu,dtype,m,n,k,tflops\nT4,fp16,1,1,1,3\n,fp32,1,1,1,\n\n,fp64,1,1,1,\n",
            ":3: tflops: lines 3, 5 have no figure",
        ),
        ("gpu,copy_gb_per_s\nT4,200\nT4,201\n", ":3: copy_gb_per_s: appears twice for GPU 0"),
        ("gpu,copy_gb_per_s\nT4,200\nL4,201\n", ":3: gpu: 'L4', and GPU 0 of this host is 'T4' above"),
        ("gpu,copy_gb_per_s\nT4,200,3\n", ":2: has 3 cells, and the first line has 2"),
        ('gpu,copy_gb_per_s\nT4,"200\n', ": is no CSV"),
        pytest.param("gpu,copy_gb_per_s\n" + "T4,200\n" * 15000, ":3: copy_gb_per_s: appears twice", id="long"),
    ],
)
def test_mistakes_of_a_table_name_line_and_column(tmp_path: Path, text: str, what: str) -> None:
    path = table(tmp_path, text)
    with pytest.raises(errors.UsageError) as caught:
        rejudge.judge_file(path, A100)
    said = caught.value.what.removeprefix(str(path))
    assert said.startswith(what) or (what == ": is no CSV" and "is no CSV" in said)
    assert "--template csv" in caught.value.hint


def test_a_name_that_is_one_board_is_enough(tmp_path: Path) -> None:
    product = {"dtype": "fp16", "m": 8192, "n": 8192, "k": 8192, "tflops": 275.4}

    def of(**named: str) -> records.RunRecord:
        values = {"published": "a page", "gpus": [{**named, "gemms": [product]}]}
        return again(write(tmp_path, {"measurements": [{"probe": "gemm", "source": "measured", "values": values}]}))

    assert of(name="NVIDIA A100-SXM4-40GB").findings == of(name="NVIDIA A100-SXM4-40GB", pci_device_id="20b0").findings
    # Two boards with one device id: what both are.
    assert of(name="NVIDIA A100-SXM4-80GB").exit_code == 0
    where = "measurements[0].values.gpus[0]"
    with pytest.raises(errors.UsageError, match="name: 'A100' is several boards") as caught:
        of(name="A100")
    assert f"{where}.name: " in caught.value.what
    with pytest.raises(errors.UsageError) as caught:
        of(uuid="GPU-1")
    assert f"{where}.pci_device_id: missing; say which GPU it was" in caught.value.what


def test_the_missing_keys_are_named_with_their_places(tmp_path: Path) -> None:
    document = copy.deepcopy(FIGURES)
    first = document["measurements"][0]["values"]["gpus"][0]
    del first["gemms"][1]["tflops"], first["other_processes"], document["measurements"][0]["values"]["toolkit"]
    made = again(write(tmp_path, document))
    (finding,) = [one for one in made.findings if one.key == "record.keys"]
    for key in ("toolkit", "gpus[0].other_processes", "gpus[0].gemms[1].tflops"):
        assert f"measurements[0].values.{key}" in finding.reason
    assert (finding.status, made.exit_code) == (records.Status.UNKNOWN, 3)
    assert "record.keys" not in {one.key for one in again(write(tmp_path, FIGURES)).findings}
    whole = copy.deepcopy(WHOLE)
    del whole["measurements"][-1]["values"]["gpus"][0]["pci_device_id"]
    (finding,) = [one for one in again(write(tmp_path, whole)).findings if one.key == "record.keys"]
    place = f"measurements[{len(whole['measurements']) - 1}].values.gpus[0].pci_device_id"
    assert finding.reason == f"the file does not have {place}"
    nothing = {"measurements": [{"probe": "codec", "source": "measured", "values": {}}]}
    with pytest.raises(errors.UsageError, match=r"measurements\[0\].values.gpus\[0\].pci_device_id: missing"):
        again(write(tmp_path, nothing))


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_template_is_refused_as_it_is_and_judged_when_it_is_filled_in(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"figures.{form}"
    assert run("--template", form, "--profile", "t4", "--output", str(path)).return_value == 0
    text = path.read_text(encoding="utf-8")
    assert "Tesla T4" in text
    empty = run(str(path), "--profile", "t4")
    if form == "csv":
        assert "figures.csv:2: tflops: lines 2, 3, 4, 5, 6 have no figure" in str(empty.exception)
        lines = [line for line in text.splitlines() if "8192" in line]
        speeds = {"fp32": "5.1", "fp16": "25", "fp64": "0.2", "int8": "40"}
        filled = [line.replace("8192,8192,8192,", f"8192,8192,8192,{speeds[line.split(',')[2]]}") for line in lines]
        path.write_text("\n".join([text.splitlines()[0], *filled]), encoding="utf-8")
    else:
        assert empty.return_value == 3
        assert "measurements[0].values.gpus[0].gemms[0].tflops" in "".join(empty.output.split())
        document = json.loads(text)
        for gemm_of_it, tflops in zip(
            document["measurements"][0]["values"]["gpus"][0]["gemms"], (0.2, 5.1, 25, 40), strict=True
        ):
            gemm_of_it["tflops"] = tflops
        document["measurements"].pop()
        path.write_text(json.dumps(document), encoding="utf-8")
    (made,) = rejudge.judge_file(path, loading.load("t4"))
    assert {f.key for f in made.findings} >= {"gpu 0.gemm_fp16", "gpu 0.gemm_fp32"}
    assert made.exit_code == 0, [f for f in made.findings if f.status is not records.Status.PASS]


def test_without_a_file_the_command_says_how_to_get_one() -> None:
    assert "gpuprep judge --template csv" in run("--profile", "t4").exception.hint
    assert run("--template", "csv").output.splitlines()[1] == ",,fp64,8192,8192,8192,,,,,,,"


def test_the_table_of_the_page_is_judged(tmp_path: Path) -> None:
    page = (ROOT / "docs/records.md").read_text(encoding="utf-8")
    lines = [line.strip() for line in page.splitlines() if line.startswith(("    host,gpu,", "    node7,NVIDIA"))]
    assert len(lines) == 3
    (made,) = rejudge.judge_file(table(tmp_path, "\n".join(lines)), A100)
    assert (made.host, made.exit_code) == ("node7", 0)


@pytest.mark.parametrize("name", ["NVIDIA A16", "NVIDIA A2", "Quadro RTX 6000 passive", "Quadro RTX 8000 passive"])
def test_a_table_names_one_of_several_boards_with_the_same_device_id(tmp_path: Path, name: str) -> None:
    table = tmp_path / "figures.csv"
    table.write_text(f"gpu,dtype,m,n,k,tflops\n{name},fp32,8192,8192,8192,3\n")
    made = again(table, loading.load("base"))
    assert "gpu 0.in_catalogue" not in {one.key for one in made.findings}
    assert "gpu 0.gemm_fp32" in {one.key for one in made.findings if one.status is not records.Status.UNKNOWN}


# GPU, column, speeds from just below to just above where the verdict changes
NEAR_A_LIMIT = (
    ("NVIDIA A10", "tflops", (12.40, 12.47, 12.49, 12.495, 12.4991, 12.5, 12.51, 12.6)),
    ("A100 SXM4 40 GB", "copy_gb_per_s", (900.0, *(1130 + 2 * step for step in range(40)), 1532.0, 1550.0)),
    ("A100 PCIe 80 GB", "h2d_gb_per_s", (20.0, *(22.1 + 0.01 * step for step in range(20)), 23.0, 30.2, 30.3, 31.0)),
    ("Tesla T4", "read_gb_per_s", (190.0, *(213 + 0.5 * step for step in range(40)), 316.0, 317.0)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("named", "column", "speeds"), NEAR_A_LIMIT, ids=[f"{row[0]} {row[1]}" for row in NEAR_A_LIMIT]
)
def test_two_figures_of_a_comparison_are_told_apart(
    tmp_path: Path, named: str, column: str, speeds: tuple[float, ...]
) -> None:
    shape = "fp32,8192,8192,8192," if column == "tflops" else ",,,,"
    lines = [f"h{place},{named},{shape}{speed}" for place, speed in enumerate(speeds)]
    table = tmp_path / "figures.csv"
    table.write_text("\n".join([f"host,gpu,dtype,m,n,k,{column}", *lines]), encoding="utf-8")
    runs = rejudge.judge_file(table, loading.load("base"))
    statuses = set()
    for run in runs:
        for found in run.findings:
            shares = re.search(r"([\d.]+) %", found.actual), re.search(r"≥ ([\d.]+) %", found.expected)
            if shares[0] is None or shares[1] is None:
                continue
            statuses.add(found.status.value)
            below = float(shares[0][1]) < float(shares[1][1])
            assert below == (found.status.value in ("WARN", "FAIL")) or found.status.value == "UNKNOWN", found
            more = re.search(r"([\d.]+) GB/s is more than memory delivers: at most ([\d.]+)", found.reason)
            above = re.search(r"get ([\d.]+) at most, and ([\d.]+) are", found.reason)
            assert more is None or float(more[1]) > float(more[2]), found
            assert above is None or float(above[1]) < float(above[2]), found
    assert len(statuses) > 1, statuses


# What people published, retyped: file, profile, exit code, words that must be said, words that must not.
NOBODY = ("did you mean", "GPU twice", "is wrong", "84 NVLinks")
PUBLIC = (
    ("az162-links12.json", "h100", 0, ["PASS"], ()),
    ("az162-links18.json", "h100", 3, ["18 NVLinks are recorded, and the board has 12"], ("FAIL",)),
    ("az162-linksNone.json", "h100", 3, ["how many NVLinks join the two GPUs is not recorded (nvlinks)"], NOBODY),
    ("nccl149-8g.json", "base", 3, ["how many NVLinks are up from gpu 1 to gpu 0 is not recorded (links)"], NOBODY),
    ("nccl149-8g-uuid.json", "base", 3, ["12 NVLinks carry 300", "(268435456 of 2147483648 elements)"], NOBODY),
    ("nccl149-8g-uuid-pub.json", "base", 0, ["67 % (expected ≥ 72 % of 300 GB/s (12 NVLinks"], (*NOBODY, "FAIL")),
    ("nccl149-nolinks-pub.json", "base", 0, ["67 % (expected ≥ 72 % of 300 GB/s (12 NVLinks"], (*NOBODY, "FAIL")),
    ("nccl-healthy-80.json", "base", 3, ["not every element of the result was compared"], (*NOBODY, "FAIL")),
    ("nccl212-uuid-pub.json", "base", 0, ["PASS"], NOBODY),
    ("nccl583-40.json", "base", 3, ["12 NVLinks carry 300"], NOBODY),
    ("nvbw23-gh200.json", "base", 0, ["PASS"], NOBODY),
    ("nvbw50.json", "base", 0, ["no bridge joins these two cards"], NOBODY),
    ("peers-20b2-4.json", "base", 0, ["PASS"], NOBODY),
    ("peers-20b2-8.json", "base", 0, ["copies reach 240 of the 300 GB/s that 12 NVLinks carry"], NOBODY),
    ("clibs283.csv", "base", 3, ["640 TFLOPS is more than the peak", "it is not recorded"], ()),
    ("cutlass136.csv", "base", 3, ["2100 TOPS is more than the peak"], ()),
    ("cutlass941.csv", "base", 0, ["WARN", "39.9 %", "(expected ≥ 40 %"], ("40 % (3456",)),
    ("gpuburn48.csv", "base", 3, ["the catalogue does not have NVIDIA GeForce GTX 1080"], (*NOBODY, "10de:0000")),
    ("jax21212.csv", "base", 0, ["T4 has no units for bf16"], ()),
    ("mixbench18.csv", "base", 2, ["mixbench18.csv:2: m: is empty"], ()),
    ("nvbw48.csv", "base", 3, ["the catalogue does not have NVIDIA H20-3e"], NOBODY),
    ("nvbw53-bidir.csv", "base", 1, ["it is the host's memory or its placement, not the link"], ()),
    ("nvbw53-uni.csv", "base", 0, ["PASS"], ()),
    ("pt181718.csv", "base", 0, ["PASS"], ()),
    ("stas59.csv", "base", 0, ["PASS"], ()),
    ("smi-q.txt", "base", 2, ["this is the output of nvidia-smi", "no speed that gpuprep judges"], ("JSON",)),
    ("dcgm.json", "base", 2, ["this is the output of dcgmi diag"], ("measurements: missing",)),
    ("nvbw.json", "base", 0, ["nvbandwidth v0.8", "host to device 25.1"], ()),
    ("gpuburn.txt", "base", 3, ["its data type is not recorded", "49.1", "using FLOATS"], ()),
    ("superbench.json", "base", 3, ["which GPU it was is not recorded", "fp16 275", "sb-validation-01"], NOBODY),
)  # fmt: skip


def judged_text(shell: commandline.Shell, path: Path, profile_name: str) -> tuple[int, str]:
    """Exit code and all that is printed, in one line."""
    code, out, err = shell("judge", str(path), "--profile", profile_name)
    return code, " ".join((out + err).split())


@pytest.mark.parametrize(("name", "chosen", "code", "says", "never"), PUBLIC, ids=[row[0] for row in PUBLIC])
def test_what_people_published(
    capsys: pytest.CaptureFixture[str], name: str, chosen: str, code: int, says: list[str], never: tuple[str, ...]
) -> None:
    ended, text = judged_text(commandline.Shell(capsys), TESTS / "cases" / "public" / "judge" / name, chosen)
    assert ended == code, text
    assert [words for words in says if words not in text] == [], text
    assert [words for words in never if words in text] == [], text


FORTY = {"20b2": "20b0", "A100-SXM4-80GB": "A100-SXM4-40GB"}
OF_1463, OF_147F = ({'"20b2"': f'"20b2", "pci_subsystem_id": "{number}"'} for number in ("1463", "147f"))
# The same published figures, of another board or less complete: file, other words, keys left out, and as above.
LESS: tuple[tuple[str, dict[str, str], tuple[str, ...], int, str, str], ...] = (
    ("nccl-healthy-80.json", FORTY, (), 3, "not every element of the result was compared", "FAIL"),
    ("peers-20b2-8.json", FORTY, (), 0, "copies reach 240 of the 300 GB/s that 12 NVLinks carry", "FAIL"),
    ("nccl149-8g-uuid-pub.json", FORTY, (), 0, "67 % (expected ≥ 72 % of 300 GB/s (12 NVLinks", "FAIL"),
    ("nccl149-8g-uuid-pub.json", {"8589934592": "1073741824"}, (), 3, "would be 28.9 GB/s", "PASS "),
    ("nccl149-8g.json", OF_1463, (), 3, "gpu 1 to gpu 0 is not", "GPU twice"),
    ("nccl149-8g.json", OF_147F, (), 3, "gpu 1 to gpu 0 is not", "GPU twice"),
    ("nccl212-uuid-pub.json", {}, ("published",), 3, "not measured: all_reduce of 8 B", "FAIL"),
    ("nccl212-uuid-pub.json", {}, ("published", "links"), 3, "gpu 0 to gpu 1 is not recorded (links)", "is wrong"),
    ("nccl212-uuid-pub.json", {}, ("uuid", "pci_bus_id"), 0, "PASS", "GPU twice"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "others", "left_out", "code", "says", "never"), LESS)
def test_what_people_published_of_another_board_or_with_less(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, others: dict[str, str], left_out: tuple[str, ...],
    code: int, says: str, never: str,
) -> None:  # fmt: skip
    text = (TESTS / "cases/public/judge" / name).read_text(encoding="utf-8")
    for word, other in others.items():
        text = text.replace(word, other)
    path = write(tmp_path, without_keys(json.loads(text), left_out))
    ended, said = judged_text(commandline.Shell(capsys), path, "base")
    assert (ended, says in said, never in said) == (code, True, False), said


NVBANDWIDTH = """nvbandwidth Version: v0.5
Device 0: NVIDIA A100-SXM4-80GB (00000000:07:00)
Device 1: NVIDIA A100-SXM4-80GB (00000000:0b:00)

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     {h2d}     25.03

SUM host_to_device_memcpy_ce 50.11

Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0       N/A    276.02
 1    275.88       N/A
"""
GPU_BURN = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaaaaaa-0000-0000-0000-000000000000)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bbbbbbbb-0000-0000-0000-000000000000)
Initialized device 0 with 40536 MB of memory (40082 MB available, using 36074 MB of it), using {type}
11.7%  proc'd: 100 (100 Gflop/s) - 90 (90 Gflop/s)   errors: 0 - 0   temps: 50 C - 51 C
99.1%  proc'd: 2947 ({speed} Gflop/s) - 2940 (18600 Gflop/s)   errors: 0 - {errors}   temps: 56 C - 57 C
Tested 2 GPUs:
\tGPU 0: OK
"""
NCCL_TESTS = """{command}# nThread 1 nGpus {gpus} minBytes 8 maxBytes 1073741824 step: 2(factor) iters: 20
#
# Using devices
{ranks}
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float   {sum}      -1    30.20    0.00    0.00      0    28.84    0.00    0.00      0
{rows}
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 100.1
"""


A100_80 = "NVIDIA A100-SXM4-80GB"


def nccl_tests(busbw: float, name: str = "all_reduce", gpu_name: str = A100_80, **given: Any) -> str:
    """What `name`_perf prints on 8 GPUs: a row of 4 GiB. `given`: its command line, hosts, redop, wrong, ..."""
    ranks = given.get("gpus", 8)
    algbw = busbw / ((2 if name == "all_reduce" else 1) * (ranks - 1) / ranks)
    speed = f"{4 * 1024**3 / algbw / 1e3:9.1f} {algbw:7.2f} {busbw:7.2f}"
    wrong = given.get("wrong", 0)
    redop = given.get("redop", "sum" if name in ("all_reduce", "reduce_scatter") else "none")
    in_place = given.get("in_place", f"{speed} {wrong}")
    rank = "#  Rank {0:2} Group  0 Pid {1:6} on  {2} device {3:2} [{4}] {5}"
    hosts = given.get("hosts", ["n1"] * ranks)
    listed = [rank.format(at, 900 + at, host, at, f"0000:{at:02x}:00", gpu_name) for at, host in enumerate(hosts)]
    return NCCL_TESTS.format(
        command=given.get("command", f"# Collective test starting: {name}_perf\n"), gpus=ranks, ranks="\n".join(listed),
        sum=redop, rows=f"  4294967296    1073741824     float    {redop}      -1 {speed} 0 {in_place}",
    )  # fmt: skip


def nccl_json(busbw: float, listed: int = 8, clock: str = "time", **more: Any) -> str:
    """What all_reduce_perf writes with -J on 8 GPUs, of which it lists so many."""
    side = {clock: 4 * 1024**3 / (busbw / 1.75) / 1e3, "alg_bw": busbw / 1.75, "bus_bw": busbw, "nwrong": 0.0}
    row = {"size": 4 * 1024**3, "count": 1024**3, "type": "float", "redop": "sum", "root": "    -1"}
    devices = [
        {"rank": at, "group": 0, "pid": 9, "hostname": "n1", "device": at, "device_hex": "0", "device_info": A100_80}
        for at in range(listed)
    ]
    return json.dumps({
        "version": 3, "args": ["./build/all_reduce_perf", "-g", "8"], "env": ["TOKEN=secret"], "nccl_version": 22809,
        "config": {"nthreads": 1, "ngpus": 8, "devices": devices},
        "results": [{**row, "out_of_place": side, "in_place": side}], **more,
    })  # fmt: skip


NCCL_2019 = """ nThread 1 nGpus 2 minBytes 1310720000 maxBytes 1310720000 step: 1048576(bytes) warmup iters: 5 iters: 20
   Rank  0 Pid   1320 on ip-172-31-20-228 device  0 [0x00] Tesla V100-SXM2-16GB
   Rank  1 Pid   1320 on ip-172-31-20-228 device  1 [0x00] Tesla V100-SXM2-16GB
       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
 1310720000     327680000     float     sum    28184   46.50   46.50  0e+00    28190   46.49   46.49  2e-07
"""
V100 = "Tesla V100-SXM2-32GB"
# What another tool wrote, the exit code, and words that must be said.
OTHER_TOOLS = (
    ("nvbandwidth", NVBANDWIDTH.format(h2d="25.08"), 3, ["how many NVLinks join the two GPUs is not recorded"]),
    ("nvbandwidth, slow", NVBANDWIDTH.format(h2d="6.20"), 1, ["copies host to device reach 6.2 of the 31.5 GB/s"]),
    ("gpu-burn", GPU_BURN.format(type="FLOATS", speed=18700, errors=0), 0, ["18.7", "PASS"]),
    ("gpu-burn, doubles", GPU_BURN.format(type="DOUBLES", speed=18700, errors=0), 0, ["fp64 8192³ TFLOPS 18.6"]),
    ("gpu-burn, wrong", GPU_BURN.format(type="FLOATS", speed=18700, errors=3), 1, ["wrong results", "gpu 1"]),
    ("gpu-burn, slow", GPU_BURN.format(type="FLOATS", speed=6700, errors=0), 1, ["gpu 0: gemm fp32", "6.70"]),
    ("SuperBench", json.dumps({"gemm-flops/bf16_tc_flops:1": 260000.0, "mem-bw/d2h_bw:1": 26.0}), 3,
     ["gpu 1: gemm bf16", "which GPU it was is not recorded"]),
    ("SuperBench without speeds", json.dumps({"node": "n", "kernel-launch/event_time:0": 0.005}), 2,
     ["this is the output of SuperBench", "no speed that gpuprep judges"]),
    ("nvidia-smi as a table", "| NVIDIA-SMI 535.129.03   Driver Version: 535.129.03 |\n", 2, ["nvidia-smi"]),
    ("nvidia-smi as XML", "<?xml version='1.0'?>\n<nvidia_smi_log>\n</nvidia_smi_log>\n", 2, ["nvidia-smi"]),
    ("dcgmi as a table", "Successfully ran diagnostic for group.\n| Diagnostic | Result |\n", 2, ["dcgmi diag"]),
    ("DCGM 4", json.dumps({"DCGM Diagnostic": {"test_categories": []}}), 2, ["dcgmi diag"]),
    ("nccl-tests without its table", "# nThread 1 nGpus 8 minBytes 8\n# Avg bus bandwidth    : 230.1\n", 2,
     ["this is the output of nccl-tests: its table"]),
    ("nccl-tests", nccl_tests(231.0), 0, ["1 PASS, 1 SKIP"]),
    ("nccl-tests, slow", nccl_tests(90.0), 1, ["all_reduce of 4 GiB reaches 90 GB/s", "12 NVLinks carry 300"]),
    ("nccl-tests, gather", nccl_tests(225.0, "all_gather"), 0, ["1 PASS, 1 SKIP"]),
    ("nccl-tests, slow gather", nccl_tests(90.0, "all_gather"), 1, ["all_gather of 4 GiB reaches 90 GB/s"]),
    ("nccl-tests, a command line", nccl_tests(90.0, command="$ ./build/all_reduce_perf -g 8\n"), 1, ["all_reduce"]),
    ("nccl-tests, told by its sums", nccl_tests(90.0, "reduce_scatter", command=""), 1, ["reduce_scatter of 4 GiB"]),
    ("nccl-tests, told by nothing", nccl_tests(90.0, "all_gather", command=""), 3, ["the collective of 2 of 2"]),
    ("nccl-tests, no floor", nccl_tests(90.0, "alltoall", in_place="9.0 90.0 90.0 N/A"), 3, ["no floor of alltoall"]),
    ("nccl-tests, only out of place", nccl_tests(231.0, in_place="N/A N/A N/A N/A"), 0, ["1 PASS, 1 SKIP"]),
    ("nccl-tests, wrong sums", nccl_tests(231.0, wrong=3), 1, ["wrong results", "3 elements"]),
    ("nccl-tests, too fast", nccl_tests(400.0), 3, ["are more than 12 NVLinks carry"]),
    ("nccl-tests of two machines", nccl_tests(45.0, hosts=["a"] * 4 + ["b"] * 4), 2, ["each GPU of one machine once"]),
    ("nccl-tests, each process alone", nccl_tests(45.0).replace("Rank  1", "Rank  0"), 2, ["one machine once"]),
    ("nccl-tests with a rank cut out", nccl_tests(231.0).replace("Rank  3", "3"), 2, ["one machine once"]),
    ("nccl-tests, faster than PCIe", nccl_tests(45.0, gpu_name="Tesla T4"), 3, ["more than PCIe carry (15.8 GB/s)"]),
    ("nccl-tests, an unknown GPU", nccl_tests(45.0, gpu_name="NVIDIA X9"), 3, ["does not have"]),
    ("nccl-tests, mpirun", "".join(f"[1,0]<stdout>:{line}\n" for line in nccl_tests(90.0).splitlines()), 1, ["90 "]),
    ("nccl-tests, two collectives", nccl_tests(231.0) + nccl_tests(90.0, "all_gather"), 1,
     ["all_gather of 4 GiB reaches 90", "1 FAIL, 1 PASS"]),
    ("nccl-tests, all_gather below all_reduce's floor", nccl_tests(180.0, "all_gather"), 3, ["no figure is known"]),
    ("nccl-tests, reduce_scatter of four", nccl_tests(170.0, "reduce_scatter", gpus=4), 3, ["no figure is known"]),
    ("nccl-tests, all_gather of two H200", nccl_tests(276.0, "all_gather", "NVIDIA H200", gpus=2), 0, ["WARN"]),
    ("NCCL's rate as copies", json.dumps({"measurements": [{"probe": "bandwidth", "source": "measured", "values": {
        "published": "sendrecv_perf of nccl-tests", "gpus": [{"index": at, "name": A100_80} for at in range(2)],
        "peers": [{"from": 0, "to": 1, "can_access": True, "gb_per_s": 170.0, "nvlinks": 12}]}}]}), 3,
     ["lower than those of plain copies"]),
    ("nccl-tests, two machines one by one", nccl_tests(231.0) + nccl_tests(120.0, gpu_name=V100), 3, ["V100"]),
    ("nccl-tests of 2019", NCCL_2019, 3, ["V100"]),
    ("nccl-tests -J", nccl_json(231.0), 0, ["1 PASS, 1 SKIP"]),
    ("nccl-tests -J -C", nccl_json(90.0, clock="cpu_time"), 1, ["all_reduce of 4 GiB reaches 90 GB/s"]),
    ("nccl-tests -C", nccl_tests(90.0).replace("   time", "cputime"), 1, ["all_reduce of 4 GiB reaches 90 GB/s"]),
    ("nccl-tests -J, slow", nccl_json(90.0), 1, ["all_reduce of 4 GiB reaches 90 GB/s"]),
    ("nccl-tests -J, the other GPUs without a name", nccl_json(231.0, 1), 3, ["which GPU it was is not recorded"]),
    ("nccl-tests -J, hostile", nccl_json(231.0, results=[{"size": "1\n# Rank 9", "in_place": [3]}, 7], args=7), 2,
     ["nccl-tests"]),
    ("nvidia-smi topo", "        GPU0    GPU1    CPU Affinity\nGPU0     X      NV12    0-31\n", 2, ["nvidia-smi topo"]),
    ("nvidia-smi's table of values", "name, memory.total [MiB]\nTesla T4, 15360 MiB\n", 2, ["nvidia-smi --query-gpu"]),
    ("SuperBench of two nodes", "\n".join(json.dumps({"node": n, "gemm-flops/fp16_tc_flops:0": 9e4}) for n in "ab"), 3,
     ["a UNKNOWN", "b UNKNOWN", "which GPU it was is not recorded"]),
    ("nvbandwidth as JSON", json.dumps({"nvbandwidth": {
        "GPU Device list": ["0: Tesla T4 (00000000:00:1e):(ip-10-0-0-7)"], "testcases": [
            {"name": "device_to_host_memcpy_ce", "status": "Passed", "bandwidth_matrix": [["12.6"]]},
            {"name": "host_to_device_memcpy_ce", "status": "Waived", "bandwidth_matrix": []}]}}), 0,
     ["device to host 12.6", "PASS"]),
    ("no tool", "GPU 0 is fine\n", 2, ["is not JSON"]),
    ("hostile", '{"nvbandwidth": {"GPU Device list": 7, "testcases": [3, {"bandwidth_matrix": "x"}, {"name": '
     '"host_to_device_memcpy_ce", "bandwidth_matrix": [["NaN", "1e400", true, null, "-3"]]}]}}', 2, ["nvbandwidth"]),
)  # fmt: skip


@pytest.mark.parametrize(("output", "code", "says"), [row[1:] for row in OTHER_TOOLS], ids=[r[0] for r in OTHER_TOOLS])
def test_what_other_tools_wrote(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, output: str, code: int, says: list[str]
) -> None:
    path = tmp_path / "output.log"
    path.write_text(output, encoding="utf-8")
    ended, text = judged_text(commandline.Shell(capsys), path, "base")
    assert ended == code, text
    assert [words for words in says if words not in text] == [], text


@pytest.mark.parametrize(
    ("chosen", "code", "says"),
    [
        ("t4", 0, ["the GPU by the profile: T4", "PASS n, t4"]),
        (
            "a100",
            3,
            ["which board of the A100 it is is not known, and their fp16 peaks differ", "their memory speeds differ"],
        ),
        ("base", 3, ["which GPU it was is not recorded", "judge it by the profile of its model alone"]),
    ],
)
def test_gpus_that_another_tool_does_not_name_are_those_of_the_profile(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, chosen: str, code: int, says: list[str]
) -> None:
    path = tmp_path / "results.json"
    figures = {"gemm-flops/fp16_tc_flops:0": 28_000.0, "mem-bw/h2d_bw:0": 12.3, "mem-bw/d2d_bw:0": 240.0}
    path.write_text(json.dumps({"node": "n", **figures}), encoding="utf-8")
    ended, text = judged_text(commandline.Shell(capsys), path, chosen)
    assert ended == code, text
    assert [words for words in says if words not in text] == [], text
