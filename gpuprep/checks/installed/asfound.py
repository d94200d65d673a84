"""For an OS or driver that gpuprep did not install: do the installed parts fit together and work?

Packages, holds, units, builds and paths are not checked, because gpuprep did not make them.
"""

from __future__ import annotations

import dataclasses

from gpuprep import catalogue
from gpuprep.checks.common import check, skip
from gpuprep.checks.installed import driver, libraries, toolkit, tuning
from gpuprep.desired.state import Wanted
from gpuprep.records import Finding, Missing, Snapshot, Status


def findings(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    name = snapshot.os.pretty_name or f"{snapshot.os.id} {snapshot.os.version_id}"
    why = f"gpuprep has no packages for {name}"
    if catalogue.archive(snapshot.os.id, snapshot.os.version_id) is not None:
        why = "gpuprep did not install the driver here"
    reason = f"{why}: what is installed is measured, not compared with packages and units"
    host_findings = [skip("host", "provisioning", expected="a system gpuprep provisions", actual=name, reason=reason)]
    host_findings += _driver(wanted, snapshot)
    host_findings += libraries.findings(wanted, snapshot)
    host_findings += tuning.gpus(wanted, snapshot)
    if wanted.cuda.version != "none":
        host_findings += toolkit.found(wanted, snapshot)
    if wanted.codec.ffmpeg != "none":
        host_findings.append(_ffmpeg(snapshot))
    return [_by_hand(finding, name) for finding in host_findings]


def _by_hand(finding: Finding, system: str) -> Finding:
    """The finding without its role, because no role can repair it on this host."""
    remedy = finding.remedy
    if (
        finding.role
        and (not remedy or remedy.startswith(("`gpuprep provision", "`gpuprep tune")))
        and finding.status is not Status.PASS
    ):
        remedy = f"gpuprep installed nothing on this {system}: do it by hand, with what its vendor or NVIDIA offers"
    return dataclasses.replace(finding, role="", remedy=remedy)


def _driver(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """Whether module, library and NVML have the same version, by whoever they were installed."""
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


def _ffmpeg(snapshot: Snapshot) -> Finding:
    path = snapshot.codec.ffmpeg_path
    return check(
        "ffmpeg", "path", path, isinstance(path, str), expected="on the PATH",
        why="no ffmpeg is on the PATH: transcodes cannot start",
        remedy="install an FFmpeg with NVENC and NVDEC", shown=None if isinstance(path, Missing) else str(path),
    )  # fmt: skip
