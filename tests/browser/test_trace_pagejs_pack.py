"""What a page carries: within its room, exact, and what is left out is said."""

from __future__ import annotations

import base64
import gzip
import json
import struct
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import browser
import numpy as np
import pytest
import viewpages
from hypothesis import given
from hypothesis import strategies as some

from gpuprep.trace import model
from gpuprep.trace.page import html, pack
from gpuprep.trace.tables import document

MB = 1_000_000


def unpacked(data: bytes) -> tuple[dict[str, Any], dict[str, columns.Ints]]:
    """As data.js reads it."""
    text = gzip.decompress(data)
    magic, version, length = text[:4], *struct.unpack("<II", text[4:12])
    assert (magic, version) == (pack.MAGIC, pack.VERSION)
    header, body = json.loads(text[12 : 12 + length]), text[12 + length :]
    columns = {}
    for name, (at, count, planes, coding) in header["columns"].items():
        raw = np.frombuffer(body[at : at + count * planes], np.uint8).reshape(planes, count).astype(np.int64)
        values = sum((plane << (8 * number) for number, plane in enumerate(raw)), np.zeros(count, np.int64))
        if coding != "raw":
            values = (values >> 1) ^ -(values & 1)
        columns[name] = np.cumsum(values) if coding == "delta" else values
    return header, columns


@given(some.lists(some.integers(-(2**52), 2**52)), some.sampled_from(["raw", "signed", "delta"]))
def test_a_column_comes_back(numbers: list[int], coding: str) -> None:
    columns = pack._Columns()
    numbers = [abs(number) for number in numbers] if coding == "raw" else numbers
    columns.add("x", np.array(numbers, np.int64), coding)
    body = b"".join(columns.pieces)
    header = json.dumps({"columns": columns.places}).encode()
    text = pack.MAGIC + struct.pack("<II", pack.VERSION, len(header)) + header + body
    assert unpacked(gzip.compress(text))[1]["x"].tolist() == numbers


@given(some.lists(some.binary(max_size=3000), max_size=6))
def test_pieces_are_one_gzip(pieces: list[bytes]) -> None:
    squeeze = pack._Gzip()
    assert gzip.decompress(squeeze(pieces)) == b"".join(pieces)
    assert gzip.decompress(squeeze([*pieces, b"more"])) == b"".join(pieces) + b"more"


def test_single_events_come_back(tmp_path: Path) -> None:
    linked = viewpages.opened(viewpages.training().write(tmp_path / "all.json"))
    header, columns = unpacked(tracesteps.packed(linked).data)
    gpu = linked.trace.gpu
    lanes = np.array(header["lanes"])[columns["kernel.lane"]]
    starts, end = [], 0
    for row, (gap, duration) in enumerate(zip(columns["kernel.gap"], columns["kernel.duration"], strict=True)):
        first = row == 0 or columns["kernel.lane"][row] != columns["kernel.lane"][row - 1]
        starts.append(int(gap) + (0 if first else end))
        end = starts[-1] + int(duration)
    around = np.append(columns["op.what"], 0)[columns["kernel.instance"]]  # -1: the last one
    ops = columns["kernel.op"] + around
    found = sorted(zip(lanes[:, 0], lanes[:, 1], starts, columns["kernel.duration"], ops, strict=True))
    assert found == sorted(zip(gpu.device, gpu.stream, gpu.start, gpu.end - gpu.start, linked.gpu.op, strict=True))
    shown = linked.trace.ops.kind != 3  # Python functions stay at home
    assert len(columns["op.start"]) == int(shown.sum())
    assert sorted(columns["op.start"]) == sorted(linked.trace.ops.start[shown])


def test_texts_are_made_safe_and_bounded(tmp_path: Path) -> None:
    trace = viewpages.training(1)
    trace.launch(500_000, "a\u202eb\x1b[2J" + "k" * 50_000, 600_000, 100)
    header, _ = unpacked(tracesteps.packed(viewpages.opened(trace.write(tmp_path / "all.json"))).data)
    long = [text for text in header["texts"] if text.endswith("…")]
    assert len(long) == 1
    assert long[0].startswith("a\\u202eb\\x1b[2J")
    assert len(long[0]) <= 10_000
    assert not any("\x1b" in text or "\u202e" in text for text in header["texts"])


def test_invented_sizes_harm_nothing(chromium: browser.Chromium, tmp_path: Path) -> None:
    trace = viewpages.training(2)
    for at, size in ((100, 2**63 - 1), (200, -(2**63)), (300, 10**30), (400, -1)):
        trace.memory(at, size, size, size)
    trace.launch(500_000, "Memcpy HtoD", 600_000, 100, kind="gpu_memcpy", args={"bytes": 2**63 - 1})
    linked = viewpages.opened(trace.write(tmp_path / "all.json"))
    seen = chromium.visit(
        viewpages.write(tmp_path, linked) + "#/memory",
        do=lambda page: page.locator("#content h1").inner_text(),
        check=False,
    )
    assert seen.faults() == []
    assert seen.answer == "Memory"
    assert seen.title.startswith("Memory")


def test_where_a_part_of_the_ops_does_not_fit_all_are_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked = viewpages.opened(viewpages.training(40).write(tmp_path / "all.json"))
    whole = len(tracesteps.packed(linked).data)
    plain = {room: tracesteps.packed(linked, room=room) for room in (whole, whole // 2, whole // 4)}
    tried: list[int] = []
    inner = pack._pack

    def counted(*args: Any, **more: Any) -> pack.Packed:
        tried.append(len(args[3]))
        return inner(*args, **more)

    monkeypatch.setattr(pack, "_pack", counted)
    monkeypatch.setattr(pack, "SAMPLE", 300)
    for room, packed in plain.items():
        tried.clear()
        assert tracesteps.packed(linked, room=room).left_out == packed.left_out
        assert tried[0] == 300
        assert (max(tried) > 300) == (room == whole)


def test_what_does_not_fit_is_said(chromium: browser.Chromium, tmp_path: Path) -> None:
    trace = viewpages.training(40)
    for step in range(40):  # ops that launch nothing
        for number in range(50):
            trace.op("aten::view", step * viewpages.STEP + 700_000 + number * 1000, 100 + (step * 37 + number) % 700)
    linked = viewpages.opened(trace.write(tmp_path / "all.json"))
    whole = len(tracesteps.packed(linked).data)
    seen: list[tuple[str, ...]] = []
    for room in range(whole, 0, -100):
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
    assert unpacked(last.data)[0]["left_out"] == list(seen[-1])

    # The page with the least says so, and its tables are right.
    text = html(linked, document(linked))
    least = html(linked, document(linked), room=room)
    assert least != text
    assert base64.b64encode(last.data).decode() in least
    (tmp_path / "least.html").write_text(least, encoding="utf-8")

    def look(page: Any) -> Any:
        page.wait_for_selector("main > h1")
        said = []
        for view in ("timeline", "memory", "iterations", "dashboard"):
            page.goto(page.url.split("#")[0] + f"#/{view}")
            page.locator(f"#navigation a[aria-current][href*='/{view}']").wait_for(state="attached")
            said.append(page.inner_text("main"))
        choices = [{"start": 3, "stop": 20}]
        return said, page.evaluate(viewpages.AGGREGATE, [choices, viewpages.TABLES])

    visit = chromium.visit((tmp_path / "least.html").as_uri(), do=look, check=False)
    assert visit.faults() == []
    (timeline, memory, iterations, dashboard), (tables,) = visit.answer
    assert "Single kernels are not in this page" in timeline
    assert "gpuprep trace serve" in timeline
    assert "events of memory" in memory
    assert all(f"Not in this page, for its size: {words}" in dashboard for words in last.left_out)
    assert "--key-op" in iterations
    assert list(viewpages.differences(viewpages.told(linked, 3, 20), tables)) == []


def test_what_no_page_has_room_for_is_not_promised(
    chromium: browser.Chromium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server has no room for it either: so no page says that it shows it."""
    linked = viewpages.opened(viewpages.training(steps=2).write(tmp_path / "all.json"))
    monkeypatch.setattr(pack, "SERVED_ROOM", 100)
    (tmp_path / "least.html").write_text(html(linked, document(linked), room=100), encoding="utf-8")

    def look(page: Any) -> Any:
        page.wait_for_selector("main > h1")
        timeline = page.inner_text("main")
        page.goto(page.url.split("#")[0] + "#/by-iteration?iteration=0")
        page.locator("h1", has_text="Kernels by iteration").wait_for()
        return timeline, page.inner_text("main")

    visit = chromium.visit(f"{(tmp_path / 'least.html').as_uri()}#/timeline", do=look, check=False)
    for words in visit.answer:
        assert "Single kernels are not in this page" in words
        assert "No page has room for so many" in words
        assert "gpuprep trace serve` shows them" not in words


def many(kernels: int, steps: int, pairs: int = 400) -> columns.Trace:
    """A profile of `kernels` kernels, two ops each, with times that no pattern tells."""
    chance = np.random.default_rng(7)
    each = kernels // steps
    kernels = each * steps
    work = np.maximum(chance.lognormal(8.5, 1, kernels), 800).astype(np.int64)
    gap = chance.integers(500, 3000, kernels)
    start = np.cumsum(work + gap) - work
    launch = start - chance.integers(4000, 90_000, kernels)
    launch = np.maximum.accumulate(launch) + np.arange(kernels)  # one thread
    width = np.diff(launch, append=launch[-1] + 20_000)
    pair = np.tile(chance.integers(0, pairs, each), steps)  # an op and its kernel
    kind, op = pair % 300, pair * 7 % 500
    names = [f"ampere_sgemm_{number}x64_tn" for number in range(300)]
    names += [f"aten::op{number}" for number in range(500)] + ["cudaLaunchKernel"]
    names += [f"ProfilerStep#{step}" for step in range(steps)]
    none, zero = np.full(kernels, columns.NONE, np.int64), np.zeros(kernels, np.int32)
    ids = np.arange(1, kernels + 1)
    gpu = columns.GpuEvents(
        start, start + work, zero.astype(np.uint8), kind.astype(np.int32), zero, zero + 7, zero, ids, none, none,
        np.repeat([[64, 1, 1]], kernels, 0), np.repeat([[128, 1, 1]], kernels, 0), zero + 32, zero,
        np.zeros(kernels), np.zeros(kernels), none,
    )  # fmt: skip
    calls = columns.Calls(launch + width // 4, launch + width // 2, zero + 800, zero, zero, ids, none)
    border = launch[::each]
    begin = np.concatenate((launch, launch + width // 8, border - 1))
    end = np.concatenate((launch + width - 1, launch + width * 3 // 4, np.append(border[1:] - 2, launch[-1] + 30_000)))
    named = np.concatenate((op + 300, (op + 7) % 500 + 300, np.arange(steps) + 801)).astype(np.int32)
    rows = len(begin)
    what = np.concatenate((np.zeros(2 * kernels), np.ones(steps))).astype(np.uint8)
    nothing = np.full(rows, columns.NONE, np.int64)
    flat = np.zeros(rows, np.int32)
    ops = columns.Ops(begin, end, what, named, flat, flat, nothing, nothing, nothing, flat + columns.NONE)
    memory = columns.MemoryEvents(*(np.zeros(0, np.int64) for _ in fields(columns.MemoryEvents)))
    return columns.Trace(
        "many.json", columns.Format.KINETO, "G4", 0, 0, names, ["1"], [columns.Thread(0, "thread 1")], [columns.Device(0, "GPU", "8.0", 108)],
        gpu, calls, ops, memory, [columns.Arguments()], np.zeros((0, 2), np.int32),
    )  # fmt: skip


TIMES = """async names => {
  const data = tracePage.state.data;
  const timed = choice => {
    const start = performance.now(), made = data.aggregate(choice);
    names.forEach(name => made[name]);
    return performance.now() - start;
  };
  const ranges = [1, 2, 3, 4, 5].map(start => timed({start, stop: data.iterations.count - start}));
  await data.prepare(); // as the view of iterations does, while the browser has nothing else to do
  const keys = data.keyOps().filter(one => one.calls <= 4 * data.iterations.count).slice(0, 5);
  const {own: {cells}, events} = data;
  return {ranges, cells: cells.op.length, events: events.count, keys: keys.map(one => timed({keyOp: one.name}))};
}"""


def test_75_000_events_in_3_mb() -> None:
    trace = many(25_000, 10)
    assert len(trace.gpu.start) + len(trace.calls.start) + len(trace.ops.start) > 75_000
    linked = tracesteps.linked(trace)
    assert tracesteps.packed(linked).left_out == ()
    assert len(html(linked, document(linked))) <= 3 * MB


@pytest.mark.only_all
def test_a_million_kernels_in_15_mb_and_tables_in_a_fifth_of_a_second(
    chromium: browser.Chromium, tmp_path: Path
) -> None:
    linked = tracesteps.linked(many(1_000_000, 250))
    begun = time.monotonic()
    text = html(linked, document(linked))
    print(f"page of {len(text) / MB:.1f} MB in {time.monotonic() - begun:.1f} s; {len(linked.cells.op)} cells")
    assert len(text) <= 15 * MB
    page = tmp_path / "many.html"
    page.write_text(text, encoding="utf-8")

    def look(tab: Any) -> Any:
        tab.wait_for_selector("main > h1")
        return tab.evaluate(TIMES, viewpages.TABLES)

    seen = chromium.visit(page.as_uri(), do=look, check=False)
    assert seen.faults() == []
    print(seen.answer, tracesteps.packed(linked).left_out)
    assert seen.answer["events"] == 1_000_000
    assert min(seen.answer["ranges"]) <= 200, "ms"
    assert len(seen.answer["keys"]) == 5
    assert min(seen.answer["keys"]) <= 200, "ms"


def test_an_empty_profile(chromium: browser.Chromium, tmp_path: Path) -> None:
    trace = many(1000, 2)
    none = {name: getattr(trace.gpu, name)[:0] for name in vars(trace.gpu)}
    linked = tracesteps.linked(replace(trace, gpu=columns.GpuEvents(**none)))
    seen = chromium.visit(
        viewpages.write(tmp_path, linked) + "#/timeline",
        do=lambda page: page.wait_for_selector("main > h1"),
    )
    assert seen.faults() == []
    assert "no GPU events" in seen.text
