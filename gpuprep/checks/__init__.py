"""Is the machine as wanted? Wanted state and snapshot ─► Findings, each with the role that repairs it.

Plan, verdict and drift all start from `compare`. A missing reading becomes UNKNOWN with its reason, never PASS.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from gpuprep import catalogue
from gpuprep.agent.host_paths import CUDNN_PREFIX
from gpuprep.checks import cloudmachine, health, identity, probes
from gpuprep.checks.baseline import figures as comparable
from gpuprep.checks.common import check, skip
from gpuprep.checks.installed import aptpins, codec, containers, driver, libraries, machine, nextboot, toolkit, tuning
from gpuprep.desired.profile import Profile, Threshold
from gpuprep.desired.state import Wanted
from gpuprep.records import FactsRequest, Finding, Missing, ProbeResult, Snapshot, Status
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
    findings = _as_provisioned(wanted, snapshot) if wanted.installs else _as_found(wanted, snapshot)
    findings += identity.unknown_gpus(wanted, snapshot)
    findings += cloudmachine.findings(snapshot)
    findings += machine.clock(snapshot)
    findings += identity.findings(snapshot, probed)
    findings += health.findings(wanted, snapshot, before=before, rested=not asked and not probed)
    findings += probes.findings(wanted, snapshot, probed, asked, thresholds or {}, baseline)
    return tuple(nextboot.restart_last(findings))


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
    unknown = identity.unknown_gpus(wanted, snapshot) + identity.findings(snapshot, probed)
    return (*unknown, *probes.findings(wanted, snapshot, probed, asked, thresholds or {}, baseline))


def _as_provisioned(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    findings = machine.packages_finished(snapshot)
    findings += machine.kernels(wanted, snapshot)
    findings += driver.findings(wanted, snapshot)
    findings += nextboot.findings(wanted, snapshot)
    findings += aptpins.findings(wanted, snapshot)
    findings += libraries.findings(wanted, snapshot)
    findings += machine.agent(wanted, snapshot)
    findings += tuning.findings(wanted, snapshot)
    findings += toolkit.cuda(wanted, snapshot)
    findings += toolkit.cudnn(wanted, snapshot)
    findings += libraries.nccl(wanted, snapshot)
    findings += codec.findings(wanted, snapshot)
    findings += containers.findings(wanted, snapshot)
    findings += toolkit.shells(wanted, snapshot)
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


# ---------------------------------------------------------------- a system that gpuprep did not install


def _as_found(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    name = snapshot.os.pretty_name or f"{snapshot.os.id} {snapshot.os.version_id}"
    why = f"gpuprep has no packages for {name}"
    if catalogue.archive_of(snapshot.os) is not None:
        why = "gpuprep did not install the driver here"
    reason = f"{why}: what is installed is measured, not compared with packages and units"
    host_findings = [skip("host", "provisioning", expected="a system gpuprep provisions", actual=name, reason=reason)]
    host_findings += _driver_as_found(wanted, snapshot)
    host_findings += libraries.findings(wanted, snapshot)
    host_findings += tuning.gpus(wanted, snapshot)
    if wanted.cuda.version != "none":
        host_findings += toolkit.found(wanted, snapshot)
    if wanted.codec.ffmpeg != "none":
        host_findings.append(_ffmpeg_as_found(snapshot))
    return [_without_role(finding, name) for finding in host_findings]


def _without_role(finding: Finding, system: str) -> Finding:
    """The finding without its role, because no role can repair it on this host."""
    remedy = finding.remedy
    if (
        finding.role
        and (not remedy or remedy.startswith(("`gpuprep provision", "`gpuprep tune")))
        and finding.status is not Status.PASS
    ):
        remedy = (
            f"gpuprep installed nothing on this {system}: change it by hand, with the packages of its vendor or NVIDIA"
        )
    return dataclasses.replace(finding, role="", remedy=remedy)


def _driver_as_found(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """Whether module, library and NVML have the same version, whoever installed them."""
    facts = snapshot.driver
    loaded = facts.loaded_version
    remedy = "install an NVIDIA driver and load it; dmesg | grep -i nvrm says why one does not load"
    driver_findings = [
        check(
            "driver", "loaded", loaded, isinstance(loaded, str), expected="a driver",
            why="no NVIDIA driver is loaded: no program can use the GPU",
            remedy=remedy,
        )
    ]  # fmt: skip
    if not isinstance(loaded, str):
        return driver_findings
    for prop, what, version in (
        ("library_version", "the library", facts.library_version),
        ("nvml_version", "NVML", facts.nvml_version),
    ):
        why = f"{what} is of driver {version or 'none'}, and {loaded} is loaded: programs fail until a reboot"
        driver_findings.append(
            check(
                "driver", prop, version, version == loaded, expected=loaded, why=why, remedy="reboot the machine",
                reboot=version is not None,
            )
        )  # fmt: skip
    return [*driver_findings, driver.counters(wanted, snapshot)]


def _ffmpeg_as_found(snapshot: Snapshot) -> Finding:
    path = snapshot.codec.ffmpeg_path
    return check(
        "ffmpeg", "path", path, isinstance(path, str), expected="on the PATH",
        why="no ffmpeg is on the PATH: transcodes cannot start",
        remedy="install an FFmpeg with NVENC and NVDEC", shown=None if isinstance(path, Missing) else str(path),
    )  # fmt: skip
