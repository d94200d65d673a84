"""Invalid JSON, torn files, damaged gzip: what can be read is read, the rest is counted or refused in one line."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import lzma
import os
import pickle
import re
import time
from pathlib import Path

import amount
import pytest
import tracesteps
from hostiletrace import read_or_refused
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic import EPOCH_NS, Kineto, training

from gpuprep import errors
from gpuprep.trace import columns

MARK = "REPLACE-ME"


def with_name(raw: bytes, folder: Path, indent: int | None = None) -> tuple[Kineto, columns.Trace]:
    """A trace in which the bytes of one op's name are `raw`, between quotes."""
    made = training()
    made.op(MARK, 990_000, 1_000)
    made.op("behind", 995_000, 1_000)
    path = folder / "t.json"
    path.write_bytes(made.text(indent=indent).encode().replace(MARK.encode(), raw))
    return made, tracesteps.read(path)


def op_names(trace: columns.Trace) -> list[str]:
    return [trace.names[name] for name in trace.ops.name.tolist()]


MENDED = {
    "control characters": (b"tab\there\nand\x01there", "tab here and there"),
    "no utf-8": (b"caf\xe9", "caf\ufffd"),
    "quotes": (b'say "hello" twice', 'say "hello" twice'),
    "a quote before a comma": (b'operator"",(T)', 'operator"",(T)'),
    "windows path": (b"C:\\Users\\new.py(3): x", "C:\\Users\new.py(3): x"),
    "lone backslash": (b"a\\qb", "a\\qb"),
    "half a character": (b"a\\ud83db", "a\\ud83db"),
    "whole character": (b"a\\ud83d\\ude00b\x02", "a\U0001f600b "),
    "escaped quote": (b'a\\"b\x03', 'a"b '),
}


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("kind", MENDED)
def test_a_broken_name_costs_nothing_but_itself(kind: str, indent: int | None, tmp_path: Path) -> None:
    raw, shown = MENDED[kind]
    made, trace = with_name(raw, tmp_path, indent)
    assert op_names(trace)[-2:] == [shown, "behind"]
    assert len(trace.gpu.start) == len(made.gpu)
    assert trace.notes.pop("slow_pieces", 0) <= 1
    assert trace.notes == {"mended_events": 1}
    assert (trace.rank, trace.zero_ns) == (0, EPOCH_NS)


@pytest.mark.parametrize(
    "word", ["N/A", "inf", "-inf", "nan", "NaN", "Infinity", "-nan", "None", "1.#INF", "-1.#IND00"]
)
def test_bare_words_are_nothing(word: str, tmp_path: Path) -> None:
    made = training()
    made.launch(990_000, "kernel", 1_990_000, 1_000)
    made.events[-2]["args"]["est. achieved occupancy %"] = MARK
    path = tmp_path / "t.json"
    path.write_text(made.text().replace(f'"{MARK}"', word))
    trace = tracesteps.read(path)
    assert len(trace.gpu.start) == len(made.gpu)
    assert trace.gpu.occupancy[-1] != trace.gpu.occupancy[-1]  # NaN
    assert trace.notes == {"mended_events": 1} or trace.notes == {"mended_events": 1, "slow_pieces": 1}


def test_what_cannot_be_mended_is_counted_and_the_rest_is_there(tmp_path: Path) -> None:
    made = training()
    path = tmp_path / "t.json"
    text = made.text()
    places = [place for place in range(len(text)) if text.startswith('{"ph": "X"', place)]
    for place in reversed(places[5:45:10]):  # four events lose their name's colon
        text = text[:place] + text[place:].replace('"name": ', '"name" ', 1)
    path.write_text(text)
    trace = tracesteps.read(path)
    assert trace.notes["unreadable_events"] == 4
    whole = tracesteps.read(made.write(tmp_path / "whole.json"))
    rows = [len(found.gpu.start) + len(found.calls.start) + len(found.ops.start) for found in (whole, trace)]
    assert rows[0] - rows[1] == 4
    assert tracesteps.sentence("unreadable_events", 4).startswith("4 events are no valid JSON")


@pytest.mark.parametrize("generation", ["G1", "G3", "G4"])
def test_a_torn_file_gives_all_events_before(generation: str, tmp_path: Path) -> None:
    made = training(generation)
    text = made.text()
    first = text.index('"ph"') + 300
    for cut in range(first, text.rindex("]"), 997):
        path = tmp_path / "t.json"
        path.write_text(text[:cut])
        trace = tracesteps.read(path)
        complete = text[:cut].count('"ph": "X"')
        rows = len(trace.gpu.start) + len(trace.calls.start) + len(trace.ops.start)
        assert complete - 1 <= rows <= complete
        assert trace.notes["torn"] == 1
        assert "unreadable_events" not in trace.notes


def kernels(count: int) -> list[str]:
    """Kernels that begin every 10 µs and last 5, as text."""
    row = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "name": "k", "ts": 0, "dur": 5}
    args = {"device": 0, "stream": 7}
    return [json.dumps({**row, "ts": 1000 + 10 * number, "args": args}) for number in range(count)]


def read_text(text: str, folder: Path) -> columns.Trace:
    path = folder / "t.json"
    path.write_text(text)
    return tracesteps.read(path)


def test_a_file_torn_at_any_letter_gives_each_event_that_is_whole(tmp_path: Path) -> None:
    text = '{"traceEvents": [' + ",\n".join(kernels(4)) + "]"
    for cut in range(text.index("}}") + 2, len(text)):
        trace = read_text(text[:cut], tmp_path)
        assert len(trace.gpu.start) == text[:cut].count("}}"), text[:cut][-40:]
        assert trace.notes["torn"] == 1


@pytest.mark.parametrize(
    ("between", "end"),
    [(",", ",]}"), (",\n,", "]}"), ("\n", "]}"), ("", "\n]}"), (",", ' , ], "traceName": "x"}')],
    ids=["a comma too many", "two commas", "no comma", "nothing between", "a comma before the end"],
)
def test_commas_too_many_or_too_few_cost_no_event(between: str, end: str, tmp_path: Path) -> None:
    trace = read_text('{"traceEvents": [' + between.join(kernels(40)) + end, tmp_path)
    assert len(trace.gpu.start) == 40
    assert trace.notes.keys() <= {"slow_pieces", "no_launches", "mended_events"}


def test_each_event_that_is_lost_is_counted(tmp_path: Path) -> None:
    rows = kernels(40)
    rows[20] = f"// a remark\n{rows[20]}"  # with it the one before cannot be read, for nothing tells where it ends
    trace = read_text('{"traceEvents": [' + ",".join(rows) + "]}", tmp_path)
    assert len(trace.gpu.start) + trace.notes["unreadable_events"] == 40


def test_a_last_event_that_cannot_be_mended_is_not_a_torn_file(tmp_path: Path) -> None:
    rows = kernels(40)
    rows[-1] = rows[-1].replace('"cat":', '"cat" ')
    trace = read_text('{"traceEvents": [' + ",".join(rows) + '], "distributedInfo": {"rank": 3}}', tmp_path)
    assert (len(trace.gpu.start), trace.rank) == (39, 3)
    assert trace.notes["unreadable_events"] == 1
    assert "torn" not in trace.notes


@pytest.mark.parametrize("time", ["1e308", "1e19", "-1e19", "9" * 21, '"9e30"'])
def test_a_time_that_cannot_be_is_left_out_and_moves_no_other(time: str, tmp_path: Path) -> None:
    rows = kernels(40)
    rows[16] = rows[16].replace('"ts": 1160', f'"ts": {time}')
    trace = read_text('{"traceEvents": [' + ",".join(rows) + "]}", tmp_path)
    assert trace.notes["impossible_times"] == 1
    assert len(trace.gpu.start) == 39
    assert int(trace.gpu.end.max() - trace.gpu.start.min()) == 395_000


def test_a_torn_end_behind_the_events(tmp_path: Path) -> None:
    made = training()
    text = made.text()
    path = tmp_path / "t.json"
    path.write_text(text[: text.rindex("}") - 30])
    trace = tracesteps.read(path)
    assert len(trace.gpu.start) == len(made.gpu)
    assert trace.notes.get("unreadable_end") == 1


@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
def test_torn_gzip(part: float, tmp_path: Path) -> None:
    made = training(steps=40)
    data = gzip.compress(made.text().encode())
    path = tmp_path / "t.json.gz"
    path.write_bytes(data[: int(len(data) * part)])
    trace = tracesteps.read(path)
    assert trace.notes["torn"] == 1
    assert 0 < len(trace.gpu.start) < len(made.gpu)


def test_damaged_gzip(tmp_path: Path) -> None:
    made = training(steps=40)
    data = bytearray(gzip.compress(made.text().encode()))
    data[len(data) // 2] ^= 0xFF
    path = tmp_path / "t.json.gz"
    path.write_bytes(data)
    trace = tracesteps.read(path)
    assert trace.notes.keys() & {"damaged_gzip", "unreadable_events", "mended_events"}
    assert len(trace.gpu.start) > 0


def test_gzip_in_members_with_padding_and_with_garbage(tmp_path: Path) -> None:
    made = training()
    text = made.text().encode()
    members = gzip.compress(text[:5000]) + gzip.compress(text[5000:])
    path = tmp_path / "t.json.gz"
    path.write_bytes(members + b"\0" * 512)
    trace = tracesteps.read(path)
    assert (len(trace.gpu.start), trace.notes) == (len(made.gpu), {})
    path.write_bytes(members + b"garbage")
    trace = tracesteps.read(path)
    assert (len(trace.gpu.start), trace.notes) == (len(made.gpu), {"damaged_gzip": 1})


def test_a_bomb_is_refused_in_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracesteps.small_pieces(monkeypatch)
    for begin in (b'{"traceEvents": [{"name": "', b"[", b"", b'{"a": "'):
        path = tmp_path / "t.json.gz"
        path.write_bytes(gzip.compress(begin + b" " * (8 << 20)))
        with pytest.raises(errors.UsageError):
            tracesteps.read(path)


STRANGERS = {
    "zip": (b"PK\x03\x04" + b"\0" * 500, "a zip archive"),
    "zstd": (b"\x28\xb5\x2f\xfd" + b"\x01" * 500, "zstd"),
    "xz": (lzma.compress(b"{}"), "xz"),
    "bzip2": (bz2.compress(b"{}"), "bzip2"),
    "gzip of gzip": (gzip.compress(gzip.compress(b"{}")), "compressed twice"),
    "utf-16": ('{"traceEvents": []}'.encode("utf-16"), "UTF-16"),
    "utf-16 without a mark": ('{"traceEvents": []}'.encode("utf-16-le"), "UTF-16"),
    "utf-32": ('{"traceEvents": []}'.encode("utf-32"), "UTF-32"),
    "sqlite in gzip": (gzip.compress(b"SQLite format 3\0"), "an SQLite file, compressed"),
    "pickle": (pickle.dumps({"segments": []}), "a pickle"),
    "web page": (b"<!DOCTYPE html>", "a web page"),
    "git lfs": (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
    "tar": (b"t.json".ljust(257, b"\0") + b"ustar\x0000", "a tar archive"),
    "something else": (b'{"nodes": []}', "no JSON with traceEvents"),
}


@pytest.mark.parametrize("kind", STRANGERS)
def test_a_file_of_another_kind_is_named(kind: str, tmp_path: Path) -> None:
    data, words = STRANGERS[kind]
    path = tmp_path / "t.json"
    path.write_bytes(data)
    with pytest.raises(errors.UsageError, match=words) as refused:
        tracesteps.read(path)
    assert refused.value.hint


def test_one_event_a_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("\n".join(json.dumps(event) for event in training().events))
    with pytest.raises(errors.UsageError, match=r"one event a line \(NDJSON\)") as refused:
        tracesteps.read(path)
    assert "jq -s" in refused.value.explain()


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.json")
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    (tmp_path / "loop.json").symlink_to("loop.json")
    for name, words in (("fifo", "no regular file"), ("zero", "no regular file"), ("loop", "no such file")):
        with pytest.raises(errors.UsageError, match=words):
            tracesteps.read(tmp_path / f"{name}.json")


def test_a_refusal_is_one_line_whatever_the_name(tmp_path: Path) -> None:
    path = tmp_path / "two\nlines.json"
    path.write_text("{}")
    with pytest.raises(errors.UsageError, match=r"^two lines\.json: this is no profile"):
        tracesteps.read(path)


def test_a_long_tail_does_not_cost_the_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracesteps.small_pieces(monkeypatch, event=1 << 18)
    made = training()
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress((made.text()[:-1] + " " * (2 << 20) + "}").encode()))
    trace = tracesteps.read(path)
    assert len(trace.gpu.start) == len(made.gpu)
    assert trace.notes["long_tail"] == 1


HOSTILE = {
    "many beginnings": b'{"a": "' + b'\\"traceEvents\\": [' * 50_000,
    "many ends": b'{"traceEvents": [' + b'{"a":[{}]' * 50_000,
    "many borders": b'{"traceEvents": [{"args":[' + b'{"ph":"X"},' * 100_000,
    "many quotes": b'{"traceEvents": [{"name": "' + b'" ' * 300_000,
    "many backslashes": b'{"traceEvents": [{"name": "' + b"\\" * 500_001 + b'"}]}',
    "many openings": b'{"traceEvents": [' + b'{"ph":' * 200_000,
    "blanks": b'{"traceEvents": [{"ph":"X"}' + (b" " * 1000 + b",") * 1000,
    "halves of characters": b'{"traceEvents": [' + b'{"ph":"X","name":"\\ud800"},' * 20_000,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_take_no_long_time(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(HOSTILE[kind])
    begin = time.process_time()
    with contextlib.suppress(errors.UsageError):
        tracesteps.read(path)
    assert time.process_time() - begin < 60  # of this process: a second where nothing is quadratic


@pytest.mark.parametrize("one", [b"{},", b"[],", b"[{}],"])
def test_many_empty_objects_are_refused_before_they_take_memory(
    one: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracesteps.few_brackets(monkeypatch, 1000)
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + one * 1001 + b"{}]}"))
    with pytest.raises(errors.UsageError, match=r"^t\.json\.gz: millions of lists or objects that are no events"):
        tracesteps.read(path)


@pytest.mark.parametrize("value", ["1e308", "-1e308", "9" * 400])
def test_figures_that_no_column_can_hold(value: str, tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    made = training()
    path = tmp_path / "t.json"
    path.write_text(re.sub(r'"(est. achieved occupancy %|blocks per SM)": [0-9.]+', rf'"\1": {value}', made.text()))
    assert len(tracesteps.read(path).gpu.start) == len(made.gpu)
    assert [str(one.message) for one in recwarn] == [], "a warning would be shown with our own source line"


def test_a_trace_of_which_no_event_can_be_read_says_so(tmp_path: Path) -> None:
    made = training()
    path = tmp_path / "t.json"
    path.write_text(re.sub(r'"(ts|dur)": -?[0-9.]+', r'"\1": NaN', made.text()))
    with pytest.raises(
        errors.UsageError, match=r"^t\.json: a trace without one event that can be read: of \d+ the time"
    ):
        tracesteps.read(path)


def test_deep_nesting_is_no_crash(tmp_path: Path) -> None:
    made = training()
    path = tmp_path / "t.json"
    deep = "[" * 200_000 + "]" * 200_000
    path.write_text(made.text().replace('"cbid": 211', f'"Input Dims": {deep}', 1))
    trace = tracesteps.read(path)
    assert len(trace.gpu.start) == len(made.gpu)


@pytest.fixture(scope="module")
def sample() -> bytes:
    made = training(steps=2, layers=2)
    made.top["deviceProperties"] = []
    return made.text().encode()


def tried(data: bytes, folder: Path) -> None:
    """Whatever the bytes are: a trace whose columns are sound, or UsageError in one line."""
    path = folder / "fuzz.json"
    path.write_bytes(data)
    trace = read_or_refused(path)
    if trace is None:
        return
    for table in (trace.gpu, trace.calls, trace.ops):
        assert (table.end >= table.start).all()
        assert (table.start >= 0).all()
        assert table.name.max(initial=0) < max(len(trace.names), 1)
    for table in (trace.calls, trace.ops):
        assert table.thread.max(initial=0) < max(len(trace.threads), 1)
    assert trace.ops.arguments.max(initial=-1) < len(trace.arguments)
    assert trace.backward_of.max(initial=0) < max(len(trace.ops.start), 1)
    for key, count in trace.notes.items():
        assert tracesteps.sentence(key, count)


FUZZ = settings(
    max_examples=amount.examples(200),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@FUZZ
@given(cut=st.integers(0, 12_000), more=st.binary(max_size=30))
def test_fuzz_torn(cut: int, more: bytes, sample: bytes, tmp_path: Path) -> None:
    tried(sample[:cut] + more, tmp_path)


@FUZZ
@given(changes=st.lists(st.tuples(st.integers(0, 12_000), st.binary(min_size=1, max_size=6)), min_size=1, max_size=8))
def test_fuzz_garbled(changes: list[tuple[int, bytes]], sample: bytes, tmp_path: Path) -> None:
    data = bytearray(sample)
    for place, new in changes:
        data[place : place + len(new)] = new
    tried(bytes(data), tmp_path)


@FUZZ
@given(begin=st.integers(0, 12_000), length=st.integers(0, 4_000), times=st.integers(0, 3))
def test_fuzz_parts_lost_or_repeated(begin: int, length: int, times: int, sample: bytes, tmp_path: Path) -> None:
    tried(sample[:begin] + sample[begin : begin + length] * times + sample[begin + length :], tmp_path)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "args"]
ARGS = ["correlation", "External id", "device", "stream", "bytes", "grid", "block", "blocks per SM", "Input Dims",
        "Input type", "Sequence number", "graph node id", "Device Id", "Total Allocated", "name"]  # fmt: skip


@FUZZ
@given(
    event=st.integers(0, 60),
    wrong=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4),
    args=st.dictionaries(st.sampled_from(ARGS), VALUES, max_size=4),
    outside=st.dictionaries(
        st.sampled_from(["deviceProperties", "distributedInfo", "baseTimeNanoseconds", "with_stack", "schemaVersion"]),
        VALUES,
    ),
)
def test_fuzz_values_of_any_type(
    event: int, wrong: dict[str, object], args: dict[str, object], outside: dict[str, object], tmp_path: Path
) -> None:
    made = training(steps=2, layers=2)
    made.events[event].setdefault("args", {}).update(args)
    made.events[event].update(wrong)
    document = {**made.document(), **outside}
    tried(made.text(document=json.loads(json.dumps(document))).encode("utf-8", "surrogatepass"), tmp_path)


@FUZZ
@given(
    data=st.binary(max_size=300),
    begin=st.sampled_from([b"", b"[", b'{"traceEvents":[', b"\x1f\x8b", b"SQLite format 3\0"]),
)
def test_fuzz_anything(data: bytes, begin: bytes, tmp_path: Path) -> None:
    tried(begin + data, tmp_path)
