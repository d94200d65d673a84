"""Which API call launched a GPU event, and which range of the program was around that call?

By correlation id first, then by the stack of the call's thread. The External id of a profile is a check and the way
out for calls without a range around them. It is not believed where it only repeats the correlation id, as profiles of
2022 and 2023 do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuprep.trace.columns import NONE, Ints, OpKind, Trace
from gpuprep.trace.model.groups import parts
from gpuprep.trace.model.sweep import Sweep, and_none

# Above this share of External ids that equal the correlation id, they are a copy of it.
COPIED = 0.9


@dataclass
class Launches:
    call: NDArray[np.int32]  # of each GPU event its row of Trace.calls; -1 without
    range: NDArray[np.int32]  # of each GPU event the row of Trace.ops around its launch; -1 without
    call_op: NDArray[np.int32]  # of each API call the innermost operator around it; -1 without
    checked: int  # GPU events of which the External id names an operator
    agree: int  # of these, how many have the same operator around their launch
    by_external: int  # GPU events whose operator is known by the External id alone


def launches(trace: Trace, ops: Sweep, annotations: Sweep) -> Launches:
    """`ops`: the operators alone. `annotations`: the names that a program gave, without the borders of iterations."""
    calls = trace.calls
    call = _calls_of(trace)
    call_op = ops.around(calls.start, calls.thread)
    around = _of_call(call_op, call)
    external = _by_external(trace)
    both = (around >= 0) & (external >= 0)
    by_external_id = (around < 0) & (external >= 0)
    # Calls without an operator around them, and events without a call: what the External id says, if it can say it.
    around = np.where(by_external_id, external, around)
    rest = around < 0
    if rest.any() and len(annotations.rows):
        noted = annotations.around(calls.start, calls.thread)
        around = np.where(rest, _of_call(noted, call), around)
    return Launches(
        call=call,
        range=around.astype(np.int32),
        call_op=call_op,
        checked=int(both.sum()),
        agree=int((both & (around == external)).sum()),
        by_external=int(by_external_id.sum()),
    )


def _of_call(values: Ints, call: Ints) -> NDArray[np.int32]:
    return and_none(values)[call]


def _calls_of(trace: Trace) -> NDArray[np.int32]:
    """A correlation id is unique in its process. One call may own many GPU events: a CUDA graph."""
    gpu, calls = trace.gpu, trace.calls
    call_rows = np.full(len(gpu.start), NONE, np.int32)
    processes = np.unique(calls.process)
    for process in processes:
        among = (calls.process == process) & (calls.correlation > 0)
        mine = np.flatnonzero((gpu.process == process) & (gpu.correlation > 0))
        call_rows[mine] = _look_up(calls.correlation, among, gpu.correlation[mine])
    return call_rows


def _by_external(trace: Trace) -> NDArray[np.int32]:
    """Row of the operator that the External id of a GPU event, or of its call, names; -1 without."""
    gpu, ops = trace.gpu, trace.ops
    op_rows = np.full(len(gpu.start), NONE, np.int32)
    have = (gpu.external > 0) & (gpu.correlation > 0)
    if not have.any() or np.count_nonzero(have & (gpu.external == gpu.correlation)) > COPIED * np.count_nonzero(have):
        return op_rows
    for process in np.unique(gpu.process):
        among = (ops.process == process) & (ops.external > 0) & (ops.kind == OpKind.OP)
        mine = np.flatnonzero((gpu.process == process) & (gpu.external > 0))
        op_rows[mine] = _look_up(ops.external, among, gpu.external[mine])
    return op_rows


def _look_up(keys: Ints, among: NDArray[np.bool_], wanted: Ints) -> Ints:
    """The first row of each wanted key, of the rows that `among` has true; -1 without."""
    asked, of = np.unique(wanted, return_inverse=True)
    if not len(asked):
        return np.full(0, NONE)
    first = np.full(len(asked), len(keys))
    for part in parts(len(keys)):
        rows = np.flatnonzero(among[part]) + part.start
        at = np.minimum(np.searchsorted(asked, keys[rows]), len(asked) - 1)
        same = asked[at] == keys[rows]
        np.minimum.at(first, at[same], rows[same])
    first[first == len(keys)] = NONE
    return first[of]
