"""Machines that several end-to-end tests look at: provisioned once a session, taken down at its end.

tests/e2e/state is a suite about one machine: test_state.py runs it, with the profile and the host named.
GPUPREP_E2E_KEEP=1 leaves the machines up, and uses machines that an earlier session left. GPUPREP_TEST_ALL=1
(`make test-all`) also makes from nothing what is otherwise a copy.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.machines import Finished, gpuprep, must, up

if "GPUPREP_STATE_PROFILE" not in os.environ:
    collect_ignore = ["state"]

# Machines whose FFmpeg goes to the other machines of this session, so that each kind is built once.
BUILDERS = ("sim:e2e-t4", "sim:e2e-a100")
KEEP = os.environ.get("GPUPREP_E2E_KEEP") == "1"
ALL = os.environ.get("GPUPREP_TEST_ALL") == "1"


@pytest.fixture(scope="session", autouse=True)
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user's own settings folder (pip's is there too), with gpuprep's settings in place of the user's."""
    own = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    folder = tmp_path_factory.mktemp("config")
    for path in own.iterdir() if own.is_dir() else ():
        if path.name != "gpuprep":
            (folder / path.name).symlink_to(path)
    (folder / "gpuprep").mkdir()
    (folder / "gpuprep" / "config.yml").write_text(f"builds:\n  from: [{', '.join(map(repr, BUILDERS))}]\n")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CONFIG_HOME", str(folder))
        yield


def provisioned(machine: str, os_name: str, profile: str, gpus: list[str]) -> Iterator[Finished]:
    if KEEP:
        must("sim", "up", machine, "--os", os_name, *[word for gpu in gpus for word in ("--gpu", gpu)])
    else:
        up(machine, os_name, gpus)
    wish = ["provision", f"sim:{machine}", "--profile", profile]
    foreseen = must(*wish, "--check", "--deep", "--json")
    yield Finished(machine, profile, must(*wish, timeout=3600), foreseen)
    if not KEEP:
        gpuprep("sim", "down", machine)


@pytest.fixture(scope="session")
def t4() -> Iterator[Finished]:
    """One T4 on Debian 13."""
    yield from provisioned("e2e-t4", "debian13", "t4", ["t4"])


@pytest.fixture(scope="session")
def a100() -> Iterator[Finished]:
    """Two A100 on Debian 12."""
    yield from provisioned("e2e-a100", "debian12", "a100", ["a100", "a100"])


@pytest.fixture(scope="session")
def v100(t4: Finished) -> Iterator[Finished]:
    """A V100 on Debian 13: a copy of the T4's finished disk, brought to the profile of its GPU. ALL: from nothing."""
    if ALL or KEEP:
        yield from provisioned("e2e-v100", "debian13", "v100", ["v100"])
        return
    machine = "e2e-v100"
    gpuprep("sim", "down", machine)
    must("sim", "down", "--keep", t4.machine)
    try:
        must("sim", "up", machine, "--clone-of", t4.machine, "--gpu", "v100")
    finally:
        must("sim", "up", t4.machine)
    wish = ["provision", f"sim:{machine}", "--profile", "v100"]
    foreseen = must(*wish, "--check", "--json")
    yield Finished(machine, "v100", must(*wish), foreseen)
    gpuprep("sim", "down", machine)
