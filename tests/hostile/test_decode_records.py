"""Records that a host, a file or a store may hold: refused with a line, or made fit to be judged, stored and shown."""

from __future__ import annotations

import dataclasses
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from commandline import Shell, own_folders
from nightsfortests import a_plan, result
from records_for_tests import SNAPSHOT, record

from gpuprep import errors, records, settings
from gpuprep.agent.facts import digests, parse, xids
from gpuprep.agent.facts.manifest import is_intact
from gpuprep.agent.programs import run
from gpuprep.nightly import freshness, nightlyplan, notify, results
from gpuprep.untrusted import limits
from gpuprep.workflows import record_file

RUN = json.loads(records.to_json(record("20261121-023107-0a1b2")))
HOST = json.loads(records.to_json(SNAPSHOT))


def run_with(**changed: Any) -> str:
    return json.dumps({**RUN, **changed})


def probe_with(value: str) -> str:
    return f'{{"probe": "gemm", "source": "measured", "seconds": 1.5, "values": {{"a": {value}}}}}'


# ---------------------------------------------------------------- limits of a document


def test_a_key_twice_among_many_is_found_in_one_look() -> None:
    keys = ",".join(f'"{number}":1' for number in range(200_000))
    with pytest.raises(ValueError, match="the key '199999' stands twice"):
        limits.json_document(f'{{{keys},"199999":2}}')  # a look at all keys for each would take minutes


BEYOND = {
    "larger than 16 MiB": (probe_with('"' + "x" * 17_000_000 + '"'), "larger than 16 MiB"),
    "a million empty lists": (probe_with("[" + "[]," * 1_000_000 + "[]]"), "more than 300000 values"),
    "a million keys": (
        probe_with("{" + ",".join(f'"{n}":0' for n in range(1_000_000)) + "}"),
        "more than 300000 values",
    ),
    "a million escapes": (probe_with('"' + "\\u202e" * 1_000_000 + '"'), "more than 400000 characters"),
    "a million tags beyond ASCII": (probe_with('"' + "\U000e0041" * 1_000_000 + '"'), "more than 400000 characters"),
    "lists in lists, 65": (probe_with("[" * 65 + "]" * 65), "deeper than 64 levels"),
    "lists in lists, 900": (probe_with("[" * 900 + "]" * 900), "deeper than 64 levels"),
    "lists in lists, 100000": (probe_with("[" * 100_000 + "]" * 100_000), "deeper than 64 levels"),
    "objects in objects": (probe_with('{"a":' * 50_000 + "1" + "}" * 50_000), "deeper than 64 levels"),
    "nested under a key that nobody reads": (f'{{"x": {"[" * 99}{"]" * 99}}}', "deeper than 64 levels"),
    "an integer of 65 bits": (probe_with("18446744073709551616"), "does not fit in 64 bits"),
    "a negative one": (probe_with("-9223372036854775809"), "does not fit in 64 bits"),
    "an integer of a million digits": (probe_with("1" * 1_000_000), "does not fit in 64 bits"),
    "an integer as exit code": (run_with(exit_code=10**30), "does not fit in 64 bits"),
    "not JSON": ("<html>", "not JSON"),
    "cut off": (run_with()[:-5], "not JSON"),
    "empty": ("", "not JSON"),
    "a byte order mark": ("\ufeff{}", "not JSON"),
}


@pytest.mark.parametrize("attack", BEYOND)
def test_a_document_beyond_a_limit_is_refused_with_its_limit(attack: str) -> None:
    text, why = BEYOND[attack]
    for kind in (records.RunRecord, records.ProbeResult):
        with pytest.raises(records.DecodeError, match=why):
            records.from_json(kind, text)


# ---------------------------------------------------------------- what a field cannot be

MOMENTS = ["", "yesterday", "2026", "2026-11-22", "2026-11-22T02:30:00", "2026-11-22T02:30:00Z", "20261122T023000+0000",
           "2026-02-30T02:30:00+00:00", "0001-01-01T00:00:00+00:00", "1969-12-31T23:59:59+00:00", "2026-W47-7",
           "9999-12-31T23:59:59-14:00", "2026-11-22T02:30:00+99:00", "2026-11-22T02:30:00+00:00\n",
           "٢٠٢٦-11-22T02:30:00+00:00", "2026-11-22T02:30:00.1+00:00"]  # fmt: skip


@pytest.mark.parametrize("moment", MOMENTS, ids=repr)
def test_what_is_no_moment_is_none(moment: str) -> None:
    with pytest.raises(records.DecodeError, match=r"RunRecord\.ended_at: want a moment"):
        records.from_json(records.RunRecord, run_with(ended_at=moment))
    with pytest.raises(records.DecodeError, match=r"Snapshot\.taken_at: want a moment"):
        records.from_json(records.Snapshot, json.dumps({**HOST, "taken_at": moment}))


FINDING = {"subject": "a", "property": "b", "status": "PASS", "expected": "", "actual": ""}
FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "a run id with a command": ({"run_id": "x; reboot"}, "run_id: want the id of a run"),
    "a run id with a line": ({"run_id": "x\ny"}, "run_id"),
    "a run id with a path": ({"run_id": "../../etc/passwd"}, "run_id"),
    "a run id of 65 letters": ({"run_id": "a" * 65}, "run_id"),
    "no run id": ({"run_id": ""}, "run_id"),
    "an exit code of 256": ({"exit_code": 256}, "exit_code: want a number from 0 to 255"),
    "a negative exit code": ({"exit_code": -1}, "exit_code"),
    "an exit code of 2 to the 63rd": ({"exit_code": 2**63}, "exit_code"),
    "an exit code that is true": ({"exit_code": True}, "exit_code: want a whole number"),
    "a source that is none": ({"source": "dreamt"}, "is none of measured, simulated"),
    "a source that is a list": ({"source": ["measured"]}, "is none of"),
    "findings that are an object": ({"findings": {}}, "findings: want a list"),
    "a since that is no moment": ({"findings": [{**FINDING, "since": "once"}]}, r"findings\[0\].since: want a moment"),
    "a status that is none": ({"findings": [{**FINDING, "status": "GREAT"}]}, "is none of PASS, WARN"),
    "a waiver until a day that is none": ({"findings": [{**FINDING, "waiver_expires": "2026-02-30"}]}, "want a day"),
    "a certified run that is a command": ({"drift": {"certified_run": "$(id)"}}, "certified_run"),
    "certified at no time": ({"drift": {"certified_at": "once"}}, "certified_at"),
    "previous at no time": ({"drift": {"previous_at": "0000"}}, "previous_at"),
    "asked since no time": ({"drift": {"probe_asked_since": "x"}}, "probe_asked_since"),
    "next at no time": ({"nightly": {"scheduled": True, "next_at": "soon"}}, "next_at"),
    "seconds that are no number": (
        {"measurements": [{"probe": "a", "source": "measured", "values": {}, "seconds": float("nan")}]},
        "seconds: want a number, got NaN",
    ),
    "seconds without end": (
        {"measurements": [{"probe": "a", "source": "measured", "values": {}, "seconds": float("inf")}]},
        "seconds: want a number, got Infinity",
    ),
}  # fmt: skip


@pytest.mark.parametrize("attack", FIELDS)
def test_a_field_that_nothing_can_be_made_of_is_named(attack: str) -> None:
    changed, why = FIELDS[attack]
    with pytest.raises(records.DecodeError, match=why) as caught:
        records.from_json(records.RunRecord, run_with(**changed))
    assert str(caught.value).isprintable()


def test_the_message_of_a_huge_value_is_short() -> None:
    with pytest.raises(
        records.DecodeError, match="want text, got"
    ) as caught:  # of 5 MB: one of more than 16 is not read at all
        records.from_json(records.RunRecord, run_with(command=[["x" * 1000] * 1000] * 5))
    assert len(str(caught.value)) < 150


# ---------------------------------------------------------------- what is made fit

UNSAFE = {
    "an escape": ("\x1b[2J\x1b[1;31mPASS", "\\x1b[2J\\x1b[1;31mPASS"),
    "a carriage return": ("FAIL\rPASS", "FAIL\\x0dPASS"),
    "bidirectional": ("\u202eSSAP", "\\u202eSSAP"),
    "half a pair": ("a\ud800b", "a\\ud800b"),
    "NUL": ("a\0b", "a\\x00b"),
    "a C1 control": ("\x9b31m", "\\x9b31m"),
    "tags": ("\U000e0041", "\\U000e0041"),
    "a line separator": ("a\u2028b", "a\\u2028b"),
}


@pytest.mark.parametrize("attack", UNSAFE)
def test_each_text_comes_out_visible_wherever_it_stands(attack: str) -> None:
    said, shown = UNSAFE[attack]
    found = records.from_json(
        records.Snapshot,
        json.dumps({**HOST, "hostname": said, "provenance": {said: [{"deep": said}]}, "commands": {said: said},
                    "cloud_init": {"missing": said, "detail": said}}),
    )  # fmt: skip
    assert (found.hostname, found.commands) == (shown, {shown: shown})
    assert found.provenance == {shown: [{"deep": shown}]}
    assert found.cloud_init == records.Missing(shown, shown)
    assert records.from_json(records.Snapshot, records.to_json(found)) == found


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_a_number_that_is_none_is_a_reading_that_failed(number: str) -> None:
    missing = {"missing": "unparsable", "detail": number.replace("1e999", "Infinity")}
    found = records.from_json(records.ProbeResult, probe_with(f"[{number}]"))
    assert found.values == {"a": [missing]}
    left = records.to_json(records.ProbeResult("gemm", records.Source.MEASURED, {"a": float(number)}, 1.0))
    assert json.loads(left, parse_constant=pytest.fail)["values"] == {"a": missing}


def test_a_gpu_whose_power_is_no_number_keeps_its_other_readings() -> None:
    power = json.loads('{"current_watts": 1e999, "default_watts": NaN, "min_watts": 60, "max_watts": 70.0}')
    found = records.from_json_value(records.PowerLimits, power)
    unread = (records.Missing("unparsable", "Infinity"), records.Missing("unparsable", "NaN"))
    assert found == records.PowerLimits(*unread, 60.0, 70.0)


def test_a_long_text_is_cut_and_says_by_how_much() -> None:
    found = records.from_json(records.RunRecord, run_with(error="x" * 1_000_000))
    assert found.error is not None
    assert found.error.endswith(f"… ({1_000_000 - limits.TEXT_LETTERS} more letters)")


def test_nothing_that_is_no_utf8_leaves() -> None:
    records.to_json(record(error="half \ud800", options={"\udfff": "\ud800"})).encode()
    json.loads(records.to_json(record(error="half \ud800"))).get("error").encode()


def test_another_language_is_read_as_it_is() -> None:
    found = records.from_json(records.RunRecord, run_with(error="Größe 温度 №"))
    assert found.error == "Größe 温度 №"


# ---------------------------------------------------------------- files


@pytest.fixture
def strange(tmp_path: Path) -> dict[str, Path]:
    """What may stand where a small file should."""
    paths = {name: tmp_path / name for name in ("pipe", "endless", "large", "folder", "binary", "deep")}
    os.mkfifo(paths["pipe"])
    paths["endless"].symlink_to("/dev/zero")
    with paths["large"].open("wb") as file:
        file.truncate(limits.FILE_BYTES + 1)
    paths["folder"].mkdir()
    paths["binary"].write_bytes(bytes(range(256)))
    paths["deep"].write_text("[" * 1_000_000)
    return paths


STRANGE = ["pipe", "endless", "large", "folder", "binary", "deep"]


@pytest.mark.parametrize("kind", STRANGE)
def test_no_file_keeps_a_reader_waiting(kind: str, strange: dict[str, Path], tmp_path: Path) -> None:
    path = strange[kind]
    with pytest.raises(errors.UsageError):
        record_file.read(path, ("gemm",))
    with pytest.raises(errors.UsageError):
        settings.load(path)
    assert isinstance(results.read(path), results.Damaged)
    state, trouble = notify._load(path)
    assert (state, bool(trouble)) == (notify.State(), True)
    assert kind in ("binary", "deep") or isinstance(run.read_text(path), records.Missing)
    if kind in ("pipe", "endless", "folder"):
        with pytest.raises(OSError, match=r"regular file|Is a directory"):
            digests.sha256(path)
        assert is_intact(tmp_path, {"files": {kind: "0" * 64}}) is not True


@pytest.mark.parametrize("kind", ["pipe", "endless", "large", "deep"])
def test_judge_ends_with_one_line_and_2(
    kind: str,
    strange: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own_folders(monkeypatch, tmp_path)
    code, said, complained = Shell(capsys)("judge", str(strange[kind]), "--profile", "t4")
    assert (code, said) == (2, "")
    assert complained.startswith(f"Error: {strange[kind]}: ")


def test_root_follows_no_link_to_a_result(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text(records.to_json(result()))
    (tmp_path / "last.json").symlink_to("real.json")
    assert isinstance(results.read(tmp_path / "last.json"), results.Damaged)
    assert isinstance(results.read(tmp_path / "real.json"), records.RunRecord)


def test_a_file_of_proc_whose_size_is_none_is_read() -> None:
    assert limits.file_text("/proc/self/status").startswith("Name:")


def test_json_that_is_no_record_has_the_same_limits() -> None:
    with pytest.raises(limits.BeyondLimit):
        limits.json_document("[" * 65 + "]" * 65)
    assert limits.json_document("[" * 64 + "]" * 64)


@pytest.mark.parametrize("minutes", ["1e999", "1e12", "99999999999", '"720"', "NaN", "[1]", "-5"])
def test_a_plan_does_not_make_a_result_fresh_for_ever(minutes: str) -> None:
    most = freshness.FRESH + timedelta(minutes=720)
    assert freshness.fresh_for(f'{{"drift": {{"random_delay_minutes": {minutes}}}}}') <= most


@pytest.mark.parametrize("changed", [{"made_at": "x"}, {"thresholds": {"a": "[" * 99}, "made_at": ""}, {"host": 3}])
def test_a_plan_that_is_none(changed: dict[str, Any]) -> None:
    document = {**json.loads(nightlyplan.to_text(a_plan())), **changed}
    with pytest.raises(records.DecodeError):
        nightlyplan.from_text(json.dumps(document))


# ---------------------------------------------------------------- what programs of a host print


@pytest.mark.parametrize(
    "line",
    ["NVRM: Xid (PCI:0000:83:00): " + "9" * 5000 + ", x", "9" * 400 + ".0 h kernel: NVRM: Xid (PCI:0:0:0): 79, x",
     "1.5 h kernel: NVRM: Xid (PCI:0000:83:00): ٧٩, x"],
    ids=["a code of 5000 digits", "a time of 400 digits", "digits of another script"],
)  # fmt: skip
def test_a_line_of_the_kernel_log_that_no_kernel_wrote(line: str) -> None:
    assert all(isinstance(found.code, int) and found.code < 10**9 for found in xids.from_journal(line))


def test_a_moment_of_the_ring_buffer_without_end() -> None:
    assert xids.from_records(["4,1," + "9" * 30 + ",-;NVRM: Xid (PCI:0000:83:00): 79, x"], 1.7e9) == []


def test_a_mount_with_an_escape_that_is_no_octal_number() -> None:
    (mount,) = parse.mounts("/dev/sda1 /mnt\\999\\040x ext4 rw 0 0\n")
    assert mount.path == "/mnt\\999 x"


def test_as_many_locks_as_packages_are_looked_up_at_once() -> None:
    text = "".join(f"kernel{n}\t0\t1-1\n" for n in range(20_000))
    locks = "".join(f"kernel{n}-0:1-1.x86_64\n" for n in range(20_000))
    found = parse.rpm(text, locks)
    assert len(found) == 20_000
    assert all(package.held for package in found.values())


def test_records_of_before_are_still_read() -> None:
    assert records.from_json(records.RunRecord, run_with()) == record("20261121-023107-0a1b2")
    assert dataclasses.asdict(records.from_json(records.Snapshot, json.dumps(HOST))) == dataclasses.asdict(SNAPSHOT)
