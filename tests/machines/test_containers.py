"""NVIDIA's container toolkit on a machine of each package manager: by stub packages and a stand-in of nvidia-ctk."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import fresh, gpuprep, inside, must, only, open_findings
from systemprofiles import PROFILE

pytestmark = [pytest.mark.e2e, pytest.mark.only_all]
# No Docker is installed: its program, its unit, and settings of somebody else.
DOCKER = r"""
printf '#!/bin/sh\nexec sleep infinity\n' >/usr/bin/dockerd && chmod 755 /usr/bin/dockerd
printf '[Service]\nExecStart=/usr/bin/dockerd\nExecReload=/bin/true\n' >/etc/systemd/system/docker.service
mkdir -p /etc/docker && echo '{"log-driver": "journald"}' >/etc/docker/daemon.json
systemctl daemon-reload && systemctl start docker
"""
UNHOLD = {
    "rocky9": "dnf -q versionlock delete nvidia-container-toolkit",
    "ubuntu2404": "apt-mark unhold nvidia-container-toolkit",
}


def profile(folder: Path, branch: str, toolkit: str) -> str:
    path = folder / f"{branch}-{toolkit}.yml"
    text = PROFILE.format(source="nvidia", version=branch, cuda="none")
    path.write_text(f"{text}containers: {{toolkit: {toolkit}}}\n")
    return str(path)


@pytest.mark.parametrize("system", UNHOLD)
def test_the_container_toolkit_from_nothing_to_another_driver(system: str, tmp_path: Path) -> None:
    with fresh(f"e2e-containers-{system}", system, ["t4", "t4"]) as machine:
        inside(machine, DOCKER)
        for branch, toolkit, version in (
            ("570", "1.18.1", "1.18.1"),
            ("570", "auto", "1.20.0"),
            ("580", "auto", "1.20.0"),
        ):
            host = ("provision", f"sim:{machine}", "--profile", profile(tmp_path, branch, toolkit))
            must(*host)
            assert only(must(*host, "--json"))["playbook"]["status"] == "not needed"
            assert only(must(*host, "--deep", "--json"))["playbook"]["changed"] == 0
            assert f"version {version}\n" in inside(machine, "nvidia-ctk --version").stdout
            assert f"libcuda.so.{branch}." in inside(machine, "cat /etc/cdi/nvidia.json").stdout
        assert '"journald"' in inside(machine, "cat /etc/docker/daemon.json").stdout  # somebody else's stays
        wish = profile(tmp_path, "580", "auto")
        inside(
            machine, f"sed -i s/580/570/ /etc/cdi/nvidia.json; echo '{{}}' >/etc/docker/daemon.json; {UNHOLD[system]}"
        )
        broken = {"containers.held", "containers.specification", "containers.docker"}
        assert open_findings(only(gpuprep("drift", f"sim:{machine}", "--profile", wish, "--json"))) == broken
        gpuprep("drift", f"sim:{machine}", "--profile", wish, "--fix")
        found = only(gpuprep("drift", f"sim:{machine}", "--profile", wish, "--json"))
        assert open_findings(found) == {"containers.docker"}
        must("provision", f"sim:{machine}", "--profile", wish)
        assert open_findings(only(gpuprep("drift", f"sim:{machine}", "--profile", wish, "--json"))) == set()
