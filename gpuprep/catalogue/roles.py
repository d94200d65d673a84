"""What the roles install by name: their own data, so that what is checked and held is what was installed.

Only where the playbooks are: on the controller, not on a host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import OsRelease, datafile, packagenames
from gpuprep.catalogue.agent import role_folder


def driver_packages(
    release: OsRelease,
    source: str,
    flavour: str,
    version: str,
    *,
    modules: str = "dkms",
    libraries: str = "compute",
) -> tuple[str, ...]:
    """Packages of the driver that the role gpu_driver installs and holds: source "nvidia", "open", "580.178.04"."""
    data = _driver(release, source, version)
    prebuilt = modules == "prebuilt" or not release.sources[source].dkms
    kernel = data["prebuilt_packages" if prebuilt else "kernel_packages"][flavour]
    full = data["full_packages"] if libraries == "full" else ()
    return (*kernel, *data["library_packages"], *full, *data["tool_packages"])


def driver_tools(release: OsRelease, source: str, version: str) -> tuple[str, ...]:
    """Those of driver_packages that have versions of their own, as Debian's nvidia-modprobe."""
    return tuple(_driver(release, source, version)["tool_packages"])


def has_full_libraries(release: OsRelease, source: str, version: str) -> bool:
    """Whether the role gpu_driver knows the packages for displays, OpenGL and Vulkan of this driver."""
    return bool(_driver(release, source, version).get("full_packages"))


def prebuilt_packages(
    release: OsRelease, source: str, flavour: str, version: str, kernels: Sequence[str]
) -> tuple[str, ...]:
    """Prebuilt modules for these flavours of kernels ("aws"), which have the kernel's version and are not held."""
    return packagenames.prebuilt(_driver(release, source, version)["prebuilt_modules"][flavour], kernels)


def names_of_branch(release: OsRelease, source: str, branch: int) -> dict[str, Any]:
    """All names that the role gpu_driver has for a branch; equal for branches whose packages are called alike."""
    return _driver(release, source, str(branch))


def driver_stream(release: OsRelease, source: str, flavour: str, version: str) -> str:
    """The stream of dnf's module nvidia-driver that the role gpu_driver enables; "" where the source has none."""
    return str(_driver(release, source, version).get("streams", {}).get(flavour, ""))


def driver_pin_text(version: str) -> str:
    """The file of pins that the role gpu_driver writes for an exact version of the driver."""
    return _template("gpu_driver", {"gpu_driver_pin": version})


def fabric_packages(release: OsRelease, source: str, version: str) -> tuple[str, ...]:
    """What machines with an NVSwitch get besides: Fabric Manager and its libraries."""
    return tuple(_driver(release, source, version)["fabric_packages"])


def repository_key(release: OsRelease) -> Path:
    """The key that the role gpu_driver believes of NVIDIA's repository of deb packages, if no keyring() has it."""
    own = _variables("gpu_driver", release.roles).get("gpu_driver_apt_key")
    name: str = own or _variables("gpu_driver", "main")["gpu_driver_nvidia_own_key"]
    return role_folder("gpu_driver") / "files" / name


def keyring(release: OsRelease) -> tuple[str, str]:
    """NVIDIA's package with its repository's key, by its path there, and its sha256; ("", ""): the role has the key."""
    own = _variables("gpu_driver", release.roles)
    return own.get("gpu_driver_apt_keyring", ""), own.get("gpu_driver_apt_keyring_sha256", "")


def python_lacks(release: OsRelease) -> tuple[str, ...]:
    """Libraries of the agent of which there is no wheel for this release's Python."""
    return tuple(_variables("gpu_preflight", release.roles).get("gpu_preflight_python_lacks", ()))


def upstream(role: str, variable: str) -> str:
    """Where a role gets something from unless a mirror is named: "gpu_driver", "gpu_driver_nvidia_url"."""
    return str(datafile.read(role_folder(role) / "defaults" / "main.yml")[variable])


def redirects() -> Mapping[str, Sequence[str]]:
    """Host ► the hosts that a download from there may be led to."""
    found: Mapping[str, Sequence[str]] = datafile.read(role_folder("gpu_preflight") / "defaults" / "main.yml")[
        "gpu_preflight_redirects"
    ]
    return found


def rpm_key(release: OsRelease) -> tuple[str, str]:
    """The key that NVIDIA signs rpm packages with: its file's name in the repository, and what it is trusted by.

    That is its fingerprint, or the sha256 of its file without the line "Version: ...".
    """
    data = {**_variables("gpu_driver", "main"), **_variables("gpu_driver", release.roles)}
    return str(data["gpu_driver_rpm_key_file"]), str(data["gpu_driver_rpm_key_pin"])


def vault(release: OsRelease, base: str, minor: str) -> str:
    """Where a system keeps the packages of an earlier minor release, "9.6"; `base`: its vault's address."""
    _, slash, folder = str(_variables("gpu_preflight", release.roles)["gpu_preflight_vault"]).partition("/\\1/")
    place = folder.replace("{{ ansible_facts.architecture }}", release.architecture)
    return base.rstrip("/") + slash.replace("\\1", minor) + place


def release_package(release: OsRelease) -> str:
    """The package that adds the repository with the driver, where the system has such a package (Amazon, AlmaLinux)."""
    return str(_driver_variables(release).get("gpu_driver_release_packages", {}).get(release.title.split(" ")[0], ""))


def driver_components(release: OsRelease) -> tuple[str, ...]:
    """Components of the system's own archive that the role gpu_driver adds to apt's sources."""
    return tuple(_driver_variables(release)["gpu_driver_sources"]["distribution"]["components"])


def cuda_packages(release: OsRelease, source: str, version: str) -> tuple[str, ...]:
    """Packages of the toolkit that the role gpu_cuda installs and holds: source "nvidia", "12.8"."""
    return tuple(_cuda(release, source, version)["packages"])


def cuda_compiler(release: OsRelease, source: str, version: str) -> tuple[str, ...]:
    """What the role gpu_cuda installs for nvcc to compile with."""
    return tuple(_cuda(release, source, version)["compiler"])


def names_cuda_by_version(release: OsRelease, source: str) -> bool:
    """Whether the packages of this source have the toolkit's version in their names, so that any version has a name."""
    packages = _variables("gpu_cuda", release.roles)["gpu_cuda_sources"][source]["packages"]
    return any("{dashed}" in name for name in packages)


def cuda_pin(release: OsRelease, source: str, version: str) -> tuple[tuple[str, ...], str]:
    """Packages with one name for all versions of the toolkit, and what the role gpu_cuda has apt keep them to."""
    data = _cuda(release, source, version)
    return tuple(data.get("pinned", ())), str(data.get("pin", ""))


def cuda_pin_text(pinned: Sequence[str], pin: str) -> str:
    """The file of pins that the role gpu_cuda writes."""
    words = {"gpu_cuda_data.pinned | join(' ')": " ".join(pinned), "gpu_cuda_data.pin": pin}
    return _template("gpu_cuda", words)


def loader_list_text(cudnn_prefix: str) -> str:
    """The loader's list that the role gpu_cudnn writes; tests compare."""
    return (
        "# Written by gpuprep: cuDNN. CUPTI is in the distribution's own folder, or where the toolkit's link says.\n"
        f"{cudnn_prefix}/current/lib\n/usr/local/cuda/extras/CUPTI/lib64\n"
    )


def container_packages() -> tuple[str, ...]:
    """Packages of the container toolkit that the role gpu_containers installs and holds, on every system."""
    return tuple(datafile.read(role_folder("gpu_containers") / "defaults" / "main.yml")["gpu_containers_packages"])


def codec_build_packages(release: OsRelease, libraries: Sequence[str], *, npp: bool) -> tuple[str, ...]:
    """What the role gpu_codec builds FFmpeg with: programs, and these libraries."""
    data, one_only = _codec(release), _variables("gpu_codec", "main")["gpu_codec_one_architecture"]
    wanted = [name for library in libraries for name in data["gpu_codec_library_packages"].get(library, ())]
    extra = data["gpu_codec_npp_packages"] if npp else []
    names = packagenames.needed_on(data["gpu_codec_build_packages"], one_only, release.architecture)
    return tuple(dict.fromkeys([*names, *extra, *wanted]))


def codec_repositories(release: OsRelease) -> str:
    """Which repositories that are off the role gpu_codec switches on for that, as a pattern of their names."""
    return str(_codec(release).get("gpu_codec_build_repositories", ""))


def codec_libraries(release: OsRelease) -> dict[str, list[str]]:
    """Packages of each library that FFmpeg may be built with on this system, as the role gpu_codec installs them."""
    return dict(_codec(release)["gpu_codec_library_packages"])


def codec_libraries_absent(release: OsRelease) -> dict[str, str]:
    """Libraries that this system does not offer, and why."""
    data = _codec(release)
    number = release.roles.rpartition("-")[2]
    return {**data.get("gpu_codec_library_absent", {}), **data.get("gpu_codec_library_absent_of", {}).get(number, {})}


def _codec(release: OsRelease) -> dict[str, Any]:
    return _variables("gpu_codec", release.roles.rpartition("-")[0])


def ffmpeg_release_key() -> str:
    """Fingerprint of the key that signs FFmpeg's tarballs, as the role gpu_codec has it."""
    return str(_variables("gpu_codec", "main")["gpu_codec_release_key"])


def _driver(release: OsRelease, source: str, version: str) -> dict[str, Any]:
    sources = _driver_variables(release)["gpu_driver_sources"]
    return packagenames.of_branch(sources[source], version, release.architecture)


def _driver_variables(release: OsRelease) -> dict[str, Any]:
    """As the role loads them: those of a release over those that all releases of a system share."""
    shared = _variables("gpu_driver", release.roles.rpartition("-")[0])
    return {**shared, **_variables("gpu_driver", release.roles)}


def _cuda(release: OsRelease, source: str, version: str) -> dict[str, Any]:
    return packagenames.of_toolkit(_variables("gpu_cuda", release.roles)["gpu_cuda_sources"][source], version)


def _template(role: str, words: Mapping[str, str]) -> str:
    """A role's pin.j2, whose expressions are these alone."""
    text = (role_folder(role) / "templates" / "pin.j2").read_text(encoding="utf-8")
    for word, value in words.items():
        text = text.replace("{{ " + word + " }}", value)
    return text


@cache
def _variables(role: str, system: str) -> dict[str, Any]:
    """Of one file of a role's vars, which has the name of a system as Ansible gives it: "Debian", "Debian-13"."""
    return datafile.read(role_folder(role) / "vars" / f"{system}.yml")
