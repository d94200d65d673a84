"""What a probe told before it was interrupted comes from a host: its record can be read again."""

from __future__ import annotations

import dataclasses
import json
import threading
from pathlib import Path

import pytest
from records_for_tests import SNAPSHOT, record

from gpuprep import errors, records, remote
from gpuprep.records import serialize
from gpuprep.records.evidence import kinds
from gpuprep.store import Store
from gpuprep.untrusted import limits
from gpuprep.workflows import runs

GEMM = next(kind for kind in kinds.PROBES if kind.name == "gemm")
AT = ["a", "b", "c", "d", "e", "f", "g", "h"]


def told(*pieces: str) -> records.ProbeResult:
    begun = runs.Begun(GEMM, records.Source.MEASURED)
    for piece in pieces:
        begun.so_far.take(piece.encode("utf-8", "surrogatepass"))
    return begun.ended(records.Missing("interrupted", "matrix products"))


def nested(levels: int) -> str:
    return "[" * levels + "1" + "]" * levels


@pytest.mark.parametrize(
    "piece",
    [
        f'{{"at": {json.dumps(AT)}, "value": {nested(60)}}}',
        f'{{"at": {json.dumps(AT)}, "value": {nested(39)}}}',
        '{"at": ["a"], "value": NaN}',
        '{"at": ["a"], "value": 1e999}',
        '{"at": ["\\ud800\\u0000\\u202e"], "value": "\\ud800"}',
        '{"at": ["gpus"], "value": [{"gemms": [{"tflops": 1e308, "m": -1, "k": 1e30, "dtype": "<b>"}]}]}',
    ],
)
def test_a_record_with_it_is_read_again_and_it_has_no_values(piece: str) -> None:
    result = told(piece)
    assert isinstance(result.values, records.Missing)
    whole = record("20261121-023107-0a1b2", measurements=(result,))
    assert records.from_json(records.RunRecord, records.to_json(whole)) == records.from_json(
        records.RunRecord, records.to_json(records.from_json(records.RunRecord, records.to_json(whole)))
    )


def test_an_answer_is_less_deep_than_the_record_that_it_becomes_a_part_of() -> None:
    def answer(levels: int) -> str:
        return f'{{"probe": "gemm", "source": "measured", "seconds": 1.0, "values": {{"a": {nested(levels)}}}}}'

    deepest = serialize.from_last_line(records.ProbeResult, answer(limits.PART_DEPTH - 2))
    records.from_json(records.RunRecord, records.to_json(record("20261121-023107-0a1b2", measurements=(deepest,))))
    with pytest.raises(records.DecodeError, match="nested deeper"):
        serialize.from_last_line(records.ProbeResult, answer(limits.PART_DEPTH - 1))


def test_a_run_that_nothing_could_read_again_is_not_stored_and_says_so(tmp_path: Path, home: Path) -> None:
    """Each answer is within the limits; eight of them together are not."""
    assert home
    result = records.ProbeResult("gemm", records.Source.MEASURED, {"a": ["x" * 60_000] * 50}, 1.0)
    many = tuple(dataclasses.replace(result, probe=kind.name) for kind in kinds.PROBES)
    store = Store.open(f"sqlite:///{tmp_path}/runs.db")
    line = runs.RunContext(lambda _host, _event: None, store, threading.Event().is_set)
    run = runs.Run("validate", remote.Target("host-1"), runs.Options(), line)
    run.draft = runs.Draft(before=SNAPSHOT, after=SNAPSHOT, measurements=many)

    def broken(_: runs.Run) -> None:
        raise errors.GpuprepError("it broke")

    made = run.record(broken)
    assert "host-1 sent more than a record can hold: not JSON: it is larger than 16 MiB" in (made.error or "")
    assert made.exit_code == errors.GpuprepError.exit_code
    assert store.host_of(made.run_id) is None
    store.close()
