"""The other profiles and several GPUs; in `make test-all` Debian 12 and a second host, too."""

from __future__ import annotations

import json
from typing import Any

import pytest
from machines import Finished, inside, must, only

pytestmark = pytest.mark.e2e


# Release ► branch of the driver, version of CUDA: what its own archive has.
HAS = {"12": ("535.", "11.8"), "13": ("550.", "12.4")}


def test_two_a100(a100: Finished) -> None:
    out = inside(a100.machine, "nvidia-smi --query-gpu=name,clocks.applications.graphics --format=csv,noheader").stdout
    assert [line.split(",")[1].strip() for line in out.splitlines()] == ["1410 MHz", "1410 MHz"]
    record = only(a100.validated) if a100.validated else a100.made_by()
    assert record["verdict"]["status"] == "PASS"
    branch, cuda = HAS[record["after"]["os"]["version_id"]]
    assert f"release {cuda}" in inside(a100.machine, "nvcc --version").stdout
    assert len(record["after"]["gpus"]) == 2
    assert record["after"]["driver"]["loaded_version"].startswith(branch)


@pytest.mark.only_all
def test_a100_on_debian_12(a100: Finished) -> None:
    assert a100.made_by()["after"]["os"]["version_id"] == "12"


def test_a_finished_a100_is_recognised(a100: Finished) -> None:
    (run,) = must("provision", a100.host, "--profile", "a100", "--no-validate", "--json").json()["runs"]
    assert run["playbook"]["status"] == "not needed"


@pytest.mark.only_all
def test_every_role_finds_nothing_to_do_on_an_a100(a100: Finished) -> None:
    (run,) = must("provision", a100.host, "--profile", "a100", "--deep", "--json").json()["runs"]
    assert run["playbook"]["changed"] == 0
    (run,) = must("provision", a100.host, "--profile", "a100", "--check", "--diff", "--deep", "--json").json()["runs"]
    assert run["playbook"]["changed"] == 0


@pytest.mark.only_all  # it compiles the whole driver once more; with stubs: test_other_systems.py
def test_v100_gets_the_proprietary_module(v100: Finished) -> None:
    assert "PASS" in v100.run.stdout
    assert "Open" not in inside(v100.machine, "cat /proc/driver/nvidia/version").stdout


@pytest.mark.only_all
def test_a_second_host_compiles_nothing(t4: Finished, v100: Finished) -> None:
    def manifest(machine: str) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(inside(machine, "cat /opt/gpuprep/ffmpeg/current/manifest.json").stdout)
        return data

    assert manifest(v100.machine)["files"] == manifest(t4.machine)["files"]
    compiled = inside(v100.machine, "ls -d /var/lib/gpuprep/build/* 2>/dev/null | wc -l; command -v clang || true")
    assert compiled.stdout.split() == ["0"], compiled.text
