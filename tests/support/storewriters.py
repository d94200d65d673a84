"""Several processes that write to one store. What each of them does is here, where a new process can import it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from typing import Any

import amount
import oldstores
from records_for_tests import FINDINGS, measured

from gpuprep import records
from gpuprep.records import baseline
from gpuprep.store import Store, engine

SPAWN = multiprocessing.get_context("spawn")


# Long enough for any machine; nothing waits for it to pass.
PATIENCE_SECONDS = 600
WHOLE = records.Verdict(records.Status.PASS, "PASS", FINDINGS)
MANY = amount.examples(20)  # runs of each writer


def _patiently(target: Callable[..., None], *words: Any) -> None:
    """Where other programs have the processors, one writer may wait longer for another than users have to."""
    engine.BUSY_SECONDS = PATIENCE_SECONDS
    target(*words)


@contextmanager
def processes(target: Any, *arguments: tuple[Any, ...]) -> Iterator[list[BaseProcess]]:
    started = [SPAWN.Process(target=_patiently, args=(target, *words)) for words in arguments]
    for process in started:
        process.start()
    try:
        yield list(started)
    finally:
        for process in started:
            process.join(PATIENCE_SECONDS)
            if process.is_alive():
                process.kill()


def append_one(store: Store, name: str, number: int) -> None:
    """A run with five findings, a figure, and a figure of the baseline of its own; and one that all want to set."""
    key = baseline.BaselineKey("GPU-0", "gemm", f"of {name}-{number}")
    shared = baseline.BaselineKey("GPU-0", "gemm", "of all")
    figures = {key: {"fp16": 1.0}, shared: {f"fp16 {number}": 1.0}}
    store.append(measured(f"{name}-{number}", 280.0, verdict=WHOLE), figures)


def append_many(url: str, name: str, count: int, together: Barrier) -> None:
    together.wait(PATIENCE_SECONDS)
    opened = Store.open(url)  # of all at the same moment: the first makes the tables
    for number in range(count):
        append_one(opened, name, number)
    opened.close()


def append_until_killed(url: str, name: str, told: Any) -> None:
    opened = Store.open(url)
    number = 0
    while True:
        append_one(opened, name, number)
        told.send(number)  # it said so: from here on it must be there
        number += 1


def die_while_writing(url: str) -> None:
    opened = Store.open(url)
    oldstores.die_after(2)  # the run is written, its findings and figures are not all
    append_one(opened, "half", 0)


def append_same(url: str, together: Barrier, told: Any) -> None:
    opened = Store.open(url)
    together.wait(PATIENCE_SECONDS)
    told.send([opened.append_new(measured(f"r{number}", 280.0, verdict=WHOLE)) for number in range(MANY)])
    opened.close()


def upgrade_until_killed(url: str, statements: int) -> None:
    oldstores.die_after(statements)
    Store.open(url)


def open_together(url: str, together: Any) -> None:
    together.wait(PATIENCE_SECONDS)
    opened = Store.open(url)
    assert len(opened.runs()) == 2
    opened.close()
