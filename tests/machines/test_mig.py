"""MIG as part of the wish on a simulated A100: cut, kept over a restart, changed by hand, repaired, given up."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import fresh, gpuprep, inside, must, only, open_findings, started_again
from systemprofiles import PROFILE

pytestmark = [pytest.mark.e2e, pytest.mark.only_all]

# Somebody takes the instance with this number away.
TAKE = """
import pynvml as n
n.nvmlInit()
gpu = n.nvmlDeviceGetHandleByIndex(0)
one = n.nvmlDeviceGetGpuInstanceById(gpu, {number})
n.nvmlComputeInstanceDestroy(n.nvmlGpuInstanceGetComputeInstanceById(one, 0))
n.nvmlGpuInstanceDestroy(one)
"""


def profile(folder: Path, mig: str) -> str:
    path = folder / "mig.yml"
    text = PROFILE.format(source="nvidia", version="580", cuda="none")
    path.write_text(f"{text}containers: {{toolkit: auto}}\ntuning: {{mig: {mig}}}\n")
    return str(path)


def drift(machine: str, wish: str) -> set[str]:
    return open_findings(only(gpuprep("drift", f"sim:{machine}", "--profile", wish, "--json")))


@pytest.mark.parametrize("system", ["ubuntu2404", "rocky9"])
def test_instances_from_nothing_to_none(system: str, tmp_path: Path) -> None:
    with fresh(f"e2e-mig-{system}", system, ["a100"]) as machine:
        wish = profile(tmp_path, "{3g.20gb: 1, 2g.10gb: 1, 1g.5gb: 2}")
        host = ("provision", f"sim:{machine}", "--profile", wish)
        must(*host)
        assert only(must(*host, "--json"))["playbook"]["status"] == "not needed"
        assert only(must(*host, "--deep", "--json"))["playbook"]["changed"] == 0
        assert drift(machine, wish) == set()
        names = inside(machine, "cat /etc/cdi/nvidia.json").stdout
        assert '"0:3"' in names
        started_again(machine, "systemctl reboot")
        assert drift(machine, wish) == set()
        inside(machine, f"/opt/gpuprep/agent/current/bin/python -c '{TAKE.format(number=1)}'")
        assert drift(machine, wish) == {"gpu 0.mig_instances"}
        gpuprep("drift", f"sim:{machine}", "--profile", wish, "--fix")
        assert drift(machine, wish) == set()
        other = profile(tmp_path, "{1g.10gb: 4}")
        must("tune", f"sim:{machine}", "--profile", other)
        assert drift(machine, other) == set()
        off = profile(tmp_path, "disabled")
        must("provision", f"sim:{machine}", "--profile", off)
        assert drift(machine, off) == set()
