"""Do programs get the wished NCCL?"""

from __future__ import annotations

from gpuprep.checks.common import check, skip, unknown
from gpuprep.checks.evidence import Evidence
from gpuprep.desired.host_rules import NCCL_LIBRARY
from gpuprep.desired.state import Wanted
from gpuprep.records import Finding, Missing, Snapshot, Source
from gpuprep.records.evidence.nccl import Nccl

ROLE = "gpu_nccl"
ELSEWHERE = (
    "take the other one off LD_LIBRARY_PATH and /etc/ld.so.conf.d; `gpuprep provision HOST "
    "--profile PROFILE` sets the loader's"
)


def findings(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """The finding on NCCL; [] if the profile asks for none: then any NCCL is fine."""
    if wanted.nccl.version == "none":
        return []
    nothing = Missing("not_read", "the agent did not look for it")
    path = snapshot.libraries.get(NCCL_LIBRARY, snapshot.libraries.get("libnccl.so", nothing))
    why = (
        ("the loader finds no NCCL: jobs on several GPUs do not start")
        if path is None
        else f"programs get another NCCL than the profile's: {path}"
    )
    ours = isinstance(path, str) and path.startswith(f"{wanted.nccl_directory}/")
    return [check("nccl", "library", path, ours, expected=wanted.nccl_directory, why=why, role=ROLE)]


def loaded(evidence: Evidence, values: Nccl) -> list[Finding]:
    """Whether the measured NCCL is the wished version; any version if gpuprep does not pin it."""
    wanted, paths = evidence.wanted, [library.path for library in values.libraries if library.name == "nccl"]
    if evidence.snapshot.source is Source.SIMULATED and not paths:
        return []
    if not paths:
        if values.error or values.stopped:  # of which another finding tells
            return []
        reading = Missing("not_recorded", "the probe names no nccl among its libraries")
        return [unknown("nccl", "loaded", reading, expected="the library that ran", remedy="measure again")]
    shown = f"NCCL {values.version or 'of unknown version'}, {', '.join(paths)}"
    if wanted.nccl.version == "none" or not wanted.installs:
        asked = "the profile asks for none (nccl.version)" if wanted.nccl.version == "none" else "it is as it was found"
        reason = f"this NCCL is not one that gpuprep pins: {asked}"
        return [skip("nccl", "loaded", expected="any", actual=shown, reason=reason)]
    lacking = "path of the loaded nccl" if not all(paths) else "" if values.version else "version of the loaded nccl"
    if lacking:
        reading = Missing("not_recorded", f"no {lacking}")
        return [unknown("nccl", "loaded", reading, expected="the library that ran", remedy="measure again")]
    strangers = [path for path in paths if not path.startswith(f"{wanted.nccl_directory}/")]
    why = f"a program gets another NCCL than the installed one: {', '.join(strangers)} comes first"
    ours = not strangers and values.version == wanted.nccl.version
    if not strangers:
        why = f"the NCCL in {wanted.nccl_directory} says that it is {values.version}"
    expected = f"NCCL {wanted.nccl.version}, {wanted.nccl_directory}"
    return [check("nccl", "loaded", shown, ours, expected=expected, why=why, role=ROLE, remedy=ELSEWHERE)]
