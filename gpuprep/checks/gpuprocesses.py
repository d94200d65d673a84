"""How findings name a program on a GPU: "python3 (pid 4711, alice, since 2 h)"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuprep.records import ProcessOnGpu
from gpuprep.untrusted.plaintext import one_line

UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
MOST_LETTERS = 64  # of a name: a program and its owner call themselves what they like
MOST_SECONDS = 10**10  # three centuries: no program is older


def named(process: ProcessOnGpu | Mapping[str, object]) -> str:
    """Of a record, or of the `other_processes` of a measurement; what was not read is left out."""
    values = process if isinstance(process, Mapping) else vars(process)
    name, owner, age = values.get("name"), values.get("owner"), values.get("age_seconds")
    about = [f"pid {values.get('pid', '?')}"]
    if isinstance(owner, str) and owner:
        about.append(one_line(owner, MOST_LETTERS))
    if isinstance(age, int) and 0 <= age < MOST_SECONDS:
        about.append(f"since {span(age)}")
    return f"{one_line(name, MOST_LETTERS) if isinstance(name, str) and name else 'a program'} ({', '.join(about)})"


def listed(processes: Iterable[ProcessOnGpu | Mapping[str, object]]) -> str:
    return ", ".join(map(named, processes))


def span(seconds: int) -> str:
    """In the largest unit that fits: "2 h"."""
    unit, length = next(((unit, length) for unit, length in UNITS if seconds >= length), UNITS[-1])
    return f"{seconds // length} {unit}"
