"""One judgement for all commands: waivers, then what the command does to findings, then verdict and exit code."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from builders import finished_snapshot, good_probes, resolved
from judgedrecords import judgement

from gpuprep import records
from gpuprep.checks.drift import quick
from gpuprep.desired import profile
from gpuprep.records import serialize

FACTS = finished_snapshot(resolved())
WAIVED = profile.Waiver("gpu 0.power_limit", "box", "the rack has one supply", "2026-12-31")


def finding(key: str, status: records.Status = records.Status.FAIL) -> records.Finding:
    subject, _, prop = key.partition(".")
    return records.Finding(subject, prop, status, "70 W", "62 W")


@pytest.mark.parametrize(
    ("host", "day", "status", "code"),
    [
        ("box", "2026-12-31", records.Status.PASS, 0),
        ("other", "2026-12-31", records.Status.FAIL, 1),
        ("box", "2027-01-01", records.Status.FAIL, 1),
    ],
    ids=["waived", "of-another-host", "the-day-after"],
)
def test_waivers_come_before_the_verdict(host: str, day: str, status: records.Status, code: int) -> None:
    found = [finding("gpu 0.power_limit"), finding("driver.version", records.Status.PASS)]
    made = judgement(found, [WAIVED], host=host, day=day)
    assert (made.verdict.status, made.exit_code) == (status, code)


def test_a_command_adjusts_what_is_waived_already_and_before_the_verdict() -> None:
    seen: list[records.Status] = []

    def adjust(findings: tuple[records.Finding, ...]) -> list[records.Finding]:
        seen.extend(each.status for each in findings)
        return [*findings, finding("record.measurements", records.Status.UNKNOWN)]

    found = [finding("driver.version", records.Status.PASS), finding("gpu 0.power_limit")]
    made = judgement(found, [WAIVED], day="2026-12-31", adjust=adjust)
    assert seen == [records.Status.PASS, records.Status.WAIVED]
    assert (made.verdict.status, made.exit_code) == (records.Status.UNKNOWN, 3)
    assert [each.key for each in made.findings] == ["driver.version", "gpu 0.power_limit", "record.measurements"]
    assert made.verdict.findings[0].key == "record.measurements"


# ---------------------------------------------------------------- the quick measurement


class Machine:
    """Answers as a host does; `busy` are the looks at which a program is on its GPU, the first one is 0."""

    def __init__(self, busy: tuple[int, ...] = ()) -> None:
        self.events: list[str] = []
        self._busy = busy
        self._looks = 0
        self.first = self._facts()

    def _facts(self) -> records.Snapshot:
        assert isinstance(FACTS.gpus, tuple)
        working = (records.ProcessOnGpu(4711, "train", 100),) if self._looks in self._busy else ()
        self._looks += 1
        return dataclasses.replace(FACTS, gpus=(dataclasses.replace(FACTS.gpus[0], processes=working),))

    def look(self, what: str) -> records.Snapshot:
        self.events.append(what)
        return self._facts()

    def probe(self, kind: Any, source: records.Source) -> records.ProbeResult:
        self.events.append(kind.name)
        return records.ProbeResult(kind.name, source, {}, 1.0)

    def measure(self) -> quick.Quick:
        return quick.measure(resolved(), self.first, self.look, self.probe, lambda _, busy: quick.unmeasured(busy))


def test_each_probe_begins_with_a_look_and_the_last_look_is_after_the_load() -> None:
    machine = Machine()
    made = machine.measure()
    between, after = "reading facts between two probes", "reading facts again, after the load"
    assert machine.events == ["gemm", between, "bandwidth", after]
    assert [result.probe for result in made.results] == ["gemm", "bandwidth"]
    assert made.unmeasured == ()


@pytest.mark.parametrize(("busy", "probes"), [((0,), []), ((1,), ["gemm"])])
def test_a_program_at_work_is_left_alone(busy: tuple[int, ...], probes: list[str]) -> None:
    made = Machine(busy).measure()
    assert [result.probe for result in made.results] == probes
    (note,) = made.unmeasured
    assert note.status is records.Status.UNKNOWN
    assert "train (pid 4711) on gpu 0" in note.reason


# ---------------------------------------------------------------- what the agent prints


def test_the_last_line_is_the_record_whatever_a_login_script_printed() -> None:
    (result, *_) = good_probes(resolved())
    output = f"Welcome to gpu-1\n{{}}\n{records.to_json(result)}\r\n\n"
    assert serialize.from_last_line(records.ProbeResult, output) == result


@pytest.mark.parametrize("output", ["", "Welcome", '{"probe": "gemm"}\nbye'])
def test_another_last_line_is_no_record(output: str) -> None:
    with pytest.raises(records.DecodeError):
        serialize.from_last_line(records.ProbeResult, output)
