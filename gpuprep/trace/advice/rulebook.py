"""The rules with their texts (rules.yml), what a rule reports, and the advice that is made from both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from gpuprep.catalogue import datafile
from gpuprep.trace.document import Advice, Gain
from gpuprep.untrusted.plaintext import one_line

MISSING = "missing"


@dataclass(frozen=True)
class Rule:
    """`problem` and `recommendation` have {names} of figures and texts."""

    id: str
    title: str
    severity: str  # "problem", "hint", "missing"
    view: str
    needs: tuple[str, ...]  # rules of severity "missing": if one of them fires, this rule was not judged
    source: str
    link: str
    problem: str
    recommendation: str
    condition: str
    estimate: str
    native: str = ""  # the recommendation for a program without PyTorch, where another holds
    nsys: str = ""  # the recommendation where the profile is of Nsight Systems and another holds


@cache
def rules() -> Mapping[str, Rule]:
    """By id, in the order of the file."""
    data = datafile.read(Path(__file__).parent / "rules.yml")
    return {key: Rule(id=key, **{**entry, "needs": tuple(entry["needs"])}) for key, entry in data.items()}


MOST_ROWS = 100
TEXT_LETTERS = 120  # of a name of the profile inside a sentence


@dataclass(frozen=True)
class Found:
    figures: Mapping[str, float] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)  # may contain text from the profile: made safe below
    ops: Sequence[int] = ()
    kernels: Sequence[int] = ()
    gain: Gain | None = None
    severity: str = ""  # where it is not the rule's own


def advice(rule: Rule, finding: Found, *, nsys: bool = False, native: bool = False) -> Advice:
    """`nsys`: the profile is of Nsight Systems. `native`: and the program has no PyTorch."""
    recommendation = (native and rule.native) or (nsys and rule.nsys) or rule.recommendation
    safe = {name: one_line(text, TEXT_LETTERS * 4) for name, text in finding.texts.items()}
    words = {**finding.figures, "often": _often(finding.figures.get("count", 0)), **safe}
    return Advice(
        rule=rule.id,
        severity=finding.severity or rule.severity,
        problem=rule.problem.format_map(words),
        recommendation=recommendation.format_map(words).strip(),
        link=rule.link,
        ops=tuple(int(op) for op in finding.ops[:MOST_ROWS]),
        kernels=tuple(int(kernel) for kernel in finding.kernels[:MOST_ROWS]),
        view=rule.view,
        gain=_plain(finding.gain) if finding.gain else None,
        figures={name: float(value) for name, value in finding.figures.items()},
        unjudged=tuple(each.id for each in rules().values() if rule.id in each.needs and each.severity == "problem"),
    )


def _plain(gain: Gain) -> Gain:
    """Numpy numbers as Python numbers."""
    least, most = (None if bound is None else float(bound) for bound in (gain.least_us, gain.most_us))
    return replace(gain, us=float(gain.us), least_us=least, most_us=most)


def _often(count: float) -> str:
    """Of a mean of steps: "2", "2.5"."""
    return f"{count:.1f}".removesuffix(".0")


def quoted(name: str) -> str:
    """A name of the profile, short enough for a sentence."""
    return one_line(name, TEXT_LETTERS)
