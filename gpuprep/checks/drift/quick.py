"""The quick measurement of a drift check, used by the controller and by the night check on the host.

A probe runs only if no program uses a GPU at its start, so that machines at work are not disturbed. All access to the
machine is through functions of the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuprep.checks import conditions
from gpuprep.checks.common import why_missing
from gpuprep.desired import probes
from gpuprep.desired.state import Wanted
from gpuprep.errors import AgentFailed
from gpuprep.records import Finding, Missing, ProbeResult, Snapshot, Source, Status
from gpuprep.records.evidence.shared import Probe


@dataclass(frozen=True)
class Quick:
    facts: Snapshot  # the newest
    results: tuple[ProbeResult, ...] = ()
    unmeasured: tuple[Finding, ...] = ()  # what was not measured, and why


def chosen(wanted: Wanted) -> tuple[Probe, ...]:
    return probes.chosen(wanted, probes=probes.QUICK)


def measure(
    wanted: Wanted,
    facts: Snapshot,
    look: Callable[[str], Snapshot],
    probe: Callable[[Probe, Source], ProbeResult],
    give_way: Callable[[Snapshot, str], Finding],
) -> Quick:
    """Run the quick probes. `look` reads the facts again, `give_way` gets the reason why the rest is not measured."""
    results: tuple[ProbeResult, ...] = ()
    for kind in chosen(wanted):
        if results:
            facts = look("reading facts between two probes")
        if busy := in_use(facts):
            return Quick(facts, results, (give_way(facts, busy),))
        results = (*results, probe(kind, facts.source))
    if not results:
        return Quick(facts, unmeasured=(not_measurable(),))
    return Quick(look("reading facts again, after the load"), results)  # errors that appear only under load


def broken(kind: Probe, source: Source, error: AgentFailed) -> ProbeResult:
    """The result of a probe that failed: no values."""
    return ProbeResult(kind.name, source, Missing("command_failed", error.what), 0.0)


def in_use(snapshot: Snapshot) -> str:
    """Why no probe may load the GPUs now: programs that use them, or that this is unknown; "" if it may."""
    if isinstance(snapshot.gpus, Missing):
        return f"the GPUs could not be read: {why_missing(snapshot.gpus)}"
    if not snapshot.gpus:
        return "the driver shows no GPU"
    for gpu in snapshot.gpus:
        if isinstance(gpu.processes, Missing):
            return f"whether a program uses gpu {gpu.index} could not be read: {why_missing(gpu.processes)}"
    working = [
        f"{conditions.shown_process(process)} on gpu {gpu.index}"
        for gpu in snapshot.gpus
        if not isinstance(gpu.processes, Missing)
        for process in gpu.processes
    ]
    return f"in use by {', '.join(working)}" if working else ""


def unmeasured(why: str) -> Finding:
    """The finding that the speed was wanted but not measured; `why` as returned by in_use."""
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
