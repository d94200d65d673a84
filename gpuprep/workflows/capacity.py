"""How many streams does a host carry? Runs the throughput probe with more series than `validate`.

Recorded and judged like `validate`, but only by these figures: the installed software is not judged.
"""

from __future__ import annotations

from gpuprep import checks
from gpuprep.checks.judgement import judge
from gpuprep.desired import probes
from gpuprep.desired.profile import Profile
from gpuprep.desired.state import resolve
from gpuprep.records import RunRecord
from gpuprep.remote import Target
from gpuprep.workflows.measuring import one_probe
from gpuprep.workflows.provision import set_aside
from gpuprep.workflows.runs import Line, Options, ProfileRun

PROFILE = "base"  # of a host for which nobody names one: any GPU


def capacity(target: Target, profile: Profile, options: Options, line: Line) -> RunRecord:
    """Measures and judges. Changes nothing."""
    return ProfileRun("capacity", target, profile, options, line).record(_measure)


def _measure(run: ProfileRun) -> None:
    with run.connect() as host:
        facts = run.draft.before = run.look(host)
        wanted = resolve(run.profile, facts, judging=True)
        run.expect([], [probes.CAPACITY])
        arguments = probes.arguments(run.profile, wanted, quick=run.options.quick)
        arguments["capacity"] = not run.options.quick
        run.stop_if_cancelled()
        result = one_probe(run, host, probes.CAPACITY, arguments, facts.source)
        run.stop_if_cancelled()
        after = run.draft.after = run.look(host, "reading facts again, after the load")
        findings = checks.compare_figures(
            wanted, after, run.draft.measurements, asked=[result.probe], thresholds=run.profile.thresholds
        )
        run.draft.judgement = judge(run.terms(wanted), findings, set_aside(run.options))
