"""HOST arguments ─► Targets: names, aliases, addresses, local, sim:NAME, or patterns of an inventory."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gpuprep.ansible_env import ansible_program
from gpuprep.errors import UsageError
from gpuprep.host.types import Target

# Brackets hold an IPv6 address; a bare IPv6 address has more than one colon and no port.
ADDRESS = re.compile(
    r"^(?:(?P<user>[^@\s]+)@)?(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^:\s\[\]@]+))(?::(?P<port>\d+))?$"
)
BARE_V6 = re.compile(r"^(?:(?P<user>[^@\s]+)@)?(?P<v6>[0-9A-Fa-f]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)$")
FORMS = "a host name, an SSH alias, user@host:port, [v6-address]:port, local or sim:NAME"

# Connection variables that Ansible knows under several names, the one that wins first.
ADDRESS_KEYS = ("ansible_host", "ansible_ssh_host")
PORT_KEYS = ("ansible_port", "ansible_ssh_port")
USER_KEYS = ("ansible_user", "ansible_ssh_user")
KEY_FILE_KEYS = ("ansible_ssh_private_key_file", "ansible_private_key_file")
NOT_CARRIED = ("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_become_password", "ansible_become_pass")


def parse(
    hosts: Sequence[str],
    inventory: str | None = None,
    limit: str | None = None,
    *,
    ssh_key: str | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> list[Target]:
    """The machines that `hosts` name, each once, in their order. `note` is told what of an inventory is not used.

    Raises UsageError for a form that is none, for a pattern that matches no host and for an inventory that
    cannot be read; SimError for a simulated machine that there is not.
    """
    if inventory is not None:
        found = _from_inventory(hosts, inventory, limit, note)
    elif limit is not None:
        raise UsageError("--limit needs an inventory", "give one with -i")
    else:
        found = [_parse_one(text) for text in hosts]
    if ssh_key is not None:
        found = [t if t.local else dataclasses.replace(t, identity_file=ssh_key) for t in found]
    return list({target.name: target for target in found}.values())


def _parse_one(text: str) -> Target:
    if text == "local":
        return Target(name="local", local=True, simulated=Path("/etc/gpuprep-sim").exists())
    if text.startswith("sim:"):
        from gpuprep import sim

        return sim.target(text.removeprefix("sim:"))
    match = BARE_V6.match(text) or ADDRESS.match(text)
    if not match or text.startswith("-"):
        raise UsageError(f"{text!r} is no HOST", f"HOST is {FORMS}; with -i a pattern of the inventory")
    parts = match.groupdict()
    port = int(parts.get("port") or 22)
    if not 0 < port < 65536:
        raise UsageError(f"{text!r}: there is no port {port}", "ports go from 1 to 65535")
    return Target(name=text, address=parts.get("host") or parts["v6"], port=port, user=parts.get("user"))


def _from_inventory(
    patterns: Sequence[str], inventory: str, limit: str | None, note: Callable[[str], None]
) -> list[Target]:
    if not inventory.endswith(",") and "," not in inventory and not Path(inventory).exists():
        raise UsageError(f"there is no inventory {inventory}", "-i takes a file, a folder or a host list with a comma")
    with ThreadPoolExecutor(1) as other:  # each of Ansible's programs takes half a second to start
        read = other.submit(_host_variables, inventory)
        names = _matching(patterns or ["all"], inventory, limit)
        variables = read.result()
    return [_inventory_target(name, variables.get(name, {}), note) for name in names]


def _matching(patterns: Sequence[str], inventory: str, limit: str | None) -> list[str]:
    """Ansible's own matching of patterns, `--limit` included."""
    limits = ["--limit", limit] if limit is not None else []
    text = _ansible("ansible", [":".join(patterns), "-i", inventory, "--list-hosts", *limits], inventory)
    names = [line.strip() for line in text.splitlines()[1:] if line.strip()]
    if not names:
        shown = ":".join(patterns) + (f" limited to {limit}" if limit is not None else "")
        raise UsageError(
            f"no host of {inventory} matches {shown}", f"`ansible-inventory -i {inventory} --graph` shows what it has"
        )
    return names


def _host_variables(inventory: str) -> dict[str, dict[str, Any]]:
    document = json.loads(_ansible("ansible-inventory", ["-i", inventory, "--list"], inventory))
    variables = document.get("_meta", {}).get("hostvars", {})
    return {str(name): dict(values) for name, values in variables.items()}


def _ansible(program: str, arguments: list[str], inventory: str) -> str:
    # The user's own ansible.cfg stays in force here: it says which inventory plugins are on and where vault
    # passwords are.
    completed = subprocess.run(
        [str(ansible_program(program)), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_FORCE_COLOR": "0",
            "ANSIBLE_INVENTORY_UNPARSED_FAILED": "1",
        },
    )
    if completed.returncode != 0:
        lines = [line for line in completed.stderr.splitlines() if line.startswith(("[ERROR]", "ERROR"))]
        said = lines[-1] if lines else (completed.stderr.strip().splitlines() or ["no message"])[-1]
        raise UsageError(f"inventory {inventory}: {said}", f"try `ansible-inventory -i {inventory} --list`")
    return completed.stdout


def _inventory_target(name: str, variables: dict[str, Any], note: Callable[[str], None]) -> Target:
    def first(keys: tuple[str, ...]) -> str | None:
        for key in keys:
            if variables.get(key) not in (None, ""):
                value = str(variables[key])
                if "{{" in value:
                    raise UsageError(
                        f"host {name}: {key} is the template {value}", "give a plain value in the inventory"
                    )
                return value
        return None

    for key in NOT_CARRIED:
        if key in variables:
            use = "--ask-become-pass" if "become" in key else "~/.ssh/config"
            note(f"{name}: {key} of the inventory is not used; {use} does the same for gpuprep")
    port = first(PORT_KEYS) or "22"
    if not port.isdigit():
        raise UsageError(f"host {name}: ansible_port is {port!r}", "give a number")
    local = first(("ansible_connection",)) == "local"
    return Target(
        name=name,
        address="" if local else first(ADDRESS_KEYS) or name,
        port=int(port),
        user=first(USER_KEYS),
        identity_file=first(KEY_FILE_KEYS),
        local=local,
        variables={key: value for key, value in variables.items() if key.startswith("gpu_")},
    )
