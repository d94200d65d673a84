"""Each probe is in each table that has an entry a probe, or is an exception with a reason."""

from __future__ import annotations

import pytest

from gpuprep.checks import identity
from gpuprep.checks.drift import coverage
from gpuprep.desired import probes
from gpuprep.records.evidence import kinds

TABLES = {
    "PARTS": coverage.PARTS,
    "WITH_DEPTH": coverage.WITH_DEPTH,
    "OF_PROBE": kinds.OF_PROBE,
    "KINDS": identity.KINDS,
}
EXCEPTIONS = {
    "PARTS": {"toolkit": "it has no parts: it works or not", "codec": "it has no parts: it lists those of FFmpeg"},
    "WITH_DEPTH": {
        "toolkit": "--quick changes nothing", "codec": "--quick changes nothing",
    },
    "OF_PROBE": {},
    "KINDS": {
        "toolkit": "it names no GPU", "codec": "it names no GPU",
        "cudnn": "AnyProbe reads its GPU", "transcode": "AnyProbe reads its GPU",
    },
}  # fmt: skip


@pytest.mark.parametrize("table", TABLES)
def test_each_probe_is_in_the_table_or_an_exception(table: str) -> None:
    entries, exceptions = set(TABLES[table]), set(EXCEPTIONS[table])
    assert entries | exceptions == set(probes.NAMES)
    assert entries & exceptions == set()
