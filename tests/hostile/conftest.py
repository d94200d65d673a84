"""Hostile servers that end with the test; a signed archive of packages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hostilesshd import HostileSshd
from packagearchive import archive, keys

__all__ = ["archive", "keys"]


@pytest.fixture
def hostile(home: Path) -> Iterator[Callable[..., HostileSshd]]:
    made: list[HostileSshd] = []

    def start(**options: Any) -> HostileSshd:
        made.append(HostileSshd(home, **options))
        return made[-1]

    yield start
    for server in made:
        server.stop()
