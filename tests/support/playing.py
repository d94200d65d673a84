"""A program that plays on a GPU of a simulated machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from machines import Finished, must


@contextmanager
def playing(machine: Finished, kind: str) -> Iterator[None]:
    must("sim", "fault", machine.machine, kind)
    try:
        yield
    finally:
        must("sim", "fault", machine.machine, kind, "--clear")
