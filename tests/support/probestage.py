"""Probes whose begin and end a test decides."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpuprep.agent import turn
from gpuprep.errors import Interrupted
from gpuprep.records import ProbeResult, Source
from gpuprep.records.evidence import kinds
from gpuprep.remote import agent_client
from gpuprep.remote.probereports import Doing
from gpuprep.workflows import measuring
from gpuprep.workflows.runs import Run

PATIENCE = 300.0


KINDS = {kind.name: kind for kind in kinds.PROBES}


class Stage:
    """A host that measures by the rules of agent/turn.py. `work` is called in a probe's turn."""

    def __init__(self, work: Callable[[str], None] = lambda _: None) -> None:
        self.work = work
        self.said: list[str] = []
        self.clips_seconds = 0.0
        self.room = True
        self.held: tuple[str, ...] = ()  # these begin when all of them are ready
        self._change = threading.Condition()
        self._alone: str | None = None
        self._sharing: set[str] = set()
        self.broken_off = threading.Event()

    def say(self, words: str) -> None:
        with self._change:
            self.said.append(words)
            self._change.notify_all()

    def until(self, words: str) -> None:
        with self._change:
            assert self._change.wait_for(lambda: words in self.said, PATIENCE), (words, self.said)

    def probe(self, _: object, name: str, arguments: dict[str, Any], **options: Any) -> ProbeResult:
        if arguments.get("clips_only"):
            self.clips_seconds = options["timeout"]
            self.say(f"clips of {name}")
            self.work(f"clips of {name}")
            return ProbeResult(name, Source.MEASURED, {"clips": 1}, 0.1)
        self.say(f"{name} gets ready")
        for other in self.held if name in self.held else ():
            self.until(f"{other} gets ready")
        shares = self.room and arguments["turn"] == turn.SHARED

        def may_begin() -> bool:
            return self.broken_off.is_set() or (self._alone is None and (shares or not self._sharing))

        with self._change:
            assert self._change.wait_for(may_begin, PATIENCE)
            if self.broken_off.is_set():
                raise Interrupted("stopped")
            if shares:
                self._sharing.add(name)
            else:
                self._alone = name
        try:
            self.say(f"{name} begins")
            options["heard"](Doing(turn.SHARED_TURN_STARTED if shares else turn.TURN_STARTED))
            self.work(name)
            self.say(f"{name} ends")
        finally:
            with self._change:
                self._sharing.discard(name)
                self._alone = None if self._alone == name else self._alone
                self._change.notify_all()
        return ProbeResult(name, Source.MEASURED, {"probe": name}, 1.0)


class Fake:
    """What of a Run is used."""

    def __init__(self, stage: Stage) -> None:
        self.draft = SimpleNamespace(measurements=(), begun={})
        self.stages: list[str] = []
        self.cancelled = False
        self._stage = stage

    def stage(self, _: str, probe: str) -> None:
        self.stages.append(probe)

    def doing(self, probe: str, doing: Doing) -> None:
        self.stages.append(f"{probe}: {doing.what}")

    def stop_if_cancelled(self) -> None:
        if self.cancelled:
            raise Interrupted("stopped")

    @contextmanager
    def breaking_off(self) -> Iterator[None]:
        self._stage.broken_off.set()
        self._stage.say("broken off")
        yield

    @property
    def names(self) -> list[str]:
        return [result.probe for result in self.draft.measurements]


def measured(monkeypatch: pytest.MonkeyPatch, stage: Stage, *names: str) -> Fake:
    run = Fake(stage)
    monkeypatch.setattr(agent_client, "probe", stage.probe)
    kinds = [KINDS[name] for name in names]
    try:
        measuring.measure(cast(Run, run), cast(Any, None), kinds, {"quick": True}, Source.MEASURED)
    finally:
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("probe ")]
    return run
