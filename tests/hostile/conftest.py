"""Hostile servers that end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hostilesshd import HostileSshd


@pytest.fixture
def hostile(home: Path) -> Iterator[Callable[..., HostileSshd]]:
    made: list[HostileSshd] = []

    def start(**options: Any) -> HostileSshd:
        made.append(HostileSshd(home, **options))
        return made[-1]

    yield start
    for server in made:
        server.stop()
