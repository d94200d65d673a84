"""The page as a file: nothing of others in it but what is pinned, and no word of a profile as markup or script.

What it carries is exact and within its room, and what is left out is said. One look at it in a real browser; all its
views are looked at in tests/browser.
"""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import json
import re
from html import unescape
from importlib import resources
from pathlib import Path
from typing import Any

import amount
import browser
import handmade
import numpy as np
import pytest
import tracepages
import tracesteps
import viewpages
from hypothesis import given, settings
from hypothesis import strategies as some
from tracepages import EVIL, STEPS

from gpuprep.trace import page

PAGE = Path(str(resources.files("gpuprep.trace.page")))
SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
# Ways of JavaScript that make a text into markup, a script or a request.
UNSAFE = (
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "eval(",
    "new Function",
    "fetch(",
    "XMLHttp",
    "import(",
)


def test_the_vendored_files_are_those_that_the_readme_names() -> None:
    readme = (PAGE / "vendor/README.md").read_text(encoding="utf-8")
    files = sorted(PAGE.glob("vendor/*/*.js"))
    assert len(files) == 2
    for file in files:
        assert f"`{hashlib.sha256(file.read_bytes()).hexdigest()}`" in readme, file.name
        licence = (file.parent / "LICENSE").read_text(encoding="utf-8")
        assert "Permission is hereby granted, free of charge" in licence


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_policy_allows_the_scripts_and_the_style_of_the_page_and_nothing_else() -> None:
    text = tracepages.text()
    policy = unescape(re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1])  # type: ignore[index]
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split(";")}
    assert rules["script-src"] == [digest(one) for one in SCRIPT.findall(text)]
    assert rules["style-src"] == [digest(one) for one in re.findall(r"<style>(.*?)</style>", text, re.DOTALL)]
    assert rules["default-src"] == ["'none'"]
    assert set(rules) == {"default-src", "script-src", "style-src", "img-src", "base-uri", "form-action"}
    assert rules["img-src"] == ["data:"]


def test_no_word_of_a_profile_is_markup() -> None:
    outside = SCRIPT.sub("", tracepages.text())
    for name in EVIL:
        assert name not in outside
    assert "My &lt;b&gt;profile&lt;/b&gt;" in outside
    assert (outside.count("<script"), outside.count("</script>")) == (2, 2), "the two packed data"


def test_what_was_told_about_the_file_is_packed_in_the_page() -> None:
    packed = re.search(r'id="document">([^<]*)<', tracepages.text())
    assert packed
    told = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    assert sorted(told) == ["advice", "file", "roofs", "slowdown", "summary"]
    assert told["file"]["profile_name"] == "My <b>profile</b>"


@pytest.mark.parametrize("file", sorted(PAGE.glob("static/*.js")), ids=lambda file: file.name)
def test_the_scripts_make_no_markup_of_texts(file: Path) -> None:
    source = file.read_text(encoding="utf-8")
    assert [word for word in UNSAFE if word in source] == []


def test_the_same_profile_gives_the_same_page() -> None:
    assert page.html(tracepages.opened().profile, tracepages.opened().document) == tracepages.text()


def test_the_page_without_a_profile_is_small() -> None:
    """What each page has, whatever its profile: libraries, views, styles."""
    assert len(tracepages.text()) < 500_000


# ---------------------------------------------------------------- what it carries


def test_single_events_come_back(tmp_path: Path) -> None:
    linked = viewpages.opened(viewpages.training().write(tmp_path / "all.json"))
    header, cols = tracesteps.unpacked(tracesteps.packed(linked).data)
    gpu = linked.trace.gpu
    lanes = np.array(header["lanes"])[cols["kernel.lane"]]
    starts, end = [], 0
    for row, (gap, duration) in enumerate(zip(cols["kernel.gap"], cols["kernel.duration"], strict=True)):
        first = row == 0 or cols["kernel.lane"][row] != cols["kernel.lane"][row - 1]
        starts.append(int(gap) + (0 if first else end))
        end = starts[-1] + int(duration)
    around = np.append(cols["op.what"], 0)[cols["kernel.instance"]]  # -1: the last one
    ops = cols["kernel.op"] + around
    found = sorted(zip(lanes[:, 0], lanes[:, 1], starts, cols["kernel.duration"], ops, strict=True))
    assert found == sorted(zip(gpu.device, gpu.stream, gpu.start, gpu.end - gpu.start, linked.gpu.op, strict=True))
    shown = linked.trace.ops.kind != 3  # Python functions stay at home
    assert len(cols["op.start"]) == int(shown.sum())
    assert sorted(cols["op.start"]) == sorted(linked.trace.ops.start[shown])


def test_texts_are_made_safe_and_bounded(tmp_path: Path) -> None:
    trace = viewpages.training(1)
    trace.launch(500_000, "a\u202eb\x1b[2J" + "k" * 50_000, 600_000, 100)
    header, _ = tracesteps.unpacked(tracesteps.packed(viewpages.opened(trace.write(tmp_path / "all.json"))).data)
    long = [text for text in header["texts"] if text.endswith("…")]
    assert len(long) == 1
    assert long[0].startswith("a\\u202eb\\x1b[2J")
    assert len(long[0]) <= 10_000
    assert not any("\x1b" in text or "\u202e" in text for text in header["texts"])


SIZES = some.integers(-(2**52), 2**52)


@given(some.lists(some.tuples(some.integers(0, 5_000_000), SIZES, SIZES, SIZES), min_size=1, max_size=20))
@settings(max_examples=amount.examples(60), deadline=None)
def test_numbers_come_back_whatever_their_size(rows: list[tuple[int, int, int, int]]) -> None:
    """Those of the allocator, which a profile may invent: what JavaScript counts exactly."""
    made = handmade.trace(handmade.Op("aten::mm", 0, 10))
    time, size, allocated, reserved = (np.array(column, np.int64) for column in zip(*sorted(rows), strict=True))
    made.memory.time, made.memory.bytes, made.memory.allocated, made.memory.reserved = time, size, allocated, reserved
    made.memory.device = np.zeros(len(time), np.int64)
    _, found = tracesteps.unpacked(tracesteps.packed(tracesteps.linked(made)).data)
    for name in ("time", "bytes", "allocated", "reserved"):
        assert found[f"memory.{name}"].tolist() == getattr(made.memory, name).tolist()


def test_where_a_part_of_the_ops_does_not_fit_all_are_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked = viewpages.opened(viewpages.training(40).write(tmp_path / "all.json"))
    whole = len(tracesteps.packed(linked).data)
    plain = {room: tracesteps.packed(linked, room=room) for room in (whole, whole // 2, whole // 4)}
    tried = tracesteps.sampled_ops(monkeypatch, 300)
    for room, packed in plain.items():
        tried.clear()
        assert tracesteps.packed(linked, room=room).left_out == packed.left_out
        assert tried[0] == 300
        assert (max(tried) > 300) == (room == whole)


def test_what_does_not_fit_is_said(tmp_path: Path) -> None:
    linked = viewpages.opened(viewpages.crowded().write(tmp_path / "all.json"))
    whole = len(tracesteps.packed(linked).data)
    seen: list[tuple[str, ...]] = []
    for room in range(whole, 0, -100 if amount.ALL else -400):
        packed = tracesteps.packed(linked, room=room)
        if packed.left_out not in seen:
            seen.append(packed.left_out)
        last = packed
    assert seen[0] == ()
    assert "2,000 of 3,000 single ops" in seen[1][0]
    assert "no CPU times for another key op" in seen[1][0]
    assert [len(one) for one in seen] == [0, 1, 2, 2, 3]
    assert "single kernels and copies" in seen[-1][0]
    assert "events of memory" in seen[-1][2]
    assert tracesteps.unpacked(last.data)[0]["left_out"] == list(seen[-1])
    least = page.html(linked, tracesteps.summed(linked), room=room)
    assert base64.b64encode(last.data).decode() in least
    assert len(least) < len(page.html(linked, tracesteps.summed(linked)))


def test_75_000_events_in_3_mb() -> None:
    trace = handmade.many(25_000, 10)
    assert len(trace.gpu.start) + len(trace.calls.start) + len(trace.ops.start) > 75_000
    linked = tracesteps.linked(trace)
    assert tracesteps.packed(linked).left_out == ()
    assert len(page.html(linked, tracesteps.summed(linked))) <= 3_000_000


# ---------------------------------------------------------------- in a browser

# The CSV file of a table with one column of these values.
AS_CSV = """values => {
  let written = "";
  const save = tracePage.save;
  tracePage.save = (name, type, text) => { written = text; };
  const table = { name: "made", title: "Made", columns: [{ label: "A, B", value: one => one }], rows: () => values };
  const buttons = [...tracePage.exports(table).querySelectorAll("button")];
  buttons.find(one => one.textContent === "CSV").click();
  tracePage.save = save;
  return written;
}"""
# What a cell has ► what a program that reads the file finds.
CELLS: list[tuple[Any, str]] = [
    ("a,b", "a,b"), ('say "x"', 'say "x"'), ('"', '"'), ("two\nlines", "two\nlines"), ("two\rlines", "two\rlines"),
    ("=1+1", "'=1+1"), ("-x", "'-x"), ("a;@b", "a;'@b"), (-7.5, "-7.5"), (None, ""), (True, "yes"), (False, "no"),
]  # fmt: skip


def test_the_page_opens_and_shows_what_the_document_has(chromium: browser.Chromium, tmp_path: Path) -> None:
    """No script error, no request to elsewhere, nothing that axe-core finds; the step time, the tables, a CSV file."""
    one, chosen = tracepages.opened(), {"start": 1, "stop": 3}

    def look(tab: Any) -> tuple[str, Any, str, str]:
        dashboard = tab.inner_text("body")
        tables = tab.evaluate(viewpages.AGGREGATE, [[chosen, {"keyOp": "aten::mm"}], viewpages.TABLES])
        tab.evaluate("tracePage.go('ops')")
        with tab.expect_download() as waiting:
            tab.get_by_role("button", name="CSV", exact=True).click()
        made = tab.evaluate(AS_CSV, [cell for cell, _ in CELLS])
        return dashboard, tables, Path(waiting.value.path()).read_text(encoding="utf-8"), made

    seen = tracepages.look(chromium, tmp_path, do=look)
    assert seen.faults() == []
    dashboard, tables, exported, made = seen.answer
    step_us = one.document.summary.average_iteration_us
    assert re.search(rf"Average iteration time\s+i\s+{step_us / 1000:.2f} ms", dashboard), dashboard
    assert f"Iterations 0 to {STEPS - 1} of {STEPS}" in dashboard
    by_key = tracesteps.linked(one.profile.trace, key_op="aten::mm")
    for told, shown in zip((viewpages.told(one.profile, **chosen), viewpages.told(by_key)), tables, strict=True):
        assert list(viewpages.differences(told, shown)) == []
    rows = list(csv.DictReader(io.StringIO(exported)))
    assert sorted(row["Input shapes"] for row in rows) == sorted(op.shapes for op in one.document.ops)
    assert {row["Profile"] for row in rows} == {one.document.file.profile_name}
    (_, head), *cells = csv.reader(io.StringIO(made, newline=""))
    assert (head, [cell for _, cell in cells]) == ("A, B", [read for _, read in CELLS])
