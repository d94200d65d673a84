"""A host that is certified, gets a fault, is repaired: the commands of a user over a scripted Host and a real store."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fakehost import Script, store_of_the_test
from finishedt4 import ANSWERS, FINISHED, HERE, T4, WANTED

from gpuprep.agent.facts import machineidentity
from gpuprep.checks import drift, judgement
from gpuprep.desired.profile import Profile
from gpuprep.records import (
    Finding,
    HistoryFacts,
    IdentityFacts,
    PcieLink,
    ProbeResult,
    RunRecord,
    Snapshot,
    Source,
    Status,
    from_json,
    to_json,
)
from gpuprep.records.baseline import Baseline
from gpuprep.remote import Target
from gpuprep.store import Store
from gpuprep.workflows import certify, provision
from gpuprep.workflows.drift import check
from gpuprep.workflows.runs import Options, RunContext

SIXTEEN, FOUR = PcieLink(1, 16, 3, 16, 3, 0), PcieLink(1, 4, 3, 16, 3, 0)


def host(**gpu: Any) -> Snapshot:
    """The finished host with sixteen lanes, and something else on its GPU."""
    assert isinstance(FINISHED.gpus, tuple)
    return dataclasses.replace(FINISHED, gpus=(dataclasses.replace(FINISHED.gpus[0], **{"pcie": SIXTEEN, **gpu}),))


WHOLE, LAME = host(), host(pcie=FOUR)
BOARD = "1" * 32
KEYS = {name: "SHA256:" + name * 43 for name in "abcde"}


def machine(
    snapshot: Snapshot, machine_id: str = "a" * 32, *, hardware: str | None = BOARD, keys: str = "a", gpu: str = ""
) -> Snapshot:
    """The snapshot of one machine; `keys` are letters of KEYS."""
    facts = IdentityFacts(machine_id, hardware, tuple(KEYS[letter] for letter in keys))
    gpus = snapshot.gpus
    if gpu and isinstance(gpus, tuple):
        gpus = tuple(dataclasses.replace(one, uuid=f"{gpu}-{one.index}") for one in gpus)
    return dataclasses.replace(snapshot, identity=facts, gpus=gpus)


class Life:
    """One store and what its user does with hosts. Targets other than HERE answer with the key of `keys`."""

    def __init__(self, store: Store, script: Script) -> None:
        self.store, self.script = store, script
        self.told: list[str] = []
        self.probes = dict(ANSWERS)

    def look_at(self, snapshot: Snapshot) -> None:
        """This is what the next host shows; its probes measure the GPU that it has."""
        assert isinstance(snapshot.gpus, tuple)
        uuid = snapshot.gpus[0].uuid if snapshot.gpus else "GPU-0"
        self.script.snapshots = [snapshot]
        self.script.probes = {
            name: from_json(ProbeResult, to_json(one).replace('"GPU-0"', f'"{uuid}"'))
            for name, one in self.probes.items()
        }

    def line(self) -> RunContext:
        return RunContext(lambda _, event: self.told.append(event.detail), self.store, threading.Event().is_set)

    def target(self, name: str, key: str = "") -> Target:
        if key:
            self.script.keys[name] = KEYS[key]
        return HERE if name == "here" else Target(name)

    def validate(
        self, snapshot: Snapshot = WHOLE, name: str = "here", key: str = "", of: Profile = T4, **options: Any
    ) -> RunRecord:
        self.look_at(snapshot)
        made = provision.validate(self.target(name, key), of, Options(**options), self.line())
        assert (made.exit_code, made.error) == (0, None), made.verdict and made.verdict.summary
        return made

    def drift(
        self, snapshot: Snapshot = WHOLE, name: str = "here", key: str = "", of: Profile = T4, **options: Any
    ) -> RunRecord:
        self.look_at(snapshot)
        made = check(self.target(name, key), of, Options(**options), self.line())
        assert made.error is None, made.error
        return made

    def choose(self, run: str | None, name: str = "here", reason: str = "") -> RunRecord:
        return certify.certify(self.store, name, run, "2026-11-21T00:00:00+00:00", reason).record

    def held_to(self, name: str = "here") -> str:
        found = self.store.certified(name)
        return found.run_id if found else ""


@contextmanager
def living(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Life]:
    script = Script()
    with store_of_the_test(tmp_path, monkeypatch, script.host()) as store:
        yield Life(store, script)


def history(made: RunRecord) -> HistoryFacts:
    assert made.history is not None
    return made.history


def statuses(made: RunRecord, *but: Status) -> dict[str, Status]:
    """By key, without those of the statuses `but` (default: PASS and SKIP)."""
    without = but or (Status.PASS, Status.SKIP)
    return {one.key: one.status for one in made.findings if one.status not in without}


def since(made: RunRecord, key: str) -> str:
    (found,) = [one for one in made.findings if one.key == key]
    return found.since


def identity_of(folder: Path) -> IdentityFacts:
    """What the agent tells of a machine whose machine-id, dmi/* and ssh/* are in this folder."""
    return IdentityFacts(
        machineidentity.machine_id(folder / "machine-id"),
        machineidentity.hardware(folder / "dmi"),
        machineidentity.ssh_host_keys(folder / "ssh"),
    )


def check_of(
    moment: str,
    snapshot: Snapshot,
    previous: RunRecord | None,
    results: Sequence[ProbeResult] = (),
    baseline: Baseline | None = None,
    *,
    deep: Sequence[Finding] | None = None,
    certified: Snapshot,
) -> RunRecord:
    """A check of drift at this moment, as its record is read again. `deep`: what Ansible's check mode found."""
    at = "2026-11-01T02:30:00+00:00"
    was = RunRecord("c", "validate", "here", at, at, Source.SIMULATED, 0, "0.1.0", after=certified)
    past = drift.Past(was, previous)
    terms = judgement.Terms.of(T4, "here", WANTED, moment)
    judged = drift.judge(terms, snapshot, past, results, baseline, more=deep or ())
    looked = drift.Looked.at(WANTED, snapshot, results, deep=deep is not None)
    facts = dataclasses.replace(past.facts(), unseen=drift.unseen(judged.findings, previous, looked))
    made = RunRecord(
        f"run-{moment[:10]}", "drift", "here", moment, moment, snapshot.source, judged.exit_code, "0.1.0",
        after=snapshot, measurements=tuple(results), verdict=judged.verdict, findings=judged.findings, drift=facts,
    )  # fmt: skip
    return from_json(RunRecord, to_json(made))


def still_open(
    previous: RunRecord, *findings: Finding, snapshot: Snapshot = WHOLE, played: Sequence[str] = ()
) -> list[str]:
    """What the check before found failing, and a run with these findings does not show to be gone."""
    looked = drift.Looked.at(WANTED, snapshot, ())
    return list(drift.still_failing(findings, previous, looked, played))
