"""Which machine is this? Its machine id, hardware and SSH host keys, as digests.

machine-id(5): the id "should be considered confidential"; an application shows a keyed digest of it. Serial numbers may
be read by root alone, and records are read by others. A digest is as good for telling machines apart.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from pathlib import Path
from typing import List, Tuple

from gpuprep.agent import host_paths
from gpuprep.agent.programs.run import read_text
from gpuprep.records import IdentityFacts, OptStr
from gpuprep.untrusted.limits import file_text

MACHINE_ID = Path("/etc/machine-id")
DMI = Path(host_paths.DMI)
SSH = Path("/etc/ssh")
KEY_BYTES = 16 * 1024  # of a public key's file
MOST_KEYS = 16
DIGEST_LETTERS = 32
ID = re.compile(r"[0-9a-f]{32}")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SERIALS = ("product_serial", "board_serial")
# UUIDs that thousands of boards share: blank ones, and the example of AMI's firmware.
NOBODYS = ("03000200-0400-0500-0006-000700080009",)


def identity(*, simulated: bool) -> IdentityFacts:
    """The identity. `simulated`: without hardware, because DMI describes the computer that simulated machines share."""
    return IdentityFacts(machine_id(), None if simulated else hardware(), ssh_host_keys())


def machine_id(path: Path = MACHINE_ID) -> OptStr:
    """Digest of the machine id; None if there is none yet (an image before its first boot: "uninitialized")."""
    text = read_text(path)
    if not isinstance(text, str):
        return text
    identifier = text.strip().lower()
    return _digest("machine-id", identifier) if ID.fullmatch(identifier) and not _is_blank(identifier) else None


def hardware(folder: Path = DMI) -> OptStr:
    """Digest of the hardware's UUID; None without DMI, or for a UUID that many machines have."""
    uuid = read_text(folder / "product_uuid")
    if not isinstance(uuid, str):
        return uuid
    normal_uuid = uuid.strip().lower()
    if not UUID.fullmatch(normal_uuid) or _is_blank(normal_uuid) or normal_uuid in NOBODYS:
        return None
    # With the UUID in it nobody can guess the serial numbers from the digest.
    return _digest("hardware", normal_uuid, *(_serial(folder / name) for name in SERIALS))


def ssh_host_keys(folder: Path = SSH) -> Tuple[str, ...]:
    fingerprints: List[str] = []
    for path in sorted(folder.glob("ssh_host_*_key.pub"))[:MOST_KEYS] if folder.is_dir() else []:
        try:
            words = file_text(path, KEY_BYTES, errors="replace").split()
            fingerprints.append(fingerprint(base64.b64decode(words[1].encode(), validate=True)))
        except (OSError, ValueError, IndexError, binascii.Error, UnicodeEncodeError):
            continue  # a file that is no key tells no machines apart
    return tuple(dict.fromkeys(fingerprints))


def fingerprint(key: bytes) -> str:
    """The fingerprint of an SSH key, as `ssh-keygen -lf` prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def _serial(path: Path) -> str:
    text = read_text(path)
    return text.strip() if isinstance(text, str) else ""


def _is_blank(text: str) -> bool:
    return len(set(text) - {"-"}) < 2  # zeros, or f in each place


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(("gpuprep", *words)).encode("utf-8", "replace")).hexdigest()[:DIGEST_LETTERS]
