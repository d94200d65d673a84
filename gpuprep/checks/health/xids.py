"""Findings on the Xids of this boot, and on what the driver itself asks for, for each GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gpuprep.catalogue.xids import RESET, xid
from gpuprep.checks.common import NOT_TOLD, RESTART, unknown
from gpuprep.checks.health.shared import CALL, judged, refused
from gpuprep.records import Finding, GpuFacts, Missing, Snapshot, Status, Xid

# ---------------------------------------------------------------- recovery

# The action that the driver itself recommends for a GPU (NVML's recovery action).

NO_ACTION = "none"
IF_AGAIN = f"if it comes again: {CALL}"
# NVIDIA GPU Memory Error Management, "Error Recovery and Response Flags"; nvml.h, nvmlDeviceGpuRecoveryAction_t.
ACTIONS = {
    "reset": (Status.FAIL, "the GPU has an error that only a reset removes", f"{RESET}; {IF_AGAIN}"),
    "reboot": (
        Status.FAIL, "an error of the GPU may have left the operating system inconsistent",
        f"reboot the machine; {IF_AGAIN}",
    ),
    "drain_p2p": (
        Status.WARN, "programs that copy between GPUs must end before the driver can recover this GPU",
        f"end the programs that use several GPUs (NCCL, NVLink); {IF_AGAIN}",
    ),
    "drain_and_reset": (
        Status.WARN, "the GPU works with a part of its memory or links out of use until a reset",
        f"start no new programs on it, let those that run end, then reset it or reboot; {IF_AGAIN}",
    ),
    "recover_imex_domain": (
        Status.FAIL, "the domain in which GPUs of several machines share memory (IMEX) must be recovered",
        f"restart nvidia-imex on all machines of the domain; {IF_AGAIN}",
    ),
    "bus_reset": (
        Status.FAIL, "the GPU answers again only after a reset of its PCIe bus",
        f"{RESTART}; {IF_AGAIN}",
    ),
}  # fmt: skip


def recovery(subject: str, gpu: GpuFacts) -> Finding | None:
    """A finding for a recovery action; None if the driver (before R565) or the record does not have it."""
    action = gpu.recovery_action
    if isinstance(action, Missing):
        return refused(subject, "recovery_action", action, NO_ACTION, what="what the driver asks for", absent=NOT_TOLD)
    if action == "none":
        return judged(subject, "recovery_action", None, NO_ACTION, action)
    shown = action.replace("_", " ")
    if action not in ACTIONS:
        why = f"the driver asks for something that gpuprep does not know: {shown:.60}"
        return judged(
            subject, "recovery_action", (Status.UNKNOWN, why, "nvidia-smi -q shows it in words"), NO_ACTION, shown
        )
    status, why, remedy = ACTIONS[action]
    reason = f"the driver asks for it ({shown}): {why}"
    return Finding(subject, "recovery_action", status, NO_ACTION, shown, reason, remedy, reboot=action == "reboot")


# ---------------------------------------------------------------- Xids

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
    what = f"{worst.what} ({last.message:.160})" if last.message else worst.what
    why = f"Xid {worst.code}{when}: {what}"
    return Finding(subject, "xids", status, "no severe Xid", shown, why, worst.remedy if status in GRAVE else "")
