"""End-to-end tests need root on Linux. Where they cannot run, one line says so.

With GPUPREP_REQUIRE_E2E=1 (CI) a run without them has failed.

`make test` runs two workers of pytest-xdist. Tests that look at one machine stay with one worker, which makes that
machine once; the longest groups begin first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest
from hypothesis import HealthCheck, settings

from gpuprep.errors import SimError
from gpuprep.sim import prerequisites


def _why_no_e2e() -> str:
    try:
        prerequisites.check()
    except SimError as error:
        return f"end-to-end tests start simulated VMs: {'; '.join(error.what.splitlines())}"
    return ""


# Other tests build drivers meanwhile: how long an example takes to make says nothing here.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")

# Fixtures that are machines ► the group of the tests that need them. The V100 is a copy of the T4.
GROUPS = {"t4": "t4", "v100": "t4", "a100": "a100"}
FIRST = ("t4", "a100")
# These clone their machine, which freezes the disk below: folders on it cannot be replaced any more (overlayfs: EXDEV).
LAST_OF_GROUP = ("v100", "test_schedulers")


def _machines(item: pytest.Item) -> list[str]:
    """The machine that a test is given as a parameter, and its fixtures."""
    chosen = getattr(getattr(item, "callspec", None), "params", {}).get("machine", "")
    return [chosen, *getattr(item, "fixturenames", ())]


def _group(item: pytest.Item) -> str:
    """Of an end-to-end test; "" of any other, which every worker may take."""
    if not item.get_closest_marker("e2e"):
        return ""
    return next((GROUPS[name] for name in _machines(item) if name in GROUPS), item.path.stem)


def _is_last(item: pytest.Item) -> bool:
    return any(name in LAST_OF_GROUP for name in (item.path.stem, *_machines(item)))


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    groups = {item: _group(item) for item in items}
    rank = {name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: (rank.get(groups[item], len(FIRST)), _is_last(item)))
    for item in items:
        if groups[item]:
            item.add_marker(pytest.mark.xdist_group(groups[item]))
    reason = _why_no_e2e()
    if not reason:
        return
    for item in items:
        if item.get_closest_marker("e2e"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    """One for all tests of a session. CI must have it; elsewhere the tests that need it are skipped."""
    try:
        with postgres.server() as running:
            yield running
    except postgres.NoPostgres as error:
        if os.environ.get("GPUPREP_REQUIRE_E2E") == "1":
            raise
        pytest.skip(str(error))


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store, on each database that gpuprep knows."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/history.db"
    server: postgres.Server = request.getfixturevalue("postgres_server")
    return server.new_database()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A HOME without keys, agent and known hosts."""
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return folder


def pytest_sessionfinish(session: pytest.Session) -> None:
    """CI asks for the end-to-end part by name: a run that left it out has not passed."""
    if os.environ.get("GPUPREP_REQUIRE_E2E") != "1" or os.environ.get("PYTEST_XDIST_WORKER"):
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    passed = reporter.stats.get("passed", []) if reporter else []
    if not any("e2e" in report.keywords for report in passed) and session.exitstatus == pytest.ExitCode.OK:
        print("\nGPUPREP_REQUIRE_E2E=1, but no end-to-end test ran: this does not count as a pass", file=sys.stderr)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
