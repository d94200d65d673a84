"""gpuprep trace report in every format: what is in it, and that no name of a trace acts in it."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import shutil
import xml.etree.ElementTree as ET
import zipfile
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import amount
import hostiletrace
import jsonschema
import programs
import pytest
import tracesteps
from hostiletrace import FOLDER, SECRET
from traceserver import RECORDED

from gpuprep.records import schema
from gpuprep.trace import checking, comparing, document, formats, opening, page
from gpuprep.trace.advice import rules
from gpuprep.trace.formats import sheets
from gpuprep.untrusted import plaintext

NAMES = ("resnet-fp32", "sync-item", "gpt-stacks", "launch-graph", "attention-sdpa")
# What a spreadsheet takes for a formula.
FORMULA = re.compile(r"^[=+\-@\t\r]")
# Of the tables, those that --full has below the first screen.
FULL = ("machine", "gpus", "iterations", "op-types", "ops", "kernels", "modules", "roofs")
NUMBER = re.compile(r"^-?[0-9.]+(e[+-]?\d+)?$")


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> dict[str, document.TraceDocument]:
    made = {name: opening.open_trace(RECORDED / f"{name}.json.gz").document for name in NAMES}
    made["hostile"] = opening.open_trace(
        hostiletrace.write(tmp_path_factory.mktemp("hostile") / "<b>.pt.trace.json")
    ).document
    return made


@pytest.fixture(params=[*NAMES, "hostile"])
def shown(request: pytest.FixtureRequest, opened: dict[str, document.TraceDocument]) -> document.TraceDocument:
    return opened[request.param]


# ---------------------------------------------------------------- all formats


def every(shown: document.TraceDocument) -> dict[str, str]:
    """Every format as text; a workbook as all of its parts."""
    made = {
        "text": formats.text(shown),
        "full": formats.text(shown, full=True),
        **{f"csv {name}": formats.csv(shown, name) for name in sheets.NAMES},
    }
    for name, render in formats.FORMATS.items():
        rendered = render(shown)
        made[name] = rendered if isinstance(rendered, str) else parts(rendered)
    return made


def parts(data: bytes) -> str:
    with zipfile.ZipFile(io.BytesIO(data)) as book:
        return "\n".join(book.read(name).decode() for name in book.namelist())


def test_no_name_acts_in_any_format(opened: dict[str, document.TraceDocument]) -> None:
    for name, text in every(opened["hostile"]).items():
        assert plaintext.unsafe(text) == "", f"{name} has {plaintext.unsafe(text)!r}"
        assert SECRET not in text, name
        assert FOLDER not in text, name
        assert "alice" not in text, name
        text.encode("utf-8")


def test_whole_paths_are_shown_where_they_are_asked_for(tmp_path: Path) -> None:
    path = hostiletrace.write(tmp_path / "a.json")
    text = str(formats.FORMATS["json"](opening.open_trace(path, opening.Wish(keep_paths=True)).document))
    assert f"{FOLDER}/train.py(12)" in text
    assert SECRET not in text


def test_hostile_names_are_text_in_the_page(tmp_path: Path) -> None:
    one = opening.open_trace(hostiletrace.write(tmp_path / "a.json"))
    text = page.html(one.profile, one.document)
    assert "<script>alert(1)" not in text
    assert "onerror=alert" not in text
    assert SECRET not in text


# ---------------------------------------------------------------- text


def test_the_first_screen_has_at_most_25_lines_of_80_columns(shown: document.TraceDocument) -> None:
    lines = formats.text(shown).splitlines()
    assert len(lines) <= 25
    tables = lines[8:]
    assert all(len(line) <= 80 for line in tables), tables
    assert any("GPU utilization" in line for line in lines[2:5])
    assert "the profiler" in " ".join(lines[2:4]), "how much it slowed the step"


def test_the_first_screen_names_the_ops_that_take_longest(shown: document.TraceDocument) -> None:
    lines = formats.text(shown).splitlines()
    first = next((at for at, line in enumerate(lines) if "GPU ms" in line), len(lines))
    rows = itertools.takewhile(lambda line: line.startswith("  ") and line[2:10].strip(), lines[first + 1 :])
    times = [float(line[2:10].replace(",", "")) for line in rows]
    longest = sorted((op.gpu_us / 1000 for op in shown.ops), reverse=True)[: len(times)]
    assert times == pytest.approx(longest, rel=0.01, abs=0.006)
    assert times or not longest


def test_more_advice_and_notes_than_a_screen_holds(opened: dict[str, document.TraceDocument]) -> None:
    one = opened["sync-item"]
    many = replace(one, advice=one.advice * 20)
    notes = tuple(replace(note, text="x" * 500) for note in one.file.notes * 20) or ()
    assert len(formats.text(replace(many, file=replace(one.file, notes=notes))).splitlines()) <= 25


def test_notes_are_sentences_that_end(opened: dict[str, document.TraceDocument]) -> None:
    """On the first screen what happened, with --full what it means, too."""
    one = opened["sync-item"]
    text = "21 GPU events have no call that launched them: launched before the recording began, or the calls were lost"
    noted = replace(
        one,
        file=replace(one.file, notes=(document.Note("no_launches", 21, text), document.Note("x", 1, "a second one"))),
    )
    assert "note: 21 GPU events have no call that launched them (why, and 1 more: --full)" in formats.text(noted)
    full = " ".join(formats.text(noted, full=True).split())
    assert text in full
    assert full.endswith("a second one")


def test_the_first_screen_names_the_rules_that_it_has_no_room_for(opened: dict[str, document.TraceDocument]) -> None:
    one = opened["sync-item"]
    several = tuple(replace(one.advice[0], rule=rule) for rule in ("sync", "amp", "tf32", "bad-shape", "gaps"))
    assert "What to change in a step (3 of 5, then bad-shape, gaps)" in formats.text(replace(one, advice=several))


def test_the_first_screen_says_what_to_record_for_problems_that_cannot_be_judged(tmp_path: Path) -> None:
    p = programs.Program()
    for _ in p.steps(4):
        for _ in range(150):
            p.op("aten::add_", programs.Kernel(programs.ADD, 2_000), cpu=10_000)
            p.wait()
    text = formats.text(p.opened(tmp_path).document)
    assert re.search(r"What to change.*\n +saves", text)
    assert re.search(r"cannot tell  amp, tf32, .*\n +Record with --shapes \(gpuprep trace record\)", text), text
    assert len(text.splitlines()) <= 25


def test_a_gain_of_nothing_is_not_called_one(opened: dict[str, document.TraceDocument]) -> None:
    one = opened["sync-item"]
    none = replace(one, advice=(replace(one.advice[0], gain=document.Gain(0.0, "nothing"), severity="hint"),))
    assert "saves 0" not in formats.text(none)
    assert "saves nothing" in formats.text(none)
    assert "(sync): hint" in formats.FORMATS["markdown"](none)


def test_full_has_all_tables(shown: document.TraceDocument) -> None:
    text = formats.text(shown, full=True)
    for name in FULL:
        one = sheets.sheet(shown, name)
        assert (f"\n{one.title}\n" in text) == bool(list(one.rows)), name
    for one_advice in shown.advice:
        assert f"({one_advice.rule})" in text


def test_numbers_of_a_table_end_below_each_other(opened: dict[str, document.TraceDocument]) -> None:
    _, table = formats.text(opened["sync-item"], full=True).split("\nKernels\n")
    head, *rows = itertools.takewhile(str.strip, table.splitlines())
    end = head.index("Calls") + len("Calls")
    assert len(rows) > 2
    assert [row for row in rows if not (row[end - 1].isdigit() and row[end : end + 1] in ("", " "))] == []


def test_what_is_not_in_the_profile_is_not_zero(opened: dict[str, document.TraceDocument]) -> None:
    one = opened["resnet-fp32"]
    nothing = replace(
        one.summary, gpu_utilization_percent=None, tensor_core_efficiency_percent=None, kernel_time_us=0.0
    )
    text = formats.text(replace(one, summary=nothing))
    assert "GPU utilization n/a" in text
    assert "efficiency n/a" in text


# ---------------------------------------------------------------- JSON


def test_json_keeps_to_its_schema(shown: document.TraceDocument) -> None:
    made = json.loads(formats.FORMATS["json"](shown))
    jsonschema.validate(made, tracesteps.schemas()["trace"])
    assert set(made["file"]["devices"][0]) >= {
        "device", "kernels", "kernel_time_us", "memory_operations", "memory_time_us", "busy_us", "span_us",
    }  # fmt: skip
    assert set(made["summary"]) >= {
        "wall_us", "gpu_busy_us", "gpu_utilization_percent", "iterations", "kernels", "kernel_time_us",
        "tensor_core_kernel_time_us",
    }  # fmt: skip


def test_json_is_ascii_and_has_no_nan(shown: document.TraceDocument) -> None:
    text = str(formats.FORMATS["json"](shown))
    assert text.isascii()

    def refused(word: str) -> Any:
        raise AssertionError(word)

    json.loads(text, parse_constant=refused)


@pytest.mark.parametrize("name", tracesteps.schemas())
def test_the_shipped_schemas_are_those_of_the_dataclasses(name: str) -> None:
    shipped = resources.files("gpuprep.trace.formats").joinpath(f"schemas/{name}.schema.json").read_text()
    assert shipped == schema.text(tracesteps.schemas()[name]), "python -m gpuprep.trace.formats.documents"


# ---------------------------------------------------------------- CSV and Excel


@pytest.mark.parametrize("table", sheets.NAMES)
def test_csv_has_the_rows_of_the_table_and_no_formula(shown: document.TraceDocument, table: str) -> None:
    one = sheets.sheet(shown, table)
    heads, *rows = csv.reader(io.StringIO(formats.csv(shown, table)))
    units = [f" ({column.unit})" if column.unit else "" for column in one.columns]
    assert heads == ["Profile", *(f"{column.title}{unit}" for column, unit in zip(one.columns, units, strict=True))]
    wanted = list(one.rows)
    assert len(rows) == len(wanted)
    for row, cells in zip(rows, wanted, strict=True):
        assert row[0] == shown.file.profile_name
        for text, cell in zip(row[1:], cells, strict=True):
            assert not FORMULA.match(text) or NUMBER.match(text), text
            if isinstance(cell, int | float):
                assert float(text) == pytest.approx(cell)


def test_the_ops_of_csv_sum_to_the_total(shown: document.TraceDocument) -> None:
    rows = list(csv.DictReader(io.StringIO(formats.csv(shown, "ops"))))
    total = shown.summary.kernel_time_us + shown.summary.memory_time_us
    assert sum(float(row["GPU time (us)"]) for row in rows) == pytest.approx(total, rel=1e-6)


def cells(data: bytes, number: int) -> list[list[str]]:
    """The cells of a sheet, and nothing but values: what a formula would be has no place here."""
    space = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
    with zipfile.ZipFile(io.BytesIO(data)) as book:
        shared = [
            "".join(part.text or "" for part in item.iter(f"{space}t"))
            for item in ET.fromstring(book.read("xl/sharedStrings.xml"))
        ]
        sheet = ET.fromstring(book.read(f"xl/worksheets/sheet{number}.xml"))
    assert not list(sheet.iter(f"{space}f"))
    assert not list(sheet.iter(f"{space}hyperlink"))
    found = []
    for row in sheet.iter(f"{space}row"):
        line = []
        for cell in row.iter(f"{space}c"):
            value = cell.find(f"{space}v")
            text = (value.text or "") if value is not None else ""
            line.append(shared[int(text)] if cell.get("t") == "s" else text)
        found.append(line)
    return found


def test_a_workbook_has_a_sheet_for_each_table_and_no_formula(shown: document.TraceDocument) -> None:
    data = formats.FORMATS["xlsx"](shown)
    assert isinstance(data, bytes)
    for number, name in enumerate(sheets.NAMES, 1):
        one = sheets.sheet(shown, name)
        title, heads, *rows = cells(data, number)
        assert title == [f"{one.title} of {shown.file.profile_name}"]
        assert ["Profile", *heads] == next(csv.reader(io.StringIO(formats.csv(shown, name))))
        wanted = list(one.rows)
        assert len(rows) == len(wanted)
        for row, cells_ in zip(rows, wanted, strict=True):
            assert len(row) == sum(cell is not None and cell != "" for cell in cells_) or len(row) <= len(cells_)


def test_the_same_document_is_the_same_workbook(shown: document.TraceDocument) -> None:
    assert formats.FORMATS["xlsx"](shown) == formats.FORMATS["xlsx"](shown)


# ---------------------------------------------------------------- JUnit and Markdown


def test_junit_has_a_case_for_each_rule(shown: document.TraceDocument) -> None:
    root = ET.fromstring(str(formats.FORMATS["junit"](shown)).encode())
    [suite] = root
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert set(cases) == set(rules())
    said = {one.rule: one for one in shown.advice}
    failed = {name for name, case in cases.items() if case.find("failure") is not None}
    assert failed == {name for name, one in said.items() if one.severity == "problem"}
    assert suite.get("failures") == str(len(failed)) == root.get("failures")
    for name, case in cases.items():
        if case.find("error") is not None or case.find("skipped") is not None:
            assert set(rules()[str(name)].needs) & set(said), "it could not be judged"
            assert (case.find("skipped") is not None) == (rules()[str(name)].severity == "hint")
    assert suite.get("skipped") == str(sum(case.find("skipped") is not None for case in cases.values()))


def test_junit_of_a_check_has_its_lines(opened: dict[str, document.TraceDocument]) -> None:
    one = opened["sync-item"]
    checked = checking.check(one, baseline=opened["sync-item"])
    root = ET.fromstring(formats.junit_of_checked(one, checked))
    assert [case.get("name") for case in root.iter("testcase")] == [line.name for line in checked.lines]
    skipped = [case.get("name") for case in root.iter("testcase") if case.find("skipped") is not None]
    assert skipped == [line.name for line in checked.lines if line.status.value == "SKIP"] != []


def test_markdown_has_no_links_of_a_name(opened: dict[str, document.TraceDocument]) -> None:
    text = str(formats.FORMATS["markdown"](opened["hostile"]))
    assert "](http://evil" not in text
    assert "<script>" not in text
    assert "<img" not in text
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.endswith("|")


def test_markdown_tables_are_tables(shown: document.TraceDocument) -> None:
    width = tables = 0
    for line in str(formats.FORMATS["markdown"](shown)).splitlines():
        if not line.startswith("|"):
            width = 0
            continue
        tables += width == 0
        columns = len(re.findall(r"(?<!\\)\|", line))
        assert width in (0, columns), line
        width = columns
    assert tables


# ---------------------------------------------------------------- comparisons


def test_comparison_in_each_format(opened: dict[str, document.TraceDocument]) -> None:
    found = comparing.compare(opened["resnet-fp32"], opened["hostile"])
    jsonschema.validate(json.loads(formats.compared(found)), tracesteps.schemas()["trace-compare"])
    text = formats.text_of_comparison(found)
    assert plaintext.unsafe(text) == ""
    assert "step time (ms)" in text
    markdown = formats.markdown_of_comparison(found)
    assert plaintext.unsafe(markdown) == ""
    assert "<script>" not in markdown
    assert len(formats.text_of_comparison(found, full=True)) > len(text)


def test_a_check_in_json(opened: dict[str, document.TraceDocument]) -> None:
    one = opened["sync-item"]
    made = json.loads(formats.checked(one, checking.check(one)))
    jsonschema.validate(made, tracesteps.schemas()["trace-check"])
    assert made["exit_code"] == 1


def test_nothing_of_it_depends_on_the_folder(tmp_path: Path) -> None:
    """A report that is made elsewhere is the same."""
    copy = tmp_path / "sync-none.json.gz"
    shutil.copy(RECORDED / "sync-none.json.gz", copy)
    here, there = (opening.open_trace(path).document for path in (RECORDED / copy.name, copy))
    assert formats.FORMATS["json"](here) == formats.FORMATS["json"](there)


@pytest.mark.parametrize("path", amount.third(sorted(RECORDED.glob("*.json.gz"))), ids=lambda path: path.name)
def test_every_recorded_profile_has_a_page_and_a_document(path: Path) -> None:
    one = opening.open_trace(path)
    assert len(page.html(one.profile, one.document)) > 100_000
    jsonschema.validate(json.loads(formats.FORMATS["json"](one.document)), tracesteps.schemas()["trace"])
    assert len(formats.text(one.document).splitlines()) <= 25
