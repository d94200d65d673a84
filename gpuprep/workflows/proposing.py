"""A plan for a host whose profile nobody named: a shipped profile is proposed for the GPUs that it has."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from gpuprep import settings
from gpuprep.desired import host_rules, loading
from gpuprep.desired.proposal import BASE, Proposal, propose
from gpuprep.errors import StoreError, UsageError
from gpuprep.records import ProfileRef, RunRecord, Snapshot
from gpuprep.remote import Host, Target
from gpuprep.store import Store
from gpuprep.workflows import effort, provision
from gpuprep.workflows.effort import Effort
from gpuprep.workflows.runs import Line, Options, ProfileRun


class Proposing(ProfileRun):
    """As ProfileRun; its profile is known once the host was looked at. Until then it is base, for every GPU."""

    def __init__(self, command: str, target: Target, options: Options, line: Line) -> None:
        super().__init__(command, target, loading.load(BASE), options, line)
        self._profile = None  # no profile is on record before there is one
        self.proposal: Proposal | None = None

    def look(self, host: Host, what: str = "reading facts") -> Snapshot:
        facts = super().look(host, what)
        if self.proposal is None:
            self.take(propose(facts))
        return facts

    def take(self, proposal: Proposal) -> None:
        self.proposal = proposal
        self.profile = loading.load(proposal.profile)
        self._profile = ProfileRef(self.profile.name, self.profile.path, self.profile.sha256)
        if proposal.gpus:
            self.stage(f"profile {proposal.profile}, proposed for {proposal.gpus}")


@dataclass(frozen=True)
class Proposed:
    """`proposal` is None where the host could not be looked at, `effort` where there is no plan."""

    record: RunRecord
    proposal: Proposal | None
    effort: Effort | None


def plan(target: Target, options: Options, line: Line, store_url: str | None = None) -> Proposed:
    """As provision.plan, by a proposed profile; the plan's notes say so, and what provision takes. Changes nothing.

    `store_url`: the store whose runs the estimate is made from; None for that of the settings.
    """
    run = Proposing("plan", target, provision.as_check(options), line)
    record = run.record(provision.plan_only, keep=False)
    facts, made = record.before, record.plan
    if record.error or run.proposal is None or facts is None or made is None:
        return Proposed(record, run.proposal, None)
    packages = host_rules.with_source(run.profile, facts).driver.source
    earlier = _earlier(store_url or settings.load().store, target.name, run.profile.name, facts)
    found = effort.of(made, packages, *earlier, local=target.local)
    name = run.proposal.profile
    notes = [
        f"profile {name} is proposed, for {run.proposal.why}; --profile {name} says the same, --profile FILE another"
    ]
    notes += [f"provision takes {found.sentence} ({found.basis})"] if made.steps else []
    told = dataclasses.replace(made, notes=(*notes, *made.notes))
    return Proposed(dataclasses.replace(record, plan=told), run.proposal, found)


def _earlier(url: str | None, host: str, profile: str, facts: Snapshot) -> tuple[list[RunRecord], list[RunRecord]]:
    """Earlier provisions. None where the store cannot be read: an estimate is not worth a stop."""
    try:
        store = Store.open(url)
    except (StoreError, UsageError):
        return [], []
    try:
        return effort.earlier(store, host, profile, facts)
    finally:
        store.close()
