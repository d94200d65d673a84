"""What root writes and reads at night in folders that another user owns: no link leads it elsewhere."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuprep.agent.programs import atomicfile
from gpuprep.nightly import notify

NOBODY = pwd.getpwnam("nobody").pw_uid
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")


def given(path: Path) -> Path:
    os.chown(path, NOBODY, -1, follow_symlinks=False)
    return path


def link(path: Path, target: str | Path) -> Path:
    path.symlink_to(target)
    return given(path)


def a_linked_folder(place: Path, system: Path) -> Path:
    return link(place / "metrics", system)


def a_linked_parent(place: Path, system: Path) -> Path:
    return link(place / "prometheus", system.parent) / system.name


def a_relative_link(place: Path, system: Path) -> Path:
    return link(place / "metrics", f"../{system.name}")


def a_link_behind_dots(place: Path, system: Path) -> Path:
    (place / "x").mkdir()
    return link(place / "x/metrics", system) / "../system"


def a_link_behind_roots_link(place: Path, system: Path) -> Path:
    link(place / "users", system)
    (place / "roots").symlink_to("users")
    return place / "roots"


def a_loop(place: Path, _: Path) -> Path:
    (place / "a").symlink_to("b")
    (place / "b").symlink_to("a")
    return place / "a"


LINKS = [a_linked_folder, a_linked_parent, a_relative_link, a_link_behind_dots, a_link_behind_roots_link, a_loop]


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """Root's folder that nothing is to be written to."""
    folder = tmp_path / "system"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("way", LINKS, ids=lambda way: way.__name__)
def test_nothing_is_written_behind_another_users_link(
    tmp_path: Path, system: Path, way: Callable[[Path, Path], Path]
) -> None:
    place = given(tmp_path / "users")
    folder = way(place, system)
    with pytest.raises(OSError, match="link"):
        atomicfile.write(folder / "gpuprep.prom", "text")
    assert list(system.iterdir()) == []


@pytest.fixture(autouse=True)
def users(tmp_path: Path) -> None:
    (tmp_path / "users").mkdir()


def test_a_link_in_place_of_the_file_is_replaced_and_not_followed(tmp_path: Path, system: Path) -> None:
    shadow = system / "shadow"
    shadow.write_text("kept")
    place = given(tmp_path / "users")
    link(place / "gpuprep.prom", shadow)
    atomicfile.write(place / "gpuprep.prom", "text")
    assert (shadow.read_text(), (place / "gpuprep.prom").read_text()) == ("kept", "text")
    assert not (place / "gpuprep.prom").is_symlink()


def test_roots_own_links_and_a_users_folder_are_used(
    tmp_path: Path, system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's node_exporter owns the folder that it reads."""
    (tmp_path / "metrics").symlink_to("system")
    given(system)
    atomicfile.write(tmp_path / "metrics/gpuprep.prom", "text")
    assert [path.name for path in system.iterdir()] == ["gpuprep.prom"]
    monkeypatch.chdir(tmp_path)
    atomicfile.write(Path("metrics/../relative"), "text")
    assert (tmp_path / "relative").read_text() == "text"


def a_users_file(place: Path) -> Path:
    path = place / "token"
    path.write_text("stolen")
    return given(path)


def in_a_users_folder(place: Path) -> Path:
    (place / "token").write_text("stolen")
    given(place)
    return place / "token"


def a_link_to_a_secret(place: Path) -> Path:
    (place / "secret").write_text("stolen")
    return link(place / "token", place / "secret")


def a_pipe(place: Path) -> Path:
    os.mkfifo(place / "token")
    return place / "token"


def endless(_: Path) -> Path:
    return Path("/dev/zero")


def huge(place: Path) -> Path:
    with (place / "token").open("wb") as file:
        file.truncate(10**12)
    return place / "token"


def a_folder(place: Path) -> Path:
    return place


TOKENS = [a_users_file, in_a_users_folder, a_link_to_a_secret, a_pipe, endless, huge, a_folder]


@pytest.mark.parametrize("way", TOKENS, ids=lambda way: way.__name__)
def test_a_file_that_is_no_token_is_not_sent(tmp_path: Path, way: Callable[[Path], Path]) -> None:
    found = notify._token(way(tmp_path / "users"))
    assert isinstance(found, notify.Failed)
    assert "stolen" not in found.why
    assert found.why.startswith("the token file ")
    assert "\n" not in found.why


def test_a_token_of_roots_is_sent(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    assert notify._token(tmp_path / "token") == "abc"
