"""The container toolkit: what a host's CDI specification and settings say, how it is judged, planned and put right."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from builders import bare_snapshot, finished_snapshot, load

from gpuprep import checks, errors, records
from gpuprep.agent import host_paths
from gpuprep.agent.facts import containers
from gpuprep.desired import state
from gpuprep.provisioning import plan
from gpuprep.workflows import fixes


def wanted(toolkit: str = "auto", hold: bool = True) -> state.Wanted:
    profile = load("t4", containers={"toolkit": toolkit, "hold": hold})
    return state.resolve(profile, bare_snapshot("debian13"))


def finished(wish: state.Wanted, **facts: Any) -> records.Snapshot:
    """As after provisioning, with these facts instead of the good ones."""
    good = {
        "toolkit": wish.containers.toolkit,
        "devices": ("0", "GPU-1", "all"),
        "drivers": (finished_snapshot(wish).driver.loaded_version,),
        "runtimes": (records.ContainerRuntime("docker", True),),
    }
    snapshot = finished_snapshot(wish)
    packages = {name: records.Package("1.20.0-1", held=True) for name in wish.containers.packages}
    return dataclasses.replace(
        snapshot,
        packages={**snapshot.packages, **packages},
        containers=records.ContainerFacts(**{**good, **facts}),
    )


def of_containers(wish: state.Wanted, snapshot: records.Snapshot) -> dict[str, records.Finding]:
    return {finding.key: finding for finding in checks.compare(wish, snapshot) if finding.subject == "containers"}


def test_a_finished_machine_passes_and_one_without_the_wish_is_not_judged() -> None:
    wish = wanted()
    found = of_containers(wish, finished(wish))
    assert {finding.status for finding in found.values()} == {records.Status.PASS}
    assert set(found) == {
        f"containers.{name}"
        for name in ("toolkit", "held", "unattended_upgrades", "devices", "specification", "docker")
    }
    nothing = wanted("none")
    assert of_containers(nothing, finished_snapshot(nothing)) == {}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another version": ({"toolkit": "1.17.8"}, "containers.toolkit"),
    "no specification": ({"devices": None}, "containers.devices"),
    "no GPU in it": ({"devices": ("all",)}, "containers.devices"),
    "of another driver": ({"drivers": ("535.1.1",)}, "containers.specification"),
    "files that are gone": ({"absent": ("/usr/lib64/libcuda.so.1",)}, "containers.specification"),
    "a runtime without it": ({"runtimes": (records.ContainerRuntime("crio", False),)}, "containers.crio"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_a_container_would_not_get_is_said(case: str) -> None:
    facts, key = WRONG[case]
    wish = wanted()
    failed = [
        finding
        for finding in of_containers(wish, finished(wish, **facts)).values()
        if finding.status is not records.Status.PASS
    ]
    assert [(finding.key, finding.status, finding.role) for finding in failed] == [
        (key, records.Status.FAIL, "gpu_containers")
    ]


@pytest.mark.parametrize("name", ["toolkit", "devices"])
def test_what_could_not_be_read_is_unknown(name: str) -> None:
    wish = wanted()
    found = of_containers(wish, finished(wish, **{name: records.Missing("no_permission", "no")}))
    assert found[f"containers.{name}"].status is records.Status.UNKNOWN
    unread = dataclasses.replace(finished(wish), containers=records.Missing("not_read", "an older agent"))
    assert [finding.status for finding in of_containers(wish, unread).values()] == [records.Status.UNKNOWN]


def test_a_gpu_in_parts_is_there_by_its_parts() -> None:
    wish = wanted()
    found = of_containers(wish, finished(wish, devices=("0:0", "0:1", "all")))
    assert found["containers.devices"].status is records.Status.PASS


def test_a_change_of_the_driver_takes_the_containers_along() -> None:
    wish = wanted()
    bare = bare_snapshot("debian13")
    assert "gpu_containers" in [step.role for step in plan.make("gpu-1", wish, checks.compare(wish, bare)).steps]
    other = finished(wish)
    other = dataclasses.replace(other, driver=dataclasses.replace(other.driver, module_version="535.1.1"))
    steps = {step.role: step.reasons for step in plan.make("gpu-1", wish, checks.compare(wish, other)).steps}
    assert "the driver changes, and containers get its libraries by name" in steps["gpu_containers"]
    free = {**finished(wish).packages}
    name = wish.driver.packages[0]
    free[name] = dataclasses.replace(free[name], held=False)
    held = dataclasses.replace(finished(wish), packages=free)
    assert [step.role for step in plan.make("gpu-1", wish, checks.compare(wish, held)).steps] == ["gpu_driver"]


def test_drift_puts_back_the_specification_and_the_holds() -> None:
    wish = wanted()
    broken = finished(wish, drivers=("535.1.1",))
    name = wish.containers.packages[0]
    broken = dataclasses.replace(broken, packages={**broken.packages, name: records.Package("1.20.0-1", held=False)})
    findings = [finding for finding in checks.compare(wish, broken) if finding.status is records.Status.FAIL]
    commands = [planned.command for planned in fixes.plan(wish, broken, findings)]
    assert commands == [f"apt-mark hold {name}", f"nvidia-ctk cdi generate --format=json --output={host_paths.CDI}"]
    rpm = dataclasses.replace(broken, apt=None)
    (command, _) = [planned.command for planned in fixes.plan(wish, rpm, findings)]
    assert command.endswith(f"{{ dnf -q -C versionlock delete {name}; dnf -q -C versionlock add {name}; }}")


def test_a_version_that_the_catalogue_lacks_is_refused() -> None:
    with pytest.raises(
        errors.PlanRefused, match=r"containers\.toolkit: the catalogue has no container toolkit 1\.2\.3; works: 1\."
    ):
        wanted("1.2.3")


# ---------------------------------------------------------------- what the agent reads

SPECIFICATION = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [
        {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "{here}/nvidia0"}]}},
        {"name": "all", "containerEdits": {"deviceNodes": [{"path": "{here}/nvidia0"}]}},
    ],
    "containerEdits": {
        "mounts": [{"hostPath": "{here}/libcuda.so.580.95.05", "containerPath": "/x"}],
        "hooks": [{"path": "{here}/nvidia-cdi-hook", "hookName": "createContainer"}],
    },
}


def written(folder: Path, document: object) -> str:
    path = folder / "nvidia.json"
    path.write_text(json.dumps(document).replace("{here}", str(folder)))
    return str(path)


def test_the_specification_is_read_as_a_runtime_would(tmp_path: Path) -> None:
    for name in ("nvidia0", "libcuda.so.580.95.05"):
        (tmp_path / name).touch()
    facts = containers.facts(written(tmp_path, SPECIFICATION))
    assert facts.devices == ("0", "all")
    assert facts.drivers == ("580.95.05",)
    assert facts.absent == (f"{tmp_path}/nvidia-cdi-hook",)
    assert containers.facts(str(tmp_path / "none.json")).devices is None


HOSTILE: dict[str, object] = {
    "a list": [],
    "another kind": {**SPECIFICATION, "kind": "vendor.com/gpu"},
    "devices that are none": {**SPECIFICATION, "devices": {"name": 0}},
    "names that are none": {**SPECIFICATION, "devices": [{"name": {"a": 1}}, 7, None]},
    "edits that are none": {**SPECIFICATION, "containerEdits": "mounts"},
    "paths that are none": {
        **SPECIFICATION,
        "containerEdits": {"mounts": [{"hostPath": 7}, {"hostPath": "/a\0b"}, "x", {}]},
    },
    "very many": {**SPECIFICATION, "containerEdits": {"mounts": [{"hostPath": f"/none/{n}"} for n in range(9000)]}},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_specification_of_another_shape_is_read_without_an_error(case: str, tmp_path: Path) -> None:
    facts = containers.facts(written(tmp_path, HOSTILE[case]))
    assert isinstance(facts.devices, (tuple, records.Missing))
    assert len(facts.absent) <= 20


def test_what_is_no_json_could_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "nvidia.json"
    for text in ("{", "[" * 100_000, "cdiVersion: 0.5.0\n"):
        path.write_text(text)
        found = containers.facts(str(path)).devices
        assert isinstance(found, records.Missing)


SETTINGS = {
    "docker": ('{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}', '{"log-driver": "journald"}'),
    "containerd": (
        '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\n',
        '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\n',
    ),
    "crio": ("[crio.runtime.runtimes.nvidia]\n", "# [crio.runtime.runtimes.nvidia]\n"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_a_runtime_name_nvidias_or_not(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker has a containerd of its own, which is not asked."""
    programs = {"docker": ("dockerd", "containerd")}.get(name, (name,))
    for program in programs:
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    file = tmp_path / "settings"
    monkeypatch.setattr(containers, "SEARCH_PATH", str(tmp_path))
    files = (str(tmp_path / "none"), str(file))
    monkeypatch.setattr(containers, "DOCKER", (containers.DOCKER[0], files, containers.DOCKER[2]))
    monkeypatch.setattr(containers, "CONTAINERD", (containers.CONTAINERD[0], files, containers.CONTAINERD[2]))
    monkeypatch.setattr(containers, "CRIO", (containers.CRIO[0], files, containers.CRIO[2]))
    for text, knows in zip(SETTINGS[name], (True, False), strict=True):
        file.write_text(text)
        assert containers.facts(str(tmp_path / "none")).runtimes == (records.ContainerRuntime(name, knows),)
