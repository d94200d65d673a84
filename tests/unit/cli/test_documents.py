"""The JSON documents of commands: each has a shipped schema, and what a command prints keeps to it."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import shippedschemas
from commandline import Shell
from records_for_tests import measured, record
from scriptedhosts import gpuprep, script

from gpuprep import records
from gpuprep.checks.drift import samehost
from gpuprep.records import baseline
from gpuprep.store import Store

__all__ = ["gpuprep", "script"]  # fixtures
KEY = baseline.BaselineKey("GPU-0", "gemm", "gpuprep 0.1.0, cublasLt 12.4.5, quick")

# Name of the document: a command line that prints it, and its exit code.
PRINTED: dict[str, list[tuple[list[str], int]]] = {
    "runs": [
        (["provision", "local", "-p", "t4", "-q"], 0),
        (["plan", "local", "host2", "-p", "t4", "-q"], 0),
        (["validate", "local", "-p", "t4", "-q"], 0),
        (["tune", "local", "-p", "t4", "-q"], 0),
        (["drift", "local", "host2", "-p", "t4", "-q"], 0),
        (["report", "--batch", "last"], 0),
    ],
    "capacity": [(["capacity", "local", "-q"], 0)],
    "error": [(["report", "nope"], 2), (["plan", "--zz"], 2), (["history", "--since", "yesterday"], 2)],
    "history": [(["history"], 0), (["history", "list", "--failed"], 0), (["history", "nowhere"], 0)],
    "status": [(["status"], 0), (["status", "gpu-*", "nowhere"], 2), (["status", "--failed"], 0)],
    "trend": [(["history", "trend", "gpu-1"], 1), (["history", "trend", "nowhere"], 3)],
    "compare": [(["compare", "run-01", "run-02"], 0), (["compare", "run-01", "other"], 0)],
    "baseline-show": [(["baseline", "show", "gpu-1"], 0), (["baseline", "show", "nowhere"], 3)],
    "baseline-set": [(["baseline", "set", "gpu-1", "run-01"], 0)],
    "baseline-clear": [(["baseline", "clear", "gpu-1"], 0)],
    "history-names": [(["history", "names"], 0)],
    "history-join": [(["history", "join", "gpu-1", "sim:t4"], 0)],
    "history-part": [(["history", "part", "gpu-1"], 0)],
    "history-keep": [(["history", "keep"], 0), (["history", "keep", "365"], 0)],
    "history-prune": [(["history", "prune", "--keep-days", "9999", "--dry-run"], 0)],
    "history-forget": [(["history", "forget", "gpu-1", "--yes"], 0)],
    "profiles-list": [(["profiles", "list"], 0)],
    "sim-list": [(["sim", "list"], 0)],
    "explain": [
        (["explain", "--gpu", "t4", "4096x4096x4096"], 0),
        (["explain", "--gpu", "t4"], 0),
        (["explain", "--model", "7e9"], 0),
        (["explain", "--gpu", "a100", "--attention", "1,8,1024,64"], 0),
    ],
}
CASES = [(name, words, code) for name, listed in PRINTED.items() for words, code in listed]


@pytest.fixture
def filled(gpuprep: Shell) -> Shell:
    """A store with something for each command."""
    store = Store.open(None)
    for day in range(1, 13):
        store.append(measured(f"run-{day:02d}", 280.0 * 0.98**day, day=day), {KEY: {"fp16": 280.0}})
    store.append(record("other", batch_id="batch-1"))
    store.append(record("stopped", verdict=None, error="interrupted\nby you", exit_code=130, batch_id="batch-1"))
    store.know("gpu-1", samehost.Identity(machine="a" * 64, proven="SHA256:x"), "2026-11-21T00:00:00+00:00")
    store.close()
    return gpuprep


@pytest.mark.parametrize("name", shippedschemas.NAMES)
def test_the_shipped_schema_is_the_one_of_the_types(name: str) -> None:
    assert shippedschemas.is_of_the_types(name), (
        "python -m gpuprep.reports.documents and python -m gpuprep.records.schema write them again"
    )
    jsonschema.Draft202012Validator.check_schema(shippedschemas.shipped(name))


def test_each_document_is_printed_by_a_test_below() -> None:
    assert set(PRINTED) == set(shippedschemas.DOCUMENTS)


@pytest.mark.parametrize(
    ("name", "words", "code"), CASES, ids=lambda each: " ".join(each) if isinstance(each, list) else ""
)
def test_what_is_printed_keeps_to_its_schema(filled: Shell, name: str, words: list[str], code: int) -> None:
    got, out, _ = filled(*words, "--json")
    assert got == code
    printed = json.loads(out)
    # Not jsonschema.validate(): it checks the schema as well, each time; the first test of this file does that.
    jsonschema.Draft202012Validator(shippedschemas.shipped(name)).validate(printed)
    assert next(iter(printed)) == "schema_version"


def test_a_schema_refuses_another_document(filled: Shell) -> None:
    printed = json.loads(filled("history", "--json")[1])
    wrong: list[dict[str, Any]] = [{"schema_version": 9}, {"runs": [{}]}, {"more": 1}]
    for changed in wrong:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**printed, **changed}, shippedschemas.shipped("history"))


def test_a_run_is_told_in_the_same_words_everywhere(filled: Shell) -> None:
    """The record, the list of runs and the comparison: the same names, and the same values under them."""
    whole: dict[str, Any] = json.loads(filled("report", "other", "--json")[1])
    (listed,) = [run for run in json.loads(filled("history", "--json")[1])["runs"] if run["run_id"] == "other"]
    compared = json.loads(filled("compare", "run-01", "other", "--json")[1])["two"]
    same = ("run_id", "batch_id", "command", "host", "started_at", "ended_at", "source", "exit_code")
    for line in (listed, compared):
        assert {key: line[key] for key in same} == {key: whole[key] for key in same}
        assert line["verdict"] == {key: whole["verdict"][key] for key in ("status", "summary")}
        assert line["profile"] == {"name": whole["profile"]["name"]}
        assert line["result"] == "FAIL"
        assert line["failed"] == 1
    assert {key: value for key, value in listed.items() if key != "figures"} == compared


def test_a_run_without_a_verdict_says_how_it_ended(filled: Shell) -> None:
    runs = {run["run_id"]: run for run in json.loads(filled("history", "--json")[1])["runs"]}
    stopped = runs["stopped"]
    assert (stopped["verdict"], stopped["result"], stopped["error"]) == (None, "STOPPED", "interrupted")
    compared = json.loads(filled("compare", "run-01", "stopped", "--json")[1])["two"]
    assert {key: value for key, value in stopped.items() if key != "figures"} == compared


def test_every_status_is_one_of_a_record(filled: Shell) -> None:
    statuses = {status.value for status in records.Status}
    trend = json.loads(filled("history", "trend", "gpu-1", "--json")[1])
    assert (trend["verdict"]["status"], trend["direction"]) == ("FAIL", "DOWN")
    for finding in json.loads(filled("compare", "run-01", "other", "--json")[1])["comparison"]["findings"]:
        assert {finding["one"], finding["two"]} - {None} <= statuses


ENDS = {
    **{(status, code): status for status, code in (("PASS", 0), ("WARN", 0), ("FAIL", 1), ("UNKNOWN", 3))},
    **{
        (status, code): word
        for status in ("PASS", "WARN", "FAIL", "UNKNOWN")
        for code, word in ((2, "REFUSED"), (3, "UNKNOWN"), (4, "FAILED"), (130, "STOPPED"), (5, "UNKNOWN"))
        if (status, code) != ("UNKNOWN", 3)
    },
    ("WAIVED", 0): "UNKNOWN", ("", 0): "DONE", ("", 1): "UNKNOWN", ("", 3): "UNKNOWN",
}  # fmt: skip


def test_lists_pages_and_rows_of_hosts_have_one_word_for_every_kind_of_end(gpuprep: Shell) -> None:
    """The word of a list is made of columns of the store, the word of a page of the record."""
    store = Store.open(None)
    for number, (status, code) in enumerate(ENDS):
        judged = records.Verdict(records.Status(status), f"{status}: x", ()) if status else None
        error = "e" if code not in (0, {"FAIL": 1, "UNKNOWN": 3}.get(status, 0)) else None
        store.append(
            record(f"20261120-1000{number:02d}-abcdef", host=f"host-{number:02d}", command="validate", verdict=judged,
                   exit_code=code, error=error, plan=None)
        )  # fmt: skip
    store.close()
    listed = {
        run["host"]: run["result"] for run in json.loads(gpuprep("history", "--limit", "99", "--json")[1])["runs"]
    }
    assert listed == {f"host-{number:02d}": word for number, word in enumerate(ENDS.values())}
    shown = {line.split()[0]: line.split()[1] for line in gpuprep("status")[1].splitlines() if line.startswith("host-")}
    # A refusal or a plan says nothing of the host.
    assert shown == {host: "never" if word in ("REFUSED", "DONE") else word for host, word in listed.items()}
    shown = {host: word.replace("never", "UNKNOWN") for host, word in shown.items()}
    order = ["FAILED", "FAIL", "UNKNOWN", "STOPPED", "WARN", "PASS"]
    places = [order.index(word) for word in shown.values()]
    assert places == sorted(places)
    for number, (end, word) in enumerate(ENDS.items()):
        code, page, err = gpuprep("report", f"20261120-1000{number:02d}-abcdef")
        assert (code, [line.split()[0] for line in page.splitlines()[-1:] if line]) == (0, [word]), (end, page, err)
