"""Are two names one host? By SSH host key, machine id, hardware and GPU UUIDs.

    of(snapshot, proven)      the identity that a host reports, and the host key that it proved
    same_host(known, now)     whether two names are the same host
    not_merged(known, now)    why they are not, although the host reports the same identity; "" if it does not
    change(known, now)        how the host behind one name has changed

All readings come from the host and may be false. It cannot forge the SSH host key with which it answered, because it
proved that it has the private key. So two names are one host only if each answered with a key that belongs to both, and
a part of the hardware is the same. A machine id alone may come from an image: every clone has it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuprep.records import IdentityFacts, Missing, Snapshot, Source

DIGEST = re.compile(r"[0-9a-f]{32}")
KEY = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
UUID = re.compile(r"[A-Za-z]{3,8}-[0-9A-Za-z-]{1,64}")
MOST = 64  # GPUs, keys: more is no machine

REINSTALLED = "reinstalled"
ANOTHER = "another"


@dataclass(frozen=True)
class Identity:
    """What identifies a host. "" and an empty set: not known."""

    machine: str = ""  # digest of its machine id
    hardware: str = ""
    gpus: frozenset[str] = frozenset()  # UUIDs
    keys: frozenset[str] = frozenset()  # SSH host keys that it says are its own
    proven: str = ""  # the host key with which it answered; "": this computer itself, without SSH
    local: bool = False
    simulated: bool = False

    @property
    def is_known(self) -> bool:
        return bool(self.machine or self.hardware or self.gpus) and bool(self.proven or self.local)


def of(snapshot: Snapshot, proven: str = "", *, local: bool = False) -> Identity:
    """The identity in a snapshot. Readings in an unexpected form count as not known."""
    facts = snapshot.identity
    identity = IdentityFacts(None, None) if isinstance(facts, Missing) else facts
    gpus = () if isinstance(snapshot.gpus, Missing) else snapshot.gpus[:MOST]
    return Identity(
        machine=_fitting(DIGEST, identity.machine_id),
        hardware=_fitting(DIGEST, identity.hardware),
        gpus=frozenset(filter(None, (_fitting(UUID, gpu.uuid) for gpu in gpus))),
        keys=frozenset(filter(None, (_fitting(KEY, key) for key in identity.ssh_host_keys[:MOST]))),
        proven=_fitting(KEY, proven),
        local=local,
        simulated=snapshot.source is Source.SIMULATED,
    )


def same_host(known: Identity, now: Identity) -> bool:
    """Whether the proven keys are one host's, no hardware differs, and a GPU, or machine id and hardware, are equal."""
    if known.simulated != now.simulated or not _is_proven(known, now) or _differ(known.hardware, now.hardware):
        return False
    return bool(known.gpus & now.gpus) or (_equal(known.machine, now.machine) and _equal(known.hardware, now.hardware))


def not_merged(known: Identity, now: Identity) -> str:
    """What the host reports that belongs to another host, if they are not the same; "" for nothing."""
    if same_host(known, now) or known.simulated != now.simulated:
        return ""
    if known.gpus & now.gpus:
        return "shows the same GPU UUIDs, but " + _unlike(known, now)
    if _equal(known.machine, now.machine):
        return "has the same machine id, as a clone of its image has, but " + _unlike(known, now)
    return ""


def change(known: Identity, now: Identity) -> str:
    """REINSTALLED, ANOTHER or "" for two identities under one name. Swapped GPUs are no change."""
    swapped = bool(known.gpus and now.gpus) and not known.gpus & now.gpus
    machine, hardware = _differ(known.machine, now.machine), _differ(known.hardware, now.hardware)
    if machine and (known.gpus & now.gpus or _equal(known.hardware, now.hardware)):
        return REINSTALLED
    return ANOTHER if machine + hardware + swapped >= 2 else ""


def _is_proven(known: Identity, now: Identity) -> bool:
    """Whether both proved the same key, or each lists the key that the other proved: a claim alone proves nothing."""
    if now.local or known.local:
        mine, other = (now, known) if now.local else (known, now)
        # the files of this computer itself are no claim by another host
        return bool(other.proven) and other.proven in mine.keys
    if not known.proven or not now.proven:
        return False
    return known.proven == now.proven or (now.proven in known.keys and known.proven in now.keys)


def _unlike(known: Identity, now: Identity) -> str:
    if not _is_proven(known, now):
        return "answers with another SSH host key"
    if _differ(known.hardware, now.hardware):
        return "is other hardware"
    return "has other GPUs" if known.gpus and now.gpus else "nothing of the hardware is known to be the same"


def _equal(before: str, now: str) -> bool:
    return bool(before) and before == now


def _differ(before: str, now: str) -> bool:
    return bool(before) and bool(now) and before != now


def _fitting(form: re.Pattern[str], value: object) -> str:
    return value if isinstance(value, str) and form.fullmatch(value) else ""
