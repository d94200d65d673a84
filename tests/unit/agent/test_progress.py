"""FFmpeg's progress, however it arrives, and the steady state of several sessions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuprep.agent.video import sessions

BLOCK = "frame={frames}\nfps=0.00\nstream_0_0_q=-0.0\nbitrate=N/A\nspeed= 4.1x\nprogress={word}\n"


def blocks(*frames: int, end: bool = True) -> bytes:
    words = ["continue"] * (len(frames) - 1) + ["end" if end else "continue"]
    return "".join(BLOCK.format(frames=n, word=word) for n, word in zip(frames, words, strict=True)).encode()


def worked(start: float, rate: float, until: float, every: float = 0.1) -> sessions.Progress:
    """A session that delivers its first frames at `start` and `rate` frames a second from then on."""
    session = sessions.Progress()
    session.samples.append((start - 0.05, 0))
    moment = start
    while moment <= until:
        session.samples.append((moment, 1 + round(rate * (moment - start))))
        moment += every
    return session


@given(st.lists(st.integers(min_value=1, max_value=40)))
def test_torn_reports_are_put_together(sizes: list[int]) -> None:
    data, session, at = blocks(0, 12, 40), sessions.Progress(), 0
    for size in sizes:
        session.feed(data[at : at + size], 1.0)
        at += size
    session.feed(data[at:], 1.0)
    assert [frames for _, frames in session.samples] == [0, 12, 40]
    assert session.ended


@given(st.binary(max_size=300))
def test_garbage_is_no_frames(noise: bytes) -> None:
    session = sessions.Progress()
    session.feed(blocks(7, end=False) + noise.replace(b"frame", b"").replace(b"progress", b"") + b"\n", 1.0)
    session.feed(blocks(9, end=False), 2.0)
    assert session.samples == [(1.0, 7), (2.0, 9)]
    assert not session.ended


def test_what_is_no_number_is_not_counted() -> None:
    session = sessions.Progress()
    session.feed(b"frame=N/A\nprogress=continue\nframe= 25\nprogress=continue\nframe=-3\nprogress=continue\n", 1.0)
    assert session.samples == [(1.0, 25)]


def test_a_counter_does_not_go_back() -> None:
    session = sessions.Progress()
    session.feed(blocks(50, 20, 60, end=False), 1.0)
    assert [frames for _, frames in session.samples] == [50, 60]


def test_a_line_without_end_does_not_pile_up() -> None:
    session = sessions.Progress()
    session.feed(b"x" * (sessions.LONGEST_LINE + 1), 1.0)
    session.feed(b"\n" + blocks(3, end=False), 2.0)
    assert session.samples == [(2.0, 3)]


@given(
    st.lists(st.tuples(st.floats(0.2, 5), st.floats(50, 700)), min_size=1, max_size=8),
    st.floats(6, 12),
)
def test_start_up_never_counts_and_rates_add_up(begun: list[tuple[float, float]], until: float) -> None:
    steady = sessions.steady_state([worked(start, rate, until) for start, rate in begun])
    assert steady is not None
    assert steady.seconds <= until - max(start for start, _ in begun) + 1e-9
    assert steady.fps == pytest.approx(sum(steady.fps_each))
    for measured, (_, rate) in zip(steady.fps_each, begun, strict=True):
        # frames are whole: half a frame at either end
        assert measured == pytest.approx(rate, abs=1.1 / steady.seconds)
    assert steady.frames == pytest.approx(steady.fps * steady.seconds, abs=0.6)


def test_a_session_that_ends_early_ends_the_steady_state() -> None:
    short, long = worked(1, 100, 3), worked(1, 100, 9)
    short.ended = True
    steady = sessions.steady_state([short, long])
    assert steady is not None
    assert steady.seconds == pytest.approx(2, abs=0.15)
    assert steady.fps == pytest.approx(200, rel=0.02)


def test_the_idle_time_before_the_last_word_does_not_count() -> None:
    session = worked(1, 100, 3)
    session.samples.append((8.0, session.frames))
    session.ended = True
    steady = sessions.steady_state([session])
    assert steady is not None
    assert steady.fps == pytest.approx(100, rel=0.02)


@pytest.mark.parametrize(
    "several",
    [
        [],
        [sessions.Progress()],
        [worked(1, 100, 5), sessions.Progress()],
        [worked(1, 100, 2), worked(3, 100, 5)],
    ],
)
def test_no_common_time_is_no_figure(several: list[sessions.Progress]) -> None:
    assert sessions.steady_state(several) is None
