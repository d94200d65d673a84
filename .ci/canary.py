"""Do the live archives still have what the catalogue says, for each release, architecture, source, version and flavour?

    python .ci/canary.py [--repository URL --key FILE] [RELEASE...]

For whoever reaches them: NVIDIA's repositories, Debian's archive and Ubuntu's. Uses the real apt in a folder of its
own, and reads the lists of rpm packages itself; this machine's packages and sources are not touched. Ends with 1 if
something is missing, with 0 otherwise. An archive that cannot be reached or proved is named; that is no failure of the
catalogue.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from canary_rpm import RpmRoot

from gpuprep import catalogue
from gpuprep.catalogue import OsRelease
from gpuprep.catalogue.agent import role_folder
from gpuprep.catalogue.packagenames import ARCHITECTURES, X86
from gpuprep.catalogue.roles import (
    cuda_packages,
    driver_packages,
    driver_pin_text,
    driver_stream,
    fabric_packages,
    has_full_libraries,
    keyring,
    prebuilt_packages,
    repository_key,
    rpm_key,
)
from gpuprep.sim import controller
from gpuprep.sim.archive.stubs import upstream

NVIDIA = "https://developer.download.nvidia.com/compute/cuda/repos"
CODENAMES = {
    "debian-12": "bookworm", "debian-13": "trixie", "ubuntu-22.04": "jammy", "ubuntu-24.04": "noble",
    "ubuntu-26.04": "resolute",
}  # fmt: skip
DISTRIBUTIONS = {
    "debian": ("http://deb.debian.org/debian", "http://security.debian.org/debian-security", "debian-archive-keyring"),
    "ubuntu": ("http://archive.ubuntu.com/ubuntu", "http://security.ubuntu.com/ubuntu", "ubuntu-archive-keyring"),
}
KERNELS = ("generic", "aws", "gcp", "azure")  # flavours that clouds' images have
SECONDS = 300
OWN_VERSIONS = ("nvidia-modprobe", "nvidia-persistenced")  # of Debian's archive; not the driver's


@dataclass(frozen=True)
class Source:
    uri: str
    suites: tuple[str, ...]  # ("/",): a flat repository
    components: tuple[str, ...]
    key: Path


class AptRoot:
    """The real apt in a folder of its own, with these sources and nothing installed."""

    def __init__(self, folder: Path, sources: Iterable[Source], architecture: str = X86) -> None:
        self.folder = folder
        for name in ("sources.list.d", "preferences.d", "apt.conf.d"):
            (folder / "etc" / name).mkdir(parents=True)
        for name in ("state/lists", "cache/archives"):
            (folder / name / "partial").mkdir(parents=True)
        (folder / "status").touch()
        for number, source in enumerate(sources):
            text = f"Types: deb\nURIs: {source.uri}\nSuites: {' '.join(source.suites)}\nSigned-By: {source.key}\n"
            text += f"Components: {' '.join(source.components)}\n" if source.components else ""
            (folder / f"etc/sources.list.d/{number}.sources").write_text(text)
        self.options = [
            f"-oDir::Etc={folder}/etc", f"-oDir::State={folder}/state", f"-oDir::Cache={folder}/cache",
            f"-oDir::State::status={folder}/status", "-oDir::Etc::trustedparts=/nonexistent",
            "-oAPT::Sandbox::User=root", f"-oAPT::Architecture={ARCHITECTURES[architecture]['deb']}",
            "-oAcquire::Languages=none", "-oAcquire::Retries=2",
        ]  # fmt: skip

    def run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [program, *self.options, *words]
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS, env=environment)

    def update(self) -> str:
        """ "" or why the lists cannot be had or believed."""
        done = self.run("apt-get", "update", "--error-on=any")
        return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["apt-get update failed"])[-1]

    def offers(self, names: Sequence[str]) -> dict[str, set[str]]:
        """Name ► the package versions that are offered."""
        found: dict[str, set[str]] = {name: set() for name in names}
        for line in self.run("apt-cache", "madison", *names).stdout.splitlines():
            name, version = (field.strip() for field in line.split("|")[:2])
            found.setdefault(name, set()).add(version)
        return found

    def pin(self, version: str) -> None:
        """As the role gpu_driver pins it."""
        (self.folder / "etc/preferences.d/gpuprep-nvidia").write_text(driver_pin_text(version))

    def candidates(self, names: Sequence[str]) -> dict[str, str]:
        """Name ► the version that apt would install."""
        found, name = {}, ""
        for line in self.run("apt-cache", "policy", *names).stdout.splitlines():
            word, _, value = line.strip().partition(":")
            if not line.startswith(" "):
                name = word
            elif word == "Candidate":
                found[name] = value.strip()
        return found


def sources_of(release: OsRelease, source: str, repository: str, key: Path) -> list[Source]:
    if source == "nvidia":
        return [Source(f"{repository}/{catalogue.nvidia_path(release)}/", ("/",), (), key)]
    distribution, codename = release.key.partition("-")[0], CODENAMES[release.key]
    archive, security, keyring = DISTRIBUTIONS[distribution]
    if distribution == "debian":  # the mirrors that this machine itself uses, where it has some
        own = controller.mirrors()
        archive, security = own.debian or archive, own.security or security
    proof = Path(f"/usr/share/keyrings/{keyring}.gpg")
    variables = yaml.safe_load(
        (role_folder("gpu_driver") / f"vars/{distribution.title()}.yml").read_text(encoding="utf-8")
    )
    components = tuple(variables["gpu_driver_sources"]["distribution"]["components"])
    return [
        Source(archive, (codename, f"{codename}-updates"), components, proof),
        Source(security, (f"{codename}-security",), components, proof),
    ]


def _without_prebuilt(
    root: AptRoot | RpmRoot, release: OsRelease, source: str, driver: catalogue.ArchiveDriver
) -> list[str]:
    if str(catalogue.branch(driver.version)) not in release.sources[source].prebuilt:
        return []
    wrong = []
    for flavour in driver.modules:
        names = prebuilt_packages(release, source, flavour, driver.version, KERNELS)
        absent = [name for name, versions in root.offers(names).items() if not versions]
        wrong += [f"prebuilt modules of driver {driver.version} {flavour}: no {', '.join(absent)}"] if absent else []
    return wrong


def lacking(root: AptRoot | RpmRoot, release: OsRelease, source: str) -> list[str]:
    """What the catalogue says that this source does not offer, one sentence each; proves apt's pin on the way."""
    wrong = []
    offer = release.sources[source]
    for driver in offer.drivers:
        for flavour in driver.modules:
            full = "full" if has_full_libraries(release, source, driver.version) else "compute"
            names = driver_packages(release, source, flavour, driver.version, libraries=full)
            found = root.offers(names)
            own = OWN_VERSIONS if source == "distribution" else ()
            absent = [name for name in names if name not in own and driver.version not in map(upstream, found[name])]
            if absent:
                wrong.append(f"driver {driver.version} {flavour}: no {', '.join(absent)}")
            elif source == "nvidia" and isinstance(root, AptRoot):
                wrong += _unpinned(root, names, driver.version, found)
            stream = driver_stream(release, source, flavour, driver.version)
            if isinstance(root, RpmRoot) and stream and stream not in root.streams:
                wrong.append(f"driver {driver.version} {flavour}: no stream {stream} of the module nvidia-driver")
        wrong += _without_fabric(root, release, source, driver) + _without_prebuilt(root, release, source, driver)
    for version in offer.cuda:
        absent = [
            name for name, versions in root.offers(cuda_packages(release, source, version)).items() if not versions
        ]
        if absent:
            wrong.append(f"CUDA {version}: no {', '.join(absent)}")
    return wrong


def _without_fabric(
    root: AptRoot | RpmRoot, release: OsRelease, source: str, driver: catalogue.ArchiveDriver
) -> list[str]:
    if not driver.fabric_manager or not catalogue.has_fabric_manager(release.key.rpartition("-")[0], source):
        return []
    found = root.offers(fabric_packages(release, source, driver.version))
    absent = [name for name, versions in found.items() if driver.version not in map(upstream, versions)]
    return [f"driver {driver.version}: no {', '.join(absent)} of this version"] if absent else []


def _unpinned(root: AptRoot, names: Sequence[str], version: str, found: Mapping[str, set[str]]) -> list[str]:
    root.pin(version)
    moved = [
        f"{name} to {to}" for name, to in root.candidates(names).items() if upstream(to) != version and found[name]
    ]
    return [f"driver {version}: the pin has no effect on {', '.join(moved)}"] if moved else []


def _keyring(address: str, sha256: str) -> bytes:
    """The key in NVIDIA's package of it, which must have this sha256; empty otherwise, and apt says that it is none."""
    with urllib.request.urlopen(address, timeout=SECONDS) as answer:
        content = answer.read(1 << 20)
    if hashlib.sha256(content).hexdigest() != sha256:
        return b""
    words = ["sh", "-c", "dpkg-deb --fsys-tarfile /dev/stdin | tar -xO ./usr/share/keyrings/cuda-archive-keyring.gpg"]
    return subprocess.run(words, input=content, capture_output=True, check=True).stdout


def root_of(folder: Path, release: OsRelease, source: str, repository: str, key: Path | None) -> AptRoot | RpmRoot:
    if not release.rpm:
        package, sha256 = keyring(release) if source == "nvidia" and key is None else ("", "")
        if package:
            key = folder.with_suffix(".gpg")
            key.write_bytes(_keyring(f"{repository}/{package}", sha256))
        sources = sources_of(release, source, repository, key or repository_key(release))
        return AptRoot(folder, sources, release.architecture)
    key_file, pin = rpm_key(release)
    return RpmRoot(folder, f"{repository}/{catalogue.nvidia_path(release)}/", key, pin, key_file)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repository", default=NVIDIA, help="NVIDIA's repository, or a mirror of it")
    parser.add_argument("--key", type=Path, help="the key that signs it; without it NVIDIA's own")
    parser.add_argument("release", nargs="*", help="debian-12, ubuntu-24.04, ...; default: all")
    chosen = parser.parse_args()
    code = 0
    served = [(name, one) for name in ARCHITECTURES for one in catalogue.archives(name).values()]
    for release in [one for name, one in served if one.architecture == name]:
        for source in release.sources if not chosen.release or release.key in chosen.release else ():
            if release.rpm and source != "nvidia":
                print(f"{release.system}, {source}: not asked: a machine of its own finds that address")
                continue
            with tempfile.TemporaryDirectory(prefix="gpuprep-canary-") as folder:
                root = root_of(Path(folder), release, source, chosen.repository.rstrip("/"), chosen.key)
                why = root.update()
                wrong = [] if why else lacking(root, release, source)
            state = f"not asked: {why}" if why else "as the catalogue says" if not wrong else "differs"
            print(f"{release.system}, {source}: {state}")
            for line in wrong:
                print(f"  {line}")
                code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
