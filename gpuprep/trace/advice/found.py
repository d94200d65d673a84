"""What a rule says when it speaks, and the advice made of it and its texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuprep.trace.advice.rulebook import Rule
from gpuprep.trace.document import Advice, Gain
from gpuprep.untrusted.plaintext import one_line

MOST_ROWS = 100
TEXT_LETTERS = 120  # of a name of the profile inside a sentence


@dataclass(frozen=True)
class Found:
    figures: Mapping[str, float] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)  # may quote the profile: made safe below
    ops: Sequence[int] = ()
    kernels: Sequence[int] = ()
    gain: Gain | None = None
    severity: str = ""  # where it is not the rule's own


def advice(rule: Rule, found: Found, *, nsys: bool = False) -> Advice:
    safe = {name: one_line(text, TEXT_LETTERS * 4) for name, text in found.texts.items()}
    words = {**found.figures, **safe}
    return Advice(
        rule=rule.id,
        severity=found.severity or rule.severity,
        problem=rule.problem.format_map(words),
        recommendation=(rule.nsys if nsys and rule.nsys else rule.recommendation).format_map(words),
        link=rule.link,
        ops=tuple(int(one) for one in found.ops[:MOST_ROWS]),
        kernels=tuple(int(one) for one in found.kernels[:MOST_ROWS]),
        view=rule.view,
        gain=Gain(float(found.gain.us), found.gain.how) if found.gain else None,  # not numpy's own kind
        figures={name: float(value) for name, value in found.figures.items()},
    )


def quoted(name: str) -> str:
    """A name of the profile, short enough for a sentence."""
    return one_line(name, TEXT_LETTERS)
