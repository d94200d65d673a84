"""Chooses the clock pair of a GPU from the profile, the best pair of the model and the supported pairs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Optional, Tuple, Union

from gpuprep.records import ClockPair, GpuFacts, Missing

NEAREST = 3


@dataclass(frozen=True)
class Choice:
    """`pair` to set; None without `error`: the driver's default. `error`: why the wanted pair is impossible."""

    pair: Optional[ClockPair]
    error: str = ""


def choose(wish: Union[str, ClockPair], gpu: GpuFacts, models: Dict[str, ClockPair]) -> Choice:
    if wish == "default":
        return Choice(None)
    supported = gpu.supported_clocks
    if isinstance(supported, Missing):
        return Choice(None, f"cannot read the supported clocks: {supported.reason}: {supported.detail}")
    if not supported:
        return Choice(None, "the GPU supports no clock pair")
    if isinstance(wish, ClockPair):
        if wish in supported:
            return Choice(wish)
        near = "; ".join(describe(pair) for pair in nearest(wish, supported))
        return Choice(None, f"{describe(wish)} is not supported by this GPU; nearest: {near}")
    known = models.get(gpu.pci_device_id)
    if known in supported:
        return Choice(known)
    return Choice(max(supported, key=lambda pair: (pair.memory_mhz, pair.graphics_mhz)))


def nearest(wish: ClockPair, supported: Tuple[ClockPair, ...]) -> Tuple[ClockPair, ...]:
    """The closest supported pairs: memory first, because there are only a few, far apart."""

    def distance(pair: ClockPair) -> Tuple[int, int]:
        return abs(pair.memory_mhz - wish.memory_mhz), abs(pair.graphics_mhz - wish.graphics_mhz)

    return tuple(sorted(supported, key=distance)[:NEAREST])


def describe(pair: ClockPair) -> str:
    """In nvidia-smi's order: memory, graphics."""
    return f"{pair.memory_mhz},{pair.graphics_mhz} MHz"
