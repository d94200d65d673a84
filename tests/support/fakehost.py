"""A Host that answers the agent's questions from a list; any other command is an error of the test."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuprep import catalogue
from gpuprep.agent import turn
from gpuprep.errors import GpuprepError
from gpuprep.provisioning import ansible_environment
from gpuprep.records import ProbeResult, Snapshot, to_json
from gpuprep.remote import CommandResult, LockOwner, Target
from gpuprep.remote.probereports import Doing, SoFar
from gpuprep.store import Store
from gpuprep.workflows import runs, schedule_state

# What the catalogue's sources have of drivers, toolkits and the container toolkit.
OFFERED = tuple(
    version
    for release in catalogue.archives().values()
    for source in release.sources.values()
    for version in (*(driver.version for driver in source.drivers), *source.cuda, *catalogue.container_toolkits())
)


def all_offered(question: dict[str, Any]) -> str:
    """Each package in every version that a plan may wish for."""
    offers = [f"{name} | {version}" for name in question["packages"] for version in OFFERED]
    return json.dumps({"offers": offers, "said": [], "lacking": {}, "untried": [], "held": []})


@dataclass
class Script:
    """What the hosts of one test say: snapshots in their order, probes by name, errors by host."""

    snapshots: list[Snapshot | GpuprepError] = field(default_factory=list)
    probes: dict[str, ProbeResult] = field(default_factory=dict)
    commands: dict[str, CommandResult] = field(default_factory=dict)
    archives: Callable[[dict[str, Any]], str] | None = None  # what they offer; None: all that is asked for
    connecting: dict[str, GpuprepError] = field(default_factory=dict)
    locking: GpuprepError | None = None
    looking: GpuprepError | None = None  # at who has the lock
    meanwhile: GpuprepError | None = None  # who has it once a probe has run
    doing: dict[str, list[Doing]] = field(default_factory=dict)  # what a probe tells while it runs
    measured: dict[str, list[tuple[tuple[str | int, ...], Any]]] = field(default_factory=dict)  # ... and has measured
    ending: dict[str, GpuprepError] = field(default_factory=dict)  # a probe that gives no answer
    # What the host's own check ends with; as it is, none is scheduled there.
    own_check: CommandResult = field(default_factory=lambda: CommandResult(schedule_state.NOT_SCHEDULED, "", ""))
    lost: GpuprepError | None = None  # of the lock, once it is held
    events: list[str] = field(default_factory=list)
    options: list[dict[str, Any]] = field(default_factory=list)  # what each Host was made with
    keys: dict[str, str] = field(default_factory=dict)  # the SSH host key with which a host answers, by its name

    def host(self) -> Callable[..., FakeHost]:
        return lambda target, **options: FakeHost(self, target, options)


class FakeHost:
    sudo = ""  # the usual program

    def __init__(self, script: Script, target: Target, options: dict[str, Any]) -> None:
        self.script, self.target = script, target
        script.options.append(options)
        self.name = target.name
        self._turn = threading.Lock()

    def __enter__(self) -> FakeHost:
        return self

    def __exit__(self, *_: object) -> None:
        self.script.events.append("closed")

    def host_key(self) -> str:
        return self.script.keys.get(self.name, "")

    def _reach(self) -> None:
        if self.name in self.script.connecting:
            raise self.script.connecting[self.name]

    @contextmanager
    def lock(self, owner: LockOwner, silent: Callable[[str], None]) -> Iterator[SimpleNamespace]:  # noqa: ARG002
        self._reach()
        if self.script.locking is not None:
            raise self.script.locking
        self.script.events.append(f"locked for {owner.run_id}")
        yield SimpleNamespace(lost=self.script.lost)
        self.script.events.append("unlocked")

    def check_free(self, since: float = 0.0) -> None:
        assert since >= 0
        probed = any(event.startswith("probe ") for event in self.script.events)
        for error in (self.script.looking, self.script.locking, self.script.meanwhile if probed else None):
            if error is not None:
                raise error

    def run(
        self, command: str, *, stdin: bytes = b"", become: bool = False, timeout: float | None = None
    ) -> CommandResult:
        self._reach()
        assert timeout
        if command == schedule_state.CHECK_NOW:
            assert become
            self.script.events += ["own check"] if self.script.own_check.exit_code == 0 else []
            return self.script.own_check
        if command in self.script.commands:
            self.script.events.append(command)
            return self.script.commands[command]
        assert stdin
        if '"wheels"' in command:  # remote/archivesprogram.py
            question = json.loads(stdin)
            self.script.events.append("archives as root")
            return CommandResult(0, (self.script.archives or all_offered)(question), "")
        if " facts " in command:
            self.script.events.append(f"facts{' as root' if become or 'sudo' in command else ''}")
            snapshots = self.script.snapshots
            answer = snapshots.pop(0) if len(snapshots) > 1 else snapshots[0]
            if isinstance(answer, GpuprepError):
                raise answer
            return CommandResult(0, to_json(answer), "")
        for name, result in self.script.probes.items():
            if f" probe {name} " in command:
                self.script.events.append(f"probe {name}")
                return CommandResult(0, to_json(result), "")
        raise AssertionError(f"nobody prepared an answer to {command!r}")

    def listen(
        self, heard: Callable[[Doing], None], command: str, *, so_far: SoFar | None = None, **options: Any
    ) -> CommandResult:
        if " probe " not in command:
            return self.run(command, **options)
        with self._turn:  # agent/turn.py
            heard(Doing(turn.TURN_STARTED))
            return self._probe(heard, command, so_far, options)

    def _probe(
        self, heard: Callable[[Doing], None], command: str, so_far: SoFar | None, options: dict[str, Any]
    ) -> CommandResult:
        for name, told in self.script.doing.items():
            for doing in told if f" probe {name} " in command else ():
                heard(doing)
        for name, pieces in self.script.measured.items():
            for at, value in pieces if f" probe {name} " in command else ():
                assert so_far is not None
                assert so_far.take(json.dumps({"at": at, "value": value}).encode())
        for name, error in self.script.ending.items():
            if f" probe {name} " in command:
                raise error
        return self.run(command, **options)


@contextmanager
def store_of_the_test(folder: Path, monkeypatch: pytest.MonkeyPatch, host: Callable[..., FakeHost]) -> Iterator[Store]:
    """Workflows reach `host` and no other; their state is in `folder`, and so is the store."""
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    monkeypatch.setattr(runs, "Host", host)
    store = Store.open(None)
    yield store
    store.close()


def playbooks_of_the_test(folder: Path, monkeypatch: pytest.MonkeyPatch, **books: str) -> Path:
    """Where they are; each of `books` is the text of one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    place = folder / "playbooks"
    place.mkdir()
    (place / "ansible.cfg").write_text("[defaults]\n")
    for name, text in books.items():
        (place / f"{name}.yml").write_text(text)
    monkeypatch.setattr(ansible_environment, "COLLECTION", folder)
    return place
