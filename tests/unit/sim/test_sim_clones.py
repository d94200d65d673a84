"""Clones of a simulated machine stand on the frozen disk of the machine that they are made of."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpuprep.sim import disk, store


@pytest.fixture
def origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a stopped machine with one file of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    store.write(store.Description("origin", "debian13", "/base", ("t4",), 2222))
    folder = store.folder("origin")
    (folder / "upper").mkdir()
    (folder / "upper" / "certified").write_text("yes")
    return folder


def test_a_clone_stands_on_what_its_origin_has(origin: Path) -> None:
    (layer,) = disk.freeze("origin")
    assert (Path(layer) / "certified").read_text() == "yes"
    assert store.read("origin").layers == (layer,), "the origin goes on above it"
    assert list((origin / "upper").iterdir()) == []


def test_fifty_clones_share_one_layer(origin: Path) -> None:
    """One mount takes some sixty layers: its options are one page."""
    first = disk.freeze("origin")
    assert {disk.freeze("origin") for _ in range(50)} == {first}
    (origin / "upper" / "more").write_text("later")
    later, *below = disk.freeze("origin")
    assert (Path(later) / "more").is_file()
    assert tuple(below) == first


@pytest.mark.usefixtures("origin")
def test_clones_made_at_a_time_lose_nothing() -> None:
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(disk.freeze, ["origin"] * 8))
    (layers,) = found
    assert [(Path(layer) / "certified").is_file() for layer in layers] == [True]
