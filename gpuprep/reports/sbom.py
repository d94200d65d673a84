"""A software bill of materials of one host in CycloneDX 1.6 JSON: what a run found installed there.

It names what gpuprep installs and watches: kernel, driver, packages of the GPU's software, toolkit, cuDNN, FFmpeg with
its sources, the agent with its libraries, firmware. It does not list all packages, and says so (compositions:
incomplete). The same record gives the same document. All names and versions come from the host: unsafe characters are
escaped, and long texts are cut.

Plain dicts: cyclonedx-python-lib would bring several packages to each installation for this one format. Tests check the
document against its schema.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any
from urllib.parse import quote

from gpuprep.records import GpuFacts, OsFacts, RunRecord, Snapshot
from gpuprep.records.moments import moment
from gpuprep.reports.measured import simulated
from gpuprep.untrusted.plaintext import one_line

Component = dict[str, Any]

_MOST_LETTERS = 200  # of a name, a version, a property
_MOST_COMPONENTS = 2000
# ID and ID_LIKE of os-release ► the purl type of its packages.
_PACKAGES = {"debian": "deb", "ubuntu": "deb", "rhel": "rpm", "fedora": "rpm", "suse": "rpm"}
_COVERS = "what gpuprep installs and watches on a GPU host, not every package of the operating system"


def render(record: RunRecord) -> str:
    """The document as text; without components if the run has no facts of its host."""
    snapshot = record.after or record.before
    parts = _numbered(_components(snapshot) if snapshot else [])
    host: Component = {"type": "device", "bom-ref": "host", "name": _text(record.host) or "?"}
    metadata = {
        **_timestamp(record.ended_at),
        "lifecycles": [{"phase": "operations"}],
        "tools": {"components": [_part("application", "gpuprep", record.gpuprep_version)]},
        "component": host,
        "properties": _properties(
            run=record.run_id,
            command=record.command,
            profile=record.profile.name if record.profile else "",
            profile_sha256=record.profile.sha256 if record.profile else "",
            source="simulated: the GPU of this host is a stand-in" if simulated(record) else record.source.value,
            covers=_COVERS if snapshot else "nothing: the run ended before the host was read",
        ),
    }
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, "gpuprep:run:" + _text(record.run_id)).urn,
        "version": 1,
        "metadata": metadata,
        "components": parts,
        "dependencies": [{"ref": "host", "dependsOn": [part["bom-ref"] for part in parts]}],
        "compositions": [{"aggregate": "incomplete" if snapshot else "unknown", "assemblies": ["host"]}],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _components(snapshot: Snapshot) -> Iterator[Component]:
    proof: Mapping[str, Any] = snapshot.provenance if isinstance(snapshot.provenance, dict) else {}
    system = snapshot.os
    yield _part("operating-system", system.id, system.version_id, description=_text(system.pretty_name))
    yield _part("operating-system", "linux", snapshot.kernel.running, properties=_properties(kind="running kernel"))
    if isinstance(snapshot.driver.loaded_version, str):
        flavour = _properties(flavour=snapshot.driver.loaded_flavour)
        yield _part("device-driver", "nvidia", snapshot.driver.loaded_version, properties=flavour)
    origins = _mapping(proof.get("packages"))
    for name, package in sorted(snapshot.packages.items()):
        origin = _properties(archive=_mapping(origins.get(name)).get("from"), held="yes" if package.held else "")
        kind = "firmware" if name.startswith("firmware-") else "library"
        yield _part(kind, name, package.version, purl=_package(system, name, package.version), properties=origin)
    if isinstance(snapshot.cuda.nvcc_version, str):
        where = _properties(nvcc=snapshot.cuda.nvcc_path)
        yield _part("framework", "cuda-toolkit", snapshot.cuda.nvcc_version, properties=where)
    yield from _cudnn(snapshot, _mapping(proof.get("cudnn")))
    yield from _codec(snapshot, _mapping(proof.get("ffmpeg")))
    if isinstance(snapshot.agent_installed_version, str):
        yield _part("application", "gpuprep-agent", snapshot.agent_installed_version)
    for name, version in sorted(snapshot.agent_libraries.items()):
        if isinstance(version, str):
            yield _part(
                "library", name, version, purl=_wheel(name, version), properties=_properties(within="the agent")
            )
    for gpu in snapshot.gpus if isinstance(snapshot.gpus, tuple) else ():
        yield _gpu(gpu)


def _cudnn(snapshot: Snapshot, manifest: Mapping[str, Any]) -> Iterator[Component]:
    facts = snapshot.cudnn
    if isinstance(facts.wheel_version, str):
        name = f"nvidia-cudnn-cu{_text(facts.cuda_major)}"
        # The installation record is about this wheel only if it names the installed version.
        digest = manifest.get("wheel_sha256") if manifest.get("version") == facts.wheel_version else None
        purl = _wheel(name, facts.wheel_version)
        yield _part("library", name, facts.wheel_version, purl=purl, hashes=_sha256(digest))
    elif isinstance(facts.version, str):
        yield _part("library", "cudnn", facts.version, properties=_properties(path=facts.library_path))


def _codec(snapshot: Snapshot, manifest: Mapping[str, Any]) -> Iterator[Component]:
    facts = snapshot.codec
    same = isinstance(facts.build_key, str) and manifest.get("key") == facts.build_key
    known = _mapping(manifest.get("sources")) if same else {}
    headers: list[Component] = []
    if same and isinstance(manifest.get("headers_version"), str):
        headers = [_source("nv-codec-headers", manifest["headers_version"], known.get("headers"))]
    if isinstance(facts.ffmpeg_version, str):
        built = _properties(path=facts.ffmpeg_real_path, build_key=facts.build_key)
        part = _part("application", "ffmpeg", facts.ffmpeg_version, properties=built)
        part["purl"] = _purl("generic", "ffmpeg", facts.ffmpeg_version)
        if known:
            source = _source("ffmpeg", manifest.get("version"), known.get("ffmpeg"))
            part["pedigree"] = {"ancestors": [source, *headers]}
        yield part
    if isinstance(facts.headers_version, str):
        purl = _purl("generic", "nv-codec-headers", facts.headers_version)
        yield _part("library", "nv-codec-headers", facts.headers_version, purl=purl)


def _source(name: str, version: object, digest: object) -> Component:
    """What a build was made of: a published archive of sources."""
    return _part("file", f"sources of {name}", version, purl=_purl("generic", name, version), hashes=_sha256(digest))


def _gpu(gpu: GpuFacts) -> Component:
    part = _part("device", gpu.name, "", properties=_properties(uuid=gpu.uuid, pci=gpu.pci_address))
    if isinstance(gpu.vbios, str):
        part["components"] = [_part("firmware", f"VBIOS of {gpu.name}", gpu.vbios)]
    return part


# ---------------------------------------------------------------- the parts of a component


def _part(
    kind: str,
    name: str,
    version: object,
    *,
    purl: str = "",
    description: str = "",
    hashes: list[dict[str, str]] | None = None,
    properties: list[dict[str, str]] | None = None,
) -> Component:
    optional = {
        "version": _text(version),
        "description": description,
        "hashes": hashes,
        "purl": purl,
        "properties": properties,
    }
    return {"type": kind, "name": _text(name) or "?", **{key: value for key, value in optional.items() if value}}


def _numbered(parts: Iterable[Component]) -> list[Component]:
    """The components, each with its own reference, in the order of the document, up to a limit."""
    return [{**part, "bom-ref": f"part-{number}"} for number, part in enumerate(islice(parts, _MOST_COMPONENTS), 1)]


def _text(value: object) -> str:
    """A text of the host that can be shown; "" for a reading that failed and for what is no text."""
    return one_line(value, _MOST_LETTERS) if isinstance(value, str) else ""


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _properties(**values: object) -> list[dict[str, str]]:
    return [{"name": f"gpuprep:{name}", "value": text} for name, value in values.items() if (text := _text(value))]


def _sha256(digest: object) -> list[dict[str, str]]:
    if isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest):
        return [{"alg": "SHA-256", "content": digest}]
    return []


def _timestamp(ended_at: str) -> dict[str, str]:
    """The run's end in UTC, by RFC 3339; empty if it is no date."""
    ended = moment(ended_at)
    return {"timestamp": ended.isoformat(timespec="seconds")} if ended else {}


def _purl(kind: str, name: object, version: object, *, namespace: str = "", qualifiers: str = "") -> str:
    """A package URL: pkg:KIND/NAMESPACE/NAME@VERSION?QUALIFIERS, each part escaped; "" without a name."""
    words = [quote(_text(word), safe="") for word in (namespace, name) if _text(word)]
    if not _text(name):
        return ""
    at = f"@{quote(_text(version), safe='')}" if _text(version) else ""
    return f"pkg:{kind}/{'/'.join(words)}{at}{'?' + qualifiers if qualifiers else ''}"


def _wheel(name: str, version: str) -> str:
    return _purl("pypi", re.sub("[-_.]+", "-", name).lower(), version)


def _package(system: OsFacts, name: str, version: str) -> str:
    """The purl of a system package; "" if the kind of packages is not known.

    Without the architecture, because a record does not say which packages are for all architectures.
    """
    kind = next((_PACKAGES[word] for word in (system.id, *system.like) if word in _PACKAGES), "")
    if not kind:
        return ""
    qualifiers = f"distro={quote(_text(system.id) + '-' + _text(system.version_id), safe='')}"
    # In a deb's purl the epoch is part of the version, in an rpm's a qualifier.
    epoch, colon, rest = version.partition(":")
    if kind == "rpm" and colon and epoch.isdigit():
        version, qualifiers = rest, f"{qualifiers}&epoch={quote(epoch[:_MOST_LETTERS], safe='')}"
    return _purl(kind, name.lower(), version, namespace=system.id.lower(), qualifiers=qualifiers)
