"""What all tests share: which test runs in which command, by which worker, and servers that many tests need.

`make test` runs what is not marked, and one finished machine as smoke; `make test-machines` what is marked `machines`,
and all of tests/machines and tests/browser; `make test-all` everything. End-to-end tests need root on Linux: where
they cannot run, `make test` skips them with the reason, and the other two fail (GPUPREP_REQUIRE_E2E=1; CI sets it).

Tests that look at one machine stay with one worker of pytest-xdist, and so do the tests of one file: what a file makes
for its tests is made once.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import amount
import browser
import hints
import packerprogram
import postgres
import pseudoterminal
import pytest
from hypothesis import HealthCheck, settings
from places import TESTS

from gpuprep import errors
from gpuprep.sim import prerequisites
from gpuprep.workflows import sources

# To collect all tests makes half a million objects that stay. Python's garbage collector looked through them again and
# again, for a third of the time of collecting. pytest_collection_finish turns it on again.
gc.disable()


def _why_no_e2e() -> str:
    try:
        prerequisites.check()
    except errors.SimError as error:
        return f"end-to-end tests start simulated VMs: {'; '.join(error.what.splitlines())}"
    return ""


@pytest.fixture(autouse=True)
def _printed_commands_are_taken() -> Iterator[None]:
    """Every command to paste that a test prints is one that the command line takes."""
    hints.printed.clear()
    yield
    wrong = {line: why for line in list(hints.printed) if (why := hints.problem(line))}
    assert not wrong, wrong


@pytest.fixture(autouse=True)
def _no_tarballs_of_upstream(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan fetches FFmpeg's and the headers' tarballs, which are for end-to-end tests alone."""
    if not request.node.get_closest_marker("e2e"):
        monkeypatch.setattr(sources, "TARBALLS", {})


@pytest.fixture(autouse=True)
def _no_store_of_others(request: pytest.FixtureRequest) -> Iterator[None]:
    """What end-to-end tests, or who runs the tests, have set is not written to by other tests."""
    url = None if request.node.get_closest_marker("e2e") else os.environ.pop("GPUPREP_STORE", None)
    yield
    if url is not None:
        os.environ["GPUPREP_STORE"] = url


# Other tests build drivers meanwhile: how long an example takes to make says nothing here. Every run has the same
# examples, but `make test-all`, which looks for new ones: a change fails by what it changed.
settings.register_profile(
    "shared",
    deadline=None,
    max_examples=amount.examples(100),
    derandomize=not amount.ALL,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("shared")

REQUIRED = os.environ.get("GPUPREP_REQUIRE_E2E") == "1"
# Fixtures that are machines: tests of one machine run in one group, by one worker.
MACHINES = ("kept_t4", "t4", "t4_copy", "a100", "v100")
# The order of the groups: the machine that is made from nothing; the build that it waits for; what waits more than it
# works, because these two need the processors; other end-to-end tests; when that machine is finished or nearly so,
# those that need a clone of its disk, with tests without a machine between them. What is short comes last, so that no
# worker ends long before another. A name is a machine, a file or a folder.
ORDER = (
    "kept_t4", "t4", "test_codec", "hostile", "test_interruption", "test_silence", "test_watch", "test_host_keys",
    "e2e", "test_schedulers", "t4_copy", "test_chaos", "traces", "a100", "v100", "tests",
)  # fmt: skip
# Whose tests are for `make test-machines`, but for what is marked `smoke`.
FOLDERS_OF_MACHINES = ("machines", "browser")
# A machine from nothing takes a quarter of an hour on two quiet cores: only a hang lasts longer than this.
MACHINE_SECONDS = 9000


def _group(item: pytest.Item) -> str:
    """The group of a test, which one worker runs: of an end-to-end test its machine or file, of any other its file.

    "" for a test that names its group itself.
    """
    if not item.get_closest_marker("e2e"):
        return "" if item.get_closest_marker("xdist_group") else str(item.path.relative_to(TESTS))
    chosen = getattr(getattr(item, "callspec", None), "params", {}).get("machine", "")
    return next((name for name in [chosen, *getattr(item, "fixturenames", ())] if name in MACHINES), item.path.stem)


def _place(item: pytest.Item, group: str) -> int:
    names = (group, "e2e") if item.get_closest_marker("e2e") else (item.path.stem, item.path.parent.name, "tests")
    return next(ORDER.index(name) for name in names if name in ORDER)


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    groups = {item: _group(item) for item in items}
    items.sort(key=lambda item: _place(item, groups[item]))
    for item in items:
        if item.path.relative_to(TESTS).parts[0] in FOLDERS_OF_MACHINES and not item.get_closest_marker("smoke"):
            item.add_marker(pytest.mark.machines)
        if item.get_closest_marker("e2e"):
            item.add_marker(pytest.mark.timeout(MACHINE_SECONDS))
        if groups[item]:
            item.add_marker(pytest.mark.xdist_group(groups[item]))
    reason = _why_no_e2e()
    if not reason:
        return
    for item in items:
        if item.get_closest_marker("e2e"):
            if REQUIRED:
                raise pytest.UsageError(reason)
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish() -> None:
    """What is there by now stays: the garbage collector need not look at it."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    """One for all tests of a session. CI must have it; elsewhere the tests that need it are skipped."""
    try:
        with postgres.server() as running:
            yield running
    except postgres.NoPostgres as error:
        if REQUIRED:
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def chromium() -> Iterator[browser.Chromium]:
    """One for all tests of a session (tests/support/browser.py). CI must have it, as with PostgreSQL."""
    try:
        with browser.running() as started:
            yield started
    except browser.NoBrowser as error:
        if REQUIRED:
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def packer_or_why() -> Iterator[packerprogram.Packer | str]:
    """Packer itself (tests/support/packerprogram.py), or why it is not to be had: Debian 13 has none."""
    try:
        with packerprogram.packer() as found:
            yield found
    except packerprogram.NoPacker as error:
        yield str(error)


@pytest.fixture
def packer(packer_or_why: packerprogram.Packer | str) -> packerprogram.Packer:
    if isinstance(packer_or_why, str):
        pytest.skip(packer_or_why)
    return packer_or_why


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.machines)])
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


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pseudoterminal.Terminal:
    """A stream that says it is a terminal of 80 columns."""
    for name, value in {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return pseudoterminal.Terminal()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """CI asks for the end-to-end part by name: a run that left it out has not passed."""
    gc.collect()
    gc.freeze()  # pytest collects five times more, in each worker, and for some seconds where nothing is frozen
    if not REQUIRED or os.environ.get("PYTEST_XDIST_WORKER") or session.config.option.collectonly:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    passed = reporter.stats.get("passed", []) if reporter else []
    if session.exitstatus == pytest.ExitCode.OK and not any("e2e" in report.keywords for report in passed):
        print("\nGPUPREP_REQUIRE_E2E=1, but no end-to-end test ran: this does not count as a pass", file=sys.stderr)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
