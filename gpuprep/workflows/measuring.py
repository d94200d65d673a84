"""The probes of one run on one host. Probes measure in turn; while one probe measures, the next gets ready.

The host decides which probe waits for which (agent/turn.py), also for probes of another controller. This module decides
when a probe starts: as soon as no other probe waits for its turn. Probes that share a turn start together, if the host
reported that it has room for that. While the matrix products run, the clips are made that later probes read.
"""

from __future__ import annotations

import functools
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuprep.agent import turn
from gpuprep.desired import probes
from gpuprep.errors import AgentFailed, HostError, TookTooLong
from gpuprep.records import Missing, ProbeResult, Source
from gpuprep.records.evidence.shared import Probe
from gpuprep.remote import Host, agent_client
from gpuprep.remote.probereports import Doing
from gpuprep.workflows.runs import Begun, Run

ENDING_SECONDS = 10.0  # time for the other probes to end after one ended the run; they have the limits of a stopped run
ON_THE_WAY_SECONDS = 2.0  # for the message that a turn has begun: the host's clock of the turn started before ours
CLIPS = "clips"
# For all clips together: no probe begins beside them, so an encoder that hangs would hold back all that follow.
CLIPS_SECONDS = 180.0


@dataclass(frozen=True)
class _News:
    """An event of the probe `name`: its turn has begun, or it has ended with a result or an error."""

    name: str
    beside: bool = False  # it shares its turn, and so may others
    ended: bool = False
    result: ProbeResult | None = None
    error: BaseException | None = None


def measure(
    run: Run,
    host: Host,
    kinds: Sequence[Probe],
    arguments: Mapping[str, Any],
    source: Source,
    has_failed: Callable[[], bool] | None = None,
) -> None:
    """Run all probes. Each result goes into the draft as soon as it is known; the draft has the order of `kinds`.

    With `has_failed`, no further probe begins once it says so after a result; those that have begun end as ever.

    Raises what `ask` raises; by then the other probes have ended, and the draft has what they had measured.
    """
    at_work = _AtWork(run)
    waiting = list(probes.in_turn(kinds, first_failure=has_failed is not None))
    limits = {kind.name: kind.timeout_seconds for kind in kinds} | {CLIPS: CLIPS_SECONDS}
    results: dict[str, ProbeResult] = {}
    beside = False
    try:
        while waiting or at_work.names:
            at_once = beside and waiting and waiting[0].shares_turn
            if waiting and (at_once or not at_work.is_any_waiting):
                kind = waiting.pop(0)
                before = sum(limits[name] for name in at_work.names)  # it may have to wait so long for its turn
                patience = before + ENDING_SECONDS + kind.timeout_seconds
                patient = functools.partial(ask, timeout=patience, turn_begins=at_work.begun)
                at_work.begin(kind.name, functools.partial(patient, run, host, kind, arguments, source))
                continue
            news = at_work.next()
            beside = beside or news.beside
            if news.error is not None:
                run.stop_if_cancelled()  # one that ends may have cut the connection of the other
                raise news.error
            if news.result is not None:
                results[news.name] = news.result
                run.draft.measurements = tuple(results[kind.name] for kind in kinds if kind.name in results)
                run.draft.begun.pop(news.name, None)
                run.stop_if_cancelled()
                if waiting and has_failed is not None and has_failed():
                    waiting.clear()
            elif not news.ended and news.name == probes.LEAVES_PROCESSORS:
                readers = [kind for kind in waiting if kind.clips]
                if readers:
                    at_work.begin(CLIPS, functools.partial(_make_clips, run, host, readers, arguments))
    finally:
        at_work.end()


def one_probe(run: Run, host: Host, kind: Probe, arguments: Mapping[str, Any], source: Source) -> ProbeResult:
    """Run one probe alone; returns its result and adds it to the draft."""
    result = ask(run, host, kind, arguments, source)
    run.draft.measurements = (*run.draft.measurements, result)
    run.draft.begun.pop(kind.name, None)
    return result


def ask(
    run: Run,
    host: Host,
    kind: Probe,
    arguments: Mapping[str, Any],
    source: Source,
    *,
    timeout: float | None = None,
    turn_begins: Callable[[str, bool], None] = lambda *_: None,
) -> ProbeResult:
    """The result of one probe; for a probe that broke, a result without values, so other probes can go on. Any thread.

    If an exception ends the run, `begun` of the draft has what the probe had measured.
    """
    begun = run.draft.begun[kind.name] = Begun(kind, source)
    began: list[float] = []  # once, whatever the host says

    def begin(beside: bool = False) -> None:
        if began:
            return
        began.append(time.monotonic())
        run.stage(kind.what, kind.name)
        turn_begins(kind.name, beside)

    def heard(doing: Doing) -> None:
        if doing.what in (turn.TURN_STARTED, turn.SHARED_TURN_STARTED):
            begin(doing.what == turn.SHARED_TURN_STARTED)
        else:
            run.doing(kind.name, doing)

    asked = {**arguments, "turn": turn.SHARED if kind.shares_turn else turn.ALONE, "turn_seconds": kind.timeout_seconds}
    seconds = kind.timeout_seconds if timeout is None else timeout
    try:
        result = agent_client.probe(
            host, kind.name, asked, become=True, timeout=seconds, heard=heard, so_far=begun.so_far
        )
    except (AgentFailed, TookTooLong) as error:
        run.stop_if_cancelled()
        late = bool(began) and time.monotonic() - began[0] > kind.timeout_seconds - ON_THE_WAY_SECONDS
        why = f"it did not end within {kind.timeout_seconds:g} s of its turn" if late else error.what
        result = begun.ended(Missing("command_failed", why))
    begin()  # it failed earlier, or its message was lost
    return result


def _make_clips(run: Run, host: Host, readers: Sequence[Probe], arguments: Mapping[str, Any]) -> None:
    """Make the clips that these probes read. A probe tries again to make a missing clip, and reports why that fails.

    If the host is lost meanwhile, the next probe reports that.
    """
    until = time.monotonic() + CLIPS_SECONDS
    for kind in readers:
        asked = {**arguments, "clips_only": True}
        left = until - time.monotonic()
        if left <= 0:
            return
        try:
            agent_client.probe(host, kind.name, asked, become=True, timeout=min(left, kind.timeout_seconds))
        except HostError:
            run.stop_if_cancelled()


class _AtWork:
    """The probes that run on the host, one thread each."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._threads: dict[str, threading.Thread] = {}
        self._waiting: set[str] = set()  # of those, whose turn has not begun
        self._news: queue.SimpleQueue[_News] = queue.SimpleQueue()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._threads)

    @property
    def is_any_waiting(self) -> bool:
        return bool(self._waiting)

    def begin(self, name: str, work: Callable[[], ProbeResult | None]) -> None:
        thread = threading.Thread(target=self._do, args=(name, work), name=f"probe {name}", daemon=True)
        self._threads[name] = thread
        self._waiting.add(name)  # making clips counts as waiting until its end: no probe begins beside it
        thread.start()

    def begun(self, name: str, beside: bool) -> None:
        """Note that the turn of the probe `name` has begun. Called in the thread of the probe."""
        self._news.put(_News(name, beside=beside))

    def next(self) -> _News:
        """Wait for the next event and return it."""
        news = self._news.get()
        self._waiting.discard(news.name)
        if news.ended:
            self._threads.pop(news.name).join()
        return news

    def end(self) -> None:
        """End all probes that still run, because the run was ended early."""
        if not self._threads:
            return
        with self._run.breaking_off():
            for thread in self._threads.values():
                thread.join(ENDING_SECONDS)

    def _do(self, name: str, work: Callable[[], ProbeResult | None]) -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001  raised again by who reads the news
            self._news.put(_News(name, ended=True, error=error))
        else:
            self._news.put(_News(name, ended=True, result=result))
