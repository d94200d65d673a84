"""Kernel modules that are really signed, as the kernel's `sign-file` signs them, for tests of signatures.

openssl makes the same bytes as scripts/sign-file of Debian's linux-kbuild-6.1 6.1.192-2 (compared once, by cmp, with
RSA, sha256 and sha512); so no test needs that package. Any bytes will do as a module: sign-file does not look at them.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuprep.agent.facts import nextboot, signatures
from gpuprep.agent.programs import modulesignature, trusted
from gpuprep.records import Bool, ModuleSignature, SignatureFacts

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


# ---------------------------------------------------------------- what the agent says of them


def is_certificate(path: Path) -> bool:
    """Whether modules can be verified with this file."""
    return signatures._certificate(str(path)) is not None


def looked_at(module: Path, *by: Key) -> ModuleSignature:
    """What the agent says of a module on a host with these certificates."""
    return signatures.signature(module, "6.1.0", _known(by))


def _known(keys: Sequence[Key]) -> list[signatures.Certificate]:
    return [one for one in (signatures._certificate(str(key.certificate)) for key in keys) if one]


def remembered(module: Path, cache: Path, agent: Path, *by: Key) -> ModuleSignature:
    """The same, of an agent that is installed at `agent` and keeps what it found in `cache`."""
    kept = signatures._Cache(cache, agent)
    found = kept.signature(module, "6.1.0", _known(by))
    kept.keep()
    return found


def enrolled(certificate: Path, firmware: Path = signatures.FIRMWARE) -> Bool:
    return signatures.enrolled(str(certificate), firmware)


def named_by_dkms(settings: Path) -> list[str]:
    """The certificates that DKMS's settings name."""
    return nextboot.configured(settings)


def facts(kernel: str, certificate: str, cache: Path) -> SignatureFacts:
    """Of a host with this kernel alone, whose profile names the certificate."""
    return signatures.facts((kernel, None), (certificate,), cache)


def largest_module(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """No module is unpacked beyond so many bytes."""
    monkeypatch.setattr(modulesignature, "MOST_MODULE", size)


def programs_of_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of a test lie where root would run none; the agent runs them."""
    monkeypatch.setattr(trusted, "ROOT", -1)
