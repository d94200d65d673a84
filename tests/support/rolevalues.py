"""What roles make of their variables: Ansible itself runs them on this computer and prints the values."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml
from places import COLLECTION, ROOT

from gpuprep.agent.facts import packages

ROLES = COLLECTION / "roles"
PRINTED = re.compile(r"VALUE (\S+) ([A-Za-z0-9+/=]+) END")


def printing(name: str, expression: str) -> dict[str, str]:
    """The argument of a debug task that prints a value: to write a file on the host takes a module, and a second."""
    return {"msg": f"VALUE {name} {{{{ {expression} | to_json | b64encode }}}} END"}


def played(
    folder: Path, play: dict[str, Any], hosts: str = "localhost,", collections: Path = ROOT
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Runs a play: how it ended, and name ► what printing() printed."""
    book = folder / "book.yml"
    whole = {"hosts": "all", "connection": "local", "gather_facts": False, "collections": ["gpuprep.gpu"], **play}
    book.write_text(yaml.safe_dump([whole]), encoding="utf-8")
    extra = json.dumps({"ansible_python_interpreter": sys.executable})
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", hosts, "-e", extra, str(book)]
    places = {
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
        "ANSIBLE_HOME": str(folder),
        "ANSIBLE_COLLECTIONS_PATH": str(collections),
    }
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **places}, check=False)
    found = {name: json.loads(base64.b64decode(value)) for name, value in PRINTED.findall(done.stdout)}
    return done, found


def values(folder: Path, variables: dict[str, Any], tasks: list[dict[str, Any]]) -> dict[str, Any]:
    """Runs the tasks with these variables, which must not fail; name ► what printing() printed."""
    done, found = played(folder, {"vars": variables, "tasks": tasks})
    assert done.returncode == 0, done.stdout + done.stderr
    return found


def not_in_every_snapshot(manager: str, names: Iterable[str]) -> list[str]:
    """Packages of apt or dnf that the agent reads only if a profile asks for them by name."""
    families = {"apt": packages.DEBIAN_FAMILIES, "dnf": packages.RPM_FAMILIES}[manager]
    return sorted(name for name in names if not any(fnmatchcase(name, pattern) for pattern in families))
