"""NCCL from NVIDIA's wheel: what a profile asks for, what is planned, and which library was measured."""

from __future__ import annotations

import dataclasses
from typing import Any

import ncclrecords
import pytest
from builders import bare_snapshot, finished_snapshot, load, resolved
from judgedbandwidth import figures

from gpuprep import catalogue, checks, errors, records
from gpuprep.desired import state
from gpuprep.provisioning import plan

LIBRARY = "/opt/gpuprep/nccl/2.28.9-cuda12/lib/libnccl.so.2"


@pytest.mark.parametrize(
    ("wish", "gpus", "version"),
    [("none", 2, "none"), ("auto", 1, "none"), ("auto", 2, "2.28.9"), ("2.21.5", 1, "2.21.5"), ("2.28.9", 8, "2.28.9")],
)
def test_what_a_wish_means_on_a_host(wish: str, gpus: int, version: str) -> None:
    wanted = state.resolve(load("t4", nccl={"version": wish}), bare_snapshot(gpus=["t4"] * gpus))
    assert wanted.nccl.version == version
    variables = plan.role_variables(wanted)
    assert variables["gpu_nccl_version"] == version
    assert variables["gpu_nccl_cuda_major"] == "12"
    known = catalogue.nccl_checksums().get(version, {}).get("12", {})
    assert variables["gpu_nccl_sha256"] == dict(known)
    assert all(len(digest) == 64 for digest in known.values())


def test_the_shipped_profiles_ask_for_none() -> None:
    assert load("h100").nccl.version == "none"


def test_a_version_that_nobody_knows_is_refused_with_those_that_are() -> None:
    with pytest.raises(errors.PlanRefused, match=r"no NCCL 2\.1\.1 for CUDA 12.*2\.28\.9, 2\.21\.5 or none"):
        state.resolve(load("t4", nccl={"version": "2.1.1"}), bare_snapshot())


def test_nccl_needs_cuda() -> None:
    wishes: dict[str, Any] = {"cuda": {"version": "none"}, "cudnn": {"version": "none"}}
    reasons = state.check_profile(load("t4", nccl={"version": "2.28.9"}, **wishes))
    assert any("nccl.version" in reason for reason in reasons)
    assert not any("nccl" in reason for reason in state.check_profile(load("t4", nccl={"version": "auto"}, **wishes)))


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (LIBRARY, records.Status.PASS),
        (None, records.Status.FAIL),
        ("/usr/lib/x86_64-linux-gnu/libnccl.so.2", records.Status.FAIL),
        ("/opt/gpuprep/nccl/2.28.9-cuda13/lib/libnccl.so.2", records.Status.FAIL),
        (records.Missing("command_not_found", "ldconfig"), records.Status.UNKNOWN),
    ],
)
def test_the_plan_installs_it_where_it_is_not_the_one_that_programs_get(path: Any, status: records.Status) -> None:
    wanted = state.resolve(load("t4", nccl={"version": "2.28.9"}), bare_snapshot())
    host = finished_snapshot(wanted)
    host = dataclasses.replace(host, libraries={**host.libraries, "libnccl.so.2": path})
    (found,) = (one for one in checks.compare(wanted, host) if one.key == "nccl.library")
    assert found.status is status
    assert ("the loader finds no NCCL" in found.reason) == (path is None)
    steps = plan.make("host", wanted, checks.compare(wanted, host)).steps
    assert [step.role for step in steps] == ([] if status is records.Status.PASS else ["gpu_nccl"])


def loaded(
    path: str, wish: str, *, installs: bool = True, source: records.Source = records.Source.MEASURED
) -> list[records.Finding]:
    wanted = dataclasses.replace(
        state.resolve(load("t4", nccl={"version": wish}), bare_snapshot(gpus=["t4", "t4"])), installs=installs
    )
    values = ncclrecords.machine("t4", 2, nvlinks=0, busbw=20, quick=True)
    values["libraries"] = [{"name": "nccl", "path": path, "version": "2.28.9"}] if path else []
    snapshot = dataclasses.replace(bare_snapshot(), gpus=records.Missing("not_read"), source=source)
    found = figures("nccl", values, wanted, snapshot)
    return [one for one in found if one.property == "loaded"]


def test_the_library_that_ran_is_the_installed_one() -> None:
    assert [one.status for one in loaded(LIBRARY, "2.28.9")] == [records.Status.PASS]
    (other,) = loaded("/home/alice/libnccl.so.2", "2.28.9")
    assert (other.status, other.role) == (records.Status.FAIL, "gpu_nccl")
    assert "/home/alice" in other.reason
    assert [one.status for one in loaded("", "2.28.9")] == [records.Status.UNKNOWN]
    assert loaded("", "none", source=records.Source.SIMULATED) == []


@pytest.mark.parametrize(("wish", "installs"), [("none", True), ("2.28.9", False)])
def test_a_library_that_nobody_asked_for_is_named(wish: str, installs: bool) -> None:
    (found,) = loaded("/opt/torch/libnccl.so.2", wish, installs=installs)
    assert found.status is records.Status.SKIP
    assert "not one that gpuprep pins" in found.reason
    assert ("the profile asks for none" in found.reason) == (wish == "none")
    assert "/opt/torch/libnccl.so.2" in found.actual


def test_without_nccl_there_is_nothing_to_measure_unless_it_was_wished() -> None:
    nothing = records.Missing("not_installed", "the loader finds no NCCL")
    for wish, status in (("none", records.Status.SKIP), ("2.28.9", records.Status.UNKNOWN)):
        wanted = state.resolve(load("t4", nccl={"version": wish}), bare_snapshot())
        (found,) = figures("nccl", nothing, wanted, bare_snapshot())
        assert found.status is status
    assert resolved("t4").nccl.version == "none"
