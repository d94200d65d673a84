"""Reads what gpuprep itself manages on a host: units, small files, provenance, locked clocks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Dict, Tuple, Union

from gpuprep.agent import host_paths
from gpuprep.agent.facts import parse
from gpuprep.agent.programs.run import read_text, run
from gpuprep.agent.rollback import saved as kept
from gpuprep.records import (
    DecodeError,
    DriverChange,
    LockedClocks,
    Missing,
    OptStr,
    UnitFacts,
    from_json_value,
    to_json_value,
)

PERSISTENCED, TUNE = "nvidia-persistenced.service", "gpuprep-tune.service"
FABRIC_MANAGER = "nvidia-fabricmanager.service"
UNITS = (
    PERSISTENCED,
    TUNE,
    FABRIC_MANAGER,
    "unattended-upgrades.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
)
FILES = (
    host_paths.TUNING,
    host_paths.MODULE_OPTIONS,
    host_paths.NOUVEAU_BLACKLIST,
    host_paths.PERSISTENCE_DROP_IN,
    host_paths.TUNE_UNIT,
    host_paths.TUNE_RULE,
    host_paths.LOGIN_ENVIRONMENT,
    host_paths.ENVIRONMENT,
    host_paths.SERVICE_ENVIRONMENT,
    host_paths.LOADER_LIST,
    host_paths.HOLDS,
    host_paths.PIN,
    host_paths.CUDA_PIN,
    host_paths.DRIVER_STREAM,
    host_paths.PRELOAD,
)
LOCKED_CLOCKS = Path(host_paths.LOCKED_CLOCKS)
AGENT_HOME = Path(host_paths.AGENT_HOME)


def unit_facts() -> Dict[str, UnitFacts]:
    """Name ► state of all units, with one call. A unit that does not exist is "not-found", "inactive"."""
    text = run(["systemctl", "show", "-p", parse.UNIT_PROPERTIES, *UNITS])
    return {} if isinstance(text, Missing) else parse.units(text)


def file_texts() -> Dict[str, OptStr]:
    return {path: read_text(path) for path in FILES}


def provenance() -> Union[Dict[str, Any], Missing, None]:
    text = read_text(host_paths.PROVENANCE)
    if not isinstance(text, str):
        return text
    try:
        document = json.loads(text)
    except ValueError as error:
        return Missing("unparsable", f"{host_paths.PROVENANCE}: {error}")
    return (
        document
        if isinstance(document, dict)
        else Missing("unparsable", f"{host_paths.PROVENANCE} is not a JSON object")
    )


def read_locked_clocks(path: Path = LOCKED_CLOCKS) -> Tuple[LockedClocks, ...]:
    """The clocks that `tune apply` locked; () if it locked none, or if its file is damaged."""
    text = read_text(path)
    if not isinstance(text, str):
        return ()
    try:
        return tuple(from_json_value(LockedClocks, item) for item in json.loads(text)["locked"])
    except (ValueError, KeyError, TypeError, DecodeError):
        return ()


def locked_clocks_document(locked: Tuple[LockedClocks, ...]) -> str:
    return json.dumps({"locked": [to_json_value(item) for item in locked]}, indent=1) + "\n"


def installed_agent_version(program: str = host_paths.AGENT_PROGRAM, home: Path = AGENT_HOME) -> OptStr:
    """The version of the agent under /opt, read from its sources; None without an agent."""
    if not Path(program).exists():
        return None
    for path in home.glob("current/lib/python3*/site-packages/gpuprep/__init__.py"):
        match = re.search(r'^__version__ = "([^"]+)"', path.read_text(), re.MULTILINE)
        return match.group(1) if match else Missing("unparsable", f"{path} names no version")
    text = run([program, "--version"])
    return text if isinstance(text, Missing) else text.split()[-1] if text.split() else Missing("unparsable", program)


def agent_libraries(home: Path = AGENT_HOME) -> Dict[str, OptStr]:
    """Name ─► version of the packages in the Python environment of the agent under /opt, from pip's folder names."""
    versions: Dict[str, OptStr] = {}
    for path in sorted(home.glob("current/lib/python3*/site-packages/*.dist-info")):
        name, _, version = path.name[: -len(".dist-info")].partition("-")
        versions[name.lower().replace("_", "-")] = version
    return versions


def driver_change() -> Union[DriverChange, Missing, None]:
    """A change of the driver that is open, or that the host undid; None without one."""
    try:
        journal, saved = kept.read_journal(), kept.read_saved()
    except PermissionError as error:
        return Missing("no_permission", str(error))
    except (kept.Damaged, OSError) as error:
        return Missing("unparsable", str(error))
    if journal is None:
        return None
    return DriverChange(
        status=journal.status,
        wanted=journal.wanted,
        before=saved.driver if saved and saved.worked else "",
        began=journal.began,
        ended=journal.ended,
        by=journal.by,
        cause=journal.cause,
        error=journal.error,
    )
