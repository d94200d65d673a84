"""The newest run of each host and its figures of the last nights, kept in memory: records are too large to be read for
each page. Records never change, so what was read of a run stays valid; which run is the newest is asked again.

A thread reads ahead, so that pages find most of it read.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from typing import Any, Generic, TypeVar

from gpuprep.dashboard import speeds
from gpuprep.dashboard.speeds import Speeds
from gpuprep.errors import GpuprepError
from gpuprep.performance import trend
from gpuprep.records import DecodeError, Finding, RunRecord, Source, Status, Verdict, from_json_value
from gpuprep.records.ended import ABOUT_HOSTS
from gpuprep.records.findings import GRAVEST_FIRST, PROBLEMS, findings_of, in_order, weight
from gpuprep.records.ids import now
from gpuprep.records.showable import safe
from gpuprep.reports import fleet
from gpuprep.reports.text import outcome
from gpuprep.store.overview import Run
from gpuprep.store.readonly import ReadOnlyStore
from gpuprep.untrusted.plaintext import one_line

# ---------------------------------------------------------------- what is kept of a run


HEAVY = ("before", "after", "playbook", "plan", "options")
KEPT = {*(status.value for status in PROBLEMS), Status.WAIVED.value}
MOST_KEPT = 200  # findings of a run that a page of all hosts can use
LETTERS = 120  # of a fact


@dataclass(frozen=True)
class Host:
    """A row of the fleet's page."""

    name: str  # as in its newest run
    others: tuple[str, ...]  # other names of the same host
    record: RunRecord  # of the newest run; with findings that did not pass alone
    word: str  # PASS, FAIL, ... or how a run without a verdict ended
    rank: int  # the smaller the worse
    since: str  # the day of the oldest finding; "–"
    what: str  # one line
    gpu: str  # "8 × NVIDIA H200"; "" where it was not read
    driver: str
    kernel: str
    system: str
    simulated: bool

    @property
    def problems(self) -> list[Finding]:
        return in_order(findings_of(self.record), PROBLEMS)


def host_of(run: Run, text: str, others: tuple[str, ...]) -> Host:
    """Of a damaged record a row that says so."""
    try:
        document = json.loads(text)
        record, facts = _slim(document), _facts(document)
        simulated = record.source is Source.SIMULATED or any(
            measurement.get("source") == Source.SIMULATED.value for measurement in document.get("measurements", ())
        )
    except (ValueError, DecodeError, KeyError, TypeError, AttributeError, RecursionError) as error:
        record, facts, simulated = _damaged(run, error), {}, run.source is Source.SIMULATED
    word, line = outcome(record)
    return Host(
        run.host, others, record, word, fleet.WORST_FIRST.index(fleet.rank(record)), fleet.since(record),
        fleet.what(record) or (line if word not in ("PASS", "SKIP") else ""), facts.get("gpu", ""),
        facts.get("driver", ""), facts.get("kernel", ""), facts.get("system", ""), simulated,
    )  # fmt: skip


def _slim(document: dict[str, Any]) -> RunRecord:
    slim = {**document, **dict.fromkeys(HEAVY, None), "options": {}, "measurements": []}
    if verdict := document.get("verdict"):
        slim["verdict"] = {**verdict, "findings": _kept(verdict["findings"])}
    # Those that are numbers are the verdict's (store/storedrecord.py).
    slim["findings"] = _kept([finding for finding in document.get("findings", []) if type(finding) is not int])
    return safe(from_json_value(RunRecord, slim))


def _kept(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The most severe findings, also of records with unsorted findings."""
    order = [status.value for status in GRAVEST_FIRST]

    def place(finding: dict[str, Any]) -> tuple[int, int]:
        return order.index(finding["status"]), weight(finding["subject"], finding.get("role", ""))

    return sorted((finding for finding in findings if finding["status"] in KEPT), key=place)[:MOST_KEPT]


def _facts(document: Mapping[str, Any]) -> dict[str, str]:
    snapshot = document.get("after") or document.get("before") or {}
    facts = {
        "driver": snapshot.get("driver", {}).get("loaded_version"),
        "kernel": snapshot.get("kernel", {}).get("running"),
        "system": snapshot.get("os", {}).get("pretty_name"),
        "gpu": _gpus(snapshot.get("gpus")),
    }
    return {name: one_line(value, LETTERS) for name, value in facts.items() if isinstance(value, str)}


def _gpus(gpus: Any) -> str:
    """ "8 × NVIDIA H200"; of different GPUs each."""
    named = [str(gpu.get("name")) for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else []
    counted = {name: named.count(name) for name in dict.fromkeys(named)}
    return ", ".join(f"{count} × {name}" if count > 1 else name for name, count in counted.items())


def _damaged(run: Run, error: Exception) -> RunRecord:
    message = one_line(f"{type(error).__name__}: {error}", LETTERS)
    return safe(
        RunRecord(
            run_id=run.run_id, command=run.command, host=run.host, started_at=run.started_at, ended_at=run.started_at,
            source=run.source or Source.MEASURED, exit_code=3, gpuprep_version="",
            error=f"{run.host}: the record of run {run.run_id} cannot be read: {message}",
            verdict=Verdict(Status.UNKNOWN, "UNKNOWN", ()),
        )
    )  # fmt: skip


# ---------------------------------------------------------------- the board


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
    """An answer of the store that is reused for some seconds. Requests that come while it is read wait for it."""

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
        """All hosts. Raises StoreError, like every method that reads the store."""
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
        for run in self.store.newest_of_hosts(ABOUT_HOSTS):
            host = canonical.get(run.host, run.host)
            names[host].add(run.host)
            if host not in newest or (newest[host].started_at, newest[host].run_id) < (run.started_at, run.run_id):
                newest[host] = run
        runs = {run.run_id: (run, tuple(sorted(names[host] - {run.host}))) for host, run in newest.items()}
        known = {
            run_id: host for run_id, host in self._hosts.items() if run_id in runs and host.others == runs[run_id][1]
        }
        for run_id, text in self.store.texts([run_id for run_id in runs if run_id not in known]):
            known[run_id] = host_of(runs[run_id][0], text, runs[run_id][1])
        self._hosts = known
        return Fleet(tuple(sorted(known.values(), key=lambda host: (host.rank, host.name))), read_at)

    def _read_nights(self) -> Nights:
        read_at, days = now(), last_nights()
        of_hour = lru_cache(maxsize=None)(lambda hour: trend.night(f"{hour}:00:00+00:00"))
        last: dict[tuple[date, str], tuple[str, str]] = {}
        for host, started_at, verdict in self.store.since(ABOUT_HOSTS, beginning(days[0])):
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
            except GpuprepError as error:  # the pages report the same error while it lasts
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
