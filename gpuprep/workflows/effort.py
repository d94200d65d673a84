"""Estimates minutes, downloads and restarts of a plan, from earlier runs, else from documented figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from gpuprep import records
from gpuprep.catalogue import effort as documented
from gpuprep.records import Plan, RunRecord, Snapshot
from gpuprep.workflows import remaining

if TYPE_CHECKING:
    from gpuprep.store import Store

MEASURING = "measuring"  # all probes together
OPTIONS = {"check": False, "deep": False, "quick": False, "probe": "none"}  # of a plain provision


@dataclass(frozen=True)
class StepEffort:
    """Estimate for one step of a plan, or for the work before or after the steps."""

    name: str  # "driver", "facts", "measuring"
    seconds: float
    megabytes: int = 0  # 10^6 bytes that the host downloads
    restart: bool = False  # it may restart the machine
    by_runs: bool = False  # its time is that of earlier runs, not the documented one


@dataclass(frozen=True)
class Effort:
    """Estimate for a provision. No steps: nothing to do."""

    steps: tuple[StepEffort, ...]

    @property
    def total(self) -> records.Effort:
        return records.Effort(
            round(sum(step.seconds for step in self.steps), 1),
            sum(step.megabytes for step in self.steps),
            sum(step.restart for step in self.steps),
            self.basis,
        )

    @property
    def basis(self) -> str:
        """The source of the minutes, in words."""
        known = [step.name for step in self.steps if step.by_runs]
        if not known:
            return "an estimate from documented figures: no earlier run on such a host is in the store"
        if len(known) == len(self.steps):
            return "an estimate from earlier runs in the store"
        return f"an estimate: from earlier runs for {', '.join(known)}, from documented figures for the rest"


def onto(plan: Plan, effort: Effort) -> Plan:
    """The plan with its estimated effort."""
    if not effort.steps:
        return plan
    of_step = {step.name: step for step in effort.steps}
    taken = [(step, of_step[remaining.step_of(step.role)]) for step in plan.steps]
    steps = tuple(replace(step, seconds=round(it.seconds, 1), megabytes=it.megabytes) for step, it in taken)
    return replace(plan, steps=steps, effort=effort.total)


def of(
    plan: Plan, packages: str, ours: Sequence[RunRecord], similar: Sequence[RunRecord], *, local: bool = False
) -> Effort:
    """The effort of a plan. `packages`: source of the host's packages; `ours`, `similar`: earlier runs of this host and
    of hosts like it; `local`: this machine, which is never restarted.
    """
    restarting = {remaining.step_of(step.role) for step in plan.steps if step.may_reboot and not local}
    roles = [remaining.step_of(step.role) for step in plan.steps]
    if not roles:
        return Effort(())
    names = list(dict.fromkeys([remaining.FACTS, remaining.PREFLIGHT, *roles]))
    known = {step: took for step, took in remaining.expected(names, ours, similar) if took is not None}
    measured = [total for run in (*ours, *similar) if (total := remaining.measuring(run)) > 0]
    if measured:
        known[MEASURING] = median(measured)
    return Effort(tuple(_step(name, known.get(name), packages, name in restarting) for name in (*names, MEASURING)))


def _step(name: str, known: float | None, packages: str, restart: bool) -> StepEffort:
    """The estimate for one step. `known`: seconds from earlier runs, restart included; None: use documented figures."""
    seconds = documented.seconds(name) + (documented.restart_seconds() if restart else 0) if known is None else known
    return StepEffort(name, seconds, documented.megabytes(name, packages), restart, known is not None)


def earlier(store: Store, host: str, profile: str, facts: Snapshot) -> tuple[list[RunRecord], list[RunRecord]]:
    """Provisions that ended well: of this host, and of this profile on the same system. Raises StoreError."""
    ours = store.ended_well("provision", facts.source, host=host)
    similar = store.ended_well("provision", facts.source, profile=profile)
    similar = [run for run in similar if (then := run.after or run.before) and then.os == facts.os]
    return [run for run in ours if _plain(run)], [run for run in similar if _plain(run)]


def _plain(run: RunRecord) -> bool:
    """Whether a run of all steps did something: a run with nothing to do has no times of steps."""
    return remaining.same_kind(run, OPTIONS) and run.playbook is not None and bool(run.playbook.tasks)
