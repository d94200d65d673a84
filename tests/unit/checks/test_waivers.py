"""Waivers accept what did not pass, for a while; they never touch what passed, and never what they do not name."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judgedrecords import judgement
from profiletext import problems, write

from gpuprep import records
from gpuprep.desired import loading, profile

TODAY = "2026-11-21"


def finding(key: str = "gpu 0.power_limit", status: records.Status = records.Status.FAIL) -> records.Finding:
    subject, _, prop = key.partition(".")
    return records.Finding(subject, prop, status, "70 W", "62 W", "it is 62 W", "gpuprep tune does it", "gpu_tuning")


def waiver(pattern: str = "gpu 0.power_limit", hosts: str = "*", expires: str = "2026-12-31") -> profile.Waiver:
    return profile.Waiver(pattern, hosts, "the rack has one supply", expires)


@pytest.mark.parametrize("status", [records.Status.FAIL, records.Status.WARN, records.Status.UNKNOWN])
@pytest.mark.parametrize("expires", ["2026-12-31", TODAY])
def test_what_did_not_pass_is_waived_until_the_last_day(status: records.Status, expires: str) -> None:
    (made,) = judgement([finding(status=status)], [waiver(expires=expires)]).findings
    assert (made.status, made.waived) == (records.Status.WAIVED, status.value)
    assert made.reason == f"waived until {expires} (the rack has one supply): it is 62 W"
    assert (made.expected, made.actual, made.remedy) == ("70 W", "62 W", "gpuprep tune does it")


@pytest.mark.parametrize("status", [records.Status.PASS, records.Status.SKIP])
def test_what_passed_or_was_skipped_stays(status: records.Status) -> None:
    found = finding(status=status)
    assert judgement([found], [waiver()]).findings == (found,)


@pytest.mark.parametrize("status", [records.Status.FAIL, records.Status.WARN, records.Status.UNKNOWN])
def test_an_expired_waiver_fails_and_says_so(status: records.Status) -> None:
    (made,) = judgement([finding(status=status)], [waiver(expires="2026-11-20")]).findings
    assert (made.status, made.waived) == (records.Status.FAIL, "")
    assert made.reason == "its waiver expired on 2026-11-20 (the rack has one supply): it is 62 W"
    assert made.remedy == "gpuprep tune does it; or renew the waiver in the profile (waivers)"


def test_an_expired_waiver_of_what_passes_asks_to_be_removed() -> None:
    passed = finding(status=records.Status.PASS)
    kept, extra = judgement([passed], [waiver(expires="2026-11-20")]).findings
    assert kept == passed
    assert (extra.key, extra.status) == ("waiver.gpu 0.power_limit", records.Status.WARN)
    assert "no longer needed" in extra.reason
    assert "remove it" in extra.remedy


def test_an_expired_waiver_is_kept_while_one_of_its_findings_does_not_pass() -> None:
    found = [finding(status=records.Status.PASS), finding("gpu 1.power_limit")]
    made = judgement(found, [waiver("gpu *.power_limit", expires="2026-11-20")]).findings
    assert [one.status for one in made] == [records.Status.PASS, records.Status.FAIL]


def test_a_waiver_that_still_holds_comes_before_an_expired_one() -> None:
    (made,) = judgement([finding()], [waiver(expires="2026-11-20"), waiver("gpu *")]).findings
    assert made.status is records.Status.WAIVED


@pytest.mark.parametrize(
    ("pattern", "hosts", "fits"),
    [
        ("gpu 0.power_limit", "box", True),
        ("gpu ?.power_*", "b?x", True),
        ("*", "*", True),
        ("gpu 1.power_limit", "*", False),
        ("GPU 0.power_limit", "*", False),
        ("gpu 0", "*", False),
        ("gpu 0.power_limit", "rack7-*", False),
        ("gpu 0.power_limit", "BOX", False),
    ],
)
def test_patterns_of_findings_and_hosts(pattern: str, hosts: str, fits: bool) -> None:
    made = judgement([finding()], [waiver(pattern, hosts)]).findings
    assert [one.status for one in made] == [records.Status.WAIVED if fits else records.Status.FAIL]


@pytest.mark.parametrize("measured", ["pcie_link", "nccl_pcie_link", "video_pcie_link", "pcie"])
@pytest.mark.parametrize("pattern", ["gpu *.pcie_link", "gpu 0.pcie_link"])
def test_a_waiver_fits_a_finding_however_it_was_measured(pattern: str, measured: str) -> None:
    (made,) = judgement([finding(f"gpu 0.{measured}")], [waiver(pattern)]).findings
    assert (made.status, made.key) == (records.Status.WAIVED, f"gpu 0.{measured}")
    (made,) = judgement([finding("gpu 0.pcie_errors")], [waiver(pattern)]).findings
    assert made.status is records.Status.FAIL


STATUSES = st.sampled_from([s for s in records.Status if s is not records.Status.WAIVED])
KEYS = st.sampled_from(["gpu 0.clocks", "gpu 1.clocks", "gpu 0.power_limit", "driver.held", "kernel.headers"])
FOUND = st.lists(st.builds(finding, KEYS, STATUSES), max_size=8)
PATTERNS = st.sampled_from(["gpu 0.clocks", "gpu *", "*.clocks", "driver.held", "no.such", "*"])
GIVEN = st.lists(
    st.builds(
        waiver,
        PATTERNS,
        st.sampled_from(["*", "box", "other"]),
        st.sampled_from(["2026-01-01", TODAY, "2027-01-01"]),
    ),
    max_size=5,
)


@given(GIVEN, FOUND)
def test_a_waiver_never_passes_and_never_touches_what_it_does_not_name(
    given: list[profile.Waiver], found: list[records.Finding]
) -> None:
    made = judgement(found, given).findings
    assert len(made) >= len(found)
    for before, after in zip(found, made[: len(found)], strict=True):
        assert after.key == before.key
        assert (after.status is records.Status.PASS) == (before.status is records.Status.PASS)
        named = any(w.hosts in ("*", "box") and fnmatchcase(before.key, w.finding) for w in given)
        if not named or before.status in (records.Status.PASS, records.Status.SKIP):
            assert after == before
        else:
            assert after.status in (records.Status.WAIVED, records.Status.FAIL)
    assert {one.subject for one in made[len(found) :]} <= {"waiver"}
    assert all(one.status is records.Status.WARN for one in made[len(found) :])


def test_what_is_waived_is_counted_apart_and_is_no_pass() -> None:
    found = [finding(), finding("kernel.headers", records.Status.PASS)]
    judged = judgement(found, [waiver()])
    assert (judged.verdict.status, judged.exit_code) == (records.Status.PASS, 0)
    assert judged.verdict.summary == "PASS: profile t4, 2 checks: 1 PASS, 1 WAIVED"
    alone = judgement([finding()], [waiver()])
    assert (alone.verdict.status, alone.exit_code) == (records.Status.UNKNOWN, 3)
    assert alone.verdict.summary == "UNKNOWN: profile t4, 1 checks: 1 WAIVED; nothing passed and nothing failed"


# ---------------------------------------------------------------- in the profile

WRITTEN = (
    "extends: t4\nwaivers:\n  - finding: gpu *.xids\n    hosts: rack7-*\n    justification: known\n    expires: {}"
)


@pytest.mark.parametrize("written", ["2026-12-31", "'2026-12-31'", '"2026-12-31"'])
def test_a_date_may_stand_without_quotes(tmp_path: Path, written: str) -> None:
    path = write(tmp_path, WRITTEN.format(written))
    (read,) = loading.load(str(path)).waivers
    assert read == profile.Waiver("gpu *.xids", "rack7-*", "known", "2026-12-31")


@pytest.mark.parametrize("written", ["2026-02-30", "'2027-02-29'", "2026-11-31"])
def test_a_day_that_does_not_exist_is_named_with_its_line(tmp_path: Path, written: str) -> None:
    day = written.strip("'")
    assert problems(write(tmp_path, WRITTEN.format(written))) == [
        f"6: waivers[0].expires: {day} is no day of the calendar; allowed: a day such as '2026-12-31'"
    ]


@pytest.mark.parametrize(
    ("expires", "said"),
    [
        ("2026-13-01", "waivers[0].expires: is the text '2026-13-01'; allowed: a day such as '2026-12-31'"),
        ("31.12.2026", "waivers[0].expires: is the text '31.12.2026'"),
        ("2026-12-31 10:00:00", "waivers[0].expires: 2026-12-31 10:00:00 is a date to some YAML readers"),
        ("never", "waivers[0].expires: is the text 'never'"),
    ],
)
def test_what_is_no_day_is_refused(tmp_path: Path, expires: str, said: str) -> None:
    (line,) = problems(write(tmp_path, WRITTEN.format(expires)))
    assert said in line
