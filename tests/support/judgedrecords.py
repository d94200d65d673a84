"""Findings, records and hosts, judged by today's rules."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from builders import resolved
from places import CASES
from records_for_tests import record

from gpuprep.checks.baseline import has_quick
from gpuprep.checks.judgement import Adjust, Judgement, Terms
from gpuprep.checks.judgement import judge as judge_findings
from gpuprep.desired import loading
from gpuprep.desired.profile import Profile, Waiver
from gpuprep.records import Finding, RunRecord, Snapshot, Verdict
from gpuprep.records.baseline import Baseline
from gpuprep.workflows.record_file import Recorded, from_figures
from gpuprep.workflows.rejudge import judge

REAL = CASES / "records"


def judged(*probes: str) -> RunRecord:
    """Real measurements of an H200, judged."""
    results = [json.loads((REAL / f"{probe}.json").read_text(encoding="utf-8")) for probe in probes]
    return judge(from_figures({"host": "h200-1", "measurements": results}), loading.load("h200"))


def judgement(
    findings: Sequence[Finding],
    waivers: Sequence[Waiver] = (),
    *,
    host: str = "box",
    day: str = "2026-11-21",
    adjust: Adjust = tuple,
) -> Judgement:
    """Waivers, verdict and exit code of a T4's findings, as each command makes them."""
    return judge_findings(Terms(host, resolved(), {}, waivers, f"{day}T23:59:59+00:00"), findings, adjust)


def verdict(findings: Sequence[Finding]) -> Verdict:
    return judgement(findings).verdict


def of_host(host: Snapshot, profile: Profile) -> RunRecord:
    """A whole validation that measured nothing."""
    run = dataclasses.replace(record(), before=None, after=host, measurements=())
    return judge(Recorded(run, host, whole=True), profile)


def nights_can_compare(baseline: Baseline, gpu: str, probe: str, agent: str) -> bool:
    """Whether the nights of this agent have something to compare a GPU's figures with."""
    return has_quick(baseline, gpu, probe, agent)
