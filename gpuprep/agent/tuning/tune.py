"""`gpuprep-agent tune`: sets every GPU to the settings of tuning.json, or compares them.

Runs at every boot after nvidia-persistenced: NVML forgets clocks, power limit and compute mode with the driver.
If a GPU refuses a setting, its other settings and the other GPUs are still set. Every setting is read back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import List, Sequence, Tuple, Union

from gpuprep.agent.facts.managed import LOCKED_CLOCKS, locked_clocks_document, read_locked_clocks
from gpuprep.agent.facts.osfacts import boot_id
from gpuprep.agent.gpu.nvml import Nvml
from gpuprep.agent.programs import atomicfile
from gpuprep.agent.tuning.tuneclocks import Locks, tune_clocks
from gpuprep.agent.tuning.tunemig import tune_mig
from gpuprep.agent.tuning.tunesettings import Device, Row, TuningSettings, load, shown
from gpuprep.records import Bool, GpuFacts, Missing, to_json_value

PERSISTENCED_SOCKET = Path("/run/nvidia-persistenced/socket")
WATTS_TOLERANCE = 0.5  # a limit set in milliwatts may read back rounded
UNABLE = ("not_supported", "function_not_found", "deprecated")


@dataclass(frozen=True)
class Report:
    """The output of `tune`. `error` says why no GPU could be read at all."""

    action: str
    boot_id: str
    rows: Tuple[Row, ...]
    error: str = ""

    @property
    def exit_code(self) -> int:
        if self.error:
            return 1
        accepted = (row.as_wanted or (self.action == "apply" and row.reboot_needed) for row in self.rows)
        return 0 if all(accepted) else 1


def main(action: str, settings_path: str) -> int:
    settings = load(Path(settings_path))
    with Nvml() as nvml:
        gpus = nvml.gpus()
        report = tune(action, gpus, settings, LOCKED_CLOCKS)
    document = to_json_value(report)
    print(json.dumps(document, indent=1))
    return report.exit_code


def tune(action: str, gpus: Union[Sequence[Device], Missing], settings: TuningSettings, locks_file: Path) -> Report:
    """Apply or check `settings` on every one of `gpus`; locked clocks are remembered in `locks_file`."""
    boot = boot_id()
    if isinstance(gpus, Missing):
        return Report(action, boot, (), f"NVML gives no GPU: {gpus.reason}: {gpus.detail}")
    if not gpus:
        return Report(action, boot, (), "NVML sees no GPU")
    locks = Locks(boot, {lock.uuid: lock for lock in read_locked_clocks(locks_file) if lock.boot_id == boot})
    rows: List[Row] = []
    for gpu in gpus:
        rows += _tune_one(gpu, settings, locks, apply=action == "apply")
    if action == "apply" and locks.changed:
        # Closed to other users: the lock of provisioning is in this folder, too (remote/lockprogram.py).
        locks_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomicfile.write(locks_file, locked_clocks_document(tuple(locks.by_uuid.values())))
    return Report(action, boot, tuple(rows))


def _tune_one(gpu: Device, settings: TuningSettings, locks: Locks, *, apply: bool) -> List[Row]:
    before = gpu.facts()
    if not before.uuid:
        return [Row(gpu.index, "", "gpu", "present", "lost", "lost", False, False, error=_why_lost(before))]
    rows = []
    if settings.mig != "keep":  # before the rest: a change of the mode can reset the GPU
        rows += tune_mig(gpu, before, settings.mig, apply=apply)
        before = gpu.facts() if any(row.changed for row in rows) else before
    rows.append(_persistence(gpu, before, settings.persistence, apply))
    if settings.ecc != "keep":
        rows.append(_ecc(gpu, before, settings.ecc == "enabled", apply))
    rows.append(_compute_mode(gpu, before, settings.compute_mode, apply))
    rows.append(_power_limit(gpu, before, settings.power_limit_watts, apply))
    rows.append(tune_clocks(gpu, before, settings, locks, apply=apply))
    return rows


def _why_lost(facts: GpuFacts) -> str:
    reading = facts.memory_total_mib
    return f"{reading.reason}: {reading.detail}" if isinstance(reading, Missing) else "the GPU has no UUID"


def _persistence(gpu: Device, before: GpuFacts, wanted: bool, apply: bool) -> Row:
    """Persistence mode by nvidia-persistenced; by NVML's own legacy switch if the daemon does not run."""
    was = now = before.persistence_mode
    how = "daemon" if PERSISTENCED_SOCKET.exists() else "legacy"
    error = ""
    if apply and was != wanted:
        error = shown(gpu.set_persistence(wanted))
        now = gpu.facts().persistence_mode
    return Row(
        gpu.index, before.uuid, "persistence", _on(wanted), _on(was), _on(now), now != was, now == wanted, how, error
    )


def _ecc(gpu: Device, before: GpuFacts, wanted: bool, apply: bool) -> Row:
    """ECC mode: sets the pending mode; the current mode changes at the next reboot."""
    current, pending = before.ecc_current, before.ecc_pending
    if isinstance(current, Missing):
        # a GPU without ECC is as good as one with ECC off
        without = current.reason == "not_supported" and not wanted
        error = "" if without else f"the GPU does not report its ECC mode: {shown(current)}"
        return Row(gpu.index, before.uuid, "ecc", _on(wanted), _on(current), _on(current), False, without, "", error)
    error = ""
    if apply and pending != wanted:
        error = shown(gpu.set_ecc(wanted))
        pending = gpu.facts().ecc_pending
    return Row(
        gpu.index,
        before.uuid,
        "ecc",
        _on(wanted),
        _on(current),
        _on(pending),
        pending != before.ecc_pending,
        current == wanted and pending == wanted,
        error=error,
        reboot_needed=not error and pending == wanted and current != wanted,
    )


def _compute_mode(gpu: Device, before: GpuFacts, wanted: str, apply: bool) -> Row:
    was = now = before.compute_mode
    error = ""
    if apply and was != wanted:
        error = shown(gpu.set_compute_mode(wanted))
        now = gpu.facts().compute_mode
    return Row(
        gpu.index, before.uuid, "compute_mode", wanted, shown(was), shown(now), now != was, now == wanted, "", error
    )


def _power_limit(gpu: Device, before: GpuFacts, wish: Union[str, int], apply: bool) -> Row:
    power = before.power
    was = now = power.current_watts
    wanted = power.default_watts if isinstance(wish, str) else float(wish)
    error = ""
    if isinstance(wanted, Missing):
        # without power management every value is the default
        fine = wanted.reason in UNABLE and isinstance(was, Missing)
        error = "" if fine else f"the GPU does not report its default limit: {shown(wanted)}"
        text = _watts(was)
        return Row(gpu.index, before.uuid, "power_limit", "default", text, text, False, fine, "", error)
    low, high = power.min_watts, power.max_watts
    if not isinstance(low, Missing) and not isinstance(high, Missing) and not low <= wanted <= high:
        error = f"{wanted:g} W is outside of what this GPU allows: {low:g} to {high:g} W"
    elif apply and not _same_watts(was, wanted):
        error = shown(gpu.set_power_limit(wanted))
        now = gpu.facts().power.current_watts
    return Row(
        gpu.index,
        before.uuid,
        "power_limit",
        _watts(wanted),
        _watts(was),
        _watts(now),
        now != was,
        _same_watts(now, wanted),
        error=error,
    )


def _same_watts(reading: Union[float, Missing], wanted: float) -> bool:
    return not isinstance(reading, Missing) and abs(reading - wanted) <= WATTS_TOLERANCE


def _watts(reading: Union[float, Missing]) -> str:
    return shown(reading) if isinstance(reading, Missing) else f"{reading:g} W"


def _on(reading: Bool) -> str:
    return shown(reading) if isinstance(reading, Missing) else "enabled" if reading else "disabled"
