"""Are the driver's libraries there for the loader? A headless installation lacks the encoder and fails only later."""

from __future__ import annotations

from gpuprep.checks.common import check
from gpuprep.records import Finding, Missing, Snapshot

ROLE = "gpu_driver"
# Library ► what stops working without it.
NEEDED = {
    "libcuda.so.1": "no CUDA program starts",
    "libnvcuvid.so.1": "FFmpeg cannot decode on the GPU",
    "libnvidia-encode.so.1": "FFmpeg cannot encode on the GPU",
}


def findings(snapshot: Snapshot) -> list[Finding]:
    """A finding for each library; [] without any driver, which driver.version reports."""
    if snapshot.driver.module_version is None and snapshot.driver.library_version is None:
        return []
    return [_library(name, consequence, snapshot) for name, consequence in NEEDED.items()]


def _library(name: str, consequence: str, snapshot: Snapshot) -> Finding:
    path = snapshot.libraries.get(name, Missing("not_installed", "the agent did not look for it"))
    return check(
        name,
        "loader",
        path,
        isinstance(path, str),
        expected="found by the loader",
        why=f"the loader does not find {name}: {consequence}",
        role=ROLE,
    )
