"""What gpuprep's Ansible runs get: playbooks, inventory of one host, SSH options, environment.

A user's settings for other playbooks (ANSIBLE_*, an ansible.cfg in the current folder) must not change what
gpuprep does, so they are not passed on.
"""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

import gpuprep
from gpuprep.catalogue.agent import COLLECTION
from gpuprep.errors import GpuprepError
from gpuprep.remote.types import Target

# Set by ansible-runner itself; it cannot read the run's events without them.
RUNNER_SETTINGS = frozenset({"ANSIBLE_CALLBACK_PLUGINS", "ANSIBLE_STDOUT_CALLBACK", "ANSIBLE_RETRY_FILES_ENABLED"})

# Of one task, so that a host that never answers holds no run for ever; tasks that may take longer say so themselves.
# The same number is in the collection's playbooks/ansible.cfg.
TASK_SECONDS = 1800

MEMORY_BYTES = 512 << 20  # of one process of Ansible; it needs about 100 MiB

SYSTEM_PYTHON = Path("/usr/bin/python3")


def playbooks_dir() -> Path:
    if COLLECTION.is_dir():
        return COLLECTION / "playbooks"
    raise GpuprepError(
        "gpuprep's playbooks are missing", "files are missing in this installation of gpuprep: install it again"
    )


def ansible_program(name: str) -> Path:
    """The path of a program of gpuprep's own ansible-core, even if it is not on the PATH (pipx)."""
    user = sysconfig.get_preferred_scheme("user")
    folders = [
        Path(sys.executable).parent,
        Path(sysconfig.get_path("scripts")),
        Path(sysconfig.get_path("scripts", user)),
    ]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    if program := shutil.which(name):
        return Path(program)
    raise GpuprepError(
        f"{name} is not beside {sys.executable}", "gpuprep needs ansible-core beside it: install it again"
    )


def keeper_command(pid_file: Path, target: Target) -> list[str]:
    """A command prefix under which Ansible, its workers and its ssh processes end when gpuprep does, even by SIGKILL.

    If gpuprep ends, the lock on the host is gone, and a playbook that continued would disturb the next run. The keeper
    writes its process id to `pid_file`; SIGTERM to it ends all processes. Memory is limited, because another host may
    answer anything; for this machine itself, where compilers are children of Ansible, there is no limit.
    """
    keeper = Path(gpuprep.__file__).resolve().parent / "provisioning/keeper.py"
    memory = 0 if target.local else MEMORY_BYTES
    return [sys.executable, "-I", "-S", str(keeper), str(os.getpid()), str(pid_file), str(memory)]


def inventory(target: Target, variables: Mapping[str, Any]) -> dict[str, Any]:
    """An inventory with this one host. Nothing of the user's inventory is in it but how to reach the host."""
    host: dict[str, Any] = {**variables, "ansible_python_interpreter": "auto_silent"}
    if target.local:
        host["ansible_connection"] = "local"
        if SYSTEM_PYTHON.exists():  # looking for one would find a pyenv or conda of the user first
            host["ansible_python_interpreter"] = str(SYSTEM_PYTHON)
    else:
        host["ansible_host"] = target.address or target.name
        host["ansible_connection"] = "ssh"
        if target.port != 22:
            host["ansible_port"] = target.port
        if target.user:
            host["ansible_user"] = target.user
        if target.identity_file:
            host["ansible_ssh_private_key_file"] = str(Path(target.identity_file).expanduser())
    return {"all": {"hosts": {inventory_name(target): host}}}


def inventory_text(target: Target, variables: Mapping[str, Any]) -> str:
    """The inventory as YAML in which no string is a template, at any depth: keys and values are all `!unsafe`.

    Some strings are facts of the host, some come from a cloud's tags through the user's inventory. Ansible would
    evaluate a template in them on the controller, with lookups that can run commands there.
    """
    return yaml.dump(inventory(target, variables), Dumper=_NoTemplates, default_flow_style=False, width=10**9)


class _NoTemplates(yaml.SafeDumper):
    """Writes each string that may hold a template as `!unsafe "..."`, and no value as a reference to another."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _no_template(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    # Ansible 2.19 reads `!unsafe "12.4"` as a number: a text that looks like a number, a truth or a date, which no
    # template does, goes out as a plain string.
    text_itself: str = dumper.DEFAULT_SCALAR_TAG
    looks_like = dumper.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return dumper.represent_scalar("!unsafe" if looks_like == text_itself else text_itself, text, style='"')


_NoTemplates.add_representer(str, _no_template)
_NoTemplates.add_multi_representer(str, _no_template)  # enumerations that are strings


def inventory_name(target: Target) -> str:
    """The host's name for Ansible. A colon (sim:t4, host:port) would be read as a port, and a host called localhost
    would take the place of the controller in tasks that the roles delegate to it."""
    name = target.name.replace("[", "").replace("]", "").replace(":", "-")
    return f"host-{name}" if name in ("localhost", "127.0.0.1", "--1") else name


def environment(
    target: Target, private: Path, playbooks: Path, *, accept_new_host_key: bool, check: bool = False
) -> dict[str, str]:
    """Variables that the run needs in addition to the user's; `private` is its own folder, with a short path."""
    # On the host, in the user's home. The role gpu_preflight empties it of what killed runs left, which only a run with
    # the host's lock may do; check mode has no lock.
    remote = "~/.ansible/tmp-gpuprep-check" if check else "~/.ansible/tmp-gpuprep"
    return {
        "ANSIBLE_CONFIG": str(playbooks / "ansible.cfg"),
        "ANSIBLE_HOME": str(private / "home"),
        "ANSIBLE_LOCAL_TEMP": str(private / "tmp"),
        "ANSIBLE_REMOTE_TEMP": remote,
        "ANSIBLE_COLLECTIONS_PATH": str(COLLECTION.parents[2]),
        # A fact is what a host says of itself: it must never override a variable of the roles.
        "ANSIBLE_INJECT_FACT_VARS": "False",
        "ANSIBLE_CALLBACKS_ENABLED": "gpuprep_plain",
        "ANSIBLE_TASK_TIMEOUT": str(TASK_SECONDS),
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_SSH_ARGS": shlex.join(ssh_arguments(target, accept_new_host_key=accept_new_host_key)),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(private / "cp"),
        "ANSIBLE_SSH_RETRIES": "2",
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_TIMEOUT": "15",
        "ANSIBLE_NOCOLOR": "True",
        "ANSIBLE_NOCOWS": "True",
        "ANSIBLE_DEPRECATION_WARNINGS": "False",
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "ANSIBLE_INVENTORY_ENABLED": "yaml",
    }


def ssh_arguments(target: Target, *, accept_new_host_key: bool) -> list[str]:
    """OpenSSH options that give Ansible's connection the same host keys and login as Host's connection."""
    options = {
        "ControlMaster": "auto",
        "ControlPersist": "60s",
        "BatchMode": "yes",  # a question nobody can answer would stop the run for good
        "StrictHostKeyChecking": "accept-new" if accept_new_host_key else "yes",
        "ServerAliveInterval": "15",
        "ServerAliveCountMax": "8",
        # Host forwards nothing either: root there could use the user's keys for other hosts, or the user's screen.
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "ClearAllForwardings": "yes",
    }
    if target.known_hosts:
        options["UserKnownHostsFile"] = target.known_hosts
        options["GlobalKnownHostsFile"] = os.devnull
    if target.identity_file:
        options["IdentitiesOnly"] = "yes"
    arguments = ["-C"]
    if Path.home() != _account_home():
        # OpenSSH takes ~ from the account, everything else (Host too) from $HOME: show it the files that Host uses.
        ssh = Path.home() / ".ssh"
        arguments += ["-F", str(ssh / "config")] if (ssh / "config").is_file() else []
        options.setdefault("UserKnownHostsFile", str(ssh / "known_hosts"))
    for name, value in options.items():
        arguments += ["-o", f"{name}={value}"]
    return arguments


def _account_home() -> Path:
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:  # an account without an entry, as in some containers
        return Path.home()


def without_foreign_settings(prepared: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """`prepared` without every ANSIBLE_* variable that neither we nor ansible-runner set."""
    kept = {
        name: value
        for name, value in prepared.items()
        if not name.startswith("ANSIBLE_") or name in ours or name in RUNNER_SETTINGS
    }
    # The user's own plugins would otherwise come first; ansible-runner's folder is the last of the list.
    runners = prepared["ANSIBLE_CALLBACK_PLUGINS"].split(":")[-1]
    kept["ANSIBLE_CALLBACK_PLUGINS"] = f"{COLLECTION / 'plugins/callback'}:{runners}"
    kept.pop("ORIGINAL_STDOUT_CALLBACK", None)
    kept.update({"PYTHONUNBUFFERED": "1"})
    return kept
