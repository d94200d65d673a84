"""From a file to what is shown of it: read ► link ► sum ► roofs ► advice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpuprep.trace.document import TraceDocument
from gpuprep.trace.model import profile as linked
from gpuprep.trace.opening.texts import make_safe
from gpuprep.trace.profile import Profile
from gpuprep.trace.reading import read
from gpuprep.trace.tables import document as tabulated

Say = Callable[[str], None]


@dataclass(frozen=True)
class Opened:
    profile: Profile
    document: TraceDocument


def open_trace(
    path: Path,
    *,
    start: int | None = None,
    stop: int | None = None,
    key_op: str = "",
    profile_name: str = "",
    keep_paths: bool = False,
    say: Say = lambda _step: None,
) -> Opened:
    """One file, as everything shows it. `say` is told each step. Raises UsageError for what is no profile."""
    say(f"reading {path.name}")
    trace = read(path)
    make_safe(trace, keep_paths=keep_paths)
    say("linking kernels to ops")
    profile = linked(trace, key_op=key_op, name=profile_name)
    return Opened(profile, tabulated(profile, start, stop))
