"""GPUs that the catalogue lacks: set up and measured like the others, but their expected speed is unknown.

GPUs of other makers are only named, as in lspci's database.
"""

from __future__ import annotations

from gpuprep.catalogue.boards import MASKED
from gpuprep.checks.common import COMPARE_IT, skip
from gpuprep.desired.host_rules import title
from gpuprep.desired.state import Wanted, WantedGpu
from gpuprep.records import Finding, Missing, PciDevice, Snapshot, Status

EXPECTED = "a GPU that the catalogue has"
NAME = "judge it by the profile of its model alone (`gpuprep profiles list` shows them)"
VGA = "0300"  # of another maker most often the board's own, for its console
AMD = "1002"


def findings(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """UNKNOWN for each such GPU: a machine that cannot be judged completely does not pass. SKIP for other makers."""
    unknown = [
        _unknown_gpu(gpu, _index(snapshot, gpu, place)) for place, gpu in enumerate(wanted.gpus) if not gpu.model
    ]
    return unknown + _others(snapshot)


def _index(snapshot: Snapshot, gpu: WantedGpu, place: int) -> int:
    """NVML's index of the GPU; without a driver, its position on the PCI bus."""
    read = () if isinstance(snapshot.gpus, Missing) else snapshot.gpus
    return next((facts.index for facts in read if facts.pci_address == gpu.pci_address), place)


def _unknown_gpu(gpu: WantedGpu, index: int) -> Finding:
    ids = f"10de:{gpu.pci_device_id}"
    shown = gpu.name if ids in gpu.name else f"{gpu.name} ({ids})"
    why = f"the catalogue does not have {shown}, or cannot tell which board it is: it is measured without floors"
    if gpu.pci_device_id not in MASKED:
        return Finding(f"gpu {index}", "in_catalogue", Status.UNKNOWN, EXPECTED, shown, why, COMPARE_IT)
    # Figures from elsewhere have no id of such a GPU, and perhaps no name.
    if gpu.pci_device_id in gpu.name:
        why = "which GPU it was is not recorded: no floor is known"
        return Finding(f"gpu {index}", "in_catalogue", Status.UNKNOWN, EXPECTED, "not named", why, NAME)
    why = f"the catalogue does not have {gpu.name:.80}: no floor is known"
    return Finding(f"gpu {index}", "in_catalogue", Status.UNKNOWN, EXPECTED, f"{gpu.name:.80}", why, COMPARE_IT)


def _others(snapshot: Snapshot) -> list[Finding]:
    """One SKIP for all GPUs of other makers."""
    devices = () if isinstance(snapshot.other_gpus, Missing) else snapshot.other_gpus
    shown = [f"{title(snapshot, device)} at {device.address}" for device in devices if not _console(device)]
    if not shown:
        return []
    reason = "gpuprep sets up and measures NVIDIA's GPUs; these were not changed"
    return [skip("gpus", "of_other_makers", expected="NVIDIA's", actual=", ".join(shown), reason=reason)]


def _console(device: PciDevice) -> bool:
    return device.class_code.startswith(VGA) and device.vendor_id.lower() != AMD
