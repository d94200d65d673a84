"""One running command on one host, and several hosts at the same time."""

from __future__ import annotations

import functools
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gpuprep import __version__, checks, errorlog
from gpuprep.checks.drift import samehost
from gpuprep.checks.drift.samehost import Identity
from gpuprep.checks.judgement import Judgement, Terms
from gpuprep.desired.profile import Profile
from gpuprep.desired.state import Wanted
from gpuprep.errors import GpuprepError, HostError, HostLocked, Interrupted, StoreError
from gpuprep.paths import private_folder, private_text, state_dir, user_name
from gpuprep.provisioning.ansible_events import Progress
from gpuprep.records import (
    DecodeError,
    DriftFacts,
    Finding,
    HistoryFacts,
    Missing,
    NightlyFacts,
    Plan,
    PlaybookResult,
    ProbeResult,
    ProfileRef,
    RunRecord,
    Snapshot,
    Source,
    from_json_value,
    to_json,
    to_json_value,
)
from gpuprep.records.baseline import Baseline, Measured
from gpuprep.records.evidence.shared import Probe
from gpuprep.records.findings import need_reboot
from gpuprep.records.ids import new_run_id, now
from gpuprep.records.serialize import plain_json
from gpuprep.remote import Host, HostLock, LockOwner, Target, agent_client, watch
from gpuprep.remote.probereports import Doing, SoFar
from gpuprep.settings import Builds
from gpuprep.workflows import effort, remaining, storeofruns
from gpuprep.workflows.effort import Effort
from gpuprep.workflows.pool import Pool

if TYPE_CHECKING:
    from gpuprep.store import Store

UNEXPECTED = 3
# After Ctrl-C, the longest wait for hosts whose run has not ended: 2.5 s for what runs on a host (remote/limits.py),
# the rest for writing records.
ENDING_SECONDS = 3.0
STORING_SECONDS = 0.5  # longest wait for a record that another thread is writing, after the wait for its run

REFUSE, WAIT, GO = "refuse", "wait", "go"
WAIT_MINUTES = 60
DISTURBING = ("provision", "tune", "plan")  # and drift --fix: their facts say who uses the host

_Run = TypeVar("_Run", bound="Run")


@dataclass(frozen=True)
class Options:
    """The user's options of a run. `only` and `skip` are names of steps, `probes` names of probes (empty: all)."""

    check: bool = False
    diff: bool = False
    deep: bool = False
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()
    quick: bool = False
    first_failure: bool = False  # validate: end at the first FAIL
    reboot: bool = True
    validate: bool = True
    probe: str = "none"  # drift: "none" | "quick"
    fix: bool = False  # drift: put back what can be put back
    now: bool = False  # drift: the host first checks itself
    when_busy: str = REFUSE  # before a restart or a change of GPUs that somebody uses: REFUSE, WAIT or GO
    wait_minutes: int = WAIT_MINUTES
    accept_new_host_key: bool = False
    become_password: str | None = field(default=None, repr=False)
    mirrors: Mapping[str, str] = field(default_factory=dict)
    builds: Builds = field(default_factory=Builds)  # whose finished builds go to other hosts
    verbosity: int = 0
    asked: Mapping[str, Any] = field(default_factory=dict)  # as typed: inventory, profile, key ... No password.

    @property
    def whole(self) -> bool:
        """Whether the whole machine is judged: neither --only nor --skip leaves a part out."""
        return not self.only and not self.skip

    @property
    def in_role(self) -> str:
        """What a role does that is about to restart a busy host: it has waited, and cannot wait again."""
        return GO if self.when_busy == GO else REFUSE

    def as_recorded(self) -> dict[str, Any]:
        """The chosen options for the record, without the password."""
        return {
            "check": self.check,
            "diff": self.diff,
            "deep": self.deep,
            "only": list(self.only),
            "skip": list(self.skip),
            "probes": list(self.probes),
            "quick": self.quick,
            "first_failure": self.first_failure,
            "reboot": self.reboot,
            "validate": self.validate,
            "probe": self.probe,
            "fix": self.fix,
            "when_busy": self.when_busy,
            "wait_minutes": self.wait_minutes,
            **({"asked": dict(self.asked)} if self.asked else {}),
        }


@dataclass(frozen=True)
class RunContext:
    """What a run needs from its caller: progress, store, cancellation."""

    progress: Callable[[str, Progress], None]  # host, what happened
    store: Store | None
    cancelled: Callable[[], bool]
    estimates: bool = False  # whether the time left of a run is shown
    batch_id: str = ""  # the same for all hosts of one command; "": a command on one host
    past: Store | None = None  # of a command that stores nothing: where earlier runs are, for an estimate
    # Active runs by host, so that a hung one can be aborted.
    runs: dict[str, Run] = field(default_factory=dict)


@dataclass(frozen=True)
class Begun:
    """A probe that runs, and the measurements that it has reported so far."""

    kind: Probe
    source: Source
    so_far: SoFar = field(default_factory=SoFar)

    def ended(self, why: Missing) -> ProbeResult:
        """The result of the probe if it gave no answer: `why`, and what it had measured as `partial`."""
        result = ProbeResult(self.kind.name, self.source, why, 0.0)
        values = self.so_far.values()
        try:
            return from_json_value(ProbeResult, {**to_json_value(result), "partial": values}) if values else result
        except DecodeError:  # a host may send any value
            return result


@dataclass
class Draft:
    """What the record of a run holds so far, so that a run that fails keeps its evidence.

    Stages only write to it. They pass data to the next stage as values of their own types, never through the draft.
    """

    before: Snapshot | None = None
    after: Snapshot | None = None
    plan: Plan | None = None
    playbook: PlaybookResult | None = None
    measurements: tuple[ProbeResult, ...] = ()
    begun: dict[str, Begun] = field(default_factory=dict)  # the probes at work, by name
    findings: tuple[Finding, ...] = ()  # what the plan comes from; those of a judgement take their place
    judgement: Judgement | None = None
    drift: DriftFacts | None = None
    nightly: NightlyFacts | None = None
    history: HistoryFacts | None = None
    reboot_needed: bool = False

    def all_measured(self, error: str | None = None) -> tuple[ProbeResult, ...]:
        """All results, also of probes that still ran and that `error` ended; None: the user ended them."""
        have = {result.probe for result in self.measurements}
        at_work = [begun for name, begun in list(self.begun.items()) if name not in have]
        failed = None if error is None else Missing("command_failed", error)
        ended = (begun.ended(failed or Missing("interrupted", begun.kind.what)) for begun in at_work)
        return (*self.measurements, *ended)


class Run:
    """One run of a command on one host. `draft` becomes its record."""

    def __init__(
        self, command: str, target: Target, options: Options, context: RunContext, profile: ProfileRef | None = None
    ) -> None:
        self.command = command
        self.target = target
        self.options = options
        self.cancelled = context.cancelled
        self._broken_off = threading.Event()
        self._context = context
        self._profile = profile
        self.began = time.monotonic()
        self.started_at = now()
        self.run_id = new_run_id()
        self.log_dir: Path = state_dir() / "runs" / self.run_id
        self.draft = Draft()
        self.baseline: Measured = {}  # figures that become the host's, unless it has them
        self.host: Host | None = None  # once it is connected to
        self._identity = Identity()  # what the host last reported of itself
        self.keeps = True  # in the store; a body may decide otherwise
        self._keeping = threading.Lock()
        self._kept: RunRecord | None = None  # what was stored: there is one record of a run
        context.runs[target.name] = self

    def record(self: _Run, body: Callable[[_Run], None], *, keep: bool = True) -> RunRecord:
        """Run `body`, turn its errors into the record's, store the record and return it.

        An error inside gpuprep also becomes the record's error: the answer of one host must not end the runs of others.
        """
        self.keeps = keep
        if keep and self._context.store is not None:
            with storeofruns.left(self._context.store, self.as_record(storeofruns.KILLED, Interrupted.exit_code)):
                return self._recorded(body)
        return self._recorded(body)

    def _recorded(self: _Run, body: Callable[[_Run], None]) -> RunRecord:
        try:
            self.stop_if_cancelled()
            body(self)
        except GpuprepError as error:
            made = self.as_record(error.explain(), error.exit_code)
        except Exception as error:  # noqa: BLE001  in full in its log, and in short in the record
            made = self.as_record(unexpected(error, self.target), UNEXPECTED)
        except BaseException as error:  # somebody ends the program
            self._stored(self.as_record(f"ended by {type(error).__name__}", UNEXPECTED))
            raise
        else:
            made = self.as_record()
        return self._stored(made)

    def abandon(self) -> RunRecord:
        """Store and return the record, as far as it is known, of a run that the user stopped and that does not end."""
        error = watch.interrupted(
            self.target.name, "; what ran there did not end in time; gpuprep no longer waits for it"
        )
        return self._stored(self.as_record(error.explain(), error.exit_code), STORING_SECONDS)

    def _stored(self, record: RunRecord, seconds: float = -1) -> RunRecord:
        """As _store, but only the first record of a run is stored, and then returned again.

        `seconds`: how long to wait while another thread stores it.
        """
        if not self._keeping.acquire(timeout=seconds):
            return record
        try:
            if self._kept is None:
                self._kept = self._store(record)
            return self._kept
        finally:
            self._keeping.release()

    def _store(self, record: RunRecord) -> RunRecord:
        """Store the record and return it as stored. If it cannot be written, the returned record has that error."""
        store = self._context.store
        if not self.keeps or store is None:
            return record
        try:
            self._append(store, record, self.baseline)
        except StoreError as error:
            return self._not_stored(record, error.explain(), error.exit_code)
        except Exception as error:  # noqa: BLE001  something that it holds
            self.draft = Draft()
            record = self._not_stored(record, unexpected(error, self.target), UNEXPECTED)
            try:
                self._append(store, record, {})
            except StoreError as again:
                return self._not_stored(record, again.explain(), again.exit_code)
        return record

    def _append(self, store: Store, record: RunRecord, baseline: Measured) -> None:
        """Append the record to the store, and write a copy to the log folder. Raises StoreError (disk full, say).

        Each answer of a host is within the limits; all answers together may be more than a record can hold.
        """
        text = to_json(record)
        try:
            plain_json(text)
        except DecodeError as error:
            raise StoreError(f"{self.target.name} sent more than a record can hold: {error}") from error
        try:
            private_folder(self.log_dir)
            private_text(self.log_dir / "record.json", text + "\n")
        except OSError as error:
            raise StoreError(f"{self.log_dir} cannot be written: {error.strerror}", "see XDG_STATE_HOME") from error
        store.append(record, baseline)

    def _not_stored(self, record: RunRecord, error: str, exit_code: int) -> RunRecord:
        copy = self.log_dir / "record.json"
        kept = f"; its record is {copy}" if copy.exists() else ""
        lines = [record.error, error, f"this run is not in the store{kept}"]
        return self.as_record("\n".join(filter(None, lines)), max(record.exit_code, exit_code))

    def as_record(self, error: str | None = None, exit_code: int | None = None) -> RunRecord:
        """The draft as a record. `exit_code` is that of an error; None: the exit code of the judgement."""
        draft, judged = self.draft, self.draft.judgement
        seen = draft.after or draft.before
        simulated = Source.SIMULATED if self.target.simulated else Source.MEASURED
        findings = judged.findings if judged else draft.findings
        if exit_code is None:
            exit_code = judged.exit_code if judged else 0
        return RunRecord(
            run_id=self.run_id,
            command=self.command,
            host=self.target.name,
            started_at=self.started_at,
            ended_at=now(),
            source=seen.source if seen else simulated,
            exit_code=exit_code,
            gpuprep_version=__version__,
            profile=self._profile,
            plan=draft.plan,
            playbook=draft.playbook,
            before=draft.before,
            after=draft.after,
            measurements=draft.all_measured(None if exit_code == Interrupted.exit_code else _first_line(error)),
            verdict=judged.verdict if judged else None,
            findings=findings,
            error=error,
            options=self.options.as_recorded(),
            drift=draft.drift,
            nightly=draft.nightly,
            history=draft.history,
            batch_id=self._context.batch_id,
            reboot_needed=draft.reboot_needed or need_reboot(findings),
        )

    @contextmanager
    def connect(self) -> Iterator[Host]:
        """The host. The first command connects and becomes root, so reading the facts costs one round trip."""
        if self.target.refused:
            raise HostError(self.target.refused, "correct this host in the inventory", where=self.target.name)
        self.stage("connecting")
        with Host(
            self.target,
            become_password=self.options.become_password,
            accept_new_host_key=self.options.accept_new_host_key,
            stopped=lambda: self.cancelled() or self._broken_off.is_set(),
        ) as host:
            self.host = host
            yield host

    def know(self, host: Host, facts: Snapshot) -> None:
        """Tell the store which host this is. From then on the store answers for all names of the host."""
        now = samehost.of(facts, host.host_key(), local=self.target.local)
        if self._context.store is None or isinstance(facts.identity, Missing) or now == self._identity:
            return
        self._identity = now
        known = self._context.store.know(self.target.name, now, self.started_at)
        for note in known.notes:
            self.stage(note)
        if known.others or known.notes:
            self.note(*known.notes, also_called=known.others)

    def note(self, *notes: str, **changed: Any) -> None:
        """Add notes on the host's history that the user must read; `changed` are fields of HistoryFacts."""
        facts = self.draft.history or HistoryFacts()
        self.draft.history = replace(facts, notes=(*facts.notes, *notes), **changed)

    def chosen(self) -> str | None:
        """The id of the run that `baseline set` chose; None if it chose no run."""
        return self._context.store.chosen(self.target.name) if self._context.store is not None else None

    @property
    def is_one_of_several(self) -> bool:
        """Whether the command runs on several hosts, which are shown as a table."""
        return bool(self._context.batch_id)

    @property
    def is_stored(self) -> bool:
        return self._context.store is not None

    def certified(self) -> RunRecord | None:
        """The run whose facts are "what we certified": `Store.certified`."""
        return self._context.store.certified(self.target.name) if self._context.store is not None else None

    def taken_back(self) -> tuple[str, str] | None:
        """(run_id, started_at) of the unprovision after which nobody provisioned the host again."""
        return self._context.store.taken_back(self.target.name) if self._context.store is not None else None

    def previous(self) -> RunRecord | None:
        """The newest drift check of this host that came to a verdict."""
        return self._context.store.newest(self.target.name, "drift") if self._context.store is not None else None

    def baseline_of_host(self) -> Baseline:
        """All figures that this host's measurements are compared with, under whatever key."""
        return self._context.store.baseline_of(self.target.name) if self._context.store is not None else {}

    def lock(self, host: Host) -> HostLock:
        owner = LockOwner(user_name(), socket.gethostname(), self.run_id, self.started_at)
        return host.lock(owner, self._silent)

    def _silent(self, since: str) -> None:
        """Report that the host gives no answer since then; "": that it answers again."""
        self.tell(Progress("silent", "", "", since, time.monotonic() - self.began))

    def check_unchanged(self, host: Host) -> None:
        """Raises HostLocked if another run changes the host, or did since this one began: what was found is no fault of
        the machine.
        """
        try:
            host.check_free(time.monotonic() - self.began)
        except HostLocked:
            self.draft.judgement = None
            raise
        except HostError as error:  # the findings remain valid
            self.stage(f"whether another run changes this host could not be read: {error}")

    @contextmanager
    def undisturbed(self, host: Host) -> Iterator[None]:
        """Look and judge in it: what fails here while another run changes the host has that as its reason."""
        try:
            yield
        except HostError:
            self.check_unchanged(host)
            raise
        if self.draft.judgement is not None and self.draft.judgement.exit_code:
            self.check_unchanged(host)

    def past(self, measured: Measured) -> Baseline:
        """What the host measured when it first passed, under the keys of what it measures now."""
        store = self._context.store
        return store.baseline(self.target.name, list(measured)) if store is not None and measured else {}

    def stage(self, what: str, probe: str = "") -> None:
        self.tell(Progress("stage", "", probe, what, time.monotonic() - self.began))

    def doing(self, probe: str, doing: Doing) -> None:
        """Report the progress of a probe. Called in any thread."""
        elapsed = time.monotonic() - self.began
        self.tell(Progress("doing", "", probe, doing.what, elapsed, done=doing.done, of=doing.of, unit=doing.unit))

    def tell(self, progress: Progress) -> None:
        self._context.progress(self.target.name, progress)

    @contextmanager
    def breaking_off(self) -> Iterator[None]:
        """Meanwhile all that runs on the host ends, as if the user had stopped the run."""
        self._broken_off.set()
        try:
            yield
        finally:
            self._broken_off.clear()

    def stop_if_cancelled(self) -> None:
        if self.cancelled():
            raise watch.interrupted(self.target.name)


class ProfileRun(Run):
    """A run of a command that takes a profile."""

    def __init__(self, command: str, target: Target, profile: Profile, options: Options, context: RunContext) -> None:
        super().__init__(command, target, options, context, ProfileRef(profile.name, profile.path, profile.sha256))
        self.profile = profile
        self.effort: Effort | None = None  # estimated effort of the plan, for a run that changes nothing

    def look(self, host: Host, what: str = "reading facts") -> Snapshot:
        """All facts that the profile needs, as root."""
        self.stage(what)
        use = self.options.fix or self.command in DISTURBING
        facts = agent_client.snapshot(host, replace(checks.request(self.profile), use=use), become=True)
        self.know(host, facts)
        return facts

    def terms(self, wanted: Wanted) -> Terms:
        return Terms.of(self.profile, self.target.name, wanted, self.started_at)

    def expect(self, roles: Sequence[str], kinds: Sequence[Probe]) -> None:
        """Report which steps this run will have, with their times in earlier runs."""
        if not self._context.estimates or not (roles or kinds):
            return
        played = [remaining.PREFLIGHT, *map(remaining.step_of, roles)] if roles else []
        names = [remaining.FACTS, *dict.fromkeys(played), *(kind.name for kind in kinds)]
        steps = remaining.expected(names, *self._earlier())
        self.tell(Progress("steps", "", "", "", time.monotonic() - self.began, steps))

    def provisions(self, facts: Snapshot) -> tuple[list[RunRecord], list[RunRecord]]:
        """Earlier provisions of this host, and of hosts like it. ([], []) if the store cannot be read."""
        store = self._context.store or self._context.past
        if store is None:
            return [], []
        try:
            return effort.earlier(store, self.target.name, self.profile.name, facts)
        except StoreError:  # a missing estimate must not stop the run
            return [], []

    def _earlier(self) -> tuple[list[RunRecord], list[RunRecord]]:
        """Runs of the same kind that ended well: of this host, and of its profile on the same system."""
        seen = self.draft.after or self.draft.before
        if self._context.store is None or seen is None:
            return [], []
        ask = functools.partial(self._context.store.ended_well, self.command, seen.source)
        try:
            earlier_runs = [ask(host=self.target.name), ask(profile=self.profile.name)]
        except StoreError:  # the store's own errors are reported where the record is kept
            return [], []
        options = self.options.as_recorded()
        ours, similar = ([run for run in runs if remaining.same_kind(run, options)] for runs in earlier_runs)
        return ours, [run for run in similar if (then := run.after or run.before) and then.os == seen.os]


def _first_line(text: str | None) -> str:
    return (text or "").partition("\n")[0]


def unexpected(error: Exception, target: Target) -> str:
    """The text for the record of an unexpected error inside gpuprep; the whole error goes to a log file."""
    text = errorlog.whole(error, f"host: {target.name}")
    try:
        return f"{errorlog.named(error)}\nwhole log: {errorlog.keep(text)}"
    except OSError as unwritable:
        return f"{errorlog.named(error)}\nits log cannot be written: {unwritable.strerror}"


def _failed(command: str, target: Target, error: str, exit_code: int) -> RunRecord:
    """The record of a run that failed before or while its own record was made."""
    moment = now()
    return RunRecord(
        new_run_id(), command, target.name, moment, moment,
        Source.SIMULATED if target.simulated else Source.MEASURED, exit_code, __version__, error=error,
    )  # fmt: skip


def on_each(
    targets: Sequence[Target],
    work: Callable[[Target], RunRecord],
    *,
    forks: int,
    cancel: threading.Event,
    interrupted: Callable[[], None],
    command: str = "",
    runs: Mapping[str, Run] | None = None,
) -> list[RunRecord]:
    """One record per target, `forks` hosts at a time, in the order of `targets`.

    Ctrl-C sets `cancel` and calls `interrupted`; hosts at work then end their run and hosts that wait do not
    begin. on_each waits at most ENDING_SECONDS for each run (of `runs`) to end. An unexpected error of one host is in
    its record, of `command`; an exception that ends the program is raised after the other hosts have ended.
    """

    def safely(target: Target) -> RunRecord:
        try:
            return work(target)
        except Exception as error:  # noqa: BLE001  that host's own, in full in its log
            return _failed(command, target, unexpected(error, target), UNEXPECTED)

    pool = Pool([functools.partial(safely, target) for target in targets], forks)
    _until_ended(pool, cancel, interrupted)
    return [
        pool.results.get(number) or _abandoned(target, command, (runs or {}).get(target.name))
        for number, target in enumerate(targets)
    ]


def _until_ended(pool: Pool[RunRecord], cancel: threading.Event, interrupted: Callable[[], None]) -> None:
    """Wait until all hosts have ended, or until the time after the user's stop is over. Raises a second interrupt."""
    try:
        pool.wait(None)
    except KeyboardInterrupt:
        cancel.set()
        until = time.monotonic() + ENDING_SECONDS
        interrupted()
        pool.wait(max(0.0, until - time.monotonic()))


def _abandoned(target: Target, command: str, run: Run | None) -> RunRecord:
    """The record of a host that did not end in time after the user stopped the run."""
    if run is not None:
        return run.abandon()
    error = watch.interrupted(target.name)
    return _failed(command, target, error.explain(), error.exit_code)
