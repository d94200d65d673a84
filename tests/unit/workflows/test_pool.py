"""Several pieces of work at once (workflows/pool.py)."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from gpuprep.workflows.pool import Pool


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell starts a background job with SIGINT ignored, and Python leaves it so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_signal_that_another_thread_got_ends_the_wait() -> None:
    """As one that comes just before the wait begins: Python has noted it, and the lock does not wake for it."""
    go_on, ended = threading.Event(), threading.Event()

    def work() -> None:
        main = threading.main_thread().ident
        assert main is not None
        while sys._current_frames()[main].f_code.co_name != "wait":  # of threading.Condition
            time.sleep(0.01)
        time.sleep(0.1)  # from there it goes on into the lock, which nothing shows
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        go_on.wait(20)
        ended.set()

    pool = Pool([work], 1)
    with pytest.raises(KeyboardInterrupt):
        pool.wait(None)
    assert not ended.is_set()
    go_on.set()
    assert pool.wait(20)


def test_a_wait_of_no_time_says_whether_all_have_ended() -> None:
    pool = Pool([lambda: 7], 1)
    assert pool.wait(None)
    assert pool.wait(0.0)
    assert pool.results == {0: 7}
