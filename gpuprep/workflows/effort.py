"""What will the provision of a plan take: minutes, downloads, restarts? By earlier runs, else as documented."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gpuprep.catalogue import effort as documented
from gpuprep.records import Plan, RunRecord, Snapshot
from gpuprep.store import Store
from gpuprep.workflows import remaining

MEASURING = "measuring"  # all probes together
OPTIONS = {"check": False, "deep": False, "quick": False, "probe": "none"}  # of a plain provision


@dataclass(frozen=True)
class Effort:
    """An estimate. `by_runs`: steps whose time is that of earlier runs, the others' is the documented one."""

    seconds: float
    megabytes: int
    restarts: int  # at most
    steps: tuple[str, ...]
    by_runs: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """ "about 12 minutes, downloads about 2.7 GB, restarts the machine at most once"."""
        minutes = max(1, round(self.seconds / 60))
        took = f"about {minutes} minute{'' if minutes == 1 else 's'}"
        size = f"{self.megabytes / 1000:.1f} GB" if self.megabytes >= 1000 else f"{self.megabytes} MB"
        loads = f"downloads about {size}" if self.megabytes else "downloads nothing large"
        times = {0: "no restart", 1: "restarts the machine at most once"}
        return f"{took}, {loads}, {times.get(self.restarts, f'restarts the machine at most {self.restarts} times')}"

    @property
    def basis(self) -> str:
        """Where the minutes are from."""
        if not self.by_runs:
            return "an estimate from documented figures: no earlier run on such a host is in the store"
        if len(self.by_runs) == len(self.steps):
            return "an estimate from earlier runs in the store"
        return f"an estimate: from earlier runs for {', '.join(self.by_runs)}, from documented figures for the rest"


def of(
    plan: Plan, packages: str, ours: Sequence[RunRecord], alike: Sequence[RunRecord], *, local: bool = False
) -> Effort:
    """`packages` is the source of the host's packages, `ours` earlier runs of this host, `alike` of others like it."""
    roles = [remaining.step_of(step.role) for step in plan.steps]
    if not roles:
        return Effort(documented.seconds(remaining.FACTS), 0, 0, (), ())
    names = list(dict.fromkeys([remaining.FACTS, remaining.PREFLIGHT, *roles]))
    known = {step: took for step, took in remaining.expected(names, ours, alike) if took is not None}
    measured = [total for run in (*ours, *alike) if (total := sum(one.seconds for one in run.measurements)) > 0]
    if measured:
        known[MEASURING] = median(measured)
    names.append(MEASURING)
    restarts = 0 if local else sum(step.may_reboot for step in plan.steps)
    seconds = sum(known.get(name, documented.seconds(name)) for name in names)
    seconds += sum(
        documented.restart_seconds()
        for step in plan.steps
        if step.may_reboot and not local and remaining.step_of(step.role) not in known
    )
    return Effort(
        seconds=seconds,
        megabytes=sum(documented.megabytes(name, packages) for name in roles),
        restarts=restarts,
        steps=tuple(names),
        by_runs=tuple(name for name in names if name in known),
    )


def earlier(store: Store, host: str, profile: str, facts: Snapshot) -> tuple[list[RunRecord], list[RunRecord]]:
    """Provisions that ended well: of this host, and of this profile on the same system. Raises StoreError."""
    ours = store.ended_well("provision", facts.source, host=host)
    alike = store.ended_well("provision", facts.source, profile=profile)
    alike = [run for run in alike if (then := run.after or run.before) and then.os == facts.os]
    return [run for run in ours if _plain(run)], [run for run in alike if _plain(run)]


def _plain(run: RunRecord) -> bool:
    """A run that did something: one that found nothing to do tells no step's time."""
    return remaining.same_kind(run, OPTIONS) and run.playbook is not None and bool(run.playbook.tasks)
