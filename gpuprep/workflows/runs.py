"""One run on one host while it happens, and several of them side by side."""

from __future__ import annotations

import functools
import getpass
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuprep import __version__, errorlog
from gpuprep.desired.loading import Profile
from gpuprep.desired.probes import Kind
from gpuprep.errors import GpuprepError, HostError, Interrupted, StoreError
from gpuprep.paths import private_folder, private_text, state_dir
from gpuprep.provisioning.ansible_events import Progress
from gpuprep.records import (
    DriftFacts,
    Finding,
    NightlyFacts,
    Plan,
    PlaybookResult,
    ProbeResult,
    ProfileRef,
    RunRecord,
    Snapshot,
    Source,
    Verdict,
    to_json,
)
from gpuprep.records.baseline import Baseline, Measured
from gpuprep.records.ids import new_run_id, now
from gpuprep.remote import Host, HostLock, LockOwner, Target
from gpuprep.settings import Builds
from gpuprep.workflows import remaining

if TYPE_CHECKING:
    from gpuprep.store import Store

UNEXPECTED = 3


@dataclass(frozen=True)
class Options:
    """What the user chose for a run. `only` and `skip` are names of steps, `probes` of probes (none: all of them)."""

    check: bool = False
    diff: bool = False
    deep: bool = False
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()
    quick: bool = False
    reboot: bool = True
    validate: bool = True
    probe: str = "none"  # drift: "none" | "quick"
    fix: bool = False  # drift: put back what can be put back
    accept_new_host_key: bool = False
    become_password: str | None = field(default=None, repr=False)
    mirrors: Mapping[str, str] = field(default_factory=dict)
    builds: Builds = field(default_factory=Builds)  # whose finished builds go to other hosts
    verbosity: int = 0

    def as_recorded(self) -> dict[str, Any]:
        """For the record: what was chosen, and never the password."""
        return {
            "check": self.check,
            "diff": self.diff,
            "deep": self.deep,
            "only": list(self.only),
            "skip": list(self.skip),
            "probes": list(self.probes),
            "quick": self.quick,
            "reboot": self.reboot,
            "validate": self.validate,
            "probe": self.probe,
            "fix": self.fix,
        }


@dataclass(frozen=True)
class Line:
    """What a run reports to and asks of its surroundings."""

    progress: Callable[[str, Progress], None]  # host, what happened
    store: Store | None
    cancelled: Callable[[], bool]
    estimates: bool = False  # whether somebody sees how long a run is still going to take


class Run:
    """The record of one run, filled in stage by stage."""

    def __init__(self, command: str, target: Target, profile: Profile | None, options: Options, line: Line) -> None:
        self.command = command
        self.target = target
        self._profile = profile
        self.options = options
        self.cancelled = line.cancelled
        self._line = line
        self._began = time.monotonic()
        self.started_at = now()
        self.run_id = new_run_id()
        self.log_dir: Path = state_dir() / "runs" / self.run_id
        self.exit_code = 0
        self.error: str | None = None
        self.before: Snapshot | None = None
        self.after: Snapshot | None = None
        self.plan: Plan | None = None
        self.playbook: PlaybookResult | None = None
        self.measurements: tuple[ProbeResult, ...] = ()
        self.baseline: Measured = {}  # figures that become the host's, unless it has them
        self.findings: tuple[Finding, ...] = ()
        self.verdict: Verdict | None = None
        self.drift: DriftFacts | None = None
        self.nightly: NightlyFacts | None = None

    @property
    def profile(self) -> Profile:
        """Only of a command that takes one."""
        assert self._profile is not None
        return self._profile

    def record(self, body: Callable[[Run], None], *, keep: bool = True) -> RunRecord:
        """Run `body`, turn its errors into the record's, store the record and return it.

        An error inside gpuprep is one of this run, too: what one host said must not end the runs of the others.
        """
        try:
            self.stop_if_cancelled()
            body(self)
        except GpuprepError as error:
            self._fail(error.explain(), error.exit_code)
        except Exception as error:  # noqa: BLE001  in full in its log, and in short in the record
            self._fail(unexpected(error, self.target), UNEXPECTED)
        except BaseException as error:  # somebody ends the program
            self._fail(f"ended by {type(error).__name__}", UNEXPECTED)
            self._store(keep)
            raise
        return self._store(keep)

    def _fail(self, error: str, exit_code: int) -> None:
        self.error, self.exit_code = error, exit_code

    def _store(self, keep: bool) -> RunRecord:
        record = self.as_record()
        if not keep or self._line.store is None:
            return record
        try:
            self._write(record)
            self._line.store.append(record, self.baseline)
        except StoreError as error:
            self._fail_too(error.explain(), error.exit_code)
            return self.as_record()
        except Exception as error:  # noqa: BLE001  what it holds can be neither written nor stored, so it is not shown
            self._fail_too(unexpected(error, self.target), UNEXPECTED)
            self._drop_evidence()
            return self._store_error()
        return record

    def _write(self, record: RunRecord) -> None:
        """A copy in plain sight. Raises StoreError where it cannot be written: a full disk, for example."""
        try:
            private_folder(self.log_dir)
            private_text(self.log_dir / "record.json", to_json(record, indent=2) + "\n")
        except OSError as error:
            raise StoreError(f"{self.log_dir} cannot be written: {error.strerror}", "see XDG_STATE_HOME") from error

    def _fail_too(self, error: str, exit_code: int) -> None:
        copy = self.log_dir / "record.json"
        kept = f"; its record is {copy}" if copy.exists() else ""
        said = [self.error, error, f"this run is not in the store{kept}"]
        self._fail("\n".join(filter(None, said)), max(self.exit_code, exit_code))

    def _drop_evidence(self) -> None:
        self.before = self.after = self.plan = self.playbook = self.verdict = self.drift = self.nightly = None
        self.measurements, self.findings, self.baseline = (), (), {}

    def _store_error(self) -> RunRecord:
        """That it failed is stored, without what it failed for."""
        record = self.as_record()
        assert self._line.store is not None
        try:
            self._write(record)
            self._line.store.append(record)
        except StoreError as error:
            self._fail_too(error.explain(), error.exit_code)
            return self.as_record()
        return record

    def as_record(self) -> RunRecord:
        seen = self.after or self.before
        simulated = Source.SIMULATED if self.target.simulated else Source.MEASURED
        return RunRecord(
            run_id=self.run_id,
            command=self.command,
            host=self.target.name,
            started_at=self.started_at,
            ended_at=now(),
            source=seen.source if seen else simulated,
            exit_code=self.exit_code,
            gpuprep_version=__version__,
            profile=ProfileRef(self.profile.name, self.profile.path, self.profile.sha256) if self._profile else None,
            plan=self.plan,
            playbook=self.playbook,
            before=self.before,
            after=self.after,
            measurements=self.measurements,
            verdict=self.verdict,
            findings=self.findings,
            error=self.error,
            options=self.options.as_recorded(),
            drift=self.drift,
            nightly=self.nightly,
        )

    @contextmanager
    def connect(self) -> Iterator[Host]:
        """The host. Reaching it and becoming root is part of its first command: a look costs one round trip."""
        if self.target.refused:
            raise HostError(self.target.refused, "correct this host in the inventory", where=self.target.name)
        self.stage("connecting")
        with Host(
            self.target,
            become_password=self.options.become_password,
            accept_new_host_key=self.options.accept_new_host_key,
            stopped=self.cancelled,
        ) as host:
            yield host

    def certified(self) -> RunRecord | None:
        """The run whose facts are "what we certified": `Store.certified`."""
        return self._line.store.certified(self.target.name) if self._line.store is not None else None

    def previous(self) -> RunRecord | None:
        """The newest drift check of this host that came to a verdict."""
        return self._line.store.newest(self.target.name, "drift") if self._line.store is not None else None

    def baseline_of_host(self) -> Baseline:
        """All figures that this host's measurements are compared with, under whatever key."""
        return self._line.store.baseline_of(self.target.name) if self._line.store is not None else {}

    def lock(self, host: Host) -> HostLock:
        owner = LockOwner(getpass.getuser(), socket.gethostname(), self.run_id, self.started_at)
        return host.lock(owner)

    def past(self, measured: Measured) -> Baseline:
        """What the host measured when it first passed, under the keys of what it measures now."""
        store = self._line.store
        return store.baseline(self.target.name, list(measured)) if store is not None and measured else {}

    def stage(self, what: str, probe: str = "") -> None:
        self.tell(Progress("stage", "", probe, what, time.monotonic() - self._began))

    def expect(self, roles: Sequence[str], kinds: Sequence[Kind]) -> None:
        """Tell which steps this run is going to have, with their times in earlier runs."""
        if not self._line.estimates or not (roles or kinds):
            return
        played = [remaining.PREFLIGHT, *map(remaining.step_of, roles)] if roles else []
        names = [remaining.FACTS, *dict.fromkeys(played), *(kind.name for kind in kinds)]
        steps = remaining.expected(names, *self._earlier())
        self.tell(Progress("steps", "", "", "", time.monotonic() - self._began, steps))

    def _earlier(self) -> tuple[list[RunRecord], list[RunRecord]]:
        """Runs of the same kind that ended well: of this host, and of its profile on the same system."""
        seen = self.after or self.before
        if self._line.store is None or seen is None:
            return [], []
        ask = functools.partial(self._line.store.ended_well, self.command, seen.source)
        try:
            found = [ask(host=self.target.name), ask(profile=self.profile.name)]
        except StoreError:  # the store's own errors are told where the record is kept
            return [], []
        options = self.options.as_recorded()
        ours, alike = ([run for run in runs if remaining.same_kind(run, options)] for runs in found)
        return ours, [run for run in alike if (then := run.after or run.before) and then.os == seen.os]

    def tell(self, progress: Progress) -> None:
        self._line.progress(self.target.name, progress)

    def stop_if_cancelled(self) -> None:
        if self.cancelled():
            raise Interrupted(f"{self.target.name}: interrupted", "run the same command again")


def unexpected(error: Exception, target: Target) -> str:
    """The record's error of an error inside gpuprep; the whole of it goes to a log."""
    text = errorlog.whole(error, f"host: {target.name}")
    try:
        return f"{errorlog.named(error)}\nwhole log: {errorlog.keep(text)}"
    except OSError as unwritable:
        return f"{errorlog.named(error)}\nits log cannot be written: {unwritable.strerror}"


def _failed(command: str, target: Target, error: Exception) -> RunRecord:
    """Of a run that broke before it had a record of its own, or in making it."""
    moment = now()
    return RunRecord(
        new_run_id(), command, target.name, moment, moment,
        Source.SIMULATED if target.simulated else Source.MEASURED, UNEXPECTED, __version__,
        error=unexpected(error, target),
    )  # fmt: skip


def on_each(
    targets: Sequence[Target],
    work: Callable[[Target], RunRecord],
    *,
    forks: int,
    cancel: threading.Event,
    interrupted: Callable[[], None],
    command: str = "",
) -> list[RunRecord]:
    """One record per target, `forks` hosts at a time, in the order of `targets`.

    Ctrl-C sets `cancel` and calls `interrupted`; hosts at work then end their run and hosts that wait do not
    begin. An unexpected error of one host is in its record, of `command`; what ends the program is raised after the
    others have ended.
    """

    def safely(target: Target) -> RunRecord:
        try:
            return work(target)
        except Exception as error:  # noqa: BLE001  that host's own, in full in its log
            return _failed(command, target, error)

    with ThreadPoolExecutor(max_workers=max(1, min(forks, len(targets)))) as pool:
        futures: list[Future[RunRecord]] = [pool.submit(safely, target) for target in targets]
        pending = set(futures)
        while pending:
            try:
                pending = wait(pending, return_when=FIRST_COMPLETED).not_done
            except KeyboardInterrupt:
                cancel.set()
                interrupted()
        return [future.result() for future in futures]
