"""May a run that passed replace the certified run?

A fault must not become certified. A run that measured little may pass all the same: `validate --only facts` also passes
on a machine whose link has lost lanes. So a run does not replace the certified run if it

- left a part of the machine out, or measured less than the certified run measured;
- could not read something that the certified run read;
- finds a GPU worse than certified (checks/drift/certifiedgpus.py), for example with fewer lanes;
- follows a drift check that failed, and does not show that what failed is gone.

The user can choose such a run with `gpuprep baseline set`. The figures of a run that found something worse, or that
follows an open failure, do not become the baseline either.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gpuprep.checks import drift, judgement
from gpuprep.checks.drift import Looked, Past, certifiedgpus, coverage
from gpuprep.checks.judgement import Terms
from gpuprep.records import Finding, ProbeResult, RunRecord, Snapshot, Status
from gpuprep.records.moments import moment

NAMED = 3


@dataclass(frozen=True)
class Passed:
    """A provision or validate that passed."""

    terms: Terms
    facts: Snapshot
    results: Sequence[ProbeResult]
    findings: Sequence[Finding]  # before waivers
    left_out: bool = False  # --only or --skip of provision
    played: Collection[str] = ()  # roles that ran


@dataclass(frozen=True)
class Doubts:
    """Why the run does not replace the certified run, as sentences without a subject ("did not measure gemm")."""

    less: tuple[str, ...] = ()  # the run measured less
    worse: tuple[str, ...] = ()  # something may be wrong with the machine: its figures do not become a baseline
    unread: tuple[str, ...] = ()  # the run could not read what the certified run read

    def __bool__(self) -> bool:
        return bool(self.all)

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.worse, *self.less, *self.unread)

    def __str__(self) -> str:
        return "; ".join(self.all)


def doubts(run: Passed, past: Past) -> Doubts:
    """The doubts about a run. Without an earlier certified run these are only left-out parts and an open failure."""
    less = ["left a part of the machine out (--only, --skip)"] if run.left_out else []
    since = drift.compared_with_past(run.terms.wanted, run.facts, past.certified, past.previous, run.findings)
    findings = judgement.judge(run.terms, [*run.findings, *since]).findings
    worse, unread = _worse(findings), []
    if past.certified is not None and past.certified.after is not None:
        certified = past.certified
        less += coverage.lacking(certified.measurements, run.results, (past.certified.after, run.facts))
        unread = [f"could not read {text}" for text in _unread(since, findings)]
    return Doubts(tuple(less), (*worse, *_open_failures(run, past, findings)), tuple(unread))


def _worse(findings: Sequence[Finding]) -> list[str]:
    """Sentences on what is worse than certified, also beyond the profile; a waived finding does not count."""
    return [
        f"found {finding.subject} worse than certified ({finding.actual})"
        for finding in findings
        if finding.property in certifiedgpus.GROUPS and finding.status is Status.FAIL
    ]


def _unread(since: Sequence[Finding], findings: Sequence[Finding]) -> list[str]:
    keys = {finding.key for finding in since}
    return _few([finding.key for finding in findings if finding.key in keys and finding.status is Status.UNKNOWN])


def _open_failures(run: Passed, past: Past, findings: Sequence[Finding]) -> list[str]:
    previous = past.previous
    if previous is None or (past.certified is not None and not _is_before(past.certified, previous)):
        return []  # the certified run came after it and was allowed to
    looked = Looked.at(run.terms.wanted, run.facts, run.results)
    keys = _few(drift.still_failing(findings, previous, looked, run.played))
    return [f"follows drift check {previous.run_id}, whose FAIL is still open: {', '.join(keys)}"] if keys else []


def _is_before(record: RunRecord, other: RunRecord) -> bool:
    began, then = moment(record.started_at), moment(other.started_at)
    if began is None or then is None:
        return True
    return (began, record.run_id) < (then, other.run_id)  # run ids tell runs of the same second apart


def _few(texts: Sequence[str]) -> list[str]:
    return [*texts[:NAMED], *([f"{len(texts) - NAMED} more"] if len(texts) > NAMED else [])]
