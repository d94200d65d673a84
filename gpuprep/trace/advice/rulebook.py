"""The recommendations' texts: rules.yml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpuprep.catalogue import datafile

MISSING = "missing"


@dataclass(frozen=True)
class Rule:
    """`problem` and `recommendation` have {names} of figures and texts."""

    id: str
    title: str
    severity: str  # "problem", "hint", "missing"
    view: str
    needs: tuple[str, ...]  # rules of severity "missing": where one of them speaks, this one was not judged
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
