"""What the column `record` holds: all of a record, in two fifths of the room."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import finished_snapshot, good_probes, resolved, shipped
from hostilerecords import RECORDS
from places import TESTS
from records_for_tests import SNAPSHOT, record

from gpuprep import checks, errors, records
from gpuprep.checks import judgement
from gpuprep.store import Store

GOLDEN = TESTS / "golden" / "record_defaults.txt"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path}/history.db")
    yield opened
    opened.close()


@contextlib.contextmanager
def table(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """As any tool reads it."""
    connection = sqlite3.connect(tmp_path / "history.db")
    with contextlib.closing(connection), connection:
        yield connection


def column(tmp_path: Path) -> str:
    with table(tmp_path) as connection:
        text: str = connection.execute("SELECT record FROM runs").fetchone()[0]
    return text


def night(**changes: Any) -> records.RunRecord:
    """A drift check of a finished T4 with a fault."""
    wanted = resolved()
    facts = dataclasses.replace(finished_snapshot(wanted), virtualization="")
    terms = judgement.Terms.of(shipped("t4"), "gpu-1", wanted, "2026-11-20T10:00:00+00:00")
    judged = judgement.judge(terms, checks.compare(wanted, facts, good_probes(wanted)))
    made = record(
        command="drift", plan=None, playbook=None, before=None, after=facts, verdict=judged.verdict,
        findings=judged.findings,
    )  # fmt: skip
    return dataclasses.replace(made, **changes)


def test_a_night_takes_less_than_half_of_its_json(store: Store, tmp_path: Path) -> None:
    made = night()
    assert made.verdict is not None
    assert made.findings != made.verdict.findings, "one in the order of the checks, one worst first"
    store.append(made)
    text = column(tmp_path)
    assert len(text) < 0.45 * len(records.to_json(made))
    read = json.loads(text)
    listed = [(each["subject"], each["property"], each["status"]) for each in read["verdict"]["findings"]]
    with table(tmp_path) as connection:
        rows = connection.execute("SELECT subject, property, status FROM findings ORDER BY position").fetchall()
    assert listed == rows
    assert [listed[place][:2] for place in read["findings"]] == [
        (each.subject, each.property) for each in made.findings
    ]


@pytest.mark.parametrize(
    "name",
    [
        "night",
        "facts of before",
        "other facts of before",
        "a finding of its own",
        "without a verdict",
        "numbers",
        *RECORDS,
    ],
)
def test_what_is_read_prints_as_what_was_stored(store: Store, tmp_path: Path, name: str) -> None:
    own = records.Finding("gpu 0", "ecc", records.Status.FAIL, "on", "off")
    made = {
        "night": night,
        "facts of before": lambda: night(before=night().after),
        "other facts of before": lambda: night(before=dataclasses.replace(SNAPSHOT, nvswitches=0)),
        "a finding of its own": lambda: night(findings=(own, *night().findings, own)),
        "without a verdict": lambda: night(verdict=None),
        "numbers": lambda: night(options={"detail": "", "reboot_needed": False, "findings": [0, 1], "seconds": 0.0}),
        **RECORDS,
    }[name]()
    try:
        printed = records.to_json(made)
        whole = records.from_json(records.RunRecord, printed)
    except (ValueError, RecursionError):
        return  # nothing prints or reads it, so nothing stores it
    store.append(made)
    read = store.get(whole.run_id)
    assert records.to_json(read) == records.to_json(whole)
    assert list(store.export_records()) == [records.to_json(whole)]
    # As an older gpuprep stored it.
    with table(tmp_path) as connection:
        connection.execute("UPDATE runs SET record = ?", (printed,))
    assert store.get(whole.run_id) == read
    assert list(store.export_records()) == [records.to_json(whole)]


@pytest.mark.parametrize("listed", [[0, 0], [10_000], [-1], [True], ["0"], [[0]], 0, {"0": 0}])
def test_positions_that_are_none_are_a_damaged_row(store: Store, tmp_path: Path, listed: Any) -> None:
    store.append(night())
    damaged = json.dumps({**json.loads(column(tmp_path)), "findings": listed})
    with table(tmp_path) as connection:
        connection.execute("UPDATE runs SET record = ?", (damaged,))
    with pytest.raises(errors.StoreError, match="cannot be read"):
        store.get(night().run_id)
    assert list(store.export_records()) == [damaged]


@pytest.mark.parametrize(
    "damaged", ["[]", "{", '{"profile": []}', '{"profile": {"name": "own"}}', '{"profile": null}', ""]
)
def test_the_file_of_a_profile_is_found_behind_a_damaged_row(store: Store, tmp_path: Path, damaged: str) -> None:
    own = records.ProfileRef("own", "/etc/own.yml", "f" * 64)
    for run_id, second in (("20261122-023000-aaaaa", 0), ("20261122-023001-bbbbb", 1)):
        began = f"2026-11-22T02:30:0{second}+00:00"
        store.append(record(run_id, command="schedule", host="gpu-1", started_at=began, profile=own))
    with table(tmp_path) as connection:
        connection.execute("UPDATE runs SET record = ? WHERE run_id LIKE '%bbbbb'", (damaged,))
    assert store.profile_file("gpu-1", "schedule", own) == "/etc/own.yml"
    assert store.profile_file("gpu-1", "schedule", dataclasses.replace(own, sha256="0" * 64)) is None
    assert store.profile_file("gpu-2", "schedule", own) is None


def test_facts_that_did_not_change_are_stored_once(store: Store, tmp_path: Path) -> None:
    made = night()
    store.append(dataclasses.replace(made, before=made.after))
    whole = json.loads(column(tmp_path))
    assert list(whole["before"]) == ["same_as_after"]
    read = store.get(made.run_id)
    assert read.before == read.after == made.after
    for same in (["nothing"], [["os"]], [5], "os", {"os": 1}, True):
        damaged = json.dumps({**whole, "before": {"same_as_after": same}})
        with table(tmp_path) as connection:
            connection.execute("UPDATE runs SET record = ?", (damaged,))
        with pytest.raises(errors.StoreError, match="cannot be read"):
            store.get(made.run_id)


def defaults() -> set[str]:
    """`GpuFacts.vbios = {...}` of each member of a record that has a default, as JSON."""
    kinds = {kind for kind in vars(records).values() if isinstance(kind, type) and dataclasses.is_dataclass(kind)}
    found = set()
    for kind in kinds:
        for spec in dataclasses.fields(kind):
            made = spec.default_factory() if spec.default_factory is not dataclasses.MISSING else spec.default
            if made is not dataclasses.MISSING:
                found.add(f"{kind.__name__}.{spec.name} = {json.dumps(records.to_json_value(made))}")
    return found


def test_a_default_never_changes_because_rows_leave_it_out() -> None:
    """A member may come (GPUPREP_UPDATE_GOLDEN=1 adds it); a default that changed would change what old rows say."""
    if os.environ.get("GPUPREP_UPDATE_GOLDEN") == "1":
        GOLDEN.write_text("\n".join(sorted(defaults())) + "\n", encoding="utf-8")
    written = set(GOLDEN.read_text(encoding="utf-8").splitlines())
    assert written - defaults() == set(), "this default changed or is gone: stored records would be read otherwise"
    assert defaults() - written == set(), "new: run this test once with GPUPREP_UPDATE_GOLDEN=1"
