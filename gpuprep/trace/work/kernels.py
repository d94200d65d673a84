"""Did a kernel use Tensor Cores? By its name and the rules of kernels.yml; the first that matches decides. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import datafile
from gpuprep.trace.profile import UsesTensorCores
from gpuprep.trace.work.basename import parts

# Characters that the patterns see: real names are shorter, and a pattern may take time with the square of it.
LONGEST_BASE, LONGEST_INSIDE = 1000, 8000


@dataclass(frozen=True)
class Rule:
    id: str
    answer: UsesTensorCores
    base: re.Pattern[str] | None  # of the name without template arguments
    inside: re.Pattern[str] | None  # of its template arguments
    say: str  # why, in a few words
    source: str  # key of `sources` in kernels.yml


@lru_cache(maxsize=4096)
def tensor_cores(kernel_name: str) -> tuple[UsesTensorCores, str]:
    """(answer, id of the rule that decided); unknown is (UNKNOWN, "")."""
    base, inside = parts(kernel_name)
    base, inside = base[:LONGEST_BASE], inside[:LONGEST_INSIDE]
    for rule in rules():
        if (rule.base is None or rule.base.search(base)) and (rule.inside is None or rule.inside.search(inside)):
            return rule.answer, rule.id if rule.answer is not UsesTensorCores.UNKNOWN else ""
    return UsesTensorCores.UNKNOWN, ""


@cache
def rules() -> tuple[Rule, ...]:
    return tuple(
        Rule(
            id=rule["id"],
            answer=UsesTensorCores(rule["answer"]),
            base=_pattern(rule.get("base")),
            inside=_pattern(rule.get("inside")),
            say=rule["say"],
            source=rule["source"],
        )
        for rule in _data()["rules"]
    )


@cache
def sources() -> dict[str, str]:
    return dict(_data()["sources"])


def _pattern(text: str | None) -> re.Pattern[str] | None:
    """Where a pattern goes on in the next line of the YAML file, there is a space before its `|`."""
    return None if text is None else re.compile(text.replace(" |", "|"))


@cache
def _data() -> dict[str, Any]:
    return datafile.read(Path(__file__).parent / "kernels.yml")
