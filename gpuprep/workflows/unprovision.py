"""The steps of unprovision: the state of before and of now ─► the list ─► the playbook ─► what is left.

The list is made again at the end: what it still has is a finding. So a run that was killed is continued by the next.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from gpuprep.agent.facts import ledger
from gpuprep.checks.judgement import Judgement, status_of
from gpuprep.errors import HostError, PlanRefused, UsageError
from gpuprep.paths import private_folder, private_text
from gpuprep.provisioning import ansible_run
from gpuprep.provisioning.undo import Undo, Work, refused, undo
from gpuprep.records import (
    FactsRequest,
    Finding,
    Missing,
    PackageManagerFacts,
    Plan,
    RunRecord,
    Snapshot,
    Status,
    Verdict,
)
from gpuprep.records.findings import GRAVEST_FIRST, in_order
from gpuprep.records.recorded_options import STEPS
from gpuprep.remote import Host, HostLock, Target, agent_client
from gpuprep.untrusted.plaintext import command, one_line
from gpuprep.workflows import inuse, schedule
from gpuprep.workflows.inuse import Does
from gpuprep.workflows.playing import played
from gpuprep.workflows.runs import Options, Run, RunContext
from gpuprep.workflows.schedule_state import must

SECONDS = 300.0
# What is taken back is there.
WRITTEN = ("/", "/boot", "/etc", "/opt/gpuprep", "/usr", "/usr/local", "/var/lib")
# Ansible makes its folders in the homes of root and of the login; one that is not empty is somebody's.
HOMES = {
    become: f"cd {home}/.ansible 2>/dev/null && rmdir tmp-gpuprep tmp-gpuprep-check tmp ../.ansible 2>/dev/null || :"
    for become, home in ((True, "~root"), (False, "~"))
}
LAST = f"rm -rf -- {ledger.OWN_FOLDER}; ! test -e {ledger.OWN_FOLDER}"
LOADED = "what is loaded is the driver that was removed"
SUBJECTS = {"": "gpuprep"}


def check_request(options: Options) -> None:
    """Raises UsageError for a step that there is not."""
    for name in options.only:
        if name not in STEPS:
            raise UsageError(f"there is no step {name!r}", f"steps are {', '.join(STEPS)}")


def look(target: Target, options: Options, context: RunContext) -> RunRecord:
    """The list. Changes nothing; only where it fails it is stored, as the end of this host's run."""
    return Run("unprovision", target, options, context).record(_look)


def unprovision(target: Target, options: Options, context: RunContext, shown: Plan | None = None) -> RunRecord:
    """Take back what the list says. `shown`: the list that the user agreed to; with another one nothing is changed."""
    return Run("unprovision", target, options, context).record(lambda run: _unprovision(run, shown))


def _look(run: Run) -> None:
    with run.connect() as host:
        facts = _facts(run, host)
        _refuse(run, facts)
        made = _list(run, host).plan(run.target.name)
        busy = inuse.note(facts, Does.of(made.steps, run.options, run.target))
        run.draft.plan = dataclasses.replace(made, notes=(*made.notes, *busy))
    run.keeps = False


def _unprovision(run: Run, shown: Plan | None) -> None:
    with run.connect() as host:

        def see() -> tuple[Undo, Snapshot, Does]:
            facts = run.draft.before = _facts(run, host)
            _refuse(run, facts)
            listed = _list(run, host)
            plan = run.draft.plan = listed.plan(run.target.name)
            # A line about those who use the host comes and goes.
            if shown is not None and (plan.steps != shown.steps or not set(plan.notes) <= set(shown.notes)):
                raise PlanRefused(
                    [f"{run.target.name}: the list is another than a moment ago: somebody changes this machine"],
                    "run the same command again, and read its list",
                    where=run.target.name,
                )
            return listed, facts, Does.of(plan.steps, run.options, run.target)

        def work(listed: Undo, lock: HostLock) -> tuple[Undo, Undo, list[Finding]]:
            _keep_texts(run, listed)
            left = _take_back(run, host, listed)
            if lock.lost is not None:
                raise lock.lost
            findings = _findings(listed, left)
            if left.whole and not left.works:
                # The ledger goes last: until then a killed run is continued by the next.
                must(host, LAST, "gpuprep's own folder cannot be removed")
                for become, words in HOMES.items():
                    host.run(words, become=become, timeout=SECONDS)
            return listed, left, findings

        listed, left, findings = inuse.when_free(run, host, see, work)
        waits = listed.restarts and left.stale
        run.draft.judgement = _judgement(run, findings, waits)
        run.draft.reboot_needed = waits


def _keep_texts(run: Run, listed: Undo) -> None:
    """Keep here what the files have that go: gpuprep cannot see whether somebody edited one of its own."""
    if listed.texts:
        path = run.log_dir / "taken-back.json"
        run.stage(f"keeping the text of {len(listed.texts)} files in {path}")
        private_folder(run.log_dir)
        private_text(path, json.dumps(listed.texts, indent=1, sort_keys=True) + "\n")


def _take_back(run: Run, host: Host, listed: Undo) -> Undo:
    """Returns what is left."""
    if any(work.step == "agent" for work in listed.works):
        run.stage("taking the night check away")
        schedule.take_away(host)
    left = listed
    if any(work.restore for work in listed.works):
        # What a newer version needs can go when the older one is there again; the restart comes after that.
        _play(run, listed, restart=False)
        left = _list(run, host, "reading what is left")
    if left.works or listed.restarts:
        _play(run, left, restart=listed.restarts)
    return _list(run, host, "reading what is left")


def _facts(run: Run, host: Host) -> Snapshot:
    run.stage("reading facts")
    facts = agent_client.snapshot(host, FactsRequest(folders=WRITTEN, use=True), become=True)
    run.know(host, facts)
    return facts


def _refuse(run: Run, facts: Snapshot) -> None:
    """Refuse while a program works with the packages, which changes the list, and where not all of it could be taken
    back.
    """
    places = {} if isinstance(facts.folders, Missing) else facts.folders
    if closed := [path for path in WRITTEN if path in places and places[path].read_only]:
        raise PlanRefused(
            [f"{run.target.name}: {', '.join(closed)} cannot be written to: mounted read-only"],
            f"mount it for writing (`findmnt -T {closed[0]}` shows the mount), then run the same command again; nothing"
            " was changed",
            where=run.target.name,
        )
    manager = facts.package_manager
    if isinstance(manager, PackageManagerFacts) and isinstance(manager.holders, Mapping) and manager.holders:
        who = one_line(str(next(iter(manager.holders.values()))), 80)
        raise PlanRefused(
            [f"{run.target.name}: {who} works with the packages there"],
            "wait until it has ended, then run the same command again; nothing was changed",
            where=run.target.name,
        )


def _list(run: Run, host: Host, what: str = "reading what gpuprep did here") -> Undo:
    run.stop_if_cancelled()
    run.stage(what)
    words = " ".join(map(shlex.quote, ["python3", "-I", "-S", "-c", _program()]))
    result = host.run(words, become=True, timeout=SECONDS)
    try:
        state: Any = json.loads(result.stdout)
    except (ValueError, RecursionError):
        said = one_line((result.stderr.strip().splitlines() or ["it said nothing"])[-1], 200)
        raise HostError(
            f"{host.name}: what gpuprep did there cannot be read: {said}",
            "repair what the message names, then run the same command again",
            where=host.name,
        ) from None
    if not isinstance(state, Mapping):
        raise HostError(f"{host.name}: what gpuprep did there has no form that is known", where=host.name)
    return undo(state, run.options.only)


@functools.cache
def _program() -> str:
    return (importlib.resources.files("gpuprep.agent.facts") / "ledger.py").read_text(encoding="utf-8")


def _play(run: Run, listed: Undo, *, restart: bool) -> None:
    may_restart = run.options.reboot and not run.target.local
    variables = {
        "gpu_preflight_undo": [dataclasses.asdict(work) for work in listed.works],
        "gpu_preflight_undo_folders": list(listed.folders),
        "gpu_preflight_undo_restart": LOADED if restart and may_restart else "",
        "gpu_preflight_undo_driver": listed.driver_before,
        "gpu_driver_allow_reboot": may_restart,
        "gpu_driver_when_busy": run.options.in_role,
        "gpuprep_run_id": run.run_id,
    }
    outcome = played(run, "unprovision.yml", variables, run.options)
    if isinstance(outcome, ansible_run.Failure):
        raise outcome.error


# ---------------------------------------------------------------- what is left


def _findings(listed: Undo, left: Undo) -> list[Finding]:
    """A finding for each step of the list: PASS if nothing of it is left."""
    still = {work.step: work for work in left.works}
    steps = dict.fromkeys([*(work.step for work in listed.works), *still])
    found = [_finding(step, still.get(step), left) for step in steps]
    return found + [
        Finding("gpu", "settings", Status.FAIL, "as before", one, "the GPU refused it", "restart the machine")
        for one in refused(listed, left.gpus)
    ]


def _finding(step: str, work: Work | None, left: Undo) -> Finding:
    subject = SUBJECTS.get(step, step)
    if work is None:
        return Finding(subject, "taken_back", Status.PASS, "as before", "as before")
    (told,) = [one for one in left.plan("").steps if one.role == (f"gpu_{step}" if step else "gpu_preflight")]
    return Finding(
        subject,
        "taken_back",
        Status.FAIL,
        "as before",
        f"still to do: {'; '.join(told.reasons)}",
        "the machine is not as it was before gpuprep",
        "run the same command again; the run's log says why it could not be done",
    )


def _judgement(run: Run, findings: Sequence[Finding], waits: bool) -> Judgement:
    more = [
        Finding(
            "driver",
            "loaded",
            Status.WARN,
            "not loaded",
            LOADED,
            "a module that is loaded stays until the machine is restarted",
            f"restart it: {command('ssh', 'HOST', 'sudo reboot')}",
            reboot=True,
        )
    ] if waits else []  # fmt: skip
    every = (*findings, *more) or (Finding("gpuprep", "taken_back", Status.PASS, "as before", "nothing to take back"),)
    status = status_of(every)
    left = sum(finding.status is Status.FAIL for finding in every)
    done = "nothing of gpuprep is left" if not run.options.only else f"nothing of {', '.join(run.options.only)} is left"
    words = f"{left} of {len(every)} steps are not taken back" if left else done
    summary = f"{status.value}: {words}{'; the machine must be restarted' if waits else ''}"
    return Judgement(tuple(every), Verdict(status, summary, tuple(in_order(every, GRAVEST_FIRST))))
