"""Machines that present another system than the Debian below: what they say they are, and where they install from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpuprep.sim import layer, rpmpresented, rpmsystems
from gpuprep.sim.archive import repository, serving, stubs
from gpuprep.sim.paths import Progress


@dataclass(frozen=True)
class Presented:
    name: str  # "Ubuntu"
    version: str  # "24.04"
    codename: str

    @property
    def os_release(self) -> str:
        return (
            f'PRETTY_NAME="{self.name} {self.version} LTS (simulated)"\nNAME="{self.name}"\n'
            f'VERSION_ID="{self.version}"\nVERSION="{self.version} LTS"\nVERSION_CODENAME={self.codename}\n'
            f"ID={self.name.lower()}\nID_LIKE=debian\nUBUNTU_CODENAME={self.codename}\n"
        )

    @property
    def lsb_release(self) -> str:
        return (
            f"DISTRIB_ID={self.name}\nDISTRIB_RELEASE={self.version}\nDISTRIB_CODENAME={self.codename}\n"
            f'DISTRIB_DESCRIPTION="{self.name} {self.version} LTS (simulated)"\n'
        )

    @property
    def sources(self) -> str:
        """Its own archive beside Debian's: `main` alone, as a cloud image may have it."""
        return (
            f"Types: deb\nURIs: file:/{repository.INSIDE}/ubuntu\nSuites: {self.codename}\nComponents: main\n"
            f"Signed-By: /{repository.INSIDE}/key.asc\n"
        )


PRESENTED = {
    "ubuntu2204": Presented("Ubuntu", "22.04", "jammy"),
    "ubuntu2404": Presented("Ubuntu", "24.04", "noble"),
}


def give(os_name: str, given: Path, progress: Progress = lambda _: None) -> None:
    """Puts the system's name and its stub archives into the layer below the machine's own disk."""
    if os_name in rpmsystems.names():
        rpmpresented.give(os_name, given, progress)
        serving.offer(os_name, rpmpresented.archives(os_name))
        return
    archives = repository.folder(os_name, progress)
    if archives is not None:
        serving.offer(os_name, archives)
        for file in archives.rglob("*"):
            if file.is_file():
                layer.write(given, f"{repository.INSIDE}/{file.relative_to(archives)}", file.read_bytes())
    system = PRESENTED.get(os_name)
    if system is not None:
        layer.write(given, "usr/lib/os-release", system.os_release)
        layer.write(given, "etc/lsb-release", system.lsb_release)
        layer.write(given, "etc/apt/sources.list.d/ubuntu.sources", system.sources)


def mirrors(os_name: str) -> dict[str, str]:
    """NVIDIA's repository as a machine of this OS finds it, by HTTP where that is served, and the key that signs it."""
    if not stubs.ARCHIVES.get(os_name) and os_name not in rpmsystems.names():
        return {}
    key = str(repository.public_key())
    served = serving.address(os_name)
    place = served or f"file:///{repository.INSIDE}"
    locations = {"nvidia": f"{place}/{'/'.join(serving.NVIDIA)}" if served else f"{place}/nvidia", "nvidia_key": key}
    locations |= {"container_toolkit": f"{place}/container-toolkit", "container_toolkit_key": key}
    if os_name in rpmsystems.names() and rpmsystems.systems()[os_name].dist in stubs.VAULTS:
        # Of EPEL the package that adds it, epel-release-latest-9.noarch.rpm; of the vault a folder for a minor release.
        locations |= {"epel": f"{place}/epel", "rocky_vault": f"{place}/vault", "almalinux_vault": f"{place}/vault"}
    return locations
