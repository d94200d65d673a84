"""Profiles written for a test, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprep.desired.loading import load
from gpuprep.errors import ProfileError


def write(folder: Path, text: str | bytes, name: str = "mine.yml") -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def problems(path: str) -> list[str]:
    """The problems of the profile at `path`, without the path itself: "3: key: what"."""
    with pytest.raises(ProfileError) as caught:
        load(path)
    assert caught.value.exit_code == 2
    assert all("\n" not in p for p in caught.value.problems)
    return [p.removeprefix(f"{path}:") for p in caught.value.problems]
