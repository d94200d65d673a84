"""What should be changed, and how much would it gain?

    advise(profile, document)     recommendations, those with the largest gain first
    rules()                       all of them, with their texts: rules.yml

A gain is what the step's time would lose if this one thing were changed. Gains of several do not add up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpuprep.catalogue import Board
from gpuprep.records import RunRecord
from gpuprep.trace.advice import recorded
from gpuprep.trace.advice.evidence import Evidence
from gpuprep.trace.advice.found import Found, advice
from gpuprep.trace.advice.rulebook import Rule, rules
from gpuprep.trace.document import Advice, TraceDocument
from gpuprep.trace.profile import Profile

__all__ = ["Rule", "advise", "rules"]

RULES: Mapping[str, Callable[[Evidence], Found | None]] = {
    "no-gpu": recorded.no_gpu,
    "no-steps": recorded.no_steps,
    "no-shapes": recorded.no_shapes,
    "no-memory": recorded.no_memory,
    "no-stacks": recorded.no_stacks,
    "truncated": recorded.truncated,
    "lazy-load": recorded.lazy_load,
    "unstable": recorded.unstable,
}
SEVERITIES = ("problem", "hint", "missing")


def advise(
    profile: Profile, document: TraceDocument, *, board: Board | None = None, record: RunRecord | None = None
) -> tuple[Advice, ...]:
    """`board` is the GPU of the profile, where the catalogue has it; `record` the host's record beside the trace."""
    evidence = Evidence(profile, document, board, record)
    found = []
    for rule, judge in RULES.items():
        said = judge(evidence)
        if said is not None:
            found.append(advice(rules()[rule], said))
    return tuple(sorted(found, key=_order))


def _order(one: Advice) -> tuple[float, int]:
    """The largest gain first; those without one by their severity."""
    return (-(one.gain.us if one.gain else 0.0), SEVERITIES.index(one.severity))
