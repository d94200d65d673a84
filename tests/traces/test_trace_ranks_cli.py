"""gpuprep trace report FOLDER, in every format, and what is wrong with a folder."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import tracesteps
from commandline import own_folders
from manyranks import RankTrace, job

from gpuprep.cli import cli, run_command

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def report(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    own_folders(monkeypatch, tmp_path)

    def run(*words: str | Path) -> tuple[int, str, str]:
        code = run_command.run(cli, ["trace", "report", *map(str, words)])
        said = capfdbinary.readouterr()
        return code, said.out.decode("utf-8"), said.err.decode("utf-8")

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "night-run"
    made.mkdir()
    for trace in job():
        trace.write(made)
    return made


def test_the_first_screen(report: Run, folder: Path) -> None:
    code, out, _ = report(folder)
    assert code == 0
    assert out.splitlines() == [
        "night-run 3 of 3 ranks nccl 3 common steps",
        "  clocks: the ranks' own clocks agree (ends of one collective lie 0 ms apart)",
        "  Rank 0, the slowest: Without the profiler a step takes 5.97 to 10.00 ms (the GPU alone, as profiled)."
        " `gpuprep trace record` times it.",
        "  Rank 2 enters collectives last: in 3 of 3 steps the others waited longest for it,"
        " 0.80 ms a step (8 % of it).",
        "  Exposed: collectives beside which no kernel runs. Late: what the others wait for this rank.",
        "",
        "Ranks, a step",
        "  Rank  Step (ms)  GPU busy (%)  Compute (ms)  Collectives (ms)  Exposed (ms)  Waiting (ms)  Late (ms)",
        "     0     10.000          59.7         4.480             1.990         1.490         0.900          0",
        "     1     10.000          59.7         4.580             1.890         1.390         0.800          0",
        "     2     10.000          59.7         5.380             1.090         0.590             0      0.800",
        "",
        "Collectives",
        "  Collective  Ranks  Size (bytes)  Calls a rank  One call (ms)  Exposed (ms)  Bus bandwidth (GB/s)",
        "  all_reduce      3     4,000,000             3          1.657         1.157                 4.893",
        "",
        "--full shows all tables; `trace report` with the file of one rank shows its ops",
    ]


def test_it_says_how_much_the_profiler_slowed_the_slowest_rank(report: Run, folder: Path) -> None:
    _, out, _ = report(folder)
    assert (
        "  Rank 0, the slowest: Without the profiler a step takes 5.97 to 10.00 ms (the GPU alone, as profiled)." in out
    )
    beside = folder / "rank0.json.gpuprep.json"
    beside.write_text('{"step_ms_without_profiler": [8.0]}')
    try:
        said = "Rank 0, the slowest: The profiler made a step 25 % longer: 8.00 ms without it, 10.00 ms with it."
        assert said in report(folder)[1]
        assert said in report(folder, "--format", "markdown")[1]
        assert json.loads(report(folder, "--format", "json")[1])["slowdown"]["us"] == 8000
    finally:
        beside.unlink()


def test_full_has_the_steps(report: Run, folder: Path) -> None:
    _, out, _ = report(folder, "--full")
    assert "Steps by rank" in out
    assert out.count("ProfilerStep#1") == 3


def test_json_fits_its_schema(report: Run, folder: Path) -> None:
    code, out, _ = report(folder, "--format", "json")
    told = json.loads(out)
    assert code == 0
    assert told["stragglers"][0]["rank"] == 2
    jsonschema.Draft202012Validator(tracesteps.schemas()["trace-ranks"]).validate(told)


@pytest.mark.parametrize(("table", "rows"), [("ranks", 3), ("collectives", 1), ("steps", 9), ("notes", 0)])
def test_csv(report: Run, folder: Path, table: str, rows: int) -> None:
    code, out, _ = report(folder, "--format", "csv", "--table", table)
    assert code == 0
    assert len(out.splitlines()) == rows + 1


def test_markdown_and_xlsx(report: Run, folder: Path, tmp_path: Path) -> None:
    _, out, _ = report(folder, "--format", "markdown")
    assert "# night-run: 3 of 3 ranks" in out
    assert "| all\\_reduce | 0 \\[0, 1, 2\\] | 3 | Float | 4,000,000 | 3 |" in out
    target = tmp_path / "night.xlsx"
    assert report(folder, "--format", "xlsx", "--output", target)[0] == 0
    with zipfile.ZipFile(io.BytesIO(target.read_bytes())) as book:
        assert "Collectives" in book.read("xl/workbook.xml").decode()


def carried(page: str, name: str) -> dict[str, Any]:
    told = re.search(rf'id="{name}"[^>]*>([^<]+)<', page)
    assert told, name
    found: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(told[1].strip())))
    return found


def test_the_page_has_all_ranks_the_lowest_first(report: Run, folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "night.html"
    assert report(folder, "--format", "html", "--output", target)[0] == 0
    page = target.read_text()
    job = carried(page, "job")
    assert [one["rank"] for one in job["ranks"]["ranks"]] == [0, 1, 2]
    # Behind the lowest rank stands the straggler: there may be no room for all.
    assert job["carried"] == [{"rank": rank, "part": part, "run": None} for rank, part in ((0, 0), (1, 2), (2, 1))]
    for name, rank in (("document", 0), ("document-1", 2), ("document-2", 1)):
        told = carried(page, name)
        assert told["file"]["rank"] == rank
        assert "straggler" in [one["rule"] for one in told["advice"]]


def test_files_of_one_name_in_folders_of_the_ranks(report: Run, tmp_path: Path) -> None:
    """Each rank's own file is opened, and the folder's name tells the rank."""
    for trace in job():
        trace.world_size = 0
        (tmp_path / "job" / f"rank{2 - trace.rank}").mkdir(parents=True)
        trace.write(tmp_path / "job" / f"rank{2 - trace.rank}", "trace.json")
    code, out, _ = report(tmp_path / "job", "--json")
    ranks = json.loads(out)["ranks"]
    assert code == 0
    assert [(one["rank"], one["file"]) for one in ranks] == [(n, f"rank{n}/trace.json") for n in range(3)]
    assert [round(one["compute_us"]) for one in ranks] == [5380, 4580, 4480]
    code, out, _ = report(tmp_path / "job", "--format", "html")
    devices = [carried(out, name)["file"]["devices"] for name in ("document", "document-1", "document-2")]
    assert [each[0]["device"] for each in devices] == [2, 1, 0]


def test_junit_has_a_suite_for_each_rank(report: Run, folder: Path) -> None:
    code, out, _ = report(folder, "--format", "junit")
    assert code == 0
    root = ET.fromstring(out)
    suites = root.findall("testsuite")
    assert [one.get("name") for one in suites] == [f"gpuprep trace night-run: rank {rank}" for rank in range(3)]
    cases = [{case.get("name") for case in one.findall("testcase")} for one in suites]
    assert all({"straggler", "sync", "amp"} <= names for names in cases)
    for count, found in (("tests", "testcase"), ("failures", "testcase/failure"), ("errors", "testcase/error")):
        assert [int(one.get(count, "")) for one in suites] == [len(one.findall(found)) for one in suites]
        assert int(root.get(count, "")) == sum(int(one.get(count, "")) for one in suites)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--iter-start", "1"), "--iter-start and --iter-stop are for one profile, not for a folder of ranks"),
        (("--format", "csv", "--table", "kernels"), "--table kernels: there is no such table of a folder"),
        (("--key-op", "nothing"), "the key op nothing is not in rank0.json"),
    ],
)
def test_what_a_folder_cannot_show(report: Run, folder: Path, words: tuple[str, ...], said: str) -> None:
    code, out, err = report(folder, *words)
    assert (code, out) == (2, "")
    assert f"Error: {said}" in err.splitlines()


def test_a_folder_with_one_profile_is_that_profile(report: Run, folder: Path) -> None:
    (folder / "rank1.json").unlink()
    (folder / "rank2.json").unlink()
    code, out, _ = report(folder)
    assert code == 0
    assert "all_reduce" not in out  # the tables of one profile: ops


def test_an_empty_folder(report: Run, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    code, _, err = report(nothing)
    assert code == 2
    assert "Error: nothing: no profile in this folder" in err.splitlines()


def test_what_is_no_profile_is_left_out_and_said(report: Run, folder: Path) -> None:
    (folder / "config.json").write_text('{"learning_rate": 0.1}')
    (folder / "torn.json").write_text('{"traceEvents": [')
    code, out, _ = report(folder)
    assert code == 0
    assert "3 of 3 ranks" in out
    notes = [line for line in out.splitlines() if line.startswith("note: ")]
    assert notes == [
        "note: left out: torn.json: the file ends before its first event does: its writer was stopped",
        "note: 1 file of the folder is no profile: config.json",
    ]


def test_a_damaged_rank_whose_times_become_finer_in_the_middle(report: Run, folder: Path) -> None:
    """Its first events are read one by one, because one of them is odd; then a time is finer than a double."""
    told = json.loads((folder / "rank1.json").read_text())
    told["traceEvents"][3]["ts"] = 1_790_857_026_000_000.125
    told["traceEvents"][5]["dur"] = "long"
    text = json.dumps(told).replace('"dur": "long"', '"dur": long')
    (folder / "rank1.json").write_text(text)
    assert report(folder)[0] == 0


def test_profiles_that_have_nothing_in_common(report: Run, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    for number in range(2):
        trace = RankTrace(number, 0)
        trace.step(10 + number, 0)
        trace.kernel("work", 10, 20, 900)
        trace.write(mixed)
    code, out, _ = report(mixed)
    assert code == 0
    assert "  No step is in all of these profiles: they are hardly of one job." in out.splitlines()


def test_hostile_names_stay_text(report: Run, tmp_path: Path) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    for trace in job():
        for event in trace.events:
            if event["name"] == "record_param_comms":
                event["args"]["Process Group Name"] = "\x1b[31m<img src=x onerror=alert(1)>|=cmd()"
        trace.write(hostile)
    for form in ("text", "markdown", "csv", "json"):
        words = ("--format", form, *(("--table", "collectives") if form == "csv" else ()))
        code, out, _ = report(hostile, *words, *(("--full",) if form == "text" else ()))
        assert code == 0
        assert "\x1b" not in out
    assert "<img" not in report(hostile, "--format", "markdown")[1]


def test_a_page_of_very_many_ranks_is_limited_and_the_log_is_short(
    report: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3, 40):
        own = RankTrace(number, 40)
        own.step(0, 1000.0)
        own.kernel("own_work", 1010.0, 1020.0, 4000.0)
        own.write(folder)
    tracesteps.few_ranks_in_a_page(monkeypatch, 5)
    code, out, said = report(folder, "--format", "html")
    assert code == 0
    ranks = carried(out, "job")["carried"]
    assert sum(one["part"] is not None for one in ranks) == 5
    assert len(said.splitlines()) < 20
