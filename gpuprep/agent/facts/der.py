"""Reads the few parts of DER (X.509, PKCS#7) that name the signer of a kernel module. Every length is checked.

The file may come from anybody: errors raise ValueError, and nothing is read past the end. openssl decides whether a
signature is right (signatures.py); this module only finds the certificate to check it with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Tuple

SEQUENCE, SET, INTEGER, OID, OCTETS = 0x30, 0x31, 0x02, 0x06, 0x04
SIGNED_DATA, DATA = bytes.fromhex("2a864886f70d010702"), bytes.fromhex("2a864886f70d010701")
# SHA-1, SHA-2 and SHA-3, as far as kernels sign modules with them.
DIGESTS = {bytes.fromhex("2b0e03021a"), *(bytes.fromhex(f"6086480165030402{n:02x}") for n in (1, 2, 3, 4, 7, 8, 9, 10))}
VERSIONS = (b"\x01", b"\x03")
COMMON_NAME, ORGANIZATION = bytes.fromhex("550403"), bytes.fromhex("55040a")
SUBJECT_KEY = bytes.fromhex("551d0e")  # 2.5.29.14
MOST_LENGTH_BYTES = 4
MOST_PARTS = 100  # of one sequence
MOST_NAME = 120  # letters


@dataclass(frozen=True)
class Part:
    tag: int
    whole: bytes  # with its header
    content: bytes


@dataclass(frozen=True)
class Signer:
    """The signer of a signature or the subject of a certificate: by issuer and serial number, or by key id."""

    issuer: bytes  # b"" in a signature that names the key alone
    serial: bytes
    key: bytes  # subject key identifier; b"" where there is none
    name: str  # the common name in the issuer; "" where it has none

    def is_of(self, certificate: "Signer") -> bool:
        """Whether this signer and that certificate have the same names; nothing is verified."""
        if self.issuer:
            return (self.issuer, self.serial) == (certificate.issuer, certificate.serial)
        return bool(self.key) and self.key == certificate.key

    @property
    def number(self) -> str:
        """The key id or serial number in the form of modinfo's sig_key: "21:7D:63"."""
        return (self.serial or self.key).hex(":").upper()[:MOST_NAME]


def signer(pkcs7: bytes) -> Signer:
    """The first signer of a PKCS#7 message as the kernel wants it. Raises ValueError.

    openssl overlooks some wrong fields that no signature protects, and the kernel does not: they are checked here.
    """
    outer = _only(_parts(pkcs7), SEQUENCE)
    kind, explicit = _first(_parts(outer.content), 2)
    if kind.tag != OID or kind.content != SIGNED_DATA or explicit.tag != 0xA0:
        raise ValueError("it is no signed data")
    fields = _parts(_only(_parts(explicit.content), SEQUENCE).content)
    version, _, content, infos = *_first(fields, 4)[:3], fields[-1]
    if infos.tag != SET:
        raise ValueError("it has no list of signers")
    if version.content not in VERSIONS or _only(_parts(content.content), OID).content != DATA:
        raise ValueError("it is of a form that kernels do not take")
    version, identity, digest = _first(_parts(_first(_parts(infos.content), 1)[0].content), 3)
    if version.content not in VERSIONS or _first(_parts(digest.content), 1)[0].content not in DIGESTS:
        raise ValueError("its signer is of a form that kernels do not take")
    if identity.tag == 0x80:
        return Signer(b"", b"", identity.content, "")
    issuer, serial = _first(_parts(identity.content), 2)
    return Signer(issuer.whole, serial.content, b"", _name(issuer))


def certificate(data: bytes) -> Signer:
    """The subject of an X.509 certificate. Raises ValueError."""
    body = _parts(_first(_parts(_only(_parts(data), SEQUENCE).content), 1)[0].content)
    fields = body[1:] if body and body[0].tag == 0xA0 else body
    serial, _, issuer = _first(fields, 3)
    if serial.tag != INTEGER or issuer.tag != SEQUENCE:
        raise ValueError("it is no certificate")
    return Signer(issuer.whole, serial.content, _subject_key(body), _name(issuer))


def _subject_key(body: List[Part]) -> bytes:
    for extensions in (part for part in body if part.tag == 0xA3):
        for extension in _parts(_only(_parts(extensions.content), SEQUENCE).content):
            inner = _parts(extension.content)
            if len(inner) > 1 and inner[0].content == SUBJECT_KEY and inner[-1].tag == OCTETS:
                return _only(_parts(inner[-1].content), OCTETS).content
    return b""


def _name(issuer: Part) -> str:
    """The common name, or else the organization, as safe text."""
    attributes = {}
    for group in _parts(issuer.content):
        for pair in _parts(group.content):
            kind, value = _first(_parts(pair.content), 2)
            attributes[kind.content] = value.content.decode("utf-8", "replace")[:MOST_NAME]
    return attributes.get(COMMON_NAME) or attributes.get(ORGANIZATION) or ""


def _parts(data: bytes) -> List[Part]:
    parts: List[Part] = []
    at = 0
    while at < len(data):
        if len(parts) == MOST_PARTS:
            raise ValueError(f"it has more than {MOST_PARTS} parts")
        start, length = _header(data, at)
        if start + length > len(data):
            raise ValueError(f"a part claims {length} bytes, and {len(data) - start} are left")
        parts.append(Part(data[at], data[at : start + length], data[start : start + length]))
        at = start + length
    return parts


def _header(data: bytes, at: int) -> Tuple[int, int]:
    """(position of the content, its length). Raises ValueError."""
    if at + 2 > len(data):
        raise ValueError("it ends in the middle of a part")
    first, start = data[at + 1], at + 2
    if first < 0x80:
        return start, first
    count = first & 0x7F
    if not 0 < count <= MOST_LENGTH_BYTES or start + count > len(data):
        raise ValueError("a part has an impossible length")
    return start + count, int.from_bytes(data[start : start + count], "big")


def _first(parts: List[Part], count: int) -> List[Part]:
    if len(parts) < count:
        raise ValueError("parts are absent")
    return parts[:count]


def _only(parts: List[Part], tag: int) -> Part:
    if len(parts) != 1 or parts[0].tag != tag:
        raise ValueError("it does not consist of one part")
    return parts[0]
