"""`gpuprep init`: who may log in, what the machine is, and the two files that later commands need."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from gpuprep.desired import loading
from gpuprep.desired.proposal import Proposal
from gpuprep.errors import UsageError
from gpuprep.remote import Target
from gpuprep.untrusted.plaintext import one_line
from gpuprep.workflows import ownprofile
from gpuprep.workflows.targets import check_text, check_word

NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]")


@dataclasses.dataclass(frozen=True)
class HostKey:
    """A host key that nobody has accepted yet."""

    name: str
    algorithm: str
    fingerprint: str  # "SHA256:..."
    file: str  # where it will be added
    compare: str  # where the machine itself tells it


@dataclasses.dataclass(frozen=True)
class Login:
    """The login that works. `user` and `key` are "" without SSH."""

    target: Target
    user: str = ""
    key: str = ""


def log_in(
    target: Target, accept: Callable[[HostKey], bool], say: Callable[[str], None], again: Sequence[str]
) -> Login:
    """Find user and key of a host over SSH. Raises HostError with the next command to type.

    `again` are the words of this command, without its host and key.
    """
    if target.local or target.simulated:
        return Login(target)
    from gpuprep.remote import keysearch
    from gpuprep.remote.hostkeys import ShownKey, own_fingerprint

    def asked(shown: ShownKey) -> bool:
        compare = own_fingerprint(shown.algorithm)
        return accept(HostKey(shown.name, shown.algorithm, shown.fingerprint, str(shown.file), compare))

    login = keysearch.find(target, asked, say, again=again)
    return Login(login.target, login.user, login.key)


def inventory_name(target: Target) -> str:
    """The host's name for an inventory: HOST without user and brackets; a port other than 22 is appended."""
    address = target.address or target.name
    if target.local:
        return "local"
    port = "" if target.port == 22 else f"-{target.port}"
    return NOT_IN_NAMES.sub("-", address).strip("-.") + port


def inventory_text(name: str, target: Target) -> str:
    """An Ansible inventory of one host. Texts are written as JSON, which is valid YAML; no text comes from the host.

    Raises UsageError for a value that an inventory cannot express, such as a key file whose name is a template.
    """
    address = target.address or target.name
    variables: dict[str, str | int] = {}
    if target.local:
        variables["ansible_connection"] = "local"
    elif address != name:
        variables["ansible_host"] = address
    if not target.local and target.port != 22:
        variables["ansible_port"] = target.port
    if target.user:
        variables["ansible_user"] = target.user
    if target.identity_file:
        variables["ansible_ssh_private_key_file"] = target.identity_file
    for key, value in variables.items():
        check_text(key, str(value), "a plain path, address or name")
    lines = [
        "# Made by `gpuprep init`. `gpuprep COMMAND -i FOLDER` reads every file of this folder; add groups as you like",
        "all:",
        "  hosts:",
        f"    {json.dumps(name)}:",
        *(f"      {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in variables.items()),
    ]
    return "\n".join(lines) + "\n"


def check_name(name: str) -> None:
    """Raises UsageError for a name that an inventory cannot have."""
    check_word("--name", name, "letters, digits, dots, dashes and underscores")
    if NOT_IN_NAMES.search(name) or name in ("all", "ungrouped", "local"):
        raise UsageError(
            f"--name {one_line(name, 80)!r} cannot be a host's name", "letters, digits, dots, dashes and underscores"
        )


def profile_text(proposal: Proposal) -> str:
    return ownprofile.text(proposal.profile, proposal.models)


def serves(path: Path, proposal: Proposal) -> bool:
    """Whether `path` is already a valid profile for these GPUs, written by an earlier init or by the user."""
    if not path.is_file():
        return False
    named = str(path.absolute())
    return not ownprofile.problems(named) and set(proposal.models) <= set(loading.load(named).gpus)


def default_profile(proposal: Proposal) -> Path:
    """my-t4.yml; my-t4-v100.yml for GPUs of several models."""
    return Path(f"my-{'-'.join(proposal.models) or 'gpu'}.yml")
