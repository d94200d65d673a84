"""One line of a tuning report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from gpuprep.records import Missing


@dataclass(frozen=True)
class Row:
    """One property of one GPU.

    `how`: clocks "application" or "locked"; persistence "daemon" or "legacy".
    `reboot_needed`: the setting is taken, and shows after the next reboot (ECC).
    """

    gpu: int
    uuid: str
    property: str
    wanted: str
    before: str
    after: str
    changed: bool
    as_wanted: bool
    how: str = ""
    error: str = ""
    reboot_needed: bool = False


def shown(reading: Union[str, Missing, None]) -> str:
    """A reading as text; for Missing its reason and NVML's message; "" for None."""
    if isinstance(reading, Missing):
        return f"{reading.reason}: {reading.detail}" if reading.detail else reading.reason
    return reading or ""
