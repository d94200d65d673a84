"""The quick measurement of a drift check: the same order from the controller and, at night, on the host itself.

Machines at work are left alone: each probe is made only where no program is on a GPU when it begins. The machine is
asked only through the functions that the caller gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuprep.checks import gpuprocesses
from gpuprep.checks.common import why_missing
from gpuprep.desired import probes
from gpuprep.desired.state import Wanted
from gpuprep.errors import AgentFailed
from gpuprep.records import Finding, Missing, ProbeResult, Snapshot, Source, Status


@dataclass(frozen=True)
class Quick:
    facts: Snapshot  # the newest
    results: tuple[ProbeResult, ...] = ()
    unmeasured: tuple[Finding, ...] = ()  # what was not measured, and why


def chosen(wanted: Wanted) -> tuple[probes.Kind, ...]:
    return probes.chosen(wanted, probes=probes.QUICK)


def measure(
    wanted: Wanted,
    facts: Snapshot,
    look: Callable[[str], Snapshot],
    probe: Callable[[probes.Kind, Source], ProbeResult],
    give_way: Callable[[Snapshot, str], Finding],
) -> Quick:
    """`look` reads the facts again and gets the reason, `give_way` why the rest is not measured, as of in_use()."""
    results: tuple[ProbeResult, ...] = ()
    for kind in chosen(wanted):
        if results:
            facts = look("reading facts between two probes")
        if busy := in_use(facts):
            return Quick(facts, results, (give_way(facts, busy),))
        results = (*results, probe(kind, facts.source))
    if not results:
        return Quick(facts, unmeasured=(not_measurable(),))
    return Quick(look("reading facts again, after the load"), results)  # errors that only work brings about


def broken(kind: probes.Kind, source: Source, error: AgentFailed) -> ProbeResult:
    """A probe that broke is evidence that is missing."""
    return ProbeResult(kind.name, source, Missing("command_failed", error.what), 0.0)


def interrupted(kind: probes.Kind, source: Source) -> ProbeResult:
    """A probe that the user did not let come to its end."""
    return ProbeResult(kind.name, source, Missing("interrupted", kind.what), 0.0)


def in_use(snapshot: Snapshot) -> str:
    """Why no probe may load the GPUs now: who works on them, or that nobody can tell. "" where it may."""
    if isinstance(snapshot.gpus, Missing):
        return f"the GPUs could not be read: {why_missing(snapshot.gpus)}"
    if not snapshot.gpus:
        return "the driver shows no GPU"
    for gpu in snapshot.gpus:
        if isinstance(gpu.processes, Missing):
            return f"whether a program uses gpu {gpu.index} could not be read: {why_missing(gpu.processes)}"
    working = [
        f"{gpuprocesses.named(process)} on gpu {gpu.index}"
        for gpu in snapshot.gpus
        if not isinstance(gpu.processes, Missing)
        for process in gpu.processes
    ]
    return f"in use by {', '.join(working)}" if working else ""


def unmeasured(why: str) -> Finding:
    """The speed was asked for and is not known; `why` as of in_use."""
    return Finding(
        "speed",
        "quick_probe",
        Status.UNKNOWN,
        "measured",
        "not measured",
        f"nothing was measured, so that no work is disturbed: {why}",
        "run drift --probe quick again when the GPUs are idle, or leave --probe out",
    )


def not_measurable() -> Finding:
    reason = "the profile asks for no CUDA, which the probes need"
    return Finding("speed", "quick_probe", Status.SKIP, "measured", "not measured", reason)
