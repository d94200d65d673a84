"""Several processes that write to one store."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

SPAWN = multiprocessing.get_context("spawn")


# Long enough for any machine; nothing waits for it to pass.
PATIENCE_SECONDS = 600


@contextmanager
def processes(target: Any, *arguments: tuple[Any, ...]) -> Iterator[list[BaseProcess]]:
    started = [SPAWN.Process(target=target, args=words) for words in arguments]
    for process in started:
        process.start()
    try:
        yield list(started)
    finally:
        for process in started:
            process.join(PATIENCE_SECONDS)
            if process.is_alive():
                process.kill()
