"""Two runs side by side: each kind of difference is found, and nothing else is."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from builders import bare_snapshot, finished_snapshot, load
from gemmrecords import gemm, gpu, values
from records_for_tests import FINDINGS, SNAPSHOT, measured, record

from gpuprep import records
from gpuprep.desired import state
from gpuprep.reports import comparison

WANTED = state.resolve(load("t4"), bare_snapshot())
HOST = dataclasses.replace(
    finished_snapshot(WANTED), units={"nvidia-persistenced": records.UnitFacts("enabled", "active")}
)


def run(after: records.Snapshot | None = HOST, **changes: Any) -> records.RunRecord:
    return record(changes.pop("run_id", "r1"), before=None, after=after, **changes)


def facts(changed: records.Snapshot) -> list[comparison.FactChange]:
    return list(comparison.compare(run(), run(changed, run_id="r2")).facts)


def gpus(snapshot: records.Snapshot, **changes: Any) -> records.Snapshot:
    assert not isinstance(snapshot.gpus, records.Missing)
    first, *others = snapshot.gpus
    return dataclasses.replace(snapshot, gpus=(dataclasses.replace(first, **changes), *others))


def test_a_run_is_like_itself() -> None:
    one = measured("r1", 280.0, after=HOST)
    found = comparison.compare(one, one)
    assert (found.notes, found.facts, found.findings, found.not_comparable) == (("both are run r1",), (), (), ())
    assert [change.percent for change in found.figures] == [0.0]


def test_what_differs_at_every_moment_is_no_change() -> None:
    later = gpus(HOST, temperature_c=71, graphics_clock_mhz=300, power_watts=65.0, performance_state=0)
    kernel = dataclasses.replace(later.kernel, boot_id="another", uptime_seconds=5.0)
    assert facts(dataclasses.replace(later, kernel=kernel, taken_at="2030", disk_free_mib={"/": 1})) == []


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            dataclasses.replace(HOST, driver=dataclasses.replace(HOST.driver, loaded_version="999.1")),
            comparison.FactChange("driver.loaded_version", str(HOST.driver.loaded_version), "999.1"),
        ),
        (gpus(HOST, persistence_mode=False), comparison.FactChange("gpu 0.persistence_mode", "yes", "no")),
        (
            gpus(HOST, memory_total_mib=records.Missing("gpu_is_lost")),
            comparison.FactChange("gpu 0.memory_total_mib", "15360", "not read (gpu_is_lost)"),
        ),
        (
            dataclasses.replace(HOST, packages={**HOST.packages, "new": records.Package("1.0", False)}),
            comparison.FactChange("packages.new", "absent", "present"),
        ),
        (
            dataclasses.replace(HOST, units={"nvidia-persistenced": records.UnitFacts("disabled", "active")}),
            comparison.FactChange("units.nvidia-persistenced.enabled", "enabled", "disabled"),
        ),
        (dataclasses.replace(HOST, gpus=()), comparison.FactChange("gpu 0", "present", "absent")),
    ],
)  # fmt: skip
def test_each_change_of_a_fact_is_one_line(changed: records.Snapshot, expected: comparison.FactChange) -> None:
    found = facts(changed)
    assert expected in found
    assert len([change for change in found if change.fact.startswith(expected.fact)]) == 1


def test_changes_of_findings_are_told_by_what_they_mean() -> None:
    def finding(name: str, status: records.Status) -> records.Finding:
        return records.Finding("gpu 0", name, status, "", status.value.lower())

    was = {
        "a": records.Status.PASS,
        "b": records.Status.FAIL,
        "c": records.Status.PASS,
        "d": records.Status.PASS,
        "f": records.Status.SKIP,
        "g": records.Status.PASS,
    }
    now = {
        **was,
        "a": records.Status.FAIL,
        "b": records.Status.PASS,
        "c": records.Status.WARN,
        "e": records.Status.PASS,
        "f": records.Status.UNKNOWN,
    }
    del now["d"]
    one = run(verdict=None, findings=tuple(finding(name, status) for name, status in was.items()))
    two = run(run_id="r2", verdict=None, findings=tuple(finding(name, status) for name, status in now.items()))
    assert [(change.key[-1], change.kind) for change in comparison.compare(one, two).findings] == [
        ("a", "newly failing"),
        ("c", "changed"),
        ("f", "changed"),
        ("b", "newly passing"),
        ("e", "only in two"),
        ("d", "only in one"),
    ]
    (first, *_) = comparison.compare(one, two).findings
    assert (first.one, first.two, first.actual_one, first.actual_two) == (
        records.Status.PASS,
        records.Status.FAIL,
        "pass",
        "fail",
    )


def test_figures_are_in_per_cent_the_greatest_loss_first() -> None:
    def of(run_id: str, *tflops: float) -> records.RunRecord:
        made = [gemm(kind, value) for kind, value in zip(("fp16", "bf16", "tf32"), tflops, strict=True)]
        probed = records.ProbeResult("gemm", records.Source.MEASURED, values(gpu("20b0", made)), 10.0)
        return dataclasses.replace(measured(run_id, 1.0), measurements=(probed,))

    found = comparison.compare(of("r1", 280.0, 266.0, 140.0), of("r2", 280.0, 239.4, 154.0))
    assert [(change.figure[:4], round(change.percent, 6)) for change in found.figures] == [
        ("bf16", -10.0),
        ("fp16", 0.0),
        ("tf32", 10.0),
    ]
    assert found.not_comparable == ()


def with_gpu(record_: records.RunRecord, **changes: Any) -> records.RunRecord:
    """Its GPU as facts and figures name it."""
    after = gpus(HOST, **changes)
    assert not isinstance(after.gpus, records.Missing)
    made = gpu("20b0", [gemm("fp16", 280.0)])
    probed = records.ProbeResult("gemm", record_.source, values({**made, "uuid": after.gpus[0].uuid}), 10.0)
    return dataclasses.replace(record_, after=after, measurements=(probed,))


def why(one: records.RunRecord, two: records.RunRecord) -> comparison.Comparison:
    found = comparison.compare(one, two)
    assert found.figures == ()
    return found


def test_gpus_of_two_hosts_are_paired_by_index_and_model() -> None:
    one = with_gpu(measured("r1", 280.0), uuid="GPU-a")
    two = with_gpu(measured("r2", 280.0, host="gpu-2"), uuid="GPU-b")
    found = comparison.compare(one, two)
    assert (len(found.figures), found.notes) == (1, ("different hosts: gpu-1 and gpu-2",))
    other = with_gpu(measured("r2", 280.0, host="gpu-2"), uuid="GPU-b", name="NVIDIA V100")
    assert why(one, other).not_comparable[0] == "gpu 0: T4 in one run and NVIDIA V100 in the other"


def test_what_cannot_be_compared_says_why() -> None:
    one = measured("r1", 280.0)
    simulated = measured("r2", 280.0, source=records.Source.SIMULATED)
    assert "simulated" in why(one, simulated).not_comparable[0]
    assert why(one, simulated).notes[0] == "run r1 is measured and run r2 simulated"
    assert why(one, measured("r2", 280.0, measurements=())).not_comparable == (
        "run r2 measured nothing that can be compared",
    )
    probed = records.ProbeResult(
        "gemm", records.Source.MEASURED, values(gpu("20b0", [gemm("fp16", 280.0)]), quick=False), 10.0
    )
    (said,) = why(one, measured("r2", 280.0, measurements=(probed,))).not_comparable
    assert said == "GPU-0 gemm: quick in one, full in two"


def reasons(one: records.RunRecord, two: records.RunRecord) -> list[tuple[str, ...]]:
    return [each.reasons for each in comparison.compare(one, two).not_compared]


def test_the_reason_is_a_word_for_programs_and_a_sentence_for_people() -> None:
    one = measured("r1", 280.0)

    def with_libraries(version: str, *, quick: bool = True) -> records.RunRecord:
        loaded = ({"name": "cublasLt", "path": "/lib/libcublasLt.so", "version": version},)
        probed = {**values(gpu("20b0", [gemm("fp16", 280.0)]), quick=quick), "libraries": list(loaded)}
        return measured("r2", 280.0, measurements=(records.ProbeResult("gemm", records.Source.MEASURED, probed, 10.0),))

    assert reasons(one, measured("r2", 281.0)) == []
    assert reasons(one, measured("r2", 280.0, measurements=())) == [(comparison.NOT_MEASURED,)]
    assert reasons(one, measured("r2", 280.0, source=records.Source.SIMULATED)) == [(comparison.SIMULATED_AND_REAL,)]
    assert reasons(one, with_libraries("13.1.0")) == [(comparison.OTHER_VERSIONS,)]
    assert comparison.compare(one, with_libraries("13.1.0")).not_comparable == (
        "GPU-0 gemm: cublasLt 12.4.5 in one, 13.1.0 in two",
    )
    assert reasons(one, with_libraries("13.1.0", quick=False)) == [
        (comparison.QUICK_AND_FULL, comparison.OTHER_VERSIONS)
    ]
    newer = dataclasses.replace(SNAPSHOT, source=records.Source.MEASURED, agent_version="9.0.0")
    assert comparison.compare(one, measured("r2", 280.0, after=newer)).not_comparable == (
        "GPU-0 gemm: gpuprep 0.1.0 in one, 9.0.0 in two",
    )


def test_a_figure_of_one_run_alone_is_named() -> None:
    two_types = records.ProbeResult(
        "gemm", records.Source.MEASURED, values(gpu("20b0", [gemm("fp16", 280.0), gemm("bf16", 270.0)])), 10.0
    )
    found = comparison.compare(measured("r1", 280.0), measured("r2", 280.0, measurements=(two_types,)))
    assert [change.figure for change in found.figures] == ["fp16 8192x8192x8192 TN"]
    (left,) = found.not_compared
    assert (left.gpu, left.probe, left.figures) == ("GPU-0", "gemm", ("bf16 8192x8192x8192 TN",))
    assert left.words == "only run two measured bf16 8192x8192x8192 TN"


def test_quick_and_full_runs_say_so_at_once() -> None:
    quick = measured("r1", 280.0, options={"quick": True})
    full = measured("r2", 280.0, options={"quick": False})
    note = "run r1 is quick and run r2 full: what they measured is not compared"
    assert note in comparison.compare(quick, full).notes
    assert note in comparison.compare(full, quick).notes
    assert note not in comparison.compare(quick, quick).notes


def test_a_run_without_facts_says_so() -> None:
    found = comparison.compare(run(), run(None, run_id="r2", verdict=None, findings=()))
    assert found.facts == ()
    assert found.notes == ("run r2 has no facts: it ended before any were read",)
    assert {change.kind for change in found.findings} == {"only in one"}
    assert len(found.findings) == len(FINDINGS)
