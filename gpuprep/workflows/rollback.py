"""`gpuprep rollback`: what going back to the kept driver would do on a host, and doing it."""

from __future__ import annotations

import dataclasses
import json
import shlex
from dataclasses import dataclass, field
from typing import Any, Optional

from gpuprep.agent import host_paths
from gpuprep.errors import HostError, PlanRefused
from gpuprep.provisioning import ansible_run
from gpuprep.records import DecodeError, FactsRequest, Plan, RunRecord, Snapshot, Step, from_json_value
from gpuprep.remote import Host, HostLock, Target, agent_client
from gpuprep.untrusted.plaintext import one_line
from gpuprep.workflows import inuse, schedule_state
from gpuprep.workflows.inuse import Does
from gpuprep.workflows.playing import played
from gpuprep.workflows.runs import Options, Run, RunContext

SECONDS = 900.0  # a way back at work is waited for
ROLES = ("gpu_driver",)


@dataclass(frozen=True)
class Kept:
    """The driver that the host kept."""

    driver: str
    saved: str  # when, UTC
    certified: str  # the run that certified it; "": none did
    kernel: str
    worked: bool = True


@dataclass(frozen=True)
class Way:
    """What the program of the host answers to `show`. All texts are the host's."""

    saved: Optional[Kept]
    journal: dict[str, Any] = field(default_factory=dict)
    loaded: str = ""
    install: dict[str, str] = field(default_factory=dict)  # name ► version
    remove: tuple[str, ...] = ()
    offline: bool = False
    restart: bool = False

    def plan(self, host: str) -> Plan:
        assert self.saved is not None
        step = Step(
            "gpu_driver", f"Go back to driver {self.saved.driver}", tuple(self.lines()), may_reboot=self.restart
        )
        return Plan(host, "", (step,))

    def does(self, options: Options, target: Target) -> Does:
        return Does(self.restart and options.reboot and not target.local, bool(self.install or self.remove))

    def lines(self) -> list[str]:
        assert self.saved is not None
        whose = f"certified by run {self.saved.certified}" if self.saved.certified else "not certified by a run"
        lines = [f"driver {self.loaded or 'none'} ► {self.saved.driver}, kept on {self.saved.saved[:10]}, {whose}"]
        if self.install:
            lines.append("installs: " + ", ".join(f"{name} {version}" for name, version in self.install.items()))
        if self.remove:
            lines.append("removes: " + ", ".join(self.remove))
        lines.append("restores: pin, holds, locks, stream and module options of then; the modules of every kernel")
        if not (self.install or self.remove or self.restart):
            lines.append("its packages are installed, and it is loaded")
        if not self.offline:
            lines.append("needs the network: the host has not all files of these packages")
        return lines


def look(target: Target, options: Options, context: RunContext) -> RunRecord:
    """What going back would do. Changes nothing; only where it fails it is stored, as the end of this host's run."""
    return Run("rollback", target, options, context).record(_show)


def _show(run: Run) -> None:
    with run.connect() as host:
        way = _look(host)
        plan, busy = way.plan(run.target.name), inuse.note(_use(host), way.does(run.options, run.target))
        run.draft.plan = dataclasses.replace(plan, notes=(*plan.notes, *busy))
    run.keeps = False


def _use(host: Host) -> Snapshot:
    return agent_client.snapshot(host, FactsRequest(use=True), become=True)


def _look(host: Host) -> Way:
    """Raises HostError; PlanRefused where the host kept no driver."""
    program = shlex.quote(host_paths.ROLLBACK_PROGRAM)
    result = host.run(f"[ ! -e {program} ] || exec python3 -I {program} show", become=True, timeout=SECONDS)
    nothing = PlanRefused(
        ["the host kept no driver: gpuprep keeps one when it changes the driver"],
        "`gpuprep provision` with driver.version installs an older driver, from the archive",
        where=host.name,
    )
    if result.exit_code == 0 and not result.stdout.strip():
        raise nothing
    try:
        told = json.loads(result.stdout)
        error = told.pop("error", "")
        way = from_json_value(Way, told) if not error else None
    except (ValueError, RecursionError, AttributeError, TypeError, DecodeError):
        said = result.stderr.strip() or result.stdout.strip() or "it said nothing"
        error, way = f"no answer about the driver that it kept: {said}", None
    if way is None:
        raise HostError(f"{host.name}: {one_line(str(error), 300)}")
    if way.saved is None or not way.saved.driver:
        raise nothing
    return way


def rollback(target: Target, options: Options, context: RunContext) -> RunRecord:
    """Go back, restart, and see that the driver of before works."""
    return Run("rollback", target, options, context).record(_go)


def _go(run: Run) -> None:
    with run.connect() as host:

        def see() -> tuple[Way, Snapshot, Does]:
            way = _look(host)
            return way, _use(host), way.does(run.options, run.target)

        def work(way: Way, lock: HostLock) -> None:
            _play(run, way)
            if lock.lost is not None:
                raise lock.lost

        inuse.when_free(run, host, see, work)
        schedule_state.renew(run, host)


def _play(run: Run, way: Way) -> None:
    run.stage(f"going back: {way.lines()[0]}")
    may_reboot = run.options.reboot and not run.target.local
    variables = {
        "gpu_driver_allow_reboot": may_reboot,
        "gpu_driver_when_busy": run.options.in_role,
        "gpu_driver_rollback_cause": str(way.journal.get("cause") or "asked for by gpuprep rollback")[:1000],
        "gpuprep_run_id": run.run_id,
    }
    outcome = played(run, "rollback.yml", variables, run.options, roles=ROLES)
    if isinstance(outcome, ansible_run.Failure):
        raise outcome.error
