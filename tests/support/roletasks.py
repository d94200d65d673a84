"""The commands of a role's tasks, taken from its YAML, so that a test runs what a machine would run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from jinja2.nativetypes import NativeEnvironment
from places import COLLECTION

ROLES = COLLECTION / "roles"


@dataclass(frozen=True)
class Command:
    """One task's command: its words, and the folder that it starts in ("" for that of the connection)."""

    argv: list[str]
    folder: str


def tasks(role: str, file: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each task of a file, those in blocks too, with the variables that it and its blocks set."""

    def walk(items: list[dict[str, Any]], outer: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        for item in items:
            variables = {**outer, **item.get("vars", {})}
            for part in ("block", "rescue", "always"):
                yield from walk(item.get(part, []), variables)
            if "block" not in item:
                yield item, variables

    yield from walk(yaml.safe_load((ROLES / role / "tasks" / file).read_text(encoding="utf-8")), {})


def command(role: str, file: str, name: str, **given: str) -> Command:
    """The command of the task whose name begins with `name`; `given` stands for the variables of role and play."""
    task, variables = next(found for found in tasks(role, file) if found[0]["name"].startswith(name))
    environment = NativeEnvironment()

    def lookup(_kind: str, path: str) -> str:
        return (ROLES / role / "files" / path).read_text(encoding="utf-8").strip()

    known: dict[str, Any] = {"role_path": str(ROLES / role), "lookup": lookup, **given}

    def rendered(value: Any) -> Any:
        if isinstance(value, list):
            return [rendered(item) for item in value]
        return environment.from_string(value).render(known) if isinstance(value, str) and "{{" in value else value

    module = task["ansible.builtin.command"]
    for key, value in variables.items():
        if key not in given and key in str(module):
            known[key] = rendered(value)
    return Command([str(word) for word in rendered(module["argv"])], rendered(module.get("chdir", "")))


def roles_in_order() -> list[str]:
    """The roles of provision.yml, in its order."""
    (play,) = yaml.safe_load((COLLECTION / "playbooks/provision.yml").read_text(encoding="utf-8"))
    (block,) = play["tasks"]
    roles = [task["ansible.builtin.import_role"] for task in block["block"]]
    return [role["name"].removeprefix("gpuprep.gpu.") for role in roles if "tasks_from" not in role]
