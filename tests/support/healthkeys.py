"""The keys of all findings of a GPU's health."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from gpuprep.records import (
    EccErrors,
    Missing,
    RemappedRows,
    RetiredPages,
    Snapshot,
    Status,
)

Change = Callable[[Snapshot], Snapshot]


def gpu(**values: Any) -> Change:
    def change(snapshot: Snapshot) -> Snapshot:
        assert not isinstance(snapshot.gpus, Missing)
        first = dataclasses.replace(snapshot.gpus[0], **values)
        return dataclasses.replace(snapshot, gpus=(first, *snapshot.gpus[1:]))

    return change


def other_library(snapshot: Snapshot) -> Snapshot:
    path = "/opt/other-cuda/lib64/libcublasLt.so.12.1.3.1"
    return dataclasses.replace(snapshot, libraries={**snapshot.libraries, "libcublasLt.so.12": path})


# Key of the finding ─► what makes it, how severe it is, words that must be in its reason and in its remedy.
HEALTH: dict[str, tuple[Change, Status, str, str]] = {
    "gpu 0.slowdown_now": (gpu(event_reasons=0x88), Status.FAIL, "power brake", "provider"),
    "gpu 0.ecc_errors": (gpu(ecc_errors=EccErrors(17, 2, 20, 2)), Status.FAIL, "2 memory errors", "reset"),
    "gpu 0.retired_pages": (gpu(retired_pages=RetiredPages(1, 0, True)), Status.FAIL, "still in use", "reset"),
    "gpu 0.remapped_rows": (
        gpu(remapped_rows=RemappedRows(0, 1, False, True)),
        Status.FAIL,
        "could not be replaced",
        "field diagnostic",
    ),
    "gpu 0.mig": (gpu(mig_current=True, mig_pending=True), Status.FAIL, "divided", "nvidia-smi -i INDEX -mig 0"),
    "driver.xids": (
        lambda s: dataclasses.replace(s, xids=Missing("no_permission", "kmsg")),
        Status.UNKNOWN,
        "the kernel log could not be read: reading it needs root",
        "sudo",
    ),
    "cuda.libraries": (other_library, Status.FAIL, "libcublasLt.so.12 from /opt/other-cuda/lib64", "ldconfig"),
}
