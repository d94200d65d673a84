"""From where in the program was an op called?"""

from __future__ import annotations

from gpuprep.trace.columns import Ints, OpKind, Trace

MOST, LONGEST = 100, 300  # frames of a stack and characters of a frame that are kept
# What older profiles put beside the op instead of ranges: the frames, innermost first, with ";".
CALL_STACK = "Call stack"


def of_ranges(trace: Trace, ranges: list[int], parents: Ints, forward: Ints) -> list[tuple[str, ...]]:
    """Python functions around each of some ranges, outermost first. A backward op has the stack of its forward op."""
    return [_stack(trace, each, parents, forward) for each in ranges]


def _stack(trace: Trace, row: int, parents: Ints, forward: Ints) -> tuple[str, ...]:
    frames, origin = _frames(trace, row, parents, forward)
    if not frames and origin >= 0:
        frames, _ = _frames(trace, origin, parents, forward)
    return tuple(reversed(frames))


def _frames(trace: Trace, row: int, parents: Ints, forward: Ints) -> tuple[list[str], int]:
    """Frames, innermost first, and the forward op of the range or of one around it; -1 without."""
    frames: list[str] = []
    origin = -1
    while row >= 0 and len(frames) < MOST:
        if trace.ops.kind[row] == OpKind.PYTHON:
            frames.append(trace.names[trace.ops.name[row]][:LONGEST])
        elif not frames:
            frames.extend(_told(trace, row))
        origin = int(forward[row]) if origin < 0 else origin
        row = int(parents[row])
    return frames, origin


def _told(trace: Trace, row: int) -> list[str]:
    arguments = int(trace.ops.arguments[row])
    if arguments < 0:
        return []
    told = dict(trace.arguments[arguments].other).get(CALL_STACK, "")
    return [frame.strip()[:LONGEST] for frame in told.split(";")[:MOST] if frame.strip()]
