"""MIG of one GPU: its mode, and the instances that it is cut into."""

from __future__ import annotations

from collections import Counter
from typing import FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from gpuprep.agent.gpu.mig import Instance, MigProfile
from gpuprep.agent.tuning.tunesettings import Device, Row, shown
from gpuprep.records import GpuFacts, Missing

Places = List[Tuple[MigProfile, int]]  # a profile, and the slice of memory at which an instance of it begins


def tune_mig(gpu: Device, before: GpuFacts, wish: Union[str, Mapping[str, int]], *, apply: bool) -> List[Row]:
    """Rows of the mode and, where the wish has instances and MIG is on, of the instances."""
    wanted = wish != "disabled"
    mode = _mode(gpu, before, wanted, apply)
    if not isinstance(wish, Mapping) or mode.error or mode.reboot_needed:
        return [mode]
    now = gpu.facts() if mode.changed else before
    if now.mig_current is not True:
        return [mode]
    return [mode, _instances(gpu, now, Counter(wish), apply)]


def _mode(gpu: Device, before: GpuFacts, wanted: bool, apply: bool) -> Row:
    current, pending, error = before.mig_current, before.mig_pending, ""
    if isinstance(current, Missing) or isinstance(pending, Missing):
        without = not wanted and isinstance(current, Missing) and current.reason == "not_supported"
        reading = next(one for one in (current, pending) if isinstance(one, Missing))
        text = shown(reading)
        error = "" if without else f"this GPU has no MIG: {text}"
        return Row(gpu.index, before.uuid, "mig", _on(wanted), text, text, False, without, "", error)
    was = now = _state(current, pending)
    as_wanted = current == wanted and pending == wanted
    if apply and not as_wanted:
        error = _in_use(before) or ("" if wanted else _whole_again(gpu))
        refused = None if error else gpu.set_mig(wanted)
        if refused is not None and refused.reason != "reset_required":
            error = shown(refused)
        after = gpu.facts()
        current, pending = after.mig_current, after.mig_pending
        as_wanted = current == wanted and pending == wanted
        now = _state(current, pending)
    waits = not error and pending == wanted and current != wanted
    return Row(
        gpu.index, before.uuid, "mig", _on(wanted), was, now, now != was, as_wanted, "", error, reboot_needed=waits
    )


def _instances(gpu: Device, facts: GpuFacts, wanted: Counter[str], apply: bool) -> Row:
    there, known = gpu.mig_instances(), gpu.mig_profiles()
    if isinstance(there, Missing) or isinstance(known, Missing):
        reading = next(one for one in (there, known) if isinstance(one, Missing))
        text = shown(reading)
        error = f"the instances cannot be read: {text}"
        return Row(gpu.index, facts.uuid, "mig_instances", shown_wish(wanted), text, text, False, False, "", error)
    was = now = _list(there)
    error = ""
    if apply and not _as_wanted(there, wanted):
        error = _cut(gpu, facts, there, {profile.name: profile for profile in known}, wanted)
        read = gpu.mig_instances()
        there = [] if isinstance(read, Missing) else read
        now = shown(read) if isinstance(read, Missing) else _list(there)
    fits = not error and _as_wanted(there, wanted)
    return Row(gpu.index, facts.uuid, "mig_instances", shown_wish(wanted), was, now, now != was, fits, "", error)


def _cut(
    gpu: Device, facts: GpuFacts, there: Sequence[Instance], known: Mapping[str, MigProfile], wanted: Counter[str]
) -> str:
    """Make the instances that lack. Those that are wanted stay as they are, with their work, if the rest fits beside
    them; else the GPU is cut anew. Returns why it was not done."""
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        return f"this GPU has no profile {', '.join(unknown)}; it has {_offered(known)}"
    kept, surplus = _sorted_out(there, wanted)
    lacking = [known[name] for name in (wanted - Counter(one.profile for one in kept)).elements()]
    places = placed(lacking, _slices(kept))
    if places is None:
        kept, surplus = [], list(there)
        places = placed([known[name] for name in wanted.elements()], frozenset())
    if places is None:
        return f"{shown_wish(wanted)} do not fit on this GPU together; it has {_offered(known)}"
    why_not = (_in_use(facts) or _taken_away(gpu, surplus)) if surplus else ""
    if why_not:
        return why_not
    for profile, start in places:
        refused = gpu.create_instance(profile, start)
        if refused is not None:
            return f"{profile.name} cannot be made: {shown(refused)}"
    return ""


def placed(profiles: Sequence[MigProfile], taken: FrozenSet[int]) -> Optional[Places]:
    """Where these can lie beside the slices that are taken; None where they cannot. Large ones find room first."""
    ordered = sorted(profiles, key=lambda profile: (-profile.size, profile.name))
    if any(count > profile.most for profile, count in Counter(ordered).items()):
        return None
    return _place(ordered, taken, -1)


def _place(profiles: Sequence[MigProfile], taken: FrozenSet[int], after: int) -> Optional[Places]:
    """`after`: the start of the one before, if it has the same profile; equal ones are placed from left to right."""
    if not profiles:
        return []
    first, rest = profiles[0], profiles[1:]
    for start in sorted(first.starts):
        slices = frozenset(range(start, start + first.size))
        if start <= after or slices & taken:
            continue
        others = _place(rest, taken | slices, start if rest and rest[0] == first else -1)
        if others is not None:
            return [(first, start), *others]
    return None


def _sorted_out(there: Sequence[Instance], wanted: Counter[str]) -> Tuple[List[Instance], List[Instance]]:
    """(instances that are wanted, the others)."""
    left, kept, surplus = Counter(wanted), [], []
    for instance in there:
        if instance.whole and left[instance.profile] > 0:
            left[instance.profile] -= 1
            kept.append(instance)
        else:
            surplus.append(instance)
    return kept, surplus


def _slices(instances: Sequence[Instance]) -> FrozenSet[int]:
    return frozenset(slice_ for one in instances for slice_ in range(one.start, one.start + one.size))


def _as_wanted(there: Sequence[Instance], wanted: Counter[str]) -> bool:
    return all(one.whole for one in there) and Counter(one.profile for one in there) == wanted


def _whole_again(gpu: Device) -> str:
    """Take all instances away. Returns why that failed."""
    there = gpu.mig_instances()
    if isinstance(there, Missing):
        return "" if there.reason == "not_supported" else f"the instances cannot be read: {shown(there)}"
    return _taken_away(gpu, there)


def _taken_away(gpu: Device, instances: Sequence[Instance]) -> str:
    for instance in instances:
        refused = gpu.destroy_instance(instance)
        if refused is not None:
            return f"{instance.profile} (instance {instance.id}) cannot be taken away: {shown(refused)}"
    return ""


def _in_use(facts: GpuFacts) -> str:
    """Why the mode or an instance cannot be changed now: who uses the GPU. Unread is in use."""
    if isinstance(facts.processes, Missing):
        return f"who uses the GPU cannot be read, so it stays as it is: {shown(facts.processes)}"
    users = ", ".join(f"{process.name or 'a program'} (pid {process.pid})" for process in facts.processes[:3])
    return f"in use by {users}: end it first" if users else ""


def _offered(known: Mapping[str, MigProfile]) -> str:
    return ", ".join(f"{profile.name} ({profile.most})" for profile in known.values()) or "none"


def shown_wish(wanted: Mapping[str, int]) -> str:
    """In one order: "1 x 3g.20gb, 2 x 1g.5gb"."""
    return ", ".join(f"{count} x {name}" for name, count in sorted(wanted.items(), reverse=True))


def shown_instances(profiles: Iterable[str]) -> str:
    return shown_wish(Counter(profiles)) or "none"


def _list(there: Sequence[Instance]) -> str:
    return shown_instances(one.profile if one.whole else f"{one.profile} in parts" for one in there)


def _state(current: object, pending: object) -> str:
    if isinstance(current, Missing):
        return shown(current)
    return _on(bool(current)) + ("" if current == pending else f", {_on(bool(pending))} after a reset")


def _on(mode: bool) -> str:
    return "enabled" if mode else "disabled"
