"""Real records with a figure changed, or two: none gets a better verdict than it must, and none crashes.

`python tests/support/mutations.py` shows how many hold in each class of cases/mutations.yml.
"""

from __future__ import annotations

import json
from pathlib import Path

import amount
import pytest
from mutations import NEVER_PASS, Mutation, bases, change_of, failures, families, of_bases, places, table

from gpuprep.cli import cli, run_command
from gpuprep.records.evidence import kinds

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


@pytest.mark.parametrize("name", ["h200-gemm", "h200x2-gemm", "t4-gemm"])
def test_products_added_in_fp16_do_not_stand_for_those_added_in_fp32(name: str) -> None:
    values = bases()[name].document["measurements"][0]["values"]
    changes = tuple(
        (("measurements", 0, "values", *place), change_of("absent"))
        for place in places(values, "gpus[*].gemms[dtype=fp16]")
        if values["gpus"][place[1]]["gemms"][place[3]]["accumulate"] == "fp32"
    )
    assert changes
    findings = Mutation("absent", name, "gemms of fp16/fp32", NEVER_PASS, changes).findings()
    found = {finding.key: finding.status.value for finding in findings}
    assert {found.get(f"gpu {gpu['index']}.gemm_fp16") for gpu in values["gpus"]} == {"UNKNOWN"}


def test_each_probe_has_a_real_record_and_each_record_has_classes_of_faults() -> None:
    real = {document["probe"] for name, base in bases().items() if name.startswith("h200")
            for document in base.document["measurements"]}  # fmt: skip
    assert {kind.name for kind in kinds.PROBES} - real == set(WITHOUT_RECORD)
    assert not [kind.name for kind in kinds.PROBES if kind.measures and kind.name in WITHOUT_RECORD]
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
        code = run_command.run(cli, ["judge", str(path), "--profile", profile, "--json"])
        document = json.loads(capsys.readouterr().out)
        assert document["exit_code"] == code
        if code == 2:  # a file that no run writes
            assert document["error"]["what"], f"{one.record}: {one.name}"
            continue
        # An error inside gpuprep also ends with 3, but with no run.
        status = document["runs"][0]["verdict"]["status"]
        assert (code, status in one.wanted) == (EXIT_CODES[status], True), f"{one.record}: {one.name}: {status}"


# record, key, words that must be said where every entry lacks the key; "": a verdict needs no such key
ABSENT_KEYS = (
    ("h200x2-nccl", "gpus[*].index", "2 of 2 entries have no GPU index"),
    ("h200x2-nccl", "gpus[*].uuid", ""),
    ("h200x2-nccl", "links", "how many NVLinks are up from gpu 0 to gpu 1 is not recorded (links)"),
    ("h200x2-nccl", "links[*].nvlinks", "how many NVLinks are up from gpu 0 to gpu 1 is not recorded (nvlinks)"),
    ("h200x2-nccl", "links[*].to", "how many NVLinks are up from gpu 0 to gpu 1 is not recorded"),
    ("h200x2-nccl", "points[*].operation", "not recorded: the collective of"),
    ("h200x2-nccl", "points[*].bytes", "not recorded: the size of"),
    ("h200x2-nccl", "points[*].wrong", "whether the result is right is not recorded"),
    ("h200x2-bandwidth", "gpus[*].index", "2 of 2 entries have no GPU index"),
    ("h200x2-bandwidth", "gpus[*].pcie.width", "no generation or no width under load"),
    ("h200x2-bandwidth", "peers", "no pair is listed"),
    ("h200x2-bandwidth", "peers[*].from", "between which GPUs 2 of 2 copies went is not recorded"),
    ("h200x2-bandwidth", "peers[*].nvlinks", "how many NVLinks join the two GPUs is not recorded"),
    ("h200x2-gemm", "gpus[*].index", "2 of 2 entries have no GPU index"),
    ("h200x2-gemm", "gpus[*].uuid", ""),
    ("h200x2-gemm", "gpus[*].gemms[*].dtype", "its data type is not recorded"),
    ("h200x2-gemm", "gpus[*].gemms[*].m", "its shape is not recorded"),
    ("h200x2-gemm", "gpus[*].gemms[*].accumulate", ""),
    ("h200-cudnn", "libraries[*].path", "no path of the loaded cudnn"),
    ("h200-cudnn", "libraries[*].version", "no version of the loaded cudnn"),
    ("h200-cudnn", "convolutions[*].dtype", "its data type is not recorded"),
    ("h200-cudnn", "convolutions[*].shape", "its shape is not recorded"),
    ("h200-toolkit", "version", "the record does not have it (no version of nvcc)"),
    ("h200-throughput", "gpus[*].uuid", ""),
    ("h200-throughput", "series[*].kind", "its kind is not recorded"),
    ("h200-throughput", "series[*].codec", "its codec is not recorded"),
    ("h200-throughput", "series[*].width", "the width of its pictures is not recorded"),
    ("h200-throughput", "series[*].outcome", "the record does not have it (no outcome)"),
    ("h200-throughput", "series[*].steps", "its steps are not recorded"),
    ("h200-throughput", "series[*].steps[*].fps", "its frames a second are not recorded"),
    ("t4-transcode", "cases[*].outcome", "the record does not have it (no outcome)"),
    ("t4-transcode", "cases[*].id", "its id is not recorded"),
    ("t4-transcode", "inputs[*].frames", "how many frames input"),
    ("t4-transcode", "inputs[*].name", "the name of an input is not recorded"),
    ("t4-transcode", "cases[*].decisive_line", "the record does not have it (no line of FFmpeg)"),
    ("t4-transcode", "cases[*].gpu_proof.nvdec_lines", "FFmpeg's lines were not kept"),
    ("t4-transcode", "cases[*].gpu_proof.nvenc_lines", "FFmpeg's lines were not kept"),
)  # fmt: skip
# Of what is only not recorded, none of these is known.
UNFOUNDED = (
    "twice",
    "same GPU",
    "more than one",
    "is wrong",
    "wrong results",
    "impossible",
    "there is no",
    "None",
    "comes first",
)


@pytest.mark.parametrize(("record", "key", "says"), ABSENT_KEYS, ids=[f"{row[0]} {row[1]}" for row in ABSENT_KEYS])
def test_what_a_record_lacks_is_said_as_lacking(record: str, key: str, says: str) -> None:
    values = bases()[record].document["measurements"][0]["values"]
    changes = tuple(
        (("measurements", 0, "values", *place), change_of("absent")) for place in places(values, key)
    )  # fmt: skip
    assert changes
    findings = Mutation("absent", record, key, NEVER_PASS, changes).findings()
    untrue = [finding for finding in findings if any(word in finding.reason for word in UNFOUNDED)]
    assert not untrue, untrue
    assert {finding.status.value for finding in findings} <= {"PASS", "SKIP", "UNKNOWN"} - (
        {"UNKNOWN"} if not says else set()
    )
    assert not says or any(says in finding.reason for finding in findings), [finding.reason for finding in findings]
