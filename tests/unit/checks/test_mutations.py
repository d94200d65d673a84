"""Real records with a figure changed, or two: none gets a better verdict than it must, and none crashes.

`python tests/support/mutations.py` shows how many hold in each class of cases/mutations.yml.
"""

from __future__ import annotations

import json
from pathlib import Path

import amount
import pytest
from mutations import NEVER_PASS, Mutation, bases, failures, families, of_bases, table

from gpuprep.cli import cli, edge
from gpuprep.desired import probes

EXIT_CODES = {"PASS": 0, "WARN": 0, "FAIL": 1, "UNKNOWN": 3}
THROUGH_THE_COMMAND = amount.examples(100)
WITHOUT_RECORD = {"codec": "it asks FFmpeg for the names of its parts: none of them is a figure"}
WITHOUT_CLASS = {"t4-nccl": "of one GPU: it measured nothing, and says so"}
EVERY = 6  # of a class: one change of six, and all in `make test-all`


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.mark.parametrize("name", [*dict.fromkeys(entry["class"] for entry in table()), *list(families())[-2:]])
def test_a_changed_record_gets_the_verdict_that_it_must(name: str) -> None:
    mutations = families()[name][:: 1 if amount.ALL else EVERY]
    wrong = failures(mutations)
    assert not wrong, f"{len(wrong)} of {len(mutations)} do not hold:\n" + "\n".join(wrong[:12])


@pytest.mark.parametrize("name", list(bases()))
def test_each_record_passes_as_it_is(name: str) -> None:
    assert of_bases().get(name, []) == []


def test_each_probe_has_a_real_record_and_each_record_has_classes_of_faults() -> None:
    real = {document["probe"] for name, base in bases().items() if name.startswith("h200")
            for document in base.document["measurements"]}  # fmt: skip
    assert {kind.name for kind in probes.KINDS} - real == set(WITHOUT_RECORD)
    assert not [kind.name for kind in probes.KINDS if kind.measures and kind.name in WITHOUT_RECORD]
    assert set(bases()) - {record for entry in table() for record in entry["records"]} == set(WITHOUT_CLASS)


def test_there_are_thousands_and_no_two_are_the_same() -> None:
    every = [one for listed in families().values() for one in listed]
    assert len(every) >= 2000
    assert len({(one.record, one.name, one.family) for one in every}) == len(every)
    assert sum(one.wanted <= NEVER_PASS for one in every) >= 1500
    assert all(one.document() != bases()[one.record].document for one in every[::25])


def through_the_command() -> list[Mutation]:
    every = [one for listed in families().values() for one in listed]
    return every[:: len(every) // THROUGH_THE_COMMAND][:THROUGH_THE_COMMAND]


def test_the_command_ends_with_a_documented_code_and_its_json_is_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "record.json"
    for one in through_the_command():
        path.write_text(json.dumps(one.document()), encoding="utf-8")
        profile = bases()[one.record].profile.name
        code = edge.run(cli, ["judge", str(path), "--profile", profile, "--json"])
        document = json.loads(capsys.readouterr().out)
        assert document["exit_code"] == code
        if code == 2:  # a file that no run writes
            assert document["error"]["what"], f"{one.record}: {one.name}"
            continue
        # An error inside gpuprep also ends with 3, but with no run.
        status = document["runs"][0]["verdict"]["status"]
        assert (code, status in one.wanted) == (EXIT_CODES[status], True), f"{one.record}: {one.name}: {status}"
