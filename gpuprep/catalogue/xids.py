"""What the driver's Xids mean and what to do about each: xids.yml."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpuprep.catalogue import datafile


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
    actions = document["actions"]
    return {
        code: XidMeaning(code, row["what"], row["gravity"], actions.get(row["do"], row["do"]))
        for code, row in document["xids"].items()
    }
