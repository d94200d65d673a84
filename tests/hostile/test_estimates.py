"""What earlier runs tell of time comes from hosts: an estimate stays a number that can be shown."""

from __future__ import annotations

import pytest
from records_for_tests import record

from gpuprep import records
from gpuprep.reports import text
from gpuprep.workflows import effort


@pytest.mark.parametrize("seconds", [1e308, -1e308, 0.0])
def test_a_host_cannot_make_an_estimate_endless(seconds: float) -> None:
    measured = tuple(
        records.ProbeResult(name, records.Source.MEASURED, {}, seconds) for name in ("gemm", "bandwidth", "nccl")
    )
    run = record("20261121-023107-0a1b2", command="provision", measurements=measured)
    assert run.plan is not None
    found = effort.of(run.plan, "nvidia", [run], [run])
    assert 0 < found.total.seconds < 100_000
    assert "minutes" in text.effort_sentence(found.total)
    records.to_json(effort.onto(run.plan, found))
