"""The text for a program on a GPU in findings: "python3 (pid 4711, alice, since 2 h)"."""

from __future__ import annotations

from collections.abc import Iterable

from gpuprep.records import ProcessOnGpu
from gpuprep.records.evidence.shared import Process
from gpuprep.untrusted.plaintext import one_line

UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
MOST_LETTERS = 64  # of a name: a program and its owner call themselves what they like
MOST_SECONDS = 10**10  # three centuries: no program is older


def named(process: ProcessOnGpu | Process) -> str:
    """The text for a process of a record or of a measurement's `other_processes`; unknown parts are left out."""
    name, owner, age = process.name, process.owner, process.age_seconds
    about = [f"pid {'?' if process.pid is None else process.pid}"]
    if isinstance(owner, str) and owner:
        about.append(one_line(owner, MOST_LETTERS))
    if isinstance(age, int) and 0 <= age < MOST_SECONDS:
        about.append(f"since {span(age)}")
    return f"{one_line(name, MOST_LETTERS) if name else 'a program'} ({', '.join(about)})"


def listed(processes: Iterable[ProcessOnGpu | Process]) -> str:
    return ", ".join(map(named, processes))


def span(seconds: int) -> str:
    """A duration in the largest unit that fits: "2 h"."""
    unit, length = next(((unit, length) for unit, length in UNITS if seconds >= length), UNITS[-1])
    return f"{seconds // length} {unit}"
