"""What a probe tells while it runs: the agent's lines, and what a host may send in their place."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuprep.agent.telling import MARK
from gpuprep.remote import Host, Target
from gpuprep.remote.limits import DOING_A_SECOND, DOING_BYTES, DOING_LETTERS
from gpuprep.remote.told import Doing, Told, doing

LINE = f'{MARK}{{"what": "scale-cuda", "done": 12, "of": 30, "unit": "transcodes"}}\n'.encode()
ROOT = Path(__file__).parents[1]


@given(st.lists(st.sampled_from([LINE, b"ffmpeg: a warning\n", b"gpuprep-doing, it said\n", b"\n", b"\r"])), st.data())
def test_however_it_is_cut_the_lines_are_taken_out_and_the_rest_stays(lines: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(lines)
    heard: list[Doing] = []
    told, left, at = Told(heard.append), b"", 0
    while at < len(whole):
        size = data.draw(st.integers(1, 40))
        left += told.take(whole[at : at + size])
        at += size
    # Behind \r a line does not begin.
    begins = [place for place, line in enumerate(lines) if line == LINE and (not place or lines[place - 1] != b"\r")]
    kept = b"".join(line for place, line in enumerate(lines) if place not in begins)
    assert left == kept
    assert len(heard) == len(begins) or len(begins) > DOING_A_SECOND
    assert set(heard) <= {Doing("scale-cuda", 12, 30, "transcodes")}


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
    assert doing(said) is None
    line = MARK.encode() + said + b"\n"
    assert Told(lambda _: pytest.fail("heard")).take(line) == line


def test_what_a_host_says_is_short_and_on_one_line() -> None:
    found = doing(json.dumps({"what": "\x1b[2J\n" + "x" * 500, "done": 9, "of": 3, "unit": "\u202e"}).encode())
    assert found is not None
    assert len(found.what) <= DOING_LETTERS + 1
    assert found.what.isprintable()
    assert found.unit.isprintable()
    assert (found.done, found.of) == (3, 3)


def test_a_line_without_an_end_is_not_kept_back() -> None:
    told = Told(lambda _: None)
    endless = MARK.encode() + b"x" * (10 * DOING_BYTES)
    assert told.take(endless[:500]) == b""
    assert told.take(endless[500:]) == endless


def test_a_flood_is_heard_in_part() -> None:
    heard: list[Doing] = []
    assert Told(heard.append).take(LINE * 10_000) == b""
    assert len(heard) <= 3 * DOING_A_SECOND


# ---------------------------------------------------------------- the agent's own

PROBE = """
import sys
sys.path.insert(0, {root!r})
from gpuprep.agent import telling
telling.begin({wanted})
telling.tell("h264-1080p", done=1, of=2, unit="transcodes")
print("ffmpeg: something else", file=sys.stderr)
print("the answer")
"""


@pytest.mark.parametrize("wanted", [True, False])
def test_it_comes_through_a_connection_beside_the_answer(wanted: bool) -> None:
    heard: list[Doing] = []
    program = PROBE.format(root=str(ROOT), wanted=wanted)
    with Host(Target("here", local=True)) as host:
        result = host.listen(heard.append, f"{sys.executable} -c {shlex.quote(program)}")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "the answer\n", "ffmpeg: something else\n")
    assert heard == ([Doing("h264-1080p", 1, 2, "transcodes")] if wanted else [])


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
