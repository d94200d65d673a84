"""The newest run of each host and its figures of the last nights, kept in memory: records are too large to be read for
each page. Records never change, so what was read of a run stays true; which run is the newest is asked anew.

A thread reads ahead, so that pages find most of it read.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from gpuprep.dashboard import digest, speeds
from gpuprep.dashboard.digest import Host
from gpuprep.dashboard.speeds import Speeds
from gpuprep.errors import GpuprepError
from gpuprep.performance import trend
from gpuprep.records.ids import now
from gpuprep.store.overview import Run
from gpuprep.store.readonly import ReadOnlyStore

JUDGING = ("provision", "tune", "validate", "drift")  # commands whose newest run says how a host is
FRESH_SECONDS = 3.0  # for which an answer is given again: many browsers ask at once
AHEAD_SECONDS = 15.0  # between two rounds of reading ahead
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fleet:
    """All hosts, the worst first."""

    hosts: tuple[Host, ...]
    read_at: str  # UTC, ISO 8601

    def named(self, name: str) -> Host | None:
        return next((host for host in self.hosts if name == host.name or name in host.others), None)


class Board:
    def __init__(self, store: ReadOnlyStore) -> None:
        self.store = store
        self._hosts: dict[str, Host] = {}  # by run id
        self._fleet = Fleet((), "")
        self._fleet_at = float("-inf")
        self._speeds: dict[str, tuple[str, Speeds]] = {}  # by name: when it was measured last, and what
        self._to_read = 0  # hosts whose figures are not read yet
        self._nights: tuple[float, str, list[Run]] = (float("-inf"), "", [])
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ahead, name="reads ahead", daemon=True)

    def start(self, said: Callable[[int], None] = lambda _: None) -> None:
        """Read the newest run of each host, then go on in a thread. `said` is told how many hosts there are."""
        said(len(self.fleet().hosts))
        self._thread.start()

    def close(self) -> None:
        """End what is going on, at once."""
        self._ended.set()
        self.store.stop()
        if self._thread.is_alive():
            self._thread.join()
        self.store.close()

    def fleet(self) -> Fleet:
        """Raises StoreError."""
        with self._lock:
            if time.monotonic() - self._fleet_at > FRESH_SECONDS:
                self._fleet = self._read()
                self._fleet_at = time.monotonic()
            return self._fleet

    def speeds(self, host: Host) -> Speeds | None:
        """None: not read yet."""
        known = self._speeds.get(host.name)
        return known[1] if known else None

    def speeds_now(self, name: str) -> Speeds:
        """Read now if need be. Raises StoreError."""
        known = self._speeds.get(name)
        return known[1] if known else self._measured(name)

    @property
    def to_read(self) -> int:
        """Hosts whose figures were not read yet."""
        return self._to_read

    def since(self, moment: str) -> list[Run]:
        """All runs that began at `moment` or later, oldest first. Raises StoreError."""
        with self._lock:
            read_at, of, found = self._nights
            if of != moment or time.monotonic() - read_at > FRESH_SECONDS:
                found = self.store.since(moment)
                self._nights = (time.monotonic(), moment, found)
            return found

    # ------------------------------------------------------------ reading

    def _read(self) -> Fleet:
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
        known = {run_id: one for run_id, one in self._hosts.items() if run_id in runs and one.others == runs[run_id][1]}
        missing = [run_id for run_id in runs if run_id not in known]
        for run_id, text in self.store.texts(missing):
            known[run_id] = digest.host(runs[run_id][0], text, runs[run_id][1])
        self._hosts = known
        return Fleet(tuple(sorted(known.values(), key=lambda one: (one.rank, one.name))), read_at)

    def _ahead(self) -> None:
        while not self._ended.is_set():
            try:
                self._figures()
                self._ended.wait(AHEAD_SECONDS)
                self.fleet()
            except GpuprepError as error:  # the pages say the same, as long as it lasts
                log.warning("%s", error)
                self._ended.wait(AHEAD_SECONDS)

    def _figures(self) -> None:
        newest = self.store.newest_figures()
        hosts = {
            host.name: max(newest.get(name, "") for name in (host.name, *host.others)) for host in self.fleet().hosts
        }
        due = [name for name, moment in hosts.items() if self._speeds.get(name, (None,))[0] != moment]
        self._to_read = len(due)
        for name in due:
            if self._ended.is_set():
                return
            self._speeds[name] = (hosts[name], self._measured(name) if hosts[name] else speeds.NONE)
            self._to_read -= 1
            self._ended.wait(0.002)  # pages come first
        self._speeds = {name: one for name, one in self._speeds.items() if name in hosts}

    def _measured(self, name: str) -> Speeds:
        newest = self.store.newest_figure(name)
        measured = self.store.figures(name, trend.begin(newest, speeds.NIGHTS)) if newest else []
        return speeds.speeds(measured)
