"""Kernel modules that are really signed, as the kernel's `sign-file` signs them, for tests of signatures.

openssl makes the same bytes as scripts/sign-file of Debian's linux-kbuild-6.1 6.1.192-2 (compared once, by cmp, with
RSA, sha256 and sha512); so no test needs that package. Any bytes will do as a module: sign-file does not look at them.
"""

from __future__ import annotations

import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

MARK = b"~Module signature appended~\n"
BODY = b"\x7fELF" + bytes(range(256)) * 40


@dataclass(frozen=True)
class Key:
    """A private key and its certificate, as DKMS makes them."""

    key: Path
    certificate: Path  # DER


def openssl(*words: str | Path, content: bytes = b"") -> bytes:
    done = subprocess.run(["openssl", *map(str, words)], input=content, capture_output=True, check=True)
    return done.stdout


def make_key(folder: Path, name: str = "MOK", subject: str = "DKMS module signing key", serial: str = "") -> Key:
    """`subject` and `serial` are all that a signature says of its signer: two keys may have the same."""
    folder.mkdir(exist_ok=True)
    made = Key(folder / f"{name}.priv", folder / f"{name}.der")
    words = ("req", "-new", "-x509", "-nodes", "-days", "3650", "-newkey", "rsa:2048", "-subj", f"/CN={subject}/")
    number = ("-set_serial", serial) if serial else ()
    openssl(*words, *number, "-keyout", made.key, "-outform", "DER", "-out", made.certificate)
    made.key.chmod(0o600)
    return made


def pkcs7(key: Key, body: bytes = BODY, digest: str = "sha256", *options: str) -> bytes:
    pem = key.certificate.with_suffix(".pem")
    openssl("x509", "-inform", "DER", "-in", key.certificate, "-out", pem)
    words = ("cms", "-sign", "-binary", "-noattr", "-nocerts", "-nosmimecap", "-outform", "DER", "-md", digest)
    return openssl(*words, *options, "-signer", pem, "-inkey", key.key, content=body)


def trailer(length: int, *, kind: int = 2, padding: bytes = bytes(3)) -> bytes:
    """struct module_signature, and the mark."""
    return struct.pack(">5B3sI", 0, 0, kind, 0, 0, padding, length) + MARK


def signed(key: Key, body: bytes = BODY, digest: str = "sha256", *options: str) -> bytes:
    """A module as sign-file leaves it."""
    signature = pkcs7(key, body, digest, *options)
    return body + signature + trailer(len(signature))
