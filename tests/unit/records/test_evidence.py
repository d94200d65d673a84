"""Evidence: the values of probes as dataclasses. What does not fit is not recorded, and spoils nothing beside it."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import typing
from pathlib import Path
from typing import Any

import pytest
from builders import shipped
from hypothesis import given
from hypothesis import strategies as st
from places import ROOT, TESTS

from gpuprep import records
from gpuprep.records import evidence, serialize
from gpuprep.records.evidence import kinds
from gpuprep.workflows import record_file, rejudge

DOCS = (ROOT / "docs" / "records.md").read_text()
PROBES = kinds.OF_PROBE
KEY = re.compile(r'"(\w+)":')


def section(name: str) -> set[str]:
    """The keys that the code blocks of a section of docs/records.md have."""
    text = DOCS.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]
    block = "\n".join(line for line in text.splitlines() if line.startswith("    ") or "`{" in line)
    return set(KEY.findall(re.sub(r'"bindings": \{[^}]*\},?', "", block)))  # versions that nobody judges


def classes(kind: Any) -> set[Any]:
    """The dataclasses that a type is made of."""
    if kind is records.Missing:
        return set()
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return {kind}.union(*(classes(hints[spec.name]) for spec in dataclasses.fields(kind)))
    return set().union(*map(classes, typing.get_args(kind)))


def key_of(spec: Any) -> str:
    """Its name in JSON: a word of Python cannot be the name of a field."""
    return str(spec.metadata.get("key", spec.name))


def keys(kind: Any) -> set[str]:
    return {key_of(spec) for one in classes(kind) for spec in dataclasses.fields(one)}


@pytest.mark.parametrize("probe", PROBES)
def test_each_key_that_is_read_is_documented_and_each_documented_one_is_read(probe: str) -> None:
    """Who writes a record by hand has docs/records.md alone: a key that nobody reads would be no evidence."""
    shared = section("Shared forms")
    assert section(probe) - keys(PROBES[probe]) - shared == set()
    assert shared <= set().union(*map(keys, PROBES.values()))
    undocumented = keys(PROBES[probe]) - section(probe) - shared
    assert undocumented == ({"published"} if probe in ("gemm", "nccl", "throughput") else set())
    assert '"published"' in DOCS


@pytest.mark.parametrize("probe", ["gemm", "bandwidth", "throughput"])
def test_a_whole_record_misses_no_key_when_it_is_judged(probe: str) -> None:
    """With another program on the GPU it is UNKNOWN, and then the missing keys are listed."""
    measured = json.loads((TESTS / f"cases/records/h200-{probe}.json").read_text())
    measured["values"]["gpus"][0]["other_processes"] = [{"pid": 7, "name": "train", "memory_mib": 300}]
    judged = rejudge.judge(record_file.from_figures({"host": "h", "measurements": [measured]}), shipped("h200"))
    assert judged.verdict is not None
    assert judged.verdict.status is records.Status.UNKNOWN
    assert [one.reason for one in judged.findings if one.key == "record.keys"] == []


@pytest.mark.parametrize("path", sorted((TESTS / "cases" / "records").glob("h200-*.json")), ids=lambda path: path.stem)
def test_every_figure_of_a_real_answer_is_in_the_evidence(path: Path) -> None:
    answer = json.loads(path.read_text())
    assert lost(evidence.measured(PROBES[answer["probe"]], answer["values"]), answer["values"]) == []


def lost(found: Any, value: Any, at: str = "") -> list[str]:
    """Where the evidence is not what was written: null and absent are the same, and so are 3 and 3.0."""
    if dataclasses.is_dataclass(found) and not isinstance(found, records.Missing):
        parts = {key_of(spec): getattr(found, spec.name) for spec in dataclasses.fields(found)}
        unknown = [f"{at}.{key}" for key in value if key not in parts and key != "bindings"]
        return unknown + [
            wrong for key in value if key in parts for wrong in lost(parts[key], value[key], f"{at}.{key}")
        ]
    if isinstance(value, list):
        pairs = enumerate(zip(found, value, strict=True))
        return [wrong for index, (one, other) in pairs for wrong in lost(one, other, f"{at}[{index}]")]
    if isinstance(value, dict):
        return [] if "missing" in value and (found is None or isinstance(found, records.Missing)) else [at]
    absent = found in (None, "", ()) or isinstance(found, records.Missing)
    return [] if found == value or (value is None and absent) else [at]


def read(probe: str, values: object) -> Any:
    return evidence.measured(PROBES[probe], values)


def product(**values: Any) -> Any:
    return read("gemm", {"gpus": [{"gemms": [{"dtype": "fp16", "m": 8, "tflops": 2.5, **values}]}]}).gpus[0].gemms[0]


NOT_A_FIGURE = records.Missing("not_recorded", "no figure tflops")


TOO_LARGE = records.Missing("unparsable", "10^15 or more")


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (3, 3.0), (2.5, 2.5), (None, NOT_A_FIGURE), ("3", NOT_A_FIGURE), (True, NOT_A_FIGURE), (1e15, TOO_LARGE),
        (10**400, TOO_LARGE), ([], NOT_A_FIGURE), ({"a": 1}, NOT_A_FIGURE),
        (math.nan, records.Missing("unparsable", "NaN")), ({"missing": 7}, records.Missing("7")),
        ({"missing": "gpu_is_lost", "detail": "x"}, records.Missing("gpu_is_lost", "x")),
    ],
)  # fmt: skip
def test_a_figure_is_a_finite_number_or_missing(value: object, read: object) -> None:
    found = product(tflops=value)
    assert found.tflops == read
    assert (found.dtype, found.m) == ("fp16", 8)


@pytest.mark.parametrize(
    ("value", "read"), [(8, 8), (8.0, 8), (0, None), (-1, None), (2.5, None), (True, None), ("8", None)]
)
def test_a_size_is_a_whole_number_above_0(value: object, read: int | None) -> None:
    assert product(k=value).k == read


@pytest.mark.parametrize(
    ("value", "read"),
    [(None, ""), ("lost", "lost"), ({"missing": "a", "detail": "b"}, "a: b"), (7, "an error that is no text: 7")],
)
def test_an_error_is_never_lost(value: object, read: str) -> None:
    assert product(error=value).error == read


def test_what_may_be_missing_is_never_plainly_absent() -> None:
    assert product().sustained is None
    assert product(sustained=None).sustained is None
    assert isinstance(product(sustained=7).sustained, records.Missing)
    assert product(sustained={"tflops": 2}).sustained.tflops == 2.0
    assert isinstance(product(algorithm=[]).algorithm, records.Missing)
    assert product(algorithm={"tile_m": 128}).algorithm.tile_m == 128


@pytest.mark.parametrize(
    ("probe", "entry", "key"),
    [
        ("throughput", {"series": [{"steps": [{"died": "x"}]}]}, "series.steps.died"),
        ("transcode", {"cases": [{"needs": 7}]}, "cases.needs"),
        ("transcode", {"cases": [{"warnings": [7]}]}, "cases.warnings"),
        ("transcode", {"cases": [{"outputs": [{"expected": 7}]}]}, "cases.outputs.expected"),
        ("transcode", {"cases": [{"needs": {"capabilities": ["nodot"]}}]}, "cases.needs.capabilities"),
    ],
)
def test_what_does_not_fit_is_missing_in_each_probe(probe: str, entry: dict[str, Any], key: str) -> None:
    found = read(probe, entry)
    for name in key.split("."):
        found = getattr(found, name)
        found = found[0] if isinstance(found, tuple) and name != "died" else found
    assert isinstance(found, records.Missing)


def test_an_entry_that_does_not_fit_is_told_where_it_counts() -> None:
    found = read("gemm", {"gpus": [7, {"index": 1}, {"missing": "x"}], "libraries": [7, {"name": "cudart"}]})
    assert [isinstance(entry, records.Missing) for entry in found.gpus] == [True, False, True]
    assert [library.name for library in found.libraries] == ["cudart"]


def test_columns_keep_their_length() -> None:
    found = product(telemetry={"seconds": [0, "x", None, 2.5, math.inf]})
    assert found.telemetry.seconds == (0.0, None, None, 2.5, None)


def test_a_key_that_is_a_word_of_python() -> None:
    (pair,) = read("bandwidth", {"peers": [{"from": 0, "to": 1, "gb_per_s": 12}]}).peers
    assert (pair.start, pair.end, pair.gb_per_s) == (0, 1, 12.0)


def test_a_probe_without_an_answer() -> None:
    failed = records.Missing("command_failed", "x")
    assert read("gemm", failed) == read("gemm", {"missing": "command_failed", "detail": "x"}) == failed
    assert read("gemm", None) == read("gemm", [7]) == evidence.NO_ANSWER
    assert read("gemm", {"unknown": [1]}) == read("gemm", {})
    assert not isinstance(read("gemm", {}), records.Missing)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.just({"missing": "x"})),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(
        ["gpus", "gemms", "sustained", "tflops", "m", "error", "cases", "outputs", "expected", "series", "steps"]
    ), inner, max_size=3)),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.parametrize("probe", PROBES)
@given(data=st.data())
def test_damage_of_any_kind_is_read(probe: str, data: st.DataObject) -> None:
    kind = PROBES[probe]
    names = [key_of(spec) for spec in dataclasses.fields(kind)]
    values = data.draw(st.dictionaries(st.sampled_from(names), JSON))
    assert isinstance(read(probe, values), kind)


def test_what_hosts_say_alike_is_in_memory_once() -> None:
    def told(text: str) -> str:
        document = {"status": text, "wanted": "", "before": "", "began": ""}
        return records.from_json_value(records.DriverChange, document).status

    one, other = (told("".join(["a", " text", " of a host"])) for _ in range(2))
    assert one is other
    for number in range(serialize.MOST_SHARED + 1):
        told(f"another {number}")
    assert len(serialize._shared) <= serialize.MOST_SHARED
    assert told("x" * (serialize.SHARED_LETTERS + 1)) not in serialize._shared
