"""May a command restart a host, or change its GPUs, now? Decided here for every command that does; --when-busy.

Programs on a GPU and jobs of Slurm hinder both, users who are logged in a restart alone. What could not be read hinders
as if somebody were there. What is read, and by what rule it counts: agent/inuse.py.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gpuprep.agent import inuse
from gpuprep.errors import PlanRefused
from gpuprep.records import FactsRequest, Missing, Snapshot, Step
from gpuprep.remote import Host, HostLock, Target, agent_client
from gpuprep.untrusted.plaintext import one_line
from gpuprep.workflows.runs import GO, WAIT, Options, Run

Seen = TypeVar("Seen")
Done = TypeVar("Done")
LOOK_SECONDS = 30.0
MOST_NAMED, NAME_LETTERS = 5, 160


@dataclass(frozen=True)
class Does:
    """What a command would do to those who use the host."""

    restart: bool = False  # it may
    gpus: bool = False  # replace their driver, or change clocks, power or modes

    @classmethod
    def of(cls, steps: Sequence[Step], options: Options, target: Target) -> Does:
        restart = any(step.may_reboot for step in steps) and options.reboot and not target.local
        # What gpu_driver does without a restart (holds, pins) leaves what is loaded as it is.
        gpus = any(step.role == "gpu_tuning" or (step.role == "gpu_driver" and step.may_reboot) for step in steps)
        return cls(restart, gpus)

    def __str__(self) -> str:
        what = ["restart the machine"] * self.restart + ["change its GPUs"] * self.gpus
        return " and ".join(what)


def told(facts: Snapshot, does: Does) -> str:
    """ "in use by python3 (process 812, alice) on gpu 0"; "" if nobody would be disturbed."""
    if not (does.restart or does.gpus):
        return ""
    if isinstance(facts.use, Missing):
        return f"it is not known who uses it: {facts.use.detail or facts.use.reason}"
    by, unknown = inuse.hindering(dataclasses.asdict(facts.use), restart=does.restart)
    named = [one_line(sentence, NAME_LETTERS) for sentence in by[:MOST_NAMED]]
    more = [f"{len(by) - MOST_NAMED} more"] if len(by) > MOST_NAMED else []
    used = [f"in use by {', '.join([*named, *more])}"] if by else []
    return "; ".join([*used, *(one_line(sentence, NAME_LETTERS) for sentence in unknown)])


def note(facts: Snapshot, does: Does) -> tuple[str, ...]:
    """The line of a plan: what would be refused now."""
    hindered = told(facts, does)
    return (f"would {does}; {hindered}: refused now, unless --when-busy wait or go is given",) if hindered else ()


def is_free(run: Run, facts: Snapshot, does: Does) -> bool:
    """Whether to begin; False: `wait` first, without the host's lock. Raises PlanRefused."""
    hindered = told(facts, does)
    if not hindered:
        return True
    if run.options.when_busy == GO:
        words = f"--when-busy go: does not wait ({hindered})"
        run.stage(words)
        run.note(words)
        return True
    if run.options.when_busy == WAIT and time.monotonic() < _until(run):
        return False
    minutes = run.options.wait_minutes
    waited = f" after {minutes} minute{'s' * (minutes != 1)}" * (run.options.when_busy == WAIT)
    raise PlanRefused(
        [f"{run.target.name}: refused{waited}, because it would {does}: {hindered}"],
        "wait until it is free, then run the same command again; `--when-busy wait` waits for it, `--when-busy go` does"
        " it all the same; nothing was changed",
        where=run.target.name,
    )


def when_free(
    run: Run, host: Host, see: Callable[[], tuple[Seen, Snapshot, Does]], work: Callable[[Seen, HostLock], Done]
) -> Done:
    """Look and work under the host's lock; while somebody would be disturbed, wait without it, and look again."""
    while True:
        with run.lock(host) as lock:
            seen, facts, does = see()
            if is_free(run, facts, does):
                return work(seen, lock)
        wait(run, host, facts, does)


def wait(run: Run, host: Host, facts: Snapshot, does: Does) -> None:
    """Until nobody would be disturbed, or the time is over."""
    run.stage(f"waits at most {run.options.wait_minutes} minutes to {does}: {told(facts, does)}")
    while not is_free(run, facts, does):
        until = min(_until(run), time.monotonic() + LOOK_SECONDS)
        while time.monotonic() < until:
            run.stop_if_cancelled()
            time.sleep(1.0)  # nobody tells when a host is free
        facts = agent_client.snapshot(host, FactsRequest(use=True), become=True)


def _until(run: Run) -> float:
    return run.began + 60.0 * run.options.wait_minutes
