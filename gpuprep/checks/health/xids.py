"""Findings on the Xids of this boot, and on what the driver itself asks for: one advice for each GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gpuprep.catalogue import xids
from gpuprep.catalogue.xids import NO_ACTION, RECOVERY, XidMeaning, xid
from gpuprep.checks.common import NOT_TOLD, unknown
from gpuprep.checks.health.shared import judged, refused
from gpuprep.records import Finding, GpuFacts, Missing, Snapshot, Status, Xid

STATUS = {"fail": Status.FAIL, "warn": Status.WARN, "note": Status.PASS}
KEPT = "; the kernel log keeps the line, and so this finding stays, until a reboot"


def recovery(subject: str, gpu: GpuFacts, seen: Sequence[Xid] | Missing) -> Finding | None:
    """A finding for NVML's recovery action; None if the driver (before R565) or the record does not have it."""
    action = gpu.recovery_action
    if isinstance(action, Missing):
        return refused(subject, "recovery_action", action, NO_ACTION, what="what the driver asks for", absent=NOT_TOLD)
    if action == NO_ACTION:
        return judged(subject, "recovery_action", None, NO_ACTION, action)
    shown, asked = action.replace("_", " "), xids.recovery(action)
    if asked is None:
        why = f"the driver asks for something that gpuprep does not know: {shown:.60}"
        return judged(
            subject, "recovery_action", (Status.UNKNOWN, why, "nvidia-smi -q shows it in words"), NO_ACTION, shown
        )
    remedy = _advice([asked, *_meanings(_at(seen, gpu.pci_address), action)])
    return Finding(
        subject, "recovery_action", STATUS[asked.gravity], NO_ACTION, shown, asked.what, remedy,
        reboot=action == "reboot",
    )  # fmt: skip


def findings(snapshot: Snapshot, gpus: Sequence[GpuFacts]) -> list[Finding]:
    """One finding for each GPU with Xids, and for addresses that are no GPU's; one PASS if there are no Xids."""
    seen, expected = snapshot.xids, "no severe Xid"
    if isinstance(seen, Missing):
        return [unknown("driver", "xids", seen, expected=expected, what="the kernel log")]
    if not seen:
        return [Finding("driver", "xids", Status.PASS, expected, "none since boot")]
    there = {gpu.pci_address: gpu for gpu in gpus if gpu.pci_address}
    return [
        _of(address, there.get(address), _at(seen, address)) for address in dict.fromkeys(x.pci_address for x in seen)
    ]


def _of(address: str, gpu: GpuFacts | None, seen: Sequence[Xid]) -> Finding:
    subject, action = f"gpu {gpu.index if gpu else address}", gpu.recovery_action if gpu else ""
    counts, meanings = Counter(line.code for line in seen), _meanings(seen, action)
    shown = ", ".join(
        f"Xid {meaning.code}{f' ×{counts[meaning.code]}' if counts[meaning.code] > 1 else ''}" for meaning in meanings
    )
    worst, asked = meanings[0], xids.recovery(action) if isinstance(action, str) else None
    last = [line for line in seen if line.code == worst.code][-1]
    when = "" if isinstance(last.time, Missing) else f" at {last.time}"
    what = f"{worst.what} ({last.message:.160})" if last.message else worst.what
    why, status = f"Xid {worst.code}{when}: {what}", STATUS[worst.gravity]
    if status is Status.PASS:
        return Finding(subject, "xids", status, "no severe Xid", shown, why)
    remedy = _advice([*meanings, asked] if asked else meanings)
    if "nvidia-smi -r" in remedy:
        why += KEPT
        why += "; the driver asks for no recovery now" if action == NO_ACTION else ""
    return Finding(subject, "xids", status, "no severe Xid", shown, why, remedy)


def _at(seen: Sequence[Xid] | Missing, address: str | Missing | None) -> list[Xid]:
    return [] if isinstance(seen, Missing) else [line for line in seen if line.pci_address == address]


def _meanings(seen: Sequence[Xid], action: str | Missing) -> list[XidMeaning]:
    """What these Xids of one GPU mean, the gravest first. What NVML says now counts more than a line of Xid 154."""
    messages = {line.code: line.message for line in seen}  # the last one of each code
    meanings = [xid(code, message) for code, message in messages.items()]
    if isinstance(action, str) and (asked := xids.recovery(action)):
        meanings = [asked if meaning.code == RECOVERY else meaning for meaning in meanings]
    return sorted(meanings, key=lambda meaning: (list(STATUS).index(meaning.gravity), -meaning.rung))


def _advice(meanings: Sequence[XidMeaning]) -> str:
    """The one remedy that does what those of all faults would do."""
    return max((meaning for meaning in meanings if meaning.gravity != "note"), key=lambda meaning: meaning.rung).remedy
