"""On the controller: which finished builds other hosts may use, and who vouches for them. No host is trusted here.

    artifact.py check BUILDS KEY TRUSTED SIGNERS      may BUILDS/KEY.tar.xz be installed on other hosts?
    artifact.py accept BUILDS KEY PART BUILDER RECIPE PART, just fetched from BUILDER, becomes BUILDS/KEY.tar.xz

TRUSTED is a JSON list of builders' names, SIGNERS an OpenSSH allowed_signers file or "". BUILDER is the controller's own
name of the host, never one that the host gave. A build may be used when it carries a good signature (KEY.tar.xz.sig), or
when its KEY.tar.xz.json, which only `accept` writes, names a builder of TRUSTED and the file's sha256.

`check` prints {"use": true | false, "why": "one line, or empty where there is nothing to say"}. A file that is not what
its JSON says is set aside. `accept` prints nothing; exit code 1: one line on stderr says why.
Standard library only, Python 3.10 or newer.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAMESPACE = "gpuprep-ffmpeg"
MOST_BYTES = 1 << 30  # a build has some 60 MB, packed 15
MOST_BYTES_OF_JSON = 1 << 16
MOST_BYTES_OF_SIGNATURE = 1 << 16
KEY = re.compile(r"[0-9a-f]{12}")
SHA256 = re.compile(r"[0-9a-f]{64}")


class Refused(Exception):
    """One line: why this file is not used."""


class Changed(Refused):
    """It is not the file that was accepted."""


def only_ours(path: Path, info: os.stat_result) -> None:
    """Refuses a file that other users may write."""
    if info.st_uid not in (0, os.geteuid()):
        raise Refused(f"{path} belongs to another user (id {info.st_uid})")
    if info.st_mode & 0o022:
        raise Refused(
            f"others may write {path} (mode {stat.S_IMODE(info.st_mode):04o}): chmod go-w, when it is as you made it"
        )


def opened(path: Path, most_bytes: int) -> int:
    """A descriptor of the plain file `path`, of its owner only and not too large; no link is followed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Refused(f"{path} cannot be opened: {error.strerror}") from error
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise Refused(f"{path} is no plain file")
        only_ours(path, info)
        if info.st_size > most_bytes:
            raise Refused(f"{path} has {info.st_size} bytes, more than {most_bytes}")
    except Refused:
        os.close(descriptor)
        raise
    return descriptor


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with os.fdopen(opened(path, MOST_BYTES), "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def folder_of(builds: Path) -> int:
    """A descriptor of the folder, locked: no other process of ours changes it meanwhile. Ends with this process."""
    try:
        folder = os.open(builds, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Refused(f"{builds} is no folder of yours: {error.strerror}") from error
    only_ours(builds, os.fstat(folder))
    fcntl.flock(folder, fcntl.LOCK_EX)
    return folder


# ---------------------------------------------------------------- check


def check(builds: Path, key: str, trusted: list[str], signers: str) -> dict[str, Any]:
    archive = builds / f"{key}.tar.xz"
    try:
        folder_of(builds)
        digest = sha256(archive)
        signature = signature_flaw(archive, signers)
        if signature and (why := record_flaw(archive, digest, trusted)):
            raise Refused(f"{why}; {signature}" if signers else why)
    except FileNotFoundError:
        return {"use": False, "why": ""}  # none yet: nothing to say
    except Changed as changed:
        aside = archive.replace(archive.with_name(f"{archive.name}.corrupted"))
        return {
            "use": False,
            "why": f"the finished build {archive} is corrupted: {changed}. It was set aside as {aside}",
        }
    except Refused as refusal:
        return {"use": False, "why": f"the finished build {archive} is not used: {refusal}"}
    return {"use": True, "why": ""}


def record_flaw(archive: Path, digest: str, trusted: list[str]) -> str:
    """Why the JSON beside the archive is no reason to trust it; "" where it is one. Raises Changed."""
    path = archive.with_name(f"{archive.name}.json")
    try:
        with os.fdopen(opened(path, MOST_BYTES_OF_JSON), "rb") as stream:
            record = json.loads(stream.read(MOST_BYTES_OF_JSON))
        builder, expected = record["builder"], record["sha256"]
    except FileNotFoundError:
        return f"nothing says who built it: {path} is missing"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return f"nothing says who built it: {path} has no builder and sha256"
    if not isinstance(builder, str) or builder not in trusted:
        return f"its builder {builder!a:.80} is not one that you trust (trusted: {', '.join(trusted) or 'none'})"
    if record.get("build_key") != archive.name.partition(".")[0]:
        return f"{path} is of another build"
    if not isinstance(expected, str) or not SHA256.fullmatch(expected):
        return f"{path} has no sha256"
    if digest != expected:
        raise Changed(f"its sha256 is {digest}, expected {expected}")
    return ""


def signature_flaw(archive: Path, signers: str) -> str:
    """Why there is no good signature; "" where there is one."""
    if not signers:
        return "no signers are set"
    signature = archive.with_name(f"{archive.name}.sig")
    try:
        os.close(opened(signature, MOST_BYTES_OF_SIGNATURE))
        os.close(opened(Path(signers), MOST_BYTES_OF_JSON))
    except FileNotFoundError as error:
        return f"it has no good signature: {error.filename} is missing"
    except Refused as refusal:
        return f"it has no good signature: {refusal}"
    about = ["-f", signers, "-s", str(signature)]
    found = ssh_keygen(["-Y", "find-principals", *about], archive)
    names = [
        name for line in found.stdout.splitlines() for name in line.split(",") if name and not name.startswith("!")
    ]
    for name in names:
        if ssh_keygen(["-Y", "verify", "-n", NAMESPACE, "-I", name, *about], archive).returncode == 0:
            return ""
    return f"{signature} is no signature of {archive.name} for {NAMESPACE} by a key of {signers}"


def ssh_keygen(arguments: list[str], archive: Path) -> subprocess.CompletedProcess[str]:
    with os.fdopen(opened(archive, MOST_BYTES), "rb") as stream:
        try:
            return subprocess.run(
                ["ssh-keygen", *arguments], stdin=stream, capture_output=True, text=True, check=False, timeout=300
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Refused(f"ssh-keygen cannot verify its signature: {error}") from error


# ---------------------------------------------------------------- accept


def accept(builds: Path, key: str, part: Path, builder: str, recipe: dict[str, Any]) -> None:
    folder_of(builds)
    archive = builds / f"{key}.tar.xz"
    made = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    os.fchmod(made, 0o600)
    os.close(made)
    digest = sha256(part)
    record = {
        **recipe,
        "build_key": key,
        "builder": builder,
        "sha256": digest,
        "bytes": part.stat().st_size,
        "accepted": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    written = builds / f".{key}.json.new"
    written.unlink(missing_ok=True)
    with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as stream:
        stream.write(json.dumps(record, indent=1, sort_keys=True) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    # Killed at any point, there is a build without a JSON, which nobody uses, and never a JSON of another build.
    archive.with_name(f"{archive.name}.json").unlink(missing_ok=True)
    part.replace(archive)
    written.replace(archive.with_name(f"{archive.name}.json"))


def main(arguments: list[str]) -> None:
    command, builds, key = arguments[0], Path(arguments[1]), arguments[2]
    if not KEY.fullmatch(key):
        raise Refused(f"{key!a:.80} is no key of a build: 12 hex digits")
    if command == "accept":
        part, builder, recipe = Path(arguments[3]), arguments[4], json.loads(arguments[5])
        try:
            accept(builds, key, part, builder, recipe)
        finally:
            part.unlink(missing_ok=True)
        return
    trusted = json.loads(arguments[3])
    if not isinstance(trusted, list) or not all(isinstance(name, str) for name in trusted):
        raise Refused("gpu_codec_trusted_builders is no list of names")
    sys.stdout.write(json.dumps(check(builds, key, trusted, arguments[4])) + "\n")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (Refused, OSError) as failure:
        sys.exit(str(failure))
