"""Versions, and other facts of a host that become arguments and variables: what is none counts as not read."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from builders import bare_snapshot, finished_snapshot, load

from gpuprep import catalogue, checks, errors, records
from gpuprep.desired import state
from gpuprep.provisioning import ansible_environment, plan
from gpuprep.workflows import schedule, targets

COMMAND = "{{ lookup('pipe', 'id > /tmp/owned') }}"
VERSIONS = {
    "template_behind": f"12.4{COMMAND}",
    "template_as_patch": f"12.4.{COMMAND}",
    "template": COMMAND,
    "statement": "12.4{% set x = 1 %}",
    "shell": "12.4; id",
    "newline": "12.4\n",
    "path": "12.4/../../..",
    "escape": "12.4\x1b[2J",
    "arabic": "\u0661\u0662.\u0664",
    "superscript": "\u00b2",
    "huge": "9" * 5000,
    "endless": "1." * 500 + "1",
    "empty": "",
    "blank": " 12.4",
    "negative": "-12.4",
    "surrogate": "12.4\ud800",
}


def lying(version: str) -> records.Snapshot:
    """A host of another system, as `drift schedule` finds it, whose every version is this one."""
    snapshot = bare_snapshot("fedora42")
    facts = snapshot.driver
    return dataclasses.replace(
        snapshot,
        cuda=dataclasses.replace(snapshot.cuda, nvcc_version=version),
        driver=dataclasses.replace(facts, loaded_version=version, module_version=version, library_version=version),
    )


@pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS)
def test_a_version_that_is_none_goes_nowhere(version: str) -> None:
    snapshot = lying(version)
    wanted = state.resolve(load("t4"), snapshot, judging=True)
    findings = checks.compare(wanted, snapshot)
    assert {f.key: f.status for f in findings}.get("cuda.version", records.Status.UNKNOWN) is not records.Status.PASS
    variables = plan.role_variables(wanted)
    assert (variables["gpu_cuda_version"], variables["gpu_cudnn_cuda_major"]) == ("auto", "")
    assert variables["gpu_driver_version"] == "any"
    text = ansible_environment.inventory_text(targets.parse(["gpu1"])[0], variables)
    assert "lookup" not in text


@pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS)
def test_a_version_that_is_none_is_unknown_on_a_supported_host(version: str) -> None:
    profile, good = load("t4"), finished_snapshot(state.resolve(load("t4"), bare_snapshot()))
    bad = dataclasses.replace(
        good,
        cuda=dataclasses.replace(good.cuda, nvcc_version=version),
        driver=dataclasses.replace(good.driver, module_version=version),
    )
    status = {finding.key: finding.status for finding in checks.compare(state.resolve(profile, bad, judging=True), bad)}
    assert (status["cuda.version"], status["driver.version"]) == (records.Status.UNKNOWN, records.Status.UNKNOWN)


@pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS)
def test_nothing_matches_a_version_that_is_none(version: str) -> None:
    assert not catalogue.matches(version, "12")
    assert not catalogue.matches(version, "12.4")
    with pytest.raises(ValueError, match="not a version"):
        catalogue.parse(version)


class Box:
    name = "gpu-9"


@pytest.mark.parametrize("system", ["fedora42", "debian-13{{ 1 }}", "../../etc"])
def test_no_role_is_played_on_a_system_that_is_not_provisioned(system: str) -> None:
    """Such a run as this one could not even begin to play it."""
    told: list[Any] = []
    snapshot = lying("12.4")
    if system != "fedora42":
        snapshot = dataclasses.replace(snapshot, os=dataclasses.replace(snapshot.os, id=system))
    wanted = state.resolve(load("t4"), snapshot, judging=True)
    run: Any = type("Run", (), {"stage": told.append, "options": None})()
    with pytest.raises(errors.PlanRefused) as caught:
        schedule._install_agent(run, Box(), wanted)  # type: ignore[arg-type]
    assert "is not supported" in caught.value.what
    assert "Debian 13" in caught.value.hint
    assert told == []


@pytest.mark.parametrize("python", ["3.11{{ 1 }}", "x", "\u00b3.11", "9" * 5000, "3.11\x1b[2J"], ids=ascii)
def test_a_python_whose_version_is_none(python: str) -> None:
    words = {"systemd": "yes", "python": python}
    there: Any = type("Found", (), {"word": lambda _, key: words[key]})()
    with pytest.raises(errors.PlanRefused, match="python3"):
        schedule._refuse(Box(), there)  # type: ignore[arg-type]
