"""Evidence: the values of probes as dataclasses. What does not fit is not recorded, and spoils nothing beside it."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import ROOT, TESTS

from gpuprep import records
from gpuprep.records import evidence
from gpuprep.records.evidence import bandwidth, codec, cudnn, decode, gemm, nccl, throughput, toolkit, transcode
from gpuprep.records.evidence.shared import Library, NamedGpu, Process, Telemetry
from gpuprep.workflows import missing_keys

DOCS = (ROOT / "docs" / "records.md").read_text()
PROBES: dict[str, type] = {
    "gemm": gemm.Gemm, "bandwidth": bandwidth.Bandwidth, "toolkit": toolkit.Toolkit, "cudnn": cudnn.Cudnn, "codec": codec.Codec, "transcode": transcode.Transcode,
    "throughput": throughput.Throughput, "nccl": nccl.Nccl,
}  # fmt: skip
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


def keys(kind: Any) -> set[str]:
    return {decode.key_of(spec) for one in classes(kind) for spec in dataclasses.fields(one)}


@pytest.mark.parametrize("probe", PROBES)
def test_docs_and_types_have_the_same_keys(probe: str) -> None:
    shared = section("Shared forms")
    assert shared == keys(NamedGpu) | keys(Library) | keys(Telemetry) | keys(Process)
    documented = section(probe) | shared
    assert documented - (keys(PROBES[probe]) | shared) == set()
    assert keys(PROBES[probe]) - documented == ({"published"} if probe in ("gemm", "nccl", "throughput") else set())
    assert '"published"' in DOCS


def paths(kind: Any) -> set[str]:
    """Every path of keys below a type, as judge writes them: "gpus[].gemms[].tflops"."""
    hints = typing.get_type_hints(kind)
    found = set()
    for spec in dataclasses.fields(kind):
        found.add(decode.key_of(spec))
        for listed, inner in inside(hints[spec.name]):
            found |= {f"{decode.key_of(spec)}{'[]' * listed}.{path}" for path in paths(inner)}
    return found


def inside(hint: Any) -> Iterator[tuple[bool, Any]]:
    """(whether it is in a list, the dataclass) of each that a type names."""
    if dataclasses.is_dataclass(hint) and hint is not records.Missing:
        yield False, hint
    for argument in typing.get_args(hint):
        for listed, kind in inside(argument):
            yield listed or typing.get_origin(hint) is tuple, kind


@pytest.mark.parametrize("probe", missing_keys.ALWAYS)
def test_each_key_that_judge_can_miss_is_one_of_the_type(probe: str) -> None:
    for path in (*missing_keys.ALWAYS[probe], *missing_keys.UNLESS_PUBLISHED[probe]):
        start, dot, ends = path.rpartition(".")
        assert {f"{start}{dot}{end}" for end in ends.split("|")} <= paths(PROBES[probe]), path


@pytest.mark.parametrize("path", sorted((TESTS / "cases" / "records").glob("h200-*.json")), ids=lambda path: path.stem)
def test_every_figure_of_a_real_answer_is_in_the_evidence(path: Path) -> None:
    answer = json.loads(path.read_text())
    assert lost(evidence.measured(PROBES[answer["probe"]], answer["values"]), answer["values"]) == []


def lost(found: Any, value: Any, at: str = "") -> list[str]:
    """Where the evidence is not what was written: null and absent are the same, and so are 3 and 3.0."""
    if dataclasses.is_dataclass(found) and not isinstance(found, records.Missing):
        parts = {decode.key_of(spec): getattr(found, spec.name) for spec in dataclasses.fields(found)}
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


def product(**values: Any) -> gemm.Product:
    found = evidence.measured(gemm.Product, {"dtype": "fp16", "m": 8, "tflops": 2.5, **values})
    assert isinstance(found, gemm.Product)
    return found


NOT_A_FIGURE = records.Missing("not_recorded", "no figure tflops")


TOO_LARGE = records.Missing("unparsable", "10^15 or more")


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (3, 3.0), (2.5, 2.5), (None, NOT_A_FIGURE), ("3", NOT_A_FIGURE), (True, NOT_A_FIGURE), (1e15, TOO_LARGE),
        (10**400, TOO_LARGE), ([], NOT_A_FIGURE), ({"a": 1}, NOT_A_FIGURE), (math.nan, records.Missing("unparsable", "NaN")),
        ({"missing": "gpu_is_lost", "detail": "x"}, records.Missing("gpu_is_lost", "x")), ({"missing": 7}, records.Missing("7")),
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
    assert product(sustained={"tflops": 2}).sustained == evidence.measured(gemm.Sustained, {"tflops": 2})
    assert isinstance(product(algorithm=[]).algorithm, records.Missing)
    assert isinstance(product(algorithm={"tile_m": 128}).algorithm, gemm.Algorithm)
    for kind, key, value in ((throughput.Step, "died", "x"), (transcode.Case, "needs", 7), (transcode.Case, "warnings", [7]), (transcode.Output, "expected", 7),
                             (transcode.Needs, "capabilities", ["nodot"])):  # fmt: skip
        assert isinstance(getattr(evidence.measured(kind, {key: value}), key), records.Missing), (kind, key)


def test_an_entry_that_does_not_fit_is_told_where_it_counts() -> None:
    found = evidence.measured(
        gemm.Gemm, {"gpus": [7, {"index": 1}, {"missing": "x"}], "libraries": [7, {"name": "cudart"}]}
    )
    assert isinstance(found, gemm.Gemm)
    assert [isinstance(entry, records.Missing) for entry in found.gpus] == [True, False, True]
    assert found.libraries == (Library("cudart"),)


def test_columns_keep_their_length() -> None:
    assert evidence.measured(Telemetry, {"seconds": [0, "x", None, 2.5, math.inf]}) == Telemetry(
        seconds=(0.0, None, None, 2.5, None)
    )


def test_a_key_that_is_a_word_of_python() -> None:
    found = evidence.measured(bandwidth.Bandwidth, {"peers": [{"from": 0, "to": 1, "gb_per_s": 12}]})
    assert isinstance(found, bandwidth.Bandwidth)
    assert (found.peers[0].start, found.peers[0].end, found.peers[0].gb_per_s) == (0, 1, 12.0)


def test_a_probe_without_an_answer() -> None:
    assert evidence.measured(gemm.Gemm, records.Missing("command_failed", "x")) == records.Missing(
        "command_failed", "x"
    )
    assert evidence.measured(gemm.Gemm, {"missing": "command_failed", "detail": "x"}) == records.Missing(
        "command_failed", "x"
    )
    assert evidence.measured(gemm.Gemm, None) == evidence.measured(gemm.Gemm, [7]) == evidence.NO_ANSWER
    assert evidence.measured(gemm.Gemm, {"unknown": [1]}) == gemm.Gemm()


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
    names = [decode.key_of(spec) for spec in dataclasses.fields(kind)]
    values = data.draw(st.dictionaries(st.sampled_from(names), JSON))
    assert isinstance(evidence.measured(kind, values), kind)
    assert isinstance(evidence.measured(bandwidth.BandwidthGpu, values), bandwidth.BandwidthGpu)
