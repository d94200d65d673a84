"""Filters of names that depend on the machine's architecture."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError

from ansible_collections.gpuprep.gpu.plugins.module_utils.packagenames import ARCHITECTURES, needed_on


def archive_names(architecture: str) -> dict[str, str]:
    """What package archives call an architecture of the kernel ("aarch64"): {"nvidia": "sbsa", "deb": "arm64", "rpm": "aarch64"}."""
    if architecture not in ARCHITECTURES:
        served = " and ".join(ARCHITECTURES)
        raise AnsibleFilterError(
            f"gpuprep has no packages for machines of this architecture ({architecture:.40}), only for {served}"
        )
    return ARCHITECTURES[architecture]


class FilterModule:
    def filters(self) -> dict[str, object]:
        return {"archive_names": archive_names, "needed_on": needed_on}
