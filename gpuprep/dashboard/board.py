"""The newest run of each host and its figures of the last nights, kept in memory: records are too large to be read for
each page. Records never change, so what was read of a run stays true; which run is the newest is asked anew.

A thread reads ahead, so that pages find most of it read.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from typing import Generic, TypeVar

from gpuprep.dashboard import digest, speeds
from gpuprep.dashboard.digest import Host
from gpuprep.dashboard.speeds import Speeds
from gpuprep.errors import GpuprepError
from gpuprep.performance import trend
from gpuprep.records import Status
from gpuprep.records.ids import now
from gpuprep.store.overview import Run
from gpuprep.store.readonly import ReadOnlyStore

JUDGING = ("provision", "tune", "validate", "drift")  # commands whose newest run says how a host is
FRESH_SECONDS = 15.0  # for which an answer is given again
AHEAD_SECONDS = 10.0  # between two rounds of reading ahead; less than the above, so that pages wait for none
AWAY_SECONDS = 300.0  # after the last page that was asked for, it is read ahead less often:
IDLE_SECONDS = 60.0  # so that the first page after a night does not wait for a thousand new runs
log = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True)
class Fleet:
    """All hosts, the worst first."""

    hosts: tuple[Host, ...]
    read_at: str  # UTC, ISO 8601

    def named(self, name: str) -> Host | None:
        return next((host for host in self.hosts if name == host.name or name in host.others), None)


@dataclass(frozen=True)
class Nights:
    """How many names ended how in each of the last nights, oldest first, by the last run of each."""

    counted: tuple[tuple[date, dict[str, int]], ...]
    read_at: str


class Fresh(Generic[_T]):
    """An answer of the store that is given again for some seconds. Who asks meanwhile waits for the one who reads."""

    def __init__(self, read: Callable[[], _T], seconds: float) -> None:
        self._read, self._seconds, self._lock = read, seconds, threading.Lock()
        self._known: tuple[float, _T] | None = None

    def __call__(self, *, anew: bool = False) -> _T:
        with self._lock:
            if self._known is None or anew or time.monotonic() - self._known[0] > self._seconds:
                self._known = (time.monotonic(), self._read())
            return self._known[1]


class Board:
    def __init__(self, store: ReadOnlyStore, fresh_seconds: float = FRESH_SECONDS) -> None:
        self.store = store
        self._hosts: dict[str, Host] = {}  # by run id
        self._fleet = Fresh(self._read_fleet, fresh_seconds)
        self._nights = Fresh(self._read_nights, fresh_seconds)
        self._speeds: dict[str, tuple[str, Speeds]] = {}  # by name: when it was measured last, and what
        self._to_read = 0
        self._answering = 0  # pages that are being made
        self._counting = threading.Condition()
        self._asked_at = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ahead, name="reads ahead", daemon=True)

    def start(self, report_count: Callable[[int], None] = lambda _: None) -> None:
        """Read the newest run of each host, then go on in a thread. `report_count` gets how many hosts there are."""
        report_count(len(self.fleet().hosts))
        self._thread.start()

    def close(self) -> None:
        """End what is going on, at once."""
        self._ended.set()
        self.store.stop()
        if self._thread.is_alive():
            self._thread.join()
        self.store.close()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """While a page is made, nothing is read ahead: Python runs one thread at a time."""
        with self._counting:
            self._answering += 1
            self._asked_at = time.monotonic()
        try:
            yield
        finally:
            with self._counting:
                self._answering -= 1
                self._counting.notify_all()

    def fleet(self) -> Fleet:
        """Raises StoreError, as all that asks the store."""
        return self._fleet()

    def nights(self) -> Nights:
        return self._nights()

    def speeds(self, host: Host) -> Speeds | None:
        """None: not read yet."""
        known = self._speeds.get(host.name)
        return known[1] if known else None

    def speeds_now(self, name: str) -> Speeds:
        """Read now if need be."""
        known = self._speeds.get(name)
        return known[1] if known else self._measured(name)

    @property
    def to_read(self) -> int:
        """Hosts whose figures were not read yet."""
        return self._to_read

    # ------------------------------------------------------------ reading

    def _read_fleet(self) -> Fleet:
        read_at = now()
        canonical = self.store.canonical_names()
        newest: dict[str, Run] = {}
        names: dict[str, set[str]] = defaultdict(set)
        for name, host in canonical.items():
            names[host].add(name)
        for run in self.store.newest_of_hosts(JUDGING):
            host = canonical.get(run.host, run.host)
            names[host].add(run.host)
            if host not in newest or (newest[host].started_at, newest[host].run_id) < (run.started_at, run.run_id):
                newest[host] = run
        runs = {run.run_id: (run, tuple(sorted(names[host] - {run.host}))) for host, run in newest.items()}
        known = {
            run_id: host for run_id, host in self._hosts.items() if run_id in runs and host.others == runs[run_id][1]
        }
        for run_id, text in self.store.texts([run_id for run_id in runs if run_id not in known]):
            known[run_id] = digest.host(runs[run_id][0], text, runs[run_id][1])
        self._hosts = known
        return Fleet(tuple(sorted(known.values(), key=lambda host: (host.rank, host.name))), read_at)

    def _read_nights(self) -> Nights:
        read_at, days = now(), last_nights()
        of_hour = lru_cache(maxsize=None)(lambda hour: trend.night(f"{hour}:00:00+00:00"))
        last: dict[tuple[date, str], tuple[str, str]] = {}
        for host, started_at, verdict in self.store.since(JUDGING, beginning(days[0])):
            day = of_hour(started_at[:13])
            if day is not None and last.get((day, host), ("", ""))[0] < started_at:
                last[day, host] = (started_at, verdict or Status.UNKNOWN.value)
        counted = Counter((day, word) for (day, _), (_, word) in last.items())
        return Nights(
            tuple((day, {word.value: counted[day, word.value] for word in Status if counted[day, word.value]})
                  for day in days), read_at
        )  # fmt: skip

    def _ahead(self) -> None:
        while not self._ended.is_set():
            try:
                self._fleet(anew=True)
                self._nights(anew=True)
                self._figures()
            except GpuprepError as error:  # the pages say the same, as long as it lasts
                log.warning("%s", error)
            away = time.monotonic() - self._asked_at > AWAY_SECONDS
            self._ended.wait(IDLE_SECONDS if away else AHEAD_SECONDS)

    def _figures(self) -> None:
        newest = self.store.newest_figures()
        hosts = {
            host.name: max(newest.get(name, "") for name in (host.name, *host.others)) for host in self.fleet().hosts
        }
        due = [name for name, moment in hosts.items() if self._speeds.get(name, (None,))[0] != moment]
        self._to_read = sum(name not in self._speeds for name in due)
        self._speeds = {name: speeds for name, speeds in self._speeds.items() if name in hosts}
        for name in due:
            with self._counting:
                self._counting.wait_for(lambda: not self._answering, timeout=1)
            if self._ended.is_set():
                return
            self._to_read -= name not in self._speeds
            self._speeds[name] = (hosts[name], self._measured(name) if hosts[name] else speeds.NONE)

    def _measured(self, name: str) -> Speeds:
        newest = self.store.newest_figure(name)
        measured = self.store.figures(name, trend.begin(newest, speeds.NIGHTS)) if newest else []
        return speeds.speeds(measured)


def last_nights() -> list[date]:
    """Oldest first; the last is the one of now."""
    last = trend.night(now()) or date.today()
    return [last - timedelta(days=back) for back in range(speeds.NIGHTS - 1, -1, -1)]


def beginning(day: date) -> str:
    """When a night begins."""
    return f"{day}T12:00:00+00:00"
