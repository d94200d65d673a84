"""What the package manager says. A family of systems is a row of data: who asks, how, and for which names."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Sequence, Union

from gpuprep.agent import parse
from gpuprep.agent.run import SEARCH_PATH, ReadingFailed, read_text, run
from gpuprep.agent.shells import which
from gpuprep.records import Bool, Missing, Package

# Installed packages of these families are in every snapshot; a profile may ask for more by name.
CUDA_FAMILIES = (
    "cuda*", "cudnn*", "libcuda*", "libcudnn*", "libcublas*", "libcufft*", "libcufile*", "libcuinj*", "libcupti*",
    "libcurand*", "libcusolver*", "libcusparse*", "libnpp*", "libnv*", "libaccinj*", "nvidia*", "libnvidia*",
)  # fmt: skip
DEBIAN_FAMILIES = (
    *CUDA_FAMILIES, "xserver-xorg-video-nvidia*", "firmware-nvidia*", "glx-alternative-nvidia",
    "linux-image-*", "linux-headers-*", "linux-modules-nvidia-*", "dkms", "unattended-upgrades",
)  # fmt: skip
RPM_FAMILIES = (
    *CUDA_FAMILIES, "kmod-nvidia*", "xorg-x11-drv-nvidia*", "kernel", "kernel-core", "kernel-devel*",
    "kernel-headers", "kernel6*", "dkms", "dnf-automatic",
)  # fmt: skip
VERSIONLOCK_FILES = ("/etc/dnf/plugins/versionlock.list", "/etc/yum/pluginconf.d/versionlock.list")
APT_LISTS = Path("/var/lib/apt/lists")


def uses_apt() -> bool:
    return which("dpkg-query", SEARCH_PATH) is not None


def installed(asked: Sequence[str]) -> Dict[str, Package]:
    """Installed packages of the families of interest and of `asked`, with their holds: one call."""
    if uses_apt():
        # dpkg-query ends with 1 when one of the patterns fits nothing
        text = run(["dpkg-query", "-W", "-f", parse.DPKG_FORMAT, *DEBIAN_FAMILIES, *asked], accept=(0, 1))
        return parse.dpkg(_needed(text))
    text = run(["rpm", "-qa", "--qf", parse.RPM_FORMAT, *RPM_FAMILIES, *asked])
    locks = [lock for lock in (read_text(path) for path in VERSIONLOCK_FILES) if isinstance(lock, str)]
    return parse.rpm(_needed(text), "\n".join(locks))


def _needed(text: Union[str, Missing]) -> str:
    """Without the package manager's answer there are no facts: an empty list would read as "nothing installed"."""
    if isinstance(text, Missing):
        raise ReadingFailed(f"the package manager does not answer: {text.detail}")
    return text


def headers_available(kernel: str) -> Bool:
    """Whether the package manager offers the headers of `kernel`. Missing where it has no lists to look in."""
    if uses_apt():
        if not any(APT_LISTS.glob("*_Packages*")):
            return Missing("not_installed", "the package lists have not been fetched yet (apt-get update)")
        text = run(["apt-cache", "policy", f"linux-headers-{kernel}"])
        return text if isinstance(text, Missing) else _has_candidate(text)
    name = f"kernel-devel-{kernel}"
    text = run(["dnf", "-C", "-q", "list", "--available", name], accept=(0, 1), timeout=60)
    return text if isinstance(text, Missing) else name.partition("-devel-")[2].split("-")[0] in text


def _has_candidate(policy: str) -> bool:
    words = policy.split("Candidate:", 1)
    return len(words) == 2 and words[1].split()[0] != "(none)"
