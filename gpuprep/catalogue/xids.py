"""What the driver's Xids mean and what to do about each: xids.yml.

xid(79)                       the GPU fell off the bus
xid(154, "...to 0x2 (...)")   what the driver asks for with this line
recovery("reboot")            the same, by NVML's recovery action
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import datafile
from gpuprep.records import RECOVERY_ACTIONS

# nvidia-persistenced holds the GPU open. It starts again also where the reset failed, and clocks are set again then.
# Without -i it resets all GPUs, as those that NVLinks join need it before Ampere. Reports fill in INDEX.
_RESET = (
    "(`sudo fuser -v /dev/nvidia*` shows them; nvidia-persistenced may stay) and reset {it} (`sudo systemctl stop"
    " nvidia-persistenced; sudo nvidia-smi -r{which}; sudo systemctl start nvidia-persistenced`)"
)
RESET = f"reboot, or end all programs on the GPU {_RESET.format(it='it', which=' -i INDEX')}"
RESET_ALL = f"reboot, or end all programs on all GPUs {_RESET.format(it='them', which='')}"
RECOVERY = 154  # "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
NO_ACTION = RECOVERY_ACTIONS[0]
# The number decides: drivers have several words for one ("Node Reboot Required", "OS Reboot").
CHANGED = re.compile(r"recovery action changed from 0x[0-9a-f]{1,8} [^\n]{0,60}?to 0x([0-9a-f]{1,8})\b", re.I)


@dataclass(frozen=True)
class XidMeaning:
    code: int
    what: str  # "the GPU fell off the bus"
    gravity: str  # "fail" | "warn" | "note"
    remedy: str
    rung: int  # of several remedies the one with the highest rung does what the others would do


def xid(code: int, message: str = "") -> XidMeaning:
    """Meaning and advice for this code; an unknown code says that it is unknown."""
    changed = CHANGED.search(message) if code == RECOVERY else None
    if changed and (asked := recovery(RECOVERY_ACTIONS.get(int(changed[1], 16), ""))):
        return asked
    row = _document()["xids"].get(code)
    if row is None:
        remedy = f"look up Xid {code} in NVIDIA's list of Xid errors"
        return XidMeaning(code, "an error that gpuprep does not know", "warn", remedy, 0)
    return _meaning(code, row["what"], row)


def recovery(action: str) -> XidMeaning | None:
    """What the driver asks for, by a word of RECOVERY_ACTIONS; None for a word that it does not have."""
    row = _document()["recovery"].get(action)
    if row is None:
        return None
    asks = "" if action == NO_ACTION else f"the driver asks for it ({action.replace('_', ' ')}): "
    return _meaning(RECOVERY, asks + row["what"], row)


def _meaning(code: int, what: str, row: Mapping[str, Any]) -> XidMeaning:
    actions: Mapping[str, str] = _document()["actions"]
    remedy = actions[row["do"]].replace("RESET_ALL", RESET_ALL).replace("RESET", RESET)
    return XidMeaning(code, what, row["gravity"], remedy, list(actions).index(row["do"]))


@cache
def _document() -> Mapping[str, Any]:
    return datafile.read(Path(__file__).parent / "xids.yml")
