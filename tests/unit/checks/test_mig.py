"""MIG as part of the wish: what a profile may ask for, how a host is judged by it, planned and put right."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from builders import bare_snapshot, finished_snapshot, load

from gpuprep import checks, errors, records
from gpuprep.catalogue import Board, board_in
from gpuprep.desired import profile_rules, state
from gpuprep.provisioning import plan
from gpuprep.records import MigDevice, Missing, Status
from gpuprep.records.evidence.shared import NamedGpu
from gpuprep.workflows import fixes

CUT = {"3g.20gb": 1, "1g.5gb": 4}
A100_40 = ("20b0",)


def wanted(mig: str | dict[str, int]) -> state.Wanted:
    return state.resolve(load("a100", tuning={"mig": mig}), bare_snapshot("debian13", A100_40))


def machine(wish: state.Wanted, parts: tuple[str, ...] = (), *, on: bool = True, **changes: Any) -> records.Snapshot:
    """A finished host whose GPU has these instances."""
    snapshot = finished_snapshot(wish)
    assert not isinstance(snapshot.gpus, Missing)
    devices = tuple(MigDevice(profile, f"MIG-{number}", 14, 4864) for number, profile in enumerate(parts))
    facts = {"mig_current": on, "mig_pending": on, "mig_devices": devices, **changes}
    return dataclasses.replace(snapshot, gpus=tuple(dataclasses.replace(gpu, **facts) for gpu in snapshot.gpus))


def found(wish: state.Wanted, snapshot: records.Snapshot) -> dict[str, records.Finding]:
    judged = [*checks.compare(wish, snapshot), *checks.health.findings(wish, snapshot)]
    return {finding.property: finding for finding in judged if finding.property.startswith("mig")}


AS_WANTED = ("3g.20gb", *["1g.5gb"] * 4)


def test_a_gpu_that_is_cut_as_wanted_passes_and_nothing_else_speaks_of_it() -> None:
    wish = wanted(CUT)
    judged = found(wish, machine(wish, AS_WANTED))
    assert {name: finding.status for name, finding in judged.items()} == {
        "mig": Status.PASS, "mig_instances": Status.PASS,
    }  # fmt: skip
    assert judged["mig_instances"].actual == "1 x 3g.20gb, 4 x 1g.5gb"


@pytest.mark.parametrize(
    ("facts", "key", "status", "words"),
    [
        ({"parts": AS_WANTED[1:]}, "mig_instances", Status.FAIL, "is cut into 4 x 1g.5gb, not into 1 x 3g.20gb, 4 x"),
        ({"parts": ()}, "mig_instances", Status.FAIL, "is cut into none"),
        ({"parts": (*AS_WANTED, "1c.3g.20gb")}, "mig_instances", Status.FAIL, "1c.3g.20gb"),
        ({"mig_devices": Missing("gpu_is_lost")}, "mig_instances", Status.UNKNOWN, ""),
        ({"on": False}, "mig", Status.FAIL, "programs find the whole GPU"),
        ({"mig_current": False}, "mig", Status.FAIL, "off, on after a reset of the GPU or a reboot"),
        ({"mig_pending": False}, "mig", Status.FAIL, "on, off after a reset"),
        ({"mig_current": Missing("not_supported")}, "mig", Status.UNKNOWN, ""),
    ],
)
def test_what_differs(facts: dict[str, Any], key: str, status: Status, words: str) -> None:
    wish = wanted(CUT)
    finding = found(wish, machine(wish, **facts))[key]
    assert finding.status is status
    assert words in finding.reason
    assert finding.role == "gpu_tuning"


def test_disabled_wants_whole_gpus_and_keep_leaves_the_judgement_to_the_health() -> None:
    off = wanted("disabled")
    assert found(off, machine(off, on=False))["mig"].status is Status.PASS
    assert found(off, machine(off, AS_WANTED))["mig"].status is Status.FAIL
    none = machine(off, on=False, mig_current=Missing("not_supported"), mig_pending=Missing("not_supported"))
    assert found(off, none)["mig"].status is Status.SKIP
    keep = wanted("keep")
    cut = found(keep, machine(keep, AS_WANTED))["mig"]
    assert (cut.status, cut.role) == (Status.FAIL, "")


def test_instances_that_lack_are_put_back_without_a_restart_and_the_mode_with_one() -> None:
    wish = wanted(CUT)
    lacking = machine(wish, AS_WANTED[1:])
    (step,) = plan.make("gpu-1", wish, list(found(wish, lacking).values())).steps
    assert (step.role, step.may_reboot) == ("gpu_tuning", False)
    (planned,) = fixes.plan(wish, lacking, list(found(wish, lacking).values()))
    assert (planned.findings, planned.command) == (
        ("gpu 0.mig_instances",),
        "systemctl restart gpuprep-tune.service",
    )
    off = machine(wish, on=False)
    (step,) = plan.make("gpu-1", wish, list(found(wish, off).values())).steps
    assert step.may_reboot


@pytest.mark.parametrize(
    ("gpu", "mig", "words"),
    [
        (
            "20b0",
            {"1g.10gb": 7},
            "A100 SXM4 40 GB has 7 slices of computing and 8 of memory: these instances need 7 and 14",
        ),
        ("20b0", {"3g.40gb": 1}, "A100 SXM4 40 GB has no MIG profile 3g.40gb; works: some of 1g.5gb, "),
        ("20b2", {"4g.40gb": 1, "3g.40gb": 1}, ""),
        ("20b0", {"2g.10gb": 3, "1g.5gb": 1}, ""),
        ("20b0", {"1g.5gb": 8}, "need 8 and 8"),
    ],
)
def test_instances_that_the_board_does_not_have_are_refused(gpu: str, mig: dict[str, int], words: str) -> None:
    wish = load("a100", tuning={"mig": mig})
    if not words:
        assert state.resolve(wish, bare_snapshot("debian13", [gpu])).tuning.mig == mig
        return
    with pytest.raises(errors.PlanRefused) as refused:
        state.resolve(wish, bare_snapshot("debian13", [gpu]))
    assert words in str(refused.value)


def test_a_model_without_mig_and_a_mode_that_mig_does_not_have_are_refused() -> None:
    said = [str(refusal) for refusal in profile_rules.check_profile(load("t4", tuning={"mig": {"1g.5gb": 7}}))]
    assert said == [
        "tuning.mig: T4 (Turing) has no MIG; works: keep; MIG is on A100, A800, A30, H100, H200, H800, H20, GH200, "
        "B200, GB200 or B300"
    ]
    both = load("a100", tuning={"mig": CUT, "compute_mode": "exclusive_process"})
    assert [refusal.key for refusal in profile_rules.check_profile(both)] == ["tuning.compute_mode"]


def test_a_measured_instance_is_judged_as_the_part_of_the_board_that_it_is() -> None:
    wish = wanted(CUT)
    snapshot = machine(wish, AS_WANTED)
    assert not isinstance(snapshot.gpus, Missing)
    (gpu,) = snapshot.gpus

    def board(name: str) -> Board | None:
        return board_in(snapshot, NamedGpu(0, gpu.uuid, name, "20b0", ""))

    whole, part = board("NVIDIA A100-SXM4-40GB"), board("NVIDIA A100-SXM4-40GB MIG 1g.5gb")
    assert whole is not None
    assert part is not None
    assert whole.memory_gb_per_s is not None
    assert (part.sms, part.memory_gb_per_s) == (14, whole.memory_gb_per_s / 8)
    assert board("NVIDIA A100-SXM4-40GB MIG 2g.10gb") is None
