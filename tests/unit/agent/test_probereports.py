"""What a probe tells while it runs: the agent's lines, and what a host may send in their place."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import ROOT

from gpuprep import remote
from gpuprep.remote import probereports

# The agent's words: an older one that is installed says them, too.
MARK, MEASURED = "gpuprep-doing ", "gpuprep-measured "
LINE = f'{MARK}{{"what": "scale-cuda", "done": 12, "of": 30, "unit": "transcodes"}}\n'.encode()


@given(st.lists(st.sampled_from([LINE, b"ffmpeg: a warning\n", b"gpuprep-doing, it said\n", b"\n", b"\r"])), st.data())
def test_however_it_is_cut_the_lines_are_taken_out_and_the_rest_stays(lines: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(lines)
    heard: list[probereports.Doing] = []
    told, left, at = probereports.ProbeReports(heard.append), b"", 0
    while at < len(whole):
        size = data.draw(st.integers(1, 40))
        left += told.take(whole[at : at + size])
        at += size
    # Behind \r a line does not begin.
    begins = [place for place, line in enumerate(lines) if line == LINE and (not place or lines[place - 1] != b"\r")]
    kept = b"".join(line for place, line in enumerate(lines) if place not in begins)
    assert left == kept
    assert len(heard) == len(begins) or len(begins) > 50
    assert set(heard) <= {probereports.Doing("scale-cuda", 12, 30, "transcodes")}


@pytest.mark.parametrize(
    "said",
    [
        b"", b"no JSON", b"[]", b"null", b'{"what": 1, "done": 0, "of": 0, "unit": ""}', b"[" * 900,
        b'{"what": "", "done": true, "of": 0, "unit": ""}', b'{"what": "", "done": -1, "of": 0, "unit": ""}',
        b'{"what": "", "done": 0, "of": 1e400, "unit": ""}', b'{"what": "", "done": 0, "of": 99999999, "unit": ""}',
        b"\xff\xfe", b'{"what": "", "done": 0}',
    ],
)  # fmt: skip
def test_what_has_not_the_form_stays_a_part_of_stderr(said: bytes) -> None:
    line = MARK.encode() + said + b"\n"
    assert probereports.ProbeReports(lambda _: pytest.fail("heard")).take(line) == line


def test_what_a_host_says_is_short_and_on_one_line() -> None:
    heard: list[probereports.Doing] = []
    said = json.dumps({"what": "\x1b[2J\n" + "x" * 500, "done": 9, "of": 3, "unit": "\u202e"})
    assert probereports.ProbeReports(heard.append).take(f"{MARK}{said}\n".encode()) == b""
    (found,) = heard
    assert len(found.what) <= 81  # 80 letters are shown
    assert found.what.isprintable()
    assert found.unit.isprintable()
    assert (found.done, found.of) == (3, 3)


def test_a_line_without_an_end_is_not_kept_back() -> None:
    told = probereports.ProbeReports(lambda _: None)
    endless = MARK.encode() + b"x" * 10_000
    assert told.take(endless[:500]) == b""
    assert told.take(endless[500:]) == endless


def test_a_flood_is_heard_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[probereports.Doing] = []
    told = probereports.ProbeReports(heard.append)
    for second in (1, 2):
        monkeypatch.setattr("time.monotonic", lambda now=second: now)
        assert told.take(LINE * 1000) == b""
        assert len(heard) == 50 * second


# ---------------------------------------------------------------- what was measured


def piece(at: object, value: object = 1) -> bytes:
    return f"{MEASURED}{json.dumps({'at': at, 'value': value})}\n".encode()


def hears(*lines: bytes, cut: int = 10_000) -> tuple[probereports.SoFar, bytes]:
    """What was kept of these lines, and what is left of them in stderr."""
    so_far, whole = probereports.SoFar(), b"".join(lines)
    told = probereports.ProbeReports(lambda _: pytest.fail("heard"), so_far)
    return so_far, b"".join(told.take(whole[at : at + cut]) for at in range(0, len(whole), cut))


@pytest.mark.parametrize("cut", [1, 7, 10_000])
def test_pieces_become_the_values_of_the_probe(cut: int) -> None:
    so_far, left = hears(
        piece(["quick"], False), b"ffmpeg: a warning\n", piece(["gpus", 0], {"index": 0, "gemms": []}),
        piece(["gpus", 0, "gemms", 0], {"tflops": 1}), piece(["gpus", 0, "gemms", 1], {"tflops": 2}),
        piece(["gpus", 0, "gemms", 0], {"tflops": 3}), piece(["series", 0, "steps", 0], {"fps": 4}), cut=cut,
    )  # fmt: skip
    assert left == b"ffmpeg: a warning\n"
    assert so_far.values() == {
        "quick": False,
        "gpus": [{"index": 0, "gemms": [{"tflops": 3}, {"tflops": 2}]}],
        "series": [{"steps": [{"fps": 4}]}],
    }


@pytest.mark.parametrize(
    "line",
    [
        MEASURED.encode() + b"\n", MEASURED.encode() + b"no JSON\n", MEASURED.encode() + b"[]\n",
        MEASURED.encode() + b'{"at": ["x"]}\n', MEASURED.encode() + b'{"at": ["x"], "value": ' + b"[" * 900 + b"\n",
        MEASURED.encode() + b"\xff\n", piece([]), piece("x"), piece([0]), piece(["a", 1]), piece(["a", -1]),
        piece([None]), piece(["a"] * 9), piece(["a", True]), piece(["a", 10**9]),
        piece(["a", 0, "b", 7]), piece(None),
    ],
)  # fmt: skip
def test_a_piece_without_a_place_stays_a_part_of_stderr_and_changes_nothing(line: bytes) -> None:
    so_far, left = hears(line)
    assert (so_far.values(), left) == ({}, line)


def test_a_value_in_the_way_is_no_place() -> None:
    so_far, left = hears(piece(["a"], 5), piece(["a", "b"]), piece(["a", 0]))
    assert so_far.values() == {"a": 5}
    assert left == piece(["a", "b"]) + piece(["a", 0])


def test_a_flood_of_pieces_is_kept_in_part() -> None:
    large = "x" * (2**19)
    so_far, left = hears(*[piece([f"key{number}"], large) for number in range(40)])
    assert left == b""
    assert 0 < len(json.dumps(so_far.values())) <= 8 * 2**20
    so_far, _ = hears(*[piece(["list", number], [0] * 1000) for number in range(200)])
    assert 0 < len(so_far.values()["list"]) <= 100


def test_a_long_line_that_comes_byte_by_byte_costs_no_time() -> None:
    began = time.process_time()
    line = piece(["x"], "y" * 200_000)
    so_far, left = hears(line, cut=1)
    assert (len(so_far.values()["x"]), left) == (200_000, b"")
    assert time.process_time() - began < 30  # to copy the line with each byte takes minutes


# ---------------------------------------------------------------- the agent's own

PROBE = """
import sys
sys.path.insert(0, {root!r})
from gpuprep.agent import probereports
probereports.begin({wanted})
probereports.tell("h264-1080p", done=1, of=2, unit="transcodes")
probereports.measured({{"id": "h264-1080p", "seconds": 1.5}}, "cases", 0)
print("ffmpeg: something else", file=sys.stderr)
print("the answer")
"""


@pytest.mark.parametrize("wanted", [True, False])
def test_it_comes_through_a_connection_beside_the_answer(wanted: bool) -> None:
    heard: list[probereports.Doing] = []
    program = PROBE.format(root=str(ROOT), wanted=wanted)
    so_far = probereports.SoFar()
    with remote.Host(remote.Target("here", local=True)) as host:
        result = host.listen(heard.append, f"{sys.executable} -c {shlex.quote(program)}", so_far=so_far)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "the answer\n", "ffmpeg: something else\n")
    assert heard == ([probereports.Doing("h264-1080p", 1, 2, "transcodes")] if wanted else [])
    assert so_far.values() == ({"cases": [{"id": "h264-1080p", "seconds": 1.5}]} if wanted else {})


def test_nobody_there_to_hear_it_ends_no_probe() -> None:
    program = PROBE.format(root=str(ROOT), wanted=True).replace("import sys\n", "import os, sys\nos.close(2)\n", 1)
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(
        [sys.executable, "-c", program.replace("print(\"ffmpeg: something else\", file=sys.stderr)\n", "")],
        stdout=subprocess.PIPE, stderr=theirs, text=True, check=False,
    )  # fmt: skip
    os.close(theirs)
    assert done.stdout == "the answer\n"
