"""A plan for a host without --profile: proposes a shipped profile for the GPUs of the host."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from gpuprep.desired import loading
from gpuprep.desired.proposal import BASE, Proposal, propose
from gpuprep.records import ProfileRef, RunRecord, Snapshot
from gpuprep.remote import Host, Target
from gpuprep.workflows import provision
from gpuprep.workflows.effort import Effort
from gpuprep.workflows.runs import Line, Options, ProfileRun


class Proposing(ProfileRun):
    """A ProfileRun whose profile is chosen after the facts are read. Until then it is base, for every GPU."""

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
    """`proposal` is None if the facts could not be read; `effort` is None without a plan."""

    record: RunRecord
    proposal: Proposal | None
    effort: Effort | None


def plan(target: Target, options: Options, line: Line) -> Proposed:
    """As provision.plan, by a proposed profile; the plan's notes say so. Changes nothing."""
    run = Proposing("plan", target, provision.as_check(options), line)
    record = run.record(provision.plan_only, keep=False)
    if record.error or run.proposal is None or record.plan is None:
        return Proposed(record, run.proposal, None)
    name = run.proposal.profile
    note = f"profile {name} is proposed, for {run.proposal.why}; --profile {name} says the same, --profile FILE another"
    with_note = dataclasses.replace(record.plan, notes=(note, *record.plan.notes))
    return Proposed(dataclasses.replace(record, plan=with_note), run.proposal, run.effort)
