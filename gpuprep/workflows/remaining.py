"""Estimates how long a run still takes, from earlier runs.

    expected(steps, ours, similar)  how long each step of a run took in earlier runs, by their median
    seconds_left(...)               what is left of a run, from that and from what it has spent so far

A step is `facts` (connecting, reading facts, waiting for a lock: all that belongs to no other step), `preflight`, a
role without its `gpu_`, or a probe.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from gpuprep.provisioning.ansible_events import ExpectedStep
from gpuprep.records import RunRecord
from gpuprep.records.moments import seconds_between
from gpuprep.records.recorded_options import RecordedOptions

FACTS = "facts"  # is done in several pieces: it has ended when the run has
PREFLIGHT = "preflight"  # what every playbook begins with


def step_of(role: str) -> str:
    """The step that a task of `role` belongs to; a task of a playbook itself is part of preflight."""
    return role.removeprefix("gpu_") or PREFLIGHT


def same_kind(record: RunRecord, options: Mapping[str, Any]) -> bool:
    """Whether a run was made with the options that decide how long a step takes."""
    return RecordedOptions.read(record.options).pace == RecordedOptions.read(options).pace


def expected(
    steps: Sequence[str], ours: Iterable[RunRecord], similar: Iterable[RunRecord] = ()
) -> tuple[ExpectedStep, ...]:
    """Each of `steps` with the median of its seconds in `ours`, the earlier runs of this host; if none of these had the
    step, in `similar`, runs of other hosts; None if no run had it.
    """
    of_host, of_others = ([durations(record) for record in records] for records in (ours, similar))
    medians = []
    for step in steps:
        took = [run[step] for run in of_host if step in run] or [run[step] for run in of_others if step in run]
        medians.append((step, median(took) if took else None))
    return tuple(medians)


def durations(record: RunRecord) -> dict[str, float]:
    """Seconds of each step of a run that has ended; {} if the record does not contain them.

    A record may contain any value: a step is never counted longer than the run.
    """
    whole = seconds_between(record.started_at, record.ended_at)
    if whole is None:
        return {}
    took: dict[str, float] = {}
    played = 0.0
    if record.playbook is not None and record.playbook.tasks:
        played = _bounded(record.playbook.seconds, whole)
        for task in record.playbook.tasks:
            step = step_of(task.role)
            took[step] = took.get(step, 0.0) + _bounded(task.seconds, whole)
        tasks = sum(took.values())
        # Ansible takes its time between tasks, too: the steps together are as long as the playbook.
        took = {step: seconds * played / tasks for step, seconds in took.items()} if tasks else {}
        took.setdefault(PREFLIGHT, 0.0)
    probes = {result.probe: _bounded(result.seconds, whole) for result in record.measurements}
    took.update(probes)
    took[FACTS] = max(0.0, whole - played - sum(probes.values()))
    return took


def seconds_left(steps: Sequence[ExpectedStep], spent: Mapping[str, float], at: str) -> float | None:
    """Seconds left of a run; never negative. None if unknown: no earlier run had one of the steps to come.

    `spent` has the seconds of each step so far, `at` is the step at work. Steps are done in their order.
    """
    reached = max((place for place, (step, _) in enumerate(steps) if step in spent or step == at), default=0)
    left = 0.0
    for place, (step, seconds) in enumerate(steps):
        has_ended = place < reached or (place == reached and step != at)
        if has_ended and step != FACTS:
            continue
        if seconds is None:
            return None
        left += max(0.0, seconds - spent.get(step, 0.0))
    return left if steps else None


def measuring(record: RunRecord) -> float:
    """Seconds of all probes of a run. A host may report any value: no probe is counted longer than the run."""
    whole = seconds_between(record.started_at, record.ended_at) or 0.0
    return sum(_bounded(result.seconds, whole) for result in record.measurements)


def _bounded(seconds: float, most: float) -> float:
    return min(seconds, most) if math.isfinite(seconds) and seconds > 0 else 0.0
