"""Reports of records, and the schema of a record."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import shippedschemas
from pages import printed
from places import TESTS
from records_for_tests import FINDINGS, PLAN, record

from gpuprep import records, reports

REAL = sorted((TESTS / "cases" / "records").glob("h200-*.json"))
ERROR = "sim:t4: step 'gpu_codec: Build' failed: exit code 2\n  | make: *** [x.o] Error 1\nwhat to do: free some space"


def test_verdict_first_then_what_did_not_pass_then_the_rest() -> None:
    page = printed(record(), everything=True)
    parts = ("FAIL  provision sim:t4", "Did not pass", "Passed (2)", "Steps", "Run", "FAIL  sim:t4")
    places = [page.index(word) for word in parts]
    assert places == sorted(places)
    for part in ("expected on, found off", "why: without it", "what to do: gpuprep tune HOST", "UNKNOWN ffmpeg: parts"):
        assert part in page
    assert page.index("FAIL    gpu 0") < page.index("UNKNOWN ffmpeg") < page.index("SKIP    gpu 0")
    assert "  driver           1 min 31 s  1 task, 1 changed" in page
    assert "/logs/ansible.log" in page
    assert "NVML: could not be read (driver not loaded)" in page


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_line_is_wider_than_asked(width: int) -> None:
    for page in (
        printed(record(), width=width, everything=True),
        printed(record(error=ERROR, verdict=None), width=width, everything=True),
    ):
        assert max(len(line) for line in page.splitlines()) <= width


def test_simulated_is_said_and_measured_is_not_called_so() -> None:
    page = printed(record(), everything=True)
    assert page.startswith("SIMULATED")
    assert page.count("SIMULATED") == 2
    assert "SIMULATED" in printed(record(verdict=None), as_plan=True)
    assert "SIMULATED" not in printed(record(source=records.Source.MEASURED), everything=True)


def test_color_only_when_asked() -> None:
    assert "\x1b[" not in printed(record(), everything=True)
    colored = printed(record(), color=True, everything=True)
    assert "\x1b[31mFAIL" in colored
    assert re.sub(r"\x1b\[\d+m", "", colored) == printed(record(), everything=True)


def test_an_error_is_shown_whole() -> None:
    page = printed(record(error=ERROR, exit_code=4, verdict=None), everything=True)
    assert "FAILED  provision sim:t4" in page
    for line in ERROR.splitlines():
        assert line.strip() in page


def test_a_plan_names_each_step_with_its_reasons() -> None:
    page = printed(record(verdict=None, playbook=None), as_plan=True)
    for part in (
        "1. driver: Install the NVIDIA driver (may reboot",
        "- nvidia-smi is missing",
        "2. codec",
        "note: the driver",
    ):
        assert part in page
    empty = record(verdict=None, playbook=None, plan=PLAN.__class__("h", "t4", ()))
    assert "nothing to do" in printed(empty, as_plan=True)


def test_summary_has_a_row_a_host() -> None:
    passed = record(
        "r2", host="web1", exit_code=0, verdict=records.Verdict(records.Status.PASS, "PASS: all", FINDINGS[:1])
    )
    page = printed(record(), passed, record("r3", host="w", error=ERROR, exit_code=4))
    head = page.index("HOST")
    rows = page[head : page.index("\n\n", head)].splitlines()[1:]
    assert [row.split()[:2] for row in rows] == [["w", "FAILED"], ["sim:t4", "FAIL"], ["web1", "PASS"]]
    assert page.splitlines()[-1] == "1 PASS, 1 FAIL, 1 FAILED of 3"


def test_json_of_one_run_is_the_record() -> None:
    assert records.from_json(type(record()), reports.render(record(), "json")) == record()
    alone = json.loads(reports.render_fleet([record()], "json", 1))
    assert alone["runs"] == [json.loads(reports.render(record(), "json"))]
    several = json.loads(reports.render_fleet([record(), record("r2")], "json", 4))
    assert (several["schema_version"], several["exit_code"]) == (1, 4)
    assert [run["run_id"] for run in several["runs"]] == [record().run_id, "r2"]


def test_records_are_valid_by_the_schema_and_damaged_ones_are_not() -> None:
    validator = jsonschema.Draft202012Validator(shippedschemas.shipped("record"))
    document = records.to_json_value(record())
    validator.validate(document)
    validator.validate(
        records.to_json_value(record(error=ERROR, verdict=None, plan=None, playbook=None, before=None, after=None))
    )
    for damage in ({"exit_code": "1"}, {"source": "guessed"}, {"extra": 1}, {"verdict": {"status": "PASS"}}):
        assert not validator.is_valid({**document, **damage}), damage
    del document["host"]
    assert not validator.is_valid(document)


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_the_values_of_a_real_probe_are_valid_by_the_schema_and_others_are_not(path: Path) -> None:
    validator = jsonschema.Draft202012Validator(shippedschemas.shipped("record"))
    answer = json.loads(path.read_text())
    document = records.to_json_value(record())
    result = {"probe": answer["probe"], "source": "simulated", "values": answer["values"], "seconds": 1.0}
    result["partial"] = None
    validator.validate({**document, "measurements": [result]})
    validator.validate({**document, "measurements": [{**result, "values": {"missing": "gpu_is_lost", "detail": ""}}]})
    for name, value in answer["values"].items():
        damaged = {**answer["values"], name: "seven" if isinstance(value, float) else 7}
        known = name != "bindings"  # versions that nobody judges
        assert validator.is_valid({**document, "measurements": [{**result, "values": damaged}]}) != known, name


def test_what_did_not_pass_for_one_reason_is_said_once() -> None:
    same = tuple(
        records.Finding(
            f"transcode {name}", "completed", records.Status.UNKNOWN, "it works", "not run", "no clips", "install it"
        )
        for name in "abc"
    )
    page = printed(record(verdict=records.Verdict(records.Status.UNKNOWN, "UNKNOWN", same)), everything=True)
    assert page.count("why: no clips") == page.count("what to do: install it") == 1
    assert "transcode a: completed; transcode b: completed" in " ".join(page.split())
