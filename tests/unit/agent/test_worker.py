"""A worker of the agent: its messages, its silence, its end; and the agent's end is its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from places import ROOT
from waiting import alive, until

from gpuprep.agent.programs import worker

HANGS = 300.0  # seconds; nothing here takes as long


def heard(copy: worker.Worker, patience: float = HANGS) -> list[dict[str, object]]:
    return list(copy.messages(until=time.monotonic() + HANGS, patience=patience))


def test_what_it_tells_comes_in_order() -> None:
    def work(tell: worker.Tell) -> None:
        for number in range(1000):
            tell({"number": number, "text": "ä\n" * 20})

    with worker.Worker(work) as copy:
        assert [message["number"] for message in heard(copy)] == list(range(1000))
        assert copy.code == 0
    assert not alive(copy.pid)


def test_an_error_is_told() -> None:
    def work(tell: worker.Tell) -> None:
        tell({"number": 1})
        raise ValueError("what it was")

    with worker.Worker(work) as copy:
        assert heard(copy) == [{"number": 1}, {"failed": "ValueError: what it was"}]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_its_death_is_seen(number: int) -> None:
    def work(tell: worker.Tell) -> None:
        tell({"before": True})
        os.kill(os.getpid(), number)

    with worker.Worker(work) as copy:
        assert heard(copy) == [{"before": True}]
        assert copy.code == -number


def test_silence_ends_it_and_what_it_started() -> None:
    def work(tell: worker.Tell) -> None:
        child = subprocess.Popen(["sleep", "300"])
        tell({"child": child.pid})
        signal.pause()

    with worker.Worker(work) as copy:
        child = next(copy.messages(until=time.monotonic() + HANGS, patience=HANGS))["child"]
        with pytest.raises(worker.Silent, match="no answer in"):
            next(copy.messages(until=time.monotonic() + HANGS, patience=0.3))
    until(lambda: not alive(child), "the child lives on")
    assert not alive(copy.pid)


def test_a_worker_that_never_ends_talking_is_ended() -> None:
    def work(tell: worker.Tell) -> None:
        while True:
            tell({})

    started = time.monotonic()
    with worker.Worker(work) as copy, pytest.raises(worker.Silent):
        for _ in copy.messages(until=started + 0.5, patience=HANGS):
            pass
    assert not alive(copy.pid)


AGENT = """
import os, signal, sys
from gpuprep.agent.programs import children
from gpuprep.agent.programs.worker import Worker
children.watch()

def work(tell):
    tell({{"pid": os.getpid()}})
    signal.pause()

with Worker(work) as worker:
    print(next(worker.messages(until=1e12, patience=60))["pid"], flush=True)
    {then}
"""


@pytest.mark.parametrize("then", ["signal.pause()", "os.kill(os.getpid(), 9)", "sys.exit(3)"])
def test_it_ends_with_the_agent(then: str) -> None:
    agent = subprocess.Popen([sys.executable, "-c", AGENT.format(then=then)], stdout=subprocess.PIPE, cwd=ROOT)
    assert agent.stdout is not None
    pid = int(agent.stdout.readline())
    if "pause" in then:
        agent.kill()
    # The answer ends although the worker lived: it does not hold what a reader waits for.
    assert agent.stdout.read() == b""
    agent.wait(HANGS)
    until(lambda: not alive(pid), "the child lives on")
    agent.stdout.close()
