"""The action that the driver itself recommends for a GPU (NVML's recovery action)."""

from __future__ import annotations

from gpuprep.catalogue.xids import RESET
from gpuprep.checks.common import NOT_TOLD, RESTART
from gpuprep.checks.health.healthwords import (
    CALL,
    judged,
    refused,
)
from gpuprep.records import Finding, GpuFacts, Missing, Status

EXPECTED = "none"
AGAIN = f"if it comes again: {CALL}"
# NVIDIA GPU Memory Error Management, "Error Recovery and Response Flags"; nvml.h, nvmlDeviceGpuRecoveryAction_t.
ACTIONS = {
    "reset": (Status.FAIL, "the GPU has an error that only a reset removes", f"{RESET}; {AGAIN}"),
    "reboot": (
        Status.FAIL, "an error of the GPU may have left the operating system inconsistent",
        f"reboot the machine; {AGAIN}",
    ),
    "drain_p2p": (
        Status.WARN, "programs that copy between GPUs must end before the driver can recover this GPU",
        f"end the programs that use several GPUs (NCCL, NVLink); {AGAIN}",
    ),
    "drain_and_reset": (
        Status.WARN, "the GPU works with a part of its memory or links out of use until a reset",
        f"start no new programs on it, let those that run end, then reset it or reboot; {AGAIN}",
    ),
    "recover_imex_domain": (
        Status.FAIL, "the domain in which GPUs of several machines share memory (IMEX) must be recovered",
        f"restart nvidia-imex on all machines of the domain; {AGAIN}",
    ),
    "bus_reset": (
        Status.FAIL, "the GPU answers again only after a reset of its PCIe bus",
        f"{RESTART}; {AGAIN}",
    ),
}  # fmt: skip


def finding(subject: str, gpu: GpuFacts) -> Finding | None:
    """A finding for a recovery action; None if the driver (before R565) or the record does not have it."""
    action = gpu.recovery_action
    if isinstance(action, Missing):
        return refused(subject, "recovery_action", action, EXPECTED, what="what the driver asks for", absent=NOT_TOLD)
    if action == "none":
        return judged(subject, "recovery_action", None, EXPECTED, action)
    shown = action.replace("_", " ")
    if action not in ACTIONS:
        why = f"the driver asks for something that gpuprep does not know: {shown:.60}"
        return judged(
            subject, "recovery_action", (Status.UNKNOWN, why, "nvidia-smi -q shows it in words"), EXPECTED, shown
        )
    status, why, remedy = ACTIONS[action]
    reason = f"the driver asks for it ({shown}): {why}"
    return Finding(subject, "recovery_action", status, EXPECTED, shown, reason, remedy, reboot=action == "reboot")
