"""The result of `drift schedule` and `drift unschedule` on a host, in a few lines."""

from __future__ import annotations

from gpuprep.records import NightlyFacts
from gpuprep.untrusted.plaintext import one_line


def render(host: str, left: NightlyFacts) -> str:
    lines = [f"{host}: {one_line(sentence(left))}"]
    verb = "written" if left.scheduled else "removed"
    lines += [f"  {verb}: {one_line(path)}" for path in left.changed] or ["  nothing to change"]
    lines += [f"  note: {one_line(note)}" for note in left.notes]
    return "\n".join(lines) + "\n"


def sentence(left: NightlyFacts) -> str:
    if not left.scheduled:
        return "does not check itself any more"
    later = f" and up to {left.random_delay_minutes} minutes later" if left.random_delay_minutes else ""
    probe = ", measuring too" if left.probe == "quick" else ""
    soon = f"; next at {left.next_at}" if left.next_at else ""
    return f"checks itself every night at {left.at}{later}, by its own clock{probe}{soon}"
