"""Machines that several end-to-end tests look at: one is provisioned from nothing, the others are clones of its disk.

tests/machines/state is a suite about one machine: test_state.py runs it, with the profile and the host named.
GPUPREP_E2E_KEEP=1 leaves the machines up, and uses machines that an earlier session left. GPUPREP_TEST_ALL=1
(`make test-all`) also makes from nothing what is otherwise a copy.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import amount
import finished
import pytest
from machines import CODEC_BUILDER, Finished, gpuprep

if "GPUPREP_STATE_PROFILE" not in os.environ:
    collect_ignore = ["state"]

# Machines whose FFmpeg goes to the other machines of this session, so that each kind is built once.
BUILDERS = (CODEC_BUILDER, "sim:e2e-t4", "sim:e2e-a100")


@pytest.fixture(scope="session", autouse=True)
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user's own settings folder (pip's is there too), with gpuprep's settings in place of the user's.

    And a store of this session: in the user's, an earlier session certified machines of the same names.
    """
    own = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    folder = tmp_path_factory.mktemp("config")
    for path in own.iterdir() if own.is_dir() else ():
        if path.name != "gpuprep":
            (folder / path.name).symlink_to(path)
    (folder / "gpuprep").mkdir()
    (folder / "gpuprep" / "config.yml").write_text(f"builds:\n  from: [{', '.join(map(repr, BUILDERS))}]\n")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CONFIG_HOME", str(folder))
        environment.setenv("GPUPREP_STORE", f"sqlite:///{_shared(tmp_path_factory)}/history.db")
        yield


@pytest.fixture(scope="session")
def from_nothing(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The T4 on Debian 13, provisioned once for all workers. `finished.disk()` is a copy of its disk, to be cloned."""
    return finished.once(_shared(tmp_path_factory))


@pytest.fixture(scope="session")
def t4(from_nothing: Finished) -> Iterator[Finished]:
    """That machine itself: tests may undo parts of it."""
    yield from_nothing
    if not finished.KEEP:
        gpuprep("sim", "down", from_nothing.machine)


@pytest.fixture(scope="session")
def t4_copy(from_nothing: Finished) -> Iterator[Finished]:
    """A copy of it, so that another worker can have it: for tests of drift and of faults."""
    assert from_nothing.machine
    with finished.clone(finished.disk(), "e2e-t4-copy", "t4", ["t4"], validate=True) as copy:
        yield copy


@pytest.fixture(scope="session")
def a100(request: pytest.FixtureRequest) -> Iterator[Finished]:
    """Two A100: on a clone of the finished disk; in `make test-all` from nothing, on Debian 12."""
    gpus = ["a100", "a100"]
    if amount.ALL:
        yield from _made("e2e-a100", "debian12", "a100", gpus)
    else:
        request.getfixturevalue("from_nothing")
        with finished.clone(finished.disk(), "e2e-a100", "a100", gpus, validate=True) as copy:
            yield copy


@pytest.fixture(scope="session")
def kept_t4(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """For `make test`: a clone of the T4 whose disk is kept between runs, made now where there is none."""
    source = finished.kept_disk(_shared(tmp_path_factory))
    with finished.clone(source, "smoke-t4", "t4", ["t4"], validate=False) as copy:
        yield copy


@pytest.fixture(scope="session")
def v100() -> Iterator[Finished]:
    """For `make test-all` alone: its driver is another, and is compiled for it."""
    yield from _made("e2e-v100", "debian13", "v100", ["v100"])


def _shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all workers of this session."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def _made(machine: str, os_name: str, profile: str, gpus: list[str]) -> Iterator[Finished]:
    try:
        yield finished.provision(machine, os_name, profile, gpus)
    finally:
        if not finished.KEEP:
            gpuprep("sim", "down", machine)
