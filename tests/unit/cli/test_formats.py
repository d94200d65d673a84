"""Every format of every command whose result is records, for one host and for many, as a user types it."""

from __future__ import annotations

import csv
import io
import json
import os
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import amount
import pytest
from builders import bare_snapshot
from commandline import Shell
from fakehost import Script
from prometheus_client.parser import text_string_to_metric_families
from records_for_tests import measured, record
from scriptedhosts import gpuprep, script

from gpuprep import errors, records, reports
from gpuprep.store import Store

__all__ = ["gpuprep", "script"]  # fixtures
COMMANDS = {**dict.fromkeys(("provision", "tune", "validate", "drift"), reports.RECORDS), "plan": reports.PLANS}
# All print through one function: `make test` has each format of one command, and JSON of a plan.
ALL = [
    amount.case((command, style), daily=command == "validate" or (command, style) == ("plan", "json"))
    for command, styles in COMMANDS.items()
    for style in styles
]


@pytest.fixture
def store(script: Script) -> Iterator[Store]:  # noqa: ARG001  its folders are needed
    opened = Store.open(None)
    yield opened
    opened.close()


def hosts_in(text: str, style: str) -> set[str]:
    """The hosts that a document names, read by a parser of its format where there is one."""
    names = {"local", "host2", "host3"}
    if style == "json":
        return {run["host"] for run in json.loads(text)["runs"]}
    if style == "csv":
        return {row["host"] for row in csv.DictReader(io.StringIO(text))}
    if style == "junit":
        suites = ET.fromstring(text)
        assert suites.tag == "testsuites"
        return {suite.attrib["hostname"] for suite in suites}
    if style == "prometheus":
        families = list(text_string_to_metric_families(text))
        assert len({family.name for family in families}) == len(families)
        return {sample.labels["host"] for family in families for sample in family.samples}
    if style == "html":
        assert text.startswith("<!doctype html>")
        assert text.count("<h1") == 1
    return {name for name in names if name in text}


@pytest.mark.parametrize(("command", "style"), ALL)
def test_one_host_and_many_are_one_document_of_each_format(gpuprep: Shell, command: str, style: str) -> None:
    words = (command, "-p", "t4", "-q", "--format", style)
    code, one, _ = gpuprep(*words, "local")
    assert (code, hosts_in(one, style)) == (0, {"local"})
    code, many, _ = gpuprep(*words, "local", "host2", "host3")
    assert (code, hosts_in(many, style)) == (0, {"local", "host2", "host3"})


@pytest.mark.parametrize("style", reports.RECORDS)
def test_a_host_that_was_not_reached_is_in_the_document(gpuprep: Shell, script: Script, style: str) -> None:
    script.connecting["host2"] = errors.HostUnreachable("host2: no answer", "switch it on", where="host2")
    code, out, err = gpuprep("validate", "local", "host2", "-p", "t4", "--format", style, "-q")
    assert code == 3
    assert hosts_in(out, style) == {"local", "host2"}
    if style not in ("text", "prometheus"):
        assert "no answer" in out
    assert "no answer" in err + out


def test_json_is_another_word_for_format_json(gpuprep: Shell) -> None:
    def hosts(*words: str) -> list[str]:
        return [run["host"] for run in json.loads(gpuprep("plan", "local", "-p", "t4", "-q", *words)[1])["runs"]]

    assert hosts("--json") == hosts("--format", "json") == hosts("--format", "json", "--json") == ["local"]
    code, out, err = gpuprep("plan", "local", "-p", "t4", "--json", "--format", "csv")
    assert (code, out == "", "--json means --format json, and --format csv is given" in err) == (2, False, True)
    code, out, err = gpuprep("plan", "local", "-p", "t4", "--open", "--format", "csv")
    assert (code, out, "--open means --format html" in err) == (2, "", True)


@pytest.mark.parametrize("words", [["--format", "json"], ["--format=json"], ["--json"]])
@pytest.mark.parametrize(
    "wrong",
    [["provision"], ["validate", "local", "-p", "t5"], ["report", "x"], ["plan", "--zz"], ["drift", "x", "-pt5"]],
)
def test_an_error_before_any_host_is_json_too(gpuprep: Shell, wrong: list[str], words: list[str]) -> None:
    code, out, err = gpuprep(*wrong, *words)
    document = json.loads(out)
    assert (code, document["exit_code"], document["schema_version"]) == (2, 2, 1)
    assert document["error"]["what"]
    assert err


@pytest.mark.parametrize("style", ["csv", "junit", "text"])
def test_without_json_an_error_is_on_stderr_alone(gpuprep: Shell, style: str) -> None:
    code, out, err = gpuprep("validate", "local", "-p", "t5", "--format", style)
    assert (code, out) == (2, "")
    assert err


# ---------------------------------------------------------------- batches


def test_hosts_of_one_command_have_one_batch_id(gpuprep: Shell, store: Store) -> None:
    first = json.loads(gpuprep("validate", "local", "host2", "-p", "t4", "-q", "--json")[1])["runs"]
    gpuprep("validate", "host3", "-p", "t4", "-q")
    (batch,) = {run["batch_id"] for run in first}
    assert batch
    assert {run.host: run.batch_id for run in store.runs()} == {"local": batch, "host2": batch, "host3": ""}
    second = json.loads(gpuprep("validate", "local", "host3", "-p", "t4", "-q", "--json")[1])["runs"]
    newest = second[0]["batch_id"]
    assert newest != batch
    for style in amount.few(reports.RECORDS, 2):
        code, out, _ = gpuprep("report", "--batch", "last", "--format", style)
        assert (code, hosts_in(out, style)) == (0, {"local", "host3"})
        code, out, _ = gpuprep("report", "--batch", batch, "--format", style)
        assert (code, hosts_in(out, style)) == (0, {"local", "host2"})
    listed = json.loads(gpuprep("history", "--batch", batch, "--json")[1])["runs"]
    assert {run["host"] for run in listed} == {"local", "host2"}
    assert "host3" not in gpuprep("history", "--batch", batch)[1]
    assert f"batch {batch}" in gpuprep("history", "-v")[1]


def test_an_inventory_of_one_host_is_a_batch_as_well(gpuprep: Shell, store: Store, tmp_path: Path) -> None:
    (tmp_path / "hosts.ini").write_text("only ansible_connection=local\n")
    assert gpuprep("validate", "-i", str(tmp_path / "hosts.ini"), "all", "-p", "t4", "-q")[0] == 0
    (run,) = store.runs()
    assert (run.host, bool(run.batch_id)) == ("only", True)
    assert gpuprep("report", "--batch", "last")[0] == 0


def test_what_no_batch_is_is_refused(gpuprep: Shell, store: Store) -> None:
    store.append(measured("r1", 280.0, batch_id="b-11"))
    store.append(measured("r2", 280.0, batch_id="b-12"))
    for words, said in {
        ("report",): "needs a RUN, or --batch",
        ("report", "r1", "--batch", "last"): "exclude each other",
        ("report", "--batch", "nope"): "no batch 'nope'",
        ("report", "--batch", "b-1"): "fits several batches: b-11, b-12",
        ("report", "--batch", "b-11", "--format", "sbom"): "sbom is for one host",
        ("history", "--batch", "nope"): "no batch 'nope'",
    }.items():
        code, out, err = gpuprep(*words)
        assert (code, out) == (2, ""), words
        assert said in err
        assert len([line for line in err.splitlines() if line.startswith("Error:")]) == 1
    assert gpuprep("report", "--batch", "b-11")[0] == 0


def test_without_any_batch_there_is_none(gpuprep: Shell, store: Store) -> None:
    store.append(measured("r1", 280.0))
    code, _, err = gpuprep("report", "--batch", "last")
    assert (code, "no batch 'last'" in err) == (2, True)


def test_a_record_of_before_has_no_batch() -> None:
    older = records.to_json_value(record())
    del older["batch_id"]
    assert records.from_json_value(records.RunRecord, older) == record()


def test_runs_judged_again_together_are_a_batch(gpuprep: Shell, store: Store, tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    path.write_text(gpuprep("validate", "local", "host2", "-p", "t4", "-q", "--json")[1])
    for style in amount.few(reports.RECORDS, 2):
        code, out, _ = gpuprep("judge", str(path), "-p", "t4", "--format", style)
        assert (code, hosts_in(out, style)) == (0, {"local", "host2"})
    assert gpuprep("judge", str(path), "-p", "t4", "--keep", "--json")[0] == 0
    judged = [run for run in store.runs() if run.command == "judge"]
    assert len({run.batch_id for run in judged}) == 1
    assert judged[0].batch_id
    assert gpuprep("report", "--batch", "last", "--format", "junit")[0] == 0


# ---------------------------------------------------------------- pages and browsers


class Browser:
    def __init__(self, opened: list[str]) -> None:
        self.opened = opened

    def __call__(self, url: str) -> bool:
        self.opened.append(url)
        return True


def test_a_page_for_a_terminal_goes_to_a_file(
    gpuprep: Shell, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(record("20261120-100000-abc123"))
    shown = gpuprep("report", "last", "--format", "html")[1]
    assert shown.startswith("<!doctype html>")
    code, out, _ = gpuprep.on_terminal(monkeypatch, "report", "last", "--format", "html")
    path = Path(out.strip())
    assert (code, path.name) == (0, "provision-20261120-100000-abc123.html")
    assert path.parent == tmp_path / "state/gpuprep/pages"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text().strip() == shown.strip()
    target = tmp_path / "own.html"
    words = ("report", "last", "--format", "html", "--output", str(target))
    assert gpuprep.on_terminal(monkeypatch, *words)[:2] == (0, "")
    assert target.read_text().strip() == shown.strip()
    code, out, _ = gpuprep.on_terminal(monkeypatch, "report", "last", "--format", "junit")
    assert (code, out.startswith("<?xml")) == (0, True)


def test_a_page_of_several_hosts_is_named_by_their_batch(gpuprep: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("validate", "local", "host2", "-p", "t4", "-q", "--format", "html")
    code, out, _ = gpuprep.on_terminal(monkeypatch, *words)
    batch = json.loads(gpuprep("history", "--json")[1])["runs"][0]["batch_id"]
    assert (code, Path(out.strip()).name) == (0, f"validate-{batch}.html")


@pytest.mark.parametrize("display", [{}, {"DISPLAY": ":0"}, {"WAYLAND_DISPLAY": "wayland-0"}])
def test_open_needs_a_display(
    gpuprep: Shell, store: Store, monkeypatch: pytest.MonkeyPatch, display: dict[str, str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", Browser(opened))
    monkeypatch.setattr("sys.platform", "linux")
    for name, value in display.items():
        monkeypatch.setenv(name, value)
    store.append(record("20261120-100000-abc123"))
    code, out, err = gpuprep("report", "last", "--open")
    path = Path(out.strip())
    assert (code, path.is_file()) == (0, True)
    assert opened == ([path.as_uri()] if display else [])
    assert ("There is no display here" in err) is not bool(display)
    monkeypatch.setattr("webbrowser.open", lambda url: False)  # noqa: ARG005
    if display:
        assert "No browser could be opened" in gpuprep("report", "last", "--open")[2]


def test_open_opens_the_file_of_output(
    gpuprep: Shell, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", Browser(opened))
    monkeypatch.setenv("DISPLAY", ":0")
    store.append(record())
    target = tmp_path / "own.html"
    assert gpuprep("report", "last", "--open", "--output", str(target))[:2] == (0, "")
    assert opened == [target.as_uri()]


def test_only_the_newest_pages_are_kept(
    gpuprep: Shell, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(record("20261120-100000-abc123"))
    folder = tmp_path / "state/gpuprep/pages"
    folder.mkdir(parents=True)
    for number in range(60):
        (folder / f"report-{number:02d}.html").write_text("<p>")
        os.utime(folder / f"report-{number:02d}.html", (number, number))
    gpuprep.on_terminal(monkeypatch, "report", "last", "--format", "html")
    kept = {path.name for path in folder.iterdir()}
    assert kept == {"provision-20261120-100000-abc123.html", *(f"report-{number}.html" for number in range(11, 60))}


def test_words_of_a_record_are_no_path(
    gpuprep: Shell, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(record("20261120-100000-abc123", command="../../../etc/x"))
    code, out, err = gpuprep.on_terminal(monkeypatch, "report", "last", "--format", "html")
    folder = tmp_path / "state/gpuprep/pages"
    assert (code, out.strip()) == (0, f"{folder}/.._.._.._etc_x-20261120-100000-abc123.html"), err
    store.append(record("../../../etc/x"))
    assert gpuprep.on_terminal(monkeypatch, "report", "../../../etc/x", "--format", "html")[0] == 3
    assert len(list(folder.iterdir())) == 1


# ---------------------------------------------------------------- CSV


def test_a_spreadsheet_gets_a_row_a_run_a_finding_and_a_figure(gpuprep: Shell) -> None:
    rows = list(
        csv.DictReader(io.StringIO(gpuprep("validate", "local", "host2", "-p", "t4", "-q", "--format", "csv")[1]))
    )
    kinds = {kind: [row for row in rows if row["kind"] == kind] for kind in ("run", "finding", "figure")}
    assert [(row["host"], row["status"]) for row in kinds["run"]] == [("local", "PASS"), ("host2", "PASS")]
    assert {row["status"] for row in kinds["finding"]} >= {"PASS", "SKIP"}
    assert all(float(row["value"]) >= 0 and row["unit"] for row in kinds["figure"])
    assert {"TFLOPS", "GB/s", "fps"} <= {row["unit"] for row in kinds["figure"]}
    assert {row["source"] for row in rows} <= {"simulated", "measured"}


def test_a_plan_has_a_row_a_step(gpuprep: Shell, script: Script) -> None:
    script.snapshots = [bare_snapshot()]
    rows = list(csv.DictReader(io.StringIO(gpuprep("plan", "local", "-p", "t4", "-q", "--format", "csv")[1])))
    steps = [row for row in rows if row["kind"] == "step"]
    assert steps[0]["subject"] == "gpu_driver"
    assert steps[0]["reason"]
    assert "## Plan" in gpuprep("plan", "local", "-p", "t4", "-q", "--format", "markdown")[1]
