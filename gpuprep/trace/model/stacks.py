"""From where in the program was an op called?"""

from __future__ import annotations

from gpuprep.trace.columns import Ints, OpKind, Trace

MOST, LONGEST = 100, 300  # frames of a stack and characters of a frame that are kept
# What older profiles put beside the op instead of ranges: the frames, innermost first, with ";".
CALL_STACK = "Call stack"


def of_ranges(trace: Trace, ranges: list[int], parents: Ints, forward: list[int]) -> list[tuple[str, ...]]:
    """Python functions around each of some ranges, outermost first.

    `forward`: the range whose stack is taken where a range has none, of a backward op its forward op; -1 without.
    """
    made = []
    for row, other in zip(ranges, forward, strict=True):
        frames = _frames(trace, row, parents) or _frames(trace, other, parents)
        made.append(tuple(reversed(frames)))
    return made


def _frames(trace: Trace, row: int, parents: Ints) -> list[str]:
    """Innermost first."""
    kind, python = trace.ops.kind, int(OpKind.PYTHON)
    frames: list[str] = []
    while row >= 0 and len(frames) < MOST:
        if kind[row] == python:
            frames.append(trace.names[trace.ops.name[row]][:LONGEST])
        elif not frames:
            frames.extend(_recorded_frames(trace, row))
        row = int(parents[row])
    return frames


def _recorded_frames(trace: Trace, row: int) -> list[str]:
    arguments = int(trace.ops.arguments[row])
    if arguments < 0:
        return []
    call_stack = dict(trace.arguments[arguments].other).get(CALL_STACK, "")
    return [frame.strip()[:LONGEST] for frame in call_stack.split(";")[:MOST] if frame.strip()]
