"""Persistence, clocks, power, ECC, MIG, compute mode: are they set on each GPU now, and at the next boot?"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

from gpuprep.agent.facts.managed import PERSISTENCED, TUNE
from gpuprep.agent.host_paths import PERSISTENCE_DROP_IN, TUNE_RULE, TUNING
from gpuprep.agent.tuning.tunemig import shown_instances, shown_wish
from gpuprep.checks import byhand
from gpuprep.checks.common import check, skip, small_file, unknown, why_missing
from gpuprep.desired import host_rules
from gpuprep.desired.state import Wanted, tuning_document
from gpuprep.records import ClockPair, Finding, GpuFacts, LockedClocks, Missing, Snapshot, Status

ROLE = "gpu_tuning"
NOT_FOUND = "not-found"  # what the agent reports for a unit that systemd does not know
STARTS_AT_BOOT = ("enabled", "static")
ADDED = {"mig": "keep"}  # what a tuning.json of an older gpuprep means, which lacks the key

# What a setting that differs from the profile means for the user.
UNLOADS = "the driver unloads between jobs; each start waits and settings are lost"
STAYS = "the driver stays loaded, and the idle GPU draws more power"
ECC_ON = "errors of the memory are neither noticed nor corrected"
ECC_OFF = "it costs memory and speed that the profile wants to have"
OTHER_MODE = "programs share the GPU in another way than the profile wants"
MODES = {
    "default": "several programs can use the GPU at the same time",
    "prohibited": "no program can use the GPU",
    "exclusive_process": "only one program at a time can use the GPU; a second one fails",
    "exclusive_thread": "only one program at a time can use the GPU; a second one fails",
}


def findings(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    tuning_findings = [_settings(wanted, snapshot)]
    if wanted.tuning.persistence:
        tuning_findings += _unit(
            snapshot, PERSISTENCED, "persistence mode is lost at the next boot", "nothing keeps the driver loaded"
        )
    tuning_findings += _unit(
        snapshot, TUNE, "the clocks are back at the default after the next boot", "the settings were not applied"
    )
    if not _never_set_up(snapshot):
        tuning_findings += [_daemon_options(wanted, snapshot), _udev_rule(snapshot)]
    return tuning_findings + gpus(wanted, snapshot)


def _never_set_up(snapshot: Snapshot) -> bool:
    unit = snapshot.units.get(TUNE)
    return unit is not None and unit.enabled == NOT_FOUND


def _settings(wanted: Wanted, snapshot: Snapshot) -> Finding:
    text = small_file(snapshot, TUNING)
    expected = tuning_document(wanted)
    differing = _differences(text, expected) if isinstance(text, str) else [f"{TUNING} is absent"]
    shown = "as wanted" if not differing else "; ".join(differing)
    why = f"the next boot would set other clocks, power or modes: {'; '.join(differing)}"
    return check("gpuprep-tune", "settings", text, not differing, expected="as wanted", shown=shown, why=why, role=ROLE)


def _differences(text: str, expected: dict[str, object]) -> list[str]:
    try:
        document = json.loads(text)
    except ValueError:
        return [f"{TUNING} is not JSON"]
    if not isinstance(document, dict):
        return [f"{TUNING} is not a JSON object"]
    return [
        f"{key} is {json.dumps(document.get(key, ADDED.get(key)))}, wanted {json.dumps(value)}"
        for key, value in expected.items()
        if document.get(key, ADDED.get(key)) != value
    ]


def _unit(snapshot: Snapshot, unit: str, disabled: str, stopped: str) -> list[Finding]:
    subject = unit.removesuffix(".service")
    facts = snapshot.units.get(unit)
    if facts is None:
        reading = Missing("command_failed", f"systemctl gave no answer about {unit}")
        return [unknown(subject, "unit", reading, expected="enabled, active", role=ROLE)]
    if facts.enabled == NOT_FOUND:
        why = f"{unit} is not installed: {disabled}"
        return [check(subject, "enabled", NOT_FOUND, False, expected="enabled", why=why, role=ROLE)]
    enabled, active = facts.enabled in STARTS_AT_BOOT, facts.active == "active"
    why = f"{unit} is {facts.enabled}: {disabled}"
    remedy = f"`gpuprep provision HOST --profile PROFILE --only tuning`; `systemctl status {unit}` says why it stopped"
    starts = check(subject, "enabled", facts.enabled, enabled, expected="enabled", why=why, role=ROLE)
    why, state = f"{unit} is {facts.active}: {stopped}", facts.active
    return [
        starts, check(subject, "active", state, active, expected="active", why=why, role=ROLE, remedy=remedy)
    ]  # fmt: skip


def _daemon_options(wanted: Wanted, snapshot: Snapshot) -> Finding:
    """Whether the daemon's unit lacks --no-persistence-mode: with it, the mode stays off although the daemon runs."""
    text = small_file(snapshot, PERSISTENCE_DROP_IN)
    on = isinstance(text, str) and "ExecStart=/" in text and "--no-persistence-mode" not in text
    unit = snapshot.units.get(PERSISTENCED)
    place, want = PERSISTENCE_DROP_IN, wanted.tuning.persistence
    if on == want and unit is not None and unit.command:  # all files of the unit read together
        on, place = "--no-persistence-mode" not in unit.command, unit.files[-1] if unit.files else PERSISTENCE_DROP_IN
    others = place != PERSISTENCE_DROP_IN
    return check(
        PERSISTENCED.removesuffix(".service"),
        "mode_at_boot",
        text,
        isinstance(text, str) and on == want,
        expected="on" if want else "off",
        shown=f"{PERSISTENCE_DROP_IN} is absent" if text is None else "on" if on else "off",
        why=f"{PERSISTENCED} is not set to turn persistence mode {'on' if want else 'off'} ({place})",
        role="" if others else ROLE,
        remedy=byhand.drop_in_aside(snapshot, [place]) if others else "",
    )


def _udev_rule(snapshot: Snapshot) -> Finding:
    text = small_file(snapshot, TUNE_RULE)
    ok = isinstance(text, str) and "gpuprep-tune" in text
    shown = "applied again" if isinstance(text, str) and "gpuprep-tune" in text else f"{TUNE_RULE} absent"
    why = "the clocks are back at the default after a reload of the driver"
    return check("gpuprep-tune", "driver_reload", text, ok, expected="applied again", shown=shown, why=why, role=ROLE)


# ---------------------------------------------------------------- each GPU


def gpus(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """Findings on the settings of each GPU; one per GPU if NVML does not answer, because five would be the same."""
    devices = host_rules.nvidia_gpus(snapshot)
    if isinstance(snapshot.gpus, Missing):
        reason = f"persistence, clocks, power, ECC and compute mode could not be read: {why_missing(snapshot.gpus)}"
        remedy = "`gpuprep provision HOST --profile PROFILE --only driver,tuning`"
        actual = f"not readable: {snapshot.gpus.reason}"
        return [
            Finding(f"gpu {i}", "settings", Status.UNKNOWN, "as wanted", actual, reason, remedy, ROLE)
            for i in range(len(devices))
        ]
    ok = len(snapshot.gpus) == len(devices)
    why = (
        f"the PCI bus has {len(devices)} NVIDIA GPUs and the driver shows {len(snapshot.gpus)}: "
        "programs cannot use the others"
    )
    remedy = "see `dmesg | grep -i nvrm`; if a GPU has fallen off the bus, stop the machine and start it again"
    count = check("gpus", "count", len(snapshot.gpus), ok, expected=str(len(devices)), why=why, remedy=remedy)
    return [count, *(finding for gpu in snapshot.gpus if not _lost(gpu) for finding in _gpu(wanted, snapshot, gpu))]


def _lost(gpu: GpuFacts) -> bool:
    """Whether the GPU has fallen off the bus, and so has no settings: gpu N.on_the_bus reports it (checks/health)."""
    readings = (gpu.persistence_mode, gpu.compute_mode, gpu.serial, gpu.temperature_c)
    return all(isinstance(reading, Missing) and reading.reason == "gpu_is_lost" for reading in readings)


def _gpu(wanted: Wanted, snapshot: Snapshot, gpu: GpuFacts) -> list[Finding]:
    gpu_findings = [_persistence(wanted, gpu), clocks(wanted, snapshot, gpu), _power(wanted, gpu)]
    if wanted.tuning.ecc != "keep":
        gpu_findings.append(_ecc(wanted, gpu))
    else:
        gpu_findings.append(_ecc_kept(gpu))
    if wanted.tuning.mig != "keep":
        gpu_findings += _mig(wanted.tuning.mig, gpu)
    return [*gpu_findings, _compute_mode(wanted, gpu)]


def _persistence(wanted: Wanted, gpu: GpuFacts) -> Finding:
    mode = gpu.persistence_mode
    shown, want = "on" if mode is True else "off", wanted.tuning.persistence
    expected = "on" if want else "off"
    why = f"persistence mode of gpu {gpu.index} is {shown}: {UNLOADS if want else STAYS}"
    return check(
        f"gpu {gpu.index}", "persistence_mode", mode, mode == want, expected=expected, shown=shown, why=why, role=ROLE
    )


def _power(wanted: Wanted, gpu: GpuFacts) -> Finding:
    subject, limits, wish = f"gpu {gpu.index}", gpu.power, wanted.tuning.power_limit_watts
    current, usual = limits.current_watts, limits.default_watts
    target = usual if isinstance(wish, str) else float(wish)
    if isinstance(current, Missing) and current.reason == "not_supported" and wish == "default":
        return skip(subject, "power_limit", expected="default", actual="none", reason=f"{gpu.name} has no power limit")
    if isinstance(current, Missing):
        return unknown(subject, "power_limit", current, expected=f"{wish}", role=ROLE)
    if isinstance(target, Missing):
        return unknown(subject, "power_limit", target, expected=f"{wish}", role=ROLE)
    ok = abs(current - target) < 1
    expected = f"{target:g} W"
    why = f"the power limit of gpu {gpu.index} is {current:g} W instead of {target:g} W: " + (
        "under load it is slower" if current < target else "under load it draws more than the profile allows"
    )
    return check(subject, "power_limit", current, ok, expected=expected, shown=f"{current:g} W", why=why, role=ROLE)


def _ecc(wanted: Wanted, gpu: GpuFacts) -> Finding:
    wish = wanted.tuning.ecc
    want = wish == "enabled"
    for reading in (gpu.ecc_current, gpu.ecc_pending):
        if isinstance(reading, Missing):
            return unknown(f"gpu {gpu.index}", "ecc", reading, expected=wish, role=ROLE)
    shown = "enabled" if gpu.ecc_current else "disabled"
    waits = gpu.ecc_pending == want and gpu.ecc_current != want
    ecc_state = f"is {shown}"
    if gpu.ecc_current == want:
        ecc_state = f"becomes {'enabled' if gpu.ecc_pending else 'disabled'} at the next boot"
    shown += ", changes at the next boot" if gpu.ecc_pending != gpu.ecc_current else ""
    why = f"ECC of gpu {gpu.index} {ecc_state}: {ECC_ON if want else ECC_OFF}{'; a reboot changes it' if waits else ''}"
    subject, current, ok = f"gpu {gpu.index}", gpu.ecc_current, gpu.ecc_current == want and gpu.ecc_pending == want
    return check(subject, "ecc", current, ok, expected=wish, shown=shown, why=why, role=ROLE, reboot=waits)


def _ecc_kept(gpu: GpuFacts) -> Finding:
    """A finding if somebody changed the pending ECC mode although the profile leaves it alone."""
    words, expected = {True: "enabled", False: "disabled"}, "no change waiting"
    current, pending = gpu.ecc_current, gpu.ecc_pending
    if isinstance(current, Missing):
        return _ecc_unread(gpu, current, expected)
    if isinstance(pending, Missing):
        return _ecc_unread(gpu, pending, expected)
    if current == pending:
        return Finding(f"gpu {gpu.index}", "ecc", Status.PASS, expected, words[current])
    reason = f"ECC of gpu {gpu.index} is {words[current]} and becomes {words[pending]} at the next reboot"
    remedy = f"undo it: `sudo nvidia-smi -i {gpu.index} -e {int(current)}`; or reboot when it suits you"
    actual = f"{words[current]}, {words[pending]} after a reboot"
    return Finding(f"gpu {gpu.index}", "ecc", Status.WARN, expected, actual, reason, remedy, reboot=True)


def _ecc_unread(gpu: GpuFacts, reading: Missing, expected: str) -> Finding:
    if reading.reason == "not_supported":
        return skip(f"gpu {gpu.index}", "ecc", expected=expected, actual="none", reason=f"{gpu.name} has no ECC")
    remedy = f"`nvidia-smi -i {gpu.index} -q -d ECC` says more; a reset or a reboot often clears an error there"
    return unknown(f"gpu {gpu.index}", "ecc", reading, expected=expected, remedy=remedy)


def _mig(wish: str | Mapping[str, int], gpu: GpuFacts) -> list[Finding]:
    """The mode; and where it is on as wanted, the instances."""
    subject, want = f"gpu {gpu.index}", wish != "disabled"
    expected, current, pending = "on" if want else "off", gpu.mig_current, gpu.mig_pending
    for reading in (current, pending):
        if isinstance(reading, Missing):
            if reading.reason == "not_supported" and not want:
                return [skip(subject, "mig", expected=expected, actual="none", reason=f"{gpu.name} has no MIG")]
            return [unknown(subject, "mig", reading, expected=expected, role=ROLE)]
    ok, waits = current == want and pending == want, pending == want and current != want
    shown = "on" if current else "off"
    if current != pending:
        shown += f", {'on' if pending else 'off'} after a reset of the GPU or a reboot"
    why = f"MIG of {subject} is {shown}: " + (
        "programs find the whole GPU and not the instances that the profile wants"
        if want
        else "programs see instances of it, and none has its whole speed"
    )
    mode = check(subject, "mig", current, ok, expected=expected, shown=shown, why=why, role=ROLE, reboot=waits)
    if not isinstance(wish, Mapping) or not ok:
        return [mode]
    if isinstance(gpu.mig_devices, Missing):
        return [mode, unknown(subject, "mig_instances", gpu.mig_devices, expected=shown_wish(wish), role=ROLE)]
    there = [device.profile for device in gpu.mig_devices]
    actual, expected, same = shown_instances(there), shown_wish(wish), Counter(there) == Counter(wish)
    why = f"{subject} is cut into {actual}, not into {expected}: jobs that ask for an instance do not find it"
    return [mode, check(subject, "mig_instances", there, same, expected=expected, shown=actual, why=why, role=ROLE)]


def _compute_mode(wanted: Wanted, gpu: GpuFacts) -> Finding:
    ok = gpu.compute_mode == wanted.tuning.compute_mode
    expected = wanted.tuning.compute_mode
    why = f"the compute mode of gpu {gpu.index} is {gpu.compute_mode}: {MODES.get(str(gpu.compute_mode), OTHER_MODE)}"
    return check(f"gpu {gpu.index}", "compute_mode", gpu.compute_mode, ok, expected=expected, why=why, role=ROLE)


# ---------------------------------------------------------------- clocks

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


def clocks(wanted: Wanted, snapshot: Snapshot, gpu: GpuFacts) -> Finding:
    subject, expected = f"gpu {gpu.index}", wanted_pair(wanted, gpu)
    if isinstance(expected, Missing):
        return unknown(subject, "clocks", expected, expected="max", role=ROLE, what=f"the highest clocks of {subject}")
    locked = _locked_clocks(snapshot, gpu)
    if expected is None:
        return _default_clocks(gpu, locked)
    current = gpu.application_clocks
    if not isinstance(current, Missing):
        ok, wish, shown = current == expected, f"application {mhz(expected)}", f"application {mhz(current)}"
        why = f"the application clocks of {subject} are {mhz(current)} instead of {mhz(expected)}:"
        why += f" {_clocks_effect(current, expected)}"
        return check(subject, "clocks", current, ok, expected=wish, shown=shown, why=why, role=ROLE)
    if current.reason not in NO_APPLICATION_CLOCKS:
        return unknown(subject, "clocks", current, expected=mhz(expected), role=ROLE)
    ok = locked is not None and _same_clocks(locked, expected)
    shown = f"locked {_shown_clocks(locked)}" if locked else "not locked since the last boot"
    why = f"{subject} has no application clocks, and its clocks are " + (
        f"locked at {_shown_clocks(locked)}, not {mhz(expected)}: its speed is not the profile's"
        if locked
        else "not locked since the last boot: its speed changes from job to job"
    )
    return check(subject, "clocks", locked, ok, expected=f"locked {mhz(expected)}", shown=shown, why=why, role=ROLE)


def _default_clocks(gpu: GpuFacts, locked: LockedClocks | None) -> Finding:
    subject = f"gpu {gpu.index}"
    if locked is not None:
        shown = f"locked {_shown_clocks(locked)}"
        why = f"the clocks of {subject} are locked at {_shown_clocks(locked)}: they do not follow the load"
        return check(subject, "clocks", shown, False, expected="default", why=why, role=ROLE)
    current, usual = gpu.application_clocks, gpu.default_application_clocks
    if isinstance(current, Missing):
        return _no_default_clocks(subject, current)
    if isinstance(usual, Missing):
        return _no_default_clocks(subject, usual)
    why = (
        f"the application clocks of {subject} are {mhz(current)} instead of the default {mhz(usual)}:"
        f" {_clocks_effect(current, usual)}"
    )
    expected = f"default {mhz(usual)}"
    return check(
        subject, "clocks", current, current == usual, expected=expected, shown=mhz(current), why=why, role=ROLE
    )


def _no_default_clocks(subject: str, reading: Missing) -> Finding:
    if reading.reason not in NO_APPLICATION_CLOCKS:
        return unknown(subject, "clocks", reading, expected="default", role=ROLE)
    reason = "this driver has no application clocks, and gpuprep locked none"
    return skip(subject, "clocks", expected="default", actual="not set", reason=reason, role=ROLE)


def _clocks_effect(current: ClockPair, expected: ClockPair) -> str:
    if (current.graphics_mhz, current.memory_mhz) < (expected.graphics_mhz, expected.memory_mhz):
        return "every job is slower"
    return "it draws more power and gets hotter than the profile allows"


def _locked_clocks(snapshot: Snapshot, gpu: GpuFacts) -> LockedClocks | None:
    """The locks of this GPU; None if they were made in an earlier boot, because a reboot ends them."""
    mine = [
        lock for lock in snapshot.locked_clocks if lock.uuid == gpu.uuid and lock.boot_id == snapshot.kernel.boot_id
    ]
    return mine[-1] if mine else None


def _same_clocks(locked: LockedClocks, expected: ClockPair) -> bool:
    """Whether the locks are as expected. Before Ampere, only the graphics clock can be locked and is compared."""
    return locked.graphics_mhz == expected.graphics_mhz and locked.memory_mhz in (None, expected.memory_mhz)


def _shown_clocks(locked: LockedClocks) -> str:
    return f"{locked.memory_mhz if locked.memory_mhz is not None else 'free'},{locked.graphics_mhz} MHz"


def mhz(pair: ClockPair) -> str:
    return f"{pair.memory_mhz},{pair.graphics_mhz} MHz"
