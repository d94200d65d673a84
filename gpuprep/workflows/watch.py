"""The GPUs of several hosts as they are now, read again and again: what `gpuprep watch` shows. Changes nothing.

    with Watching(targets, held, options) as watching:
        watching.hosts()         # what is known now, at any time; the worst first

One thread per host reads from the agent over one connection. A host that fails is UNKNOWN, with the reason, and is
tried again. No lock is taken, so a night check or a run on the host can go on at the same time.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from gpuprep.catalogue.xids import xid
from gpuprep.errors import GpuprepError
from gpuprep.performance import clock_events
from gpuprep.records import ClockPair, Missing, RunRecord, Source, Xid
from gpuprep.records.live import LiveGpu, LiveSample
from gpuprep.remote import Host, Target
from gpuprep.remote.live import Live
from gpuprep.untrusted.plaintext import one_line

# From worst to best. ERROR: an error that the GPU or the driver counted. UNKNOWN: it could not be read. SLOW: heat or
# the power supply lowers the clocks. CHANGED: set to something else than was certified.
STATES = ("ERROR", "UNKNOWN", "SLOW", "CHANGED", "busy", "idle")
SLOWED_BY = (
    clock_events.HW_THERMAL | clock_events.POWER_BRAKE | clock_events.HW_SLOWDOWN | clock_events.SW_THERMAL
)  # fmt: skip
RETRY_SECONDS = (2.0, 5.0, 15.0, 30.0)  # after the first failure, the second ...
STALE_SECONDS = 8.0  # beyond the interval: figures of a host that is silent for longer are not shown as of now
CLOSE_SECONDS = 3.0  # for all connections together, when the user ends the view
WATTS = 1.0  # by which a limit may differ from what was certified
MOST_TOLD = 200


@dataclass(frozen=True)
class Held:
    """Settings of a GPU in the certified run. None: not in that record."""

    run_id: str
    graphics_mhz: int | None = None
    memory_mhz: int | None = None
    watts: float | None = None


@dataclass(frozen=True)
class Seen:
    """One GPU as it is now: readings, state and notes."""

    state: str
    gpu: LiveGpu
    held: Held | None
    notes: tuple[str, ...]  # errors, what is not as certified, what lowers the clocks


@dataclass(frozen=True)
class Watched:
    """One host as it is known now."""

    name: str
    state: str
    simulated: bool = False
    error: str = ""  # why it is UNKNOWN
    sample: LiveSample | None = None
    gpus: tuple[Seen, ...] = ()
    notes: tuple[str, ...] = ()  # of the host as a whole
    as_root: bool = True


def held(record: RunRecord | None) -> dict[str, Held]:
    """UUID ► the settings of that GPU in the certified run; {} without such a run."""
    snapshot = (record.after or record.before) if record else None
    if record is None or snapshot is None or isinstance(snapshot.gpus, Missing):
        return {}
    locks = {lock.uuid: lock for lock in snapshot.locked_clocks}
    by_uuid = {}
    for gpu in snapshot.gpus:
        clocks = gpu.application_clocks if isinstance(gpu.application_clocks, ClockPair) else None
        lock = locks.get(gpu.uuid)
        watts = gpu.power.current_watts
        by_uuid[gpu.uuid] = Held(
            record.run_id,
            lock.graphics_mhz if lock else clocks.graphics_mhz if clocks else None,
            (lock.memory_mhz if lock else None) or (clocks.memory_mhz if clocks else None),
            None if isinstance(watts, Missing) else watts,
        )
    return by_uuid


def seen(gpu: LiveGpu, certified: Held | None, xids: Sequence[Xid]) -> Seen:
    """Pure: the state of one GPU. `xids` are those of this GPU."""
    errors = _errors(gpu, xids)
    changed = _changed(gpu, certified)
    reasons = 0 if isinstance(gpu.event_reasons, Missing) else int(gpu.event_reasons)
    slowed = tuple(event.name for event in clock_events.named(reasons) if event.bit & SLOWED_BY)
    other = tuple(
        event.name for event in clock_events.named(reasons) if not event.bit & (SLOWED_BY | clock_events.IDLE)
    )
    if any(grave for _, grave in errors):
        state = "ERROR"
    elif isinstance(gpu.graphics_clock_mhz, Missing) and isinstance(gpu.power_watts, Missing):
        state = "UNKNOWN"
    elif slowed:
        state = "SLOW"
    elif changed:
        state = "CHANGED"
    else:
        state = "busy" if _works(gpu) else "idle"
    return Seen(state, gpu, certified, (*(words for words, _ in errors), *changed, *slowed, *other))


def _works(gpu: LiveGpu) -> bool:
    rates = (gpu.gpu_utilization_percent, gpu.encoder_utilization_percent, gpu.decoder_utilization_percent)
    return any(not isinstance(rate, Missing) and rate > 0 for rate in rates)


def _errors(gpu: LiveGpu, xids: Sequence[Xid]) -> list[tuple[str, bool]]:
    """(words, whether it is severe)."""
    errors = []
    readings = (gpu.graphics_clock_mhz, gpu.power_watts)
    if any(isinstance(reading, Missing) and reading.reason == "gpu_is_lost" for reading in readings):
        errors.append(("the GPU is lost", True))
    messages = {event.code: event.message for event in xids}  # the last one of each code
    for code, count in sorted(Counter(event.code for event in xids).items()):
        times = f" ×{count}" if count > 1 else ""
        meaning = xid(code, messages[code])
        errors.append((f"Xid {code}{times}: {meaning.what}", meaning.gravity == "fail"))
    if not isinstance(gpu.ecc_uncorrected, Missing) and gpu.ecc_uncorrected > 0:
        errors.append((f"{gpu.ecc_uncorrected} uncorrected ECC errors", True))
    if not isinstance(gpu.ecc_corrected, Missing) and gpu.ecc_corrected > 0:
        errors.append((f"{gpu.ecc_corrected} corrected ECC errors", False))
    return sorted(errors, key=lambda one: not one[1])


def _changed(gpu: LiveGpu, certified: Held | None) -> tuple[str, ...]:
    if certified is None:
        return ()
    changes = []
    clocks = gpu.application_clocks
    if isinstance(clocks, ClockPair):
        for what, now, was in (
            ("SM clock", clocks.graphics_mhz, certified.graphics_mhz),
            ("memory clock", clocks.memory_mhz, certified.memory_mhz),
        ):
            if was is not None and now != was:
                changes.append(f"{what} set to {now} MHz, certified {was}")
    limit = gpu.power_limit_watts
    if certified.watts is not None and not isinstance(limit, Missing) and abs(limit - certified.watts) > WATTS:
        changes.append(f"power limit {limit:g} W, certified {certified.watts:g}")
    return tuple(changes)


def watched(name: str, sample: LiveSample, certified: Mapping[str, Held], *, as_root: bool = True) -> Watched:
    """Pure: a host from the answer of its agent."""
    simulated = sample.source is Source.SIMULATED
    xids = () if isinstance(sample.xids, Missing) else sample.xids
    notes = []
    if isinstance(sample.xids, Missing):
        notes.append(f"Xids are not known: {one_line(sample.xids.detail or sample.xids.reason, MOST_TOLD)}")
    if isinstance(sample.gpus, Missing):
        why = one_line(sample.gpus.detail or sample.gpus.reason, MOST_TOLD)
        return Watched(name, "UNKNOWN", simulated, f"no GPU can be read: {why}", sample, (), tuple(notes), as_root)
    gpus = tuple(
        seen(gpu, certified.get(gpu.uuid), [xid for xid in xids if xid.pci_address == gpu.pci_address])
        for gpu in sample.gpus
    )
    addresses = {gpu.pci_address for gpu in sample.gpus}
    elsewhere = sorted({xid.code for xid in xids if xid.pci_address not in addresses})
    notes += [f"Xid {code} of a GPU that is not there: {xid(code).what}" for code in elsewhere]
    lacking = len(set(certified) - {gpu.uuid for gpu in sample.gpus})
    if lacking:
        notes.append(f"{lacking} of {len(certified)} certified GPUs are not there")
    states = [gpu.state for gpu in gpus] or ["UNKNOWN"]
    if elsewhere or lacking:
        states.append("ERROR")
    state = min(states, key=STATES.index)
    error = "" if gpus else "the driver knows no GPU"
    return Watched(name, state, simulated, error, sample, gpus, tuple(notes), as_root)


def order(hosts: Sequence[Watched]) -> list[Watched]:
    """The worst first, then by name."""
    return sorted(hosts, key=lambda host: (STATES.index(host.state), host.name))


@dataclass
class _Line:
    """The last answer of a host, and the state of its thread."""

    target: Target
    now: Watched
    asked: bool = False  # it answered or failed at least once
    failures: int = 0  # one after the other
    answered: float = 0.0  # time.monotonic() of the last answer

    def present(self, patience: float) -> Watched:
        """The host's last answer; UNKNOWN if the host has been silent for more than `patience` seconds."""
        silent = time.monotonic() - self.answered
        if not self.now.gpus or silent <= patience:
            return self.now
        why = f"no answer for {silent:.0f} s; it was {self.now.state}"
        return dataclasses.replace(self.now, state="UNKNOWN", error=why, gpus=(), notes=())

    held: Mapping[str, Held] = field(default_factory=dict)


class Watching:
    """Threads that read the hosts; `hosts()` returns the newest readings. The end of `with` closes the connections."""

    def __init__(
        self,
        targets: Sequence[Target],
        certified: Mapping[str, Mapping[str, Held]],
        *,
        interval: float,
        forks: int,
        become_password: str | None = None,
        accept_new_host_key: bool = False,
    ) -> None:
        self._lines = [
            _Line(target, Watched(target.name, "UNKNOWN", error="connecting"), held=certified.get(target.name, {}))
            for target in targets
        ]
        self._interval = interval
        self._password, self._accept = become_password, accept_new_host_key
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._connecting = threading.BoundedSemaphore(forks)
        self._threads = [
            threading.Thread(target=self._watch, args=(line,), name=f"watch {line.target.name}", daemon=True)
            for line in self._lines
        ]

    def __enter__(self) -> Watching:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The threads close their connections; one that hangs ends with this process, and its agent with it."""
        self._stop.set()
        for thread in self._threads:
            thread.join(CLOSE_SECONDS / len(self._threads))

    def hosts(self) -> list[Watched]:
        with self._changed:
            return order([line.present(self._interval + STALE_SECONDS) for line in self._lines])

    def wait(self, seconds: float) -> None:
        """Wait until a reading changed, at most `seconds`."""
        with self._changed:
            self._changed.wait(seconds)

    def wait_for_each(self) -> None:
        """Wait until every host has answered or failed once."""
        with self._changed:
            while not all(line.asked for line in self._lines):
                self._changed.wait(0.5)  # with a limit: only so Ctrl-C comes through

    def _watch(self, line: _Line) -> None:
        while not self._stop.is_set():
            try:
                self._follow(line)
            except GpuprepError as error:
                self._know(line, self._failed(line, one_line(error.what, MOST_TOLD)))
            except Exception as error:  # noqa: BLE001  whatever it is, it is this host's UNKNOWN
                self._know(line, self._failed(line, f"{type(error).__name__}: {one_line(str(error), MOST_TOLD)}"))
            self._stop.wait(RETRY_SECONDS[min(line.failures, len(RETRY_SECONDS) - 1)])
            line.failures += 1

    def _failed(self, line: _Line, why: str) -> Watched:
        name = line.target.name
        return Watched(name, "UNKNOWN", line.now.simulated or line.target.simulated, why.removeprefix(f"{name}: "))

    def _follow(self, line: _Line) -> None:
        if line.target.refused:
            raise GpuprepError(line.target.refused)
        host = Host(
            line.target,
            become_password=self._password,
            accept_new_host_key=self._accept,
            stopped=self._stop.is_set,
        )
        with host:
            with self._connecting:
                if self._stop.is_set():
                    return
                live = Live(host)
            with live:
                while not self._stop.is_set():
                    sample = live.sample()
                    line.failures = 0
                    made = watched(line.target.name, sample, line.held, as_root=live.as_root)
                    self._know(line, dataclasses.replace(made, simulated=made.simulated or line.target.simulated))
                    self._stop.wait(self._interval)

    def _know(self, line: _Line, now: Watched) -> None:
        with self._changed:
            line.now, line.asked, line.answered = now, True, time.monotonic()
            self._changed.notify_all()
