"""What `drift schedule` leaves on a host is read there as it was meant."""

import dataclasses
import json
from datetime import datetime

import pytest
from builders import PROFILES, bare_snapshot, finished_snapshot, load, with_parts
from hypothesis import given
from hypothesis import strategies as st
from nightsfortests import a_plan, certified
from places import TESTS

from gpuprep import checks, records
from gpuprep.desired import profile, state
from gpuprep.nightly import nightlyplan
from gpuprep.records import baseline

FIGURES: baseline.Baseline = {
    baseline.BaselineKey("GPU-0", "gemm", "gpuprep 0.1.0, cublasLt 13.1.0, quick"): {
        "fp16/fp32 8192x8192x8192 TN": baseline.BaselineFigure(
            52.25, "20261120-100000-00aa", "2026-11-20T10:00:00+00:00"
        ),
        "fp32 4096x4096x4096 TN": baseline.BaselineFigure(7.5, "20261120-100000-00aa", "2026-11-20T10:00:00+00:00"),
    },
    baseline.BaselineKey("GPU-0", "bandwidth", "gpuprep 0.1.0, quick"): {
        "device copy": baseline.BaselineFigure(231.5, "20261120-110000-00bb", "2026-11-20T11:00:00+00:00")
    },
}


@pytest.mark.parametrize("name", PROFILES)
def test_a_plan_is_read_as_it_was_written(name: str) -> None:
    waiver = profile.Waiver("gpu *.power_limit", "gpu-*", "a weak supply, ticket 42", "2026-12-31")
    plan = a_plan(name, waivers=(waiver,), baseline=nightlyplan.entries(FIGURES))
    read = nightlyplan.from_text(nightlyplan.to_text(plan))
    # what a probe is told is plain JSON: a tuple of the catalogue is a list on the host
    assert read.probe_arguments == json.loads(records.to_json(plan.probe_arguments))
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
figures = st.builds(baseline.BaselineFigure, st.floats(0.1, 1e6), run_ids, moments)
keys = st.builds(baseline.BaselineKey, texts, texts, texts)


@given(st.dictionaries(keys, st.dictionaries(texts, figures, min_size=1, max_size=4), max_size=4))
def test_any_figures_survive_the_file(past: baseline.Baseline) -> None:
    plan = a_plan(baseline=nightlyplan.entries(past))
    assert nightlyplan.baseline(nightlyplan.from_text(nightlyplan.to_text(plan)).baseline) == past


def test_the_certified_run_is_reduced_to_what_is_compared() -> None:
    whole = certified()
    kept = nightlyplan.certified_part(whole)
    assert kept.after is not None
    assert whole.after is not None
    assert not isinstance(kept.after.gpus, records.Missing)
    assert not isinstance(whole.after.gpus, records.Missing)
    assert (kept.run_id, kept.started_at) == (whole.run_id, whole.started_at)
    assert kept.after.packages == whole.after.packages
    assert isinstance(kept.after.gpus[0].supported_clocks, records.Missing)
    assert (
        dataclasses.replace(kept.after.gpus[0], supported_clocks=whole.after.gpus[0].supported_clocks)
        == (whole.after.gpus[0])
    )
    assert kept.before is None
    assert kept.findings == ()


def test_the_plan_knows_what_did_not_pass_when_certified() -> None:
    found = tuple(
        records.Finding("apt", status.value, status, "", "")
        for status in (records.Status.PASS, records.Status.SKIP, records.Status.WAIVED)
    )
    judged = dataclasses.replace(certified(), verdict=records.Verdict(records.Status.PASS, "", found))
    assert [one.status for one in nightlyplan.certified_part(judged).findings] == [records.Status.WAIVED]


def test_a_damaged_plan_names_the_field() -> None:
    document = json.loads(nightlyplan.to_text(a_plan()))
    del document["wanted"]["tuning"]["clocks"]
    with pytest.raises(records.DecodeError, match=r"NightlyPlan\.wanted\.tuning\.clocks: missing"):
        nightlyplan.from_text(json.dumps(document))
    with pytest.raises(records.DecodeError, match="not JSON"):
        nightlyplan.from_text(nightlyplan.to_text(a_plan())[:-20])


def test_a_plan_of_a_newer_form_is_refused() -> None:
    document = json.loads(nightlyplan.to_text(a_plan(schema_version=4, made_by="9.0.0")))
    with pytest.raises(records.DecodeError, match=r"its form is 4, by gpuprep 9\.0\.0; this one reads 3"):
        nightlyplan.from_text(json.dumps(document))
    document["wanted"] = "a word that this gpuprep does not know"
    with pytest.raises(records.DecodeError, match=r"its form is 4, by gpuprep 9\.0\.0; this one reads 3"):
        nightlyplan.from_text(json.dumps(document))


# ---------------------------------------------------------------- form 2, whose `thresholds` were flat

FORM_2 = TESTS / "cases" / "nightlyplan" / "form-2.json"


def test_a_plan_of_form_2_means_what_it_meant() -> None:
    """The case was written by the last gpuprep of form 2."""
    read = nightlyplan.from_text(FORM_2.read_text(encoding="utf-8"))
    assert read.thresholds == load("v100").thresholds
    assert read.thresholds["fp16_percent_of_peak"].source
    assert read.wanted == the_same_today().wanted
    assert read.schema_version == nightlyplan.SCHEMA_VERSION
    assert nightlyplan.from_text(nightlyplan.to_text(read)) == read


@pytest.mark.parametrize(("name", "value"), [("sources", 3), ("shipped", None), ("fp16_percent_of_peak", "65")])
def test_a_damaged_plan_of_form_2_names_the_field(name: str, value: object) -> None:
    document = json.loads(FORM_2.read_text(encoding="utf-8"))
    document["thresholds"] |= {name: value}
    with pytest.raises(records.DecodeError, match=r"NightlyPlan\.thresholds\."):
        nightlyplan.from_text(json.dumps(document))


# ---------------------------------------------------------------- form 1, whose `wanted` was flat

FORM_1 = TESTS / "cases" / "nightlyplan" / "form-1.json"


def the_same_today() -> nightlyplan.NightlyPlan:
    """The plan of the case, made by today's code: the case was written by the last gpuprep of form 1."""
    wish = load(
        "v100",
        tuning={"clocks": records.ClockPair(877, 1530), "power_limit_watts": 250},
        extras={"mount": profile.MountWish("/dev/vdb", "/data", "ext4", "defaults"), "tools": ("tmux",)},
    )
    waiver = profile.Waiver("gpu *.power_limit", "gpu-*", "a weak supply", "2026-12-31")
    return a_plan("v100", wanted=state.resolve(wish, bare_snapshot(gpus=["1db1"])), waivers=(waiver,))


def test_a_plan_of_form_1_means_what_it_meant() -> None:
    read = nightlyplan.from_text(FORM_1.read_text(encoding="utf-8"))
    today = the_same_today().wanted
    # It was written when three packages that the role holds were not checked.
    assert set(read.wanted.driver.packages) < set(today.driver.packages)
    today = with_parts(today, driver={"packages": read.wanted.driver.packages})
    assert read.wanted == today
    assert read.schema_version == nightlyplan.SCHEMA_VERSION
    assert read.certified is not None
    facts = finished_snapshot(read.wanted)
    assert checks.compare(read.wanted, facts) == checks.compare(today, facts)
    assert nightlyplan.from_text(nightlyplan.to_text(read)) == read


def test_a_plan_of_form_1_from_before_some_of_its_fields() -> None:
    document = json.loads(FORM_1.read_text(encoding="utf-8"))
    for name in ("installs", "decisions", "agent_libraries"):
        del document["wanted"][name]
    read = nightlyplan.from_text(json.dumps(document))
    assert (read.wanted.installs, read.wanted.decisions, read.wanted.agent.libraries) == (True, (), {})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("clocks", None, r"NightlyPlan\.wanted\.tuning\.clocks: missing"),
        ("driver_hold", "yes", r"NightlyPlan\.wanted\.driver\.hold: want true or false"),
        ("npp", None, r"NightlyPlan\.wanted\.codec\.npp: missing"),
        ("gpus", 7, r"NightlyPlan\.wanted\.gpus: want a list"),
    ],
)
def test_a_damaged_plan_of_form_1_names_the_field(name: str, value: object, says: str) -> None:
    document = json.loads(FORM_1.read_text(encoding="utf-8"))
    document["wanted"].pop(name)
    document["wanted"] |= {} if value is None else {name: value}
    with pytest.raises(records.DecodeError, match=says):
        nightlyplan.from_text(json.dumps(document))


@pytest.mark.parametrize("wanted", [None, 1, [], "flat"])
def test_a_plan_of_form_1_without_a_wish_is_refused(wanted: object) -> None:
    document = json.loads(FORM_1.read_text(encoding="utf-8")) | {"wanted": wanted}
    with pytest.raises(records.DecodeError, match=r"NightlyPlan\.wanted: want an object"):
        nightlyplan.from_text(json.dumps(document))
