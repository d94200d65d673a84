"""Clocks of one GPU: application clocks if the driver has them, else the clocks that gpuprep locked this boot."""

from __future__ import annotations

from gpuprep.checks.common import check, skip, unknown
from gpuprep.desired.state import Wanted
from gpuprep.records import ClockPair, Finding, GpuFacts, LockedClocks, Missing, Snapshot

ROLE = "gpu_tuning"
NO_APPLICATION_CLOCKS = ("not_supported", "deprecated", "function_not_found")


def wanted_pair(wanted: Wanted, gpu: GpuFacts) -> ClockPair | Missing | None:
    """The wanted clock pair of this GPU; None: the driver's default."""
    if isinstance(wanted.tuning.clocks, ClockPair):
        return wanted.tuning.clocks
    if wanted.tuning.clocks == "default":
        return None
    known = next((g.catalogue_clocks for g in wanted.gpus if g.pci_device_id == gpu.pci_device_id.lower()), None)
    supported = gpu.supported_clocks
    if isinstance(supported, Missing):
        return known or supported
    if known is not None and (not supported or known in supported):
        return known
    if not supported:
        return Missing("not_supported", "the device names no supported clocks")
    return max(supported, key=lambda pair: (pair.memory_mhz, pair.graphics_mhz))


def finding(wanted: Wanted, snapshot: Snapshot, gpu: GpuFacts) -> Finding:
    subject, expected = f"gpu {gpu.index}", wanted_pair(wanted, gpu)
    if isinstance(expected, Missing):
        return unknown(subject, "clocks", expected, expected="max", role=ROLE, what=f"the highest clocks of {subject}")
    locked = _locked(snapshot, gpu)
    if expected is None:
        return _default(gpu, locked)
    current = gpu.application_clocks
    if not isinstance(current, Missing):
        return check(
            subject,
            "clocks",
            current,
            current == expected,
            expected=f"application {mhz(expected)}",
            shown=f"application {mhz(current)}",
            why=f"the application clocks of {subject} are {mhz(current)} instead of {mhz(expected)}:"
            f" {_effect(current, expected)}",
            role=ROLE,
        )
    if current.reason not in NO_APPLICATION_CLOCKS:
        return unknown(subject, "clocks", current, expected=mhz(expected), role=ROLE)
    ok = locked is not None and _same(locked, expected)
    return check(
        subject,
        "clocks",
        locked,
        ok,
        expected=f"locked {mhz(expected)}",
        shown=f"locked {_shown(locked)}" if locked else "not locked since the last boot",
        why=f"{subject} has no application clocks, and its clocks are "
        + (
            f"locked at {_shown(locked)}, not {mhz(expected)}: its speed is not the profile's"
            if locked
            else "not locked since the last boot: its speed changes from job to job"
        ),
        role=ROLE,
    )


def _default(gpu: GpuFacts, locked: LockedClocks | None) -> Finding:
    subject = f"gpu {gpu.index}"
    if locked is not None:
        shown = f"locked {_shown(locked)}"
        why = f"the clocks of {subject} are locked at {_shown(locked)}: they do not follow the load"
        return check(subject, "clocks", shown, False, expected="default", why=why, role=ROLE)
    current, usual = gpu.application_clocks, gpu.default_application_clocks
    if isinstance(current, Missing):
        return _no_default(subject, current)
    if isinstance(usual, Missing):
        return _no_default(subject, usual)
    why = (
        f"the application clocks of {subject} are {mhz(current)} instead of the default {mhz(usual)}:"
        f" {_effect(current, usual)}"
    )
    expected = f"default {mhz(usual)}"
    return check(
        subject, "clocks", current, current == usual, expected=expected, shown=mhz(current), why=why, role=ROLE
    )


def _no_default(subject: str, reading: Missing) -> Finding:
    if reading.reason not in NO_APPLICATION_CLOCKS:
        return unknown(subject, "clocks", reading, expected="default", role=ROLE)
    reason = "this driver has no application clocks, and gpuprep locked none"
    return skip(subject, "clocks", expected="default", actual="not set", reason=reason, role=ROLE)


def _effect(current: ClockPair, expected: ClockPair) -> str:
    if (current.graphics_mhz, current.memory_mhz) < (expected.graphics_mhz, expected.memory_mhz):
        return "every job is slower"
    return "it draws more power and gets hotter than the profile allows"


def _locked(snapshot: Snapshot, gpu: GpuFacts) -> LockedClocks | None:
    """The locks of this GPU; None if they were made in an earlier boot, because a reboot ends them."""
    mine = [
        lock for lock in snapshot.locked_clocks if lock.uuid == gpu.uuid and lock.boot_id == snapshot.kernel.boot_id
    ]
    return mine[-1] if mine else None


def _same(locked: LockedClocks, expected: ClockPair) -> bool:
    """Whether the locks are as expected. Before Ampere, only the graphics clock can be locked and is compared."""
    return locked.graphics_mhz == expected.graphics_mhz and locked.memory_mhz in (None, expected.memory_mhz)


def _shown(locked: LockedClocks) -> str:
    return f"{locked.memory_mhz if locked.memory_mhz is not None else 'free'},{locked.graphics_mhz} MHz"


def mhz(pair: ClockPair) -> str:
    return f"{pair.memory_mhz},{pair.graphics_mhz} MHz"
