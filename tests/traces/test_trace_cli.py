"""gpuprep trace on the command line."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpuprep.cli import cli, edge


class Answer(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def gpuprep(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Answer]:
    for name in ("STATE", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    monkeypatch.delenv("GPUPREP_STORE", raising=False)

    def run(*words: str | Path) -> Answer:
        code = edge.run(cli, [str(word) for word in words])
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return run


@pytest.mark.parametrize("missing", ["msgspec", "numpy"])
def test_without_the_extra_one_line_says_how_to_get_it(
    gpuprep: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    found = importlib.util.find_spec

    def find(name: str, *more: Any) -> Any:
        return None if name == missing else found(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    answer = gpuprep("trace", "report", "x.json")
    assert answer.code == 2
    assert answer.err.splitlines() == [
        f"Error: `gpuprep trace` needs {missing}, which is not installed",
        "  what to do: pip install 'gpuprep[trace]'   (in gpuprep's own environment)",
    ]
