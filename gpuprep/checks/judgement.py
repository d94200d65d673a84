"""Findings ► waivers ► verdict ► exit code, for provision, validate, drift, the night and judge. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuprep.checks import verdict, waivers
from gpuprep.desired.profile import Profile, Threshold, Waiver
from gpuprep.desired.state import Wanted
from gpuprep.records import Finding, Verdict

Adjust = Callable[[tuple[Finding, ...]], Sequence[Finding]]


@dataclass(frozen=True)
class Terms:
    """The terms for judging a host. The controller takes them from the profile, the night check from its plan."""

    host: str  # the controller's name of it: a waiver may be for some hosts
    wanted: Wanted
    thresholds: Mapping[str, Threshold]
    waivers: Sequence[Waiver]
    moment: str  # UTC, ISO 8601: waivers hold or have expired by its day, and drift dates its findings with it

    @classmethod
    def of(cls, profile: Profile, host: str, wanted: Wanted, moment: str) -> Terms:
        return cls(host, wanted, profile.thresholds, profile.waivers, moment)


@dataclass(frozen=True)
class Judgement:
    findings: tuple[Finding, ...]  # in the order of the checks; the verdict has the same, worst first
    verdict: Verdict

    @property
    def exit_code(self) -> int:
        return verdict.exit_code(self.verdict)


def judge(terms: Terms, findings: Sequence[Finding], adjust: Adjust = tuple) -> Judgement:
    """Apply waivers, then `adjust` (a command leaves out parts, or adds dates), then make verdict and exit code."""
    adjusted = tuple(adjust(waivers.apply(terms.waivers, terms.host, findings, terms.moment[:10])))
    return Judgement(adjusted, verdict.judge(terms.wanted, adjusted))
