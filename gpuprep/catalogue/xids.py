"""What the driver's Xids mean and what to do about each: xids.yml."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpuprep.catalogue import datafile

# nvidia-persistenced holds the GPU open. It starts again also where the reset failed, and clocks are set again then.
# Without -i it resets all GPUs, as those that NVLinks join need it before Ampere. Reports fill in INDEX.
_RESET = (
    "(`sudo fuser -v /dev/nvidia*` shows them; nvidia-persistenced may stay) and reset {it} (`sudo systemctl stop"
    " nvidia-persistenced; sudo nvidia-smi -r{which}; sudo systemctl start nvidia-persistenced`)"
)
RESET = f"reboot, or end all programs on the GPU {_RESET.format(it='it', which=' -i INDEX')}"
RESET_ALL = f"reboot, or end all programs on all GPUs {_RESET.format(it='them', which='')}"


@dataclass(frozen=True)
class XidMeaning:
    code: int
    what: str  # "the GPU fell off the bus"
    gravity: str  # "fail" | "warn" | "note"
    remedy: str


def xid(code: int) -> XidMeaning:
    """Meaning and advice for this code; an unknown code says that it is unknown."""
    known = _known().get(code)
    what = "an error that gpuprep does not know"
    return known or XidMeaning(code, what, "warn", f"look up Xid {code} in NVIDIA's list of Xid errors")


@cache
def _known() -> dict[int, XidMeaning]:
    document = datafile.read(Path(__file__).parent / "xids.yml")
    actions = {
        name: text.replace("RESET_ALL", RESET_ALL).replace("RESET", RESET) for name, text in document["actions"].items()
    }
    return {
        code: XidMeaning(code, row["what"], row["gravity"], actions.get(row["do"], row["do"]))
        for code, row in document["xids"].items()
    }
