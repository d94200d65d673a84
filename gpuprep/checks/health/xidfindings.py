"""Findings on the Xids of this boot, for each GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gpuprep.catalogue.xids import XidMeaning, xid
from gpuprep.checks.common import unknown
from gpuprep.records import Finding, GpuFacts, Missing, Snapshot, Status, Xid

GRAVE = (Status.FAIL, Status.WARN)


def findings(snapshot: Snapshot, gpus: Sequence[GpuFacts]) -> list[Finding]:
    """One finding for each GPU with Xids, and for addresses that are no GPU's; one PASS if there are no Xids."""
    seen, expected = snapshot.xids, "no severe Xid"
    if isinstance(seen, Missing):
        return [unknown("driver", "xids", seen, expected=expected, what="the kernel log")]
    if not seen:
        return [Finding("driver", "xids", Status.PASS, expected, "none since boot")]
    subjects = {gpu.pci_address: f"gpu {gpu.index}" for gpu in gpus if gpu.pci_address}
    addresses = list(dict.fromkeys(xid_line.pci_address for xid_line in seen))
    return [
        _of(subjects.get(address, f"gpu {address}"), [xid_line for xid_line in seen if xid_line.pci_address == address])
        for address in addresses
    ]


def _of(subject: str, seen: Sequence[Xid]) -> Finding:
    counts = Counter(xid_line.code for xid_line in seen)
    meanings = sorted(
        (xid(code) for code in counts), key=lambda meaning: ("fail", "warn", "note").index(meaning.gravity)
    )
    worst = meanings[0]
    status = {"fail": Status.FAIL, "warn": Status.WARN, "note": Status.PASS}[worst.gravity]
    shown = ", ".join(
        f"Xid {meaning.code}{f' ×{counts[meaning.code]}' if counts[meaning.code] > 1 else ''}" for meaning in meanings
    )
    last = [line for line in seen if line.code == worst.code][-1]
    when = "" if isinstance(last.time, Missing) else f" at {last.time}"
    why = f"Xid {worst.code}{when}: {_explanation(worst, last)}"
    return Finding(subject, "xids", status, "no severe Xid", shown, why, worst.remedy if status in GRAVE else "")


def _explanation(meaning: XidMeaning, line: Xid) -> str:
    return f"{meaning.what} ({line.message:.160})" if line.message else meaning.what
