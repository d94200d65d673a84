"""HTML pages of reports: of runs of each kind, and of a fleet with a host of each kind."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path

from capacitytables import shown
from fleethosts import lost, passed, unsure, warned
from judgedrecords import judged
from nightmetrics import drifted
from records_for_tests import record
from validations_for_tests import h200, several, t4

from gpuprep import reports
from gpuprep.records import (
    DriftFacts,
    Finding,
    Fix,
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


TUNE = "systemctl restart gpuprep-tune.service"


FIXES = (
    Fix("gpu 0.clocks", "set clocks", TUNE, 0, "", "585 MHz", "1590 MHz"),
    Fix("gpu 0.compute_mode", "set clocks", TUNE, 0, "", "prohibited", "default"),
    Fix("driver.held", "hold the packages again", "apt-mark hold libcuda1", 100, "E: no lock\nbusy", "free", "free"),
)
FIXED = DriftFacts(on_host=True, fixes=FIXES)


LONG = "gpu-node-0042.cluster-of-the-west.example.org"


def simulated(host: str) -> RunRecord:
    return dataclasses.replace(drifted(host, (POWER,), Status.PASS), source=Source.SIMULATED)


FLEET = [
    passed("gpu-10"), passed("gpu-09"), simulated("gpu-06"), warned("gpu-05"), unsure("gpu-04"),
    drifted("gpu-03", (*CLOCKS, POWER)), dataclasses.replace(drifted("gpu-08"), drift=FIXED),
    lost(), lost(LONG),
]  # fmt: skip


@cache
def well() -> RunRecord:
    """A real H200, judged: all is well."""
    return judged("h200-gemm", "h200-bandwidth", "h200-transcode", "h200-throughput")


@cache
def pages() -> dict[str, str]:
    broken = record(error="t4: it was lost\nwhat to do: look at it", verdict=None, findings=(), measurements=())
    runs = {"well": well(), "h200": h200(), "several": several(), "t4": t4(), "old": record(), "broken": broken}
    runs["capacity"] = shown()
    passed = [dataclasses.replace(well(), host=f"t4-{number}") for number in range(3)]
    fleets = {"fleet": reports.render_fleet(FLEET, "html", 3), "fleet_well": reports.render_fleet(passed, "html", 0)}
    return {**{name: reports.render(run, "html") for name, run in runs.items()}, **fleets}


def at(folder: Path, page: str) -> str:
    """The address of the page, written into the folder."""
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    return path.as_uri()
