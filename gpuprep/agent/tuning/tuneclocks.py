"""Clocks of one GPU: application clocks if the driver has them, else locked clocks.

Application clocks are deprecated since CUDA 13.0 and gone in 14.0. Locked clocks have no getter in NVML, so the
clocks locked since this boot are noted in a file (Locks) and read from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Optional, Tuple, Union

from gpuprep.agent.tuning.tunesettings import Device, Row, TuningSettings, shown
from gpuprep.records import ClockPair, GpuFacts, LockedClocks, Missing

# ---------------------------------------------------------------- clocks

# Chooses the clock pair of a GPU from the profile, the best pair of the model and the supported pairs.

NEAREST = 3


@dataclass(frozen=True)
class Choice:
    """`pair` to set; None without `error`: the driver's default. `error`: why the wanted pair is impossible."""

    pair: Optional[ClockPair]
    error: str = ""


def choose(wish: Union[str, ClockPair], gpu: GpuFacts, models: Dict[str, ClockPair]) -> Choice:
    if wish == "default":
        return Choice(None)
    supported = gpu.supported_clocks
    if isinstance(supported, Missing):
        return Choice(None, f"cannot read the supported clocks: {supported.reason}: {supported.detail}")
    if not supported:
        return Choice(None, "the GPU supports no clock pair")
    if isinstance(wish, ClockPair):
        if wish in supported:
            return Choice(wish)
        near = "; ".join(describe(pair) for pair in nearest(wish, supported))
        return Choice(None, f"{describe(wish)} is not supported by this GPU; nearest: {near}")
    known = models.get(gpu.pci_device_id)
    if known in supported:
        return Choice(known)
    return Choice(max(supported, key=lambda pair: (pair.memory_mhz, pair.graphics_mhz)))


def nearest(wish: ClockPair, supported: Tuple[ClockPair, ...]) -> Tuple[ClockPair, ...]:
    """The closest supported pairs: memory first, because there are only a few, far apart."""

    def distance(pair: ClockPair) -> Tuple[int, int]:
        return abs(pair.memory_mhz - wish.memory_mhz), abs(pair.graphics_mhz - wish.graphics_mhz)

    return tuple(sorted(supported, key=distance)[:NEAREST])


def describe(pair: ClockPair) -> str:
    """In nvidia-smi's order: memory, graphics."""
    return f"{pair.memory_mhz},{pair.graphics_mhz} MHz"


# ---------------------------------------------------------------- tuneclocks

NO_APPLICATION_CLOCKS = ("deprecated", "not_supported", "function_not_found")
NOT_LOCKED = "not locked"


@dataclass
class Locks:
    """The clocks that were locked since boot, by GPU, kept in a file."""

    boot_id: str
    by_uuid: Dict[str, LockedClocks]
    changed: bool = False

    def put(self, uuid: str, lock: Optional[LockedClocks]) -> None:
        if self.by_uuid.get(uuid) == lock:
            return
        self.changed = True
        if lock is None:
            del self.by_uuid[uuid]
        else:
            self.by_uuid[uuid] = lock


def tune_clocks(gpu: Device, before: GpuFacts, settings: TuningSettings, locks: Locks, *, apply: bool) -> Row:
    choice = choose(settings.clocks, before, settings.models)
    if choice.error:
        was = shown_clocks(before, locks)
        return Row(gpu.index, before.uuid, "clocks", _wish(settings), was, was, False, False, error=choice.error)
    if _has_application_clocks(before):
        row = _by_application(gpu, before, choice.pair, locks, apply)
        if row is not None:
            return row
    return _by_locking(gpu, before, choice.pair, locks, apply)


def _has_application_clocks(facts: GpuFacts) -> bool:
    reading = facts.application_clocks
    return not isinstance(reading, Missing) or reading.reason not in NO_APPLICATION_CLOCKS


def _by_application(
    gpu: Device, before: GpuFacts, pair: Optional[ClockPair], locks: Locks, apply: bool
) -> Optional[Row]:
    """The row for application clocks; None if this driver can read but no longer set them."""
    wanted = before.default_application_clocks if pair is None else pair
    was = now = before.application_clocks
    error = ""
    if isinstance(wanted, Missing):
        error = f"the GPU does not report its default clocks: {shown(wanted)}"
    elif apply:
        if before.uuid in locks.by_uuid:  # locked clocks of an earlier setting would override application clocks
            error = _unlock(gpu, before, locks)
        if not error and was != wanted:
            refused = gpu.reset_application_clocks() if pair is None else gpu.set_application_clocks(wanted)
            if refused is not None and refused.reason in NO_APPLICATION_CLOCKS:
                return None
            error = shown(refused)
            now = gpu.facts().application_clocks
    return Row(
        gpu.index,
        before.uuid,
        "clocks",
        _text(wanted),
        _text(was),
        _text(now),
        now != was,
        not error and now == wanted and before.uuid not in locks.by_uuid,
        "application",
        error,
    )


def _by_locking(gpu: Device, before: GpuFacts, pair: Optional[ClockPair], locks: Locks, apply: bool) -> Row:
    was = locks.by_uuid.get(before.uuid)
    error = ""
    if apply and pair is None and was is not None:
        error = _unlock(gpu, before, locks)
    elif apply and pair is not None:
        # Locked again even if noted as locked: a reload of the driver since the boot has unlocked it.
        error = _lock(gpu, before, pair, locks)
    now = locks.by_uuid.get(before.uuid)
    return Row(
        gpu.index,
        before.uuid,
        "clocks",
        NOT_LOCKED if pair is None else describe(pair),
        _lock_text(was),
        _lock_text(now),
        now != was,
        not error and _fits(now, pair),
        "locked",
        error,
    )


def _lock(gpu: Device, before: GpuFacts, pair: ClockPair, locks: Locks) -> str:
    refused = gpu.lock_graphics_clock(pair.graphics_mhz)
    if refused is not None:
        return shown(refused)
    memory: Optional[int] = pair.memory_mhz
    refused = gpu.lock_memory_clock(pair.memory_mhz)
    if refused is not None:
        if refused.reason not in NO_APPLICATION_CLOCKS:
            return shown(refused)
        memory = None  # Volta and Turing cannot lock the memory clock
    locks.put(before.uuid, LockedClocks(before.uuid, memory, pair.graphics_mhz, locks.boot_id))
    return ""


def _unlock(gpu: Device, before: GpuFacts, locks: Locks) -> str:
    lock = locks.by_uuid[before.uuid]
    refused = gpu.unlock_graphics_clock()
    if refused is None and lock.memory_mhz is not None:
        refused = gpu.unlock_memory_clock()
    if refused is None:
        locks.put(before.uuid, None)
    return shown(refused)


def _fits(lock: Optional[LockedClocks], pair: Optional[ClockPair]) -> bool:
    if lock is None or pair is None:
        return lock is None and pair is None
    return lock.graphics_mhz == pair.graphics_mhz and lock.memory_mhz in (None, pair.memory_mhz)


def shown_clocks(facts: GpuFacts, locks: Locks) -> str:
    if _has_application_clocks(facts):
        return _text(facts.application_clocks)
    return _lock_text(locks.by_uuid.get(facts.uuid))


def _text(reading: "ClockPair | Missing") -> str:
    return shown(reading) if isinstance(reading, Missing) else describe(reading)


def _lock_text(lock: Optional[LockedClocks]) -> str:
    if lock is None:
        return NOT_LOCKED
    if lock.memory_mhz is None:
        return f"graphics {lock.graphics_mhz} MHz"
    return describe(ClockPair(lock.memory_mhz, lock.graphics_mhz))


def _wish(settings: TuningSettings) -> str:
    return settings.clocks if isinstance(settings.clocks, str) else describe(settings.clocks)
