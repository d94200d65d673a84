"""Compares the host with its certified run and with the last check. Pure.

A profile does not contain which GPUs these are, their order, the exact certified versions and files, and the counters
since the last check. If a profile check already reports a change, the finding here is SKIP and names that check, and a
waiver of that check's finding also waives the change. Other differences have their own findings (certified.py). If
there is no certified run or last check, one SKIP says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuprep.checks.common import skip
from gpuprep.checks.drift import certifiedgpus, certifiedsystem, samehost, sincelastcheck
from gpuprep.checks.drift.certified import Certified
from gpuprep.desired.state import Wanted
from gpuprep.records import NOT_READ, Finding, Missing, RunRecord, Snapshot, Status
from gpuprep.records.findings import findings_of

# What is compared with the certified run of every host; what each GPU has is in certifiedgpus.py.
ALWAYS = frozenset(
    {
        "apt.pins_certified", "cuda.package_versions", "driver.module_options", "driver.package_versions",
        "files.managed", "gpus.identity", "gpus.order", "host.identity", "host.system", "kernel.running",
        "libraries.contents", "libraries.paths", "shells.tools", "units.definition",
    }
)  # fmt: skip


def findings(
    wanted: Wanted,
    snapshot: Snapshot,
    certified: RunRecord | None,
    previous: RunRecord | None,
    by_profile: Sequence[Finding] = (),
) -> list[Finding]:
    """Findings in addition to `by_profile`, the findings of the profile on the same snapshot."""
    return [
        *_since_certified(wanted, snapshot, certified, by_profile),
        *_since_last_check(snapshot, previous, by_profile),
    ]


def _since_certified(
    wanted: Wanted, snapshot: Snapshot, record: RunRecord | None, by_profile: Sequence[Finding]
) -> list[Finding]:
    if record is None or record.after is None:
        reason = (
            "no run of this host is certified yet: the first `gpuprep validate HOST --profile PROFILE` that passes is"
        )
        nothing = skip("host", "since_certified", expected="as certified", actual="not compared", reason=reason)
        return [nothing, *certifiedgpus.planned(wanted, snapshot)]
    certified = Certified(record.after, record.run_id, record.started_at, by_profile, findings_of(record))
    findings = [*_machine(record.after, snapshot, certified), *certifiedgpus.findings(snapshot, certified)]
    return findings + certifiedsystem.findings(wanted, snapshot, certified) if wanted.installs else findings


def _machine(was: Snapshot, now: Snapshot, certified: Certified) -> list[Finding]:
    """Compares the machine's identity; [] if the certified run did not read it."""
    if isinstance(was.identity, Missing) or now.identity == NOT_READ:
        return []
    if isinstance(now.identity, Missing):
        return [certified.missing("host", "identity", now.identity, what="which machine this is")]
    what = samehost.change(samehost.of(was), samehost.of(now))
    if what == samehost.ANOTHER:
        text, status = "another machine answers to this name (other machine id, other hardware or GPUs)", Status.FAIL
        why = "the certified run is of another machine"
    else:
        text, status = "the machine was installed anew (another machine id on the same hardware)", Status.WARN
        why = "nothing of the certified installation is left"
    differences = [text] if what else []
    return [certified.same("host", "identity", differences, "the same machine", why=why, status=status)]


def _since_last_check(snapshot: Snapshot, record: RunRecord | None, by_profile: Sequence[Finding]) -> list[Finding]:
    if record is None or record.after is None:
        reason = "this is the first check: counters are compared from the next check on"
        return [skip("host", "since_last_check", expected="nothing new", actual="not compared", reason=reason)]
    waived = {
        finding.key for finding in findings_of(record) if finding.status is Status.WAIVED
    }  # which says nothing of what came since
    speakers = [finding for finding in by_profile if finding.key not in waived]
    return sincelastcheck.findings(snapshot, record.after, record.started_at, speakers)
