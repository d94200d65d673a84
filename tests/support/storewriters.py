"""Several processes that write to one store."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

from gpuprep.store import engine

SPAWN = multiprocessing.get_context("spawn")


# Long enough for any machine; nothing waits for it to pass.
PATIENCE_SECONDS = 600


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
