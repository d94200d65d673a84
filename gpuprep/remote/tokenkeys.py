"""A key on a security token (FIDO: sk-ssh-ed25519, sk-ecdsa): its file has no secret, the SSH agent signs with it."""

from __future__ import annotations

import base64
import hashlib
import struct
from pathlib import Path

MOST_BYTES = 64 << 10
MAGIC = b"openssh-key-v1\0"
KINDS = (b"sk-ssh-ed25519@openssh.com", b"sk-ecdsa-sha2-nistp256@openssh.com")
BEFORE = 3  # cipher, way of making a key from a passphrase, its options: strings before the number of keys


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
    digest = base64.b64encode(hashlib.sha256(public).digest()).decode().rstrip("=")
    return f"SHA256:{digest}" if kind in KINDS else ""


def _string(data: bytes) -> tuple[bytes, bytes]:
    """(the first string of data in SSH's format, the rest)."""
    (size,) = struct.unpack(">I", data[:4])
    if size > len(data) - 4:
        raise ValueError("it ends too early")
    return data[4 : 4 + size], data[4 + size :]
