"""Are the driver's libraries there for the loader, and the wished NCCL?

A headless installation lacks the encoder and fails only later.
"""

from __future__ import annotations

from pathlib import Path

from gpuprep.checks import byhand
from gpuprep.checks.common import PROVISION, check, skip, unknown
from gpuprep.checks.evidence import Evidence
from gpuprep.desired.host_rules import NCCL_LIBRARY
from gpuprep.desired.state import Wanted
from gpuprep.records import NOT_READ, Finding, LoadedLibrary, Missing, OptStr, Snapshot, Source
from gpuprep.records.evidence.nccl import Nccl

ROLE = "gpu_driver"
# Library ► what stops working without it.
NEEDED = {
    "libcuda.so.1": "no CUDA program starts",
    "libnvcuvid.so.1": "FFmpeg cannot decode on the GPU",
    "libnvidia-encode.so.1": "FFmpeg cannot encode on the GPU",
}


def findings(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """A finding for each library; [] without any driver, which driver.version reports."""
    if snapshot.driver.module_version is None and snapshot.driver.library_version is None:
        return []
    return [_library(name, consequence, wanted, snapshot) for name, consequence in NEEDED.items()]


def _library(name: str, consequence: str, wanted: Wanted, snapshot: Snapshot) -> Finding:
    path = snapshot.libraries.get(name, Missing("not_installed", "the agent did not look for it"))
    whose_it_is = snapshot.driver_libraries
    expected = "found by the loader"
    if isinstance(whose_it_is, Missing) and whose_it_is != NOT_READ and isinstance(path, str):
        return unknown(name, "loader", whose_it_is, expected=expected, what=f"whose {name} is")
    library = None if isinstance(whose_it_is, Missing) else whose_it_is.get(name)
    if library is None:
        why = f"the loader does not find {name}: {consequence}"
        return check(name, "loader", path, isinstance(path, str), expected=expected, why=why, role=ROLE)
    module = (
        snapshot.driver.loaded_version if snapshot.driver.module_version is None else snapshot.driver.module_version
    )
    package = snapshot.owners.get(library.path, Missing("not_read", library.path))
    for reading in (module, library.version, package):
        if isinstance(reading, Missing):
            return unknown(name, "loader", reading, expected=expected, what=f"whose {name} is")
    whose = _wrong(library, module, package, own=wanted.installs)
    why = f"programs get {library.place}, which is {whose}: {consequence}"
    ours = package in wanted.driver.packages  # of another version: provision replaces it
    role, remedy = (ROLE, "") if ours else ("", _off(library, snapshot))
    prop = "driver" if whose else "loader"  # the library's own link: renewing the loader's list does not help
    return check(name, prop, library.path, not whose, expected=expected, why=why, role=role, remedy=remedy)


def _off(library: LoadedLibrary, snapshot: Snapshot) -> str:
    """How to make the loader ignore the library. ldconfig makes links beside a file: there the file must be moved."""
    beside = library.path.rpartition("/")[0].endswith(library.place.rpartition("/")[0])
    found = byhand.off_the_loader(snapshot, [library.path if beside else library.place])
    # restores the link that ldconfig had replaced
    again = f"; then `{PROVISION} --only driver`" if beside or not found else ""
    return f"{found or byhand.aside(snapshot, library.path)}{again}"


def _wrong(library: LoadedLibrary, module: OptStr, package: OptStr, *, own: bool) -> str:
    """What the library is if it is not the driver's; "" if it is the driver's.

    `own`: the driver is of packages that gpuprep installs, so a file that no package has is not the driver's.
    """
    folders = {*Path(library.path).parts, *Path(library.place).parts}
    if "stubs" in folders:
        return "a stub, made for linking programs and not for running them"
    if not own and "compat" in folders:  # NVIDIA's containers bring a newer one for an older driver
        return ""
    if isinstance(module, str) and isinstance(library.version, str) and library.version != module:
        return f"of driver {library.version}, and the kernel module is of {module}"
    if isinstance(module, str) and library.version is None and Path(library.place).name.startswith("libcuda.so"):
        return f"not of driver {module}"
    return "no file of the driver's packages" if own and package is None else ""


# ---------------------------------------------------------------- NCCL

NCCL_ROLE = "gpu_nccl"
OTHER_NCCL = (
    "remove the other one from LD_LIBRARY_PATH and /etc/ld.so.conf.d; `gpuprep provision HOST "
    "--profile PROFILE` sets the loader's path"
)


def nccl(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
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
    return [check("nccl", "library", path, ours, expected=wanted.nccl_directory, why=why, role=NCCL_ROLE)]


def nccl_loaded(evidence: Evidence, values: Nccl) -> list[Finding]:
    """Whether the measured NCCL is the wanted version; any version if gpuprep does not pin it."""
    wanted, paths = evidence.wanted, [library.path for library in values.libraries if library.name == "nccl"]
    if evidence.snapshot.source is Source.SIMULATED and not paths:
        return []
    if not paths:
        if values.error or values.stopped:  # another finding reports it
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
    return [check("nccl", "loaded", shown, ours, expected=expected, why=why, role=NCCL_ROLE, remedy=OTHER_NCCL)]
