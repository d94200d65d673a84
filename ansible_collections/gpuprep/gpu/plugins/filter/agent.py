"""The agent's sources as one bundle, and a name that tells two bundles apart."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import re
import runpy
import zipfile
from collections.abc import Sequence
from pathlib import Path

from ansible.errors import AnsibleFilterError

# Inside the package: patterns of all that the agent consists of.
PARTS = "agent/parts.py"


def agent_package(collection: str) -> str:
    """The folder of the package gpuprep: beside this collection, as in gpuprep itself, or where this Python imports it from."""
    beside = Path(collection).resolve().parents[2] / "gpuprep"
    if (beside / PARTS).is_file():
        return str(beside)
    found = importlib.util.find_spec("gpuprep")
    if found is None or found.origin is None:
        raise AnsibleFilterError(
            "gpuprep is not installed where Ansible runs, and its agent is part of it: pip install gpuprep"
        )
    return str(Path(found.origin).parent)


def _files(package: str, which: str = "INSTALLED") -> dict[str, bytes]:
    root = Path(package)
    parts = runpy.run_path(str(root / PARTS))[which]
    found = sorted({path for part in parts for path in root.glob(part)})
    return {f"gpuprep/{path.relative_to(root).as_posix()}": path.read_bytes() for path in found}


def agent_digest(package: str) -> str:
    """12 hex digits of the sources; the host computes the same over what it has (files/agent_state.py)."""
    digest = hashlib.sha256()
    for name, content in _files(package).items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:12]


def agent_bundle(package: str) -> str:
    """A zip of the sources in base64."""
    return _zip(_files(package))


def rollback_program(package: str) -> str:
    """The program of the way back (agent/rollback), as one file that Python runs, in base64. The same sources make the same bytes."""
    files = _files(package, "ROLLBACK")
    return _zip({**files, "__main__.py": files["gpuprep/agent/rollback/__main__.py"]})


def _zip(files: dict[str, bytes]) -> str:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in files.items():
            bundle.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return base64.b64encode(buffer.getvalue()).decode()


def agent_version(package: str) -> str:
    match = re.search(r'^__version__ = "([^"]+)"', (Path(package) / "__init__.py").read_text(), re.MULTILINE)
    if not match:
        raise ValueError(f"{package}/__init__.py names no __version__")
    return match.group(1)


def agent_requirements(role: str, cuda_major: str, lacks: Sequence[str] = ()) -> str:
    """The requirements of the agent's environment, pinned by hash: the role's base.txt and that of the toolkit's major
    version ("12"; any that is not known brings nothing more). `lacks`: packages without a wheel for the system's Python."""
    folder = Path(role) / "files/requirements"
    known = {path.name: path for path in folder.glob("cuda*.txt")}
    toolkit = known.get(f"cuda{cuda_major}.txt")
    text = "".join(path.read_text() for path in (folder / "base.txt", toolkit) if path)
    for name in lacks:
        text = re.sub(rf"(?m)^{re.escape(name)}==[^\n]*\n(?:    --hash=[^\n]*\n)*", "", text)
    return text


def agent_pins(requirements: str) -> list[str]:
    """The "name==version" of a requirements file, without its hashes and comments."""
    return re.findall(r"^([\w.-]+==[\w.+!]+)", requirements, re.MULTILINE)


# What a Python environment has of its own.
ENVIRONMENT = ("pip", "setuptools", "wheel")


def agent_libraries_differ(installed: dict[str, str], wanted: list[str]) -> list[str]:
    """Names that are absent, of another version than wanted ("psutil==7.2.2"; without one any does), or too many."""
    pins = dict(requirement.partition("==")[::2] for requirement in wanted)
    names = {re.split(r"[<>=~! \[]", name)[0].lower().replace("_", "-"): version for name, version in pins.items()}
    absent = {name for name in names if name not in installed}
    other = {name for name, version in names.items() if name in installed and version not in ("", installed[name])}
    return sorted(absent | other | (installed.keys() - names.keys() - set(ENVIRONMENT)))


class FilterModule:
    def filters(self) -> dict[str, object]:
        return {
            "agent_bundle": agent_bundle,
            "agent_digest": agent_digest,
            "agent_libraries_differ": agent_libraries_differ,
            "agent_package": agent_package,
            "agent_pins": agent_pins,
            "agent_requirements": agent_requirements,
            "agent_version": agent_version,
            "rollback_program": rollback_program,
        }
