"""A host of a system that gpuprep does not provision: a real H200 on Ubuntu, as its agent described it."""

from __future__ import annotations

import dataclasses

import pytest
from builders import bare_snapshot
from places import TESTS

from gpuprep import checks, errors, records
from gpuprep.desired import loading, profile, state

CAPTURED = TESTS / "cases/snapshot/h200-ubuntu24.04-captured.json"


@pytest.fixture
def snapshot() -> records.Snapshot:
    return records.from_json(records.Snapshot, CAPTURED.read_text(encoding="utf-8"))


@pytest.fixture
def wish() -> profile.Profile:
    return loading.load("base")


def judged(wish: profile.Profile, snapshot: records.Snapshot) -> tuple[state.Wanted, dict[str, records.Finding]]:
    resolved = state.resolve(wish, snapshot, judging=True)
    return resolved, {finding.key: finding for finding in checks.compare(resolved, snapshot)}


def test_it_is_judged_and_not_provisioned(wish: profile.Profile, snapshot: records.Snapshot) -> None:
    with pytest.raises(errors.PlanRefused, match="no headers for the running kernel"):
        state.resolve(wish, snapshot)
    resolved, found = judged(wish, snapshot)
    assert not resolved.installs
    assert found["host.provisioning"].status is records.Status.SKIP
    assert "Ubuntu" in found["host.provisioning"].actual
    assert (resolved.cuda.version, found["cuda.version"].status) == ("13.0", records.Status.PASS)
    assert found["driver.loaded"].status is found["driver.nvml_version"].status is records.Status.PASS
    assert found["gpu 0.clocks"].status is records.Status.PASS
    assert not any(key.endswith("held") or "packages" in key or "unit" in key for key in found)


def test_what_is_wrong_names_no_role_that_cannot_run(wish: profile.Profile, snapshot: records.Snapshot) -> None:
    facts = dataclasses.replace(
        snapshot,
        driver=dataclasses.replace(snapshot.driver, nvml_version="570.1"),
        codec=dataclasses.replace(snapshot.codec, ffmpeg_path=None),
        cuda=dataclasses.replace(snapshot.cuda, cupti_path=None),
    )
    _, found = judged(wish, facts)
    for key in ("driver.nvml_version", "ffmpeg.path", "cuda.cupti"):
        assert (found[key].status, found[key].role) == (records.Status.FAIL, "")
        assert found[key].remedy
        assert "gpuprep provision" not in found[key].remedy


def test_missing_evidence_stays_unknown(wish: profile.Profile, snapshot: records.Snapshot) -> None:
    lost = records.Missing("gpu_is_lost", "NVML: GPU is lost")
    driver = dataclasses.replace(snapshot.driver, loaded_version=records.Missing("no_permission", "EACCES"))
    _, found = judged(wish, dataclasses.replace(snapshot, gpus=lost, driver=driver))
    assert found["driver.loaded"].status is found["gpu 0.settings"].status is records.Status.UNKNOWN


def test_a_full_disk_does_not_keep_a_host_from_being_judged(wish: profile.Profile, snapshot: records.Snapshot) -> None:
    full = dataclasses.replace(snapshot, disk_free_mib=dict.fromkeys(snapshot.disk_free_mib, 0))
    assert judged(wish, full)[1]


def test_a_driver_of_somebody_else_is_judged_as_found_and_gpupreps_own_is_not() -> None:
    """On a system that gpuprep provisions: NVIDIA's .run file or a cloud's image, against removed packages."""
    wish, mine = loading.load("t4"), bare_snapshot("ubuntu2404")
    driver = dataclasses.replace(mine.driver, loaded_version="580.95.05", module_version="580.95.05")
    theirs = dataclasses.replace(mine, driver=driver)
    resolved, found = judged(wish, theirs)
    assert not resolved.installs
    assert found["host.provisioning"].reason.startswith("gpuprep did not install the driver here")
    for snapshot in (
        mine,
        dataclasses.replace(theirs, provenance={"gpuprep_version": "0.1.0"}),
        dataclasses.replace(
            theirs, packages={"libnvidia-compute-580-server": records.Package("580.95.05-0ubuntu1", False)}
        ),
    ):
        assert judged(wish, snapshot)[0].installs
