"""Spec files of stub RPM packages: one makes many packages, since a process for each would take minutes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gpuprep.sim.archive.payload import Payload
from gpuprep.sim.archive.stubs import Stub

# A relation in the data files ► in a spec file.
RELATIONS = {
    "depends": "Requires",
    "recommends": "Recommends",
    "provides": "Provides",
    "conflicts": "Conflicts",
    "obsoletes": "Obsoletes",
}
SPEC = """\
%global debug_package %{nil}
%global __os_install_post %{nil}
%global _build_id_links none
%define _binary_payload w1.gzdio
%define _rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm
Name: gpuprep-stubs
Version: 1
Release: 1
Summary: stubs
License: Apache-2.0
%description
%install
"""


@dataclass
class Batch:
    """Packages that one spec file can make: no name twice, and no file that is different in two of them."""

    packages: list[tuple[Stub, Payload]] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)

    def takes(self, stub: Stub, content: Payload) -> bool:
        paths = set(_paths(content))
        if stub.name in self.names or paths & self.paths:
            return False
        self.packages.append((stub, content))
        self.names.add(stub.name)
        self.paths |= paths
        return True


def batches(packages: Iterable[tuple[Stub, Payload]]) -> list[Batch]:
    all_batches: list[Batch] = []
    for stub, content in packages:
        if not any(batch.takes(stub, content) for batch in all_batches):
            all_batches.append(Batch())
            all_batches[-1].takes(stub, content)
    return all_batches


def _paths(content: Payload) -> list[str]:
    return [*content.texts, *content.libraries, *content.modules, *content.links, *filter(None, [content.smi])]


def evr(version: str) -> tuple[str, str, str]:
    """ "3:580.95.05-1.el9" ► "3", "580.95.05", "1.el9"."""
    epoch, _, rest = version.rpartition(":")
    number, _, release = rest.rpartition("-")
    return epoch or "0", number, release


def file_name(stub: Stub) -> str:
    _, number, release = evr(stub.version)
    return f"{stub.name}-{number}-{release}.{stub.architecture}.rpm"


def nevra(stub: Stub) -> str:
    epoch, number, release = evr(stub.version)
    return f"{stub.name}-{epoch}:{number}-{release}.{stub.architecture}"


def _section(stub: Stub, content: Payload) -> str:
    epoch, number, release = evr(stub.version)
    lines = [f"%package -n {stub.name}", f"Version: {number}", f"Release: {release}"]
    lines += [f"Epoch: {epoch}"] if epoch != "0" else []
    lines += ["Summary: stand-in of a simulated machine (gpuprep sim)", "AutoReqProv: no"]
    lines += ["BuildArch: noarch"] if stub.architecture == "noarch" else []
    lines += [
        f"{RELATIONS[name]}: {word}" for name, words in stub.relations.items() for word in words if name in RELATIONS
    ]
    lines += [f"%description -n {stub.name}", "A stand-in of a simulated machine (gpuprep sim)."]
    for name, text in content.scripts.items():
        lines += [f"%{name} -n {stub.name}", text.rstrip("\n").replace("%", "%%")]
    lines += [f"%files -n {stub.name}"]
    owned = sorted({str(parent) for path in _paths(content) for parent in Path(path).parents if _is_own(parent)})
    lines += [f'%dir "/{folder}"' for folder in owned]
    for path in sorted(_paths(content)):
        lines.append(f'{"%config(noreplace) " if path.startswith("etc/") else ""}"/{path}"')
    return "\n".join(lines) + "\n"


def _is_own(folder: Path) -> bool:
    """Folders of one kernel, module or toolkit go with their package."""
    name = str(folder)
    return name.startswith(("usr/lib/modules/", "usr/src/", "usr/local/cuda-")) and name != "usr/src/kernels"


def text(batch: Batch, tree: str) -> str:
    """The spec file of these packages, whose files lie below `tree`."""
    sections = [_section(stub, content) for stub, content in batch.packages]
    return "".join([SPEC, f"cp -a {tree}/. %{{buildroot}}/\n", *sections])
