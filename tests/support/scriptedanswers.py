"""What a finished T4 answers to the commands."""

from __future__ import annotations

from builders import bare_snapshot, good_probes, measured_t4

from gpuprep.desired import loading, state

WANTED = state.resolve(loading.load("t4"), bare_snapshot())


ANSWERS = {result.probe: result for result in (*good_probes(WANTED), *measured_t4())}
