"""gpuprep trace check and compare of folders with a file of each rank."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import tracesteps
from commandline import own_folders
from manyranks import STEP, RankTrace, job

from gpuprep.cli import cli, run_command

Run = Callable[..., tuple[int, str, str]]
EVEN = (0.0, 100.0, 150.0)  # in place of manyranks.EXTRA: no rank is late


@pytest.fixture
def gpuprep(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    own_folders(monkeypatch, tmp_path)

    def run(*words: str | Path) -> tuple[int, str, str]:
        code = run_command.run(cli, ["trace", str(words[0]), "-q", *map(str, words[1:])])
        said = capfdbinary.readouterr()
        return code, said.out.decode("utf-8"), said.err.decode("utf-8")

    return run


def write(folder: Path, traces: list[RankTrace]) -> Path:
    folder.mkdir()
    for trace in traces:
        trace.write(folder)
    return folder


@pytest.fixture
def late(tmp_path: Path) -> Path:
    """Rank 2 is a straggler."""
    return write(tmp_path / "late", job())


@pytest.fixture
def even(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("manyranks.EXTRA", EVEN)
    return write(tmp_path / "even", job())


def longer(traces: list[RankTrace], rank: int, factor: float) -> list[RankTrace]:
    """The steps of one rank are further apart."""
    for event in traces[rank].events:
        step = (event["ts"] - 1000.0) // STEP
        event["ts"] = round(event["ts"] + step * STEP * (factor - 1), 3)
        if event["name"].startswith("ProfilerStep"):
            event["dur"] *= factor
    return traces


def lines(out: str) -> dict[tuple[str, int | None], dict[str, Any]]:
    return {(one["name"], one["rank"]): one for one in json.loads(out)["lines"]}


# ---------------------------------------------------------------- check


def test_each_rank_and_the_job_are_judged(gpuprep: Run, late: Path) -> None:
    code, out, _ = gpuprep("check", late, "--rules", "straggler,comm-exposed,sync", "--json")
    found = lines(out)
    assert code == 1
    jsonschema.validate(json.loads(out), tracesteps.schemas()["trace-check"])
    assert json.loads(out)["profile_name"] == "late"
    assert {key: one["status"] for key, one in found.items()} == {
        ("straggler", None): "FAIL", ("comm-exposed", 0): "FAIL", ("comm-exposed", 1): "FAIL",
        ("comm-exposed", 2): "PASS", ("sync", 0): "PASS", ("sync", 1): "PASS", ("sync", 2): "PASS",
        ("ranks", None): "PASS",
    }  # fmt: skip
    assert "Rank 2 enters most collectives last" in found["straggler", None]["text"]


def test_each_line_says_its_rank_and_what_is_alike_stands_once(gpuprep: Run, late: Path) -> None:
    _, out, _ = gpuprep("check", late, "--rules", "comm-exposed,amp,sync", "-v")
    said = [" ".join(line.split()) for line in out.splitlines()]
    assert said[0].startswith("FAIL comm-exposed rank 0: NCCL kernels run 1.99 ms")
    assert any(line.startswith("UNKNOWN amp ranks 0 to 2: The profile has no input shapes") for line in said)
    assert "PASS sync ranks 0 to 2" in said
    assert said[-1] == "FAIL"


def test_a_baseline_is_compared_rank_by_rank(gpuprep: Run, late: Path, even: Path) -> None:
    words = ("--rules", "straggler,sync", "--baseline")
    assert gpuprep("check", late, *words, late)[0] == 0
    assert gpuprep("check", even, *words, late)[0] == 0
    code, out, _ = gpuprep("check", late, *words, even)
    assert (code, out.splitlines()[0].split()[:2]) == (1, ["FAIL", "straggler"])


def test_the_step_of_a_job_is_that_of_its_slowest_rank(gpuprep: Run, tmp_path: Path, late: Path) -> None:
    slower = write(tmp_path / "slower", longer(job(), 1, 1.2))
    code, out, _ = gpuprep("check", slower, "--rules", "sync", "--baseline", late, "--json")
    assert code == 1
    assert lines(out)["step-time", None]["text"] == (
        "12.000 ms a step in rank 1, the slowest, +20.0 % of the baseline's 10.000 ms in rank 0 (allowed: +5 %)"
    )
    assert gpuprep("check", slower, "--rules", "sync", "--baseline", late, "--within", "21")[0] == 0
    # A rank that became faster changes nothing for the job.
    assert gpuprep("check", late, "--rules", "sync", "--baseline", slower)[0] == 0


def test_a_rank_without_a_profile_is_unknown(gpuprep: Run, late: Path, even: Path) -> None:
    (late / "rank1.json").unlink()
    code, out, _ = gpuprep("check", late, "--rules", "sync", "--json")
    assert (code, lines(out)["ranks", None]["text"]) == (3, "no profile of rank: 1")
    (even / "rank1.json").write_text('{"traceEvents": [')
    code, out, _ = gpuprep("check", even, "--rules", "sync", "--json")
    assert code == 3
    assert "left out: rank1.json: the file ends before its first event does" in lines(out)["ranks", None]["text"]
    assert ("sync", 1) not in lines(out)


def test_a_rank_that_the_baseline_lacks_is_not_judged(gpuprep: Run, late: Path, even: Path) -> None:
    (even / "rank2.json").unlink()
    code, out, _ = gpuprep("check", late, "--rules", "sync", "--baseline", even, "--json")
    assert (code, lines(out)["ranks", None]["text"]) == (3, "not in the baseline, so not judged: rank: 2")
    assert ("sync", 2) not in lines(out)
    assert gpuprep("check", even, "--rules", "sync", "--baseline", even)[0] == 0, "no news"


def test_without_collectives_nobody_knows_who_is_late(gpuprep: Run, tmp_path: Path) -> None:
    traces = job()
    for trace in traces:
        trace.events = [one for one in trace.events if "nccl" not in one["name"] and "comms" not in one["name"]]
    code, out, _ = gpuprep("check", write(tmp_path / "alone", traces), "--rules", "straggler", "--json")
    assert (code, lines(out)["straggler", None]["status"]) == (3, "UNKNOWN")


def test_junit_names_the_rank_of_a_case(gpuprep: Run, late: Path) -> None:
    _, out, _ = gpuprep("check", late, "--rules", "sync,straggler", "--format", "junit")
    cases = [one.get("name") for one in ET.fromstring(out).iter("testcase")]
    assert sorted(filter(None, cases)) == ["rank 0: sync", "rank 1: sync", "rank 2: sync", "ranks", "straggler"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("check", "JOB", "--baseline", "JOB/rank0.json"), "late is a folder with several profiles, and rank0.json is"),
        (("check", "JOB/rank0.json", "--baseline", "JOB"), "late is a folder with several profiles, and rank0.json is"),
        (("compare", "JOB", "JOB/rank0.json"), "late is a folder with several profiles, and rank0.json is one profile"),
        (("check", "JOB", "--iter-start", "1"), "--iter-start and --iter-stop are for one profile"),
        (("check", "JOB", "--rules", "nonsense"), "no such rule: nonsense"),
        (("compare", "JOB", "JOB", "--key-op", "nothing"), "the key op nothing is not in rank0.json"),
    ],
)
def test_what_cannot_be_compared_is_wrong_usage(gpuprep: Run, late: Path, words: tuple[str, ...], said: str) -> None:
    code, out, err = gpuprep(*(word.replace("JOB", str(late)) for word in words))
    assert (code, out) == (2, "")
    assert f"Error: {said}" in err


def test_a_folder_with_one_profile_is_that_profile(gpuprep: Run, late: Path, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (late / "rank0.json").rename(tmp_path / "one" / "rank0.json")
    code, out, _ = gpuprep("check", tmp_path / "one", "--rules", "sync", "--json")
    assert (code, list(lines(out))) == (0, [("sync", None)])
    assert gpuprep("compare", tmp_path / "one", late / "rank1.json")[0] == 0


# ---------------------------------------------------------------- compare


def test_ranks_of_one_number_are_compared(gpuprep: Run, late: Path, even: Path) -> None:
    code, out, _ = gpuprep("compare", late, even, "--json")
    found = json.loads(out)["comparison"]
    jsonschema.validate(json.loads(out), tracesteps.schemas()["trace-compare-ranks"])
    assert (code, found["before"], found["after"]) == (0, "late", "even")
    figures = {one["name"]: (one["before"], one["after"]) for one in found["figures"]}
    assert figures["step of the slowest rank"] == pytest.approx((10.0, 10.0))
    assert figures["late, the latest rank"] == pytest.approx((0.8, 0.05))
    kernels = [{one["name"]: one["before_us"] for one in each["comparison"]["kernels"]} for each in found["ranks"]]
    assert [each["rank"] for each in found["ranks"]] == [0, 1, 2]
    assert [one.get("own_work") for one in kernels] == [None, None, 3880.0], "ranks 0 and 1 did not change"


def test_the_text_says_the_ranks(gpuprep: Run, late: Path, even: Path) -> None:
    _, out, _ = gpuprep("compare", late, even)
    assert "  straggler (ranks 0 to 2): Rank 2 enters most collectives last" in out
    assert "  rank 1                                10          10    +0.0 %" in out
    assert "Rank 0, the slowest" in out
    assert "Rank 2" not in out.split("Rank 0, the slowest")[1]
    _, out, _ = gpuprep("compare", late, even, "-v")
    assert "own_work" in out.split("\nRank 2")[1]
    _, out, _ = gpuprep("compare", late, even, "--format", "markdown")
    assert "## Step of each rank (ms)" in out
    assert "ranks 0 to 2: Rank 2 enters most collectives last" in out


def test_what_is_in_one_job_alone_is_said(gpuprep: Run, late: Path, even: Path) -> None:
    (even / "rank1.json").unlink()
    _, out, _ = gpuprep("compare", late, even)
    assert "note: In the first job alone, so not compared: rank 1." in out
    assert "\n  rank 1 " not in out
