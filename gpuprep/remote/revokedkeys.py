"""Is a host key in the file of the ssh_config option RevokedHostKeys? Follows OpenSSH's sshkey_check_revoked.

The file is a list of public keys, or a KRL (key revocation list, `ssh-keygen -k`), which `ssh-keygen -Q` reads.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from base64 import b64encode
from pathlib import Path

import paramiko

from gpuprep.errors import UsageError
from gpuprep.remote.hostcertificate import Certificate
from gpuprep.remote.known_hosts import key_of
from gpuprep.remote.limits import KNOWN_HOSTS_BYTES
from gpuprep.untrusted.limits import file_bytes

KRL = b"SSHKRL\n\0"
SECONDS = 30.0


def is_revoked(path: Path, key: paramiko.PKey, certificate: Certificate | None) -> bool:
    """Whether the key, its certificate or the authority that signed it is revoked.

    Raises UsageError if the file cannot be read completely: `ssh` then connects to no host.
    """
    if path == Path(os.devnull):  # people name none by it
        return False
    try:
        data = file_bytes(path, KNOWN_HOSTS_BYTES)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    if data.startswith(KRL):
        return _in_krl(path, key)
    revoked = _listed(path, data.decode(errors="replace"))
    return key in revoked or (certificate is not None and certificate.authority in revoked)


def _listed(path: Path, text: str) -> list[paramiko.PKey]:
    keys = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        key = key_of(fields[0], fields[1]) if len(fields) > 1 else None
        if key is None:
            raise _unusable(path, f"line {number} is no public key")
        keys.append(key)
    return keys


def _in_krl(path: Path, key: paramiko.PKey) -> bool:
    shown = key.public_blob
    text = f"{key.get_name()} {key.get_base64()}"
    if shown is not None:
        text = f"{shown.key_type} {b64encode(shown.key_blob).decode()}"
    with tempfile.NamedTemporaryFile("w", suffix=".pub") as file:
        file.write(f"{text}\n")
        file.flush()
        command = ["ssh-keygen", "-Q", "-f", str(path), file.name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            raise _unusable(path, f"ssh-keygen did not read it: {error}") from error
    if done.returncode == 0:
        return False
    if done.stdout.rstrip().endswith(": REVOKED"):
        return True
    raise _unusable(path, f"ssh-keygen did not read it: {done.stderr.strip()[-300:]}")


def _unusable(path: Path, why: str) -> UsageError:
    return UsageError(
        f"{path}: the revoked host keys cannot be read: {why}",
        "repair the file, or take RevokedHostKeys out of your SSH configuration; `ssh` refuses every host until then",
    )
