"""All tables of a range of iterations."""

from __future__ import annotations

from gpuprep.trace.document import SCHEMA_VERSION, TraceDocument
from gpuprep.trace.profile import Profile
from gpuprep.trace.tables import files, kernels, ops
from gpuprep.trace.tables.chosen import choose
from gpuprep.trace.tables.summary import summary


def document(profile: Profile, start: int | None = None, stop: int | None = None) -> TraceDocument:
    """Of iterations `start` to `stop`, counted from 0, both included; without roofs and advice.

    UsageError: there are no such iterations.
    """
    chosen = choose(profile, start, stop)
    unions = files.unions(profile)
    busy = files.busy_inside(unions, chosen.window)
    return TraceDocument(
        schema_version=SCHEMA_VERSION,
        file=files.file(profile, files.devices(chosen, unions, busy)),
        summary=summary(chosen, busy),
        iterations=kernels.iterations(chosen),
        op_types=ops.types(chosen),
        ops=ops.lines(chosen),
        kernels=kernels.lines(chosen),
        modules=ops.modules(chosen),
        advice=(),
        roofs=(),
    )
