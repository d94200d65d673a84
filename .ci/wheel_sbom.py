"""Puts a bill of materials into the wheel: CycloneDX 1.6 JSON at gpuprep-VERSION.dist-info/sboms/gpuprep.cdx.json.

It names gpuprep, what it requires, what built it, the packages that its roles install on hosts, and the JavaScript
that its pages contain, with their hashes.
The same sources give the same document, whenever and wherever it is made.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import tempfile
import uuid
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

AGENT = "gpuprep/catalogue/agent.py"
BUILD = ".ci/requirements-build.txt"
# A table of npm packages: folder, package and file, version, licence, sha256 of the file.
VENDORED = "gpuprep/trace/page/vendor/README.md"
CUDA_MAJORS = ("11", "12", "13")
# Of a build whose sources have no date: the one that hatchling takes then.
NO_DATE = "1580601600"


def purl(name: str, version: str = "") -> str:
    return f"pkg:pypi/{re.sub('[-_.]+', '-', name).lower()}{'@' + version if version else ''}"


def component(name: str, version: str, sha256: tuple[str, ...], scope: str, why: str) -> dict[str, Any]:
    """One package; its hashes are those of the wheels that may be taken, one for each Python and machine."""
    return {
        "type": "library",
        "bom-ref": f"{scope}:{name}=={version}",
        "name": name,
        "version": version,
        "scope": scope,
        "purl": purl(name, version),
        "properties": [
            {"name": "gpuprep:why", "value": why},
            *({"name": "gpuprep:wheel_sha256", "value": digest} for digest in sha256),
        ],
    }


def required(requirement: str) -> dict[str, Any]:
    """A package that pip brings when it installs gpuprep; its version is not gpuprep's to say."""
    name = re.split(r"[^A-Za-z0-9._-]", requirement)[0]
    return {
        "type": "library",
        "bom-ref": f"required:{name}",
        "name": name,
        "scope": "required",
        "purl": purl(name),
        "properties": [{"name": "gpuprep:requires", "value": requirement}],
    }


def vendored(table: str) -> list[dict[str, Any]]:
    """The npm packages of a table as in VENDORED."""
    rows = re.findall(
        r"^\| [\w.-]+ \| `([\w.-]+)`, `[^`]+` \| ([\w.]+) \| ([\w.-]+) [^|]*\| `([0-9a-f]{64})` \|", table, re.M
    )
    return [
        {
            "type": "library",
            "bom-ref": f"page:{name}=={version}",
            "name": name,
            "version": version,
            "scope": "required",
            "hashes": [{"alg": "SHA-256", "content": digest}],
            "licenses": [{"license": {"id": licence}}],
            "purl": f"pkg:npm/{name}@{version}",
            "properties": [{"name": "gpuprep:why", "value": "in the page of gpuprep trace"}],
        }
        for name, version, licence, digest in rows
    ]


def bill(root: Path, version: str, requirements: list[str], moment: int) -> str:
    """The document as text; `moment` is in seconds since 1970."""
    agent = runpy.run_path(str(root / AGENT))
    needs = [required(requirement) for requirement in sorted(requirements)]
    installed: dict[str, dict[str, Any]] = {}
    for major in CUDA_MAJORS:
        for name, pin in agent["agent_pins"](major).items():
            part = component(name, pin.version, pin.sha256, "optional", "the agent on a host")
            installed[part["bom-ref"]] = part
    tools = [
        component(name, pin.version, pin.sha256, "excluded", "built this wheel")
        for name, pin in agent["read_pins"]((root / BUILD).read_text(encoding="utf-8")).items()
    ]
    pages = vendored((root / VENDORED).read_text(encoding="utf-8"))
    gpuprep = {
        "type": "application",
        "bom-ref": "gpuprep",
        "name": "gpuprep",
        "version": version,
        "purl": purl("gpuprep", version),
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(moment, timezone.utc).isoformat(),
            "lifecycles": [{"phase": "build"}],
            "component": gpuprep,
        },
        "components": [*needs, *(installed[name] for name in sorted(installed)), *pages, *tools],
        "dependencies": [{"ref": "gpuprep", "dependsOn": [need["bom-ref"] for need in needs]}],
        # What the required packages need themselves is decided when gpuprep is installed.
        "compositions": [{"aggregate": "incomplete", "dependencies": ["gpuprep"]}],
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True))
    return json.dumps({**document, "serialNumber": number.urn}, indent=2) + "\n"


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """hatchling's hook, found by its name."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        moment = int(os.environ.get("SOURCE_DATE_EPOCH") or NO_DATE)
        text = bill(Path(self.root), self.metadata.version, self.metadata.core.dependencies, moment)
        self._scratch = tempfile.TemporaryDirectory(prefix="gpuprep-sbom-")
        path = Path(self._scratch.name, "gpuprep.cdx.json")
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)
        build_data["sbom_files"].append(str(path))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        if version != "editable":
            self._scratch.cleanup()
