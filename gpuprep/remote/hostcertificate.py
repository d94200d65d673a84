"""Is the certificate of a host valid for this host? paramiko checks only the key in it; the rest is checked here.

The format is that of OpenSSH's PROTOCOL.certkeys.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import paramiko

SUFFIX = "-cert-v01@openssh.com"
NUMBERS = {"ssh-ed25519": 1, "ssh-rsa": 2}  # strings of a public key in a certificate; 2 for the ECDSA ones
FOR_HOST = 2


@dataclass(frozen=True)
class Certificate:
    """A host certificate with a valid signature. Times are seconds since 1970."""

    authority: paramiko.PKey
    kind: int
    names: tuple[str, ...]
    begin: int
    end: int
    restricted: bool  # by a critical option; none is defined for hosts

    def invalid_reason(self, host: str, now: float | None = None) -> str:
        """Why the certificate is not valid for `host` (in small letters); "" if it is. No names in it mean any host."""
        moment = int(time.time() if now is None else now)
        if self.kind != FOR_HOST:
            return "it is not a host certificate"
        if moment < self.begin:
            return "it is not valid yet"
        if moment >= self.end:
            return "it has expired"
        if self.names and host not in self.names:
            return "it is for other names"
        return "it has a critical option" if self.restricted else ""


def certificate_of(key: paramiko.PKey) -> Certificate | None:
    """The certificate that a host sent with its key; None without a certificate, or if it is damaged or not signed."""
    if key.public_blob is None:
        return None
    blob: bytes = key.public_blob.key_blob
    message = paramiko.Message(blob)
    try:
        plain = message.get_text().removesuffix(SUFFIX)
        message.get_string()  # the nonce
        for _ in range(NUMBERS.get(plain, 2)):
            message.get_string()
        message.get_int64()  # the serial number
        kind = message.get_int()
        message.get_string()  # the key id
        names = message.get_string()
        begin, end = message.get_int64(), message.get_int64()
        critical = message.get_string()
        message.get_string()  # extensions: what is not known is passed over
        message.get_string()  # reserved
        signer = message.get_string()
        signed = message.get_so_far()
        signature = message.get_string()
        authority = paramiko.PKey.from_type_string(paramiko.Message(signer).get_text(), signer)
        # A SHA-1 signature is none for paramiko, as for OpenSSH.
        is_signed = not message.get_remainder() and authority.verify_ssh_sig(signed, paramiko.Message(signature))
        if not is_signed or authority.public_blob is not None:
            return None
        return Certificate(authority, kind, _strings(names), begin, end, bool(critical))
    except Exception:  # noqa: BLE001  whatever a host's bytes make paramiko and cryptography raise: it is no certificate
        return None


def _strings(data: bytes) -> tuple[str, ...]:
    message = paramiko.Message(data)
    strings = []
    while message.get_remainder():
        strings.append(message.get_text())
    return tuple(strings)
