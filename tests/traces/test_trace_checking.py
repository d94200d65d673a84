"""Does a profile pass? PASS, FAIL and UNKNOWN are never confused."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import pytest
from programs import PRODUCT_BF16, PRODUCT_FP32, Kernel, Program

from gpuprep import errors, records
from gpuprep.trace import checking, comparing, document
from gpuprep.trace.advice import rules

FLOAT = {"shapes": [[4096, 4096], [4096, 4096]], "dtypes": ["float", "float"]}
HALF = {"shapes": [[4096, 4096], [4096, 4096]], "dtypes": ["c10::BFloat16", "c10::BFloat16"]}


def program(
    kernel: str = PRODUCT_BF16, ns: int = 200_000, *, shapes: bool = True, steps: int = 3, memory: bool = True
) -> Program:
    p = Program()
    given = (FLOAT if kernel == PRODUCT_FP32 else HALF) if shapes else {}
    for _ in p.steps(steps):
        for _ in range(10):
            p.op("aten::mm", Kernel(kernel, ns), **given)  # type: ignore[arg-type]
        p.now = max(p.free.values())
        if memory:
            p.trace.memory(p.now, 1, 50_000_000_000, 60_000_000_000)
    return p


@pytest.fixture
def clean(tmp_path: Path) -> document.TraceDocument:
    return program().opened(tmp_path).document


@pytest.fixture
def guilty(tmp_path: Path) -> document.TraceDocument:
    return program(PRODUCT_FP32).opened(tmp_path).document


@pytest.fixture
def shapeless(tmp_path: Path) -> document.TraceDocument:
    return program(shapes=False).opened(tmp_path).document


def status(found: checking.Checked, name: str) -> records.Status:
    return next(line.status for line in found.lines if line.name == name)


def test_a_clean_profile_passes(clean: document.TraceDocument) -> None:
    found = checking.check(clean)
    assert found.exit_code == 0, found.lines
    assert {line.status for line in found.lines} == {records.Status.PASS}
    assert {line.name for line in found.lines} == {one.id for one in rules().values() if one.severity != "missing"}


@pytest.mark.parametrize("kernel", [PRODUCT_FP32, PRODUCT_BF16])
@pytest.mark.parametrize("fault", ["gone", "far away", "backwards"])
def test_with_a_third_of_the_kernels_corrupt_nothing_is_judged(kernel: str, fault: str, tmp_path: Path) -> None:
    p = program(kernel)
    for event in [event for event in p.trace.events if event.get("cat") == "kernel"][::3]:
        if fault == "gone":
            p.trace.events.remove(event)
        else:
            event.update({"ts": 10**17} if fault == "far away" else {"dur": -5})
    found = checking.check(p.opened(tmp_path).document)
    assert found.exit_code == 3
    assert not {records.Status.FAIL, records.Status.PASS} & {line.status for line in found.lines}


@pytest.mark.parametrize(("category", "rule"), [("cuda_runtime", "sync"), ("cpu_op user_annotation", "dataloader")])
def test_what_the_profile_lacks_is_no_pass(category: str, rule: str, tmp_path: Path) -> None:
    made = program()
    made.trace.events[:] = [event for event in made.trace.events if event.get("cat") not in category.split()]
    found = checking.check(made.opened(tmp_path).document, rules=(rule,))
    assert (status(found, rule), found.exit_code) == (records.Status.UNKNOWN, 3)


def test_a_problem_fails_and_says_what(guilty: document.TraceDocument) -> None:
    found = checking.check(guilty, rules=("tf32", "sync"))
    assert found.exit_code == 1
    assert status(found, "tf32") is records.Status.FAIL
    assert status(found, "sync") is records.Status.PASS
    assert found.lines[0].name == "tf32"  # what failed stands first
    assert "without Tensor Cores" in found.lines[0].text
    assert found.lines[0].text.endswith(" A change saves about 57.1 µs a step.")


def test_rules_may_be_one_word_with_commas(guilty: document.TraceDocument) -> None:
    assert checking.check(guilty, rules=("sync, dataloader",)).exit_code == 0
    assert [line.name for line in checking.check(guilty, rules=("sync,tf32",)).lines] == ["tf32", "sync"]


def test_what_the_baseline_has_is_no_new_failure(guilty: document.TraceDocument, clean: document.TraceDocument) -> None:
    same = checking.check(guilty, baseline=guilty)
    assert same.exit_code == 0
    assert status(same, "tf32") is records.Status.WARN
    assert checking.check(guilty, baseline=clean).exit_code == 1
    assert checking.check(clean, baseline=guilty).exit_code == 0


def test_a_new_finding_of_the_machine_fails_beside_an_old_one(clean: document.TraceDocument) -> None:
    said = [
        document.Advice("machine", "problem", text, "do it", "https://a", (), (), "", None)
        for text in ("gpu 0: clocks are low.", "gpu 0: power is capped.")
    ]
    old = dataclasses.replace(clean, advice=(said[0],))
    new = dataclasses.replace(clean, advice=tuple(said))
    assert checking.check(old, rules=("machine",), baseline=old).exit_code == 0
    found = checking.check(new, rules=("machine",), baseline=old)
    assert found.exit_code == 1
    assert found.lines[0].text == "gpu 0: power is capped."
    other = dataclasses.replace(clean, advice=(said[1],))
    assert checking.check(other, rules=("machine",), baseline=old).exit_code == 1
    compared = comparing.compare(old, new)
    assert [one.problem for one in compared.rules_new] == ["gpu 0: power is capped."]
    assert [one.problem for one in compared.rules_kept] == ["gpu 0: clocks are low."]


def test_a_rule_that_could_not_be_judged_is_unknown(shapeless: document.TraceDocument) -> None:
    found = checking.check(shapeless, rules=("tf32",))
    assert found.exit_code == 3
    assert status(found, "tf32") is records.Status.UNKNOWN
    assert "record_shapes" in found.lines[0].text
    assert checking.check(shapeless).exit_code == 3
    assert status(checking.check(shapeless, rules=("tf32",), baseline=shapeless), "tf32") is records.Status.WARN


def test_what_the_baseline_tells_and_the_profile_does_not_is_unknown(
    clean: document.TraceDocument, shapeless: document.TraceDocument
) -> None:
    assert checking.check(shapeless, rules=("tf32",), baseline=clean).exit_code == 3


def test_a_failure_counts_more_than_what_is_unknown(
    guilty: document.TraceDocument, shapeless: document.TraceDocument
) -> None:
    both = dataclasses.replace(guilty, advice=(*guilty.advice, *shapeless.advice))
    found = checking.check(both)
    assert found.exit_code == 1
    assert records.Status.UNKNOWN in {line.status for line in found.lines}


def test_a_hint_fails_only_where_it_is_named(tmp_path: Path) -> None:
    p = program()
    p.trace.memory(p.now - 10_000, 1, 10, 10)
    for event in p.trace.events:  # all of it below a quarter of the memory
        if event["name"] == "[memory]":
            event["args"]["Total Allocated"] = 1_000
    low = p.opened(tmp_path).document
    assert status(checking.check(low), "mem-low") is records.Status.WARN
    assert checking.check(low).exit_code == 0
    assert checking.check(low, rules=("mem-low",)).exit_code == 1


@pytest.mark.parametrize(
    ("names", "whole"), [(("all",), "PASS"), (("mem-high", "mem-low"), "SKIP"), (("all", "mem-high"), "PASS")]
)
def test_a_hint_that_could_not_be_judged_never_makes_exit_code_3(
    names: tuple[str, ...], whole: str, tmp_path: Path, clean: document.TraceDocument
) -> None:
    """Memory events are seldom recorded: every good profile without them ended with exit code 3."""
    lacking = program(memory=False).opened(tmp_path).document
    found = checking.check(lacking, rules=names)
    assert (status(found, "mem-high").value, found.status.value, found.exit_code) == ("SKIP", whole, 0)
    assert "profile_memory=True" in next(line.text for line in found.lines if line.name == "mem-high")
    assert checking.check(lacking, rules=names, baseline=clean).exit_code == 0
    assert checking.check(lacking, rules=names, baseline=lacking).exit_code == 0


@pytest.mark.parametrize("lacks", ["Total Allocated", "totalGlobalMem"])
def test_memory_events_that_do_not_tell_how_full_it_is_judge_nothing(lacks: str, tmp_path: Path) -> None:
    made = program()
    made.trace.top = copy.deepcopy(made.trace.top)
    for holder in (*(event.get("args", {}) for event in made.trace.events), *made.trace.top["deviceProperties"]):
        holder.pop(lacks, None)
    found = checking.check(made.opened(tmp_path).document)
    assert (status(found, "mem-low"), status(found, "mem-high"), found.exit_code) == (records.Status.SKIP,) * 2 + (0,)


@pytest.mark.parametrize(
    ("ns", "within", "code"), [(200_000, 5, 0), (208_000, 5, 0), (230_000, 5, 1), (230_000, 20, 0)]
)
def test_step_time_against_the_baseline(
    ns: int, within: float, code: int, tmp_path: Path, clean: document.TraceDocument
) -> None:
    slower = program(ns=ns).opened(tmp_path).document
    found = checking.check(slower, rules=("sync",), baseline=clean, within_percent=within)
    assert found.exit_code == code, found.lines
    assert status(found, "step-time") is (records.Status.FAIL if code else records.Status.PASS)


def test_a_step_that_is_a_little_too_long_is_not_said_to_be_as_long_as_allowed(clean: document.TraceDocument) -> None:
    summary = dataclasses.replace(clean.summary, average_iteration_us=clean.summary.average_iteration_us * 1.0502)
    found = checking.check(dataclasses.replace(clean, summary=summary), rules=("sync",), baseline=clean)
    (line,) = [line for line in found.lines if line.name == "step-time"]
    assert line.status is records.Status.FAIL
    assert "+5.02 % of the baseline's" in line.text
    assert "(allowed: +5 %)" in line.text


def test_a_faster_step_passes(tmp_path: Path, clean: document.TraceDocument) -> None:
    faster = program(ns=50_000).opened(tmp_path).document
    assert status(checking.check(faster, rules=("sync",), baseline=clean), "step-time") is records.Status.PASS


@pytest.mark.parametrize("other", ["gpu", "split"])
def test_a_baseline_of_another_gpu_or_of_other_steps_proves_nothing(other: str, clean: document.TraceDocument) -> None:
    devices = tuple(dataclasses.replace(one, name="NVIDIA T4") for one in clean.file.devices)
    baseline = {
        "gpu": dataclasses.replace(clean, file=dataclasses.replace(clean.file, devices=devices)),
        "split": dataclasses.replace(clean, summary=dataclasses.replace(clean.summary, split_by="annotation batch")),
    }[other]
    found = checking.check(clean, baseline=baseline)
    assert (status(found, "step-time"), found.exit_code) == (records.Status.UNKNOWN, 3)
    assert ("T4" if other == "gpu" else "annotation batch") in found.lines[0].text


def test_without_steps_the_time_is_unknown(clean: document.TraceDocument, tmp_path: Path) -> None:
    p = Program()
    p.op("aten::mm", Kernel(PRODUCT_BF16, 200_000), **HALF)  # type: ignore[arg-type]
    stepless = p.opened(tmp_path).document
    for one, other in ((clean, stepless), (stepless, clean)):
        found = checking.check(one, rules=("sync",), baseline=other)
        assert status(found, "step-time") is records.Status.UNKNOWN
        assert found.exit_code == 3


@pytest.mark.parametrize("names", [("no-such-rule",), ("",), (), ("all", "tf-32")])
def test_a_rule_that_there_is_not_is_wrong_usage(names: tuple[str, ...], clean: document.TraceDocument) -> None:
    with pytest.raises(errors.UsageError) as error:
        checking.check(clean, rules=names)
    assert error.value.exit_code == 2
    assert "tf32" in error.value.hint


@pytest.mark.parametrize("percent", [-1.0, float("nan")])
def test_a_percentage_below_nothing_is_wrong_usage(percent: float, clean: document.TraceDocument) -> None:
    with pytest.raises(errors.UsageError):
        checking.check(clean, baseline=clean, within_percent=percent)
