"""What `drift schedule` leaves on a host is read there as it was meant."""

import dataclasses
import json
from datetime import datetime

import pytest
from builders import finished_snapshot
from hypothesis import given
from hypothesis import strategies as st
from nightsfortests import a_plan, certified

from gpuprep import checks
from gpuprep.desired.profile import Waiver
from gpuprep.nightly import nightlyplan
from gpuprep.records import DecodeError, Finding, Missing, Status, Verdict, to_json
from gpuprep.records.baseline import Baseline, BaselineFigure, BaselineKey

FIGURES: Baseline = {
    BaselineKey("GPU-0", "gemm", "gpuprep 0.1.0, cublasLt 13.1.0, quick"): {
        "fp16/fp32 8192x8192x8192 TN": BaselineFigure(52.25, "20261120-100000-00aa", "2026-11-20T10:00:00+00:00"),
        "fp32 4096x4096x4096 TN": BaselineFigure(7.5, "20261120-100000-00aa", "2026-11-20T10:00:00+00:00"),
    },
    BaselineKey("GPU-0", "bandwidth", "gpuprep 0.1.0, quick"): {
        "device copy": BaselineFigure(231.5, "20261120-110000-00bb", "2026-11-20T11:00:00+00:00")
    },
}


@pytest.mark.parametrize("name", ["t4", "v100", "a100", "h200"])
def test_a_plan_is_read_as_it_was_written(name: str) -> None:
    waiver = Waiver("gpu *.power_limit", "gpu-*", "a weak supply, ticket 42", "2026-12-31")
    plan = a_plan(name, waivers=(waiver,), baseline=nightlyplan.entries(FIGURES))
    read = nightlyplan.from_text(nightlyplan.to_text(plan))
    # what a probe is told is plain JSON: a tuple of the catalogue is a list on the host
    assert read.probe_arguments == json.loads(to_json(plan.probe_arguments))
    assert dataclasses.replace(read, probe_arguments=plan.probe_arguments) == plan


def test_a_plan_means_the_same_findings_on_the_host() -> None:
    plan = a_plan()
    read = nightlyplan.from_text(nightlyplan.to_text(plan))
    facts = finished_snapshot(plan.wanted)
    assert checks.compare(read.wanted, facts) == checks.compare(plan.wanted, facts)


def test_figures_survive_being_made_flat() -> None:
    assert nightlyplan.baseline(nightlyplan.entries(FIGURES)) == FIGURES


texts = st.text(st.characters(categories=("L", "M", "N", "P", "S")), min_size=1, max_size=12)
run_ids = st.from_regex(r"[0-9a-z-]{1,30}", fullmatch=True)
moments = st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)).map(lambda when: f"{when:%Y-%m-%dT%H:%M:%S}+00:00")
figures = st.builds(BaselineFigure, st.floats(0.1, 1e6), run_ids, moments)
keys = st.builds(BaselineKey, texts, texts, texts)


@given(st.dictionaries(keys, st.dictionaries(texts, figures, min_size=1, max_size=4), max_size=4))
def test_any_figures_survive_the_file(past: Baseline) -> None:
    plan = a_plan(baseline=nightlyplan.entries(past))
    assert nightlyplan.baseline(nightlyplan.from_text(nightlyplan.to_text(plan)).baseline) == past


def test_the_certified_run_is_reduced_to_what_is_compared() -> None:
    whole = certified()
    kept = nightlyplan.certified_part(whole)
    assert kept.after is not None
    assert whole.after is not None
    assert not isinstance(kept.after.gpus, Missing)
    assert not isinstance(whole.after.gpus, Missing)
    assert (kept.run_id, kept.started_at) == (whole.run_id, whole.started_at)
    assert kept.after.packages == whole.after.packages
    assert isinstance(kept.after.gpus[0].supported_clocks, Missing)
    assert (
        dataclasses.replace(kept.after.gpus[0], supported_clocks=whole.after.gpus[0].supported_clocks)
        == (whole.after.gpus[0])
    )
    assert kept.before is None
    assert kept.findings == ()


def test_the_plan_knows_what_did_not_pass_when_certified() -> None:
    found = tuple(Finding("apt", status.value, status, "", "") for status in (Status.PASS, Status.SKIP, Status.WAIVED))
    judged = dataclasses.replace(certified(), verdict=Verdict(Status.PASS, "", found))
    assert [one.status for one in nightlyplan.certified_part(judged).findings] == [Status.WAIVED]


def test_a_damaged_plan_names_the_field() -> None:
    document = json.loads(nightlyplan.to_text(a_plan()))
    del document["wanted"]["clocks"]
    with pytest.raises(DecodeError, match=r"NightlyPlan\.wanted\.clocks: missing"):
        nightlyplan.from_text(json.dumps(document))
    with pytest.raises(DecodeError, match="not JSON"):
        nightlyplan.from_text(nightlyplan.to_text(a_plan())[:-20])


def test_a_plan_of_a_newer_form_is_refused() -> None:
    text = nightlyplan.to_text(a_plan(schema_version=2, made_by="9.0.0"))
    with pytest.raises(DecodeError, match=r"its form is 2, by gpuprep 9\.0\.0"):
        nightlyplan.from_text(text)
