"""GPUs that the catalogue lacks: set up and measured like the others; nothing says how fast they should be."""

from __future__ import annotations

from gpuprep.checks.common import COMPARE_IT
from gpuprep.desired.state import Wanted, WantedGpu
from gpuprep.records import Finding, Missing, Snapshot, Status

EXPECTED = "a GPU that the catalogue has"


def findings(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """One UNKNOWN for each: a machine of which a part cannot be judged does not pass."""
    return [_one(gpu, _index(snapshot, gpu, place)) for place, gpu in enumerate(wanted.gpus) if not gpu.model]


def _index(snapshot: Snapshot, gpu: WantedGpu, place: int) -> int:
    """NVML's number of it; without a driver, its place on the PCI bus."""
    read = () if isinstance(snapshot.gpus, Missing) else snapshot.gpus
    return next((one.index for one in read if one.pci_address == gpu.pci_address), place)


def _one(gpu: WantedGpu, index: int) -> Finding:
    ids = f"10de:{gpu.pci_device_id}"
    shown = gpu.name if ids in gpu.name else f"{gpu.name} ({ids})"
    why = f"the catalogue does not have {shown}, or cannot tell which board it is: it is measured without floors"
    return Finding(f"gpu {index}", "in_catalogue", Status.UNKNOWN, EXPECTED, shown, why, COMPARE_IT)
