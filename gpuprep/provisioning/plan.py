"""Findings ─► ordered steps, each with its reasons; Wanted ─► the variables of the roles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuprep import catalogue
from gpuprep.catalogue import roles
from gpuprep.desired.state import Wanted, tuning_document
from gpuprep.records import Finding, Plan, Step
from gpuprep.records.findings import DONE
from gpuprep.records.recorded_options import STEPS

TITLES = {
    "gpu_preflight": "Restart into the newest kernel",
    "gpu_driver": "Install the NVIDIA driver with its options and holds",
    "gpu_agent": "Install gpuprep's agent",
    "gpu_tuning": "Tune the GPUs: persistence, clocks, power",
    "gpu_cuda": "Install the CUDA toolkit",
    "gpu_cudnn": "Install cuDNN",
    "gpu_nccl": "Install NCCL",
    "gpu_codec": "Build FFmpeg with NVENC and NVDEC",
    "gpu_containers": "Give containers access to the GPUs",
    "gpu_extras": "Install the extras",
}
# Playbook order: what a role needs is done by one before it.
ROLES = ("gpu_preflight", *(f"gpu_{step}" for step in STEPS))
# What gpu_driver puts right without a restart: the loaded module stays the installed one.
NO_REBOOT = frozenset(
    {
        "held",
        "pinned",
        "stream",
        "unattended_upgrades",
        "blacklist",
        "initramfs",
        "repository",
        "finished",
        "files",
        "modprobe_options",
        "headers",
        "headers_next_boot",
        "next_boot_file",
        "next_boot_module",
        "signature",
        "signature_next_boot",
        "change",
    }
)


def make(host: str, wanted: Wanted, findings: Sequence[Finding]) -> Plan:
    """The roles whose findings did not pass, in playbook order. No step means: nothing to do.

    UNKNOWN also selects the role: the role makes sure of what could not be read.
    """
    open_findings = [finding for finding in findings if finding.status not in DONE]
    steps = []
    for role in ROLES:
        reasons = dict.fromkeys(_sentence(f) for f in open_findings if f.role == role)
        if role == "gpu_containers" and wanted.containers.toolkit != "none" and _changes_driver(open_findings):
            reasons["the driver changes, and containers get its libraries by name"] = None
        if reasons:
            steps.append(Step(role, TITLES[role], tuple(reasons), may_reboot=_may_reboot(role, open_findings)))
    left_over = dict.fromkeys(_sentence(f) for f in open_findings if f.role not in ROLES)
    decisions = wanted.decisions if steps else ()
    return Plan(host, wanted.profile, tuple(steps), (*left_over, *decisions))


def _changes_driver(findings: Sequence[Finding]) -> bool:
    return any(finding.role == "gpu_driver" and finding.property not in NO_REBOOT for finding in findings)


def _sentence(finding: Finding) -> str:
    return finding.reason or f"{finding.subject} {finding.property}: {finding.actual}, wanted {finding.expected}"


def _may_reboot(role: str, findings: Sequence[Finding]) -> bool:
    """The driver role reboots if loaded and installed driver would differ, the tuning role only for ECC and MIG."""
    properties = {finding.property for finding in findings if finding.role == role}
    if role == "gpu_tuning":
        return not properties.isdisjoint({"ecc", "mig"})
    return role in ("gpu_preflight", "gpu_driver") and not properties <= NO_REBOOT


def role_variables(wanted: Wanted) -> dict[str, Any]:
    """Every variable of the roles that the profile and the host decide.

    The caller adds: mirrors of sources, paths of the controller (gpu_agent_wheelhouse, gpu_codec_artifact_dir), and
    whether the user allows reboots.
    """
    tuning = tuning_document(wanted)
    variables: dict[str, Any] = {
        "gpu_preflight_min_free_mib": dict(wanted.min_free_mib),
        "gpu_driver_source": wanted.driver.source,
        "gpu_driver_version": wanted.driver.version,
        "gpu_driver_flavour": wanted.driver.flavour,
        "gpu_driver_modules": wanted.driver.modules,
        "gpu_driver_libraries": wanted.driver.libraries,
        "gpu_driver_hold": wanted.driver.hold,
        "gpu_driver_rollback": wanted.driver.rollback,
        "gpu_driver_reboot_timeout": wanted.driver.reboot_minutes * 60,
        "gpu_driver_gpu_firmware": wanted.driver.gpu_firmware,
        "gpu_driver_profiling_counters": wanted.tuning.profiling_counters,
        **_signing(wanted),
        **_packages(wanted),
        "gpu_agent_version": wanted.agent.version,
        "gpu_agent_cuda_major": wanted.cuda.major,
        **{f"gpu_tuning_{key}": value for key, value in tuning.items()},
        "gpu_cuda_version": wanted.cuda.version,
        "gpu_cuda_hold": wanted.cuda.hold,
        "gpu_cudnn_version": wanted.cudnn.version,
        "gpu_cudnn_cuda_major": wanted.cuda.major,
        "gpu_cudnn_sha256": dict(wanted.cudnn.sha256),
        "gpu_cudnn_prefix": wanted.cudnn.prefix,
        "gpu_nccl_version": wanted.nccl.version,
        "gpu_nccl_cuda_major": wanted.cuda.major,
        "gpu_nccl_sha256": dict(wanted.nccl.sha256),
        "gpu_nccl_prefix": wanted.nccl.prefix,
        "gpu_containers_version": wanted.containers.toolkit,
        "gpu_containers_hold": wanted.containers.hold,
        "gpu_extras_packages": list(wanted.extras.packages),
        "gpu_extras_pip": [],
        "gpu_extras_mount": _mount(wanted),
    }
    return variables | _codec(wanted)


def _packages(wanted: Wanted) -> dict[str, list[str]]:
    """The packages that are judged, for the roles to install the same; empty lists on a system that is not known."""
    driver, cuda = wanted.driver, wanted.cuda
    release = catalogue.archives().get(wanted.os_key)
    tools: tuple[str, ...] = ()
    fabric: tuple[str, ...] = ()
    if release is not None and driver.packages:
        tools = roles.driver_tools(release, driver.source, driver.archive_version)
        fabric = roles.fabric_packages(release, driver.source, driver.archive_version)
    return {
        "gpu_driver_packages": [name for name in driver.packages if name not in (*tools, *fabric)],
        "gpu_driver_tool_packages": list(tools),
        "gpu_driver_fabric_packages": list(fabric),
        "gpu_driver_prebuilt_packages": list(driver.prebuilt),
        "gpu_cuda_packages": list(cuda.packages),
        "gpu_cuda_compiler_packages": list(roles.cuda_compiler(release, driver.source, cuda.version))
        if release is not None and cuda.packages
        else [],
        "gpu_containers_packages": list(wanted.containers.packages),
    }


def _signing(wanted: Wanted) -> dict[str, str]:
    signing = wanted.driver.signing
    return {
        "gpu_driver_signing_key": signing.key if signing else "",
        "gpu_driver_signing_certificate": signing.certificate if signing else "",
    }


def _mount(wanted: Wanted) -> dict[str, str]:
    mount = wanted.mount
    if mount is None:
        return {}
    return {"device": mount.device, "path": mount.path, "fstype": mount.fstype, "options": mount.options}


def _codec(wanted: Wanted) -> dict[str, Any]:
    variables: dict[str, Any] = {
        "gpu_codec_ffmpeg_version": wanted.codec.ffmpeg,
        "gpu_codec_headers_version": wanted.codec.headers,
        "gpu_codec_prefix": wanted.codec.prefix,
        "gpu_codec_npp": wanted.codec.npp,
        "gpu_codec_parts": {kind: list(names) for kind, names in wanted.codec.parts.items()},
        "gpu_codec_libraries": list(wanted.codec.libraries),
        "gpu_codec_build_key": wanted.build_key,
    }
    if wanted.codec.ffmpeg == "none":
        return variables
    for name, kind, version in (
        ("ffmpeg", "ffmpeg", wanted.codec.ffmpeg),
        ("headers", "nv_codec_headers", wanted.codec.headers),
    ):
        source = catalogue.source(kind)[version]
        variables[f"gpu_codec_{name}_url"] = source.url
        variables[f"gpu_codec_{name}_sha256"] = " ".join(source.sha256)
    return variables
