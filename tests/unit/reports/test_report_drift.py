"""What a drift check and a waiver look like in every format."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET

import pytest
from builders import finished_snapshot, resolved
from pages import fleet, printed, too_wide
from records_for_tests import record
from reportpages import FIXES, TUNE

from gpuprep import records, reports

NOW = "2026-11-21T02:31:07+00:00"
CLOCKS = records.Finding(
    "gpu 0",
    "clocks",
    records.Status.FAIL,
    "1590 MHz",
    "585 MHz",
    "they are low",
    "tune it",
    "gpu_tuning",
    since="2026-11-19T02:31:00+00:00",
)
HELD = records.Finding(
    "driver", "held", records.Status.FAIL, "all held", "not held: libcuda1", "an upgrade", "hold", since=NOW
)
POWER = records.Finding(
    "gpu 0",
    "power_limit",
    records.Status.WAIVED,
    "70 W",
    "62 W",
    "waived until 2026-12-31 (one supply): low",
    "tune",
    since="2026-11-20T02:31:00+00:00",
    waived="FAIL",
    waiver_expires="2026-12-31",
)
PASSED = tuple(records.Finding("kernel", f"fact_{n}", records.Status.PASS, "a", "a") for n in range(90))
SKIPPED = records.Finding("cudnn", "version", records.Status.SKIP, "none", "not checked", "the profile asks for none")


def drift(*findings: records.Finding, **facts: object) -> records.RunRecord:
    status = records.Status.FAIL if any(one.status is records.Status.FAIL for one in findings) else records.Status.PASS
    judged = records.Verdict(status, f"{status.value}: profile t4, {len(findings)} checks", tuple(findings))
    compared = {"certified_run": "20261118-100000-abc", "certified_at": "2026-11-18T10:00:00+00:00"}
    made = records.DriftFacts(**{**compared, **facts})  # type: ignore[arg-type]
    base = record()
    return dataclasses.replace(
        base, command="drift", started_at=NOW, ended_at=NOW, verdict=judged, findings=tuple(findings), drift=made,
        after=finished_snapshot(resolved()), playbook=None, plan=None, measurements=(), error=None,
        options={"fix": False}, exit_code=1 if status is records.Status.FAIL else 0,
    )  # fmt: skip


SILENT = drift(*PASSED, SKIPPED, previous_run="20261120-023107-def", previous_at="2026-11-20T02:31:07+00:00")
LOUD = drift(CLOCKS, HELD, POWER, *PASSED, SKIPPED, fixes=FIXES, probe="quick", probe_skipped="in use by x (pid 1)")


@pytest.mark.parametrize(
    ("written", "now", "said"),
    [
        ("", NOW, ""),
        (NOW, NOW, "first seen now"),
        ("2026-11-19T02:31:00+00:00", NOW, "since 2026-11-19 02:31 UTC, 2 nights"),
        ("2026-11-20T23:59:00+00:00", NOW, "since 2026-11-20 23:59 UTC, 1 night"),
        ("2026-11-21T02:00:00+00:00", NOW, "since 2026-11-21 02:00 UTC"),
        ("2027-01-01T02:00:00+00:00", NOW, "since 2027-01-01 02:00 UTC"),  # a clock that was wrong
    ],
)
def test_since_when(written: str, now: str, said: str) -> None:
    check = dataclasses.replace(drift(dataclasses.replace(CLOCKS, since=written)), started_at=now)
    below = [line.strip() for line in printed(check).partition("Compared with")[0].splitlines()]
    assert [line for line in below if line.startswith(("since", "first seen"))] == ([said] if said else [])


def test_a_silent_check_is_a_short_page_and_names_what_it_was_compared_with() -> None:
    page = printed(SILENT)
    assert len(page.splitlines()) < 15
    assert "run 20261118-100000-abc, 2026-11-18 10:00 UTC" in page
    assert "run 20261120-023107-def, 2026-11-20 02:31 UTC" in page
    assert page.splitlines()[-1].endswith(f"90 PASS, 1 SKIP, run {SILENT.run_id}")
    assert "1 skipped: the profile asks for none" in page
    assert "fact_1" not in page.replace(" ", "_")
    whole = reports.render(SILENT, "text")
    assert "Passed (90)" in whole
    assert "the profile asks for none" in whole
    assert too_wide(page) == too_wide(whole) == []


def test_differences_come_first_then_waivers_then_what_was_put_back() -> None:
    page = printed(LOUD)
    places = [page.index(words) for words in ("Did not pass", "Waived (1)", "Put back", "Compared with", "90 PASS")]
    assert places == sorted(places)
    lines = [line.strip() for line in page.splitlines()]
    for line in (
        "since 2026-11-19 02:31 UTC, 2 nights",
        "first seen now",
        "WAIVED  gpu 0: power limit",
        "DONE    set clocks",
        f"# {TUNE}",
        "gpu 0 clocks: 585 MHz -> 1590 MHz",
        "gpu 0 compute mode: prohibited -> default",
        "FAILED  hold the packages again",
        "exit code 100: E: no lock busy",
        "speed            not measured: in use by x (pid 1)",
    ):
        assert line in lines, line
    assert page.count(TUNE) == 1
    assert too_wide(page) == []
    assert "\x1b[34mWAIVED" in printed(LOUD, color=True)


def test_a_command_of_fix_after_which_the_check_finds_the_same_is_not_done() -> None:
    fix = dataclasses.replace(FIXES[0], exit_code=0, stays=True)
    page = " ".join(printed(drift(*PASSED, fixes=(fix,))).split())
    assert "FAILED set clocks" in page
    assert "it ran, and the check still finds this: gpu 0 clocks" in page
    assert "DONE" not in page


def test_fix_with_nothing_to_put_back_says_so() -> None:
    page = printed(dataclasses.replace(SILENT, options={"fix": True}))
    assert "there was nothing that --fix can repair" in " ".join(page.split())


def test_the_first_check_of_a_host_that_never_passed_says_so() -> None:
    page = " ".join(reports.render(drift(*PASSED, certified_run="", certified_at=""), "text").split())
    assert "no run is certified yet: compared with the profile alone" in page
    assert "none: this is the first check" in page


def test_a_waiver_shows_on_the_page_of_a_validation_too() -> None:
    page = reports.render(dataclasses.replace(LOUD, command="validate", drift=None), "text")
    assert "Waived (1)" in page
    assert page.index("Did not pass") < page.index("Waived (1)")


def test_markdown() -> None:
    page = reports.render(LOUD, "markdown")
    for part in (
        "## Did not pass",
        "## Waived (1)",
        "## Put back",
        "## Compared with",
        "🤝 WAIVED",
        f"<code>{TUNE}</code>",
    ):
        assert part in page
    assert "they are low; since 2026-11-19 02:31 UTC, 2 nights" in page.replace("\\", "")
    assert "gpu 0 clocks: 585 MHz -&gt; 1590 MHz" in page
    assert "since 2026-11-19 02:31 UTC" in reports.render_fleet([LOUD, SILENT], "markdown", 1).replace("\\", "")


def test_html() -> None:
    page = reports.render(LOUD, "html")
    for part in (
        'id="waived"',
        'id="fixed"',
        'id="against"',
        "pill WAIVED",
        "2026-11-19 02:31 UTC, 2 nights",
        "exit code 100",
    ):
        assert part in page
    assert "without the waiver: FAIL" in page
    silent = reports.render(SILENT, "html")
    assert 'id="waived"' not in silent
    assert 'id="fixed"' not in silent
    assert "20261120-023107-def" in silent


def test_junit_skips_what_is_waived_with_its_reason() -> None:
    (suite,) = ET.fromstring(reports.render(LOUD, "junit"))
    assert (suite.attrib["failures"], suite.attrib["skipped"]) == ("2", "2")
    (case,) = [one for one in suite.iter("testcase") if one.attrib["name"] == "power_limit"]
    skipped = case.find("skipped")
    assert skipped is not None
    assert skipped.attrib["message"].startswith("waived until 2026-12-31 (one supply)")
    failure = next(suite.iter("failure"))
    assert failure.text is not None
    assert "since 2026-11-19 02:31 UTC, 2 nights" in failure.text
    properties = {one.attrib["name"]: one.attrib["value"] for one in suite.iter("property")}
    assert properties["certified"] == "run 20261118-100000-abc, 2026-11-18 10:00 UTC"


def test_prometheus_counts_waivers_apart() -> None:
    lines = reports.render(LOUD, "prometheus").splitlines()
    (waived,) = [line for line in lines if line.startswith("gpuprep_findings{") and 'status="WAIVED"' in line]
    (failed,) = [line for line in lines if line.startswith("gpuprep_findings{") and 'status="FAIL"' in line]
    assert (waived.split()[-1], failed.split()[-1]) == ("1.0", "2.0")


def test_speeds_stand_beside_those_of_the_baseline() -> None:
    snapshot = LOUD.after
    assert snapshot is not None
    assert isinstance(snapshot.gpus, tuple)
    gpu: records.GpuFacts = snapshot.gpus[0]
    made = drift(
        *PASSED, compared=(records.Compared(gpu.uuid, "gemm", "fp16 8192x8192x8192 TN", 49.0, 50.0, "20261118-1"),)
    )
    assert "98.0 %  GPU 0 gemm fp16 8192x8192x8192 TN: 49, was 50" in printed(made)
    assert "98.0 %" in reports.render(made, "markdown")
    assert "98.0 %" in reports.render(made, "html")


def test_the_page_of_several_hosts_shows_what_was_put_back_also_where_all_is_well_now() -> None:
    mended = drift(*PASSED, fixes=FIXES[:2])
    page = fleet(mended, SILENT)
    assert "Put back on sim:t4" in page
    assert "gpu 0 clocks: 585 MHz -> 1590 MHz" in page
    assert too_wide(page) == []
