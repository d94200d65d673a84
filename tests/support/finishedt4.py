"""A host with a T4 as provision leaves it, what its probes report, and its profile."""

from __future__ import annotations

from builders import bare_snapshot, finished_snapshot, good_probes, measured_t4

from gpuprep.desired import loading, state
from gpuprep.remote import Target

T4 = loading.load("t4")
WANTED = state.resolve(T4, bare_snapshot())
ANSWERS = {result.probe: result for result in (*good_probes(WANTED), *measured_t4())}
FINISHED = finished_snapshot(WANTED)
# This machine: Ansible runs here; the facts come from a scripted Host.
HERE = Target("here", local=True)
