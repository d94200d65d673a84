"""Hosts of a fleet as `drift --last` finds them."""

from __future__ import annotations

import dataclasses

from nightmetrics import FINDINGS, drifted

from gpuprep.records import Finding, RunRecord, Status

PASSED = FINDINGS[2:]


LOST = "gpu-02: gpu-02 port 22 refuses connections\nwhat to do: is sshd running there, and is this its port?"


def passed(host: str) -> RunRecord:
    return drifted(host, PASSED, Status.PASS)


def lost(host: str = "gpu-02") -> RunRecord:
    return dataclasses.replace(
        drifted(host),
        verdict=None,
        findings=(),
        after=None,
        drift=None,
        exit_code=3,
        error=LOST.replace("gpu-02", host),
    )


def unsure(host: str) -> RunRecord:
    finding = Finding("gpu 0", "ecc", Status.UNKNOWN, "keep", "not readable", since="2026-11-20T02:30:00+00:00")
    return dataclasses.replace(drifted(host, (finding, *PASSED), Status.UNKNOWN), exit_code=3)


def warned(host: str) -> RunRecord:
    finding = Finding("gpu 0", "pcie", Status.WARN, "16 lanes", "8 lanes", since="2026-11-21T02:30:00+00:00")
    return drifted(host, (finding, *PASSED), Status.WARN)
