"""Drift records as Prometheus metrics: names, units, what is absent, and a file that is whole or not there."""

from __future__ import annotations

import dataclasses
import math
import re
import stat
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from nightmetrics import CARD, FINDINGS, METRICS, drifted, families, series, text_of, write
from records_for_tests import SNAPSHOT
from validations_for_tests import h200

from gpuprep import records


def only(text: str, name: str, **labels: str) -> float:
    found = [one for one in series(text, name) if labels.items() <= one.labels.items()]
    assert len(found) == 1, (name, labels, found)
    return float(found[0].value)


def test_the_verdict_and_what_did_not_pass() -> None:
    text = text_of(drifted())
    assert only(text, "gpuprep_drift_verdict", status="FAIL") == 1
    assert sum(one.value for one in series(text, "gpuprep_drift_verdict")) == 1
    assert only(text, "gpuprep_drift_last_run_timestamp_seconds") == 1795228202
    assert only(text, "gpuprep_drift_duration_seconds") == 2
    assert only(text, "gpuprep_drift_waived") == 1
    assert only(text, "gpuprep_drift_findings", status="PASS") == 1
    shown = {(one.labels["property"], one.labels["status"]) for one in series(text, "gpuprep_drift_finding")}
    assert shown == {("application_clocks", "FAIL"), ("power_limit", "WAIVED")}, (
        "passed and skipped ones have no series"
    )
    since = only(text, "gpuprep_drift_finding_since_timestamp_seconds", property="application_clocks")
    assert since == 1795055400
    ends = only(text, "gpuprep_drift_waiver_expiry_timestamp_seconds", property="power_limit")
    assert ends == datetime(2026, 11, 30, 23, 59, 59, tzinfo=timezone.utc).timestamp()
    assert only(text, "gpuprep_drift_certified_timestamp_seconds") == 1793534400


def test_readings_are_in_base_units_and_absent_where_there_was_none() -> None:
    text = text_of(drifted())
    assert only(text, "gpuprep_gpu_application_clock_hertz", clock="graphics") == 585e6
    assert only(text, "gpuprep_gpu_power_limit_watts") == 70
    assert only(text, "gpuprep_gpu_ecc_errors_total") == 7, "the uncorrected ones could not be read: no series"
    assert only(text, "gpuprep_gpu_throttled_seconds_total", reason="sw_power_cap") == 12.5
    reasons = [one.labels["reason"] for one in series(text, "gpuprep_gpu_throttled_seconds_total")]
    assert reasons == [each.name for each in dataclasses.fields(records.Throttled) if each.name != "sw_thermal"]
    blind = dataclasses.replace(drifted(), after=SNAPSHOT)
    assert "gpuprep_gpu_" not in text_of(blind)


def test_speeds_stand_beside_the_baseline() -> None:
    probed = dataclasses.replace(drifted(), measurements=h200().measurements)
    facts = records.DriftFacts(
        compared=(records.Compared(CARD.uuid, "gemm", "fp16 8192x8192x8192 TN", 690.0, 750.0, "r"),)
    )
    text = text_of(dataclasses.replace(probed, drift=facts))
    assert 763.2e12 in {one.value for one in series(text, "gpuprep_gemm_operations_per_second")}
    assert 4260e9 in {one.value for one in series(text, "gpuprep_bandwidth_bytes_per_second")}
    assert only(text, "gpuprep_drift_baseline_ratio", probe="gemm", gpu="0") == pytest.approx(0.92)


def test_the_health_of_a_gpu() -> None:
    missing = records.Missing("not_supported")
    card = dataclasses.replace(
        CARD,
        retired_pages=missing,
        remapped_rows=records.RemappedRows(3, 1, True, False),
        spare_rows=records.SpareRows(600, 30, 9, 1, 0),
        dram_errors=records.EccErrors(0, 0, 5, 2),
        sram_errors=records.EccErrors(0, 0, 1, missing),
        sram_threshold_exceeded=True,
        pcie_errors=records.PcieErrors(4, missing, 0),
        slowdown_temperature_c=92,
        temperatures=records.Temperatures(61, 85, 98, 95, 27, -2, -8),
        recovery_action="drain_p2p",
    )
    text = text_of(dataclasses.replace(drifted(), after=dataclasses.replace(SNAPSHOT, gpus=(card,))))
    assert only(text, "gpuprep_gpu_repair_pending") == 1
    assert only(text, "gpuprep_gpu_remap_failure") == 0
    banks = {one.labels["spare_rows"]: one.value for one in series(text, "gpuprep_gpu_row_banks")}
    assert banks == {"full": 600, "high": 30, "partial": 9, "low": 1, "none": 0}
    errors = {(one.labels["memory"], one.labels["kind"]) for one in series(text, "gpuprep_gpu_memory_errors_total")}
    assert errors == {("dram", "corrected"), ("dram", "uncorrected"), ("sram", "corrected")}
    assert only(text, "gpuprep_gpu_memory_errors_total", memory="dram", kind="uncorrected") == 2
    assert only(text, "gpuprep_gpu_sram_threshold_exceeded") == 1
    kinds = [one.labels["kind"] for one in series(text, "gpuprep_gpu_pcie_errors_total")]
    assert kinds == ["correctable", "fatal"]
    assert only(text, "gpuprep_gpu_slowdown_temperature_celsius") == 92
    assert only(text, "gpuprep_gpu_memory_temperature_celsius") == 61
    assert only(text, "gpuprep_gpu_slowdown_margin_celsius") == 27
    assert only(text, "gpuprep_gpu_recovery_action", action="drain_p2p") == 1
    unread = dataclasses.replace(CARD, retired_pages=missing, remapped_rows=missing)
    text = text_of(dataclasses.replace(drifted(), after=dataclasses.replace(SNAPSHOT, gpus=(unread,))))
    assert "repair_pending" not in text


def test_what_the_nightly_check_notes_of_itself() -> None:
    options: dict[str, Any] = {"random_delay_minutes": 720}
    facts = records.DriftFacts(
        probe_asked_since="2026-11-01T02:30:00+00:00", probe_measured_at="2026-11-20T02:30:00+00:00", on_host=True
    )
    lost = dataclasses.replace(drifted(), verdict=None, after=None, error="no answer")  # the speed is not forgotten
    for night in (drifted(), lost):
        text = text_of(dataclasses.replace(night, options=options, drift=facts))
        assert only(text, "gpuprep_drift_random_delay_seconds") == 43200
        assert only(text, "gpuprep_drift_probe_asked_since_timestamp_seconds") == 1793500200
        assert only(text, "gpuprep_drift_probe_last_measured_timestamp_seconds") == 1795141800
    for options, facts in (
        ({}, records.DriftFacts()),
        ({"random_delay_minutes": "30"}, records.DriftFacts(probe_asked_since="yesterday")),
    ):
        text = text_of(dataclasses.replace(drifted(), options=options, drift=facts))
        assert "_delay_" not in text
        assert "_probe_" not in text


def test_a_check_without_a_verdict_is_unknown_and_counts_nothing() -> None:
    lost = dataclasses.replace(drifted(), verdict=None, findings=(), after=None, drift=None, error="gpu-01: no answer")
    text = text_of(lost)
    assert only(text, "gpuprep_drift_verdict", status="UNKNOWN") == 1
    assert not series(text, "gpuprep_drift_findings")
    assert only(text, "gpuprep_drift_info", run=lost.run_id) == 1


def test_a_fleet_is_one_exposition() -> None:
    text = text_of(drifted("a"), drifted("b", FINDINGS[2:], records.Status.PASS))
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert len(heads) == len(set(heads))
    assert {one.labels["host"] for one in series(text, "gpuprep_drift_verdict")} == {"a", "b"}
    lines = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines))


def test_what_is_simulated_says_so_in_every_series() -> None:
    simulated = dataclasses.replace(drifted(), source=records.Source.SIMULATED)
    made = families(text_of(simulated))
    assert made
    for family in made.values():
        assert {one.labels["source"] for one in family.samples} == {"simulated"}


def test_names_follow_the_conventions() -> None:
    """https://prometheus.io/docs/practices/naming."""
    for name, labels in METRICS.items():
        assert labels[:3] == ("host", "profile", "source")
        assert not re.search(r"mhz|mib|percent|milli|_ms$|_count$", name), "base units"
    kinds = {name: family.type for name, family in families(text_of(drifted())).items()}
    assert {name for name, kind in kinds.items() if kind == "counter"} == {
        "gpuprep_gpu_ecc_errors", "gpuprep_gpu_throttled_seconds",
    } | {name for name in kinds if re.fullmatch("gpuprep_gpu_(pcie_replays|(pcie|memory)_errors)", name)}  # fmt: skip


def test_a_host_with_thousands_of_findings_does_not_flood_prometheus() -> None:
    many = tuple(
        records.Finding(f"gpu {i}", "p", records.Status.FAIL, "a", "b", since=FINDINGS[0].since) for i in range(5000)
    )
    text = text_of(drifted(findings=many))
    assert len(series(text, "gpuprep_drift_finding")) == 100
    assert only(text, "gpuprep_drift_findings", status="FAIL") == 5000


@pytest.mark.parametrize("value", [math.nan, math.inf, None, records.Missing("gpu_is_lost"), "70"])
def test_what_is_no_number_is_no_series(value: Any) -> None:
    spoiled = dataclasses.replace(CARD, temperature_c=value)
    after = dataclasses.replace(SNAPSHOT, gpus=(spoiled,))
    assert "temperature" not in text_of(dataclasses.replace(drifted(), after=after))


def test_the_file_is_readable_by_all_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    write(tmp_path, drifted())
    write(tmp_path, drifted(findings=FINDINGS[2:], status=records.Status.PASS))
    assert [path.name for path in tmp_path.iterdir()] == ["gpuprep.prom"]
    file = tmp_path / "gpuprep.prom"
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert only(file.read_text(), "gpuprep_drift_verdict", status="PASS") == 1


def test_a_folder_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        write(tmp_path / "nowhere", drifted())


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, drifted())
    before = (tmp_path / "gpuprep.prom").read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path, drifted("other"))
    assert (tmp_path / "gpuprep.prom").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["gpuprep.prom"]


def test_hostile_words_stay_words() -> None:
    words = 'x"} 1\n# HELP \\ \ud800'
    text = text_of(drifted(host=words, findings=(dataclasses.replace(FINDINGS[0], subject=words),)))
    assert {one.labels["subject"] for one in series(text, "gpuprep_drift_finding")} == {'x"} 1\n# HELP \\ \\ud800'}
