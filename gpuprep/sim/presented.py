"""Machines that present another system than the Debian below: what they say they are, and where they install from."""

from __future__ import annotations

from pathlib import Path

from gpuprep.sim import layer, rpmpresented
from gpuprep.sim.archive import repository, serving, stubs, systems
from gpuprep.sim.archive.systems import Presented
from gpuprep.sim.paths import Progress


def give(os_name: str, given: Path, progress: Progress = lambda _: None) -> None:
    """Puts the system's name and its stub archives into the layer below the machine's own disk."""
    if os_name in systems.rpm_systems():
        rpmpresented.give(os_name, given, progress)
        serving.offer(os_name, rpmpresented.archives(os_name))
        return
    archives = repository.folder(os_name, progress)
    if archives is not None:
        serving.offer(os_name, archives)
        for file in archives.rglob("*"):
            if file.is_file():
                layer.write(given, f"{repository.INSIDE}/{file.relative_to(archives)}", file.read_bytes())
    presents = systems.systems()[os_name].presents
    if presents is not None:
        layer.write(given, "usr/lib/os-release", os_release(presents))
        layer.write(given, "etc/lsb-release", lsb_release(presents))
        layer.write(given, "etc/apt/sources.list.d/ubuntu.sources", sources(presents))


def os_release(system: Presented) -> str:
    return (
        f'PRETTY_NAME="{system.name} {system.version} LTS (simulated)"\nNAME="{system.name}"\n'
        f'VERSION_ID="{system.version}"\nVERSION="{system.version} LTS"\nVERSION_CODENAME={system.codename}\n'
        f"ID={system.name.lower()}\nID_LIKE=debian\nUBUNTU_CODENAME={system.codename}\n"
    )


def lsb_release(system: Presented) -> str:
    return (
        f"DISTRIB_ID={system.name}\nDISTRIB_RELEASE={system.version}\nDISTRIB_CODENAME={system.codename}\n"
        f'DISTRIB_DESCRIPTION="{system.name} {system.version} LTS (simulated)"\n'
    )


def sources(system: Presented) -> str:
    """Its own archive beside Debian's: `main` alone, as a cloud image may have it."""
    return (
        f"Types: deb\nURIs: file:/{repository.INSIDE}/ubuntu\nSuites: {system.codename}\nComponents: main\n"
        f"Signed-By: /{repository.INSIDE}/key.asc\n"
    )


def mirrors(os_name: str) -> dict[str, str]:
    """NVIDIA's repository as a machine of this OS finds it, by HTTP where that is served, and the key that signs it."""
    system = systems.systems().get(os_name)
    if system is None or not system.archives:
        return {}
    key = str(repository.public_key())
    served = serving.address(os_name)
    place = served or f"file:///{repository.INSIDE}"
    locations = {"nvidia": f"{place}/{'/'.join(serving.NVIDIA)}" if served else f"{place}/nvidia", "nvidia_key": key}
    locations |= {"container_toolkit": f"{place}/container-toolkit", "container_toolkit_key": key}
    if system.rpm and system.rpm.dist in stubs.VAULTS:
        # Of EPEL the package that adds it, epel-release-latest-9.noarch.rpm; of the vault a folder for a minor release.
        locations |= {"epel": f"{place}/epel", "rocky_vault": f"{place}/vault", "almalinux_vault": f"{place}/vault"}
    return locations
