"""Variables that a run adds for the roles: mirrors, whether to reboot, folder of builds, user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuprep.paths import cache_dir
from gpuprep.workflows.runs import ProfileRun

# A mirror's name ─► the role variable that holds the URL of what it mirrors.
MIRRORED = {"ffmpeg": "gpu_codec_ffmpeg_url", "nv_codec_headers": "gpu_codec_headers_url"}
# The same for whole repositories.
WHOLE = {
    "nvidia": "gpu_driver_nvidia_url",
    "epel": "gpu_driver_epel_url",
    "rocky_vault": "gpu_preflight_vault_url",
    "almalinux_vault": "gpu_preflight_almalinux_vault_url",
    "container_toolkit": "gpu_containers_url",
}
# The file with the key that signs a mirror.
KEYS = {"nvidia_key": "gpu_driver_nvidia_key", "container_toolkit_key": "gpu_containers_key"}


def run_variables(run: ProfileRun, roles: Mapping[str, Any]) -> dict[str, Any]:
    """`roles` (of plan.role_variables) with the variables that this run adds. The local machine is never rebooted."""
    may_reboot = run.options.reboot and not run.target.local
    return {
        **roles,
        **mirrored(roles, {**run.options.mirrors, **run.target.mirrors}),
        "gpu_codec_artifact_dir": str(cache_dir() / "artifacts"),
        # From the settings alone, and set even where they name nobody: an inventory cannot widen them, nor a host.
        "gpu_codec_trusted_builders": list(run.options.builds.trusted),
        "gpu_codec_allowed_signers": run.options.builds.signers,
        # The HOST as it was given. Ansible's name of it is another: sim:a and sim-a would be one.
        "gpu_codec_builder": run.target.name,
        "gpu_preflight_allow_reboot": may_reboot,
        "gpu_driver_allow_reboot": may_reboot,
        "gpuprep_run_id": run.run_id,
        "gpuprep_profile": run.profile.name,
        "gpuprep_profile_sha256": run.profile.sha256,
    }


def mirrored(roles: Mapping[str, Any], mirrors: Mapping[str, str]) -> dict[str, str]:
    """URLs of sources taken from mirrors: the mirror's prefix and upstream's file name, or the whole repository."""
    urls = {}
    for name, variable in MIRRORED.items():
        if name in mirrors and variable in roles:
            urls[variable] = f"{mirrors[name].rstrip('/')}/{str(roles[variable]).rpartition('/')[2]}"
    for name, variable in WHOLE.items():
        if name in mirrors:
            urls[variable] = mirrors[name].rstrip("/")
    return urls | {variable: mirrors[name] for name, variable in KEYS.items() if name in mirrors}
