"""The page of a fleet with a host of each kind."""

from __future__ import annotations

import dataclasses

from driftfixes import FIXES
from fleethosts import lost, passed, unsure, warned
from nightmetrics import drifted

from gpuprep.records import (
    DriftFacts,
    Finding,
    RunRecord,
    Source,
    Status,
)

SINCE = "2026-11-19T02:30:00+00:00"


CLOCKS = tuple(
    Finding(f"gpu {n}", "clocks", Status.FAIL, "1980 MHz", "1095 MHz", "it is slow", "tune it", since=SINCE)
    for n in range(8)
)


POWER = Finding("gpu 1", "power_limit", Status.WAIVED, "700 W", "650 W", "waived until 2026-12-31 (one supply): low",
                since=SINCE, waived="FAIL", waiver_expires="2026-12-31")  # fmt: skip


FIXED = DriftFacts(on_host=True, fixes=FIXES)


LONG = "gpu-node-0042.cluster-of-the-west.example.org"


def simulated(host: str) -> RunRecord:
    return dataclasses.replace(drifted(host, (POWER,), Status.PASS), source=Source.SIMULATED)


FLEET = [
    passed("gpu-10"), passed("gpu-09"), simulated("gpu-06"), warned("gpu-05"), unsure("gpu-04"),
    drifted("gpu-03", (*CLOCKS, POWER)), dataclasses.replace(drifted("gpu-08"), drift=FIXED),
    lost(), lost(LONG),
]  # fmt: skip
