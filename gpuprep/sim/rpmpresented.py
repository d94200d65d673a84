"""Presents a machine as an RPM system: its name, repositories, kernel, and rpm's database of its packages."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from gpuprep.sim import layer, rpmrepository
from gpuprep.sim.archive import repository, rpmpayload, rpmspec, stubs, systems
from gpuprep.sim.archive.payload import Payload
from gpuprep.sim.archive.stubs import Stub
from gpuprep.sim.archive.systems import RpmSystem
from gpuprep.sim.paths import Progress

# By these dnf knows which package says the release.
SYSTEM_RELEASE = ("system-release", "system-release(releasever)", "redhat-release")


def give(os_name: str, given: Path, progress: Progress = lambda _: None) -> None:
    """Puts all of it into the layer below the machine's own disk."""
    shutil.copytree(archives(os_name, progress), given / rpmpayload.INSIDE, dirs_exist_ok=True)
    shutil.copytree(system(os_name, progress), given, symlinks=True, dirs_exist_ok=True)


def archives(os_name: str, progress: Progress = lambda _: None) -> Path:
    """The stub archives of a system and its kin."""
    return rpmrepository.folder(_archives(os_name), progress)


def _archives(os_name: str) -> tuple[stubs.Archive, ...]:
    return systems.systems()[os_name].archives


def system(os_name: str, progress: Progress = lambda _: None) -> Path:
    """The files of what a machine has from the beginning, with rpm's database of it; made once."""
    parts = [repr(systems.rpm_systems()[os_name]), Path(__file__).read_text(), repository.public_key().read_text()]
    digest = hashlib.sha256("\0".join([rpmrepository.digest(_archives(os_name)), *parts]).encode()).hexdigest()[:12]
    what = f"the packages that {os_name} begins with"
    return repository.made(f"{os_name}-system-{digest}", what, lambda making: _fill(os_name, making), progress)


def _fill(os_name: str, making: Path) -> None:
    rpm_system = systems.rpm_systems()[os_name]
    packages = [
        archives(os_name) / archive.folder / rpmspec.file_name(stub)
        for archive in _archives(os_name)
        for stub in stubs.stubs(archive)
        if stub.installed
    ]
    rpmrepository.install(making, packages, [release(rpm_system)])
    for kernel in (making / "boot").glob("vmlinuz-*"):
        image = f"boot/initramfs-{kernel.name.partition('-')[2]}.img"
        layer.write(making, image, "a stand-in for an initramfs\n", 0o600)


def release(system: RpmSystem) -> tuple[Stub, Payload]:
    """The package that says which system it is, with the system's repositories."""
    version = system.release.version
    number = version.split("-")[0]
    major = number if system.dist == "amzn2023" else number.split(".")[0]
    values = {"system-release": number, "system-release(releasever)": major, "redhat-release": number}
    provides = tuple(f"{name} = {values[name]}" for name in SYSTEM_RELEASE)
    key = f"etc/pki/rpm-gpg/{system.key}"
    texts = {
        "usr/lib/os-release": os_release(system),
        f"etc/{system.release.file}": f"{system.release.text}\n",
        key: repository.public_key().read_text(),
    }
    others = ("system-release",) if system.dist == "amzn2023" else ("system-release", "redhat-release")
    links = {f"etc/{name}": system.release.file for name in others if name != system.release.file}
    title = system.os_release["NAME"]
    for file, entries in system.repositories.items():
        texts[f"etc/yum.repos.d/{file}"] = "\n".join(
            rpmpayload.repository(name, f"{title}: {name}", folder, enabled=name not in system.disabled, key=key)
            for name, folder in entries.items()
        )
    content = Payload(texts={name: (text, False) for name, text in texts.items()}, links=links)
    return Stub(system.release.package, version, "noarch", {"provides": provides}), content


def os_release(system: RpmSystem) -> str:
    values = {**system.os_release, "PRETTY_NAME": f"{system.os_release['PRETTY_NAME']} (simulated)"}
    return "".join(f'{key}="{value}"\n' for key, value in values.items())
