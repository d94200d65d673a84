"""Which profile fits the GPUs that a host has?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from gpuprep import catalogue
from gpuprep.desired.host_rules import board_at, nvidia_gpus
from gpuprep.records import Snapshot

BASE = "base"  # serves every model


@dataclass(frozen=True)
class Proposal:
    """A shipped profile for one host. All its texts come from the catalogue, none from the host."""

    profile: str  # "t4"; "base" for models without a profile of their own, and for several models
    models: tuple[str, ...]  # keys of the catalogue, each once; () where it knows none of the GPUs
    gpus: str  # "2 × T4"; "" where the host has none
    unknown: int = 0  # GPUs that the catalogue lacks

    @property
    def why(self) -> str:
        if not self.gpus:
            return "there is no NVIDIA GPU on the PCI bus"
        if not self.models:
            return (
                f"{self.gpus}: gpuprep sets it up and measures it, but knows no figures to judge its speed by,"
                " so the verdict will be UNKNOWN"
            )
        return self.gpus


def propose(snapshot: Snapshot) -> Proposal:
    """The profile for the boards on the PCI bus; a host without a driver is enough."""
    boards = [board_at(snapshot, device) for device in nvidia_gpus(snapshot)]
    counted = Counter(board.model.key for board in boards if board is not None)
    unknown = sum(board is None for board in boards)
    known = catalogue.models()
    shown = [f"{count} × {known[key].title}" for key, count in counted.items()]
    shown += [f"{unknown} × a GPU that the catalogue does not know"] if unknown else []
    profiles = {known[key].profile for key in counted}
    profile = profiles.pop() if len(profiles) == 1 and len(counted) == 1 else BASE
    return Proposal(profile, tuple(counted), " and ".join(shown), unknown)
