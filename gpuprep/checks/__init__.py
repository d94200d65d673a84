"""Is the machine as wanted? Wanted state and snapshot ─► Findings, each with the role that repairs it. Pure.

Plan, verdict and drift all start from `compare`. A missing reading becomes UNKNOWN with its reason, never PASS.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from gpuprep import catalogue
from gpuprep.agent.host_paths import CUDNN_PREFIX
from gpuprep.checks import cloudmachine, health, identity, probes, unknowngpus
from gpuprep.checks.baseline import figures as comparable
from gpuprep.checks.installed import (
    aptpins,
    asfound,
    codec,
    containers,
    driver,
    kernel,
    libraries,
    machine,
    ncclinstalled,
    shells,
    toolkit,
    tuning,
)
from gpuprep.desired.profile import Profile, Threshold
from gpuprep.desired.state import Wanted
from gpuprep.records import FactsRequest, Finding, ProbeResult, Snapshot
from gpuprep.records.baseline import Baseline

__all__ = ["comparable", "compare", "compare_figures", "request"]


def compare(
    wanted: Wanted,
    snapshot: Snapshot,
    probed: Sequence[ProbeResult] = (),
    *,
    asked: Collection[str] = (),
    thresholds: Mapping[str, Threshold] | None = None,
    baseline: Baseline | None = None,
    before: Snapshot | None = None,
) -> tuple[Finding, ...]:
    """All checks of this host, in playbook order.

    `probed` are results of probes (docs/records.md); `asked` names the probes that were run, so a probe without a
    result is UNKNOWN. `thresholds` are the profile's, `baseline` the host's. `before` is a snapshot from before the
    measurements: the growth of counters since then is judged as a rate. Without probes (a plan from facts alone) the
    manifests on the host are the evidence.
    """
    findings = _as_provisioned(wanted, snapshot) if wanted.installs else asfound.findings(wanted, snapshot)
    findings += unknowngpus.findings(wanted, snapshot)
    findings += cloudmachine.findings(snapshot)
    findings += identity.findings(snapshot, probed)
    findings += health.findings(wanted, snapshot, before=before, rested=not asked and not probed)
    findings += probes.findings(wanted, snapshot, probed, asked, thresholds or {}, baseline)
    return tuple(findings)


def compare_figures(
    wanted: Wanted,
    snapshot: Snapshot,
    probed: Sequence[ProbeResult],
    *,
    asked: Collection[str] = (),
    thresholds: Mapping[str, Threshold] | None = None,
    baseline: Baseline | None = None,
) -> tuple[Finding, ...]:
    """As compare, for measurements from an unknown host: only the measurements are judged."""
    unknown = unknowngpus.findings(wanted, snapshot) + identity.findings(snapshot, probed)
    return (*unknown, *probes.findings(wanted, snapshot, probed, asked, thresholds or {}, baseline))


def _as_provisioned(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    findings = machine.packages_finished(snapshot)
    findings += kernel.findings(wanted, snapshot)
    findings += driver.findings(wanted, snapshot)
    findings += aptpins.findings(wanted, snapshot)
    findings += libraries.findings(wanted, snapshot)
    findings += machine.agent(wanted, snapshot)
    findings += tuning.findings(wanted, snapshot)
    findings += toolkit.cuda(wanted, snapshot)
    findings += toolkit.cudnn(wanted, snapshot)
    findings += ncclinstalled.findings(wanted, snapshot)
    findings += codec.findings(wanted, snapshot)
    findings += containers.findings(wanted, snapshot)
    findings += shells.findings(wanted, snapshot)
    findings += machine.extras(wanted, snapshot)
    return findings


def request(profile: Profile) -> FactsRequest:
    """Facts to read in addition to those of every snapshot: the profile's extras, for every OS release, and ffprobe."""
    every = (catalogue.tools(), catalogue.tools(rpm=True))
    tools = [known[name] for known in every for name in profile.extras.tools if name in known]
    tools += catalogue.framework(profile.extras.framework).values()
    signing = profile.driver.signing
    commands = [c for tool in tools for c in tool.commands]
    if profile.codec.ffmpeg != "none":
        commands.append("ffprobe")
    return FactsRequest(
        folders=(profile.codec.prefix,),
        certificates=(signing.certificate,) if signing else (),
        commands=tuple(dict.fromkeys(commands)),
        python_modules=tuple(dict.fromkeys(m for tool in tools for m in tool.python_modules)),
        packages=tuple(dict.fromkeys(p for tool in tools for p in tool.packages)),
        prefixes=(f"{profile.codec.prefix}/ffmpeg", f"{profile.codec.prefix}/nv-codec-headers", CUDNN_PREFIX),
    )
