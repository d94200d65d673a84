"""Did a kernel use Tensor Cores? By its name and the rules of kernels.yml; the first that matches decides.

Names may be cut off by the profiler, mangled, or hostile: no recursion without a bound, no error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import datafile
from gpuprep.trace.profile import UsesTensorCores

LONGEST = 20_000  # characters that are looked at; CUTLASS's longest names have about 5000
WRAPPED = 4  # wrappers in one another
UNNAMED = re.compile(r"\(anonymous namespace\)|<unnamed>|\{anonymous\}|_GLOBAL__N__\w+")
WRAPPER = re.compile(r"^cutlass\w*::(kernel2?|device_kernel)$|(^|:)enable_\w+$")


def parts(name: str) -> tuple[str, str]:
    """(base name, template arguments), in lower case."""
    text = name[:LONGEST].strip()
    if text.startswith("_Z"):
        return _mangled(text)
    text = UNNAMED.sub("anonymous", text)
    base, inside = _split(text)
    for _ in range(WRAPPED):
        if not WRAPPER.search(base) or not inside:
            break
        base, inside = _split(_first(inside))
    return base, inside


def _split(text: str) -> tuple[str, str]:
    """Of `void a::b<int>(float)` the pair ("a::b", "int")."""
    depth = 0
    opened = -1
    base: list[str] = []
    inside = ""
    for at, letter in enumerate(text):
        if letter in "<([{":
            if depth == 0:
                if letter == "(" and base and base[-1] != " ":
                    break
                opened = at
            depth += 1
        elif letter in ">)]}":
            depth = max(0, depth - 1)
            if depth == 0 and letter == ">":
                inside = text[opened + 1 : at]
        elif depth == 0:
            if letter == " ":
                base, inside = [], ""
            else:
                base.append(letter)
    if depth and opened >= 0 and text[opened] == "<":
        inside = text[opened + 1 :]  # cut off
    return "".join(base).lower(), inside.lower()


def _first(arguments: str) -> str:
    depth = 0
    for at, letter in enumerate(arguments):
        if letter in "<([{":
            depth += 1
        elif letter in ">)]}":
            depth -= 1
        elif letter == "," and depth == 0:
            return arguments[:at].strip()
    return arguments.strip()


def _mangled(text: str) -> tuple[str, str]:
    """By the lengths that stand before the identifiers of the Itanium C++ ABI; the rest of it is not needed."""
    words: list[str] = []
    own = 0  # identifiers before the first template arguments
    at = 2
    while at < len(text):
        if text[at].isdigit():
            end = at
            while end < len(text) and text[end].isdigit() and end - at < 5:
                end += 1
            length = int(text[at:end])
            words.append(text[end : end + length].lower())
            at = end + length
        else:
            if text[at] == "I" and words and not own:
                own = len(words)
            at += 1
    own = own or len(words)
    base, inside = "::".join(words[:own]), " ".join(words[own:])
    if WRAPPER.search(base):
        return base + "::" + "::".join(words[own : own + 3]), inside
    return base, inside


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
