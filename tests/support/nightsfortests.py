"""Nights of a host for tests of the self-check: plans, facts, an agent that answers from files, what schedulers ask."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from builders import finished_snapshot, load, measured_t4, resolved

from gpuprep import __version__, checks
from gpuprep.agent import identity, inuse, parts
from gpuprep.desired import probes as probing
from gpuprep.desired.profile import DriftWish, NotifyWish
from gpuprep.nightly import hooks, nightlyplan, run
from gpuprep.nightly.nightlyplan import NightlyPlan
from gpuprep.records import (
    Finding,
    GpuFacts,
    Missing,
    ProbeResult,
    ProfileRef,
    RunRecord,
    Snapshot,
    Source,
    Status,
    Verdict,
    to_json,
)

Agent = run.Agent
NOBODY = NotifyWish("", "", "")
WISH = DriftWish("02:30", 30, "none", 60, "", NOBODY)
# Answers `facts` with facts.json beside it and `probe NAME` with probe-NAME.json; no such file: it fails.
ANSWERS = 'cat >/dev/null; exec cat "$0/$1${2:+-$2}.json"'


def certified(profile: str = "t4") -> RunRecord:
    after = finished_snapshot(resolved(profile))
    return RunRecord(
        run_id="20261120-100000-00aa0",
        command="validate",
        host="gpu-1",
        started_at="2026-11-20T10:00:00+00:00",
        ended_at="2026-11-20T10:05:00+00:00",
        source=Source.SIMULATED,
        exit_code=0,
        gpuprep_version=__version__,
        before=after,
        after=after,
        verdict=Verdict(Status.PASS, "PASS", ()),
    )


def a_plan(name: str = "t4", **changes: Any) -> NightlyPlan:
    profile = load(name)
    wanted = resolved(name)
    plan = NightlyPlan(
        host="gpu-1.example.org",
        profile=ProfileRef(profile.name, profile.path, profile.sha256),
        request=checks.request(profile),
        wanted=wanted,
        thresholds=profile.thresholds,
        waivers=(),
        drift=WISH,
        certified=nightlyplan.certified_part(certified(name)),
        baseline=(),
        probe_arguments=probing.arguments(profile, wanted, quick=True),
        made_at="2026-11-21T10:00:00+00:00",
        made_by=__version__,
    )
    return dataclasses.replace(plan, **changes)


def facts(**gpu: Any) -> Snapshot:
    """The finished T4, each of its GPUs with some facts changed."""
    snapshot = finished_snapshot(resolved())
    assert not isinstance(snapshot.gpus, Missing)
    return dataclasses.replace(snapshot, gpus=tuple(dataclasses.replace(one, **gpu) for one in snapshot.gpus))


def gpus_of(record: RunRecord) -> tuple[GpuFacts, ...]:
    assert record.after is not None
    assert not isinstance(record.after.gpus, Missing)
    return record.after.gpus


def probes(*names: str) -> tuple[ProbeResult, ...]:
    return tuple(result for result in measured_t4() if result.probe in names)


def answering(folder: Path, snapshot: Snapshot | None, measured: Sequence[ProbeResult] = ()) -> Agent:
    """A real child process for each question, with prepared answers."""
    folder.mkdir(exist_ok=True)
    if snapshot is not None:
        (folder / "facts.json").write_text(to_json(snapshot))
    for result in measured:
        (folder / f"probe-{result.probe}.json").write_text(to_json(result))
    return agent_of(ANSWERS, folder)


def agent_of(script: str, *words: object, patience: float = 600.0) -> Agent:
    """An agent that is a script of the shell, with these words; its facts are waited for so many seconds."""
    return Agent(["sh", "-c", script, *map(str, words)], facts_timeout=patience)


def installed_package(folder: Path) -> Path:
    """The parts of gpuprep that travel to a host, in a folder of their own."""
    for name, content in identity.sources(parts=parts.INSTALLED).items():
        (folder / "gpuprep" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "gpuprep" / name).write_bytes(content)
    return folder


def asked(verb: str, *options: str, now: datetime, last: Path, plan: Path) -> tuple[int, str]:
    """`gpuprep-drift slurm` or `npd` on a host whose newest result and plan are these: its exit code and its line."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = hooks.VERBS[verb](options, now, last, plan)
    (line,) = said.getvalue().splitlines()
    return code, line


def this_machine(monkeypatch: pytest.MonkeyPatch, hostname: Path, boot_id: Path) -> None:
    """The files that tell a scheduler's hook which machine it runs on."""
    monkeypatch.setattr(hooks, "HOSTNAME", hostname)
    monkeypatch.setattr(hooks, "BOOT_ID", boot_id)


SCONTROL_SECONDS = hooks.SCONTROL_SECONDS  # that an answer is waited for


def scontrol_of(monkeypatch: pytest.MonkeyPatch, *folders: Path, patience: float = SCONTROL_SECONDS) -> None:
    """Where scontrol is looked for beside PATH, and how long its answer is waited for."""
    monkeypatch.setattr(inuse, "SLURM_FOLDERS", tuple(map(str, folders)))
    monkeypatch.setattr(hooks, "SCONTROL_SECONDS", patience)


def drift_program(path: Path, interpreter: str, last: Path) -> None:
    """gpuprep-drift as the role writes it, but of this tree and with another newest result."""
    path.write_text(
        f"#!{interpreter}\nimport sys; from pathlib import Path\n"
        "from gpuprep.nightly import __main__, hooks\n"
        f"hooks.npd.__defaults__ = (None, Path({str(last)!r}), Path('/nowhere'))\n"
        "sys.exit(__main__.main(sys.argv[1:]))\n"
    )
    path.chmod(0o755)


def write_plan(path: Path, plan: NightlyPlan) -> Path:
    path.write_text(nightlyplan.to_text(plan))
    return path


def result(
    status: Status = Status.PASS, run_id: str = "20261121-020000-00000", error: str | None = None, **changes: Any
) -> RunRecord:
    """One night's record without facts."""
    found = Finding("gpu 0", "persistence_mode", status, "enabled", "disabled", "a reason", "a remedy")
    record = RunRecord(
        run_id=run_id,
        command="drift",
        host="gpu-1.example.org",
        started_at="2026-11-21T02:00:00+00:00",
        ended_at="2026-11-21T02:00:05+00:00",
        source=Source.SIMULATED,
        exit_code={Status.FAIL: 1, Status.UNKNOWN: 3}.get(status, 0),
        gpuprep_version=__version__,
        profile=ProfileRef("t4", "t4.yml", "0" * 64),
        verdict=None if error else Verdict(status, f"{status.value}: profile t4, 1 checks", (found,)),
        error=error,
    )
    return dataclasses.replace(record, **changes)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
