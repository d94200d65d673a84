"""The straight lines from options to a stored record, with facts from a scripted Host and real Ansible runs."""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from builders import bare_snapshot
from finishedt4 import FINISHED, HERE, T4, real
from gemmrecords import gemm
from gemmrecords import gpu as gemm_gpu
from gemmrecords import values as gemm_values
from records_for_tests import record
from workflowstage import Stage, stage

from gpuprep import errors, records, remote, reports
from gpuprep.checks import commands
from gpuprep.desired import loading, profile, state
from gpuprep.records.findings import findings_of
from gpuprep.workflows import provision, rejudge, runs, sources

__all__ = ["stage"]  # a fixture

BARE = bare_snapshot()
UUID = FINISHED.gpus[0].uuid if isinstance(FINISHED.gpus, tuple) else ""


def test_a_finished_host_is_recognised_and_ansible_is_not_started(stage: Stage) -> None:
    made = stage(provision.provision)
    assert made.error is None
    assert made.plan is not None
    assert made.plan.steps == ()
    assert made.playbook is not None
    assert made.playbook.status == "not needed"
    assert made.verdict is not None
    assert (made.verdict.status, made.exit_code) == (records.Status.PASS, 0), made.verdict.summary
    assert made.after == made.before
    assert stage.store.get(made.run_id) == made
    locked, *rest = stage.script.events
    assert locked == f"locked for {made.run_id}"
    assert rest == ["facts as root", "unlocked", "probe toolkit", "probe codec", "closed"]


def test_provision_runs_the_planned_roles_and_looks_again(stage: Stage) -> None:
    stage.script.snapshots = [BARE, FINISHED]
    made = stage(provision.provision, skip=("codec",))
    assert made.error is None, made.error
    assert made.playbook is not None
    assert [task.task for task in made.playbook.tasks] == ["First", "The driver of t4", "Tune"]
    assert made.playbook.changed == 1
    assert Path(made.playbook.log).is_relative_to(Path(stage.store._shown_url).parent / "runs" / made.run_id)
    assert (made.before, made.after) == (BARE, FINISHED)
    assert made.exit_code == 0
    assert "codec" not in [step.role for step in made.plan.steps] if made.plan else False


def test_what_a_step_has_just_not_changed_does_not_name_the_step_again(stage: Stage) -> None:
    free = {name: dataclasses.replace(one, held=False) for name, one in FINISHED.packages.items()}
    assert isinstance(FINISHED.gpus, tuple)
    stuck = tuple(dataclasses.replace(gpu, compute_mode="prohibited") for gpu in FINISHED.gpus)
    stage.script.snapshots = [dataclasses.replace(FINISHED, packages=free, gpus=stuck)] * 2
    made = stage(provision.provision)
    left = {finding.key: finding for finding in findings_of(made) if finding.status is records.Status.FAIL}
    assert "driver.held" in left
    assert "this run did the step driver, but the finding remains" in left["driver.held"].remedy
    assert f"`gpuprep report {made.run_id}`" in left["driver.held"].remedy
    assert "the GPU did not keep it" in left["gpu 0.compute_mode"].remedy
    assert not commands.repair([made], list(left.values()))


@pytest.mark.machines
def test_deep_runs_all_roles_of_a_finished_host(stage: Stage) -> None:
    made = stage(provision.provision, deep=True, only=("tuning", "driver"))
    assert made.playbook is not None
    assert [task.task for task in made.playbook.tasks] == ["First", "The driver of t4", "Tune"]
    assert made.exit_code == 0


def test_a_failed_step_is_exit_code_4_and_recorded_with_what_was_done(stage: Stage) -> None:
    stage.script.snapshots = [BARE]
    made = stage(provision.provision)
    assert made.exit_code == 4
    assert made.verdict is None
    assert made.error is not None
    for part in ("here", "Break", "exit code 9", "no compiler", "what to do", "ansible.log"):
        assert part in made.error
    assert made.playbook is not None
    assert (made.playbook.status, made.playbook.changed) == ("failed", 1)
    assert made.findings != ()
    assert stage.store.get("last") == made
    assert stage.store.runs()[0].summary.startswith("here: step")
    assert "unlocked" not in stage.script.events  # the lock's context saw the error; it was left all the same
    assert stage.script.events[-1] == "closed"


def test_after_a_failed_step_the_record_has_the_machine_as_it_is_now(stage: Stage) -> None:
    stage.script.snapshots = [BARE, FINISHED]
    made = stage(provision.provision)
    assert (made.exit_code, made.verdict) == (4, None)
    assert "Break" in str(made.error)
    assert (made.before, made.after) == (BARE, FINISHED)
    of_driver = {finding.status for finding in made.findings if finding.key == "driver.version"}
    assert of_driver == {records.Status.PASS}, "it was FAIL before the run"


def test_a_host_that_no_longer_answers_after_a_failed_step_keeps_the_failure(stage: Stage) -> None:
    stage.script.snapshots = [BARE, errors.HostUnreachable("no answer from here", where="here")]
    made = stage(provision.provision)
    assert (made.exit_code, made.before, made.after) == (4, BARE, None)
    assert "Break" in str(made.error)


def test_check_shows_the_plan_of_plan_and_locks_nothing(stage: Stage) -> None:
    stage.script.snapshots = [BARE]
    checked = stage(provision.provision, check=True)
    planned = stage(provision.plan)
    assert checked.plan == planned.plan
    assert checked.plan is not None
    assert checked.plan.steps
    assert (checked.playbook, checked.exit_code, planned.exit_code) == (None, 0, 0)
    assert set(stage.script.events) == {"facts as root", "archives as root", "closed"}
    assert [run.command for run in stage.store.runs()] == ["provision"]


@pytest.mark.machines
def test_check_and_deep_run_ansible_in_check_mode(stage: Stage) -> None:
    made = stage(provision.provision, check=True, deep=True, only=("tuning",))
    assert made.playbook is not None
    assert [(task.task, task.outcome) for task in made.playbook.tasks] == [("First", "skipped"), ("Tune", "skipped")]


def test_parts_left_out_do_not_count_and_say_so(stage: Stage) -> None:
    stage.script.snapshots = [BARE, BARE]
    made = stage(provision.provision, only=("driver",))
    assert made.verdict is not None
    skipped = [finding for finding in made.verdict.findings if finding.role == "gpu_codec"]
    assert skipped
    assert {finding.status for finding in skipped} == {records.Status.SKIP}
    assert "would have been" in skipped[0].reason
    assert [finding for finding in made.verdict.findings if finding.status is records.Status.FAIL]
    assert made.exit_code == 1
    assert made.plan is not None
    assert any("left out" in note for note in made.plan.notes)


@pytest.mark.parametrize(("provenance", "steps"), [(None, ["gpu_preflight"]), (FINISHED.provenance, [])])
def test_a_run_that_was_broken_off_before_its_record_is_ended_by_the_same_command(
    provenance: Any, steps: list[str], stage: Stage
) -> None:
    """The agent is not there, as after the first --only driver."""
    stage.script.snapshots = [dataclasses.replace(FINISHED, provenance=provenance, agent_installed_version=None)]
    made = stage(provision.plan, only=("driver",))
    assert made.plan is not None
    assert [step.role for step in made.plan.steps] == steps
    assert all("who installed what" in step.reasons[0] for step in made.plan.steps)


# The steps of the run, and those that the refusal of a disk with 30 MiB free names: of these steps, those not yet done.
FULL = [
    (BARE, {}, "driver, cuda, cudnn, codec"),
    (BARE, {"only": ("driver", "cudnn")}, "driver, cudnn"),
    (BARE, {"skip": ("driver", "cuda")}, "cudnn, codec"),
    (BARE, {"only": ("agent", "tuning")}, ""),
    (BARE, {"skip": ("driver", "cuda", "cudnn", "codec")}, ""),
    (dataclasses.replace(FINISHED, cudnn=BARE.cudnn), {}, "cudnn"),
    (dataclasses.replace(FINISHED, cudnn=BARE.cudnn), {"only": ("driver", "codec")}, ""),
]


@pytest.mark.parametrize("command", [provision.plan, provision.provision])
@pytest.mark.parametrize(("there", "steps", "named"), FULL)
def test_room_is_asked_for_the_steps_of_this_run(
    stage: Stage, command: Callable[..., records.RunRecord], there: records.Snapshot, steps: dict[str, Any], named: str
) -> None:
    stage.script.snapshots = [dataclasses.replace(there, disk_free_mib={"/": 30})]
    made = stage(command, check=True, **steps)
    refused = re.findall(r"/ has 30 MiB free, and ([a-z, ]+) need", made.error or "")
    assert (refused, made.exit_code) == ([named] if named else [], 2 if named else 0)


def test_the_agent_for_the_nightly_check_and_tune_ask_for_no_room_of_other_steps() -> None:
    full = dataclasses.replace(BARE, disk_free_mib={"/": 30})
    assert state.resolve(T4, full, judging=True).min_free_mib == {}
    assert state.resolve(T4, full, steps=provision.TUNE_STEPS).min_free_mib == {}


@pytest.mark.parametrize(
    ("fault", "asked", "measured", "code"),
    [
        ("gemm", True, {"gemm"}, 1),
        ("gemm", False, {"gemm", "cudnn", "transcode", "throughput"}, 1),
        ("facts", True, set(), 1),
        ("", True, {"gemm", "cudnn", "transcode", "throughput"}, 0),
    ],
)
def test_first_failure_ends_the_run_and_says_what_was_not_measured(
    stage: Stage, fault: str, asked: bool, measured: set[str], code: int
) -> None:
    stage.script.snapshots = [dataclasses.replace(FINISHED, gpus=()) if fault == "facts" else FINISHED]
    if fault == "gemm":
        slow = dataclasses.replace(real(0.2, quick=True)["gemm"], source=FINISHED.source)
        stage.script.probes = {**stage.script.probes, "gemm": slow}
    made = stage(provision.validate, quick=True, first_failure=asked)
    assert made.exit_code == code
    left = {one.probe for one in made.measurements if getattr(one.values, "reason", "") == "first_failure"}
    asked_for = {one.probe for one in made.measurements}
    assert asked_for - left >= measured
    assert left.isdisjoint(measured)
    assert ("throughput" in left) == (asked and bool(fault))
    unknown = [one for one in made.findings if "ended at the first FAIL, as --first-failure asks" in one.reason]
    assert len({one.subject.split()[0] for one in unknown}) >= len(left) - 1
    assert all(one.status is records.Status.UNKNOWN and "run the same command again" in one.remedy for one in unknown)
    assert ("Not measured, because the run ended at its first FAIL" in reports.render(made, "text")) == bool(left)


@pytest.mark.parametrize("asked", [True, False])
def test_a_host_that_is_lost_before_its_probes_end_has_no_verdict(stage: Stage, asked: bool) -> None:
    stage.script.ending = {"gemm": errors.HostUnreachable("here: the connection was lost")}
    made = stage(provision.validate, quick=True, first_failure=asked)
    assert (made.verdict, made.exit_code) == (None, 3)
    assert stage.store.certified("here") is None


def test_no_validate_ends_without_a_verdict(stage: Stage) -> None:
    made = stage(provision.provision, validate=False)
    assert (made.verdict, made.exit_code) == (None, 0)


def test_tune_touches_and_judges_nothing_else(stage: Stage) -> None:
    untuned = dataclasses.replace(FINISHED, codec=BARE.codec, files=BARE.files)
    stage.script.snapshots = [untuned, FINISHED]
    made = stage(provision.tune)
    assert made.plan is not None
    assert {step.role for step in made.plan.steps} <= {"gpu_agent", "gpu_tuning"}
    assert made.playbook is not None
    assert [task.task for task in made.playbook.tasks] == ["First", "Tune"]
    assert made.exit_code == 0


def test_validate_reads_and_judges(stage: Stage) -> None:
    made = stage(provision.validate)
    assert (made.command, made.exit_code) == ("validate", 0)
    stage.script.snapshots = [dataclasses.replace(FINISHED, codec=BARE.codec)]
    assert stage(provision.validate).exit_code == 1
    assert not any(event.startswith("locked") for event in stage.script.events)


@pytest.mark.parametrize(
    ("error", "code"),
    [(errors.HostUnreachable("here: no answer", "switch it on"), 3), (errors.PlanRefused(["a", "b"], "change it"), 2)],
)
def test_errors_are_recorded_with_their_exit_code(stage: Stage, error: Any, code: int) -> None:
    stage.script.connecting = {"here": error}
    made = stage(provision.provision)
    assert (made.exit_code, made.error) == (code, error.explain())
    assert stage.store.get("last") == made


@pytest.mark.parametrize("command", [provision.provision, provision.validate])
def test_a_host_in_use_says_so(stage: Stage, command: Any) -> None:
    stage.script.locking = errors.HostLocked("here is in use by me", "wait")
    made = stage(command)
    assert (made.exit_code, made.before) == (3, None)
    assert "in use by me" in str(made.error)


def test_a_provision_that_begins_meanwhile_is_the_reason_not_what_failed(stage: Stage) -> None:
    before = stage(provision.validate)
    assert before.exit_code == 0
    broken = dataclasses.replace(stage.script.probes["toolkit"], values=records.Missing("command_failed"))
    stage.script.probes = {**stage.script.probes, "toolkit": broken}
    failed = stage(provision.validate)
    assert failed.verdict is not None
    assert failed.exit_code == 3
    stage.script.events.clear()
    stage.script.meanwhile = errors.HostLocked("here is in use by bob from desk, run 1, since 10:00", "wait")
    made = stage(provision.validate)
    assert (made.exit_code, made.verdict) == (3, None)
    assert str(made.error).startswith("here is in use by bob from desk, run 1, since 10:00")
    assert [result.probe for result in made.measurements], "what was measured stays on record"


def test_an_unexpected_error_is_that_hosts_own_and_has_a_log(stage: Stage) -> None:
    stage.script.probes = {}
    made = stage(provision.provision)
    assert stage.store.get("last") == made
    assert made.exit_code == 3
    assert made.error is not None
    said, log = made.error.splitlines()
    assert said.startswith("an error inside gpuprep: AssertionError: nobody prepared an answer to ")
    assert "Traceback" in Path(log.removeprefix("whole log: ")).read_text()


def test_an_interruption_is_recorded(stage: Stage) -> None:
    stage.cancel.set()
    made = stage(provision.provision)
    assert made.exit_code == 130
    assert stage.store.get("last") == made


def test_a_store_that_fails_does_not_lose_the_record(stage: Stage) -> None:
    stage.store.close()
    Path(stage.store._shown_url).write_text("spoiled " * 1000)
    made = stage(provision.provision)
    assert made.exit_code == 3
    assert made.error is not None
    assert "record.json" in made.error
    assert made.verdict is not None


@pytest.mark.parametrize("options", [{"only": ("drivers",)}, {"skip": ("",)}, {"only": ("preflight",)}])
def test_unknown_steps_are_wrong_usage(options: dict[str, Sequence[str]]) -> None:
    with pytest.raises(errors.UsageError, match="no step") as caught:
        provision.check_request(T4, runs.Options(**options))  # type: ignore[arg-type]
    assert "codec" in caught.value.hint


def test_what_no_machine_can_be_is_refused_before_one_is_touched() -> None:
    wish = dataclasses.replace(loading.load("v100"), driver=dataclasses.replace(T4.driver, flavour="open"))
    with pytest.raises(errors.PlanRefused, match="open"):
        provision.check_request(wish, runs.Options())


def test_gravest_exit_code() -> None:
    orders = [([0, 1], 1), ([1, 3], 3), ([4, 3, 1], 4), ([0], 0), ([2, 1], 2), ([3, 2], 3), ([130, 4], 130), ([], 0)]
    assert [provision.worst(codes) for codes, _ in orders] == [code for _, code in orders]


def test_each_host_has_its_record_in_order_and_at_most_forks_at_a_time() -> None:
    at_work, most = 0, 0
    lock, together = threading.Lock(), threading.Barrier(2, timeout=600)

    def work(target: remote.Target) -> records.RunRecord:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        together.wait()
        with lock:
            at_work -= 1
        return record(host=target.name)

    names = [f"h{number}" for number in range(6)]
    made = runs.on_each(
        [remote.Target(name) for name in names], work, forks=2, cancel=threading.Event(), interrupted=lambda: None
    )
    assert [run.host for run in made] == names
    assert most == 2


def test_mirrors_keep_upstreams_file_names() -> None:
    roles = {"gpu_codec_ffmpeg_url": "https://ffmpeg.org/releases/ffmpeg-7.1.5.tar.xz"}
    mirrors = {"ffmpeg": "file:///srv/mirror/", "nv_codec_headers": "https://x"}
    assert sources.mirrored(roles, mirrors) == {"gpu_codec_ffmpeg_url": "file:///srv/mirror/ffmpeg-7.1.5.tar.xz"}


def test_a_mirror_of_nvidias_repository_is_taken_whole_with_its_key() -> None:
    mirrors = {"nvidia": "https://mirror.example/cuda/repos/", "nvidia_key": "/etc/own.asc"}
    assert sources.mirrored({}, mirrors) == {
        "gpu_driver_nvidia_url": "https://mirror.example/cuda/repos",
        "gpu_driver_nvidia_key": "/etc/own.asc",
    }


def test_the_password_is_in_no_record() -> None:
    options = runs.Options(become_password="hunter2")
    assert "hunter2" not in repr(options)
    assert "hunter2" not in str(options.as_recorded())


def test_each_option_is_recorded_or_says_nothing_of_what_was_done() -> None:
    names = {field.name for field in dataclasses.fields(runs.Options)}
    asked = runs.Options(asked={"profile": "t4"}).as_recorded()
    assert names - set(asked) == {"accept_new_host_key", "become_password", "mirrors", "builds", "verbosity", "now"}
    assert set(asked) <= names


def gemm_probe(tflops: float, source: records.Source = records.Source.MEASURED) -> dict[str, records.ProbeResult]:
    """A T4 under its power cap; the FP16 product is as fast as the test says."""
    speeds = {"fp16": tflops, "fp32": 4.2, "fp64": 0.14, "int8": 60.0}
    products = [gemm(d, t, graphics_clock_mhz=900, event_reasons=4) for d, t in speeds.items()]
    return {"gemm": records.ProbeResult("gemm", source, gemm_values(gemm_gpu("1eb8", products, uuid=UUID)), 10.0)}


def history_of(made: records.RunRecord) -> list[records.Status]:
    return [finding.status for finding in made.findings if finding.property == "gemm_history"]


def test_the_first_run_of_a_real_host_that_passes_is_its_baseline(stage: Stage) -> None:
    def validate(tflops: float, source: records.Source = records.Source.MEASURED) -> records.RunRecord:
        stage.script.snapshots = [dataclasses.replace(FINISHED, source=source)]
        stage.script.probes = gemm_probe(tflops, source)
        return stage(provision.validate, probes=("gemm",), quick=True)

    simulated = validate(31.5, records.Source.SIMULATED)
    assert (simulated.exit_code, history_of(simulated)) == (0, [])
    failed = validate(10.0)
    assert (failed.exit_code, history_of(failed)) == (1, [])
    first = validate(30.0)
    assert (first.exit_code, history_of(first)) == (0, [])
    assert history_of(validate(31.0)) == [records.Status.PASS]
    assert history_of(validate(28.0)) == [records.Status.WARN]
    slower = validate(26.0)
    assert (slower.exit_code, history_of(slower)) == (1, [records.Status.FAIL])
    assert any(first.run_id in finding.reason for finding in slower.findings)
    assert history_of(validate(26.0, records.Source.SIMULATED)) == []


def test_what_the_load_brought_about_is_judged_as_a_rate(stage: Stage, tmp_path: Path) -> None:
    """A link that sent 1000 packets again in a month is well; 500 in the three minutes of the load are not."""

    def linked(replays: int, taken_at: str) -> records.Snapshot:
        assert not isinstance(FINISHED.gpus, records.Missing)
        (gpu,) = FINISHED.gpus
        kernel = dataclasses.replace(FINISHED.kernel, uptime_seconds=30 * 86400.0)
        gpus = (dataclasses.replace(gpu, pcie=records.PcieLink(3, 16, 3, 16, 3, replays)),)
        return dataclasses.replace(FINISHED, gpus=gpus, kernel=kernel, taken_at=taken_at)

    def judged(made: records.RunRecord) -> tuple[records.Status, str]:
        (finding,) = [one for one in made.findings if one.key == "gpu 0.pcie_errors"]
        return finding.status, finding.reason

    stage.script.snapshots = [linked(1000, "2026-11-22T10:00:00+00:00"), linked(1500, "2026-11-22T10:03:00+00:00")]
    stage.script.probes = gemm_probe(30.0)
    made = stage(provision.validate, probes=("gemm",), quick=True)
    status, reason = judged(made)
    assert status is records.Status.WARN
    assert "500 packets had to be sent again since the previous reading, 167 a minute" in reason
    (tmp_path / "record.json").write_text(records.to_json(made))
    assert [judged(again) for again in rejudge.judge_file(tmp_path / "record.json", T4)] == [(status, reason)]
    stage.script.snapshots = [linked(1500, "2026-11-22T10:00:00+00:00")]
    assert judged(stage(provision.validate, probes=("gemm",), quick=True))[0] is records.Status.PASS


def test_what_is_measured_under_a_waiver_is_no_baseline(stage: Stage) -> None:
    def validate(tflops: float, waived: str) -> records.RunRecord:
        stage.script.snapshots = [dataclasses.replace(FINISHED, source=records.Source.MEASURED)]
        stage.script.probes = gemm_probe(tflops)
        given = dataclasses.replace(T4, waivers=(profile.Waiver(waived, "*", "a slow one", "2099-12-31"),))
        line = runs.RunContext(lambda *_: None, stage.store, stage.cancel.is_set)
        return provision.validate(HERE, given, runs.Options(probes=("gemm",), quick=True), line)

    slow = validate(10.0, "gpu 0.*")
    assert (slow.exit_code, records.Status.WAIVED in {one.status for one in slow.findings}) == (0, True)
    assert history_of(validate(30.0, "nothing.here")) == []
    assert history_of(validate(30.0, "nothing.here")) == [records.Status.PASS]
