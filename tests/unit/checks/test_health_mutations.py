"""Health of GPUs whose readings are anything at all: no crash, one finding a key, and nothing impossible passes."""

from __future__ import annotations

import dataclasses
from typing import Any

import amount
import pytest
from builders import finished_snapshot, resolved
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuprep import checks, records

WANTED = {name: resolved(name) for name in ("t4", "a100")}
HOSTS = {name: finished_snapshot(wanted) for name, wanted in WANTED.items()}
REASONS = (
    "not_supported", "function_not_found", "gpu_is_lost", "no_permission", "command_failed", "unparsable", "not_read",
    "deprecated", "version_mismatch",
)  # fmt: skip
GROUPS = {
    **dict.fromkeys(("ecc_errors", "dram_errors", "sram_errors"), records.EccErrors),
    "retired_pages": records.RetiredPages, "remapped_rows": records.RemappedRows, "spare_rows": records.SpareRows,
    "temperatures": records.Temperatures, "pcie": records.PcieLink, "pcie_errors": records.PcieErrors,
    "throttled": records.Throttled,
}  # fmt: skip
FLAGS = ("pending", "failure", "sram_threshold_exceeded", "ecc_current", "ecc_pending", "ecc_default")
NUMBERS = (
    "temperature_c", "slowdown_temperature_c", "event_reasons", "cores", "memory_total_mib", "max_graphics_clock_mhz",
)  # fmt: skip

missing = st.builds(records.Missing, st.sampled_from(REASONS), st.just("because"))
whole = st.one_of(
    st.integers(0, 100), st.sampled_from([-1, -(2**31), 2**32 - 1, 2**63, 10**18, 512, 513, 640, 1590]), missing
)
flag = st.one_of(st.booleans(), missing)


def group(kind: type[Any]) -> st.SearchStrategy[Any]:
    """With seconds as floats: of Throttled, NVML's are."""
    one = st.one_of(st.floats(-1e12, 1e12), missing) if kind is records.Throttled else whole
    fields = {field.name: flag if field.name in FLAGS else one for field in dataclasses.fields(kind)}
    return st.one_of(st.builds(kind, **fields), missing)


gpus = st.fixed_dictionaries(
    {},
    optional={
        **{name: group(kind) for name, kind in GROUPS.items()},
        **dict.fromkeys(NUMBERS, whole),
        **{name: flag for name in FLAGS if name not in ("pending", "failure")},
        "recovery_action": st.one_of(st.sampled_from(["none", "reset", "reboot", "unknown 12", "", "<b>"]), missing),
    },
)


def snapshot(model: str, values: dict[str, Any]) -> records.Snapshot:
    host = HOSTS[model]
    assert not isinstance(host.gpus, records.Missing)
    return dataclasses.replace(host, gpus=(dataclasses.replace(host.gpus[0], **values),))


@settings(max_examples=amount.examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(HOSTS)), gpus, gpus, st.sampled_from(["2026-11-22T10:00:00+00:00", "nonsense", ""]))
def test_any_readings_are_judged(model: str, values: dict[str, Any], was: dict[str, Any], at: str) -> None:
    now, before = snapshot(model, values), dataclasses.replace(snapshot(model, was), taken_at=at)
    found = checks.compare(WANTED[model], now, before=before)
    keys = [one.key for one in found]
    assert len(set(keys)) == len(keys)
    for one in found:
        assert one.status in (records.Status.PASS, records.Status.SKIP) or (one.reason and one.remedy), one
        assert "Missing(" not in f"{one.expected}{one.actual}{one.reason}", one
        assert records.from_json(type(one), records.to_json(one)) == one, "it can be stored and read"


@pytest.mark.parametrize("model", sorted(HOSTS))
@pytest.mark.parametrize(
    "name",
    [*GROUPS, "temperature_c", "event_reasons", "ecc_current", "sram_threshold_exceeded", "recovery_action"],
)
def test_a_reading_that_breaks_is_never_a_pass(model: str, name: str) -> None:
    """Of each group as a whole, and of what a board must have by the catalogue."""
    values = {name: records.Missing("command_failed", "it broke")}
    found = checks.compare(WANTED[model], snapshot(model, values))
    assert [one for one in found if one.status is records.Status.UNKNOWN and "it broke" in one.reason], name


def test_every_new_reading_is_tried() -> None:
    names = [field.name for field in dataclasses.fields(records.GpuFacts)]
    new = set(names[names.index("temperatures") :])
    assert new <= {*GROUPS, *NUMBERS, *FLAGS, "recovery_action", "mig_devices"}  # tests/unit/checks/test_mig.py
