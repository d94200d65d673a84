"""Does a cloud machine have the GPUs of its type? Checked on the PCI bus, so it needs no driver. Remedies are adapted:
a stop and a start give a cloud machine another computer, and its user cannot reach the fans.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from gpuprep.catalogue import Board, clouds
from gpuprep.catalogue.clouds import CloudMachine
from gpuprep.checks.common import MAKER, RENTED, RESTART, YOURS, skip, why_missing
from gpuprep.desired.host_rules import board_at, nvidia_gpus, title
from gpuprep.records import Finding, Missing, Snapshot, Status
from gpuprep.records.cloudnames import is_name

SUBJECT, PROPERTY = "gpus", "of_machine_type"
EXPECTED = "the GPUs of its type"
LOST = "what is on its local disks is lost, and the start may find no free GPU"
REPAIR = (
    "it stops the machine, often for days, and what is on its local disks is lost; only for machines of a reservation"
)
ANOTHER = re.compile(f"ask the provider(?:{MAKER})? for another(?: GPU| machine| one)?")
TYPE = "type on your own computer"


def addressed(remedy: str, snapshot: Snapshot | None) -> str:
    """The remedy in the words of the snapshot's cloud if the catalogue has them, else unchanged."""
    cloud = snapshot.cloud if snapshot else None
    if cloud is None or isinstance(cloud, Missing):
        return remedy
    name, known = clouds.name(cloud.provider), clouds.machine_of(snapshot) if snapshot else None
    instance = cloud.instance if isinstance(cloud.instance, str) else ""
    commands = clouds.restart(cloud.provider, instance)
    if not commands:
        return remedy
    typed = f"compare the name, then {TYPE}" if is_name(cloud.provider, instance) else TYPE
    last = f"show {name} this report"
    if known and known.report:
        last = f"report its computer as faulty ({REPAIR}; {typed}: {clouds.report(cloud.provider, instance)})"
    rented = f"{RESTART}: {name} gives it another computer; if that does not help, {last}"
    steps = dict.fromkeys(step for step in remedy.split("; ") if not step.startswith(YOURS))
    said = "; ".join(steps).replace(RENTED, rented)
    said = ANOTHER.sub(lambda _: last if RESTART in said else rented, said)
    said = said.replace(f"the provider{MAKER}", name).replace("the provider", name)
    return said.replace(RESTART, f"{RESTART} ({LOST}; {typed}: {commands})", 1)


def findings(snapshot: Snapshot) -> list[Finding]:
    """[] outside a cloud, and for types to which GPUs are attached one by one (Google's n1)."""
    cloud = snapshot.cloud
    if cloud is None or isinstance(cloud, Missing) or cloud.instance_type is None:
        return []
    provider = clouds.name(cloud.provider)
    if isinstance(cloud.instance_type, Missing):
        reason = f"which type of machine of {provider} this is could not be read: {why_missing(cloud.instance_type)}"
        return [skip(SUBJECT, PROPERTY, expected=EXPECTED, actual="type not known", reason=reason)]
    known = clouds.machine_of(snapshot)
    if known is None:
        reason = f"the catalogue does not say which GPUs {provider} {cloud.instance_type} has"
        return [skip(SUBJECT, PROPERTY, expected=EXPECTED, actual=cloud.instance_type, reason=reason)]
    return [_finding(snapshot, known)]


def _finding(snapshot: Snapshot, known: CloudMachine) -> Finding:
    devices = nvidia_gpus(snapshot)
    there = [board_at(snapshot, device) for device in devices]
    names = [board.name if board else title(snapshot, device) for board, device in zip(there, devices, strict=True)]
    expected = f"{known.gpus} × {known.boards[0].name} ({known.title})"
    actual = ", ".join(f"{count} × {name}" for name, count in Counter(names).items()) or "no NVIDIA GPU"
    if len(devices) < known.gpus:
        why = f"NVIDIA GPUs on the PCI bus: {len(devices)}; a machine of type {known.title} has {known.gpus}"
        remedy = f"{RESTART}, so that {known.cloud} gives another; report it to {known.cloud}"
        return Finding(SUBJECT, PROPERTY, Status.FAIL, expected, actual, why, remedy)
    if len(devices) > known.gpus or not _fit(there, known):
        why = f"the catalogue has other GPUs for {known.title}: the machine or the catalogue is wrong"
        remedy = f"look at {known.cloud}'s page of this type; if the machine is right, tell gpuprep's authors"
        return Finding(SUBJECT, PROPERTY, Status.UNKNOWN, expected, actual, why, remedy)
    return Finding(SUBJECT, PROPERTY, Status.PASS, expected, actual)


def _fit(there: Sequence[Board | None], known: CloudMachine) -> bool:
    """Whether the boards fit. Boards that cannot be distinguished share one key: "a or b"."""
    keys = {board.key for board in known.boards}
    return all(board is not None and keys.intersection(board.key.split(" or ")) for board in there)
