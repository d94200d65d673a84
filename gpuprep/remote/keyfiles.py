"""The private key of a file. For a locked key, or one on a security token, the SSH agent signs.

A key on a token (FIDO: sk-ssh-ed25519, sk-ecdsa) has no secret in its file.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import paramiko

MOST_BYTES = 64 << 10
MAGIC = b"openssh-key-v1\0"
KINDS = (b"sk-ssh-ed25519@openssh.com", b"sk-ecdsa-sha2-nistp256@openssh.com")
LOCKED = (paramiko.PasswordRequiredException, TypeError)  # errors for a key with a passphrase
BROKEN = "broken"  # of a file that is no private key
BEFORE = 3  # cipher, way of making a key from a passphrase, its options: strings before the number of keys


def of_file(path: Path, held: Mapping[str, Any]) -> tuple[Any, str]:
    """(key, fingerprint) of a key file. `held` are the SSH agent's keys by fingerprint.

    (None, fingerprint) of a locked key that the agent lacks; (None, BROKEN) if the file is not a private key.
    """
    try:
        key = paramiko.PKey.from_path(path)
    except LOCKED:
        public = _public(path)
        return (held.get(public), public)
    except Exception:  # noqa: BLE001  whatever a file that is no key makes paramiko and its libraries raise
        mark = fingerprint(path)
        return (held[mark], mark) if mark in held else (None, BROKEN)
    return key, key.fingerprint


def of_agent(agent: Any) -> dict[str, Any]:
    """The keys of a paramiko.Agent by their fingerprints."""
    return {key.fingerprint: key for key in agent.get_keys()}


def _public(path: Path) -> str:
    """The fingerprint of the key in KEYFILE.pub; "" if that file cannot be read."""
    try:
        blob = path.with_name(f"{path.name}.pub").read_text(encoding="utf-8").split()[1]
        return _shown(base64.b64decode(blob, validate=True))
    except (OSError, ValueError, IndexError):
        return ""


def fingerprint(path: Path) -> str:
    """The fingerprint as `ssh-add -l` shows it; "" if the file is not the private key of a token."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES)
        body = base64.b64decode(b"".join(line for line in content.splitlines() if not line.startswith(b"-----")))
        if not body.startswith(MAGIC):
            return ""
        rest = body[len(MAGIC) :]
        for _ in range(BEFORE):
            _, rest = _string(rest)
        public, _ = _string(rest[4:])
        kind, _ = _string(public)
    except (OSError, ValueError, struct.error):
        return ""
    return _shown(public) if kind in KINDS else ""


def _shown(public: bytes) -> str:
    digest = base64.b64encode(hashlib.sha256(public).digest()).decode().rstrip("=")
    return f"SHA256:{digest}"


def _string(data: bytes) -> tuple[bytes, bytes]:
    """(the first string of data in SSH's format, the rest)."""
    (size,) = struct.unpack(">I", data[:4])
    if size > len(data) - 4:
        raise ValueError("it ends too early")
    return data[4 : 4 + size], data[4 + size :]
