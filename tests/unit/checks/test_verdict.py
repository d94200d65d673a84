"""The verdict: the worst finding decides, and absent evidence is never a pass."""

from __future__ import annotations

import pytest
from builders import finished_snapshot, good_probes, resolved
from judgedrecords import judgement

from gpuprep import checks, records

WANTED = resolved()


def finding(status: records.Status, subject: str = "driver") -> records.Finding:
    return records.Finding(subject, "version", status, "1", "2")


@pytest.mark.parametrize(
    ("statuses", "verdict", "code"),
    [
        ([records.Status.PASS], records.Status.PASS, 0),
        ([records.Status.PASS, records.Status.SKIP], records.Status.PASS, 0),
        ([records.Status.PASS, records.Status.WARN], records.Status.WARN, 0),
        ([records.Status.PASS, records.Status.WARN, records.Status.UNKNOWN], records.Status.UNKNOWN, 3),
        ([records.Status.UNKNOWN, records.Status.FAIL, records.Status.PASS], records.Status.FAIL, 1),
        ([records.Status.SKIP], records.Status.UNKNOWN, 3),
        ([], records.Status.UNKNOWN, 3),
    ],
)
def test_the_gravest_decides(statuses: list[records.Status], verdict: records.Status, code: int) -> None:
    made = judgement([finding(status) for status in statuses])
    judged = made.verdict
    assert judged.status is verdict
    assert made.exit_code == code
    assert len(judged.findings) == len(statuses)
    assert "\n" not in judged.summary
    assert ("nothing passed and nothing failed" in judged.summary) is (statuses == [records.Status.SKIP])
    assert ("nothing of profile t4 was checked" in judged.summary) is (statuses == [])


def test_the_summary_names_the_gravest_first_and_counts_the_rest() -> None:
    statuses = [
        records.Status.PASS,
        records.Status.WARN,
        records.Status.UNKNOWN,
        records.Status.FAIL,
        records.Status.FAIL,
    ]
    judged = judgement([finding(status, f"s{i}") for i, status in enumerate(statuses)]).verdict
    assert judged.summary == (
        "FAIL: profile t4, 5 checks: 2 FAIL, 1 UNKNOWN, 1 WARN, 1 PASS; s3.version, s4.version, s2.version and 1 more"
    )
    assert [f.subject for f in judged.findings] == ["s3", "s4", "s2", "s1", "s0"]
    three = judgement([finding(status, f"s{i}") for i, status in enumerate(statuses[1:4])]).verdict
    assert three.summary.endswith("; s2.version, s1.version, s0.version")


def test_a_finished_host_passes() -> None:
    made = judgement(checks.compare(WANTED, finished_snapshot(WANTED), good_probes(WANTED)))
    assert (made.verdict.status, made.exit_code) == (records.Status.PASS, 0)
